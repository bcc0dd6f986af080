"""Four sources, told apart by sign and word."""

from __future__ import annotations

from kernels import outcome
from tests.reports.conftest import row
from workbench.charts.theme import SOURCE_LOOKS
from workbench.reports.sources import SOURCES, legend


def test_charts_and_reports_know_the_same_sources() -> None:
    assert tuple(SOURCES) == outcome.SOURCES
    assert set(SOURCES) == set(SOURCE_LOOKS)
    assert len({source.sign for source in SOURCES.values()}) == len(SOURCES)


def test_the_legend_counts_rows_with_a_time() -> None:
    rows = [row("fused", 0.1), row("fused", 0.1, "estimated"), row("fused", None), row("fused", 0.2, "elsewhere")]
    counted = {line[0].text.split()[-1]: line[2].text for line in legend(rows).rows}
    assert counted == {"measured": "1", "recorded": "none", "estimated": "1", "published": "none", "elsewhere": "1"}
