"""The call that is written down works on all ranks or on none, and what was timed before stands in any case."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from kernels.backends.base import Unseen
from kernels.backends.triton import timeline, watch
from kernels.backends.triton.watch import Watched
from kernels.outcome import Span
from kernels.plan import Plan
from kernels.schemes import expand
from tests.kernels.triton.conftest import gpu_trial

WATCHED = Watched([], torch.zeros(1), lambda words, start_ns, tick_s: [])


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


def seen(plan: Plan, gang: Peers, make: Any = lambda: WATCHED) -> list[Span]:
    context: Any = type("Context", (), {"plan": plan})()
    return watch.spans(gang, context, make, lambda: None, captured=True)


def refuses() -> Watched:
    raise MemoryError("no room for stamps")


def test_who_failed_is_said_on_all_ranks(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(watch, "_seen", lambda *arguments: calls.append(arguments))
    with pytest.raises(Unseen, match="failed on rank 0: MemoryError: no room for stamps"):
        seen(plan, Peers([0.0]), refuses)
    with pytest.raises(Unseen, match=r"failed on rank 1$"):
        seen(plan, Peers([1.0]))
    assert calls == [], "a rank alone would wait for the other"


def test_a_peer_that_has_gone_is_no_failure_of_what_was_timed(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_seen", lambda *arguments: [])
    for answers in ([], [[0.0]], [[0.0], [0.0]]):
        with pytest.raises(Unseen, match="left by a peer: Connection closed"):
            seen(plan, Peers(*answers))


def test_what_peers_sent_last_is_what_was_waited_for(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = [int(s) for s in plan.steps_of(0) if plan.address(int(s)).startswith("0/reduce/")]
    mine = Span(plan.address(sums[0]), 0, "reduce", "compute", 2e-6, 3e-6)
    monkeypatch.setattr(watch, "_seen", lambda *arguments: [mine])
    theirs = np.full(len(plan), -1.0)
    (put,) = (int(s) for s in plan.waits_for(sums[0]) if plan.rank[s] == 1)
    theirs[put] = 1e-6
    [span] = seen(plan, Peers([0.0], [0.0], theirs.tolist()))
    assert span.waited_for == plan.address(put)
    assert timeline.ends(plan, [mine])[sums[0]] == 3e-6
