"""The face of a lesson's notebook: its place in the list, its guesses, its tasks, its checks and its ledger.

    page = lesson_page(2)
    page.guess("best_pieces")
    page.locked("best_pieces")
    page.check("cutting_stops_paying", 8)

Charts and tables that a lesson draws are imported from here as well, so that its notebook has one line of imports.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from IPython.display import Markdown, display

from kernels.operators import OPERATORS
from kernels.schemes import tile_order
from kernels.units import bytes_text, percent_text, seconds_text
from workbench import lessons
from workbench.charts import accuracy, landscape, residency, scale_out, share_of_ideal, sweep, theme, timeline
from workbench.lesson import beside, lesson, table
from workbench.lessons import ledger
from workbench.lessons.questions import Attempts, Exercise, Question
from workbench.reports.export import export
from workbench.reports.pictures import enable_renderer
from workbench.widgets.guess_box import GuessBox, somebody_is_there

__all__ = [
    "OPERATORS", "AnswerFirst", "ExercisePage", "GuessFirst", "LessonPage", "accuracy", "alt", "appendix_page",
    "beside", "bytes_text", "landscape", "lesson", "lesson_page", "pd", "percent_text", "residency", "scale_out",
    "seconds_text", "share_of_ideal", "sweep", "table", "theme", "tile_order", "timeline",
]  # fmt: skip

SESSION = "JPY_SESSION_NAME"
"""Environment variable in which Jupyter says which notebook a kernel is for."""


class GuessFirst(ValueError):
    """A cell that shows an answer ran before the guess was locked; a notebook shows the sentence alone."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class AnswerFirst(GuessFirst):
    """A cell that shows the solution of an exercise ran before its answer."""


class ExercisePage:
    """The exercises of one notebook in one kernel."""

    def __init__(self, name: str, module: str, exercises: dict[str, Exercise]) -> None:
        self.name = name
        """What refusals call the notebook."""
        self.kit = import_module(f"{lessons.__name__}.{module}")
        """What the questions and exercises are made of, for a student's own tries."""
        self.exercises = exercises
        self.attempts = Attempts()

    def task(self, name: str) -> None:
        """Shows the task of exercise *name*."""
        _refuse(name, self.exercises, "exercise", self.name)
        display(Markdown(self.exercises[name].task))

    def check(self, name: str, value: Any) -> None:
        """Says whether *value* is right, and what is wrong with it; each wrong try adds a hint, and then the solution.

        Only the value counts, never the cell.
        """
        _refuse(name, self.exercises, "exercise", self.name)
        _, sentence = self.attempts.check(name, self.exercises[name], value)
        print(f"{name.replace('_', ' ')}: {sentence}")

    def solved(self) -> None:
        """Raises AnswerFirst unless each exercise is solved, or its solution was shown; never where nobody is there."""
        missing = [name.replace("_", " ") for name in self.exercises if name not in self.attempts.over]
        if missing and somebody_is_there():
            raise AnswerFirst(f"Answer first: this cell shows the solution of {' and of '.join(missing)}.\nIt opens "
                              "after a right answer, or when the check has shown the solution.")  # fmt: skip


class LessonPage(ExercisePage):
    """One lesson in one kernel."""

    def __init__(self, number: int) -> None:
        self.entry = lessons.lesson_entry(number)
        super().__init__(f"Lesson {number}", self.entry.questions, lessons.exercises_of(number))
        self.questions: dict[str, Question] = lessons.questions_of(number)
        self.boxes: dict[str, GuessBox] = {}

    def box(self, name: str) -> GuessBox:
        """The one box of question *name*; ValueError lists the names."""
        _refuse(name, self.questions, "question", self.name)
        if name not in self.boxes:
            self.boxes[name] = GuessBox(self.entry.number, name, self.questions[name])
        return self.boxes[name]

    def guess(self, name: str) -> None:
        """Shows the box for question *name*."""
        self.box(name).show()

    def locked(self, *names: str) -> None:
        """Raises GuessFirst unless the guesses *names* are locked; all of the lesson if none is named."""
        for name in names or tuple(self.questions):
            box = self.box(name)
            if not box.is_locked and somebody_is_there():
                raise GuessFirst(f"Guess first: the box about {name.replace('_', ' ')!r} is not locked. Run its cell "
                                 "above, press Reveal there, then run this cell again.")  # fmt: skip

    def guesses(self) -> pd.DataFrame:
        """All guesses of all lessons, as they go into the report; the score is printed above."""
        every = ledger.entries()
        print(ledger.score_text(every))
        return ledger.table(every)

    def report(self, name: str) -> None:
        """Writes this notebook, as it was saved, as a page called *name* next to it; says where, or how to do it."""
        notebook = Path(os.environ.get(SESSION, ""))
        if somebody_is_there() and notebook.suffix == ".ipynb" and notebook.is_file():
            written = export(notebook, notebook.with_name(name), kind="html")
            print(f"{written} has your report, of the notebook as it was last saved.")
        else:
            print(f"To write the report: `workbench report {self.entry.file} -o {name}`, in the notebook's folder.")


def _refuse(name: str, known: dict[str, Any], what: str, where: str) -> None:
    if name not in known:
        raise ValueError(f"{where} has no {what} {name!r}. Accepted: {', '.join(known) or 'none'}.")


_pages: dict[int, LessonPage] = {}
_appendices: dict[str, ExercisePage] = {}


def appendix_page(file: str) -> ExercisePage:
    """The exercises of the appendix in notebook *file*, in this kernel."""
    if file not in _appendices:
        module = lessons.appendix_module(file)
        _appendices[file] = ExercisePage("This appendix", module, lessons.appendix_exercises(file))
    return _appendices[file]


def lesson_page(number: int) -> LessonPage:
    """The page of lesson *number* in this kernel, made ready for charts and tables; prints where the lesson is."""
    theme.enable()
    enable_renderer()
    pd.set_option("display.max_colwidth", None)
    display(Markdown(lessons.place_text(number)))
    if number not in _pages:
        _pages[number] = LessonPage(number)
    return _pages[number]
