"""The schedule that the form shows with its timeline, loading one by a click, and frozen copies of the last run."""

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

from kernels.fabric import TIMES_ARE_NOT
from kernels.machine import Machine
from kernels.outcome import Estimate, Span, trial_row
from kernels.schedule import Schedule
from kernels.schemes import axis_rules
from kernels.trial import Trial
from kernels.units import seconds_text, seconds_typed
from workbench.charts import parting, theme, timeline
from workbench.charts.labels import fabric_label
from workbench.experiment.links import drawn_ratio
from workbench.machines import machine as machine_named
from workbench.naming import operator_title, schedule_title, shape_title, short_title, value_title
from workbench.reports import traces
from workbench.reports.pictures import PICTURE, bundle
from workbench.reports.run_report import charts
from workbench.results.rows import Row, current_problem_and_schedule
from workbench.results.store import Store
from workbench.results.timelines import BusyLanes, end_s
from workbench.simulator.predict import compute_alone_seconds
from workbench.widgets.controls import (
    FILLING,
    HIDDEN,
    SHOWN,
    button,
    html,
    marked,
    note_html,
    numbers_html,
    refusal_html,
    share_text,
    trust_text,
    wide,
)
from workbench.widgets.download import Download, file_stem
from workbench.widgets.form import FormState, QuestionForm
from workbench.widgets.live_chart import Click, LiveChart, Selection, ready
from workbench.widgets.ruler import Gain, Mark, Ruler, estimated_gain, measured_gain, missing_gain_text

# The schedule that the form shows: its timeline and times, with a guess and a pinned timeline.

SPANS, DIFFERENCE = "Timeline", "Difference"
"""The two ways to look at a measured and a simulated timeline."""
NO_DIFFERENCE = (
    "There is nothing to compare yet: the difference needs a timed and a simulated timeline of this schedule."
)


@dataclass(frozen=True, slots=True)
class PinnedTimeline:
    """A timeline that a person pinned to compare others with."""

    label: str
    time_s: float
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class KeptTimelines:
    """The guess and the pinned timeline of a person, to restore them later."""

    guess: str
    pinned: PinnedTimeline | None


class TimelineView:
    """The timeline and times of the form's schedule: `draw` shows its `estimate` and timed `row`.

    `view` is the timeline with its tools and words; guess, pin and headline have their places elsewhere.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.guess = marked(
            ipywidgets.Text(
                description="Guess (ms)",
                placeholder="1.5, 150 µs",
                style={"description_width": "auto"},
                tooltip="What do you expect? Write it down before you press Run: it is drawn next to the measurement",
                layout=ipywidgets.Layout(**FILLING),
            ),
            "wb-guess",
        )
        self.guess_refusal = html("wb-guess-refusal")
        self.pin = button("Pin as A", "wb-pin", "thumb-tack", "Keep this timeline above the next ones, to compare")
        self.headline, self.ruler = html("wb-headline"), Ruler()
        """The times as text, which screen readers read, and as marks on one axis."""
        self.gain: Gain | None = None
        """The speed-up of the schedule over the best sequential one; None where there is none to tell."""
        self.timeline = marked(LiveChart(ready(timeline.live)), "wb-timeline")
        self.difference = marked(LiveChart(ready(parting.live)), "wb-difference")
        self.difference.layout.display = HIDDEN
        self.look, self.with_path = _look_buttons(), _path_box()
        self.perfetto = marked(
            Download("Perfetto", "Both timelines of this schedule as a file for ui.perfetto.dev", self.trace),
            "wb-perfetto",
        )
        self.words = html("wb-timeline-words")
        self.tools = marked(
            ipywidgets.HBox([self.look, self.with_path, self.perfetto], layout=wide(align_items="center")),
            "wb-timeline-tools",
        )
        self.view = ipywidgets.VBox([self.tools, self.timeline, self.difference, self.words], layout=wide())
        self.estimate: Estimate | None = None
        self.unestimated = ""
        """Why a question that is not refused has no estimate; empty where it has one, or is refused."""
        self.refused = ""
        """Why the newest question with neither of them is refused: the form shows all of it."""
        self.row: Row | None = None
        """The timed row of the schedule, if the shown run has one."""
        self._alike: Sequence[Row] | None = ()
        """The rows of the problem of `row`; None while a run goes on, which may have a baseline later."""
        self.awaited: str | None = "measured"
        """The source of the schedule's later timeline; None if nothing is timed."""
        self.at_run: Estimate | None = None
        """The estimate that was shown when Run was pressed last; None before."""
        self._pinned: PinnedTimeline | None = None
        self._panels: dict[str, Sequence[Span] | None] = {}
        self._paths: timeline.Paths = {}
        self._busy: list[BusyLanes] | None = None
        """The busy times of the panels, once a range of them is measured."""
        self.range_s: tuple[float, float] | None = None
        """The range of time that a person measures."""
        self.look.observe(lambda _: self._draw_panels(), "value")
        self.with_path.observe(lambda _: self._draw_panels(), "value")
        self.timeline.on_selection(self._dragged)
        self.timeline.on_click(self._clicked)
        self.timeline.on_escape(lambda: self.measure(None))

    def freeze(self, played: Callable[[Trial], Estimate]) -> None:
        """Replaces the estimate by the one that was stored before the measurement, which no later calibration changes.

        A sweep stores no spans. If the machine is unchanged, *played* computes them again for the estimated trial, as
        the form's own estimate may have another link.
        """
        row, now = self.row, self.estimate
        before = None if row is None else self._store.estimate(row["run"], row["key"])
        if before is not None and now is not None:
            spans = before.spans
            if not spans and before.digest == now.digest:
                spans = (now if before.trial.key == now.trial.key else played(before.trial)).spans
            self.estimate = replace(before, spans=spans)

    def find_gain(self, rows: Sequence[Row], machine: Machine, *, goes_on: bool = False) -> None:
        """Finds the speed-up of the schedule: measured among the *rows* of its problem where it was timed, else by
        estimate on *machine*. While a run *goes_on*, nothing says why there is none: a baseline may come."""
        self._alike = None if goes_on else rows
        if self.row is not None:
            self.gain = measured_gain(self.row, rows)
        else:
            self.gain = None if self.estimate is None else estimated_gain(self.estimate, machine)

    def ratio_note(self, machine: Machine) -> str | None:
        """The ratios of wire to computation that are drawn, in seconds, where one is not that of the slider; else
        None."""
        if self.estimate is None:
            return None
        trial, computes_s = self.estimate.trial, {}
        if self.row is not None and self.row.get("compute_s"):
            computes_s[self.row["source"]] = self.row["compute_s"]
        if self.estimate.digest == machine.digest:  # otherwise nobody knows what an older machine file had
            computes_s[self.estimate.source] = compute_alone_seconds(trial.problem, machine, trial.fabric)
        return drawn_ratio(trial.fabric, trial.problem, computes_s)

    def draw(self) -> None:
        """Draws the timeline, and the times above it."""
        panels: dict[str, Sequence[Span] | None] = {}
        if self._pinned is not None:
            panels[f"A, {self._pinned.label}"] = self._pinned.spans
        if self.row is not None:
            panels[self.row["source"]] = self._spans_of(self.row)
        if self.estimate is not None:
            if self.row is None and self.awaited is not None:
                panels[self.awaited] = None
            panels["simulated"] = self.estimate.spans
        self._panels, self._busy = panels, None
        self._draw_panels()
        self.show_numbers()

    def _draw_panels(self) -> None:
        """Draws the chart that is open, and the words below it."""
        is_open = self.look.value == SPANS
        self.timeline.layout.display, self.difference.layout.display = (
            (SHOWN, HIDDEN) if is_open else (HIDDEN, SHOWN)
        )  # fmt: skip
        if is_open:
            self._paths = timeline.paths(self._panels) if self.with_path.value else {}
            self.timeline.replace(timeline.DATASET, timeline.rows(self._panels, through=self._paths))
            self._draw_range()
            return
        measured, simulated = self._compared()
        is_known = bool(measured and simulated)
        self.difference.replace(parting.DATASET, parting.rows(measured, simulated) if is_known else [])
        source = str((self.row or {}).get("source"))
        self._say(parting.sentences(measured, simulated, source) if is_known else [NO_DIFFERENCE])

    def _compared(self) -> tuple[Sequence[Span], Sequence[Span]]:
        """The timed and the simulated timeline of the schedule; empty where there is none."""
        timed = self._panels.get(self.row["source"]) if self.row is not None else None
        return timed or (), self._panels.get("simulated") or ()

    def _say(self, lines: Sequence[str]) -> None:
        self.words.value = note_html(" ".join(lines))

    # A range of the time axis, measured by dragging, or by a click or Enter on bars.

    def measure(self, range_s: tuple[float, float] | None) -> None:
        """Measures from the first to the second second of *range_s*; None ends that."""
        self.range_s = range_s
        self._draw_range()

    def _draw_range(self) -> None:
        lines = timeline.path_texts(self._paths)
        records: list[dict[str, Any]] = []
        if self.range_s is not None:
            self._busy = self._busy or timeline.busy_lanes(self._panels)
            records = timeline.range_rows(self._busy, *self.range_s)
            lines = [timeline.range_text(list(self._panels), self._busy, *self.range_s)]
        self.timeline.replace(timeline.RANGE, records)
        self._say(lines)

    def _dragged(self, selection: Selection) -> None:
        if selection.name != timeline.DRAG or not isinstance(selection.value, Mapping):
            return
        for edges in selection.value.values():  # none when the mouse is released: what it reached stays
            last_s = max((end_s(spans or ()) for spans in self._panels.values()), default=0.0)
            start_s, stop_s = (min(max(edge / 1e3, 0.0), last_s) for edge in sorted(edges))
            self.measure((start_s, stop_s))

    def _clicked(self, click: Click) -> None:
        """Measures a bar; with Shift also all from the range before."""
        if click.layer != "bars":
            return
        start_s, stop_s = click.datum["start_ms"] / 1e3, click.datum["stop_ms"] / 1e3
        if click.shift and self.range_s is not None:
            start_s, stop_s = min(start_s, self.range_s[0]), max(stop_s, self.range_s[1])
        self.measure((start_s, stop_s))

    def trace(self) -> tuple[str, bytes]:
        """The name and content of a file for Perfetto: the schedule's own timelines, without the pinned one.

        ValueError if there is none.
        """
        of_schedule = self.row or (trial_row(self.estimate.trial) if self.estimate else None)
        title = schedule_title(of_schedule["scheme"], of_schedule["axes"]) if of_schedule else "No schedule"
        panels = {name: spans for name, spans in self._panels.items() if spans and not name.startswith("A, ")}
        return f"{file_stem(title)}.perfetto.json", traces.timelines(title, panels)

    def _spans_of(self, row: Row) -> Sequence[Span]:
        """The timeline of *row*, or that of the same schedule in another block, where its own kept none."""
        known = row["run"], row["key"], row["source"]
        return self._store.spans(*known, row.get("block")) or self._store.spans(*known)

    def show_numbers(self) -> None:
        """Shows the times above the timeline."""
        if self.estimate is None and not self.unestimated:
            what, _, _ = self.refused.partition(". ")
            refused = f"No estimate: {what.rstrip('.')}. The form says what is accepted."
            self.headline.value = note_html(refused)
            self.ruler.show([], note=refused)
            return
        timed = self.row or {}
        numbers = {
            "your guess": self.guess_s(),
            "estimated": self.estimate.time_s if self.estimate else None,
            str(timed.get("source")): timed.get("time_s"),
            "floor": timed.get("floor_s"),
            "A": None if self._pinned is None else self._pinned.time_s,
        }
        self.headline.value = numbers_html(numbers, self.estimate)
        moved = moved_text(self.at_run, self.estimate)
        notes = [moved, share_text(self.estimate), trust_text(self.estimate)]
        self.headline.value += note_html(moved) if moved else ""
        if self.unestimated:
            notes.append(f"{TIMES_ARE_NOT} {self.unestimated}")
            self.headline.value += note_html(notes[-1])
        is_missing = self.gain is None and self._alike is not None
        if is_missing and (missing := missing_gain_text(self.row, self._alike or ())):
            notes.insert(0, missing)
            self.headline.value += note_html(missing)
        if self.gain is not None:
            self.headline.value += note_html(f"{self.gain.text} {self.gain.over}: {self.gain.why}")
        self.ruler.show(list(self._marks()), self.gain, " ".join(filter(None, notes)))

    def _marks(self) -> Iterator[Mark]:
        """The known times of the shown schedule, for the ruler."""
        timed, estimate = self.row or {}, self.estimate
        if (guess_s := self.guess_s()) is not None:
            yield Mark(name="your guess", seconds=guess_s, look=theme.GUESS)
        if self._pinned is not None:
            yield Mark(name="A", seconds=self._pinned.time_s, look=theme.FLOOR)
        if timed.get("floor_s"):
            yield Mark(name="floor", seconds=timed["floor_s"], look=theme.FLOOR)
        if estimate is not None:
            yield Mark(
                name="estimated", seconds=estimate.time_s, look="estimated", low_s=estimate.low_s,
                high_s=estimate.high_s, colour=theme.SCHEME_COLOURS[estimate.trial.schedule.scheme],
            )  # fmt: skip
        if timed.get("time_s"):
            source, scheme = str(timed["source"]), str(timed["scheme"])
            yield Mark(name=source, seconds=timed["time_s"], look=source, low_s=timed.get("low_s"),
                       high_s=timed.get("high_s"), colour=theme.SCHEME_COLOURS[scheme])  # fmt: skip

    def toggle_pin(self) -> None:
        """Pins the shown timeline as A above later ones, or removes the pinned one."""
        if self._pinned is None and self.estimate is not None:
            row, estimate, schedule = self.row, self.estimate, self.estimate.trial.schedule
            label = f"{short_title(schedule.scheme, dict(schedule.axes))}, {row['source'] if row else 'simulated'}"
            spans = self._spans_of(row) if row else estimate.spans
            self._pinned = PinnedTimeline(label, row["time_s"] if row else estimate.time_s, spans)
        else:
            self._pinned = None
        self.pin.description = "Pin as A" if self._pinned is None else "Unpin A"
        self.draw()

    def guess_s(self) -> float | None:
        """The student's guess in seconds; None if it is empty or no time."""
        try:
            return seconds_typed(self.guess.value)
        except ValueError:
            return None

    @property
    def guess_of(self) -> tuple[float | None, Callable[[Row], bool]]:
        """The guess in seconds, or None, and a test whether a row is of the schedule that it is about."""
        estimate = self.estimate
        return (None, lambda row: False) if estimate is None else (self.guess_s(), is_of(estimate.trial))

    def read_guess(self) -> None:
        """Shows the guess among the times, or next to its field why it is refused."""
        self.guess_refusal.value = ""
        if self.guess.value.strip():
            try:
                seconds_typed(self.guess.value)
            except ValueError as refused:
                self.guess_refusal.value = refusal_html(str(refused))
        self.show_numbers()

    @property
    def kept(self) -> KeptTimelines:
        """The guess and the pinned timeline."""
        return KeptTimelines(self.guess.value, self._pinned)

    def restore(self, kept: KeptTimelines) -> None:
        """Restores an earlier guess and pinned timeline."""
        self._pinned, self.guess.value = kept.pinned, kept.guess
        self.pin.description = "Pin as A" if self._pinned is None else "Unpin A"
        self.draw()

    def forget(self) -> None:
        """Removes the guess and the pinned timeline, which are about another question."""
        self._pinned, self.guess.value, self.range_s = None, "", None
        self.pin.description = "Pin as A"


LINK_FOLLOWS = "the link's speed follows the computation alone, which has been measured since"
FILE_IS_NEW = "the machine's file is another one now"


def moved_text(before: Estimate | None, now: Estimate | None) -> str:
    """That the estimate of a question was another one *before*, when Run was pressed, and why; empty where it was not.

    A link that is requested as a ratio has its speed by an estimated computation until that is measured.
    """
    if before is None or now is None or seconds_text(before.time_s) == seconds_text(now.time_s):
        return ""
    was, trial = before.trial, now.trial
    if (was.problem, was.schedule, was.machine) != (trial.problem, trial.schedule, trial.machine):
        return ""
    if was.fabric.as_requested != trial.fabric.as_requested:
        return ""
    why = LINK_FOLLOWS if was.fabric != trial.fabric else FILE_IS_NEW if before.digest != now.digest else ""
    return f"The estimate was {seconds_text(before.time_s)} when Run was pressed: {why}." if why else ""


def _look_buttons() -> Any:
    """Timeline or difference."""
    buttons = ipywidgets.ToggleButtons(
        options=[SPANS, DIFFERENCE], style={"button_width": "90px"},
        tooltips=["Spans of all ranks", "Ends of steps, measured minus simulated"],
    )  # fmt: skip
    return marked(buttons, "wb-timeline-look")


def _path_box() -> Any:
    """Whether the critical path is drawn."""
    box = ipywidgets.Checkbox(
        value=True, indent=False, description="critical path", layout=ipywidgets.Layout(width="auto"),
        tooltip="A line through the steps that decide the end",
    )  # fmt: skip
    return marked(box, "wb-timeline-path")


def is_of(trial: Trial) -> Callable[[Row], bool]:
    """A test whether a row is of the schedule and the machine of *trial*."""

    def is_of_trial(row: Row) -> bool:
        alike = row["scheme"] == trial.schedule.scheme and row["machine"] == trial.machine
        return alike and current_problem_and_schedule(row)[1] == trial.schedule

    return is_of_trial


def is_estimate_of(estimate: Row | None, trial: Trial | None) -> bool:
    """Whether *estimate*, a row of the space of *trial*'s problem, is of its schedule, whatever axes it leaves out."""
    if estimate is None or trial is None:
        return False
    schedule = Schedule(estimate["scheme"], tuple(estimate["axes"].items()))
    axes = dict(axis_rules.effective(trial.problem, schedule, trial.backend).axes)
    return schedule.scheme == trial.schedule.scheme and axes == dict(trial.schedule.axes)


# A clicked mark sets the form; a note with an Undo says what else than the schedule has changed.


class RowLoader:
    """Sets the form to a row of the charts with `take`; `view` says what changed, and can undo it."""

    def __init__(self, question: QuestionForm, shown: TimelineView) -> None:
        self._question, self._shown = question, shown
        self._before: tuple[FormState, KeptTimelines] | None = None
        self.busy = False
        """True while the form is being set to a row, whose run is on the page."""
        self.text = html("wb-loaded-words")
        self.undo = button("Undo", "wb-undo", "undo", "Back to the question before the click")
        self.view = marked(ipywidgets.HBox([self.text, self.undo], layout=wide(display=HIDDEN)), "wb-loaded")
        self.undo.on_click(lambda _: self.back())
        question.on_change(self._changed)

    def take(self, row: Row) -> None:
        """Sets the form to the problem, machine, link and schedule of *row*."""
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
        text = f"Loaded: {', '.join(changes)}." if changes else ""
        if wanted != self._question.machine.value:
            text += missing
        if text:
            self._before = before
            self.text.value = note_html(text.strip())
            self.view.layout.display = SHOWN

    def back(self) -> None:
        """Restores the form, the guess and the pinned timeline from before the click."""
        if self._before is not None:
            (state, kept), self._before = self._before, None
            self._question.restore(state)
            self._shown.restore(kept)

    def _changed(self) -> None:
        """Hides the Undo after a person's own change, which it would undo as well."""
        if not self.busy:
            self._before = None
            self.view.layout.display = HIDDEN


def differences(before: FormState, after: FormState) -> Iterator[str]:
    """Texts about the differences between two questions, except for their schedules."""
    old, new = before.question, after.question
    if after.machine != before.machine:
        yield f"{machine_named(after.machine).title} instead of {machine_named(before.machine).title}"
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
        yield f"{fabric_label(new.fabric)} instead of {fabric_label(old.fabric)}"


def _sizes(shape: tuple[tuple[str, int | str], ...]) -> str:
    return "; ".join(f"{shape_title(name)} {value_title(size)}" for name, size in shape)


# A frozen copy of the last run in the cell's output, drawn from the store: it is there without a kernel.

PLACES = 3
"""The most charts of a frozen run."""
NOTHING: list[dict[str, Any]] = [{"text/plain": ""}] * PLACES
PAUSE_SECONDS = 3.0
"""Delay of pictures that can wait, since a page is busy when it opens."""


class FrozenOutput:
    """Places in a cell's output that are filled with pictures when a run has ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handles = [DisplayHandle() for _ in range(PLACES)]
        self.can_wait = False
        """Whether pictures may come after the cell has ended; not in a notebook that is executed for a report."""
        self._shown = False
        self._drawn: tuple[tuple[str | None, int], list[dict[str, Any]]] = (None, 0), NOTHING
        """The run that was drawn last and its number of rows, and its pictures."""
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        """Notified when pictures are requested or no longer needed. Never held while drawing."""
        self._awaited: str | None = None
        """The run whose pictures are requested but not drawn yet."""
        self._due = 0.0

    def show(self, run: str | None) -> None:
        """Shows the places in this cell, filled with *run*, which has ended, if there is one.

        A reloaded page shows them once more; they are updated wherever they are shown.
        """
        self._shown = True
        later = self.can_wait and run != self._drawn[0][0]
        for number, content in enumerate(NOTHING if later else self._contents(run)):
            self._handles[number].display(content, raw=True, metadata=_metadata(run, number))
        if later and run is not None:
            self.freeze_soon(run, PAUSE_SECONDS)

    def freeze(self, run: str) -> None:
        """Fills the places with *run*, if they are shown; may be called from any thread."""
        if self._shown:
            for number, content in enumerate(self._contents(run)):
                self._handles[number].update(content, raw=True, metadata=_metadata(run, number))

    def freeze_soon(self, run: str, pause_s: float = 0.0) -> None:
        """Fills the places in the background after *pause_s*; drawing takes a second."""
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
        """Draws requested runs one after the other, in a single thread."""
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
        """Cancels requested pictures, since another run begins and drawing would disturb it."""
        self.close()

    def close(self) -> None:
        """Cancels requested pictures that are not drawn yet."""
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
    """The pictures as folded HTML: a live notebook shows the explorer above them; reports draw the charts instead."""
    pictures = [
        Markup('<img alt="{}" src="data:image/svg+xml;base64,{}"><br>').format(
            content["text/plain"], base64.b64encode(str(content[PICTURE]).encode()).decode()
        )
        for content in bundles
    ]
    folded = "<details><summary>Kept in this notebook: run {}</summary>{}</details>"
    return str(Markup(folded).format(run, Markup("").join(pictures)))
