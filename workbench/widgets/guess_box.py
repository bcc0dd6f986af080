"""A box for a guess that locks on Reveal; then guess, estimate and measurement are drawn together, and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets
from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from kernels.files import Failed
from workbench.charts import guess as chart
from workbench.charts.theme import GUESS
from workbench.lessons import ledger
from workbench.lessons.questions import OR, Answer, Guessed, Question, value_text
from workbench.reports.pictures import bundle
from workbench.widgets.controls import marked

YOURS, BY_DEFAULT = "your guess", "default guess"


def somebody_is_there() -> bool:
    """Whether a person can type: a program that runs a notebook forbids its kernel to ask for input."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return False
    message = kernel.get_parent("shell") or {}
    return bool(message.get("content", {}).get("allow_stdin", False))


class GuessBox:
    """One question: its box, its button, and what it has revealed."""

    def __init__(self, lesson: int, name: str, question: Question) -> None:
        self.lesson, self.name, self.question = lesson, name, question
        self.guess: Guessed | None = None
        """The locked guess; None before Reveal."""
        self.is_default = False
        self.answer: Answer | None = None
        """What was revealed."""
        self._handle: DisplayHandle | None = None
        self.field = marked(self._field(), "wb-guess-field")
        self.button = marked(ipywidgets.Button(description="Reveal", button_style="primary"), "wb-guess-reveal")
        self.times_here = marked(
            ipywidgets.Checkbox(value=False, indent=False, description="measure it on this computer (10 s)"),
            "wb-guess-here",
        )
        self.message = marked(ipywidgets.HTML(), "wb-guess-message")
        self.button.on_click(lambda _: self.reveal())
        shown = [self.field, ipywidgets.Label(question.unit), self.button]
        if question.timed is not None:
            shown.append(self.times_here)
        heading = ipywidgets.HTML(f"<b>Your guess.</b> {question.text}")
        row = ipywidgets.HBox(shown, layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"))
        self.view = marked(ipywidgets.VBox([heading, row, self.message]), "wb-guess-box")

    def _field(self) -> Any:
        if self.question.choices:
            return ipywidgets.Dropdown(options=[("choose …", ""), *((each, each) for each in self.question.choices)],
                                       value="", layout=ipywidgets.Layout(width="260px"))  # fmt: skip
        return ipywidgets.Text(placeholder="a number", layout=ipywidgets.Layout(width="140px"))

    @property
    def is_locked(self) -> bool:
        return self.guess is not None

    def show(self) -> None:
        """Shows the box in this cell; where nobody is at the keyboard, the default guess and what it reveals."""
        if not somebody_is_there():
            if not self.is_locked:
                self.lock(self.question.default, default=True)
            self._draw_new()
            return
        if self.is_default:
            self.guess, self.is_default, self.answer = None, False, None
        if not self.is_locked and (entry := ledger.locked(self.lesson, self.name)) is not None:
            self._join(entry["guess"])
        display(self.view)
        self._draw_new()

    def _join(self, guess: Guessed) -> None:
        """Shows a guess that an earlier kernel locked: the first guess counts."""
        try:
            self.guess = self.question.read(guess)
        except ValueError:  # a question that was another one then
            return
        self.field.value = str(self.guess) if self.question.choices else f"{self.guess:g}"
        self._close("You locked this guess before. The first one counts.")
        self.answer = self.question.answer()

    def _draw_new(self) -> None:
        shown = self.picture() if self.answer is not None else {"text/plain": ""}
        self._handle = display(shown, raw=True, display_id=True)

    def reveal(self) -> None:
        """Locks what is in the box and shows the answer; a guess that is none is refused in one sentence."""
        if self.is_locked:
            return
        try:
            guess = self.question.read(self.field.value)
        except ValueError as refused:
            self.message.value = as_html(refused)
            return
        if self.times_here.value and self.question.timed is not None:
            self._close("Measuring on two CPU ranks of this computer. It takes about ten seconds.")
            self.guess = guess
            self._in_background(self.question.timed, lambda answer, trouble: self._timed(guess, answer, trouble))
            return
        try:
            self.lock(guess)
        except ValueError as unreadable:  # a recording that is missing or damaged
            self.guess = None
            self.message.value = as_html(unreadable)

    def _timed(self, guess: Guessed, answer: Answer | None, trouble: str) -> None:
        self.lock(guess, answer=answer)
        if trouble:
            self.message.value = as_html(
                f"Nothing could be measured here ({trouble}). The recorded answer is shown instead."
            )

    def lock(self, guess: Guessed, *, default: bool = False, answer: Answer | None = None) -> None:
        """Keeps *guess* in the ledger, and draws it with the *answer*: a measured one, or else that of the question."""
        self.answer = answer or self.question.answer()
        self.guess, self.is_default = guess, default
        entry = {
            "lesson": self.lesson, "question": self.name, "guess": guess, "unit": self.question.unit,
            "estimate": self.answer.estimate, "measured": self.answer.measured, "source": self.answer.source,
            "default": default,
        }  # fmt: skip
        self._close(as_html(ledger.add(entry)))
        if self._handle is not None:
            self._handle.update(self.picture(), raw=True)

    def _close(self, message: str) -> None:
        self.field.disabled = self.button.disabled = self.times_here.disabled = True
        self.button.description, self.message.value = "Locked", message

    def _in_background(self, timed: Callable[[], Answer], done: Callable[[Answer | None, str], None]) -> None:
        """Calls *timed* in a thread, and *done* in the thread of the kernel."""
        kernel = getattr(get_ipython(), "kernel", None)

        def work() -> None:
            answer, trouble = None, ""
            try:
                answer = timed()
            except (ValueError, OSError, RuntimeError, Failed) as error:
                trouble = str(error).rstrip(".")[:200]
            if kernel is None:
                done(answer, trouble)
            else:
                kernel.io_loop.add_callback(done, answer, trouble)

        threading.Thread(target=work, daemon=True, name="guess").start()

    def picture(self) -> dict[str, Any]:
        """The chart of guess, estimate and answer, for a cell's output."""
        assert self.guess is not None
        assert self.answer is not None
        name = BY_DEFAULT if self.is_default else YOURS
        verdict = self.question.verdict(self.guess, self.answer)
        sentences = [verdict.replace("Your guess", "The default guess") if self.is_default else verdict,
                     f"Estimate: {self.answer.estimated_by}. Answer: {self.answer.where}."]  # fmt: skip
        draw = self._choices if self.question.choices else self._numbers
        axis = self.answer.unit if self.question.choices else f"In {self.question.unit}"
        return bundle(chart.chart(self.question.text, sentences, axis, draw(name)), themed=True)

    def _numbers(self, name: str) -> list[chart.GuessMark]:
        answer, unit = self.answer, self.question.unit
        assert answer is not None
        assert not isinstance(self.guess, str)
        pairs = ((name, GUESS, self.guess), ("estimate", "estimated", answer.estimate),
                 (answer.source, answer.source, answer.measured))  # fmt: skip
        return [chart.GuessMark(row, look, float(value or 0), value_text(value or 0.0, unit))
                for row, look, value in pairs]  # fmt: skip

    def _choices(self, name: str) -> list[chart.GuessMark]:
        answer = self.answer
        assert answer is not None
        right = str(answer.measured).split(OR)
        marks = []
        for choice in self.question.choices:
            row = f"{choice} ✓" if choice in right else choice
            marks += [chart.GuessMark(row, each.source, each.value, value_text(each.value))
                      for each in answer.values if each.choice == choice]  # fmt: skip
            if choice == self.guess or not any(each.choice == choice for each in answer.values):
                marks.append(chart.GuessMark(row, GUESS, None, f"▽ {name}" if choice == self.guess else ""))
        return marks


def as_html(text: object) -> str:
    """*text* as HTML, in which markup is text."""
    from markupsafe import escape

    return str(escape(str(text)))
