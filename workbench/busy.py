"""When a rank is busy: spans as intervals, how long the slowest rank computes or moves bytes, how far both overlap, and
where the time of one schedule went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernels.outcome import Span
from kernels.plan import Kind, Pool
from kernels.schedule import Schedule
from kernels.schemes import problems

COMPUTE = Pool.COMPUTE.word
"""The pool whose spans say when a rank's processors are busy."""
SENDS = frozenset(kind.word for kind in (Kind.PUT, Kind.PULL, Kind.COLLECTIVE))

LOSSES = ("disturbance", "fill and drain", "decomposition", "contention")
"""The parts of a waterfall between the floor and what is left unexplained."""


def overlap_ratio(spans: Iterable[Span]) -> float | None:
    """Time in which compute and communication both run, over the time in which communication runs; over all ranks.

    Processors that move the bytes of a put do not compute meanwhile. What runs on a stream on which nothing is computed
    is communication, whoever moves it: SMs that push on a stream of their own leave the others to compute.
    """
    of_rank: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        of_rank[span.rank].append(span)
    both = communicating = 0.0
    for each in of_rank.values():
        computing = {span.stream for span in each if span.kind == "compute"}
        here = [span for span in each if span.pool == COMPUTE and span.stream in computing]
        computes = merged(span for span in here if span.kind not in SENDS)
        sends = merged(span for span in each if span.pool != COMPUTE or span.stream not in computing)
        communicating += sum(stop - start for start, stop in sends)
        both += sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in computes for b in sends)
    return both / communicating if communicating > 0 else None


def waterfall(
    measured: Mapping[str, Any], spans: Sequence[Span], pieces_alone_s: float | None
) -> dict[str, float | None] | None:
    """From the floor to the measured time, in seconds by part: those that are known sum to time_s.

    A part is None while what it is made of was not timed; None without floor or time. *spans* are of one iteration,
    *pieces_alone_s* is the compute part of the same schedule. Fill and drain is the time before the busier of the
    slowest rank's processors and links begins and after it ends. The floor is of computation at its fastest, the other
    parts are of what it usually takes: the disturbance leads from the one to the other. A loss of computation counts
    from the floor upwards: below it, it hides behind the wire.
    """
    floor_s, compute_s, time_s = (measured.get(key) for key in ("floor_s", "compute_s", "time_s"))
    if floor_s is None or time_s is None:
        return None
    spans = per_problem(spans, measured)
    times = (compute_s, pieces_alone_s, computing_seconds(spans) if spans else None)
    usual_s, pieces_s, together_s = (None if each is None else max(floor_s, each) for each in times)
    losses: dict[str, float | None] = {
        "floor": floor_s,
        "disturbance": _more(usual_s, floor_s),
        "fill and drain": _fill_and_drain(of_slowest(spans)) if spans else None,
        "decomposition": _more(pieces_s, usual_s),
        "contention": _more(together_s, pieces_s),
    }
    return {**losses, "unexplained": time_s - sum(each for each in losses.values() if each is not None)}


def unknown(parts: Mapping[str, float | None]) -> list[str]:
    """The losses of a waterfall that are not known."""
    return [part for part in LOSSES if parts.get(part) is None]


def _more(later_s: float | None, before_s: float | None) -> float | None:
    """What *later_s* is more than *before_s*, where both are known."""
    return None if later_s is None or before_s is None else later_s - before_s


def _fill_and_drain(slowest: Sequence[Span]) -> float:
    """The time before the busier of processors and links begins and after it ends, of the spans of one rank."""
    processors = merged(span for span in slowest if span.pool == COMPUTE)
    sends = merged(span for span in slowest if span.pool != COMPUTE)
    busier = max(processors, sends, key=total)
    return busier[0][0] + max(span.stop_s for span in slowest) - busier[-1][1]


def per_problem(spans: Sequence[Span], row: Mapping[str, Any]) -> Sequence[Span]:
    """*spans* of one call of *row*'s schedule, shortened by the number of problems of a call, as its time is."""
    count = problems(Schedule(str(row.get("scheme")), tuple((row.get("axes") or {}).items())))
    if count == 1:
        return spans
    return [span._replace(start_s=span.start_s / count, stop_s=span.stop_s / count) for span in spans]


def computing_seconds(spans: Sequence[Span]) -> float:
    """How long the slowest rank computes in the iteration of *spans*; 0 without any."""
    return total(merged(span for span in of_slowest(spans) if span.kind == "compute"))


def moving_seconds(spans: Sequence[Span]) -> float:
    """How long bytes of the slowest rank are on their way, by whoever moves them."""
    return total(merged(span for span in of_slowest(spans) if span.kind in SENDS))


def of_slowest(spans: Sequence[Span]) -> list[Span]:
    """Those of the rank that ends last."""
    slowest = max(spans, key=lambda span: span.stop_s).rank if spans else None
    return [span for span in spans if span.rank == slowest]


def total(intervals: Sequence[tuple[float, float]]) -> float:
    """Seconds of intervals that do not touch."""
    return sum(stop - start for start, stop in intervals)


def merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The spans as intervals that do not touch."""
    merged: list[tuple[float, float]] = []
    for start, stop in sorted((span.start_s, span.stop_s) for span in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged
