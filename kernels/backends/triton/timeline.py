"""Stamps as spans: what kernels wrote of tiles, sums and puts, laid on the steps of the Plan that they realise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.backends.base import Hang, MissingSpans
from kernels.backends.triton import timing
from kernels.backends.triton.kernels import gemm_receive, gemv
from kernels.backends.triton.kernels.sync import COMPUTED, PROCESSOR, SENT, STARTED, WAITED, WORDS
from kernels.backends.triton.memory import Context
from kernels.backends.triton.timing import GraphReplay
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.outcome import Span, TileTimes
from kernels.plan import Kind, Plan, Pool
from kernels.schemes import axis_rules

# Stamps as spans: what kernels wrote of tiles, sums and puts, laid on the steps of the Plan that they realise.

Ints = NDArray[np.int64]

EVENT_TICK_S = 5e-7
"""CUDA's events tell no shorter time (CUDA Runtime API, cudaEventElapsedTime)."""
HALVES = (Kind.COMPUTE, Kind.PUT, Kind.COLLECTIVE)
"""What is seen of a call that a computation and a collective make."""
TILES_MOST = 2048
"""Tiles of one call that are kept, of all ranks together: what is sent, stored and drawn with every measurement."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """What one rank's kernel wrote in one call."""

    moments: Ints
    """[records, 4]: STARTED to SENT in nanoseconds from the common start; what took no time has the moment before."""
    processors: Ints
    """[records]: the SM."""
    written: NDArray[np.bool_]
    """[records]"""
    tick_s: float

    @classmethod
    def read(cls, words: Ints, start_ns: int, tick_s: float) -> Stamps:
        """Those in *words*, as `kernels.stamp` lays them out, from *start_ns* on."""
        words = words.reshape(-1, WORDS.value)
        moments = np.maximum.accumulate(words[:, : PROCESSOR.value], axis=1) - start_ns
        return cls(moments, words[:, PROCESSOR.value], words[:, STARTED.value] > 0, tick_s)


def of_kernel(plan: Plan, rank: int, stamps: Stamps) -> list[Span]:
    """One span per step of *rank* that its fused kernel took by itself.

    A computation lasts from when its first tile had what it waited for until its last is computed, a put from its first
    result, or its first operand, until its last store.
    """
    layout, kept = _StampLayout(plan, rank, len(stamps.written)), _kept(stamps, plan.problem.world)
    spans: list[Span] = []
    for step in map(int, plan.steps_of(rank)):
        records = layout.records(step)
        records = records[stamps.written[records]]
        if len(records):
            first, last = (COMPUTED, SENT) if plan.kind[step] == Kind.PUT else (WAITED, COMPUTED)
            begin, end = stamps.moments[records, first.value].min(), stamps.moments[records, last.value].max()
            made = _span(plan, step, float(begin) / 1e9, float(end) / 1e9, stamps.tick_s)
            spans.append(made._replace(tiles=layout.tiles(step, stamps, records[kept[records]])))
            if spans[-1].tiles:
                kept[records] = False  # a share between two steps is told once
    return spans


def of_launches(plan: Plan, rank: int, seconds: Mapping[int, tuple[float, float]], tick_s: float) -> list[Span]:
    """A decomposed call: each step lasts as long as the launch that it belongs to.

    *seconds*: by launch, begin and end from the common start. A launch that was not made has no steps.
    """
    return [
        _span(plan, step, *seconds[launch], tick_s)._replace(pool=Pool(int(plan.pool[step])).word)
        for step in map(int, plan.steps_of(rank)) if (launch := int(plan.launch[step])) in seconds
    ]  # fmt: skip


def of_halves(plan: Plan, rank: int, moments: Sequence[int], tick_s: float) -> list[Span]:
    """A sequential call: its computation, and its collective, of which nothing but begin and end is seen.

    *moments*: nanoseconds from the common start at which the first and the second half had ended. All puts of a
    collective that is made of puts last as long as it; its sums and copies inside are not told apart.
    """
    receives = OPERATORS[plan.problem.operator].flow is Flow.RECEIVE
    first, second = (0.0, moments[0] / 1e9), (moments[0] / 1e9, moments[1] / 1e9)
    computes, moves = (second, first) if receives else (first, second)
    halves = {Kind.COMPUTE: computes, Kind.PUT: moves, Kind.COLLECTIVE: moves}
    return [
        _span(plan, step, *halves[kind], tick_s) for step in map(int, plan.steps_of(rank))
        if (kind := Kind(int(plan.kind[step]))) in halves
    ]  # fmt: skip


def of_halves_on_streams(
    plan: Plan, rank: int, seconds: Mapping[int, tuple[float, float]], tick_s: float
) -> list[Span]:
    """A concurrent call: as `of_launches`; sums and copies inside of a collective are not told apart, and have none."""
    seen = {plan.address(int(step)) for step in plan.steps_of(rank) if Kind(int(plan.kind[step])) in HALVES}
    return [span for span in of_launches(plan, rank, seconds, tick_s) if span.step in seen]


def with_tiles(plan: Plan, spans: Sequence[Span], stamps: Sequence[Stamps]) -> list[Span]:
    """*spans* of one rank with the tiles of its computations. *stamps*: by micro-batch, the first records of tiles."""
    number = {plan.address(step): step for step in range(len(plan))}
    laid = []
    for span in spans:
        step = number[span.step]
        if plan.kind[step] != Kind.COMPUTE:
            laid.append(span)
            continue
        of_problem = stamps[int(plan.launches.micro_batch[plan.launch[step]])]
        at = np.arange(plan.tile_start[step], plan.tile_stop[step])
        kept = at[(_kept(of_problem, plan.problem.world * len(stamps)) & of_problem.written)[at]]
        columns = (kept.tolist(), of_problem.processors[kept].tolist(), *(of_problem.moments[kept] / 1e9).T.tolist())
        laid.append(span._replace(tiles=tuple(TileTimes(*entry) for entry in zip(*columns, strict=True))))
    return laid


def waited_for(plan: Plan, spans: Sequence[Span], ends: Sequence[float]) -> list[Span]:
    """*spans*, each with the step that it waited for last. *ends*: by step, when it had ended, or -1."""
    number = {plan.address(int(step)): int(step) for rank in {s.rank for s in spans} for step in plan.steps_of(rank)}
    answered = []
    for span in spans:
        needed = [int(step) for step in plan.waits_for(number[span.step]) if ends[int(step)] >= 0]
        last = max(needed, key=lambda step: ends[step], default=None)
        answered.append(span if last is None else span._replace(waited_for=plan.address(last)))
    return answered


def ends(plan: Plan, spans: Sequence[Span]) -> list[float]:
    """By step of the whole plan, when it had ended by *spans*; -1 where they do not say."""
    known = {span.step: span.stop_s for span in spans}
    return [known.get(plan.address(step), -1.0) for step in range(len(plan))]


def _span(plan: Plan, step: int, start_s: float, stop_s: float, tick_s: float) -> Span:
    """A put is drawn where its bytes go, whoever moves them."""
    kind = Kind(int(plan.kind[step]))
    pool = Pool.LINK if kind is Kind.PUT else Pool(int(plan.pool[step]))
    stream = max(0, int(plan.launches.stream[plan.launch[step]]))
    times = start_s, stop_s
    return Span(plan.address(step), int(plan.rank[step]), kind.word, pool.word, *times, tick_s=tick_s, stream=stream,
                micro_batch=plan.problem_of_call[step])  # fmt: skip


class _StampLayout:
    """Which of a kernel's *count* records belong to which step: as the kernel's own words say."""

    def __init__(self, plan: Plan, rank: int, count: int) -> None:
        self._plan, self._rank, self._count, self._order = plan, rank, count, plan.tiles[rank]
        self._operator = OPERATORS[plan.problem.operator]
        self._receives = self._operator.flow is Flow.RECEIVE
        self._to_all = (
            axis_rules.sends_packets(plan.problem, plan.schedule) and axis_rules.shots(plan.problem, plan.schedule) == 1
        )
        self._puts = gemm_receive.put_steps(plan, rank).tolist() if self._receives else []

    def records(self, step: int) -> Ints:
        """Numbers of the records of *step*; none where the kernel does something else."""
        plan, kind = self._plan, self._plan.kind[step]
        at = np.arange(plan.tile_start[step], plan.tile_stop[step])
        if self._receives and kind == Kind.PUT:
            return np.arange(len(self._order) + self._puts.index(step), self._count, len(self._puts))
        if kind == Kind.COMPUTE or (kind == Kind.PUT and (self._to_all or not self._is_own(step))):
            return at
        if kind not in (Kind.REDUCE, Kind.PUT):
            return at[:0]
        if self._operator.work != "gemv":
            return len(self._order) + at
        return len(self._order) + gemv.shares_of(plan, self._rank, at)

    def tiles(self, step: int, stamps: Stamps, records: Ints) -> tuple[TileTimes, ...]:
        """*records* of *step*; none for puts of tiles, whose sending is told with their computation."""
        kind, count, moments = self._plan.kind[step], len(self._order), stamps.moments[records]
        numbers = records - count if kind == Kind.REDUCE else records
        if kind == Kind.PUT:
            if not self._receives:
                return ()
            numbers = (records - count) // len(self._puts)
        elif kind == Kind.COMPUTE and self._operator.reduces and self._operator.work == "gemm" and self._is_own(step):
            moments[:, SENT.value] = moments[:, COMPUTED.value]  # what follows is told with the sum
        columns = (numbers.tolist(), stamps.processors[records].tolist(), *(moments / 1e9).T.tolist())
        return tuple(TileTimes(*entry) for entry in zip(*columns, strict=True))

    def _is_own(self, step: int) -> bool:
        """Whether *step* is about rows that this rank owns."""
        return bool(self._order.chunk[self._plan.tile_start[step]] == self._rank)


def _kept(stamps: Stamps, world: int) -> NDArray[np.bool_]:
    """Records of all SMs, or of some, so that few enough are left: whole SMs show how tiles follow each other there."""
    busy = np.unique(stamps.processors[stamps.written])
    share = min(1.0, TILES_MOST / max(1, world * int(stamps.written.sum())))
    some = max(1, int(share * len(busy)))
    return stamps.written & np.isin(stamps.processors, busy[np.arange(some) * len(busy) // some] if len(busy) else busy)


# One call more than is timed, in which everything is written down: when its steps and tiles ran, and on which SM.

Call = Callable[[], None]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class WatchedCalls:
    """Calls that write down when what they do happens, one per set of operands."""

    each: Sequence[Call]
    written: Tensor
    """int64, by the call that came last."""
    spans: Callable[[Ints, int, float], list[Span]]
    """Of what was written, the moment of the common start and the clock's tick in seconds."""


class RankCalls(Protocol):
    """What is needed of the backend: all ranks call it in the same order."""

    stream: torch.cuda.Stream

    def barrier(self) -> float:
        """All ranks meet on the host."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""


def spans(
    gang: RankCalls, context: Context, make: Callable[[], WatchedCalls], warm: Callable[[], None], *, captured: bool
) -> list[Span]:
    """Spans of one call of all ranks together, with operands as cold and clocks as high as those of samples.

    *warm* enqueues a sample's calls. Unseen on all ranks where it did not work on one: what was timed stands.
    """
    watched = _on_all(gang, make)
    first, others = watched.each[:1], watched.each[1:] or watched.each
    # once without a graph, since none can be made of what was never called
    _on_all(gang, lambda: _moments(context, GraphReplay(context, first, gang.stream, captured=False)))
    replay = _on_all(gang, lambda: GraphReplay(context, first, gang.stream, captured=captured, before=others))

    def seen() -> list[Span]:
        """The calls on other operands come before it, so that its own are cold."""
        warm()
        start, _ = _moments(context, replay)
        tick_s = timing.measured(context.device).tick_s
        return watched.spans(watched.written.cpu().numpy(), start, tick_s)

    found = _on_all(gang, seen)
    everyone = _together(lambda: gang.exchange(ends(context.plan, found)))
    return waited_for(context.plan, found, [max(by_rank) for by_rank in zip(*everyone, strict=True)])


def _moments(context: Context, replay: GraphReplay) -> tuple[int, int]:
    found = replay.moments()
    if sentence := context.failure():
        raise Hang(sentence)
    return found


def _on_all(gang: RankCalls, make: Callable[[], Made]) -> Made:
    """What *make* gives, when it works on all ranks: they go on together or not at all.

    Nothing in *make* waits for a peer on the host, so that a rank that fails meets the others here. On the GPU our
    kernels wait until their deadline. A call of NCCL whose peer never comes has none, and its rank is silent: torch's
    watchdog ends the process after the group's timeout (`heap.Group`), but does not know calls in a captured
    graph; those end with their process, when whoever hears the ranks' reports (`cluster.watchdog`) gives the gang up.
    The rank that failed waits for the others on the host no longer than that timeout, and says what it has timed.
    """
    made, why = None, ""
    try:
        made = make()
    except Exception as error:
        why = f": {type(error).__name__}: {error}"
    answers = _together(lambda: gang.exchange([float(made is None)]))
    failed = [rank for rank, (mine,) in enumerate(answers) if mine]
    if made is None or failed:
        ranks = ", ".join(map(str, failed))
        raise MissingSpans(f"The call that records the timeline failed on rank {ranks}{why}")
    _together(gang.barrier)  # what was made lies ready on all GPUs
    return made


def _together(meet: Callable[[], Made]) -> Made:
    """What all ranks say to each other; a peer that is not there in time is gone."""
    try:
        return meet()
    except Exception as error:
        gone = MissingSpans(f"A peer left the call that records the timeline: {error}")
        gone.alone = True
        raise gone from error
