"""Overlap keeps less of its gain where a power cap pays for rests, and the document has what is computed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from workbench.analysis import under_load
from workbench.analysis.power import card
from workbench.analysis.under_load import GAINS, MACHINES, SHAPES, compared, every, measured
from workbench.results import recordings

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "steady.md"
FULL_CLOCK_HZ = 1.98e9
"""Of an SM that no cap slows."""


@pytest.mark.slow(keeps=2)
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


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(
    ("machine", "problems", "sentence"),
    [
        ("h100_nvl2", len(SHAPES), "{estimated} % was estimated. {measured} % was measured"),
        (
            "h200_nvl2",
            len(SHAPES),
            "{measured} % of the gain is kept in the median of 18 schedules, and {estimated} % ",
        ),
    ],
)
def test_the_document_has_what_was_measured_and_how_far_the_estimates_were_off(
    machine: str, problems: int, sentence: str
) -> None:
    pairs, text = measured(machine), DOCUMENT.read_text()
    steady = [pair for pair in pairs if pair.steady is not None]
    assert len(steady) == 3 * problems
    rows = every(machine)
    summary = under_load.measured_summary(pairs, rows)
    for line in [*under_load.measured_table(pairs, rows), *summary.splitlines()]:
        assert line in text, line
    assert under_load.kept(rows) in text
    regimes = {(pair.steady.regime, pair.steady.clocks[1] >= FULL_CLOCK_HZ) for pair in steady if pair.steady}
    assert regimes <= {("steady", False), ("burst", True)}, "what waits for its links never reaches the cap"
    estimated, measured_share = re.findall(r"(\d+)% of the gain", under_load.kept(rows) + summary)
    assert sentence.format(estimated=estimated, measured=measured_share) in " ".join(text.split())


def test_a_machine_without_a_recording_has_no_rows() -> None:
    assert measured("a100_nvl8") == []


def test_no_schedule_rested_while_it_was_timed_under_load() -> None:
    shares = []
    for entry in recordings.read(recordings.paths()["h100_nvl2_regimes"]):
        if entry.measurement.trial.protocol.is_steady:
            shares += re.findall(r'"busy_share": ([0-9.]+)', json.dumps(entry.measurement.facts["loads"]))
    assert len(shares) > 2 * 3 * len(SHAPES)
    assert min(map(float, shares)) > 0.95
