"""A mark that was clicked becomes the form's question; what that changes besides the schedule is said, with an Undo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ipywidgets

from workbench.charts.words import fabric_words
from workbench.machines import machine
from workbench.naming import operator_title, shape_title, value_title
from workbench.widgets.controls import HIDDEN, SHOWN, button, html, marked, wide
from workbench.widgets.question import Question, State
from workbench.widgets.shown import Kept, Shown
from workbench.widgets.words import note_html

Row = Mapping[str, Any]


class Loading:
    """`take` sets the form to a row of the charts; `view` says what changed, and takes it back."""

    def __init__(self, question: Question, shown: Shown) -> None:
        self._question, self._shown = question, shown
        self._before: tuple[State, Kept] | None = None
        self.busy = False
        """The form is being set to a row: what is on the page belongs to that row's run."""
        self.words = html("wb-loaded-words")
        self.undo = button("Undo", "wb-undo", "undo", "Back to what the form asked before")
        self.view = marked(ipywidgets.HBox([self.words, self.undo], layout=wide(display=HIDDEN)), "wb-loaded")
        self.undo.on_click(lambda _: self.back())
        question.on_change(self._changed)

    def take(self, row: Row) -> None:
        """The form asks what *row* answers: its problem, machine and link where they differ, and its schedule."""
        before = self._question.state, self._shown.kept
        self.busy = True
        try:
            if "operator" in row:
                self._question.load_row(row, protocol=False)
            else:  # a cell of the landscape is about the form's own problem
                self._question.load(row["scheme"], row["axes"])
        finally:
            self.busy = False
        changes = list(differences(before[0], self._question.state))
        wanted = row.get("machine", self._question.machine.value)
        missing = f" {wanted} is not described here: the form keeps {self._question.machine.label}."
        words = f"Loaded: {', '.join(changes)}." if changes else ""
        if wanted != self._question.machine.value:
            words += missing
        if words:
            self._before = before
            self.words.value = note_html(words.strip())
            self.view.layout.display = SHOWN

    def back(self) -> None:
        """The form asks what it asked before the click; a guess and a pinned timeline are there again."""
        if self._before is not None:
            (state, kept), self._before = self._before, None
            self._question.restore(state)
            self._shown.keep_again(kept)

    def _changed(self) -> None:
        """Another question of a person's own: an Undo would take that away, too."""
        if not self.busy:
            self._before = None
            self.view.layout.display = HIDDEN


def differences(before: State, after: State) -> Iterator[str]:
    """What differs between two questions besides their schedules, in words."""
    old, new = before.asked, after.asked
    if after.machine != before.machine:
        yield f"{machine(after.machine).title} instead of {machine(before.machine).title}"
    if new.operator != old.operator:
        yield f"{operator_title(new.operator)} instead of {operator_title(old.operator)}"
    if new.shape != old.shape:
        instead = f" instead of {_sizes(old.shape)}" if new.operator == old.operator else ""
        yield f"sizes {_sizes(new.shape)}{instead}"
    if new.world != old.world:
        yield f"{new.world} ranks instead of {old.world}"
    if new.dtype != old.dtype:
        yield f"{new.dtype} instead of {old.dtype}"
    if new.fabric != old.fabric:
        yield f"{fabric_words(new.fabric)} instead of {fabric_words(old.fabric)}"


def _sizes(shape: tuple[tuple[str, int | str], ...]) -> str:
    return "; ".join(f"{shape_title(name)} {value_title(size)}" for name, size in shape)
