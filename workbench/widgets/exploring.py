"""The explorer: a question on the left, what is known about it on the right, live while it is being measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ipywidgets
from IPython.display import display

from cluster.dispatch import Cluster
from kernels.axes import Value
from kernels.outcome import Estimate, Span
from kernels.schedule import Refusal
from kernels.units import seconds_text
from workbench import recordings
from workbench.answer import Answer, FromCluster, FromRecordings, FromSimulator
from workbench.charts import theme, timeline
from workbench.experiment import run as experiment_run
from workbench.predictions import known_link, predictions
from workbench.provenance import usable_cores
from workbench.reports import stored
from workbench.simulator.predict import predict
from workbench.sitting import Sitting
from workbench.store import Store
from workbench.widgets.frozen import Frozen
from workbench.widgets.live_chart import Click, LiveChart
from workbench.widgets.panels import Panels
from workbench.widgets.question import Question
from workbench.widgets.report_button import ReportButton
from workbench.widgets.results import Results
from workbench.widgets.session import News, Session
from workbench.widgets.words import STYLE, note_html, refusal_html, warning_html

SOURCES = (("Measure", "cluster"), ("Simulate", "simulator"), ("Replay", "recordings"))
DEFAULT_PRESET, DEFAULT_MACHINE = "laptop_overlap", "laptop_cpu"


class Explorer:
    """Everything of one explorer. `show()` puts it into a notebook; `run` and `stop` do what the buttons do."""

    def __init__(self, *, run: str = "last", store: Store | None = None, cluster: Cluster | None = None) -> None:
        self.store = store or Store()
        self.question = Question(DEFAULT_PRESET, DEFAULT_MACHINE)
        self.session = Session(self.store, self._hear)
        self.timeline = LiveChart(timeline.live())
        self.panels = Panels(self.store, self._predict_all)
        self.results = Results()
        self.frozen = Frozen(self.store)
        self.report = ReportButton(self.store, self._current_run)
        self.run_id: str | None = None
        self._cluster = cluster
        self._estimate: Estimate | None = None
        self._pinned: tuple[str, Sequence[Span]] | None = None
        self._measured: tuple[Span, ...] = ()
        self._build()
        self.question.on_change(self.refresh)
        self.panels.on_cell(self._load_cell)
        self.refresh()
        self._restore(run)
        threading.Thread(target=self._find_cluster, name="workbench cluster", daemon=True).start()

    # the page

    def _build(self) -> None:
        wide = ipywidgets.Layout(width="100%")
        self.source = ipywidgets.ToggleButtons(
            options=SOURCES,
            value="cluster",
            style={"button_width": "auto"},
            tooltips=["On the cluster's ranks", "Played on a machine's description", "Recorded runs as if live"],
        )
        self.guess = ipywidgets.Text(
            description="Your guess, ms",
            placeholder="before you press Run",
            style={"description_width": "108px"},
            tooltip="What do you expect? It is drawn beside estimate and measurement.",
            layout=wide,
        )
        self.run_button = ipywidgets.Button(
            description="Run",
            button_style="primary",
            icon="play",
            tooltip="Measure, simulate or replay what the form asks",
        )
        self.stop_button = ipywidgets.Button(description="Stop", icon="stop", disabled=True)
        self.pin_button = ipywidgets.Button(
            description="Pin as A", icon="thumb-tack", tooltip="Keep this timeline above the next ones"
        )
        self.recording = ipywidgets.Dropdown(description="Recording", layout=ipywidgets.Layout(display="none"))
        self.headline, self.banner, self.status, self.message = (ipywidgets.HTML(layout=wide) for _ in range(4))
        for control, mark in (
            (self.source, "wb-source"),
            (self.guess, "wb-guess"),
            (self.run_button, "wb-run"),
            (self.stop_button, "wb-stop"),
            (self.pin_button, "wb-pin"),
            (self.headline, "wb-headline"),
            (self.banner, "wb-banner"),
            (self.status, "wb-cluster"),
            (self.recording, "wb-recording"),
            (self.timeline, "wb-timeline"),
            (self.message, "wb-message"),
        ):
            control.add_class(mark)
        self.run_button.on_click(lambda _: self.run())
        self.stop_button.on_click(lambda _: self.stop())
        self.pin_button.on_click(lambda _: self.pin())
        self.source.observe(self._source_changed, "value")
        self.recording.observe(self._source_changed, "value")
        self.view = self._laid_out()

    def _laid_out(self) -> ipywidgets.Widget:
        buttons = ipywidgets.HBox(
            [self.run_button, self.stop_button, self.pin_button, self.report.button],
            layout=ipywidgets.Layout(flex_flow="row wrap"),
        )
        left = ipywidgets.VBox(
            [
                self.question.view,
                self.guess,
                self.source,
                self.recording,
                buttons,
                self.status,
                self.banner,
                self.message,
                self.report.link,
            ],
            layout=ipywidgets.Layout(flex="0 0 380px", width="380px"),
        )
        right = ipywidgets.VBox(
            [self.headline, self.timeline, self.results.progress, self.panels.view, self.results.table],
            layout=ipywidgets.Layout(flex="1 1 560px", min_width="420px", overflow="hidden"),
        )
        left.add_class("wb-card")
        page = ipywidgets.HBox(
            [left, right], layout=ipywidgets.Layout(flex_flow="row wrap", width="100%", grid_gap="12px")
        )
        box = ipywidgets.VBox([ipywidgets.HTML(STYLE), page], layout=ipywidgets.Layout(width="100%"))
        box.add_class("wb-explorer")
        return box

    def show(self) -> None:
        """Into this cell's output: the explorer, and below it a place for the last run, frozen."""
        display(self.view)
        self.frozen.show(self.run_id)

    # the simulated timeline, redrawn on every change

    def refresh(self) -> None:
        """What the simulator says about the form as it stands."""
        asked, machine = self.question.asked, self.question.machine_value
        self._warn(asked.world)
        try:
            trial = asked.trial(machine)
            fabric = known_link(trial.fabric, trial.problem, machine, self.store)
            self._estimate = predict(replace(trial, fabric=fabric), machine)
            self.panels.landscape.offer([axis.name for axis in asked.axes(machine)])
        except Refusal:
            self._estimate = None
            self.headline.value = note_html("No estimate: what is asked cannot be. The reason stands under the form.")
            self.run_button.disabled = True
            return
        self.run_button.disabled = self.session.running
        self._measured = ()
        self.headline.value = note_html(_estimate_words(self._estimate))
        self._draw_timeline()

    def _predict_all(self, swept: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Estimates of the question with the axes *swept* taking every value."""
        machine = self.question.machine_value
        asked = replace(self.question.asked, swept=tuple(swept))
        return predictions(asked.experiment(machine), machine, self.store)

    def _draw_timeline(self) -> None:
        panels: dict[str, Sequence[Span]] = {}
        if self._pinned is not None:
            panels[f"A, {self._pinned[0]}"] = self._pinned[1]
        if self._measured:
            panels["measured"] = self._measured
        if self._estimate is not None:
            panels["simulated"] = self._estimate.spans
        self.timeline.replace(timeline.DATASET, timeline.rows(panels))

    def pin(self) -> None:
        """Keeps the timeline shown now as A above the following ones; pressing again lets it go."""
        if self._pinned is None and self._estimate is not None:
            kind = "measured" if self._measured else "simulated"
            words = f"{self._estimate.trial.schedule.scheme}, {kind}"
            self._pinned = (words, self._measured or self._estimate.spans)
            self.pin_button.description = "Unpin A"
        else:
            self._pinned = None
            self.pin_button.description = "Pin as A"
        self._draw_timeline()

    def _warn(self, world: int) -> None:
        cores = usable_cores()
        on_cpu = self.question.machine_value.backend == "cpu"
        self.banner.value = (
            warning_html(
                f"{world} ranks share {cores} cores here: they slow each other down beyond what overlap explains."
            )
            if on_cpu and world > cores and self.source.value == "cluster"
            else ""
        )

    # running

    def run(self) -> None:
        """Asks for what the form says. Returns at once."""
        asked, machine = self.question.asked, self.question.machine_value
        try:
            answer = self._answer()
            experiment = asked.experiment(machine)
            sitting: Sitting = experiment_run(experiment, self.store, answer, machine)
        except ValueError as refused:
            self.message.value = refusal_html(str(refused))
            return
        self.message.value = ""
        self._begin(sitting)

    def _begin(self, sitting: Sitting) -> None:
        self.run_id = sitting.run
        self.panels.begin(self._swept(), self._guess_s())
        self.results.begin()
        self.run_button.disabled, self.stop_button.disabled = True, False
        self.session.start(sitting)

    def _swept(self) -> dict[str, Sequence[Value]]:
        """The axes that the form sweeps, with their values."""
        asked = self.question.asked
        return {axis.name: axis.values for axis in asked.axes(self.question.machine_value) if axis.name in asked.swept}

    def _guess_s(self) -> float | None:
        """The student's guess in seconds; what is no number is no guess."""
        try:
            guess_ms = float(self.guess.value.strip().removesuffix("ms").replace(",", "."))
        except ValueError:
            return None
        return guess_ms / 1e3 if 0 < guess_ms < float("inf") else None

    def stop(self) -> None:
        """Ends the run within two seconds; what was measured stays."""
        self.stop_button.disabled = True
        self.session.stop()

    def _answer(self) -> Answer:
        match self.source.value:
            case "simulator":
                return FromSimulator(self.question.machine_value)
            case "recordings":
                return FromRecordings(recordings.recordings(self.recording.value))
        if self._cluster is None:
            self._cluster = Cluster.connect()
        return FromCluster(self._cluster)

    def _hear(self, news: News) -> None:
        """What came back since the last tick; called by the session's thread."""
        self.panels.add(news)
        self.results.add(news)
        timed = [row for row in news.rows if row["part"] == "whole" and row["source"] in ("measured", "recorded")]
        shown = [row for row in timed if row["time_s"] is not None and self._is_shown(row)]
        if shown:
            self._measured = self.store.spans(news.run, shown[-1]["key"], shown[-1]["source"])
            self._draw_timeline()
        if news.ended:
            self.stop_button.disabled = True
            self.run_button.disabled = False
            self.message.value = refusal_html(news.error) if news.error else ""
            self.frozen.freeze(news.run)

    def _is_shown(self, row: Mapping[str, Any]) -> bool:
        """Whether *row* is of the schedule that the form shows; its simulated timeline is drawn below."""
        if self._estimate is None:
            return False
        trial = self._estimate.trial
        return row["scheme"] == trial.schedule.scheme and row["axes"] == dict(trial.schedule.axes)

    def _load_cell(self, click: Click) -> None:
        """A cell of the landscape was clicked: its schedule becomes the form's."""
        row = self.panels.row_of(click)
        if row is not None:
            self.question.load(row["scheme"], row["axes"])

    # what was before

    def _restore(self, run: str) -> None:
        """Shows a run of the store; without one there is nothing to restore."""
        try:
            found = self.store.run(run)
        except ValueError as unknown:
            if run != "last":
                self.message.value = refusal_html(str(unknown))
            return
        rows = self.store.rows(found["id"])
        self.run_id = found["id"]
        self.panels.show(found["id"], rows)
        self.results.show(found, rows)
        best = stored.fastest(rows)
        if best is not None and self._is_shown(best):
            self._measured = self.store.spans(found["id"], best["key"], best["source"])
            self._draw_timeline()

    def _current_run(self) -> str | None:
        return self.run_id

    def _source_changed(self, _: Any) -> None:
        names = list(recordings.paths())
        self.recording.layout.display = None if self.source.value == "recordings" else "none"
        if list(self.recording.options) != names:
            self.recording.options = names
        self._warn(self.question.asked.world)

    def _find_cluster(self) -> None:
        """Says whether there is somebody to measure; looks again every few seconds until there is."""
        while True:
            try:
                self._cluster = self._cluster or Cluster.connect()
                ranks = len(self._cluster.describe()["workers"])
                self.status.value = note_html(f"Cluster: {ranks} ranks at {self._cluster.address}.")
                return
            except ValueError:
                sentence = "No cluster answers: simulate, replay, or start one with `workbench cluster up`."
                self.status.value = warning_html(sentence)
            time.sleep(5)


def _estimate_words(estimate: Estimate) -> str:
    """The estimate in one line, its trust said aloud."""
    trust = "" if estimate.calibrated else " The machine is not calibrated here: trust the order, not the size."
    return (
        f"Estimated {seconds_text(estimate.time_s)} "
        f"({seconds_text(estimate.low_s)} to {seconds_text(estimate.high_s)}) "
        f"on {estimate.trial.machine}, simulated before anything runs.{trust}"
    )


def explorer(run: str = "last") -> None:
    """The explorer in this cell. *run* is the run to show first: an id, the beginning of one, or `last`."""
    theme.enable()
    Explorer(run=run).show()
