"""Overlap keeps less of its gain where a power cap pays for rests, and the document has what is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.analysis import under_load
from workbench.analysis.power import card
from workbench.analysis.under_load import GAINS, MACHINES, SHAPES, compared

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "steady.md"


@pytest.mark.parametrize(("machine", "place"), [(MACHINES[0], 0), (MACHINES[0], 7), (MACHINES[1], 5)])
def test_the_document_has_the_rows_that_are_computed(machine: str, place: int) -> None:
    rows = list(compared(*SHAPES[place], machine))
    assert {row.scheme for row in rows} == {"concurrent", "decomposed", "fused"}
    text = DOCUMENT.read_text()
    for line in under_load.table(rows, card(machine)):
        assert line in text, line
    for row in rows:
        assert row.steady[0] <= row.steady[1] <= row.steady[2]
        if row.burst < GAINS:
            assert row.burst < row.steady[1], "a part of the gain is lost"
            assert row.clocks[1] < row.clocks[0], "the schedule that rests has the faster clock"
