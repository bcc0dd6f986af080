"""Timelines: stamps that kernels write for tiles, sums and puts become spans of the Plan's steps.

They come from one further call, after the timed ones, in which the kernels write stamps.
"""

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
from kernels.backends.triton.kernels import gemm_receive, gemm_scattered, gemv
from kernels.backends.triton.kernels.sync import COMPUTED, PROCESSOR, SENT, STARTED, WAITED, WORDS
from kernels.backends.triton.launch import Call
from kernels.backends.triton.memory import Context
from kernels.backends.triton.timing import GraphReplay
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.outcome import Span, TileTimes
from kernels.plan import Kind, Plan, Pool
from kernels.schemes import axis_rules, spanning, split_k

# Spans from stamps and from events.

Ints = NDArray[np.int64]

EVENT_TICK_S = 5e-7
"""Resolution of CUDA events (CUDA Runtime API, cudaEventElapsedTime)."""
HALVES = (Kind.COMPUTE, Kind.PUT, Kind.COLLECTIVE)
"""Kinds of steps that are visible in a call of one computation and one collective."""
TILES_MOST = 2048
"""Most tiles of one call, of all ranks together, that are sent, stored and drawn with every measurement."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """The stamps of one rank's kernel in one call."""

    moments: Ints
    """[records, 4]: STARTED to SENT in nanoseconds from the common start; a skipped stamp has the value before it."""
    processors: Ints
    """[records]: number of the SM."""
    written: NDArray[np.bool_]
    """[records]: whether the kernel wrote the record."""
    tick_s: float

    @classmethod
    def read(cls, words: Ints, start_ns: int, tick_s: float) -> Stamps:
        """The stamps in *words*, in the layout of `kernels.sync`, relative to *start_ns*."""
        words = words.reshape(-1, WORDS.value)
        moments = np.maximum.accumulate(words[:, : PROCESSOR.value], axis=1) - start_ns
        return cls(moments, words[:, PROCESSOR.value], words[:, STARTED.value] > 0, tick_s)


def of_kernel(plan: Plan, rank: int, stamps: Stamps) -> list[Span]:
    """One span per step of *rank* that its fused kernel executed.

    A computation lasts from the end of the first tile's wait until the last tile is computed, a put from its first
    result, or its first operand, until its last store.
    """
    layout, kept = _StampLayout(plan, rank, len(stamps.written)), _kept(stamps, plan.problem.world)
    spans: list[Span] = []
    for step in map(int, plan.steps_of(rank)):
        records = layout.records(step)
        records = records[stamps.written[records]]
        if len(records):
            begin, end = layout.moments(step, stamps, records)
            span = _span(plan, step, float(begin.min()) / 1e9, float(end.max()) / 1e9, stamps.tick_s)
            spans.append(span._replace(tiles=layout.tiles(step, stamps, records[kept[records]])))
            if spans[-1].tiles:
                kept[records] = False  # a share that two steps have in common is reported once
    return spans


def of_launches(plan: Plan, rank: int, seconds: Mapping[int, tuple[float, float]], tick_s: float) -> list[Span]:
    """Spans of a decomposed call: each step lasts as long as its launch.

    *seconds*: start and end of each launch from the common start. Steps of other launches get no span.
    """
    return [
        _span(plan, step, *seconds[launch], tick_s)._replace(pool=Pool(int(plan.pool[step])).word)
        for step in map(int, plan.steps_of(rank)) if (launch := int(plan.launch[step])) in seconds
    ]  # fmt: skip


def of_halves(plan: Plan, rank: int, moments: Sequence[int], tick_s: float) -> list[Span]:
    """Spans of a sequential call: its computation and its collective, of which only start and end are visible.

    *moments*: nanoseconds from the common start to the end of the first and of the second half. All puts of a
    collective that consists of puts last as long as the collective; its sums and copies get no span.
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
    """Spans of a concurrent call, as of `of_launches`; sums and copies inside a collective get no span."""
    visible = {plan.address(int(step)) for step in plan.steps_of(rank) if Kind(int(plan.kind[step])) in HALVES}
    return [span for span in of_launches(plan, rank, seconds, tick_s) if span.step in visible]


def with_tiles(plan: Plan, spans: Sequence[Span], stamps: Sequence[Stamps]) -> list[Span]:
    """*spans* of one rank with the tiles of its computations; *stamps*: by micro-batch, tile records first."""
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
    """*spans*, each with the step that it waited for last; *ends*: end of each step in seconds, or -1."""
    number = {plan.address(int(step)): int(step) for rank in {s.rank for s in spans} for step in plan.steps_of(rank)}
    completed = []
    for span in spans:
        needed = [int(step) for step in plan.waits_for(number[span.step]) if ends[int(step)] >= 0]
        last = max(needed, key=lambda step: ends[step], default=None)
        completed.append(span if last is None else span._replace(waited_for=plan.address(last)))
    return completed


def ends(plan: Plan, spans: Sequence[Span]) -> list[float]:
    """End of each step of the whole plan in seconds, from *spans*; -1 for a step without a span."""
    known = {span.step: span.stop_s for span in spans}
    return [known.get(plan.address(step), -1.0) for step in range(len(plan))]


def _span(plan: Plan, step: int, start_s: float, stop_s: float, tick_s: float) -> Span:
    """The span of *step*; a put is drawn on the link, whatever moves its bytes."""
    kind = Kind(int(plan.kind[step]))
    pool = Pool.LINK if kind is Kind.PUT else Pool(int(plan.pool[step]))
    stream = max(0, int(plan.launches.stream[plan.launch[step]]))
    times = start_s, stop_s
    return Span(plan.address(step), int(plan.rank[step]), kind.word, pool.word, *times, tick_s=tick_s, stream=stream,
                micro_batch=plan.problem_of_call[step])  # fmt: skip


class _StampLayout:
    """Maps the *count* stamp records of a kernel to steps, as the kernel's docstring lays them out."""

    def __init__(self, plan: Plan, rank: int, count: int) -> None:
        self._plan, self._rank, self._count, self._order = plan, rank, count, plan.tiles[rank]
        self._operator = OPERATORS[plan.problem.operator]
        self._receives = self._operator.flow is Flow.RECEIVE
        self._to_all = (
            axis_rules.sends_packets(plan.problem, plan.schedule) and axis_rules.shots(plan.problem, plan.schedule) == 1
        )
        self._spans = axis_rules.spans_ranks(plan.schedule)
        self._puts = gemm_receive.put_steps(plan, rank).tolist() if self._receives else []
        self._cut = split_k.of(plan.problem, plan.schedule)
        self._ends = spanning.limits(plan.problem, plan.schedule)[1:] if self._spans and self._receives else ()
        """Where ranges of the contraction end: the columns of all but the first one are pushed apart."""

    def moments(self, step: int, stamps: Stamps, records: Ints) -> tuple[Ints, Ints]:
        """When each of *records* of *step* began and ended, in nanoseconds.

        Where later columns come in ranges, a range lasts until a tile goes on with the next one, and so until that is
        here.
        """
        if self._plan.kind[step] in (Kind.PUT, Kind.COPY):
            return stamps.moments[records, COMPUTED.value], stamps.moments[records, SENT.value]
        begun, ended = stamps.moments[records, WAITED.value], stamps.moments[records, COMPUTED.value]
        if len(self._ends) > 1:
            behind, tiles, k_stop = len(self._ends) - 1, len(self._order), int(self._plan.k_stop[step])
            going_on = stamps.moments[self._count - behind * tiles :, STARTED.value].reshape(behind, tiles)
            number = self._ends.index(k_stop)
            begun = going_on[number - 1, records] if number else begun
            ended = going_on[number, records] if number < behind else ended
        return begun, ended

    def records(self, step: int) -> Ints:
        """Numbers of the records of *step*; none if the kernel writes none for it."""
        plan, kind = self._plan, self._plan.kind[step]
        at = np.arange(plan.tile_start[step], plan.tile_stop[step])
        if self._spans and not self._receives:
            return self._of_scattered(step, at)
        if self._spans and kind in (Kind.PUT, Kind.COPY):  # the last ones, by the rank that gets the rows
            later = len(self._ends) - 1
            number = 0 if kind == Kind.COPY else self._ends.index(int(plan.k_stop[step]))  # all programs push its own
            behind = self._count - later * len(self._order) - (1 + later - number) * plan.problem.world
            return np.array([behind + plan.peer[step]])
        if (of_units := self._of_units(step)) is not None:
            return len(self._order) * (1 if self._spans else 2) + of_units
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
        """Times of the tiles in *records* of *step*; none for puts of tiles, whose computation already has them."""
        kind, count, moments = self._plan.kind[step], len(self._order), stamps.moments[records]
        numbers = records - count if kind == Kind.REDUCE else records
        if kind == Kind.REDUCE and self._spans:
            at = np.arange(self._plan.tile_start[step], self._plan.tile_stop[step])
            sums, tiles = gemm_scattered.sums_of(self._plan, self._rank, at)
            by_sum = np.argsort(sums)
            numbers = tiles[by_sum][np.searchsorted(sums, numbers, sorter=by_sum)]
        if self._of_units(step) is not None:
            numbers = np.full_like(records, self._plan.tile_start[step])
        if kind in (Kind.PUT, Kind.COPY):
            if not self._receives or self._spans:
                return ()
            numbers = (records - count) // len(self._puts)
        elif (
            kind == Kind.COMPUTE
            and not self._spans
            and self._operator.reduces
            and self._operator.work == "gemm"
            and self._is_own(step)
        ):
            moments[:, SENT.value] = moments[:, COMPUTED.value]  # the sum has what follows
        columns = (numbers.tolist(), stamps.processors[records].tolist(), *(moments / 1e9).T.tolist())
        return tuple(TileTimes(*entry) for entry in zip(*columns, strict=True))

    def _of_scattered(self, step: int, at: Ints) -> Ints:
        """Numbers of the records of *step*, of tiles *at* that span ranks and leave for their owners."""
        plan, count = self._plan, len(self._order)
        if plan.kind[step] == Kind.REDUCE or self._sends_sums(step):
            return count + gemm_scattered.sums_of(plan, self._rank, at)[0]
        if (of_units := self._of_units(step)) is None:
            return at
        if self._operator.reduces:
            count += len(gemm_scattered.sums_of(plan, self._rank, np.arange(count))[0])
        return count + of_units

    def _of_units(self, step: int) -> Ints | None:
        """Numbers of the records of *step* among those of units and who adds them; None for other steps."""
        cut, number = self._cut, int(self._plan.tile_start[step])
        if cut is None or number >= cut.count:
            return None
        if self._plan.adds_units[step] or self._plan.kind[step] == Kind.PUT:  # who adds columns of a tile sends them
            return len(cut.tile) + np.flatnonzero(cut.add_tile == number)
        return np.flatnonzero((cut.tile == number) & (cut.k_start == self._plan.k_start[step]))

    def _sends_sums(self, step: int) -> bool:
        """Whether *step* is a put of sums, which waits for one."""
        plan = self._plan
        return bool(plan.kind[step] == Kind.PUT and (plan.kind[plan.waits_for(step)] == Kind.REDUCE).any())

    def _is_own(self, step: int) -> bool:
        """Whether this rank owns the rows of *step*."""
        return bool(self._order.chunk[self._plan.tile_start[step]] == self._rank)


def _kept(stamps: Stamps, world: int) -> NDArray[np.bool_]:
    """Mask of the records to keep, about TILES_MOST: those of whole SMs, which show how tiles follow each other."""
    busy = np.unique(stamps.processors[stamps.written])
    share = min(1.0, TILES_MOST / max(1, world * int(stamps.written.sum())))
    some = max(1, int(share * len(busy)))
    return stamps.written & np.isin(stamps.processors, busy[np.arange(some) * len(busy) // some] if len(busy) else busy)


# The further call that is not timed: its steps and tiles write when they ran, and on which SM.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchedCalls:
    """Calls that record when their steps run, one per set of operands."""

    each: Sequence[Call]
    written: Tensor
    """int64: the record of the latest call."""
    spans: Callable[[Ints, int, float], list[Span]]
    """Makes spans of the record, the common start in nanoseconds, and the clock's tick in seconds."""


class RankCalls(Protocol):
    """The methods that this module needs of a backend; all ranks call them in the same order."""

    stream: torch.cuda.Stream

    def barrier(self) -> float:
        """Waits on the host until all ranks are here."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank; all ranks pass equally many."""


def spans(
    gang: RankCalls, context: Context, make: Callable[[], WatchedCalls], warm: Callable[[], None], *, captured: bool
) -> list[Span]:
    """Spans of one call of all ranks together, with operands as cold and clocks as high as in samples.

    *warm* enqueues a sample's calls. MissingSpans on all ranks if it failed on one; measured times stay valid.
    """
    watched = _on_all(gang, make)
    first, others = watched.each[:1], watched.each[1:] or watched.each
    # once without a graph: a call that never ran cannot be captured
    _on_all(gang, lambda: _moments(context, GraphReplay(context, first, gang.stream, captured=False)))
    replay = _on_all(gang, lambda: GraphReplay(context, first, gang.stream, captured=captured, before=others))

    def recorded() -> list[Span]:
        """Replays the graph, in which calls on other operands come first, so that the recorded call's are cold."""
        warm()
        start, _ = _moments(context, replay)
        tick_s = timing.measured(context.device).tick_s
        return watched.spans(watched.written.cpu().numpy(), start, tick_s)

    own_spans = _on_all(gang, recorded)
    everyone = _together(lambda: gang.exchange(ends(context.plan, own_spans)))
    return waited_for(context.plan, own_spans, [max(by_rank) for by_rank in zip(*everyone, strict=True)])


def _moments(context: Context, replay: GraphReplay) -> tuple[int, int]:
    moments = replay.moments()
    if message := context.failure():
        raise Hang(message)
    return moments


def _on_all(gang: RankCalls, make: Callable[[], T]) -> T:
    """The result of *make* if it succeeds on all ranks, else MissingSpans on all of them.

    Nothing in *make* waits for a peer on the host, so that a rank that fails meets the others here. On the GPU our
    kernels wait until their deadline. A call of NCCL has no deadline if its peer never comes. torch's watchdog ends
    the process after the group's timeout (`RankProcessGroup`), but does not see calls in a captured graph. Those end
    with their process, when the watchdog of the cluster (`cluster.watchdog`) gives up the gang. The rank that failed
    waits for the others on the host no longer than that timeout, and reports what it has timed.
    """
    result, why = None, ""
    try:
        result = make()
    except Exception as error:
        why = f": {type(error).__name__}: {error}"
    answers = _together(lambda: gang.exchange([float(result is None)]))
    failed = [rank for rank, (has_failed,) in enumerate(answers) if has_failed]
    if result is None or failed:
        ranks = ", ".join(map(str, failed))
        raise MissingSpans(f"The call that records the timeline failed on rank {ranks}{why}")
    _together(gang.barrier)  # the result is ready on all GPUs
    return result


def _together(meet: Callable[[], T]) -> T:
    """The result of *meet*, which involves all ranks; MissingSpans if a peer does not come in time."""
    try:
        return meet()
    except Exception as error:
        gone = MissingSpans(f"A peer left the call that records the timeline: {error}")
        gone.alone = True
        raise gone from error
