"""What does each rank do, and when does it wait? Spans are bars, measured above simulated on one time axis.

The specification never changes: a live chart is updated by replacing the records of its one dataset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import altair as alt
import pandas as pd

from kernels.outcome import Span
from kernels.units import percent_text, seconds_text
from workbench.charts.labels import BETWEEN, milliseconds, time_x, title
from workbench.charts.theme import PATH, SPAN_COLOURS, haloed, legend, span_colour
from workbench.results.timelines import (
    COMPUTE,
    WAIT,
    BusyLanes,
    Engine,
    Segment,
    critical_path,
    end_s,
    has_one_stream,
    seconds_by_kind,
)

# Bars of a timeline: spans shorter than a pixel are merged, and a gap is labelled with the step that it waits for.

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


def merged(spans: Iterable[Span], pixel_s: float) -> list[Bar]:
    """*spans* as bars. Neighbouring spans that are shorter than *pixel_s* and less than that apart become one bar.

    A span of a pixel or more keeps its own bar, so that it can be pointed at.
    """
    return [bar for row in _alike(spans) for bar in _merged_row(row, pixel_s)]


def _alike(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans of each row, stream and kind, by their start."""
    alike: dict[tuple[int, str, int, str], list[Span]] = defaultdict(list)
    for span in sorted(spans, key=_start):
        alike[span.rank, span.pool, span.stream, span.kind].append(span)
    return [alike[row] for row in sorted(alike)]


_start = attrgetter("start_s")


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
    alike, longest = _alike(spans), end_s(spans)
    while True:
        bars = [bar for row in alike for bar in _merged_row(row, pixel_s)]
        if len(bars) <= most or pixel_s >= longest:
            return bars
        pixel_s *= 2


def waits(spans: Iterable[Span], least_s: float) -> list[Span]:
    """Gaps of at least *least_s* in a stream before a step that waited for another one, as spans."""
    gaps, of_streams = [], defaultdict(list)
    for span in sorted(spans, key=_start):
        if (lane := Engine.of(span)).pool == COMPUTE:
            of_streams[lane].append(span)
    for row in sorted(of_streams):
        free_at = 0.0
        for span in of_streams[row]:
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
RANGE, DRAG = "timeline_range", "dragged"
"""The dataset of the range that a person measures, and the selection that measures it."""
HINT = "Drag measures a range; Escape ends it. Alt + wheel zooms, Shift + drag moves, double click: all."
QUESTION = "What does each rank do, and when does it wait?"
ROW_PIXELS, BAR_THICKNESS, WAIT_THICKNESS = 17, 13, 3
TOTALS_PIXELS = 96
"""Room right of the bars for the busy time of each row."""
EXTENT_PIXELS = 96
"""Least room left of the bars for the names of the rows: `parting` has the same, so that their times are in line."""
PIXELS = 900
"""Width for which records are prepared: spans narrower than one of these pixels are merged."""
BARS_MOST = 700
"""The most bars of one panel: more take longer to draw than a slider may take to respond."""
RANKS_MOST = 8
"""The most ranks that one panel shows."""
WAIT_PIXELS = 3
"""Gaps that are narrower than this are not drawn."""

Panels = Mapping[str, Sequence[Span] | None]
"""Title -> spans, from top to bottom: `{"measured": ..., "simulated": ...}`, for example. None: they are yet to come;
empty: the schedule was timed without any."""


Paths = Mapping[str, Sequence[Segment]]
"""The critical paths of panels by their titles."""


def chart(panels: Panels, context: str = "") -> alt.LayerChart:
    """The timelines of *panels*, which do not change."""
    kinds = {span.kind for spans in panels.values() for span in spans or ()}
    through = paths(panels)
    records = rows(panels, through=through)
    shown = [kind for kind in SPAN_COLOURS if kind in kinds or (kind == WAIT and any(map(_is_wait, records)))]
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), [context, *path_texts(through), HINT], shown)


def live(context: str = "", kinds: Sequence[str] = tuple(SPAN_COLOURS)) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(panels)`, and of `RANGE`. The legend lists *kinds*."""
    return _drawn(alt.NamedData(DATASET), [context, HINT], kinds, is_live=True)


def rows(
    panels: Panels, window_s: tuple[float, float] | None = None, through: Paths | None = None
) -> list[dict[str, Any]]:
    """One record per bar, gap and panel. *window_s* is the part that fills the width; None is the whole time.

    A panel whose spans are yet to come has its heading alone: on a laptop's window its empty rows would push out of
    sight what there is. A timed one without spans has as many rows as the last panel, so that nothing moves when
    another schedule has some. *through*: the critical paths that are drawn, those of all panels if it is None.
    """
    last, through = [(), *panels.values()][-1] or (), paths(panels) if through is None else through
    ends = {name: end_s(spans or ()) for name, spans in panels.items()}
    start, stop = window_s or (0.0, max(ends.values(), default=0.0))
    pixel_s = (stop - start) / PIXELS
    records: list[dict[str, Any]] = []
    for number, (name, spans) in enumerate(panels.items()):
        inside = [span for span in spans or () if span.stop_s >= start and span.start_s <= stop]
        absent = f"{name}: not yet" if spans is None else f"{name}: no timeline of it was kept"
        records += _panel(number, (name, absent), inside, pixel_s, ends[name])
        records += _places(number, last) if spans is not None and not spans else []
        if spans and (path := (through or {}).get(name)):
            records += _path(number, spans, path, (start, stop))
    return records


def _places(number: int, like: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Records that reserve the rows of *like* in panel *number*, where nothing is drawn yet."""
    for row, place in _rows(number, map(Engine.of, _shown(like))).values():
        yield {**_EMPTY, "row": row, "order": place, "is_place": True}


def _panel(
    number: int, headings: tuple[str, str], spans: Sequence[Span], pixel_s: float, last_s: float
) -> Iterator[dict[str, Any]]:
    """The records of one panel; *headings* are its name, and what is said where nothing is drawn."""
    name, absent = headings
    drawn, num_ranks = _shown(spans), len({span.rank for span in spans})
    left_out = f", {RANKS_MOST} of {num_ranks} ranks, the last to finish among them" if num_ranks > RANKS_MOST else ""
    tick_s = max((span.tick_s for span in drawn), default=0.0)
    exact = f" (to {seconds_text(tick_s)}, the clock's tick)" if tick_s else ""
    heading = f"{name}: the last step ends at {seconds_text(last_s)}{exact}{left_out}" if drawn else absent
    yield {**_EMPTY, "row": f"{number}|", "order": number * 10_000, "heading": heading, "end_ms": milliseconds(last_s),
           "total": "busy" if drawn else None, "aloud": heading}  # fmt: skip
    busy = BusyLanes(drawn)
    places = _rows(number, busy.lanes)
    for lane, seconds in busy.seconds(0.0, last_s).items():
        row, place = places[lane]
        total = f"{seconds_text(seconds)}, {percent_text(seconds / last_s if last_s else 0.0)}"
        yield {**_EMPTY, "row": row, "order": place, "total": total,
               "aloud": f"{name}, {row.partition('|')[2]}: busy {total} of the time"}  # fmt: skip
    gaps = waits(drawn, pixel_s * WAIT_PIXELS)
    bars = sorted(
        at_most(drawn, pixel_s, BARS_MOST), key=_thickness, reverse=True
    )  # thin ones are drawn over thick ones
    for bar in [*at_most(gaps, pixel_s, BARS_MOST), *bars]:
        row, place = places[Engine.of(bar.first)]
        yield {**_EMPTY, **_record(bar), "row": row, "order": place, "panel": name}


def _shown(spans: Sequence[Span]) -> Sequence[Span]:
    """The spans of all ranks, or of the first RANKS_MOST - 1 and the last one to finish."""
    ranks = sorted({span.rank for span in spans})
    if len(ranks) <= RANKS_MOST:
        return spans
    last = max(spans, key=lambda span: span.stop_s).rank
    shown = {last, *[rank for rank in ranks if rank != last][: RANKS_MOST - 1]}
    return [span for span in spans if span.rank in shown]


def _rows(number: int, lanes: Iterable[Engine]) -> dict[Engine, tuple[str, int]]:
    """The name of every row on the axis, and its position from top to bottom.

    A name begins with the panel's number and `|`, which are not shown: they keep the panels apart.
    """
    engines = sorted(set(lanes))
    one_stream = has_one_stream(engines)
    return {
        lane: (f"{number}|{lane.title(one_stream)}", number * 10_000 + 1 + place) for place, lane in enumerate(engines)
    }


# The critical path as a line through the rows, and in words.

_ON_PATH = {"put": "wire", "reduce": "sums", "copy": "copies", WAIT: "waiting"}
"""Words for the kinds on a critical path; others are their own."""


def path_text(path: Sequence[Segment]) -> str:
    """`compute 61 %, wire 30 %, waiting 9 %`: the parts of a critical path, the longest first."""
    whole = path[-1].stop_s if path else 0.0
    return ", ".join(
        f"{_ON_PATH.get(kind, kind)} {percent_text(seconds / whole)}" for kind, seconds in seconds_by_kind(path).items()
    )


def paths(panels: Panels) -> Paths:
    """The critical path of each of *panels* that has spans."""
    return {name: critical_path(spans) for name, spans in panels.items() if spans}


def path_texts(through: Paths) -> list[str]:
    """A line about the critical paths *through* all panels; none without any."""
    texts = [f"{name}: {path_text(path)}" for name, path in through.items()]
    return [f"Critical path{BETWEEN}{BETWEEN.join(texts)}"] if texts else []


def _path(
    number: int, spans: Sequence[Span], path: Sequence[Segment], window_s: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    """The corners of a line along a critical *path*; it has gaps where the path is on ranks that are not shown."""
    places = _rows(number, map(Engine.of, _shown(spans)))
    start_s, stop_s = window_s
    pixel_s, drawn_until, strand = (stop_s - start_s) / PIXELS, -stop_s, 0
    path = [each for each in path if each.stop_s >= start_s and each.start_s <= stop_s]
    for corner, (lane, segments) in enumerate(groupby(path, key=lambda each: Engine.of(each.span))):
        first, *others = segments
        last = (first, *others)[-1]
        if lane not in places:
            strand += 1
        elif last.stop_s - drawn_until >= pixel_s or last is path[-1]:
            row, place = places[lane]
            for side, at in enumerate((first.start_s, last.stop_s)):
                yield {**_EMPTY, "row": row, "order": place, "path_ms": milliseconds(at), "corner": 2 * corner + side,
                       "strand": f"{number}.{strand}"}  # fmt: skip
            drawn_until = last.stop_s


# The range of time that a person measures.


def busy_lanes(panels: Panels) -> list[BusyLanes]:
    """The busy times of the rows of each panel, for `range_rows` and `range_text`."""
    return [BusyLanes(_shown(spans or ())) for spans in panels.values()]


def range_rows(busy: Sequence[BusyLanes], start_s: float, stop_s: float) -> list[dict[str, Any]]:
    """The records of `RANGE`: the range itself, and the busy share of each row inside it."""
    length = seconds_text(stop_s - start_s)
    records = [{"row": "0|", "order": 0, "from_ms": milliseconds(start_s), "to_ms": milliseconds(stop_s),
                "share": length, "aloud": f"Measured range: {length}"}]  # fmt: skip
    for number, lanes in enumerate(busy):
        places = _rows(number, lanes.lanes)
        for lane, share in _shares(lanes, start_s, stop_s).items():
            row, place = places[lane]
            records.append({"row": row, "order": place, "from_ms": None, "to_ms": milliseconds(stop_s),
                            "share": percent_text(share),
                            "aloud": f"{row.partition('|')[2]}: busy {percent_text(share)} of the range"})  # fmt: skip
    return records


def range_text(names: Sequence[str], busy: Sequence[BusyLanes], start_s: float, stop_s: float) -> str:
    """The range in words: its length, and how busy each row of the panels called *names* is inside it."""
    parts = [f"From {seconds_text(start_s)} to {seconds_text(stop_s)}: {seconds_text(stop_s - start_s)}"]
    for name, lanes in zip(names, busy, strict=True):
        one_stream = has_one_stream(lanes.lanes)
        shares = [f"{lane.title(one_stream)} {percent_text(share)}"
                  for lane, share in _shares(lanes, start_s, stop_s).items()]  # fmt: skip
        parts += [f"{name}, busy: {', '.join(shares)}"] if shares else []
    return BETWEEN.join(parts)


def _shares(lanes: BusyLanes, start_s: float, stop_s: float) -> dict[Engine, float]:
    length = stop_s - start_s
    return {lane: seconds / length if length > 0 else 0.0 for lane, seconds in lanes.seconds(start_s, stop_s).items()}


# Records and layers.


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
            "lasted", "why", "aloud", "heading", "end_ms", "is_place", "total", "path_ms", "corner",
            "strand")  # fmt: skip
_EMPTY: dict[str, Any] = dict.fromkeys(_COLUMNS)


def _is_wait(row: Mapping[str, Any]) -> bool:
    return row["kind"] == WAIT


def _drawn(data: Any, context: Sequence[str], kinds: Sequence[str], *, is_live: bool = False) -> alt.LayerChart:
    moved = alt.selection_interval(
        name="moved", encodings=["x"], bind="scales", zoom="wheel![event.altKey]", clear="dblclick",
        translate="[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!",
    )  # fmt: skip
    layers = [_ends(), _reserved_rows(), _bars(kinds).add_params(_POINTED, moved), _path_line(), *haloed(_totals())]
    if is_live:
        layers = [_range_band().add_params(_DRAGGED), *layers, *haloed(_range_shares())]
    return alt.LayerChart(
        layer=[*layers, _headings()],
        data=data,
        title=title(QUESTION, context),
        height=alt.Step(ROW_PIXELS),
        description="Timeline: a row for each stream or engine of a rank, time from left to right. Arrow keys go from "
        "bar to bar; Enter measures a bar, with Shift up to another one; Escape ends that.",
    )


_DRAGGED = alt.selection_interval(
    name=DRAG,
    encodings=["x"],
    on="[pointerdown[!event.shiftKey], window:pointerup] > window:pointermove!",
    clear="window:pointerup",
    translate=False,
    zoom=False,
)
"""It is there only while the mouse is down: what was dragged over comes back as the dataset `RANGE`."""
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
        labelExpr="split(datum.label, '|')[1]",
        title=None,
        ticks=False,
        domain=False,
        grid=False,
        labelLimit=160,
        minExtent=EXTENT_PIXELS,
    )
    return alt.Y("row:N", axis=axis, sort=alt.EncodingSortField(field="order", op="min"))


def _moment(field: str) -> alt.X:
    return time_x(field, None, alt.Scale(nice=False, range=[0, alt.expr(f"width - {TOTALS_PIXELS}")]))


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


def _path_line() -> alt.Chart:
    """The critical path, from lane to lane."""
    line = alt.Chart(name="path").transform_filter("isValid(datum.path_ms)").mark_line(style=PATH, aria=False)
    return line.encode(x=_moment("path_ms"), y=_rows_axis(), order="corner:Q", detail="strand:N")


def _totals() -> alt.Chart:
    """How long each row is busy, at the right edge."""
    return (
        alt.Chart(name="totals")
        .transform_filter("isValid(datum.total)")
        .mark_text(align="right", x=alt.expr("width"))
        .encode(y=_rows_axis(), text="total:N", description="aloud:N")
    )


def _range_band() -> alt.Chart:
    """The measured range, behind the bars."""
    return (
        alt.Chart(alt.NamedData(RANGE), name="range")
        .transform_filter("isValid(datum.from_ms)")
        .mark_rect(opacity=0.25, color=SPAN_COLOURS[WAIT])
        .encode(x=_moment("from_ms"), x2="to_ms:Q", description="aloud:N")
    )


def _range_shares() -> alt.Chart:
    """The length of the measured range, and the busy share of each row at its end; after it where there is no room."""
    is_narrow = "scale('x', datum.to_ms) < 50"
    return (
        alt.Chart(alt.NamedData(RANGE), name="shares")
        .mark_text(
            align=alt.expr(f"{is_narrow} ? 'left' : 'right'"), dx=alt.expr(f"{is_narrow} ? 4 : -3"), fontWeight=600
        )
        .encode(x=_moment("to_ms"), y=_rows_axis(), text="share:N", description="aloud:N")
    )
