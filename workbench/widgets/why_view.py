"""The view "Why": what makes the selected schedule faster than another one, and what keeps it from its floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets

from kernels.machine import Machine
from kernels.schedule import Refusal
from workbench.analysis.why import (
    FLOOR,
    LONGER_ALONE,
    Explained,
    against_floor,
    against_other,
    is_floor,
    runner_up,
    short_names,
    simulated_parts,
    timed_parts,
)
from workbench.charts import waterfall
from workbench.machines import known
from workbench.naming import TIMED
from workbench.reports.run_report import pieces_alone_s
from workbench.results import comparison
from workbench.results.rows import Row, problem_of
from workbench.results.store import Store
from workbench.widgets.controls import html, note_html, refusal_html
from workbench.widgets.exploration import Dispatch, Scene, Select, View, row_id
from workbench.widgets.latest import REST_S, Latest
from workbench.widgets.live_chart import Click, LiveChart, ready

NOTHING = "Nothing has a time yet: run something, or open a run."
ESTIMATED = "Nothing was timed: all of this is estimated, for the question of the form."
ALONE = "There is no other schedule of this problem to compare with."
SIMULATED = "Not all parts were timed: those shown are of the simulator."


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What the thread computed."""

    sentences: Sequence[str]
    records: list[dict[str, Any]]
    of_two: bool


class WhyView(View):
    """The waterfalls of two schedules with sentences: of the selected row, or else the best, or where nothing was timed
    the form's schedule; and of the baseline, or else the runner-up among the rows that the filters keep. An estimate of
    the form's space has its runner-up there.

    Parts are those that were timed, where both have them; else the simulator's, which the sentences say.
    """

    def __init__(self, dispatch: Dispatch, store: Store, machine_of: Callable[[str], Machine | None] = known) -> None:
        self._dispatch, self._store, self._machine_of = dispatch, store, machine_of
        self._of_two = True
        self._other: str | None = None
        self.text = html("wb-why-text")
        self.chart = LiveChart(ready(waterfall.live, of_two=True))
        self.chart.on_click(self._clicked)
        self.work = Latest("why", self._refuse)
        self.widget = ipywidgets.VBox([self.text, self.chart], layout=ipywidgets.Layout(width="100%", overflow="auto"))
        self.widget.add_class("wb-why")

    def draw(self, scene: Scene) -> None:
        """Shows *scene*; what takes long is computed in a thread."""
        row = chosen_row(scene)
        if row is None and scene.space is None:
            self._say_nothing()
            return
        pinned = scene.baseline
        machine = None if row is None else self._machine_of(str(row["machine"]))
        of_space = scene.space if row is None or _is_of_space(row) else None
        key = (
            None if row is None else (row_id(row), row["time_s"], row.get("floor_s")),
            None if pinned is None else (row_id(pinned), pinned.get("time_s")),
            hash(tuple(map(row_id, scene.kept))),
            None if machine is None else machine.digest,
            (of_space, hash(str(scene.state.filters.to_json())), bool(scene.rows)),
        )
        pause_s = REST_S if of_space is not None else 0.0
        self.work.ask(key, lambda: self._read(row, pinned, scene), self._show, pause_s)

    def _say_nothing(self) -> None:
        self.work.forget()
        self.text.value = note_html(NOTHING)
        self.chart.replace(waterfall.DATASET, [])

    def close(self) -> None:
        """Ends the thread."""
        self.work.close()

    # In the thread.

    def _read(self, row: Row | None, pinned: Row | None, scene: Scene) -> _Drawn:
        row = scene.of_form if row is None else row
        if row is None:
            return _Drawn([NOTHING], [], self._of_two)
        second, notes = self._second(row, pinned, scene)
        self._other = None if second is None else row_id(second)
        several = [row] if second is None else [row, second]
        explained, remark = self._explained(several)
        # one number for one estimate: that of the strip, by which its parts sum up
        explained = [replace(each, row={**each.row, "time_s": each.time_s}) if _is_of_space(each.row) else each
                     for each in explained]  # fmt: skip
        sentences = [against_floor(explained[0], scene.rows), *remark, *notes]
        first = FLOOR if all(is_floor(each, scene.rows) for each in explained) else LONGER_ALONE
        if second is None:
            parts = explained[0]
            return _Drawn([ALONE, *sentences], waterfall.rows(parts.parts, parts.time_s, parts.source, first), False)
        schedules = [
            waterfall.Schedule(name=name, parts=each.parts, time_s=each.time_s, source=each.source, first=first)
            for name, each in zip(_names(row, second), explained, strict=True)
        ]
        chosen, other = explained
        return _Drawn([against_other(chosen, other, scene.rows), *sentences], waterfall.two(*schedules), True)

    def _second(self, row: Row, pinned: Row | None, scene: Scene) -> tuple[Row | None, list[str]]:
        """The schedule that *row* is compared with, if there is one, and what else is to be said."""
        of_space = scene.space is not None and _is_of_space(row)
        notes = [ESTIMATED] if of_space and not any(each["source"] in TIMED for each in scene.rows) else []
        if pinned is not None and _compares(pinned, row):
            return pinned, notes
        if not of_space or scene.space is None:
            return runner_up(row, scene.kept), [*notes, *filter(None, [scene.left_out])]
        space = scene.space.answer()
        places = space.fastest(scene.state.filters)
        fastest = (space.frame.row(place) for place in places.tolist())
        second = next((each for each in fastest if runner_up(row, [each]) is not None), None)
        return second, [*notes, *filter(None, [space.left_out(places)])]

    def _explained(self, rows: Sequence[Row]) -> tuple[list[Explained], list[str]]:
        """The parts of *rows*, with a remark where they are not theirs. Those of two timed rows are by one source."""
        timed = [self._timed(row) for row in rows]
        if not any(each.unknown for each in timed):
            return timed, []
        machine = self._machine_of(str(rows[0]["machine"]))
        if machine is None:
            return timed, []
        try:
            simulated = simulated_parts(rows, machine)
        except Refusal as refusal:
            return timed, [f"The simulator has no parts: {refusal}"]
        are_known = all(not each.unknown for each in timed if each.row["source"] in TIMED)
        if are_known:  # against an estimate
            return [one if one.row["source"] in TIMED else other
                    for one, other in zip(timed, simulated, strict=True)], []  # fmt: skip
        return simulated, [SIMULATED]

    def _timed(self, row: Row) -> Explained:
        """The parts of *row* from the store: its timeline, and its computation alone."""
        run = row.get("run")
        if not run:
            return timed_parts(row, (), None)
        spans = self._store.spans(run, row["key"], row["source"], row.get("block"))
        return timed_parts(row, spans, pieces_alone_s(self._store.rows(run), row))

    def _show(self, drawn: _Drawn) -> None:
        if drawn.of_two != self._of_two:
            self._of_two = drawn.of_two
            self.chart.show(ready(waterfall.live, of_two=drawn.of_two))
        self.text.value = note_html(" ".join(drawn.sentences))
        self.chart.replace(waterfall.DATASET, drawn.records)

    def _refuse(self, message: str) -> None:
        self.text.value = refusal_html(message)

    def _clicked(self, click: Click) -> None:
        """Selects the schedule that the chosen one is compared with, when one of its bars is clicked."""
        if click.datum.get("lane") == 1 and self._other is not None:
            self._dispatch(Select(self._other))


def chosen_row(scene: Scene) -> Row | None:
    """The selected row if it has a time, else the best of the newest problem that has one; None without any."""
    if scene.selected is not None and scene.selected.get("time_s"):
        return scene.selected
    timed = [row for row in scene.rows if row.get("time_s")]
    if not timed:
        return None
    newest = problem_of(timed[-1])
    return comparison.fastest([row for row in timed if problem_of(row) == newest])


def _is_of_space(row: Row) -> bool:
    """Whether *row* is an estimate of the form's space, and of no run."""
    return not row.get("run") and row["source"] not in TIMED


def _names(row: Row, other: Row) -> tuple[str, str]:
    """Names that tell both apart: those of one schedule by their sources."""
    names = short_names(row, other)
    if names[0] != names[1]:
        return names
    return f"{names[0]}, {row['source']}", f"{names[1]}, {other['source']}"


def _compares(pinned: Row, row: Row) -> bool:
    """Whether *pinned* is another timed row of the problem of *row*."""
    return bool(pinned.get("time_s")) and row_id(pinned) != row_id(row) and problem_of(pinned) == problem_of(row)
