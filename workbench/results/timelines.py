"""What a timeline says in numbers: its lanes and how busy they are, its critical path, and where two timelines part."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from kernels.outcome import Span
from kernels.plan import Pool
from workbench.naming import ENGINES, engine_title
from workbench.results.metrics import merged

# Lanes: the rows of a timeline, and how busy each of them is.

COMPUTE = Pool.COMPUTE.word
LIBRARY = Pool.LIBRARY.word
WAIT = "wait"
"""The kind of a time in which nothing runs."""


class Engine(NamedTuple):
    """One lane of a timeline: a stream of kernels and library calls of a rank, or one of its engines."""

    rank: int
    place: int
    """Order within a rank, as in `naming.ENGINES`: streams, copy engines, links, the library."""
    stream: int
    """Number of the stream; 0 for engines, which streams share."""
    pool: str

    @classmethod
    def of(cls, span: Span) -> Engine:
        """The lane of *span*: library calls on their own stream are drawn with that stream's kernels."""
        return _engine(span.rank, span.pool, span.stream)

    def title(self, one_stream: bool) -> str:
        """`rank 0 computes`."""
        return f"rank {self.rank} {engine_title(self.pool, self.stream, one_stream=one_stream)}"


@lru_cache(maxsize=4096)
def _engine(rank: int, pool: str, stream: int) -> Engine:
    """The lane of spans of *pool*; there are many spans of few lanes."""
    pool = COMPUTE if pool == LIBRARY and stream else pool
    place = list(ENGINES).index(pool) if pool in ENGINES else len(ENGINES)
    return Engine(rank, place, stream if pool == COMPUTE else 0, pool)


def has_one_stream(engines: Iterable[Engine]) -> bool:
    """Whether all kernels run on one stream, which then needs no number."""
    return len({engine.stream for engine in engines if engine.pool == COMPUTE}) <= 1


def end_s(spans: Sequence[Span]) -> float:
    """When the last of *spans* ends, in seconds; 0 without any."""
    return max((span.stop_s for span in spans), default=0.0)


class BusyLanes:
    """The times at which each lane of *spans* is busy, to be added up for any range of time."""

    def __init__(self, spans: Sequence[Span]) -> None:
        by_lane: dict[Engine, list[Span]] = defaultdict(list)
        for span in spans:
            by_lane[Engine.of(span)].append(span)
        self._intervals = {lane: merged(by_lane[lane]) for lane in sorted(by_lane)}

    @property
    def lanes(self) -> Sequence[Engine]:
        """The lanes, in order."""
        return tuple(self._intervals)

    def seconds(self, start_s: float, stop_s: float) -> dict[Engine, float]:
        """Busy seconds of every lane between *start_s* and *stop_s*, in the order of the lanes."""
        return {
            lane: sum(max(0.0, min(stop, stop_s) - max(start, start_s)) for start, stop in intervals)
            for lane, intervals in self._intervals.items()
        }


# The critical path: from the last end back to whatever let each step begin.

TOUCHES_SHARE = 0.1
"""A step follows another one if the gap between them is at most this share of its own length: clocks and loops leave
such gaps. A longer one was spent waiting."""
_EXACT_SHARE = 1e-9
"""Rounding of times, as a share of the whole."""
_ON_PROCESSORS = (COMPUTE, LIBRARY)
"""Pools whose steps need a rank's processors."""


class Segment(NamedTuple):
    """A part of the critical path. Segments touch each other, from 0 to the end of the last step."""

    kind: str
    """The kind of the step, or WAIT: what let the step begin had ended, and it had not begun."""
    start_s: float
    stop_s: float
    span: Span
    """The step that runs, or that waits to begin."""


def critical_path(spans: Sequence[Span]) -> list[Segment]:
    """The steps that decide when the last of *spans* ends, and the waits between them; empty without spans.

    A step begins when the last step it waited for has ended and what it runs on is free: the path goes back to the
    later of the two. Where a step began before what it waited for had ended, it counts from then on. A step that waits
    for processors follows the one that held them until then.
    """
    if not spans:
        return []
    causes, backwards = _Causes(spans), list[Segment]()
    index = max(range(len(spans)), key=lambda each: spans[each].stop_s)
    at = spans[index].stop_s
    while True:
        span, cause = spans[index], causes.of(index, at)
        begin = min(at, max(span.start_s, cause.until_s))
        backwards.append(Segment(span.kind, begin, at, span))
        backwards.append(Segment(WAIT, min(cause.until_s, begin), begin, span))
        if cause.place is None:
            return [segment for segment in reversed(backwards) if segment.stop_s > segment.start_s]
        index, at = cause.place, min(cause.until_s, begin)


class _Cause(NamedTuple):
    """The span that let another one begin, and until when it did not."""

    place: int | None
    """Its number among the spans; None for the beginning of the iteration."""
    until_s: float


class _Causes:
    """What let each of *spans* begin. No span is named twice, so that a walk along causes ends."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans, self._named = spans, set[int]()
        self._rounding_s = _EXACT_SHARE * end_s(spans)
        self._by_step: dict[str, list[int]] = defaultdict(list)
        ends: dict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
        for index, span in enumerate(spans):
            self._by_step[span.step].append(index)
            ends[span.rank, span.pool].append((span.stop_s, index))
        self._ends = {place: sorted(of_place) for place, of_place in ends.items()}
        self._on_processors: dict[int, tuple[list[float], list[int]]] = {}
        """By rank, the starts of steps on its processors, and which of those until then ends last."""

    def of(self, index: int, at: float) -> _Cause:
        """The span that let *index* begin, of those that began before *at*."""
        self._named.add(index)
        span = self._spans[index]
        needed, earlier = self._needed(index, at), self._before(index, span.pool)
        if needed is not None and self._stop(needed) > span.start_s + self._rounding_s:
            if self._spans[needed].step == span.step and earlier is not None and self._touches(earlier, span):
                return self._ended(earlier)  # bytes queue behind others that leave before them
            return self._ended(needed)
        touching = [each for each in (needed, earlier) if each is not None and self._touches(each, span)]
        if touching:
            return self._ended(max(touching, key=self._stop))
        if (holder := self._holder(span)) is not None:
            return _Cause(holder, span.start_s)
        return self._ended(
            next((each for each in (needed, earlier, self._before_on_rank(index)) if each is not None), None)
        )

    def _ended(self, index: int | None) -> _Cause:
        return _Cause(index, 0.0 if index is None else self._stop(index))

    def _stop(self, index: int) -> float:
        return self._spans[index].stop_s

    def _later(self, first: int, second: int) -> int:
        """The one that ends later."""
        return max(first, second, key=self._stop)

    def _touches(self, index: int, span: Span) -> bool:
        """Whether *span* begins as soon as *index* has ended."""
        gap_s = span.start_s - self._stop(index)
        return gap_s <= max(self._rounding_s, span.tick_s, TOUCHES_SHARE * (span.stop_s - span.start_s))

    def _needed(self, index: int, at: float) -> int | None:
        """What *index* waited for: bytes leave after the step that sends them has begun, and others wait for a step.

        Of several spans of that step it is the last to end before *index* begins, or else the last.
        """
        span = self._spans[index]
        earlier_of_step = [each for each in self._by_step[span.step] if each < index]
        other = self._by_step.get(span.waited_for or "", ())
        several = [
            each for each in earlier_of_step or other if each not in self._named and self._spans[each].start_s < at
        ]
        ended = [each for each in several if self._stop(each) <= span.start_s + self._rounding_s]
        return max(ended or several, key=self._stop, default=None)

    def _before(self, index: int, pool: str) -> int | None:
        """The last span to end on *pool* of the same rank before *index* begins."""
        span = self._spans[index]
        ends = self._ends.get((span.rank, pool), [])
        for place in range(bisect_right(ends, (span.start_s + self._rounding_s, len(self._spans))) - 1, -1, -1):
            if (other := ends[place][1]) not in self._named:
                return other
        return None

    def _before_on_rank(self, index: int) -> int | None:
        """The last span to end anywhere on the same rank before *index* begins."""
        pools = [pool for rank, pool in self._ends if rank == self._spans[index].rank]
        several = [other for pool in pools if (other := self._before(index, pool)) is not None]
        return max(several, key=self._stop, default=None)

    def _holder(self, span: Span) -> int | None:
        """The step that holds processors of the rank when *span*, which needs some, begins."""
        if span.pool not in _ON_PROCESSORS:
            return None
        if span.rank not in self._on_processors:
            several = [index for pool in _ON_PROCESSORS for _, index in self._ends.get((span.rank, pool), ())]
            several.sort(key=lambda index: self._spans[index].start_s)
            starts = [self._spans[index].start_s for index in several]
            self._on_processors[span.rank] = starts, list(accumulate(several, self._later))
        starts, longest = self._on_processors[span.rank]
        if not (before := bisect_left(starts, span.start_s)):
            return None
        index = longest[before - 1]
        return index if index not in self._named and self._stop(index) >= span.start_s else None


def seconds_by_kind(path: Iterable[Segment]) -> dict[str, float]:
    """Seconds of each kind on a critical path, the longest first."""
    seconds: dict[str, float] = defaultdict(float)
    for segment in path:
        seconds[segment.kind] += segment.stop_s - segment.start_s
    return dict(sorted(seconds.items(), key=lambda each: -each[1]))


# Where two timelines of one schedule part.

PARTS_SHARE = 0.02
"""Steps part from this share of the simulated time on."""


class StepDifference(NamedTuple):
    """One step in two timelines: when it ended in each of them, in seconds."""

    span: Span
    """Its last measured span."""
    measured_s: float
    simulated_s: float

    @property
    def later_s(self) -> float:
        """Seconds by which it ended later than simulated; negative if it ended earlier."""
        return self.measured_s - self.simulated_s


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two timelines of one schedule part, step by step."""

    steps: Sequence[StepDifference]
    """Steps that are in both, in the order in which they ended when measured."""
    only_measured: int
    only_simulated: int
    """The numbers of steps without a counterpart."""
    least_s: float
    """Smaller differences do not count."""

    @property
    def by_step(self) -> Mapping[str, StepDifference]:
        """The steps by address."""
        return {each.span.step: each for each in self.steps}

    @property
    def first(self) -> StepDifference | None:
        """The first step that parts; None if none does."""
        return next((each for each in self.steps if abs(each.later_s) > self.least_s), None)


def difference(measured: Sequence[Span], simulated: Sequence[Span]) -> Parting:
    """*measured* less *simulated*, by the steps' addresses."""
    last, expected = dict(_last_spans(measured)), dict(_last_spans(simulated))
    steps = [StepDifference(span, span.stop_s, expected[step].stop_s)
             for step, span in last.items() if step in expected]  # fmt: skip
    tick_s = max((span.tick_s for span in measured), default=0.0)
    return Parting(
        steps=sorted(steps, key=lambda each: each.measured_s),
        only_measured=len(last) - len(steps),
        only_simulated=len(expected) - len(steps),
        least_s=max(tick_s, PARTS_SHARE * end_s(simulated)),
    )


def _last_spans(spans: Sequence[Span]) -> Iterator[tuple[str, Span]]:
    """The last span of each step, by its address."""
    for span in sorted(spans, key=lambda each: each.stop_s):
        yield span.step, span
