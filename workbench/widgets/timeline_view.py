"""The last run, frozen into the cell's output: it is there when the notebook is opened, printed or exported.

A live chart needs a kernel; what is written here does not. It is drawn from the store, and never measured again.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets
from IPython.display import DisplayHandle
from markupsafe import Markup

from kernels.outcome import Estimate, Span
from kernels.schedule import Schedule
from kernels.trial import Trial
from kernels.units import seconds_typed
from workbench.charts import timeline
from workbench.charts.labels import fabric_words
from workbench.machines import machine
from workbench.naming import operator_title, schedule_title, shape_title, value_title
from workbench.reports.pictures import PICTURE, bundle
from workbench.reports.run_report import charts
from workbench.results.rows import current_problem_and_schedule
from workbench.results.store import Store
from workbench.widgets.controls import (
    HIDDEN,
    SHOWN,
    WIDE,
    button,
    html,
    marked,
    note_html,
    numbers_html,
    refusal_html,
    wide,
)
from workbench.widgets.form import FormState, QuestionForm
from workbench.widgets.form_fields import BASIC
from workbench.widgets.live_chart import LiveChart, ready

# The one schedule that the form shows: its timeline and its times, beside a guess and a pinned one.

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PinnedTimeline:
    """A timeline that is kept to compare others with."""

    words: str
    time_s: float
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class KeptTimelines:
    """What a person has put beside the question."""

    guess: str
    pinned: PinnedTimeline | None


class TimelineView:
    """`estimate` and `row` are of the schedule that the form shows; `draw` puts them into its controls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.guess = marked(
            ipywidgets.Text(
                description="Your guess (ms)",
                placeholder="1.5, or 150 µs, or 2 s",
                style=WIDE,
                tooltip="What do you expect? Write it down before you press Run: it is drawn beside the measurement",
                layout=wide(),
            ),
            "wb-guess",
        )
        self.guess_refusal = html("wb-guess-refusal")
        self.pin = button("Pin as A", "wb-pin", "thumb-tack", "Keep this timeline above the next ones, to compare")
        self.headline = html("wb-headline")
        self.timeline = marked(LiveChart(ready(timeline.live)), "wb-timeline")
        self.estimate: Estimate | None = None
        self.row: Row | None = None
        """The timed row of the schedule, if the run that is shown has one."""
        self.awaited: str | None = "measured"
        """The source that the schedule's own timeline will have; None where nothing is timed."""
        self._pinned: PinnedTimeline | None = None

    def freeze(self, played: Callable[[Trial], Estimate]) -> None:
        """Beside a time stands what was estimated before it was measured: a calibration changes no forecast.

        A sweep keeps no spans. As long as the machine is the same, they are made anew of the trial that was estimated,
        as *played* does: the form's own may have another link, where the one of that run is not known any more.
        """
        row, now = self.row, self.estimate
        before = None if row is None else self._store.estimate(row["run"], row["key"])
        if before is not None and now is not None:
            spans = before.spans
            if not spans and before.digest == now.digest:
                spans = (now if before.trial.key == now.trial.key else played(before.trial)).spans
            self.estimate = replace(before, spans=spans)

    def draw(self) -> None:
        """The timeline, and the times above it."""
        panels: dict[str, Sequence[Span]] = {}
        if self._pinned is not None:
            panels[f"A, {self._pinned.words}"] = self._pinned.spans
        if self.row is not None:
            panels[self.row["source"]] = self._spans_of(self.row)
        if self.estimate is not None:
            if self.row is None and self.awaited is not None:
                panels[self.awaited] = ()  # its place is kept: what is below must not jump when it comes
            panels["simulated"] = self.estimate.spans
        self.timeline.replace(timeline.DATASET, timeline.rows(panels))
        self.say_numbers()

    def _spans_of(self, row: Row) -> Sequence[Span]:
        return self._store.spans(row["run"], row["key"], row["source"], row.get("block"))

    def say_numbers(self) -> None:
        """The times above the timeline."""
        if self.estimate is None:
            self.headline.value = note_html("No estimate: this schedule is not legal. The form says why.")
            return
        timed = self.row or {}
        numbers = {
            "your guess": self.guess_s(),
            "estimated": self.estimate.time_s,
            str(timed.get("source")): timed.get("time_s"),
            "floor": timed.get("floor_s"),
            "A": None if self._pinned is None else self._pinned.time_s,
        }
        self.headline.value = numbers_html(numbers, self.estimate)

    def keep(self) -> None:
        """Keeps the timeline shown now as A above the following ones; pressing again lets it go."""
        if self._pinned is None and self.estimate is not None:
            row, estimate = self.row, self.estimate
            words = f"{_short(estimate.trial.schedule)}, {row['source'] if row else 'simulated'}"
            spans = self._spans_of(row) if row else estimate.spans
            self._pinned = PinnedTimeline(words, row["time_s"] if row else estimate.time_s, spans)
        else:
            self._pinned = None
        self.pin.description = "Pin as A" if self._pinned is None else "Unpin A"
        self.draw()

    def guess_s(self) -> float | None:
        """The student's guess in seconds; what is no time is no guess."""
        try:
            return seconds_typed(self.guess.value)
        except ValueError:
            return None

    def read_guess(self) -> None:
        """Shows the guess among the times, or says beside the field what would be accepted."""
        self.guess_refusal.value = ""
        if self.guess.value.strip():
            try:
                seconds_typed(self.guess.value)
            except ValueError as refused:
                self.guess_refusal.value = refusal_html(str(refused))
        self.say_numbers()

    @property
    def kept(self) -> KeptTimelines:
        """Guess and pinned timeline."""
        return KeptTimelines(self.guess.value, self._pinned)

    def keep_again(self, kept: KeptTimelines) -> None:
        """The guess and the pinned timeline of before."""
        self._pinned, self.guess.value = kept.pinned, kept.guess
        self.pin.description = "Pin as A" if self._pinned is None else "Unpin A"
        self.draw()

    def forget(self) -> None:
        """Guess and pinned timeline go: they are about another question."""
        self._pinned, self.guess.value = None, ""
        self.pin.description = "Pin as A"


def is_of(trial: Trial) -> Callable[[Row], bool]:
    """Whether a row is of the schedule of *trial*."""
    return lambda row: row["scheme"] == trial.schedule.scheme and current_problem_and_schedule(row)[1] == trial.schedule


def _short(schedule: Schedule) -> str:
    """The scheme and the one axis of it that everybody sees."""
    return schedule_title(schedule.scheme, {axis: schedule[axis] for axis in BASIC.get(schedule.scheme, ())})


# A mark that was clicked becomes the form's question; what that changes besides the schedule is said, with an Undo.


class RowLoader:
    """`take` sets the form to a row of the charts; `view` says what changed, and takes it back."""

    def __init__(self, question: QuestionForm, shown: TimelineView) -> None:
        self._question, self._shown = question, shown
        self._before: tuple[FormState, KeptTimelines] | None = None
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


def differences(before: FormState, after: FormState) -> Iterator[str]:
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


# The last run, frozen into the cell's output: it is there when the notebook is opened, printed or exported.

PLACES = 3
"""Charts that a frozen run shows at the most."""
NOTHING: list[dict[str, Any]] = [{"text/plain": ""}] * PLACES
PAUSE_SECONDS = 3.0
"""A page that opens is busy for so long: pictures that can wait do."""


class FrozenOutput:
    """Places in a cell's output that are filled when a run has ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handles = [DisplayHandle() for _ in range(PLACES)]
        self.can_wait = False
        """Somebody will see the pictures come; a notebook that is run for a report ends with its last cell."""
        self._shown = False
        self._drawn: tuple[tuple[str | None, int], list[dict[str, Any]]] = (None, 0), NOTHING
        """Which run was drawn last and how many rows it had, and its pictures."""
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        """Pictures are awaited, or no more. Held for moments, never while drawing."""
        self._awaited: str | None = None
        """The run whose pictures are still to be drawn."""
        self._due = 0.0

    def show(self, run: str | None) -> None:
        """Makes the places in this cell, with *run*, which has ended, in them if there is one.

        A page that is loaded anew shows them once more, and they are filled wherever they are shown.
        """
        self._shown = True
        later = self.can_wait and run != self._drawn[0][0]
        for number, content in enumerate(NOTHING if later else self._contents(run)):
            self._handles[number].display(content, raw=True, metadata=_metadata(run, number))
        if later and run is not None:
            self.freeze_soon(run, PAUSE_SECONDS)

    def freeze(self, run: str) -> None:
        """Fills the places with *run*; called from any thread. An explorer that is not shown has none."""
        if self._shown:
            for number, content in enumerate(self._contents(run)):
                self._handles[number].update(content, raw=True, metadata=_metadata(run, number))

    def freeze_soon(self, run: str, pause_s: float = 0.0) -> None:
        """The same in the background: three pictures are drawn, which takes a second."""
        with self._news:
            self._awaited, self._due = run, time.monotonic() + pause_s
            self._news.notify_all()
            if not self.busy:
                self._thread = threading.Thread(target=self._draw_awaited, name="workbench freeze", daemon=True)
                self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether pictures are still being drawn."""
        return self._thread is not None and self._thread.is_alive()

    def _draw_awaited(self) -> None:
        """One thread draws, however often it is asked to: what is asked while it waits or draws comes next."""
        while True:
            with self._news:
                while self._awaited is not None and (pause_s := self._due - time.monotonic()) > 0:
                    self._news.wait(pause_s)
                run, self._awaited = self._awaited, None
                if run is None:
                    self._thread = None
                    return
            self.freeze(run)

    def begin(self) -> None:
        """Another run goes on: pictures of the one before would disturb it."""
        self.close()

    def close(self) -> None:
        """What is not drawn yet is drawn no more."""
        with self._news:
            self._awaited = None
            self._news.notify_all()

    def _contents(self, run: str | None) -> list[dict[str, Any]]:
        rows = [] if run is None else self._store.rows(run)
        if self._drawn[0] != (run, len(rows)):
            self._drawn = (run, len(rows)), self._pictures(run or "", rows)
        return self._drawn[1]

    def _pictures(self, run: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        drawn = charts(self._store, run, rows)
        bundles = [dict(bundle(chart)) for _, chart in drawn[:PLACES]]
        for number, content in enumerate(bundles):
            content["text/html"] = _folded(bundles, run) if number == 0 else ""
        return [*bundles, *NOTHING[len(bundles) :]]


def _metadata(run: str | None, place: int) -> dict[str, Any]:
    return {"workbench": {"run": run, "place": place}}


def _folded(bundles: list[dict[str, Any]], run: str) -> str:
    """A live notebook shows the explorer above, so the copies are folded away there; reports draw the charts."""
    pictures = [
        Markup('<img alt="{}" src="data:image/svg+xml;base64,{}"><br>').format(
            content["text/plain"], base64.b64encode(str(content[PICTURE]).encode()).decode()
        )
        for content in bundles
    ]
    folded = "<details><summary>Kept in this notebook: run {}</summary>{}</details>"
    return str(Markup(folded).format(run, Markup("").join(pictures)))
