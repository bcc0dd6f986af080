"""A report lays published numbers of its operators beside what was found, and counts them as what they are."""

from tests.reports.conftest import joined, row
from workbench.reports.cases import cases
from workbench.reports.methods import HEADINGS, num_published, published_table
from workbench.reports.run_report import run_report


def test_a_run_of_a_fused_operator_stands_beside_the_papers_numbers() -> None:
    rows = joined([row("sequential", 0.08), row("fused", 0.06)])
    table = published_table(cases(rows))
    assert table is not None
    ours, *theirs = [dict(zip(HEADINGS, (cell.text for cell in line), strict=True)) for line in table.rows]
    assert (ours["Time saved"], ours["Source"].split()[-1]) == ("25 %", "measured")
    assert {line["Source"].split()[-1] for line in theirs} == {"published"}
    assert any(line["Time saved"] == "up to 20 %" and "abstract" in line["Where"] for line in theirs)
    assert all("abstract" in line["Where"] or line["Where"].endswith("unverified") for line in theirs)
    assert num_published(table) == len(theirs)
    text = "\n".join(cell.source for cell in run_report({}, rows).cells)
    assert "Comparison with published results" in text


def test_a_run_that_has_no_ratio_or_whose_scheme_nobody_published_stands_alone() -> None:
    for rows in (joined([row("fused", 0.06)]), joined([row("sequential", 0.08), row("decomposed", 0.06)])):
        assert published_table(cases(rows)) is None
        assert "Comparison with published results" not in "\n".join(cell.source for cell in run_report({}, rows).cells)
