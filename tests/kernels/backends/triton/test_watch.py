"""The call that is written down works on all ranks or on none, and what was timed before stands in any case."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from kernels.backends.base import MissingSpans
from kernels.backends.triton import timeline
from kernels.backends.triton.timeline import WatchedCalls
from kernels.backends.triton.timing import Clock
from kernels.outcome import Span
from kernels.plan import Plan
from kernels.schemes import expand
from tests.kernels.backends.triton.conftest import gpu_trial


class Peers:
    """Rank 0's end of a gang of two; the other rank says what is put into *answers*."""

    stream = cast(torch.cuda.Stream, None)

    def __init__(self, *answers: Sequence[float]) -> None:
        self.answers = list(answers)

    def barrier(self) -> float:
        return 0.0

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        if not self.answers:
            raise RuntimeError("Connection closed by peer")
        return [list(values), list(self.answers.pop(0))]


@pytest.fixture
def plan() -> Plan:
    trial = gpu_trial("gemm_reduce_scatter", {"m": 512, "n": 256, "k": 64}, world=2, dtype="bfloat16")
    return expand(trial.problem, trial.schedule)


class Context:
    """What is asked of a trial's."""

    device = torch.device("cpu")

    def __init__(self, plan: Plan, log: list[str], failure: str | None = None) -> None:
        self.plan, self.log, self._failure = plan, log, failure

    def failure(self) -> str | None:
        return self._failure


class Replayed:
    """As a graph would be: what it plays, it plays when asked for its moments."""

    def __init__(self, context: Any, calls: Any, stream: Any, *, captured: bool, before: Any = ()) -> None:
        self.calls, self.name, self.log = [*before, *calls], "graph" if captured else "eager", context.log

    def moments(self) -> tuple[int, int]:
        self.log.append(self.name)
        for call in self.calls:
            call()
        return 1_000, 9_000


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "GraphReplay", Replayed)
    monkeypatch.setattr(timeline.timing, "measured", lambda device: Clock(32e-9, 2e-8))


PASSED: list[Sequence[float]] = [[0.0]] * 4
"""The other rank's answer to what was made, called, captured and seen."""


def spans(plan: Plan, gang: Peers, made: Any, failure: str | None = None) -> tuple[list[Span], list[str]]:
    """Of rank 0, and what it did in which order; *made* are its spans, or what raises."""
    log: list[str] = []
    each = [lambda number=number: log.append(f"set {number}") for number in range(3)]

    def read(words: Any, start_ns: int, tick_s: float) -> list[Span]:
        assert (words.tolist(), start_ns, tick_s) == ([7, 8], 1_000, 32e-9)
        return list(made)

    def make() -> WatchedCalls:
        if isinstance(made, Exception):
            raise made
        return WatchedCalls(each, torch.tensor([7, 8]), read)

    context: Any = Context(plan, log, failure)
    try:
        return timeline.spans(gang, context, make, lambda: log.append("warm"), captured=True), log
    except MissingSpans as unseen:
        unseen.add_note(" ".join(log))
        raise


def test_operands_of_the_call_that_is_seen_are_cold_and_clocks_high(plan: Plan) -> None:
    """Called once outside the graph; then a sample's calls, those on other operands, and only then the one seen."""
    _, log = spans(plan, Peers(*PASSED, [-1.0] * len(plan)), [])
    assert log == ["eager", "set 0", "warm", "graph", "set 1", "set 2", "set 0"]


def test_who_failed_is_said_on_all_ranks_and_nobody_calls_alone(plan: Plan) -> None:
    with pytest.raises(MissingSpans, match="failed on rank 0: MemoryError: no room for stamps") as told:
        spans(plan, Peers([0.0]), MemoryError("no room for stamps"))
    with pytest.raises(MissingSpans, match=r"failed on rank 1$") as theirs:
        spans(plan, Peers([1.0]), [])
    assert [told.value.__notes__, theirs.value.__notes__] == [[""], [""]]
    assert not told.value.alone
    assert not theirs.value.alone


def test_an_error_word_is_why_nothing_is_seen(plan: Plan) -> None:
    with pytest.raises(MissingSpans, match="failed on rank 0: Hang: Rank 1 waited"):
        spans(plan, Peers([0.0], [0.0]), [], failure="Rank 1 waited")


def test_a_peer_that_has_gone_is_no_failure_of_what_was_timed(plan: Plan) -> None:
    for count in range(len(PASSED) + 1):
        with pytest.raises(
            MissingSpans, match="A peer left the call that records the timeline: Connection closed"
        ) as told:
            spans(plan, Peers(*PASSED[:count]), [])
        assert told.value.alone


def test_what_peers_sent_last_is_what_was_waited_for(plan: Plan) -> None:
    sums = [int(s) for s in plan.steps_of(0) if plan.address(int(s)).startswith("0/reduce/")]
    mine = Span(plan.address(sums[0]), 0, "reduce", "compute", 2e-6, 3e-6)
    theirs = np.full(len(plan), -1.0)
    (put,) = (int(s) for s in plan.waits_for(sums[0]) if plan.rank[s] == 1)
    theirs[put] = 1e-6
    [span], _ = spans(plan, Peers(*PASSED, theirs.tolist()), [mine])
    assert span.waited_for == plan.address(put)
    assert timeline.ends(plan, [mine])[sums[0]] == 3e-6
