"""When a rank is busy: spans as intervals, and how long the slowest rank computes or moves bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernels.outcome import Span
from kernels.plan import Kind, Pool

COMPUTE = Pool.COMPUTE.word
"""The pool whose spans say when a rank's processors are busy."""
SENDS = frozenset(kind.word for kind in (Kind.PUT, Kind.PULL, Kind.COLLECTIVE))


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
