"""Which problem of a run the charts are about: rows of different shapes or links share no axis and no best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from workbench.charts.problems import problem_titles
from workbench.metrics import FLOOR
from workbench.one_problem import Key, problem_of
from workbench.reports.outcomes import gain_words
from workbench.widgets.controls import HIDDEN, SHOWN, Quiet, dropdown, html
from workbench.widgets.words import note_html

Row = Mapping[str, Any]


class ProblemChoice(Quiet):
    """`view` is seen once a run has two problems. Until a person chooses, the newest one is shown while they come."""

    def __init__(self, chosen: Callable[[], Any]) -> None:
        self._chosen = chosen
        self.list = dropdown("Problem", [], "wb-problem")
        self.list.layout, self.list.style = ipywidgets.Layout(flex="1 1 100%"), {"description_width": "60px"}
        self.note = html("wb-problem-note")
        self.note.layout = ipywidgets.Layout(flex="1 1 100%", margin="0 0 0 8px")
        self.view = ipywidgets.HBox([self.list, self.note], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.list.observe(self._picked, "value")
        self.begin(following=False)

    def begin(self, *, following: bool) -> None:
        """Another run, whose problems are not known; *following*: the newest is the one to look at."""
        self._following = following
        self.rows: dict[Key, list[Row]] = {}
        """Of whole schedules, by problem."""
        self._offer()

    @property
    def value(self) -> Key | None:
        """The problem that is shown; None before the first row."""
        return self.list.value

    def of(self, row: Row) -> bool:
        """Whether *row* is of the problem that is shown."""
        return problem_of(row) == self.value

    @property
    def shown(self) -> Sequence[Row]:
        """Its rows."""
        return self.rows.get(self.value or (), ())

    def add(self, rows: Sequence[Row]) -> bool:
        """Takes rows of whole schedules. Whether another problem is shown now."""
        known, before = len(self.rows), self.value
        for row in rows:
            self.rows.setdefault(problem_of(row), []).append(row)
        if len(self.rows) > known:
            self._offer()
        if rows and self._following:
            self.show(problem_of(rows[-1]))
        return self.value != before

    def complete(self, completed: Callable[[Row], Row]) -> bool:
        """Takes every row as it is *completed* by what came later. Whether what is shown has another floor now."""
        before = [row.get(FLOOR) for row in self.shown]
        self.rows = {problem: [completed(row) for row in rows] for problem, rows in self.rows.items()}
        return [row.get(FLOOR) for row in self.shown] != before

    def show(self, problem: Key) -> None:
        """Shows *problem*, as if nobody had chosen."""
        if problem in self.rows:
            with self._silently():
                self.list.value = problem

    def rest(self) -> None:
        """The run has ended: nothing new comes that one would look at, and each problem has a best."""
        self._following = False
        self.say()

    @property
    def following(self) -> bool:
        """Whether the newest problem is shown."""
        return self._following

    def say(self) -> None:
        """What the fastest schedule of the shown problem gains."""
        several = len(self.rows) > 1 and any(row["time_s"] is not None for row in self.shown)
        words = f"{self._count()} {gain_words(self.shown)}" if several else ""
        self.note.value = note_html(words) if words else ""

    def _count(self) -> str:
        """How many problems there are: timed by two protocols, one is two entries of the list."""
        count = len({problem_of({**rows[0], "protocol": None}) for rows in self.rows.values()})
        words = f"One of {count} problems"
        return f"{words}." if count == len(self.rows) else f"{words}, in {len(self.rows)} entries: protocols differ."

    def _offer(self) -> None:
        before = self.list.value
        titles = problem_titles({key: rows[0] for key, rows in self.rows.items()})
        with self._silently():
            self.list.options = [(title, key) for key, title in titles.items()]
            self.list.value = before if before in titles else next(iter(titles), None)
        self.view.layout.display = SHOWN if len(titles) > 1 else HIDDEN
        if not titles:
            self.note.value = ""

    def _picked(self, _: Any) -> None:
        if not self._quiet:
            self._following = False
            self._chosen()
