"""Spans as the bars of a timeline: what is below one pixel is merged, and a gap says what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from kernels.outcome import Span
from kernels.plan import Pool
from workbench.naming import ENGINES

COMPUTE = Pool.COMPUTE.word
LIBRARY = Pool.LIBRARY.word

WAIT = "wait"
_DOES = {
    "compute": "computes",
    "put": "sends to",
    "pull": "fetches from",
    "reduce": "sums its contributions",
    "copy": "copies out of staging",
    "collective": "calls the library's collective",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """Neighbouring spans of one row, stream and kind that are drawn as one."""

    first: Span
    last: Span
    start_s: float
    stop_s: float
    share: float
    """Of its length that it is busy: less than 1 where there are gaps, or other kinds in between."""
    count: int

    @property
    def kind(self) -> str:
        return self.first.kind


class Engine(NamedTuple):
    """What of which rank a bar of the timeline shows as busy: a stream of kernels and library calls, or an engine."""

    rank: int
    place: int
    """Streams above copy engines, links and the library, as `naming.ENGINES` has them."""
    stream: int
    """0 of all but kernels and calls: streams share the engines."""
    pool: str

    @classmethod
    def of(cls, span: Span) -> Engine:
        """Where *span* is drawn: calls of the library on a stream of their own stand with its kernels."""
        pool = COMPUTE if span.pool == LIBRARY and span.stream else span.pool
        place = list(ENGINES).index(pool) if pool in ENGINES else len(ENGINES)
        return cls(span.rank, place, span.stream if pool == COMPUTE else 0, pool)


def has_one_stream(engines: Iterable[Engine]) -> bool:
    """Whether all kernels run on one stream, which then needs no number."""
    return len({engine.stream for engine in engines if engine.pool == COMPUTE}) <= 1


def merged(spans: Iterable[Span], pixel_s: float) -> list[Bar]:
    """The spans as bars. Runs of spans that are shorter than *pixel_s* and less than that apart become one bar.

    A span of a pixel or more stays by itself, so that it can be pointed at.
    """
    ordered = sorted(spans, key=lambda span: (span.rank, span.pool, span.stream, span.kind, span.start_s))
    return [
        bar
        for _, row in groupby(ordered, key=lambda span: (span.rank, span.pool, span.stream, span.kind))
        for bar in _merged_row(row, pixel_s)
    ]


def _merged_row(spans: Iterable[Span], pixel_s: float) -> Iterator[Bar]:
    run: list[Span] = []
    stop = 0.0
    for span in spans:
        is_thin = span.stop_s - span.start_s < pixel_s
        if run and not (is_thin and span.start_s - stop < pixel_s):
            yield _bar(run)
            run = []
        if is_thin:
            stop = max(stop, span.stop_s) if run else span.stop_s
            run.append(span)
        else:
            yield _bar([span])
    if run:
        yield _bar(run)


def _bar(run: Sequence[Span]) -> Bar:
    stop_s, busy_s = max(span.stop_s for span in run), sum(span.stop_s - span.start_s for span in run)
    start_s = run[0].start_s
    share = min(1.0, busy_s / (stop_s - start_s)) if len(run) > 1 and stop_s > start_s else 1.0
    return Bar(run[0], run[-1], start_s, stop_s, share, len(run))


def at_most(spans: Sequence[Span], pixel_s: float, most: int) -> list[Bar]:
    """`merged`, with ever wider pixels until there are at most *most* bars, or no fewer by merging."""
    bars = merged(spans, pixel_s)
    longest = max((span.stop_s for span in spans), default=0.0)
    while len(bars) > most and pixel_s < longest:
        pixel_s *= 2
        bars = merged(spans, pixel_s)
    return bars


def waits(spans: Iterable[Span], least_s: float) -> list[Span]:
    """The gaps of at least *least_s* in a stream whose next step waited for another one, as spans."""
    gaps, every = [], tuple(spans)
    ordered = sorted((Engine.of(span), span.start_s, place) for place, span in enumerate(every))
    for row, placed in groupby((each for each in ordered if each[0].pool == COMPUTE), key=lambda each: each[0]):
        free_at = 0.0
        for span in (every[place] for _, _, place in placed):
            if span.waited_for is not None and span.start_s - free_at >= least_s:
                times = free_at, span.start_s, span.waited_for
                gaps.append(Span(span.step, row.rank, WAIT, COMPUTE, *times, stream=row.stream,
                                 micro_batch=span.micro_batch))  # fmt: skip
            free_at = max(free_at, span.stop_s)
    return gaps


def step_words(address: str) -> str:
    """`rank 0 sends to rank 1, number 3` for `0/put/1/3`. Ranks and numbers count from 0, as everywhere."""
    rank, kind, peer, index = address.split("/")
    does = _DOES.get(kind, kind)
    if kind in ("put", "pull"):
        does = f"{does} rank {peer}"
    elif kind == "copy" and peer not in ("-1", rank):
        does = f"{does} what came from rank {peer}"
    return f"rank {rank} {does}, number {index}"


def _span_words(span: Span) -> str:
    """Of several problems in one call, the one that the step works on is named."""
    words = step_words(span.step)
    return words if span.micro_batch is None else f"{words}, micro-batch {span.micro_batch}"


def bar_words(bar: Bar) -> str:
    """What a bar shows: one step, or how many and which."""
    first = _span_words(bar.first)
    if bar.kind == WAIT:
        return f"rank {bar.first.rank} waits before: {first}"
    if bar.count == 1:
        return first
    return f"{bar.count} short steps, busy {bar.share:.0%} of the time: {first}, to {_span_words(bar.last)}"
