"""The view "What matters": the importance of each axis, and the front of time and what a schedule takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.schemes import BASELINE
from kernels.units import num_text
from workbench.analysis.front import standings
from workbench.analysis.importance import Importance, importance, records, remembered_importance
from workbench.charts import importance as importance_chart
from workbench.charts import pareto
from workbench.charts.relative import name_of
from workbench.experiment.estimated_space import SpaceQuestion, question_columns
from workbench.machines import known
from workbench.naming import TIMED, TOGETHER
from workbench.results.deltas import Pinned, pinned_of
from workbench.results.filters import Filters
from workbench.results.resources import RESOURCES, fastest_of_each, with_resource
from workbench.results.rows import Row, current_problem_and_schedule, problem_of
from workbench.simulator.predict import no_estimate, resolved
from workbench.widgets.chart_panels import STAGE
from workbench.widgets.controls import HIDDEN, SHOWN, QuietControls, dropdown, html, note_html, refusal_html
from workbench.widgets.exploration import Dispatch, OpenView, Scene, Select, View, row_id
from workbench.widgets.latest import REST_S, Latest
from workbench.widgets.live_chart import Click, LiveChart, ready

LANDSCAPE = "landscape"
"""Name of the view that a bar opens."""
NOTHING = "Nothing is known yet: run a sweep, or open a run."
UNTIMED = "Nothing of this question was timed: all of it is estimated."
LOOKING = "Reading what matters …"
ESTIMATES_MOST = 1000
"""The most estimates of the space whose resource is computed: each takes a millisecond."""
WIDTH = "320px"


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What the thread computed."""

    shares: list[dict[str, Any]]
    basis: str
    leading: list[str]
    """The axes, the most important first."""
    trials: list[dict[str, Any]]
    note: str
    baseline: str
    """What the front is drawn against, as `relative.name_of` says it; empty where times are drawn."""


class MattersView(QuietControls, View):
    """Both charts next to each other, for the problem of the selected row, the newest one, or the form's question.

    *landscape* gets the two axes that the landscape shall show when a bar is clicked; then its view is opened.
    *machine_of* gives the description of a machine by name, if there is one. The estimated space is that of the chosen
    scheme by the closed form, whatever was run; where it is that of the form's question, the front of its estimates
    is drawn with that of the rows.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        landscape: Callable[[Sequence[str]], Any] = lambda axes: None,
        machine_of: Callable[[str], Machine | None] = known,
    ) -> None:
        self._dispatch, self._landscape, self._machine_of = dispatch, landscape, machine_of
        self._scene: Scene | None = None
        self._leading: list[str] = []
        self._kept: tuple[Any, Any, list[dict[str, Any]], str] | None = None
        """What was computed last, with its key; of the thread alone."""
        self._about: tuple[Hashable, Hashable] = None, None
        """The problem and the scheme of what is drawn, or of what will be."""
        self.scheme = dropdown("Axes of", [], "wb-matters-scheme")
        titles = [(name, resource) for resource, name in RESOURCES.items()]
        self.resource = dropdown("Time against", titles, "wb-matters-resource")
        for control in (self.scheme, self.resource):
            control.layout, control.style = ipywidgets.Layout(width=WIDTH), {"description_width": "90px"}
            control.observe(self._chosen, "value")
        self.note, self.resource_note = html("wb-matters-note"), html("wb-matters-resource-note")
        self.importance = LiveChart(ready(importance_chart.live))
        self.pareto = LiveChart(ready(pareto.live, *next(iter(RESOURCES.items()))), fills=STAGE)
        self.importance.on_click(self._bar_clicked)
        self.pareto.on_click(self._mark_clicked)
        self.work = Latest("what matters", self._refuse)
        half = {"flex": "1 1 380px", "min_width": "0", "width": "auto"}
        left = ipywidgets.VBox([self.scheme, self.note, self.importance], layout=ipywidgets.Layout(**half))
        right = ipywidgets.VBox([self.resource, self.resource_note, self.pareto], layout=ipywidgets.Layout(**half))
        layout = ipywidgets.Layout(width="100%", overflow="auto", flex_flow="row wrap", align_items="flex-start")
        self.widget = ipywidgets.HBox([left, right], layout=layout)
        self.widget.add_class("wb-matters")

    def draw(self, scene: Scene) -> None:
        """Shows *scene*; what takes long is computed in a thread."""
        self._scene = scene
        anchor = _anchor(scene)
        if anchor is None:
            self.work.forget()
            self._begin(None, None)
            self._refuse(NOTHING)
            return
        same = [row for row in scene.kept if problem_of(row) == problem_of(anchor)]
        self._offer([row["scheme"] for row in same], anchor)
        machine = self._machine_of(str(anchor["machine"]))
        digest = None if machine is None else machine.digest
        space, filters = _space_of(scene, anchor), scene.state.filters
        key = (problem_of(anchor), self.scheme.value, self.resource.value, _stamp(same), digest, space,
               hash(str(filters.to_json())))  # fmt: skip
        selected, pinned = scene.state.selected, _pinned(scene, same)
        shown = _Shown(same, anchor, space, filters, scene.left_out)

        def read() -> _Drawn:
            drawn = self._drawn(key, shown, selected)
            marks = pareto.rows(drawn.trials, key[2], pinned)
            return replace(drawn, trials=marks, baseline=name_of(pinned))

        wanted = key, selected, scene.baseline and row_id(scene.baseline)
        self._begin(problem_of(anchor), self.scheme.value)
        self.work.ask(wanted, read, self._show, 0.0 if space is None else REST_S)

    def close(self) -> None:
        """Ends the thread."""
        self.work.close()

    def _begin(self, problem: Hashable, scheme: Hashable) -> None:
        """Takes away what is of another problem or scheme: what takes seconds shall not stand under the wrong title."""
        before, self._about = self._about, (problem, scheme)
        if before == self._about:
            return
        self.note.value = note_html(LOOKING)
        self.importance.replace(importance_chart.DATASET, [])
        if before[0] != problem:
            self.resource_note.value = ""
            self.pareto.replace(pareto.DATASET, [])

    def _offer(self, schemes: Sequence[str], anchor: Row) -> None:
        """Offers the schemes of the rows; that of a row that was selected anew is chosen."""
        offered = tuple(dict.fromkeys([*schemes, anchor["scheme"]]))
        with self._silently():
            before = self.scheme.value
            if offered != tuple(self.scheme.options):
                self.scheme.options = offered
                self.scheme.value = before if before in offered else _most_varied(schemes, anchor)
        self.scheme.layout.display = SHOWN if len(offered) > 1 else HIDDEN

    def _chosen(self, _: Any) -> None:
        if not self._quiet and self._scene is not None:
            self.draw(self._scene)

    # In the thread.

    def _drawn(self, key: Any, shown: _Shown, selected: str | None) -> _Drawn:
        """What is drawn of *shown*; all but the selection is kept for the next time with the same *key*."""
        _, scheme, resource, *_ = key
        if self._kept is None or self._kept[0] != key:
            important = self._importance(shown.rows, shown.anchor, scheme)
            self._kept = key, important, *self._trials(shown, resource)
        _, (shares, basis, leading), trials, note = self._kept
        notes = [UNTIMED] if all(row["source"] not in TIMED for row in shown.rows) else []
        basis = " ".join(filter(None, (*notes, basis and f"{basis}.", shown.left_out)))
        marked = [{**row, "selected": row["id"] == selected} for row in trials]
        about = " ".join(filter(None, (_resource_note(trials, resource), note)))
        return _Drawn(shares, basis, leading, marked, about, "")

    def _importance(self, rows: Sequence[Row], anchor: Row, scheme: str) -> tuple[list[dict[str, Any]], str, list[str]]:
        """The rows of the chart of importance, what they rest on, and the axes, the most important first."""
        of_scheme = [row for row in rows if row["scheme"] == scheme and row.get("time_s")]
        by_source = {}
        for source in TIMED:
            if timed := [row for row in of_scheme if row["source"] == source]:
                by_source[source] = importance(timed)
        whole = self._space(anchor, scheme)
        if isinstance(whole, Importance):
            by_source["estimated"] = whole
        shares = [share for source, result in by_source.items() for share in records(result, source)]
        sentences = [_rests_on(source, result) for source, result in by_source.items()]
        leading = next((result.leading for result in by_source.values() if result.known), [])
        return shares, ". ".join([*sentences, *([whole] if isinstance(whole, str) else [])]), leading

    def _trials(self, shown: _Shown, resource: str) -> tuple[list[dict[str, Any]], str]:
        """The rows with a time, what each takes, and whether it is on the front; and what is said of the estimates."""
        estimates, note = _estimates(shown, resource)
        timed = [row for row in shown.rows if row.get("time_s")]
        trials = with_resource([*timed, *estimates], resource, self._machine_of)
        stands = standings(trials, resource)
        return [{**row, "standing": stand, "id": row_id(row)}
                for row, stand in zip(trials, stands, strict=True)], note  # fmt: skip

    def _space(self, anchor: Row, scheme: str) -> Importance | str:
        """How much the axes of *scheme* matter by estimates of the problem of *anchor*, or why that is not known."""
        machine = self._machine_of(str(anchor["machine"]))
        if machine is None:
            return f"There is no estimate: {anchor['machine']} has no description here."
        problem, _ = current_problem_and_schedule(anchor)
        fabric = parse(str(anchor["fabric"]))
        if (refusal := no_estimate(fabric)) is not None:
            return refusal
        try:
            return remembered_importance(problem, scheme, machine, resolved(fabric, problem, machine))
        except ValueError as refused:
            return f"There is no estimate: {refused}"

    def _show(self, drawn: _Drawn) -> None:
        self._leading = drawn.leading
        self.note.value = note_html(drawn.basis)
        self.resource_note.value = note_html(drawn.note) if drawn.note else ""
        self.importance.replace(importance_chart.DATASET, importance_chart.rows(drawn.shares))
        name = RESOURCES[self.resource.value]
        self.pareto.show(ready(pareto.live, self.resource.value, name, baseline=drawn.baseline))
        self.pareto.replace(pareto.DATASET, drawn.trials)

    def _refuse(self, message: str) -> None:
        self.note.value = note_html(message) if message == NOTHING else refusal_html(message)

    # Clicks.

    def _bar_clicked(self, click: Click) -> None:
        """Opens the landscape over the clicked axis and the most important other one."""
        axes = two_axes(str(click.datum.get("axis") or ""), self._leading)
        if len(axes) > 1:
            self._landscape(axes)
            self._dispatch(OpenView(LANDSCAPE))

    def _mark_clicked(self, click: Click) -> None:
        if click.datum.get("id"):
            self._dispatch(Select(str(click.datum["id"])))


# What the view is about.


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the view is about."""

    rows: Sequence[Row]
    """The rows of its problem that the filters keep."""
    anchor: Row
    space: SpaceQuestion | None
    """The space of its problem; None where the form is about another one."""
    filters: Filters
    left_out: str
    """How many rows the filters leave out, as a sentence."""


def _rests_on(source: str, result: Importance) -> str:
    """What the shares of *source* rest on; where none is known, why: how many times there are, and are needed."""
    if result.known:
        return f"{source}: {result.basis}"
    why = next((share.why for share in result.shares if share.why), "not known: no axis varies in them")
    return f"{source}: {result.basis}; {why}"


def _anchor(scene: Scene) -> Row | None:
    """The row whose problem is shown: the selected one, else the newest, else the form's, which has no time yet; None
    without any."""
    row = scene.selected or next(iter(scene.rows[-1:]), None)
    space = scene.space
    if row is not None or space is None:
        return row
    return {**question_columns(space.question, space.machine, space.fabric), "axes": {}}


def _space_of(scene: Scene, anchor: Row) -> SpaceQuestion | None:
    """The space of the form's question, if that is the problem of *anchor*, timed by whichever protocol."""
    return scene.space if scene.space is not None and scene.space.is_about(anchor) else None


def _estimates(shown: _Shown, resource: str) -> tuple[list[Row], str]:
    """The estimates of the space that are the fastest for what they take, and a sentence about all."""
    if shown.space is None:
        return [], ""
    try:
        space = shown.space.answer()
    except ValueError as refused:
        return [], f"The space has no estimates: {refused}"
    places = space.fastest(shown.filters)
    ahead = fastest_of_each(space.frame, places, resource)
    drawn = ahead[:ESTIMATES_MOST]
    of = f" of {len(ahead):,}" if len(drawn) < len(ahead) else ""
    note = (f"Hollow: of {num_text(len(places), 'estimate')} of the space the {len(drawn):,}{of} that are the fastest "
            "for what they take.")  # fmt: skip
    return [space.frame.row(place) for place in drawn.tolist()], " ".join(filter(None, (note, space.left_out(places))))


def _pinned(scene: Scene, rows: Sequence[Row]) -> Pinned | None:
    """The baseline, if it has a time and is of the problem of *rows*."""
    base = scene.baseline
    is_timed = base is not None and base.get("time_s") is not None
    return pinned_of(Pinned.of(base, scene.rows), rows) if base is not None and is_timed else None


def _most_varied(schemes: Sequence[str], anchor: Row) -> str:
    """The scheme of the selected or newest row, or, since a baseline has hardly any axes, the one with most rows."""
    others = Counter(name for name in schemes if name != BASELINE)
    if anchor["scheme"] != BASELINE or not others:
        return str(anchor["scheme"])
    return others.most_common(1)[0][0]


def _stamp(rows: Sequence[Row]) -> Hashable:
    """What changes when there are other rows, or other times."""
    return hash(tuple((row_id(row), row.get("time_s")) for row in rows))


def two_axes(clicked: str, leading: Sequence[str]) -> tuple[str, ...]:
    """The axes of a landscape: the *clicked* ones, then the most important others; at most two."""
    first = [axis for axis in clicked.split(TOGETHER) if axis]
    return tuple(dict.fromkeys([*first, *leading]))[:2]


def _resource_note(trials: Sequence[Row], resource: str) -> str:
    """What the chart of *resource* leaves out, or that all are alike."""
    amounts = Counter(row.get(resource) for row in trials)
    if not trials or set(amounts) == {None}:
        return f"{RESOURCES[resource]}: not known of any schedule here. CPU ranks have no SMs."
    notes = ["All schedules take the same."] if len(amounts) == 1 and len(trials) > 1 else []
    if amounts[None]:
        notes.append(f"{amounts[None]:,} schedules are left out: this is not known of them.")
    if len(trials) > pareto.DRAWN_MOST:
        notes.append(f"{pareto.DRAWN_MOST:,} of {len(trials):,} schedules are drawn, with all on the front.")
    return " ".join(notes)
