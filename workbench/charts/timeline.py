"""What does each rank do, and when does it wait? Spans are bars, measured above simulated on one time axis.

The specification never changes: a live chart is updated by replacing the records of its one dataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from kernels.outcome import Span
from kernels.plan import Pool
from kernels.units import seconds_text
from workbench.charts.labels import milliseconds, time_x, title
from workbench.charts.theme import SPAN_COLOURS, legend, span_colour
from workbench.naming import ENGINES, engine_title

# Bars of a timeline: spans shorter than a pixel are merged, and a gap is labelled with the step that it waits for.

COMPUTE = Pool.COMPUTE.word
LIBRARY = Pool.LIBRARY.word

WAIT = "wait"
_DOES = {
    "compute": "computes",
    "put": "sends to",
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
    """Busy share of its length: less than 1 where there are gaps, or other kinds in between."""
    count: int

    @property
    def kind(self) -> str:
        return self.first.kind


class Engine(NamedTuple):
    """One row of the timeline: a stream of kernels and library calls of a rank, or one of its engines."""

    rank: int
    place: int
    """Order within a rank, as in `naming.ENGINES`: streams, copy engines, links, the library."""
    stream: int
    """Number of the stream; 0 for engines, which streams share."""
    pool: str

    @classmethod
    def of(cls, span: Span) -> Engine:
        """The row of *span*: library calls on their own stream are drawn with that stream's kernels."""
        pool = COMPUTE if span.pool == LIBRARY and span.stream else span.pool
        place = list(ENGINES).index(pool) if pool in ENGINES else len(ENGINES)
        return cls(span.rank, place, span.stream if pool == COMPUTE else 0, pool)


def has_one_stream(engines: Iterable[Engine]) -> bool:
    """Whether all kernels run on one stream, which then needs no number."""
    return len({engine.stream for engine in engines if engine.pool == COMPUTE}) <= 1


def merged(spans: Iterable[Span], pixel_s: float) -> list[Bar]:
    """*spans* as bars. Neighbouring spans that are shorter than *pixel_s* and less than that apart become one bar.

    A span of a pixel or more keeps its own bar, so that it can be pointed at.
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
    """The bars of `merged`, with wider pixels until there are at most *most* bars or merging no longer helps."""
    bars = merged(spans, pixel_s)
    longest = max((span.stop_s for span in spans), default=0.0)
    while len(bars) > most and pixel_s < longest:
        pixel_s *= 2
        bars = merged(spans, pixel_s)
    return bars


def waits(spans: Iterable[Span], least_s: float) -> list[Span]:
    """Gaps of at least *least_s* in a stream before a step that waited for another one, as spans."""
    gaps, every = [], tuple(spans)
    ordered = sorted((Engine.of(span), span.start_s, index) for index, span in enumerate(every))
    for row, spans_of_row in groupby((each for each in ordered if each[0].pool == COMPUTE), key=lambda each: each[0]):
        free_at = 0.0
        for span in (every[index] for _, _, index in spans_of_row):
            if span.waited_for is not None and span.start_s - free_at >= least_s:
                times = free_at, span.start_s, span.waited_for
                gaps.append(Span(span.step, row.rank, WAIT, COMPUTE, *times, stream=row.stream,
                                 micro_batch=span.micro_batch))  # fmt: skip
            free_at = max(free_at, span.stop_s)
    return gaps


def step_text(address: str) -> str:
    """`rank 0 sends to rank 1, number 3` for `0/put/1/3`. Ranks and numbers count from 0, as everywhere."""
    rank, kind, peer, index = address.split("/")
    does = _DOES.get(kind, kind)
    if kind == "put":
        does = f"{does} rank {peer}"
    elif kind == "copy" and peer not in ("-1", rank):
        does = f"{does} what came from rank {peer}"
    return f"rank {rank} {does}, number {index}"


def _span_text(span: Span) -> str:
    """The step as text, with its micro-batch where one call has several problems."""
    text = step_text(span.step)
    return text if span.micro_batch is None else f"{text}, micro-batch {span.micro_batch}"


def bar_text(bar: Bar) -> str:
    """Text about a bar: its step, or the number and range of its steps."""
    first = _span_text(bar.first)
    if bar.kind == WAIT:
        return f"rank {bar.first.rank} waits before: {first}"
    if bar.count == 1:
        return first
    return f"{bar.count} short steps, busy {bar.share:.0%} of the time: {first}, to {_span_text(bar.last)}"


# The chart: panels of bars on one time axis.

DATASET = "timeline"
HINT = "Point at a bar for what it waited for. Alt + wheel zooms in, a double click shows all again."
QUESTION = "What does each rank do, and when does it wait?"
ROW_PIXELS, BAR_THICKNESS, WAIT_THICKNESS = 17, 13, 3
PIXELS = 900
"""Width for which records are prepared: spans narrower than one of these pixels are merged."""
BARS_MOST = 700
"""The most bars of one panel: more take longer to draw than a slider may take to respond."""
RANKS_MOST = 8
"""The most ranks that one panel shows."""
WAIT_PIXELS = 3
"""Gaps that are narrower than this are not drawn."""

Panels = Mapping[str, Sequence[Span]]
"""Title -> spans, from top to bottom: `{"measured": ..., "simulated": ...}`, for example."""


def chart(panels: Panels, context: str = "") -> alt.LayerChart:
    """The timelines of *panels*, which do not change."""
    kinds = {span.kind for spans in panels.values() for span in spans}
    records = rows(panels)
    shown = [kind for kind in SPAN_COLOURS if kind in kinds or (kind == WAIT and any(map(_is_wait, records)))]
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), context, shown)


def live(context: str = "", kinds: Sequence[str] = tuple(SPAN_COLOURS)) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(panels)`. The legend lists *kinds*."""
    return _drawn(alt.NamedData(DATASET), context, kinds)


def rows(panels: Panels, window_s: tuple[float, float] | None = None) -> list[dict[str, Any]]:
    """One record per bar, gap and panel. *window_s* is the part that fills the width; None is the whole time.

    A panel without spans reserves as many rows as the last panel has, for spans that come later.
    """
    last = [(), *panels.values()][-1]
    ends = {name: max((span.stop_s for span in spans), default=0.0) for name, spans in panels.items()}
    start, stop = window_s or (0.0, max(ends.values(), default=0.0))
    pixel_s = (stop - start) / PIXELS
    records: list[dict[str, Any]] = []
    for number, (name, spans) in enumerate(panels.items()):
        inside = [span for span in spans if span.stop_s >= start and span.start_s <= stop]
        records += _panel(number, name, inside, pixel_s, ends[name])
        records += [] if spans else _places(number, last)
    return records


def _places(number: int, like: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Records that reserve the rows of *like* in panel *number*, where nothing is drawn yet."""
    ranks = _shown_ranks(like)
    for row, place in _rows(number, [span for span in like if span.rank in ranks]).values():
        yield {**_EMPTY, "row": row, "order": place, "is_place": True}


def _panel(number: int, name: str, spans: Sequence[Span], pixel_s: float, end_s: float) -> Iterator[dict[str, Any]]:
    ranks, num_ranks = _shown_ranks(spans), len({span.rank for span in spans})
    drawn = [span for span in spans if span.rank in ranks]
    left_out = f", {len(ranks)} of {num_ranks} ranks, the last to finish among them" if len(ranks) < num_ranks else ""
    places = _rows(number, drawn)
    tick_s = max((span.tick_s for span in drawn), default=0.0)
    exact = f" (to {seconds_text(tick_s)}, the clock's tick)" if tick_s else ""
    heading = f"{name}: the last step ends at {seconds_text(end_s)}{exact}{left_out}" if drawn else f"{name}: not yet"
    yield {**_EMPTY, "row": f"{number}|", "order": number * 10_000, "heading": heading, "end_ms": milliseconds(end_s),
           "aloud": heading}  # fmt: skip
    gaps = waits(drawn, pixel_s * WAIT_PIXELS)
    bars = sorted(
        at_most(drawn, pixel_s, BARS_MOST), key=_thickness, reverse=True
    )  # thin ones are drawn over thick ones
    for bar in [*at_most(gaps, pixel_s, BARS_MOST), *bars]:
        row, place = places[Engine.of(bar.first)]
        yield {**_EMPTY, **_record(bar), "row": row, "order": place, "panel": name}


def _shown_ranks(spans: Sequence[Span]) -> set[int]:
    """All ranks, or the first RANKS_MOST - 1 and the last one to finish."""
    ranks = sorted({span.rank for span in spans})
    if len(ranks) <= RANKS_MOST:
        return set(ranks)
    last = max(spans, key=lambda span: span.stop_s).rank
    return {last, *[rank for rank in ranks if rank != last][: RANKS_MOST - 1]}


def _rows(number: int, spans: Sequence[Span]) -> dict[Engine, tuple[str, int]]:
    """The name of every row on the axis, and its position from top to bottom.

    A name begins with the panel's number and `|`, which are not shown: they keep the panels apart.
    """
    engines = sorted({Engine.of(span) for span in spans})
    one_stream = has_one_stream(engines)
    return {
        row: (f"{number}|rank {row.rank} {engine_title(row.pool, row.stream, one_stream=one_stream)}",
              number * 10_000 + 1 + place)
        for place, row in enumerate(engines)
    }  # fmt: skip


def _thickness(bar: Bar) -> float:
    """Thickness in pixels: a merged bar's is proportional to its busy share, so that no kind hides another."""
    return WAIT_THICKNESS if bar.kind == WAIT else round(max(WAIT_THICKNESS, BAR_THICKNESS * bar.share), 1)


def _record(bar: Bar) -> dict[str, Any]:
    waited = bar.first.waited_for
    text, why = bar_text(bar), step_text(waited) if waited else "nothing"
    when = f"{seconds_text(bar.start_s)} to {seconds_text(bar.stop_s)}"
    lasted, tick_s = seconds_text(bar.stop_s - bar.start_s), bar.first.tick_s
    if bar.stop_s - bar.start_s < tick_s:
        lasted = f"less than {seconds_text(tick_s)}, the clock's tick"
    shown = {"words": text, "when": when, "lasted": lasted, "why": why}
    place = {"start_ms": milliseconds(bar.start_s), "stop_ms": milliseconds(bar.stop_s), "thickness": _thickness(bar)}
    shown["aloud"] = f"{text}: {when}, {lasted}; waited for: {why}"
    return {"kind": bar.kind, "step": bar.first.step, "waited": waited, **place, **shown}


_COLUMNS = ("row", "order", "panel", "kind", "start_ms", "stop_ms", "step", "waited", "thickness", "words", "when",
            "lasted", "why", "aloud", "heading", "end_ms", "is_place")  # fmt: skip
_EMPTY: dict[str, Any] = dict.fromkeys(_COLUMNS)


def _is_wait(row: Mapping[str, Any]) -> bool:
    return row["kind"] == WAIT


def _drawn(data: Any, context: str, kinds: Sequence[str]) -> alt.LayerChart:
    moved = alt.selection_interval(
        name="moved", encodings=["x"], bind="scales", zoom="wheel![event.altKey]", clear="dblclick"
    )
    return alt.LayerChart(
        layer=[_ends(), _reserved_rows(), _bars(kinds).add_params(_POINTED, moved), _headings()],
        data=data,
        title=title(QUESTION, [context, HINT]),
        height=alt.Step(ROW_PIXELS),
        description="Timeline: a row for each stream or engine of a rank, time from left to right. Arrow keys go from "
        "bar to bar.",
    )


_POINTED = alt.selection_point(
    name="pointed", on="pointerover", clear="pointerout", fields=["panel", "step", "waited"], empty=False
)
_IS_HIGHLIGHTED = (
    "!pointed.waited || !pointed.waited[0] || "
    "(datum.panel === pointed.panel[0] && (datum.step === pointed.step[0] || datum.step === pointed.waited[0]))"
)
"""True for all bars, until a bar that waited is pointed at: then for it and the step that it waited for."""


def _rows_axis() -> alt.Y:
    # the label is the part after "|"; headings have none
    axis = alt.Axis(
        labelExpr="split(datum.label, '|')[1]", title=None, ticks=False, domain=False, grid=False, labelLimit=160
    )
    return alt.Y("row:N", axis=axis, sort=alt.EncodingSortField(field="order", op="min"))


def _moment(field: str) -> alt.X:
    return time_x(field, None, alt.Scale(nice=False))


def _bars(kinds: Sequence[str]) -> alt.Chart:
    shown = {"words": "Step", "when": "From, to", "lasted": "For", "why": "Waited for", "panel": "Of"}
    return (
        alt.Chart(name="bars")
        .transform_filter("isValid(datum.kind)")
        .mark_bar(cornerRadius=1)
        .encode(
            x=_moment("start_ms"),
            x2="stop_ms:Q",
            y=_rows_axis(),
            size=alt.Size("thickness:Q", scale=None),
            color=span_colour(legend=legend(kinds, symbolType="square")),
            opacity=alt.condition(_IS_HIGHLIGHTED, alt.value(1), alt.value(0.25)),
            tooltip=[alt.Tooltip(f"{field}:N", title=name) for field, name in shown.items()],
            description="aloud:N",
        )
    )


def _reserved_rows() -> alt.Chart:
    """Faint lines in rows that are reserved for later bars."""
    line = alt.Chart(name="kept").transform_filter("datum.is_place").mark_rule(strokeWidth=1, opacity=0.18, aria=False)
    return line.encode(y=_rows_axis())


def _headings() -> alt.Chart:
    return (
        alt.Chart(name="headings")
        .transform_filter("isValid(datum.heading)")
        .mark_text(align="left", fontWeight=600, x=0, dy=1)
        .encode(y=_rows_axis(), text="heading:N", description="aloud:N")
    )


def _ends() -> alt.Chart:
    """A line through all panels where the last rank of each ends, to compare them."""
    return (
        alt.Chart(name="ends")
        .transform_filter("isValid(datum.end_ms)")
        .mark_rule(strokeDash=[2, 2], strokeWidth=1)
        .encode(x=_moment("end_ms"), description="aloud:N")
    )
