"""Four sources, told apart by sign and word."""

from __future__ import annotations

import unicodedata

from kernels import outcome
from tests.reports.conftest import row
from workbench.charts.theme import SHAPES, SOURCE_LOOKS
from workbench.naming import SIGNS
from workbench.reports.methods import MEANINGS, legend


def test_charts_and_reports_know_the_same_sources() -> None:
    assert tuple(SIGNS) == tuple(MEANINGS) == outcome.SOURCES
    assert set(SIGNS) == set(SOURCE_LOOKS)
    assert len(set(SIGNS.values())) == len(SIGNS)


def test_a_chart_draws_the_sign_that_a_table_writes() -> None:
    drawn = {name: (look.shape, look.filled) for name, look in SOURCE_LOOKS.items()}
    assert drawn == {name: SHAPES[sign] for name, sign in SIGNS.items()}
    for name, sign in SIGNS.items():
        word = unicodedata.name(sign)  # BLACK CIRCLE, WHITE DIAMOND
        assert word.split() == ["BLACK" if drawn[name][1] else "WHITE", drawn[name][0].upper()]


def test_the_legend_counts_rows_with_a_time() -> None:
    rows = [row("fused", 0.1), row("fused", 0.1, "estimated"), row("fused", None), row("fused", 0.2, "elsewhere")]
    counted = {line[0].text.split()[-1]: line[2].text for line in legend(rows).rows}
    assert counted == {"measured": "1", "recorded": "none", "estimated": "1", "published": "none", "elsewhere": "1"}
