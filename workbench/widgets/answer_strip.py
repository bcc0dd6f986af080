"""The answer in the strip on top: what to run for the form's problem, to use with one click or to measure.

It is made in a thread of its own, after a person has stopped changing the form, and once for each problem.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ipywidgets
from markupsafe import Markup

from cluster.seating import Ranks
from kernels.machine import Machine
from kernels.schemes import COMPARED
from kernels.trial import compared_as, protocol
from kernels.units import about, num_text
from workbench.experiment.answer import TO_MEASURE, Answer, Wish, answer
from workbench.experiment.experiment import Experiment
from workbench.experiment.forecast import Forecast
from workbench.experiment.form import FormQuestion
from workbench.experiment.links import known_link
from workbench.results.store import Store
from workbench.widgets.controls import FILLING, button, html, marked, note_html

SETTLE_S = 0.4
"""How long a question has to stay before its answer is looked for: a slider passes many."""
KEPT_MOST = 64
"""Answers that are kept; the oldest is dropped first."""
BUDGET_S = (1.0, 30.0, 3600.0)
"""Least, usual and most seconds of a measurement of the best."""
MEASURE_BEST = "Time the answer and the next best in one block"
LOOKING = "Looking through the schedules of this problem …"


@dataclass(frozen=True, slots=True)
class _Problem:
    """What an answer depends on in the form, without its schedule."""

    question: FormQuestion
    machine: Machine

    @property
    def key(self) -> tuple[Any, ...]:
        one = self.question
        place = self.machine.name, self.machine.digest, one.fabric, compared_as(one.protocol, self.machine.backend)
        return one.operator, one.shape, one.dtype, one.world, *place


class AnswerStrip:
    """The line `view`: the answer in a sentence, its reasons folded away, and two buttons."""

    def __init__(self, store: Store, ranks: Callable[[int, str, bool], Ranks | None]) -> None:
        self._store, self._ranks = store, ranks
        self.text = html("wb-answer-text", **FILLING)
        self.why = html("wb-answer-why", width="auto", flex="0 0 auto")
        self.use = button("Use it", "wb-use-answer", "check", "Set the form to this schedule", disabled=True)
        self.measure = button("Measure best five", "wb-measure-best", "play", MEASURE_BEST, disabled=True)
        least, usual, most = BUDGET_S
        self.budget = ipywidgets.BoundedFloatText(
            value=usual, min=least, max=most, step=1, description="in (s)", tooltip="At most so many seconds, ranks' "
            "start and compilation included: fewer schedules are timed where five do not fit",
            style={"description_width": "auto"}, layout=ipywidgets.Layout(width="92px", flex="0 0 auto"),
        )  # fmt: skip
        self.view = marked(ipywidgets.HBox([self.text, self.why, self.use, self.measure, self.budget]), "wb-answer")
        self.answer: Answer | None = None
        """The answer to the form's question; None while it is looked for, or where there is none."""
        self._answers: dict[tuple[Any, ...], Answer | str] = {}
        self._wanted: _Problem | None = None
        self._can_measure = False
        self._lock = threading.Lock()
        """Held while the wanted problem or the thread changes. Never held while an answer is made or drawn."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def ask(self, question: FormQuestion, machine: Machine) -> None:
        """Shows the answer for the problem of *question*, soon; nothing where it is shown already."""
        wanted = _Problem(question, machine)
        with self._lock:
            if self._wanted is not None and self._wanted.key == wanted.key:
                return
            self._wanted = wanted
            known = self._answers.get(wanted.key)
            if known is None and self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, name="workbench answer", daemon=True)
                self._thread.start()
        self._show(LOOKING if known is None else known)

    def forget(self) -> None:
        """Drops all answers: something was measured."""
        with self._lock:
            self._answers.clear()
            self._wanted = None

    def allow(self, can_measure: bool, refusal: str | None = None) -> None:
        """Whether the best may be measured now; *refusal* says why they never can be on this machine."""
        self._can_measure = can_measure and refusal is None
        self.measure.tooltip = refusal or MEASURE_BEST
        self._enable()

    def close(self) -> None:
        self._closed.set()

    def wait(self, seconds: float) -> bool:
        """Waits at most *seconds* for the answer, and returns whether it is shown; for tests and scripts."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return self._thread is None

    def _work(self) -> None:
        """Makes the answer of whatever is wanted, until nothing else is."""
        while True:
            wanted = self._wanted
            if self._closed.wait(SETTLE_S):
                return
            if wanted is not self._wanted:
                continue
            made = self._made(wanted) if wanted is not None else None
            with self._lock:
                if wanted is not None and made is not None:
                    self._answers[wanted.key] = made
                    while len(self._answers) > KEPT_MOST:
                        del self._answers[next(iter(self._answers))]
                if wanted is self._wanted:
                    self._thread = None
                    break
        if made is not None:
            self._show(made)

    def _made(self, wanted: _Problem) -> Answer | str:
        """The answer, or why there is none."""
        question, machine = wanted.question, wanted.machine
        try:
            problem, link = question.problem(), question.link()
            ranks = self._ranks(problem.world, machine.backend, link.across)
            linked = known_link(link, problem, machine, self._store, ranks.hardware if ranks else None)
            wish = Wish(schemes=COMPARED, settings={}, protocol=protocol(question.protocol))
            return answer(problem, machine, link, wish, self._store, linked=linked)
        except ValueError as refused:
            return f"There is no answer: {refused}"

    def _show(self, made: Answer | str) -> None:
        self.answer = made if isinstance(made, Answer) else None
        self.text.value = answer_html(made) if isinstance(made, Answer) else note_html(made)
        self.why.value = why_html(made) if isinstance(made, Answer) else ""
        self._enable()

    def _enable(self) -> None:
        self.use.disabled = self.answer is None
        self.measure.disabled = self.answer is None or not self._can_measure


def row_of_schedule(made: Answer) -> dict[str, Any]:
    """A row of the answer's schedule with today's axes: what loads its problem and schedule into a form."""
    return {**made.rows[0], "scheme": made.schedule.scheme, "axes": dict(made.schedule.axes),
            "fabric": str(made.fabric)}  # fmt: skip


def affordable(made: Answer, budget_s: float, forecast: Callable[[Experiment], Forecast], protocol: str) -> Experiment:
    """The experiment of as many of the best as fit into *budget_s*; ValueError where not even two do."""
    expected_s = 0.0
    for count in range(TO_MEASURE, 1, -1):
        experiment = made.best(count, protocol)
        expected_s = forecast(experiment).seconds or 0.0
        if expected_s <= budget_s:
            return experiment
    raise ValueError(
        f"The best {num_text(2, 'schedule')} and their baselines take {about(expected_s)}, and the budget is "
        f"{budget_s:g} s: {expected_s:.0f} > {budget_s:g}. Accepted: a longer budget, or a quicker protocol."
    )


def answer_html(made: Answer) -> str:
    """The answer, its beginning in bold, and how sure it is."""
    beginning, _, rest = made.text.partition(": ")
    sure = "" if made.unknown else Markup('<span class="wb-answer-sure">{}</span>').format(made.confidence)
    line = '<div class="wb-answer-line" title="{}">{} <b>{}:</b> {}</div>'
    return str(Markup(line).format(made.text, sure, beginning, rest))


def why_html(made: Answer) -> str:
    """Its axes, reasons and crossover, folded away."""
    reasons = [made.axes_text, *made.reasons, *made.remarks, *filter(None, [made.crossover_text])]
    lines = Markup("").join(Markup("<li>{}</li>").format(reason) for reason in reasons)
    # the line above is cut where the page is narrow: opened, it is here whole
    folded = '<details class="wb-note"><summary>Why</summary><div><p>{}</p><ul>{}</ul></div></details>'
    return str(Markup(folded).format(made.text, lines))
