"""Rows become lines and tables: units and names of plain values, fastest first, and text stays text."""

from __future__ import annotations

from typing import Any

import nbconvert.filters.markdown_mistune as mistune
import pytest
from bs4 import BeautifulSoup

from tests.reports.conftest import joined, row
from workbench.charts.labels import schedule_label
from workbench.reports.tables import (
    Cell,
    ReportColumn,
    Table,
    common,
    differing,
    failure_table,
    gain_text,
    label,
    lines,
    markdown_text,
    outcome_table,
    pairs_cell,
    parts_of,
    schedule_text,
    value_text,
)
from workbench.results.deltas import Pinned

# Tables as HTML and as Markdown: text stays text, long ones unfold, nothing is left out.


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


# Units and names of plain values, and text that Markdown must not read.


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("skew_s", 0.0012, "1.2 ms"),
        ("wire_bytes_per_rank", 33_600_000, "33.6 MB"),
        ("bandwidth_bytes_per_second", 1.7e9, "1.7 GB/s"),
        ("max_relative_error", 4.377e-7, "4.4e-07"),
        ("m", 4096, "4096"),
        ("ratio", 0.123456, "0.1235"),
        ("correct", True, "yes"),
        ("guess_s", None, "–"),
        ("tokens", (64, 32), "64 × 32"),
        (
            "fabric",
            {"name": "emulated", "latency_s": 1e-6, "wire_to_compute": 1},
            "emulated, latency 1 µs, wire_to_compute = 1",
        ),
        ("machine", "<b>", "<b>"),
    ],
)
def test_the_end_of_a_key_is_its_unit(key: str, value: object, text: str) -> None:
    assert value_text(key, value) == text


def test_a_key_has_a_name_for_people() -> None:
    assert (label("world"), label("kernel_fingerprint"), label("queue_s")) == ("Ranks", "Kernel fingerprint", "Queue")


@pytest.mark.parametrize(
    "text",
    [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "**bold** _it_ `code` ~~gone~~ $a_1$ [a](b) ![a](b) a_b_c *",
        "# no heading",
        "- no item",
        "1. no item",
        "> no quote",
        "a | b",
        "&lt; &amp; \\",
        "https://example.org/a_b_c",
        "<https://example.org>",
    ],
)
def test_markdown_shows_exactly_the_characters(text: str) -> None:
    html = mistune.MarkdownWithMath(renderer=mistune.IPythonRenderer(escape=False)).render(markdown_text(text))
    shown = BeautifulSoup(html, "html.parser")
    assert shown.get_text().strip() == text
    assert {element.name for element in shown.find_all()} == {"p"}


# Rows become lines: joined by schedule, fastest first, saying only what differs.


def texts(table: Any) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.rows]


def test_a_measurement_and_its_estimate_share_a_line(rows: list[dict[str, Any]]) -> None:
    assert [sorted(line.by_source) for line in lines(rows)] == [["estimated", "measured"], ["measured"], ["measured"]]


def test_the_table_names_what_differs_and_common_names_what_does_not(rows: list[dict[str, Any]]) -> None:
    table = outcome_table(rows)
    assert [column.heading for column in table.columns] == [
        "Schedule",
        "●\N{NO-BREAK SPACE}measured",
        "○\N{NO-BREAK SPACE}estimated",
        "Speed-up over sequential, by paired rounds",
    ]
    assert texts(table) == [
        ["fused", "45 ms", "44 ms", "1.78x"],
        ["fused", "50 ms", "–", "1.60x"],
        ["sequential", "80 ms", "–", "1.00x"],
    ]
    assert table.rows[0][0].aside == "tiles per slice 4"
    assert table.rows[0][2].aside == "42.0 to 47.0, uncalibrated"
    assert common(rows) == [
        ("Floor", "40 ms"),
        ("Sequential", "80 ms"),
        ("Samples", "30"),
        ("Largest error", "1.0e-07"),
        ("fused schedules", "tile 32x32x32"),
    ]


def test_a_ratio_is_to_the_baseline_of_its_own_block_however_quiet_another_was() -> None:
    block = [("sequential", 0.3, 1), ("fused", 0.2, 1), ("sequential", 0.15, 2), ("decomposed", 0.3, 2)]
    rows = joined(row(scheme, seconds, block=f"r.{n}") for scheme, seconds, n in block)
    speed_ups = {(line[0], line[1]): line[2] for line in texts(outcome_table(rows))}
    assert speed_ups["fused", "200 ms"] == "1.50x"
    assert speed_ups["decomposed", "300 ms"] == "0.50x"
    assert {line[:2]: ratio for line, ratio in speed_ups.items() if line[0] == "sequential"} == {
        ("sequential", "300 ms"): "1.00x"  # the one that the best schedule was timed with
    }
    assert gain_text([rows[1], rows[3]]).startswith("Fastest: fused, 200 ms measured, 1.50x")


def test_the_heading_says_which_of_two_ratios_a_speed_up_is() -> None:
    """Outcomes had 1.51x and the terminal 1.52x for one row, under one heading."""
    base = row("sequential", 0.30, block="r.1")
    paired, other = row("fused", 0.2, block="r.1"), row("decomposed", 0.25, block="r.1", rounds_s=None)
    table = outcome_table(joined([base, paired, other]))
    assert table.columns[2].heading == "Speed-up over sequential, by paired rounds"
    assert [(line[2].text, line[2].aside) for line in table.rows] == [
        ("1.50x", ""), ("1.20x", "of the two times"), ("1.00x", "")]  # fmt: skip
    table = outcome_table(joined([{**base, "rounds_s": None}, {**paired, "rounds_s": None}]))
    assert table.columns[2].heading == "Speed-up over sequential"


def test_rows_of_one_block_have_one_baseline_however_early_they_came() -> None:
    early = [row("sequential", 0.3, sequential_s=0.3), row("fused", 0.2, sequential_s=0.3)]
    late = row("sequential", 0.25, sequential_s=0.25, axes={"collective": "direct"})
    table = outcome_table([*early, late])
    assert [line[2] for line in texts(table)] == ["1.25x", "1.00x", "0.83x"]


def test_the_fastest_that_ran_is_first_even_when_an_estimate_is_faster() -> None:
    table = outcome_table([row("fused", 0.01, "estimated"), row("sequential", 0.08), row("decomposed", 0.05)])
    assert table.best == 0
    assert [line[0].text for line in table.rows] == ["decomposed", "sequential", "fused"]
    assert [line[0].badge for line in table.rows] == ["fastest", "", ""]


def test_one_schedule_has_one_time_in_a_table_however_often_it_was_timed() -> None:
    """176 and 177 µs stood for one schedule: measured in two blocks, or recorded before and measured now."""
    for second in (row("fused", 177e-6, "recorded", protocol="default"), row("fused", 177e-6, block="r.2")):
        (line,) = lines([row("fused", 176e-6), second, row("fused", 150e-6, "estimated")])
        assert (line.leading["time_s"], sorted(line.by_source)) == (176e-6, ["estimated", "measured"])


def test_recorded_and_measured_rows_are_in_one_column_and_the_fastest_is_first_whatever_its_source() -> None:
    rows = [row("sequential", 0.08), row("fused", 0.05, "recorded"), row("decomposed", 0.06)]
    table = outcome_table(rows)
    assert table.columns[1].heading == "●\N{NO-BREAK SPACE}measured, ■\N{NO-BREAK SPACE}recorded"
    assert [(line[0].text, line[1].text) for line in table.rows] == [
        ("fused", "■\N{NO-BREAK SPACE}50 ms"),
        ("decomposed", "●\N{NO-BREAK SPACE}60 ms"),
        ("sequential", "●\N{NO-BREAK SPACE}80 ms"),
    ]
    assert [line[1].order for line in table.rows] == [0.05, 0.06, 0.08]
    assert (table.best, table.sorted_by) == (0, 1)


def test_the_best_of_a_slow_block_is_first_and_no_heading_says_that_the_clock_ordered_it() -> None:
    block = [("sequential", 0.3, 1), ("fused", 0.15, 1), ("sequential", 0.1, 2), ("decomposed", 0.09, 2)]
    table = outcome_table(joined(row(scheme, seconds, block=f"r.{n}") for scheme, seconds, n in block))
    assert [line[0] for line in texts(table)] == ["fused", "decomposed", "sequential"]
    assert [line[1] for line in texts(table)] == ["150 ms", "90 ms", "300 ms"]
    assert (table.best, table.sorted_by) == (0, None)


def test_an_estimate_of_another_machine_is_not_put_beside_a_measurement() -> None:
    both = [row("fused", 0.05), row("fused", 0.001, "estimated", machine="h200_nvl8")]
    assert len(lines(both)) == 2
    assert "Machine" in [column.heading for column in outcome_table(both).columns]


def test_problems_that_differ_get_their_own_columns() -> None:
    both = [row("fused", 0.05), row("fused", 0.09, shape={"m": 128, "n": 64, "k": 64}, world=4)]
    assert differing(both) == ["shape", "world"]
    assert texts(outcome_table(both))[1] == ["fused", "m = 128, n = 64, k = 64", "4", "90 ms"]


def test_parts_timed_alone_are_no_schedules() -> None:
    rows = [row("sequential", 0.08, part="whole"), row("sequential", 0.01, part="compute"), row("fused", 0.05)]
    whole, parts = parts_of(rows)
    assert [line.leading["time_s"] for line in lines(whole)] == [0.05, 0.08]
    assert texts(outcome_table([*parts, row("sequential", 0.02, part="communication")]))[0][:2] == [
        "sequential",
        "compute",
    ]


def test_no_part_timed_alone_is_the_fastest() -> None:
    """The shorter of two parts was badged "fastest", of a scheme that had lost."""
    rows = [row("sequential", 0.08), row("fused", 0.09), row("fused", 0.01, part="compute"),
            row("sequential", 0.02, part="communication")]  # fmt: skip
    whole, parts = parts_of(rows)
    table = outcome_table(parts)
    assert table.best is None
    assert [line[0].badge for line in table.rows] == ["", ""]
    assert outcome_table(whole).rows[0][0].badge == "fastest"


def test_every_failure_has_its_stage_and_sentence(rows: list[dict[str, Any]], markup: str) -> None:
    failed = failure_table([*rows, row("fused", None)])
    assert texts(failed)[0] == ["concurrent", "refused", f"{markup} was asked for. Accepted: fused."]
    assert texts(failed)[1][1:] == ["unknown", "no message was stored"]


def test_a_schedule_reads_in_a_report_as_on_a_chart(rows: list[dict[str, Any]]) -> None:
    assert schedule_text(rows[2], rows) == "fused, tiles per slice 4"
    writes = [row("fused", 0.1, axes={"write": write}) for write in ("staged", "zero_copy")]
    assert schedule_text(writes[1], writes) == schedule_label(writes[1]) == "fused, write zero copy"


def test_no_rows_make_no_table() -> None:
    assert outcome_table([]).rows == failure_table([]).rows == ()


def test_a_pinned_baseline_adds_signed_differences_in_words_and_colour() -> None:
    base = row("sequential", 0.08, block="r.1", key="s")
    rows = joined([base, row("fused", 0.06, block="r.1", key="f"), row("decomposed", 0.09, block="r.1", key="d"),
                   row("concurrent", 0.05, "estimated", key="e")])  # fmt: skip
    without, table = outcome_table(rows), outcome_table(rows, Pinned.of(base, rows))
    (place,) = [number for number, column in enumerate(table.columns) if "Difference" in column.heading]
    assert table.columns[place].heading == "Difference to the baseline, 80 ms"
    cells = {line[0].text: line[place] for line in table.rows}
    assert {name: (cell.text, cell.aside, cell.tone) for name, cell in cells.items()} == {
        "fused": ("-25 %", "-20 ms, faster", "faster"),
        "sequential": ("baseline", "", ""),
        "decomposed": ("+12 %", "+10 ms, slower", "slower"),
        "concurrent": ("-38 %", "-30 ms, estimated against measured", ""),
    }
    assert '<span class="wb-faster">-25 %</span>' in table.to_html()
    assert "-20 ms, faster" in table.to_markdown()
    kept = [[cell for number, cell in enumerate(line) if number != place] for line in table.rows]
    assert kept == [list(line) for line in without.rows], "nothing else changes"
