"""Tables as HTML and as Markdown: text stays text, long ones unfold, nothing is left out."""

from __future__ import annotations

from bs4 import BeautifulSoup

from workbench.reports.tables import Cell, ReportColumn, Table, pairs_cell


def table(count: int, text: str = "a") -> Table:
    return Table(
        columns=(ReportColumn(heading=text), ReportColumn(heading="n", figure=True)),
        rows=((Cell(text), Cell("1")),) * count,
    )


def test_a_name_with_markup_is_text_in_both_forms(markup: str) -> None:
    both = table(1, markup)
    html = BeautifulSoup(both.to_html(), "html.parser")
    assert html.find("td").get_text() == html.find("th").get_text() == markup
    assert "<script" not in both.to_markdown()
    assert "<script" not in pairs_cell([(markup, markup)]).outputs[0].data["text/html"]


def test_all_that_a_cell_says_is_in_its_row() -> None:
    full = Table(columns=(ReportColumn(heading="h"),), rows=((Cell("fused", "slice 4", 0.5, "fastest"),),), best=0)
    cell = BeautifulSoup(full.to_html(), "html.parser").find("td")
    assert cell.get_text(" ", strip=True) == "fused slice 4 fastest"
    assert cell.find(class_="wb-bar")["style"] == "width: 50.0%"
    assert full.to_markdown().splitlines()[-1] == "| **fused (slice 4) fastest** |"


def test_rows_beyond_the_first_unfold_and_none_is_lost() -> None:
    html = BeautifulSoup(table(45).to_html(), "html.parser")
    assert html.find("summary").get_text() == "5 more rows"
    assert len(html.find_all("tr")) == 45 + 2
    assert len(table(45).to_markdown().splitlines()) == 45 + 2


def test_a_line_break_or_a_bar_in_a_name_ends_no_markdown_row() -> None:
    text = table(1, "a\nb|c").to_markdown().splitlines()
    assert text[2] == "| a b\\|c | 1 |"
