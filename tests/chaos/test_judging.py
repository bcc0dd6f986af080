"""The checker finds each breach, the script comes from the seed alone, and documents say what its recording holds."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernels.outcome import ROW_KEYS
from tests.chaos import judging
from tests.chaos.judging import Ended, unlike
from tests.chaos.script import LASTING, ODDS, SIZES, Act, Whom, faults_of

# The checker finds each breach of what must hold, and nothing where all holds.

AXES = {"pieces": 2}
ASKED = frozenset({("gemm_all_to_all", json.dumps({"axes": AXES, "scheme": "decomposed"}, sort_keys=True))})


def row(**changes: Any) -> dict[str, Any]:
    """A measurement as stores and documents have it."""
    return dict.fromkeys(ROW_KEYS) | {
        "outcome": "measurement", "source": "measured", "key": "k", "run": "r", "block": "r.1", "part": "whole",
        "operator": "gemm_all_to_all", "scheme": "decomposed", "axes": AXES, "time_s": 0.5, "correct": True,
        "max_relative_error": 1e-7, "wire_bytes_per_rank": 8, "samples": 2,
    } | changes  # fmt: skip


def ended(*rows: dict[str, Any], **changes: Any) -> Ended:
    """A client whose document shows *rows*."""
    document = {"rows": rows, "summary": {"run": "r", "message": None}}
    return Ended(**{"status": 0, "printed": json.dumps(document), "said": "", "asked": ASKED} | changes)


FAILED = {"outcome": "failure", "time_s": None, "correct": None, "stage": "lost"}
PYTHON, OURS = '  File "/usr/lib/python3/runpy.py"', f'  File "{judging.ROOT}/workbench/cli.py"'
ENDED_EARLY = json.dumps({"rows": [], "summary": {"run": "r", "message": "The scheduler is gone."}})


@pytest.mark.parametrize(
    "client",
    [
        ended(row()),
        ended(row(**FAILED, message="Rank 1 was killed.")),
        ended(row(**FAILED | {"stage": "refused"}, message="Rank 1 cannot start."), status=2),
        ended(status=130, signals=[signal.SIGINT]),
        ended(status=-9, signals=[signal.SIGKILL], printed="", said=""),
        ended(status=-15, signals=[signal.SIGTERM], printed="", said=""),
        ended(status=-2, signals=[signal.SIGINT] * 2, began_run=True, printed=""),
        ended(row(), status=-15, signals=[signal.SIGTERM], began_run=True),
        ended(status=1, printed=ENDED_EARLY),
        ended(status=1, printed="", said=f"Traceback:\n{PYTHON}\nKeyboardInterrupt\n", signals=[signal.SIGINT]),
        ended(status=1, printed=json.dumps({"outcome": "failure", "message": "The disk is full."})),
    ],
)
def test_a_client_that_measured_or_told_everything_is_in_order(client: Ended) -> None:
    assert not list(judging.breaches(client))


@pytest.mark.parametrize(
    ("client", "breach"),
    [
        (ended(row(), status=2), "status is 2"),
        (ended(row(), status=3), "status is 3"),
        (ended(row(), status=130), "status is 130"),
        (ended(row(), status=-9), "status is -9"),
        (ended(status=-2, signals=[signal.SIGINT], began_run=True, printed=""), "status is -2"),
        (ended(row(), said="Traceback (most recent call last):"), "traceback"),
        (ended(said=f"Traceback:\n{OURS}\nKeyboardInterrupt\n", signals=[signal.SIGINT]), "traceback"),
        (ended(printed="", said="Stopped."), "not one document"),
        (ended(printed="{}{}"), "not one document"),
        (ended(), "neither measured nor told"),
        (ended(row(source="estimated", outcome="estimate")), "neither measured nor told"),
        (ended(row(**FAILED, message="")), "no sentence"),
        (ended(printed=json.dumps({"outcome": "failure", "message": None})), "no reason"),
        (ended(row(), hung=True), "did not end by itself"),
    ],
)
def test_a_client_that_did_not_is_told(client: Ended, breach: str) -> None:
    assert breach in " ".join(judging.breaches(client))


def test_a_sweep_is_complete_when_all_of_it_was_measured_and_right() -> None:
    assert ended(row()).complete
    assert not ended(row(correct=False)).complete
    assert not ended(row(**FAILED, message="Rank 1 was killed.")).complete
    assert not ended(row(), status=1).complete


def test_what_is_shown_is_what_is_stored() -> None:
    assert not list(judging.differences([row()], [row(time_s=0.5)]))
    assert not list(judging.differences([row(high_s=None)], [row(high_s=float("inf"))])), "as JSON writes it"
    assert "0.5" in " ".join(judging.differences([row()], [row(time_s=0.6)]))
    assert "are stored" in " ".join(judging.differences([row()], []))


def test_a_store_holds_nothing_twice_nothing_wrong_and_nothing_without_words() -> None:
    assert not list(judging.faulty_rows([row(), row(block="r.2"), row(source="estimated", outcome="estimate")]))
    assert "stored 2 times" in " ".join(judging.faulty_rows([row(), row(time_s=0.7)]))
    assert "not right" in " ".join(judging.faulty_rows([row(correct=False)]))
    assert "without a sentence" in " ".join(judging.faulty_rows([row(**FAILED, message=None)]))


def test_a_measurement_has_all_its_samples() -> None:
    sample = {"run": "r", "key": "k", "block": "r.1"}
    assert not list(judging.faulty_samples([row()], [sample, sample]))
    assert "tells of 2 samples, 3 are stored" in " ".join(judging.faulty_samples([row()], [sample] * 3))


def test_a_trial_that_is_measured_again_differs_in_times_and_errors_only() -> None:
    assert not list(unlike(row(), [row(time_s=9.0, max_relative_error=2e-7)]))
    assert "bytes" in " ".join(unlike(row(), [row(wire_bytes_per_rank=9)]))
    assert "is not" in " ".join(unlike(row(), [row(correct=False)]))


# The script comes from the seed alone, and is what the documents say of it.


def test_the_same_seed_tells_the_same_script_and_another_seed_another() -> None:
    assert [faults_of(7, number) for number in range(1, 9)] == [faults_of(7, number) for number in range(1, 9)]
    assert faults_of(7, 3) != faults_of(8, 3)
    assert faults_of(7, 3) != faults_of(7, 4)


def test_every_kind_of_fault_happens_and_faults_are_numbered() -> None:
    rounds = [faults_of(14, number) for number in range(1, 81)]
    kinds = Counter((fault.act, fault.whom) for faults in rounds for fault in faults)
    assert set(kinds) == {(act, whom) for _, act, whom in ODDS} | {(Act.KILL, Whom.NEWEST)}
    assert sum(kinds.values()) > 1000, "what a long run plays"
    for number, faults in enumerate(rounds, start=1):
        assert [fault.name for fault in faults] == [f"{number}.{each}" for each in range(1, len(faults) + 1)]
        assert SIZES[0] <= len(faults) <= SIZES[1] + 1
        assert sum(fault.is_long for fault in faults) <= 1, "the others of a round would wait for it"


def test_only_what_is_lifted_again_lasts() -> None:
    for fault in (fault for number in range(1, 51) for fault in faults_of(3, number)):
        assert (fault.lasts_s > 0) == (fault.act in LASTING), fault


# What the documents say of the long run is what its recording holds.

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((ROOT / "data" / "checks" / "chaos.json").read_text())


def test_the_page_says_what_the_long_run_came_to() -> None:
    page = (ROOT / "docs" / "results" / "faults.md").read_text()
    line = next(text for text in page.split("\n\n") if text.startswith("Faults:"))
    assert f"{FIGURES['faults']:,} of them in {FIGURES['minutes']:.0f} minutes of {FIGURES['date'][:10]}" in line
    assert f"seed {FIGURES['seed']}, commit {FIGURES['commit'][:7]}" in line
    assert f"{FIGURES['recovery_median_s']:.0f} s (median, at most {FIGURES['recovery_most_s']:.0f} s)" in line


def test_the_page_on_tests_says_the_same() -> None:
    note = (ROOT / "docs" / "testing.md").read_text().partition("## Faults of a seed")[2].partition("## ")[0]
    note = " ".join(note.split())
    assert f"{FIGURES['faults']:,} faults in {FIGURES['rounds']} rounds met {FIGURES['clients']} clients" in note
    assert f"{FIGURES['outcomes']['measurement']:,} measurements" in note
