"""Overlap keeps less of its gain where a power cap pays for rests, and the document has what is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.fabric import parse
from workbench.analysis import under_load
from workbench.analysis.power import MACHINE, card
from workbench.analysis.under_load import SHAPES, kept, paused
from workbench.machines import shipped_machine

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "steady.md"


@pytest.mark.parametrize("place", [0, 5])
def test_the_document_has_the_rows_that_are_computed(place: int) -> None:
    operator, shape = SHAPES[place]
    rows = list(kept(operator, shape, card(), shipped_machine(MACHINE), parse("nvlink")))
    assert {row.scheme for row in rows} == {"concurrent", "decomposed", "fused"}
    text = DOCUMENT.read_text()
    for line in under_load.table(rows):
        assert line in text, line
    for row in rows:
        assert row.steady[0] <= row.steady[1] <= row.steady[2]
        if row.overlapped.capped_s > row.overlapped.compute_s:
            assert row.burst < row.steady[1], "a part of the gain is lost"


def test_gemms_with_rests_that_nothing_was_fitted_to_lie_in_their_range() -> None:
    checked = list(paused(card()))
    assert len(checked) == 4
    for sizes, low, high, measured in checked:
        assert 0.97 * low <= measured <= high, f"{sizes}: bursts themselves differ by 2 %"
