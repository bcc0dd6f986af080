"""A gang without Dask is a conversation: what a sitting came to decides about the next, and nothing waits for ever."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernels import events
from kernels.backends.base import Seat
from kernels.bench import Emit
from kernels.outcome import Measurement, Outcome, Sample, Span, TileTimes
from kernels.trial import Trial
from tests.gpu import gang, recording
from tests.gpu.standin_gangs import Threads, in_threads
from tests.kernels.backends.triton.conftest import gpu_trial
from workbench.results import recordings

__all__ = ["in_threads"]

pytestmark = pytest.mark.timeout(60)
Act = Callable[[int, Sequence[Trial], Emit], None]
"""What a rank does with a sitting: its number, the trials, and whom it tells."""


def trial(number: int) -> dict[str, Any]:
    """One of problem *number*."""
    return gpu_trial("gemm_all_to_all", {"m": 256, "n": 64, "k": 64 * number}, world=2, dtype="bfloat16").to_json()


def tells(emit: Emit, rank: int, trials: Sequence[Trial], seconds: float = 1e-3) -> None:
    """Two samples and a result of each trial, as a bench tells them."""
    for each in trials:
        for index in range(2):
            emit(
                events.SampleEvent(
                    kind="sample", trial=each.key, rank=rank, index=index, seconds=seconds, at=1000.0 + index
                )
            )
        emit(
            events.ResultEvent(
                kind="result", trial=each.key, rank=rank, correct=True, max_relative_error=0.0, spans=[], facts={}
            )
        )


def opened(act: Act) -> gang.Opened:
    """Benches whose sittings *act* plays."""

    class Acted:
        def __init__(self, seat: Seat, emit: Emit) -> None:
            self._rank, self._emit = seat.rank, emit

        def run(self, trials: Sequence[Trial]) -> None:
            act(self._rank, trials, self._emit)

    return Acted


def sentences(found: Sequence[Any]) -> list[str]:
    return [one for one in found if isinstance(one, str)]


def measured(found: Sequence[Any]) -> list[int]:
    """The problems that have a measurement, by their number."""
    return [one[0].trial.problem["k"] // 64 for one in found if isinstance(one, tuple)]


def test_each_sitting_is_decided_by_what_the_one_before_came_to(in_threads: Threads) -> None:
    heard: list[tuple[int, list[str]]] = []
    told: list[list[Outcome]] = []

    def act(rank: int, trials: Sequence[Trial], emit: Emit) -> None:
        heard.append((rank, [each.key for each in trials]))
        tells(emit, rank, trials, seconds=1e-3 * (rank + 1))

    def talk() -> gang.Conversation:
        told.append((yield [trial(1), trial(2)]))
        winner = told[0][0].trial.problem["k"] // 64
        told.append((yield [trial(winner + 2)]))

    found = list(gang.run(talk(), 2, 40.0, opened(act)))
    assert sentences(found) == []
    assert measured(found) == [1, 2, 3]
    assert [len(samples) for _, samples in found] == [4, 4, 4]
    assert [[one.time_s for one in each if isinstance(one, Measurement)] for each in told] == [[2e-3] * 2, [2e-3]]
    orders = [[keys for rank, keys in heard if rank == mine] for mine in (0, 1)]
    assert orders[0] == orders[1], "all ranks get the same sittings in the same order"


def test_a_list_of_sittings_is_a_conversation_that_does_not_listen(in_threads: Threads) -> None:
    found = list(
        gang.run([[trial(1)], [trial(2)]], 2, 40.0, opened(lambda *all_of_it: tells(all_of_it[2], *all_of_it[:2])))
    )
    assert measured(found) == [1, 2]


def test_a_rank_that_is_silent_ends_its_gang_and_the_next_sitting_has_a_new_one(
    in_threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def act(rank: int, trials: Sequence[Trial], emit: Emit) -> None:
        if rank == 1 and trials[0].problem["k"] == 64:
            over.wait(60.0)
        tells(emit, rank, trials)

    monkeypatch.setattr(gang, "SILENT_S", 3.0)
    found = list(gang.run([[trial(1)], [trial(2)]], 2, 60.0, opened(act)))
    over.set()
    assert sentences(found) == ["Sitting 0: ranks [1] said nothing for 3 s."]
    assert measured(found) == [2]
    assert len(in_threads.started) == 4
    assert [process.killed for process in in_threads.started] == [True] * 4


def test_a_rank_that_raises_is_told_and_only_an_error_that_ends_it_costs_the_gang(in_threads: Threads) -> None:
    def act(rank: int, trials: Sequence[Trial], emit: Emit) -> None:
        match trials[0].problem["k"] // 64:
            case 1:
                raise ValueError("a shape that nobody knows")
            case 2 if rank == 0:
                raise TimeoutError("waited for rank 1")
        tells(emit, rank, trials)

    found = list(gang.run([[trial(1)], [trial(2)], [trial(3)]], 2, 40.0, opened(act)))
    first, second, third, last = sentences(found)
    assert all("a shape that nobody knows" in each for each in (first, second))
    assert third.startswith("rank 0")
    assert "waited for rank 1" in third
    assert last == "A rank broke in sitting 1 so that its gang ends."
    assert measured(found) == [3]
    assert len(in_threads.started) == 4, "the first error left the gang as it was"


def test_a_process_that_dies_ends_its_gang_at_once(in_threads: Threads) -> None:
    def act(rank: int, trials: Sequence[Trial], emit: Emit) -> None:
        if rank == 1 and trials[0].problem["k"] == 64:
            raise SystemExit(-11)
        tells(emit, rank, trials)

    found = list(gang.run([[trial(1)], [trial(2)]], 2, 40.0, opened(act)))
    assert sentences(found) == [
        "Sitting 0: ranks [1] had not ended it, and processes ended (rank: exit status): {1: -11}."
    ]
    assert measured(found) == [2]


def test_so_many_gangs_may_end_and_no_more(in_threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "GANGS_MOST", 2)

    def act(rank: int, trials: Sequence[Trial], emit: Emit) -> None:
        raise ConnectionError("no peer")

    found = list(gang.run([[trial(number)] for number in range(1, 9)], 2, 40.0, opened(act)))
    assert sentences(found)[-1] == "sitting 2 did not begin: 2 gangs have ended before"
    assert measured(found) == []


def test_seconds_that_are_over_end_a_sitting_and_no_other_begins(in_threads: Threads) -> None:
    def act(rank: int, trials: Sequence[Trial], emit: Emit) -> None:
        for _ in range(40):
            emit(events.StageEvent(kind="stage", trial=trials[0].key, rank=rank, stage="compile"))
            time.sleep(0.1)

    found = list(gang.run([[trial(1)], [trial(2)]], 2, 1.0, opened(act)))
    assert sentences(found) == [
        "Sitting 0: ranks [0, 1] had not ended it, and its seconds are over.",
        "sitting 1 did not begin: less than 0 of 1 s were left",
    ]


def test_a_failure_that_every_rank_tells_is_one(in_threads: Threads) -> None:
    def act(rank: int, trials: Sequence[Trial], emit: Emit) -> None:
        emit(events.FailureEvent(kind="failure", trial=trials[0].key, rank=rank, stage="refused", message="no room"))

    found = list(gang.run([[trial(1)]], 2, 40.0, opened(act)))
    assert [one[0].message for one in found if isinstance(one, tuple)] == ["no room"]


def test_a_recorded_line_names_its_block_and_no_card_and_is_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Trial.from_json(trial(1))
    seen = {"rank": 0, "gpu": "GPU-1", "gpu_name": "H200", "sm_clock_mhz": 1980, "throttled": []}
    span = Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 1.23456789012e-5, None, 3.2e-8,
                (TileTimes(0, 1, 0.0, 0.0, 1e-6, 2e-6),))  # fmt: skip
    outcome = Measurement(trial=asked, samples=((1.2345678901234e-5,),) * 2, correct=True, max_relative_error=0.0,
                          spans=(span,), conditions=(seen,))  # fmt: skip
    samples = [Sample(asked.key, rank, 0, 1.2345678901234e-5, 1795314383.3510752) for rank in (0, 1)]
    monkeypatch.setenv("GIT_COMMIT", "abc123")
    facts = recording.provenance("h200_nvl2")
    line = recording.recorded(outcome, samples, facts, block="t.p1.2")
    path = tmp_path / "t.jsonl"
    other = recording.recorded(outcome, samples, facts, block="t.p1.1", with_spans=False)
    path.write_text(f"{line}\n{other}\n")
    one, plain = recordings.read(path)
    assert (one.measurement.block, plain.measurement.block) == ("t.p1.2", "t.p1.1")
    assert (one.samples[0].seconds, one.samples[0].at) == (1.234568e-05, 1795314383.3511)
    assert (one.measurement.spans[0].stop_s, one.measurement.spans[0].tiles) == (1.2346e-05, ())
    assert plain.measurement.spans == ()
    assert one.provenance["git_commit"] == "abc123"
    assert one.measurement.conditions == ({"rank": 0, "sm_clock_mhz": 1980, "throttled": []},)
    assert json.loads(line)["provenance"]["clock_tick_s"] == 3.2e-8
