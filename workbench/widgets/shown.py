"""The one schedule that the form shows: its timeline and its times, beside a guess and a pinned one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets

from kernels.outcome import Estimate, Span
from kernels.schedule import Schedule
from kernels.trial import Trial
from kernels.units import seconds_typed
from workbench.charts import timeline
from workbench.naming import schedule_title
from workbench.one_problem import asked_today
from workbench.store import Store
from workbench.widgets.axis_rows import BASIC
from workbench.widgets.controls import WIDE, button, html, marked, wide
from workbench.widgets.live_chart import LiveChart
from workbench.widgets.live_spec import ready
from workbench.widgets.words import note_html, numbers_html, refusal_html

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pinned:
    """A timeline that is kept to compare others with."""

    words: str
    time_s: float
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a person has put beside the question."""

    guess: str
    pinned: Pinned | None


class Shown:
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
        self._pinned: Pinned | None = None

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
            self._pinned = Pinned(words, row["time_s"] if row else estimate.time_s, spans)
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
    def kept(self) -> Kept:
        """Guess and pinned timeline."""
        return Kept(self.guess.value, self._pinned)

    def keep_again(self, kept: Kept) -> None:
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
    return lambda row: row["scheme"] == trial.schedule.scheme and asked_today(row)[1] == trial.schedule


def _short(schedule: Schedule) -> str:
    """The scheme and the one axis of it that everybody sees."""
    return schedule_title(schedule.scheme, {axis: schedule[axis] for axis in BASIC.get(schedule.scheme, ())})
