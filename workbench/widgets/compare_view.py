"""The view that compares two schedules: the pinned baseline with the selected row, and only what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets
from markupsafe import Markup

from workbench.charts import pair
from workbench.charts.labels import context, schedule_label
from workbench.experiment.question import together
from workbench.naming import TIMED, value_title
from workbench.reports.cases import problem_text
from workbench.reports.tables import NOTHING, Cell, ReportColumn, Table
from workbench.results import comparison
from workbench.results.deltas import Delta, Difference, Pinned, differences, is_same
from workbench.results.rows import PROBLEM, Row, current_problem_and_schedule, problem_of
from workbench.results.verdict import FASTER, SLOWER
from workbench.widgets.controls import HIDDEN, SHOWN, button, html, marked, note_html, refusal_html
from workbench.widgets.exploration import Dispatch, PinBaseline, Scene, Select, View, estimate_row
from workbench.widgets.live_chart import LiveChart, ready
from workbench.widgets.results import OutcomeView, ProblemTable

HINT = "Select a row, a mark or a line, and pin it as the baseline: all views then show differences to it."
SECOND = "The baseline is {}. Select another row to compare it."
GONE = "The baseline is of a run that is not shown: show its run again, or pin another row."
ILLEGAL = "The baseline is an estimate of a schedule that the question of the form does not have: pin another row."
ALIKE = "Nothing but the time differs."


class CompareView(View):
    """The view `widget`: a sentence, both times on one ruler, and a table of what differs.

    *measure_together* is called with two rows that were not timed in turns, to time them so. *provenance* gives the
    circumstances of a run by its id; ValueError where the store does not have it.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        measure_together: Callable[[Sequence[Row]], Any] | None = None,
        provenance: Callable[[str], Mapping[str, Any]] = lambda run: {},
    ) -> None:
        self._dispatch, self._measure_together, self._provenance = dispatch, measure_together, provenance
        self._scene: Scene | None = None
        self._apart: list[Row] = []
        self.sentence = html("wb-compare-sentence")
        self.pin = button("Pin baseline", "wb-pin", "thumb-tack", "Compare all others with the selected row")
        self.unpin = button("Unpin", "wb-unpin", "times", "Show times again instead of differences")
        self.swap = button("Swap", "wb-swap", "exchange", "The selected row becomes the baseline, and the reverse")
        self.together = button(
            "Measure together", "wb-compare-together", "play", "Time both again in turns: then a verdict is possible"
        )
        self.chart = LiveChart(ready(pair.live))
        self.differ = marked(OutcomeView(), "wb-outcomes")
        self._buttons = (self.pin, self.unpin, self.swap, self.together)
        row = marked(ipywidgets.HBox(self._buttons, layout=ipywidgets.Layout(flex_flow="row wrap")), "wb-buttons")
        parts = [self.sentence, row, self.chart, self.differ]
        self.widget = marked(ipywidgets.VBox(parts, layout=ipywidgets.Layout(width="100%")), "wb-compare")
        self.pin.on_click(lambda _: self._pin_selected())
        self.unpin.on_click(lambda _: self._dispatch(PinBaseline(None)))
        self.swap.on_click(lambda _: self._swap())
        self.together.on_click(lambda _: self._measure())

    def draw(self, scene: Scene) -> None:
        """Shows the baseline of *scene* next to its selected row."""
        self._scene = scene
        base, selected = scene.baseline, scene.selected
        self._apart = []
        if base is None or selected is None or is_same(base, selected):
            self._show(note_html(_lone(scene)), {"baseline": base} if base is not None else {}, [])
        else:
            self._compare(base, selected, scene)
        self._offer(base, selected)

    def _compare(self, base: Row, selected: Row, scene: Scene) -> None:
        try:
            delta = Pinned.of(base, scene.rows).delta(selected)
            self._show(sentence_html(delta, selected), {"baseline": base, "selected": selected},
                       self._differences(base, selected))  # fmt: skip
        except ValueError as refusal:
            self._show(refusal_html(str(refusal)), {}, [])
            return
        if self._measure_together is not None:
            several = _to_measure(base, selected) if delta.share is not None else []
            self._apart = several if several and together(several) is not None else []

    def _differences(self, base: Row, selected: Row) -> list[Difference]:
        """What differs, versions of both runs included where they are two stored runs."""
        runs = [str(row.get("run") or "") for row in (base, selected)]
        if len(set(runs)) < 2 or "" in runs:
            return differences(base, selected)
        return differences(base, selected, (self._provenance(runs[0]), self._provenance(runs[1])))

    def _show(self, sentence: str, rows: Mapping[str, Row], differ: Sequence[Difference]) -> None:
        self.sentence.value = sentence
        self.chart.layout.display = SHOWN if rows else HIDDEN
        self.chart.show(ready(pair.live, context=context(list(rows.values()))))
        self.chart.replace(pair.DATASET, pair.rows(rows))
        self.differ.show([ProblemTable(difference_table(differ))] if len(rows) > 1 else [])

    def _offer(self, base: Row | None, selected: Row | None) -> None:
        """Shows the buttons that do something now."""
        is_pair = base is not None and selected is not None and not is_same(base, selected)
        timed = selected is not None and selected.get("time_s") is not None
        shown = (timed and (base is None or is_pair), base is not None, is_pair and timed, bool(self._apart))
        for control, is_shown in zip(self._buttons, shown, strict=True):
            control.layout.display = SHOWN if is_shown else HIDDEN

    def _pin_selected(self) -> None:
        if self._scene is not None:
            self._dispatch(PinBaseline(self._scene.state.selected))

    def _swap(self) -> None:
        if self._scene is not None:
            before = self._scene.state
            self._dispatch(PinBaseline(before.selected))
            self._dispatch(Select(before.baseline))

    def _measure(self) -> None:
        if self._measure_together is not None and self._apart:
            self._measure_together(self._apart)


def _lone(scene: Scene) -> str:
    """What is said while there are no two rows to compare."""
    if scene.baseline is not None:
        return SECOND.format(schedule_label(scene.baseline))
    if scene.state.baseline is None:
        return HINT
    return GONE if estimate_row(scene.state.baseline) is None else ILLEGAL


def _to_measure(base: Row, selected: Row) -> list[Row]:
    """The two rows if timing them in turns would bring a verdict that they have not; else none."""
    if all(row["source"] in TIMED for row in (base, selected)):
        return comparison.apart([base, selected])
    schedules = {current_problem_and_schedule(row)[1] for row in (base, selected)}
    is_pair = len(schedules) == 2 and problem_of(base) == problem_of(selected)
    return [selected, base] if is_pair else []


def sentence_html(delta: Delta, row: Row) -> str:
    """The sentence of *delta* about *row*; its colour repeats what its words say."""
    tone = f" wb-{delta.word}" if delta.word in (FASTER, SLOWER) else ""
    sentence = delta.sentence(schedule_label(row))
    return str(Markup('<p class="wb-answer-line{}" role="status">{}</p>').format(tone, sentence))


def difference_table(differ: Sequence[Difference]) -> Table:
    """A table with one line for each thing that differs, and a line that says so if nothing does."""
    columns = tuple(ReportColumn(heading=heading) for heading in ("What differs", "Baseline", "Selected"))
    lines = [(Cell(each.name), Cell(_text(each.key, each.first)), Cell(_text(each.key, each.second)))
             for each in differ]  # fmt: skip
    return Table(columns=columns, rows=tuple(lines) or ((Cell(ALIKE), Cell(""), Cell("")),))


def _text(key: str, value: Any) -> str:
    if value is None:
        return NOTHING
    return problem_text(key, value) if key in PROBLEM else value_title(value)
