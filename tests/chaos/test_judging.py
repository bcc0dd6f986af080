"""The checker finds each breach of what must hold, and nothing where all holds."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from kernels.outcome import ROW_KEYS
from tests.chaos import judging
from tests.chaos.judging import Ended
from tests.chaos.stores import unlike

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
