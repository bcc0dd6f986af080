"""The chart panels of the explorer: along an axis, landscape, losses of one trial, a step on many ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import ipywidgets

from kernels.outcome import Span
from kernels.schedule import Axis, Refusal, Value
from kernels.trial import compared_as
from kernels.units import percent_text, seconds_text
from workbench.charts import landscape, layers, scale_out, sweep, waterfall
from workbench.charts.relative import name_of
from workbench.experiment.estimated_space import EstimatedSpace, SpaceQuestion, shared_columns
from workbench.experiment.forecast import COUNTED_MOST
from workbench.experiment.form import FormQuestion
from workbench.experiment.space import columns, values
from workbench.machines import shipped_machine
from workbench.naming import TILE_SIDES, axis_title
from workbench.reports import run_report
from workbench.reports.methods import derived, derived_table
from workbench.results import metrics
from workbench.results.columns import grid_frame
from workbench.results.deltas import Pinned, pinned_of
from workbench.results.filters import Filters
from workbench.results.rows import Row, link_of, question_of, tile_sides
from workbench.results.store import Store
from workbench.simulator.closed_form import grid
from workbench.simulator.scaling.model import model, names
from workbench.simulator.scaling.network import of_machine
from workbench.simulator.scaling.prices import Prices
from workbench.simulator.scaling.step import StepSetting, named, rows
from workbench.widgets.controls import HIDDEN, SHOWN, dropdown, html, note_html, refusal_html
from workbench.widgets.live_chart import LiveChart, ready

# The cells of a landscape: the closed form estimates every combination of two axes, as rows of a run.


def cells(space: SpaceQuestion, x: str, y: str, filters: Filters | None = None) -> tuple[list[Row], str]:
    """One row per legal combination of axes *x* and *y* that *filters* keep, and how many those leave out, as a
    sentence; Refusal if there are too many.

    A side of the tile stands for all tiles: a cell then holds those with this side.
    """
    question, machine = space.question, space.machine
    problem = question.problem()
    swept = tuple("tile" if axis in TILE_SIDES else axis for axis in (x, y))
    choice = replace(question, swept=swept).choice(question.scheme, machine)
    points = columns(values(choice, problem, machine, question.link(), COUNTED_MOST))
    seconds = grid.times(problem, question.scheme, points, machine, space.fabric)
    every = EstimatedSpace(grid_frame(shared_columns(question, machine, space.fabric), points, seconds), "")
    places = every.fastest(filters or Filters())
    return [every.frame.row(place) for place in sorted(places.tolist())], every.left_out(places)


def landscape_axes(axes: Sequence[Axis]) -> dict[str, int]:
    """The axes that a landscape offers, with the number of their values: *axes*, and the tile's sides one by one."""
    counts = {axis.name: len(axis.values) for axis in axes}
    for axis in axes:
        if axis.name == "tile":
            sizes = [tile_sides(str(value)) for value in axis.values]
            counts |= {side: len({size[side] for size in sizes}) for side in TILE_SIDES}
    return counts


def same_problem(form_question: FormQuestion) -> Callable[[Row], bool]:
    """A test whether a row has the problem, link and kind of time of *form_question*, on any machine."""
    problem, link = form_question.problem(), link_of(str(form_question.link()))
    question = question_of(problem.to_json())

    def same(row: Row) -> bool:
        backend = row.get("backend")
        alike = compared_as(row.get("protocol"), backend) == compared_as(form_question.protocol, backend)
        is_estimate = row.get("source") == "estimated"
        return (is_estimate or alike) and question_of(row) == question and link_of(row.get("fabric") or "") == link

    return same


# The time along one axis of a sweep, which can be chosen if several were swept.

STAGE = ".wb-stage"
"""The CSS selector of the views' part of the page, whose height their charts take."""
NO_SWEEP = "No axis has several values here. Tick “sweep” next to an axis, then Run, to see the time along it."


class AlongPanel:
    """The tab `view` of the time along one swept axis."""

    def __init__(self) -> None:
        self._swept: Mapping[str, Sequence[Value]] = {}
        self._context = ""
        self._baseline: Pinned | None = None
        self._look = layers.PLAIN
        self._drawn: tuple[Any, ...] = ()
        self._rows: list[Row] = []
        self._running: tuple[Sequence[Row], MutableMapping[str, int]] = [], {}
        self.chart = LiveChart(ready(sweep.live, "slice_tiles", ()), fills=STAGE)
        self.axis = dropdown("Along", [], "wb-along")
        self.axis.layout, self.axis.style = ipywidgets.Layout(width="260px"), {"description_width": "60px"}
        self.note = html("wb-along-note")
        self.view = ipywidgets.VBox([self.axis, self.note, self.chart])
        self.axis.observe(lambda change: self._draw(), "value")
        self.begin({}, "")

    def begin(self, swept: Mapping[str, Sequence[Value]], context: str, baseline: Pinned | None = None) -> None:
        """Starts a run that tries *swept*, axes with their values, and draws along the first of them.

        With a *baseline*, differences to it are drawn.
        """
        self._baseline = baseline
        self._swept, self._context, self._rows, self._running = {}, context, [], ([], {})
        self.axis.options = [(axis_title(axis), axis) for axis in swept]
        self.axis.layout.display = SHOWN if len(swept) > 1 else HIDDEN
        self.note.value = "" if swept else note_html(NO_SWEEP)
        self.chart.layout.display = SHOWN if swept else HIDDEN
        self._swept = swept
        self.axis.value = next(iter(swept), None)
        self._draw()

    def take(self, look: layers.Look) -> None:
        """Draws with another *look* from now on."""
        if look != self._look:
            self._look = look
            self._draw_axes()

    def add(self, rows: Sequence[Row]) -> None:
        """Appends new *rows*."""
        self._rows += rows
        if self.axis.value is not None:
            self.chart.append(sweep.DATASET, sweep.rows(rows, self.axis.value, self._baseline))

    def show_running(self, rows: Sequence[Row], numbers: MutableMapping[str, int]) -> None:
        """Replaces the marks of the trials that are being timed."""
        self._running = rows, numbers
        if self.axis.value in self._swept:
            self.chart.replace(layers.DATASET, layers.rows(rows, numbers, self.axis.value, self._baseline))

    def _draw(self) -> None:
        axis = self.axis.value
        if axis in self._swept:
            self._draw_axes()
            self.chart.replace(sweep.DATASET, sweep.rows(self._rows, axis, self._baseline))
            self.show_running(*self._running)

    def _draw_axes(self) -> None:
        axis = self.axis.value
        if axis not in self._swept:
            return
        drawn = axis, tuple(self._swept[axis]), self._context, name_of(self._baseline), self._look
        if drawn != self._drawn:
            self._drawn = drawn
            self.chart.show(ready(sweep.live, *drawn[:3], baseline=drawn[3], look=drawn[4]))


# The landscape over two chosen axes: all cells are estimated at once, and measured ones are drawn over them.

PREFERRED = (
    "slice_tiles",
    "pieces",
    "micro_batches",
    "tile",
    "tile_order",
    "steps",
    "write",
    "split",
    "collective",
    "scheme",
)
"""Axes that are shown first where the schedules have them."""
NO_CELLS = "The form's question has no estimate, so that no cell is estimated here."


class LandscapePanel:
    """The tab `view` of estimates and measurements over two axes; it is only drawn while it is open.

    *estimates* gives the rows of the current question with the two named axes swept, and how many a filter leaves out,
    as a sentence; *timed* the rows of the run that are about the same problem.
    """

    def __init__(
        self, estimates: Callable[[str, str], tuple[Sequence[Row], str]], timed: Callable[[], Sequence[Row]]
    ) -> None:
        self._estimates_of, self._timed = estimates, timed
        self._estimated: Sequence[Row] = ()
        self._stale, self._watched = True, False
        self._counts: dict[str, int] = {}
        self._baseline: Pinned | None = None
        self._drawn_baseline = ""
        """The baseline that the chart was drawn with, as `name_of` says it."""
        self._schedule: Row | None = None
        self.x, self.y = (
            dropdown(label, [], mark) for label, mark in (("Across", "wb-landscape-x"), ("Up", "wb-landscape-y"))
        )
        for control in (self.x, self.y):
            control.layout, control.style = ipywidgets.Layout(width="260px"), {"description_width": "60px"}
            control.observe(self._axes_changed, "value")
        self.message, self.scale = html("wb-landscape-message"), html("wb-landscape-scale")
        self.chart = LiveChart(ready(landscape.live, "slice_tiles", "tile"), fills=STAGE)
        self.view = ipywidgets.VBox([ipywidgets.HBox([self.x, self.y]), self.message, self.scale, self.chart])

    def offer(self, axes: Mapping[str, int]) -> None:
        """Offers *axes*: those of the requested schedules, with the number of their values."""
        ordered = sorted(axes, key=lambda axis: (axes[axis] < 2, (*PREFERRED, axis).index(axis)))
        self._counts = dict(axes)
        titles = tuple((axis_title(axis), axis) for axis in ordered)
        self.forget()
        if titles == tuple(self.x.options):
            return
        across = self.x.value if self.x.value in axes else ordered[0]
        others = [axis for axis in ordered if axis != across] or ordered
        up = self.y.value if self.y.value in others else others[0]
        for control, axis in ((self.x, across), (self.y, up)):
            control.unobserve(self._axes_changed, "value")
            control.options = titles
            control.value = axis
            control.observe(self._axes_changed, "value")
        self._axes_changed()

    def begin(self, swept: Sequence[str]) -> None:
        """Starts a run: shows the axes in *swept*."""
        offered = [axis for _, axis in self.x.options]
        for control, axis in zip((self.x, self.y), [axis for axis in swept if axis in offered], strict=False):
            control.value = axis
        self.draw()

    def choose(self, axes: Sequence[str]) -> None:
        """Shows two *axes*, where both are offered."""
        offered = [axis for _, axis in self.x.options]
        if set(axes) <= set(offered):
            self.x.value, self.y.value = axes

    def forget(self) -> None:
        """Discards the estimates of the previous question; new ones are computed while the tab is open."""
        self._stale = True
        if self._watched:
            self.look(True)

    def look(self, watched: bool) -> None:
        """Opens or closes the tab; missing estimates are computed when it opens."""
        self._watched = watched
        if watched and self._stale and self.x.value is not None and self.y.value is not None:
            self._stale = False
            try:
                self._estimated, left_out = self._estimates_of(self.x.value, self.y.value)
                self.message.value = note_html(left_out) if left_out else ""
            except Refusal as refusal:
                self._estimated = ()
                self.message.value = refusal_html(str(refusal))
            self.draw()

    def _axes_changed(self, _: Any = None) -> None:
        if self.x.value is not None and self.y.value is not None:
            self._estimated = ()
            self._draw_axes()
            self.chart.replace(landscape.DATASET, [])
            self.mark(self._schedule)
            self.forget()

    def _draw_axes(self, baseline: str = "") -> None:
        self._drawn_baseline = baseline
        num_rows = self._counts.get(self.y.value, 1)
        self.chart.show(ready(landscape.live, self.x.value, self.y.value, num_rows=num_rows, baseline=baseline))

    def pin(self, baseline: Pinned | None) -> None:
        """Draws differences to *baseline* where the cells are of its problem, else times."""
        self._baseline = baseline
        self.draw()

    def mark(self, schedule: Row | None) -> None:
        """Outlines the cell of *schedule*, which has a scheme and axes."""
        self._schedule = schedule
        x, y = self.x.value, self.y.value
        is_known = schedule is not None and x is not None and y is not None
        self.chart.set(layers.SELECTED, landscape.place(schedule or {}, x, y) if is_known else "")

    def draw(self) -> None:
        """Replaces all cells, if the tab is open."""
        if self._watched and self.x.value is not None and self.y.value is not None:
            rows = [*self._estimated, *self._timed()]
            pinned = pinned_of(self._baseline, rows)
            if name_of(pinned) != self._drawn_baseline:
                self._draw_axes(name_of(pinned))
            cells_drawn = landscape.rows(rows, self.x.value, self.y.value, baseline=pinned)
            self.chart.replace(landscape.DATASET, cells_drawn)
            self.scale.value = note_html(text) if (text := landscape.scale_text(rows)) else ""


# Where the time of one trial went, and the numbers derived from it; or why they are not known.

TIMELINE_TOLERANCE = 0.05
"""A timeline whose duration differs by less than this share from the timed calls explains them."""
RUN_IT = "Load this schedule and run it by itself to see each part."


class LossesPanel:
    """The tab `view` of the losses of one trial, with the numbers derived from them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shown: tuple[Any, ...] = ()
        self.chart, self.note = LiveChart(ready(waterfall.live)), html("wb-losses-note")
        self.numbers = html("wb-derived")
        self.view = ipywidgets.VBox([self.note, self.chart, self.numbers])

    def begin(self) -> None:
        """Starts another run, of which nothing is known."""
        self._shown = ()
        self.note.value = self.numbers.value = ""
        self.chart.replace(waterfall.DATASET, [])

    def show(self, run: str, rows: Sequence[Row], row: Row, name: str) -> None:
        """Shows the losses of the completed *row*, labelled *name*, of a *run* with *rows* so far."""
        pieces_s = run_report.pieces_alone_s(rows, row)
        known = (run, row, pieces_s)
        if known == self._shown:
            return
        self._shown = known
        spans = self._store.spans(run, row["key"], row["source"], row.get("block"))
        steps = metrics.waterfall(row, spans, pieces_s)
        notes = [f"{name}: {seconds_text(row['time_s'])}, {row['source']}.", *_timeline_note(row, spans)]
        is_elsewhere = not spans and bool(self._store.spans(run, row["key"], row["source"]))
        self.note.value = note_html(" ".join([*notes, *_unknown_losses(row, steps or {}, pieces_s, is_elsewhere)]))
        parts = {"floor": row["floor_s"]} if steps is None else steps
        self.chart.replace(waterfall.DATASET, waterfall.rows(parts, row["time_s"], row["source"]))
        numbers = derived(row, spans, pieces_s)
        self.numbers.value = str(derived_table(numbers).to_html()) if numbers else ""


def _unknown_losses(
    row: Row, parts: Mapping[str, float | None], pieces_s: float | None, is_elsewhere: bool
) -> list[str]:
    """Messages: which losses are not known, why, and how to measure them if that is possible.

    *is_elsewhere* is whether another block kept a timeline of the schedule, which the page shows.
    """
    if not (unknown := metrics.unknown_losses(parts)):
        return []
    reasons = []
    if pieces_s is None:
        alone_s = row.get("compute_s")
        only = f", only that of a sequential schedule, which took {seconds_text(alone_s)}" if alone_s else ""
        reasons.append(f"its computation was not timed alone in its block{only}")
    if "fill and drain" in unknown:
        kept = "its block kept no timeline: the one shown is of another block"
        reasons.append(kept if is_elsewhere else "no timeline of it was kept")
    why = f"Not known: {', '.join(unknown)}, since {', and '.join(reasons) or 'its floor is not known'}."
    return [why, RUN_IT] if row["source"] == "measured" else [why]


def _timeline_note(row: Row, spans: Sequence[Span]) -> list[str]:
    """A message if the timeline took another time than the timed calls, since its losses differ as much."""
    taken_s = max((span.stop_s for span in metrics.per_problem(spans, row)), default=row["time_s"])
    if abs(taken_s / row["time_s"] - 1) < TIMELINE_TOLERANCE:
        return []
    took = f"Fill and drain and contention are read from its timeline, which took {seconds_text(taken_s)}"
    return [f"{took}: the difference is part of the unexplained time."]


# A preset's model on many ranks: the step that contains the operator, simulated while the tab is open.

MACHINE = "h200_ib"
"""The shipped machine with many hosts: eight GPUs each, and a network."""
DEFAULT_CONFIGURATION = "fused"
"""The configuration that is chosen first, which every model has."""
WORLDS = (8, 64, 512, 4096)
ONLY_ESTIMATED = "Everything here is estimated: nothing between hosts was measured."


def model_of(preset: str) -> str | None:
    """Name of the model of *preset*: the longest model name with which the preset's begins."""
    return max((name for name in names() if f"{preset}_".startswith(f"{name}_")), key=len, default=None)


class StepPanel:
    """The tab `view` of a model's step; `offer` sets the preset, `look` opens or closes the tab."""

    def __init__(self) -> None:
        self._preset, self._watched, self._drawn = "", False, ("", "")
        self._offering = False
        self.configuration = dropdown("Overlapped", [], "wb-step-configuration")
        self.configuration.layout = ipywidgets.Layout(width="260px")
        self.configuration.observe(lambda _: self._draw(), "value")
        self.message = html("wb-step-message")
        self.chart = LiveChart(ready(scale_out.live))
        self.view = ipywidgets.VBox([self.configuration, self.message, self.chart])

    def offer(self, preset: str) -> None:
        """Sets the preset of the form."""
        self._preset = preset
        self._draw()

    def look(self, watched: bool) -> None:
        """Opens or closes the tab; a step is simulated while it is open."""
        self._watched = watched
        self._draw()

    def _draw(self) -> None:
        if not self._watched or self._offering:
            return
        name = model_of(self._preset)
        if name is None:
            self._show_no_model()
            return
        scaled = model(name)
        offered = tuple(named(None, scaled))
        if self.configuration.options != offered:
            self._offer(offered)
        question = (name, str(self.configuration.value))
        if question == self._drawn:
            return
        self._drawn = question
        try:
            steps = _steps(name, question[1])
        except Refusal as refusal:
            self.message.value = refusal_html(str(refusal))
            self.chart.replace(scale_out.DATASET, [])
            return
        self.chart.replace(scale_out.DATASET, scale_out.rows(steps))
        most = steps[-1]
        self.message.value = note_html(
            f"{scaled.title} on {MACHINE}: {question[1].replace('_', ' ')} takes {_reduction_text(most['reduction'])} "
            f"on {most['world']:,} ranks. {ONLY_ESTIMATED} More: notebooks/scale_out.ipynb, "
            f"`workbench predict-step {name}`."
        )

    def _offer(self, offered: tuple[str, ...]) -> None:
        """Offers other configurations, and keeps the chosen one if it is among them."""
        before, self._offering = self.configuration.value, True
        try:
            self.configuration.options = offered
            self.configuration.value = before if before in offered else DEFAULT_CONFIGURATION
        finally:
            self._offering = False

    def _show_no_model(self) -> None:
        self._drawn = ("", "")
        self.chart.replace(scale_out.DATASET, [])
        self.message.value = note_html(
            f"No model of {', '.join(names())} has this problem: choose a preset of one of them."
        )


def _reduction_text(reduction: float) -> str:
    return f"{percent_text(abs(reduction))} {'less' if reduction >= 0 else 'more'} than sequential"


def _steps(name: str, configuration: str) -> list[dict[str, Any]]:
    """One row for each of WORLDS; shapes that they share are priced once."""
    machine = shipped_machine(MACHINE)
    first = Prices(machine, of_machine(machine, WORLDS[0]))
    settings = [StepSetting(model=model(name), prices=first.over(of_machine(machine, world))) for world in WORLDS]
    return [row for setting in settings for row in rows(setting, (configuration,))]
