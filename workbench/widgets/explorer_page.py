"""The explorer: a form on the left, its estimate and outcomes on the right, live while a run goes on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import ipywidgets
from IPython.display import display

from cluster.client import Cluster
from cluster.hosts import usable_cores
from cluster.seating import Workers
from kernels.outcome import Estimate
from kernels.schedule import Refusal
from workbench import resources
from workbench.charts import theme
from workbench.charts.labels import context
from workbench.experiment.forecast import COUNTED_MOST, Forecast, forecast
from workbench.experiment.links import drawn_ratio, known_link
from workbench.experiment.run import StoredRun
from workbench.experiment.sources import FromRecordings
from workbench.machines import crowded
from workbench.naming import TIMED
from workbench.results import comparison
from workbench.results.metrics import row_of
from workbench.results.rows import Row, rows_of_first_problem
from workbench.results.store import Store
from workbench.simulator.predict import compute_alone_seconds, predict
from workbench.widgets.chart_panels import cells, same_problem
from workbench.widgets.cluster_watch import (
    LOOKING_MOST,
    MEASURE,
    REPLAY,
    SIMULATE,
    CalibrationNotice,
    ClusterWatcher,
    SourceChoice,
    begin_with,
)
from workbench.widgets.controls import (
    STYLE,
    Keyboard,
    button,
    html,
    left_out_html,
    marked,
    note_html,
    refusal_html,
    warning_html,
)
from workbench.widgets.form import Availability, FormState, QuestionForm
from workbench.widgets.live_chart import Click, charts_in
from workbench.widgets.panels import ALONG, TRIALS, Panels, RunStart
from workbench.widgets.results import ReportButton, Results
from workbench.widgets.session import RunNews, RunSession
from workbench.widgets.timeline_view import FrozenOutput, RowLoader, TimelineView, is_of

# The layout of the explorer's page: the form on the left, charts and tables on the right.

FORM_PIXELS = 392


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """The parts of the page that other modules make."""

    form: QuestionForm
    source: SourceChoice
    results: Results
    panels: Panels
    report: ReportButton
    shown: TimelineView
    calibrating: ipywidgets.Widget
    """The notice of inaccurate estimates, with the button that calibrates their machine."""
    loaded: ipywidgets.Widget
    """The note of what a click has changed, with its button Undo."""


class ExplorerPage:
    """The page `view` with the buttons and messages that the explorer uses."""

    def __init__(self, parts: PageParts) -> None:
        self.run = button("Run", "wb-run", "play", "Measure, simulate or replay what the form asks")
        self.run.button_style = "primary"
        self.stop = button("Stop", "wb-stop", "stop", "End the run; what was measured stays", disabled=True)
        self.plan, self.message = html("wb-plan"), html("wb-message")
        self.banner, self.status = html("wb-banner"), html("wb-cluster")
        self.left_out = html("wb-left-out")
        self.status.value = note_html("Looking for a cluster …")
        shown = parts.shown
        self.guess, self.pin, self.headline, self.timeline = shown.guess, shown.pin, shown.headline, shown.timeline
        self.view = self._laid_out(parts)

    def _laid_out(self, parts: PageParts) -> ipywidgets.Widget:
        left = marked(ipywidgets.VBox(self._left(parts)), "wb-card")
        left.layout = ipywidgets.Layout(flex=f"0 0 {FORM_PIXELS}px", width=f"{FORM_PIXELS}px")
        head = marked(ipywidgets.HBox([self.headline, self.pin, parts.report.note, parts.report.button]), "wb-head")
        right = marked(
            ipywidgets.VBox([head, parts.report.link, self.timeline, parts.panels.view, parts.results.table]),
            "wb-right",
        )
        right.layout = ipywidgets.Layout(flex="1 1 520px", min_width="420px", overflow="hidden")
        page = ipywidgets.HBox([left, right])
        page.layout = ipywidgets.Layout(flex_flow="row wrap", width="100%", grid_gap="12px", align_items="flex-start")
        box = ipywidgets.VBox([ipywidgets.HTML(STYLE), Keyboard(), page], layout=ipywidgets.Layout(width="100%"))
        return marked(box, "wb-explorer")

    def _left(self, parts: PageParts) -> list[ipywidgets.Widget]:
        buttons = marked(ipywidgets.HBox([self.run, self.stop, self.plan]), "wb-buttons")
        guess = [self.guess, parts.shown.guess_refusal]
        question = [parts.form.view, *guess, parts.source.view, buttons, parts.form.refusal, parts.loaded]
        messages = [parts.results.progress, self.message, parts.calibrating, self.banner, self.left_out, self.status]
        return [*question, *messages, parts.form.advanced, parts.form.sizes]


# The explorer: connects form, run, charts and tables.

DEFAULT_PRESET, DEFAULT_MACHINE = "laptop_overlap", "laptop_cpu"
LAST = "last"
"""The name of the run that began last."""


class Explorer:
    """One explorer. `show()` puts it into a notebook; `run` and `stop` act like its buttons."""

    def __init__(self, *, run: str = LAST, store: Store | None = None, cluster: Cluster | str | None = None) -> None:
        self._first_run = run
        self.store = store or Store()
        self.run_id: str | None = None
        self._seen: set[str] = set()  # shown runs: none replaces the form's content again by itself
        self.form = QuestionForm(DEFAULT_PRESET, DEFAULT_MACHINE)
        self.session = RunSession(self.store, self._receive)
        self.panels = Panels(self.store, self._cells)
        self.results, self.frozen = Results(), FrozenOutput(self.store)
        self.shown = TimelineView(self.store)
        self.report = ReportButton(self.store, lambda: self.run_id)
        self.watcher = ClusterWatcher(self._cluster_changed, cluster, self._look)
        self.source = SourceChoice(self.store, self.watcher.cluster, self.watcher.ranks, lambda: self.form.wait_s)
        self.loading = RowLoader(self.form, self.shown)
        self.calibrating = CalibrationNotice(self.watcher.cluster, self.refresh)
        self.page = ExplorerPage(PageParts(
            form=self.form, source=self.source, results=self.results, panels=self.panels, report=self.report,
            shown=self.shown, calibrating=self.calibrating.view, loaded=self.loading.view,
        ))  # fmt: skip
        self._workers: Workers | None = None  # the workers of the cluster; None while none has answered
        self._plan: Forecast | None = None
        self._before_replay: FormState | None = None
        """The question before *Replay* was chosen, to which the other sources return."""
        self._drawing = threading.RLock()
        """The kernel's thread and the session's both draw."""
        self._running = False
        self._restore(run)
        self._operator, self._machine = self.form.question.operator, self.form.machine.value
        """What progress and report are about; guess and pinned timeline are of this machine as well."""
        self._listen()
        self.refresh()
        self.watcher.start()

    def _listen(self) -> None:
        self.form.on_change(self._question_changed)
        self.source.on_change(self._source_changed)
        self.panels.on_cell(self._load_cell)
        self.panels.on_problem(self.form.load_row)
        self.page.run.on_click(lambda _: self.run())
        self.page.stop.on_click(lambda _: self.stop())
        self.page.pin.on_click(lambda _: self._pin())
        self.page.guess.observe(lambda _: self.shown.read_guess(), "value")

    def show(self) -> None:
        """Shows the explorer in this cell's output, with a frozen copy of the last run below it."""
        self._catch_up()
        display(self.page.view)
        self.frozen.show(None if self._running else self.run_id)

    def close(self) -> None:
        """Ends the background threads and the timers of charts, once this explorer is no longer shown."""
        self.watcher.close()
        self.session.stop()
        self.frozen.close()
        self.calibrating.close()
        for chart in charts_in(self.page.view):
            chart.close()

    # The current question, redrawn on every change.

    def _question_changed(self) -> None:
        if self.form.machine.value != self._machine:
            self._machine = self.form.machine.value
            self.shown.forget()
        if self.form.question.operator != self._operator:
            self._operator = self.form.question.operator
            self.shown.forget()
            if not self._running and not self.loading.busy:
                self.results.forget()
                self.report.forget()
        self.refresh()

    def refresh(self) -> None:
        """Redraws the estimate and the newest measurement of the form's current schedule."""
        with self._drawing:
            self._update_availability()
            self.calibrating.compare(self.form.machine_value, timed=bool(self.panels.rows))
            try:
                self.shown.estimate = self._predicted()
                self.panels.same_problem = same_problem(self.form.question)
                self._plan = self._planned()
            except Refusal as refusal:
                self.shown.estimate = self.shown.row = self._plan = None
                self.page.plan.value = refusal_html(str(refusal)) if not self.form.refusal.value else ""
            else:
                self.page.plan.value = note_html(str(self._plan)) if self._plan else ""
            if self.source.value == REPLAY:
                self.page.plan.value = self._replay_text()
            self._warn()
            self._allow_run()
            self.shown.awaited = {MEASURE: "measured", REPLAY: "recorded"}.get(self.source.value)
            self._show_measured()
            self._show_ratio()
            self.shown.draw()  # before the landscape: who moves a slider watches the timeline
            if self.shown.estimate is not None:
                self._offer_landscape()

    def _update_availability(self) -> None:
        """Updates which questions source and cluster can answer."""
        self.form.set_availability(Availability(self.source.value == MEASURE, self._workers))

    def _predicted(self) -> Estimate:
        question, machine = self.form.question, self.form.machine_value
        trial = question.trial(machine)
        ranks = self.watcher.ranks(trial.world, trial.backend, trial.across)
        linked = known_link(trial.fabric, trial.problem, machine, self.store, ranks.hardware if ranks else None)
        return predict(replace(trial, fabric=linked), machine)

    def _planned(self) -> Forecast | None:
        """The forecast of what Run would do; None for a replay, whose recording decides that."""
        if self.source.value == REPLAY or self.shown.estimate is None:
            return None
        question, machine = self.form.question, self.form.machine_value
        measured, across = self.source.value == MEASURE, question.link().across
        return forecast(question.experiment(machine), machine, self.store, measured=measured, most=COUNTED_MOST,
                        ranks=lambda world, backend: self.watcher.ranks(world, backend, across))  # fmt: skip

    def _replay_text(self) -> str:
        if (refused := self._replay_refusal()) is not None:
            return refusal_html(refused)
        return note_html(
            "All of the recording is played." if self.source.whole.value else "What the form asks is looked up."
        )

    def _replay_refusal(self) -> str | None:
        return self.source.refusal(self.form.question, self.form.machine_value)

    def _offer_landscape(self) -> None:
        axes = self.form.question.axes(self.form.machine_value)
        self.panels.landscape.offer({axis.name: len(axis.values) for axis in axes})
        self.panels.step.offer(str(self.form.problem.preset.value))

    def _cells(self, x: str, y: str) -> Sequence[Row]:
        """Estimates of the question with every value of axes *x* and *y*."""
        if self.shown.estimate is None:
            return []
        return cells(self.form.question, self.form.machine_value, self.shown.estimate.trial.fabric, x, y)

    def _is_shown(self, row: Row) -> bool:
        """Whether *row* is of the schedule that the form shows."""
        of_schedule = self.shown.estimate is not None and is_of(self.shown.estimate.trial)(row)
        return of_schedule and row["part"] == "whole" and self.panels.same_problem(row)

    def _show_measured(self) -> None:
        """Updates the newest time of the form's schedule, if this run has one."""
        trial = None if self.shown.estimate is None else self.shown.estimate.trial
        newest = None if trial is None else self.panels.timed(trial.problem, trial.schedule)
        self.shown.row = newest if newest is not None and self.panels.same_problem(newest) else None
        self.shown.freeze(lambda estimated: predict(estimated, self.form.machine_value))
        self.panels.choose(None if self.shown.row is None else self.shown.row["key"])

    def _show_ratio(self) -> None:
        """Shows the ratio of wire to computation that is drawn, if it is not the one on the slider."""
        estimate, machine, note = self.shown.estimate, self.form.machine_value, None
        measured_s = self.shown.row.get("compute_s") if self.shown.row is not None else None
        if estimate is not None and (measured_s is not None or estimate.digest == machine.digest):
            trial = estimate.trial
            compute_s = measured_s or compute_alone_seconds(trial.problem, machine, trial.fabric)
            note = drawn_ratio(trial.fabric, trial.problem, compute_s)
        self.form.drawn_ratio.value = note_html(note) if note else ""

    def _pin(self) -> None:
        with self._drawing:
            self.shown.toggle_pin()

    def _warn(self) -> None:
        """Shows warnings about measuring, and ignored files."""
        measured = self.source.value == MEASURE and self.form.machine_value.backend == "cpu"
        warning = crowded(self.form.question.world, usable_cores()) if measured else None
        self.page.banner.value = warning_html(warning) if warning else ""
        self.page.left_out.value = left_out_html(resources.messages())

    def _cluster_changed(self, workers: Workers | None, message: str) -> None:
        """Takes a new state of the cluster; called by the watcher's thread."""
        begin_with(self.form, workers, self.watcher.cluster)
        self._workers = workers
        self.page.status.value = warning_html(message) if workers is None else note_html(message)
        with self._drawing:
            self.refresh()  # other ranks may be chosen, and other trials known

    def _look(self) -> None:
        """Shows what the lab's calibration does, and draws the page again where the machine's file is a new one."""
        self.calibrating.look()
        if self.calibrating.is_new(self.form.machine_value):
            self.refresh()

    def _source_changed(self) -> None:
        self.page.message.value = ""
        if self.source.value == REPLAY:
            self._before_replay = self._before_replay or self.form.state
            if self.source.recording.value is not None:
                self._load_recorded()
        elif self._before_replay is not None:
            before, self._before_replay = self._before_replay, None
            self.form.restore(before)
            begin_with(self.form, self._workers, self.watcher.cluster)  # a cluster may have come during the replay
        self.refresh()

    def _load_recorded(self) -> None:
        """Sets the form to the recording's fastest schedule."""
        try:
            recorded = self.source.recorded()
        except ValueError as unreadable:
            self.page.message.value = refusal_html(str(unreadable))
            return
        played = [entry.measurement for entry in FromRecordings(recorded).entries]
        if whole := [measured for measured in played if measured.trial.part == "whole"]:
            rows = [row_of(measured) for measured in whole]
            self.form.load_row(comparison.fastest(rows_of_first_problem(rows)) or rows[0])

    # A run.

    def run(self) -> None:
        """Starts a run of the form's question, and returns at once; does nothing while a run goes on."""
        if self._running:
            return
        try:
            stored_run = self.source.run_for(self.form.question, self.form.machine_value)
        except ValueError as refused:
            self.page.message.value = refusal_html(str(refused))
            return
        self.page.message.value = ""
        with self._drawing:
            self._begin(stored_run)
        self.session.start(stored_run)

    def _begin(self, stored_run: StoredRun) -> None:
        self.run_id, self.shown.row = stored_run.run, None
        self._seen.add(stored_run.run)
        self.report.forget()
        question, machine = self.form.question, self.form.machine_value
        swept = {} if self.source.value == REPLAY and self.source.whole.value else question.swept_values(machine)
        guess_s, estimate = self.shown.guess_s(), self.shown.estimate
        self.panels.begin(
            RunStart(
                swept=swept,
                context="" if estimate is None else self._context(estimate),
                timed=self.source.value != SIMULATE,
                guess_s=guess_s,
                guessed=is_of(estimate.trial) if estimate else lambda row: False,
            )
        )
        self.panels.open = ALONG if swept else TRIALS
        self.results.begin(bool(swept))
        self.calibrating.show([])
        self.frozen.begin()
        self._running = True
        self._allow_run()
        self.shown.draw()

    def _context(self, estimate: Estimate) -> str:
        """The subtitle of charts of a run's trials."""
        known = row_of(estimate, None, self.form.machine_value)
        return context([{**known, "source": self.shown.awaited or "estimated"}])

    def _allow_run(self) -> None:
        """Enables Run if the question would be accepted; the reason is shown next to it."""
        if self.source.value == REPLAY:
            accepted = self._replay_refusal() is None
        else:
            no_cluster = self.source.value == MEASURE and self._workers is None
            accepted = self.shown.estimate is not None and not self.form.refusal.value and not no_cluster
        self.page.run.disabled = self._running or not accepted
        self.page.stop.disabled = not self._running

    def stop(self) -> None:
        """Ends the run within two seconds; its measurements stay."""
        self.page.stop.disabled = True
        self.session.stop()

    def _receive(self, news: RunNews) -> None:
        """Draws news of the run; called by the session's thread, which logs errors of drawing."""
        try:
            self._draw_news(news)
        finally:
            if news.ended:
                self._end(news)

    def _draw_news(self, news: RunNews) -> None:
        with self._drawing:
            self.panels.add(news)
            self.results.add(news)
            if any(self._is_shown(row) for row in news.rows if row["source"] in TIMED and row["time_s"] is not None):
                # the link is known now: the simulated timeline has to be of the same one
                with suppress(Refusal):  # the form has become illegal meanwhile; its own thread reports that
                    self.shown.estimate = self._predicted()
                self._show_measured()
                self._show_ratio()
                self.shown.draw()

    def _end(self, news: RunNews) -> None:
        self._running = False
        self.calibrating.show(self.panels.rows)
        failed = self.results.failures
        if news.error:
            self.page.message.value = refusal_html(news.error)
        elif failed:
            more = f" ({len(failed)} failed; the table below has all)" if len(failed) > 1 else ""
            self.page.message.value = refusal_html(f"{failed[0]['message']}{more}")
        self._allow_run()  # even if drawing fails below
        self.frozen.freeze_soon(news.run)
        self.refresh()

    def _load_cell(self, click: Click) -> None:
        """Sets the form to the schedule of the clicked mark."""
        row = self.panels.row_of(click)
        if row is not None:
            self.loading.take(row)

    # Runs of before.

    def _catch_up(self) -> None:
        """Shows the last run, which another process may have made, unless a run goes on here."""
        if self._first_run != LAST or self._running:
            return
        try:
            newest = self.store.run(LAST)["id"]
        except ValueError:  # no run has a time yet
            return
        if newest not in self._seen:
            with self._drawing:
                self._restore(LAST)
                self.refresh()

    def _restore(self, run: str) -> None:
        """Shows a run of the store, if it exists."""
        try:
            stored = self.store.run(run)
        except ValueError as unknown:
            if run != LAST:
                self.page.message.value = refusal_html(str(unknown))
            return
        rows = self.store.rows(stored["id"])
        whole = [row for row in rows if row["part"] == "whole"]
        best = comparison.fastest(rows_of_first_problem(whole))
        if best is not None:
            self.form.load_row(best)
        self.run_id = stored["id"]
        self._seen.add(stored["id"])
        self.panels.show(stored["id"], rows, context(whole))
        self.panels.open = TRIALS
        self.results.show(stored, rows)
        self.calibrating.show(rows)


# The explorers of this kernel: the same arguments show the same explorer, with its run.

_explorers: dict[tuple[str, Path | None, str | None], Explorer] = {}
"""The explorers of this kernel, by the arguments of `explorer_of`."""


def explorer(
    run: str = LAST, *, store: str | Path | None = None, cluster: str | None = None, wait_s: float | None = None
) -> None:
    """Shows the explorer in this cell. *run* is the run to show first: an id, the beginning of one, or `last`.

    *store* is another file of runs than this person's default; *cluster* is another scheduler's address than the lab's.
    *wait_s* is how long a run waits for ranks, in seconds, before it gives up; it can be changed under Advanced.
    ValueError if it is less than a second.
    The same arguments show the same explorer again, with its run, until the kernel is restarted.
    """
    shown = explorer_of(run, None if store is None else Path(store), cluster)
    if wait_s is not None:
        shown.form.wait_at_most(wait_s)
    shown.show()


def prepare() -> None:
    """Makes the explorer before its page is open; the lab's kernel does so."""
    explorer_of().frozen.can_wait = True


def explorer_of(run: str = LAST, store: Path | None = None, cluster: str | None = None) -> Explorer:
    """This kernel's one explorer for these arguments, which a reloaded page joins."""
    key = run, store and store.resolve(), cluster
    for closed in [other for other, shown in _explorers.items() if shown.page.view.comm is None]:
        _explorers.pop(closed).close()  # all widgets were closed
    if key not in _explorers:
        theme.enable()
        for older in list(_explorers.values())[: 1 - LOOKING_MOST]:
            older.watcher.close()
        _explorers[key] = Explorer(run=run, store=None if store is None else Store(store), cluster=cluster)
    return _explorers[key]
