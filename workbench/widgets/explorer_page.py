"""The explorer: connects the question, its estimate and outcomes, and what is shown of them, live during a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from IPython.display import display
from traitlets import TraitError

from cluster.client import Cluster
from cluster.hosts import usable_cores
from cluster.seating import Workers
from kernels.outcome import Estimate
from kernels.schedule import Refusal
from kernels.trial import Trial
from workbench import machines, resources
from workbench.charts.labels import context
from workbench.experiment.estimated_space import SpaceQuestion
from workbench.experiment.experiment import Experiment
from workbench.experiment.forecast import COUNTED_MOST, Forecast, forecast
from workbench.experiment.links import known_link
from workbench.experiment.run import StoredRun
from workbench.experiment.sources import FromRecordings
from workbench.machines import crowded
from workbench.naming import TIMED
from workbench.results import comparison
from workbench.results.metrics import row_of
from workbench.results.rows import Row, problem_of, rows_of_first_problem
from workbench.results.store import Store
from workbench.simulator.predict import predict
from workbench.widgets import page_words
from workbench.widgets.answer_strip import AnswerStrip, affordable, row_of_schedule
from workbench.widgets.axis_importance import AxisImportance
from workbench.widgets.baseline import BaselineKeeper
from workbench.widgets.chart_panels import NO_CELLS, cells, landscape_axes, same_problem
from workbench.widgets.charts_follow import ChartsFollow
from workbench.widgets.cluster_watch import (
    MEASURE,
    REPLAY,
    SIMULATE,
    CalibrationNotice,
    ClusterWatcher,
    SourceChoice,
    begin_with,
)
from workbench.widgets.controls import (
    HIDDEN,
    SHOWN,
    folded_html,
    left_out_html,
    note_html,
    refusal_html,
    send_again,
    warning_html,
)
from workbench.widgets.copy_as import CopyAs, PageState
from workbench.widgets.exploration import (
    Exploration,
    Explored,
    OpenView,
    PinBaseline,
    Restore,
    Scene,
    Select,
    ShowRuns,
    estimate_row,
    row_id,
)
from workbench.widgets.form import Availability, FormState, QuestionForm
from workbench.widgets.left_behind import DeletedRuns, LeftViews, MeasuredBefore
from workbench.widgets.live_chart import Click, charts_in
from workbench.widgets.page_layout import ExplorerPage, PageParts
from workbench.widgets.page_memory import PageMemory, key_of
from workbench.widgets.panels import NO_GUESS, Panels, RunStart
from workbench.widgets.results import ReportButton, Results
from workbench.widgets.runs_drawer import DrawerActions, RunsDrawer
from workbench.widgets.saved_views_menu import SavedViewsMenu
from workbench.widgets.session import RunNews, RunSession
from workbench.widgets.timeline_view import (
    FrozenOutput,
    KeptTimelines,
    RowLoader,
    TimelineView,
    is_estimate_of,
    is_of,
)
from workbench.widgets.views import ShownRows, ViewDeck, ViewParts

# The explorer: connects form, run, charts and tables.

DEFAULT_PRESET, DEFAULT_MACHINE = "laptop_overlap", "laptop_cpu"
ELSEWHERE = "h200_nvl8"
"""The machine that "a machine I do not have" begins with."""
LAST = "last"
"""The name of the run that began last."""


class Explorer:
    """One explorer. `show()` puts it into a notebook; `run` and `stop` act like its buttons."""

    def __init__(
        self,
        *,
        run: str = LAST,
        store: Store | None = None,
        cluster: Cluster | str | None = None,
        measures: bool = True,
    ) -> None:
        """*measures*: without it there are recordings alone, and no cluster is looked for."""
        self._first_run = run
        self.store = store or Store()
        self.run_id: str | None = None
        self._drawing = threading.RLock()
        """The kernel's thread and the session's both draw."""
        self._make_parts(cluster)
        self._lay_out()
        self._begin_state()
        self._restore(run)
        self._remember(run)
        self._operator, self._machine = self.form.question.operator, self.form.machine.value
        """What progress and report are about; guess and pinned timeline are of this machine as well."""
        self._listen()
        if measures:
            self.refresh()
            self.watcher.start()
        else:
            for control in (self.answer.measure, self.answer.budget, self.page.status):
                control.layout.display = HIDDEN
            self.source.only_replay()  # which draws the page

    def _make_parts(self, cluster: Cluster | str | None) -> None:
        self.form = QuestionForm(DEFAULT_PRESET, DEFAULT_MACHINE)
        self.session = RunSession(self.store, self._receive)
        self.memory = PageMemory(self.store.path.parent)
        self.panels = Panels(self.store, self._cells)
        self.results, self.frozen = Results(), FrozenOutput(self.store)
        self.shown = TimelineView(self.store)
        self.report = ReportButton(self.store, lambda: self.run_id, lambda: self.explored.state.baseline)
        self.watcher = ClusterWatcher(self._cluster_changed, cluster, self._look)
        self.source = SourceChoice(self.store, self.watcher.cluster, self.watcher.ranks, lambda: self.form.wait_s)
        self.loading = RowLoader(self.form, self.shown)
        self.importance = AxisImportance(self.form.axes)
        self.answer = AnswerStrip(self.store, self.watcher.ranks)
        self.calibrating = CalibrationNotice(self.watcher.cluster, self.refresh)
        self.explored, self.rows = Explored(lock=self._drawing), ShownRows(self.store)
        self.drawer = RunsDrawer(self.store, DrawerActions(
            show=self.show_runs, compare=self.compare_runs, report=self.report.write, removed=self._forget_runs,
            restored=self._bring_back,
        ))  # fmt: skip
        self.copying = CopyAs(self.state, lambda: self.source.value == MEASURE, self.open)
        self.saved = SavedViewsMenu(self.store, self.state, self.open)

    def _lay_out(self) -> None:
        self.deck = ViewDeck(ViewParts(
            explored=self.explored, panels=self.panels, store=self.store, drawer=self.drawer, saved=self.saved.view,
            outcomes=self.results, measure_together=self.measure_together,
        ), self._scene)  # fmt: skip
        self.page = ExplorerPage(PageParts(
            form=self.form, shown=self.shown, ways=self.source.source, replay=self.source.replay,
            progress=self.results.progress, answer=self.answer.view, views=self.deck.view,
            report=self.report.controls, copying=self.copying.widget,
            calibrating=self.calibrating.view, loaded=self.loading.view, shown_again=self._send_again,
        ))  # fmt: skip

    def _begin_state(self) -> None:
        self._seen: set[str] = set()  # shown runs: none replaces the form's content again by itself
        self._workers: Workers | None = None  # the workers of the cluster; None while none has answered
        self._plan: Forecast | None = None
        self._way = self.source.value
        """The way to begin whose question is in the form."""
        self.left, self.before = LeftViews(self._way), MeasuredBefore()
        self.deleted = DeletedRuns(self.explored)
        self._timelines: dict[str, KeptTimelines] = {}
        """The guess and the pinned timeline of each way to begin that was left."""
        self._loaded_recording: object = None
        """The recording whose fastest schedule the form was set to last."""
        self._run_began_at = 0.0
        """When the run that is shown began, in seconds since 1970."""
        self._guess_of: str | None = None
        """The question that the guess in its field is about; None: it is not legal."""
        self._running = False

    def _listen(self) -> None:
        self.form.on_change(self._question_changed)
        self.explored.on_change(self._selection_changed)
        self.pinning = BaselineKeeper(self.explored, self._scene, (self.results.pin, self.panels.pin),
                                      self.page.pin_baseline, self._refuse)  # fmt: skip
        self.follow = ChartsFollow(self.explored, self.panels, self._scene, self._drawing)
        self.page.baseline.on_click(lambda _: self.pinning.toggle())
        self.source.on_change(self._source_changed)
        self.panels.on_cell(self._load_cell)
        self.panels.on_problem(self.form.load_row)
        self.page.run.on_click(lambda _: self.run())
        self.results.together.on_click(lambda _: self.measure_together(self.results.apart))
        self.answer.use.on_click(lambda _: self.use_answer())
        self.answer.measure.on_click(lambda _: self.measure_best())
        self.page.stop.on_click(lambda _: self.stop())
        self.page.pin.on_click(lambda _: self._pin())
        self.page.guess.observe(lambda _: self._guessed(), "value")

    def show(self) -> None:
        """Shows the explorer in this cell's output, with a frozen copy of the last run below it."""
        self._catch_up()
        display(self.page.view)
        self.frozen.show(None if self._running else self.run_id)

    def _send_again(self) -> None:
        with self._drawing:
            send_again(self.page.view)

    def close(self) -> None:
        """Ends the background threads and the timers of charts, once this explorer is no longer shown."""
        self.watcher.close()
        self.session.stop()
        self.frozen.close()
        self.calibrating.close()
        self.answer.close()
        self.importance.close()
        self.memory.close()
        self.deck.close()
        self.follow.close()
        self.drawer.close()
        for chart in charts_in(self.page.view):
            chart.close()

    # The current question, redrawn on every change.

    def _question_changed(self) -> None:
        self.importance.hold()
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
        self.memory.keep(self._way, self.form.state)

    def refresh(self) -> None:
        """Redraws the estimate and the newest measurement of the form's current schedule."""
        with self._drawing:
            self._update_availability()
            self.calibrating.compare(self.form.machine_value, timed=bool(self.panels.rows))
            self.answer.ask(self.form.question, self.form.machine_value)
            try:
                self.shown.unestimated = self.form.question.no_estimate(self.form.machine_value) or ""
                self.shown.estimate = self._predicted()
                self.panels.same_problem = same_problem(self.form.question)
                self._plan = self._planned()
            except Refusal as refusal:
                self.shown.estimate = self.shown.row = self._plan = None
                self.shown.unestimated, self.shown.refused = "", str(refusal)
                self.page.plan.value = refusal_html(str(refusal)) if not self.form.refusal.value else ""
            else:
                self.page.plan.value = note_html(self._plan_text(self._plan)) if self._plan else ""
            if self.source.value == REPLAY:
                self.page.plan.value = self._replay_text()
            self._follow_guess()
            self._warn()
            self._allow_run()
            self.shown.awaited = {MEASURE: "measured", REPLAY: "recorded"}.get(self.source.value)
            self._show_measured()
            self._show_ratio()
            self._show_whose()
            self.pinning.follow()
            self.shown.draw()  # before the landscape: who moves a slider watches the timeline
            if self.shown.estimate is not None:
                self._offer_landscape()
            else:
                self.panels.landscape.forget()  # its estimates are of the question before
            space, of_problem = self._space(), list(filter(self.panels.same_problem, self.panels.problem.shown))
            self.deck.follow(space)
            self.importance.follow(of_problem, self.form.scheme.value, space)

    def _update_availability(self) -> None:
        """Updates which questions source and cluster can answer."""
        self.form.set_availability(Availability(self.source.value == MEASURE, self._workers))

    def _predicted(self) -> Estimate | None:
        """The estimate of the form's schedule; None where ranks share a GPU."""
        question, machine = self.form.question, self.form.machine_value
        trial = question.trial(machine)
        if self.shown.unestimated:
            return None
        ranks = self.watcher.ranks(trial.world, trial.backend, trial.across)
        linked = known_link(trial.fabric, trial.problem, machine, self.store, ranks.hardware if ranks else None)
        return predict(replace(trial, fabric=linked), machine)

    def _planned(self) -> Forecast | None:
        """The forecast of what Run would do; None for a replay, whose recording decides that."""
        unestimated = self.shown.unestimated and self.source.value == MEASURE
        if self.source.value == REPLAY or (self.shown.estimate is None and not unestimated):
            return None
        question, machine = self.form.question, self.form.machine_value
        measured, across = self.source.value == MEASURE, question.link().across
        return forecast(question.experiment(machine), machine, self.store, measured=measured, most=COUNTED_MOST,
                        ranks=lambda world, backend: self.watcher.ranks(world, backend, across))  # fmt: skip

    def _plan_text(self, plan: Forecast) -> str:
        question = self.form.question
        sweeps = question.swept_values(self.form.machine_value)
        return page_words.plan_text(plan, is_busy=self.source.value == MEASURE and self.watcher.is_busy,
                                    budget_s=question.search.budget_s if sweeps else None)  # fmt: skip

    def _replay_text(self) -> str:
        refused = self._replay_refusal()
        return refusal_html(refused) if refused else note_html(page_words.replay_text(whole=self.source.whole.value))

    def _replay_refusal(self) -> str | None:
        return self.source.refusal(self.form.question, self.form.machine_value)

    def _offer_landscape(self) -> None:
        axes = self.form.question.axes(self.form.machine_value)
        self.panels.landscape.offer(landscape_axes(axes))
        self.panels.step.offer(str(self.form.problem.preset.value))

    def _cells(self, x: str, y: str) -> tuple[Sequence[Row], str]:
        """Estimates of the question with every value of axes *x* and *y*, and how many the filters leave out."""
        space = self._space()
        if space is None:
            return [], NO_CELLS
        rows, left_out = cells(space, x, y, self.explored.state.filters)
        return rows, " ".join(filter(None, (left_out, self._scene().left_out)))

    def _is_shown(self, row: Row) -> bool:
        """Whether *row* is of the schedule that the form shows."""
        trial = self._trial()
        return trial is not None and is_of(trial)(row) and row["part"] == "whole" and self.panels.same_problem(row)

    def _trial(self) -> Trial | None:
        """The trial of the form's schedule; None if it is not legal."""
        if self.shown.unestimated:
            return self.form.question.trial(self.form.machine_value)
        return None if self.shown.estimate is None else self.shown.estimate.trial

    def _show_measured(self) -> None:
        """Updates the newest time of the form's schedule, if this run has one."""
        trial = self._trial()
        chosen = selected = self._scene().selected
        is_here = selected is not None and self._is_shown(selected)
        if chosen is None or not is_here or chosen["source"] not in TIMED:
            newest = None if trial is None else self.panels.timed(trial)
            chosen = newest if newest is not None and self.panels.same_problem(newest) else None
            self.shown.row = chosen
            is_estimate = is_estimate_of(estimate_row(self.explored.state.selected), trial)
            if not (is_estimate or (is_here and chosen is None)):
                self.explored.dispatch(Select(None if chosen is None else row_id(chosen)))
        elif row_id(chosen) != self.explored.state.selected:  # a block was timed again: another timing counts now
            self.shown.row = chosen
            self.explored.dispatch(Select(row_id(chosen)))
        self.panels.landscape.mark(None if trial is None else trial.schedule.to_json())
        self.shown.row = chosen
        self.panels.mark(self._scene().selected)
        self.panels.choose(None if chosen is None else chosen["key"])
        alike: Sequence[Row] = () if chosen is None else self.panels.problem.rows.get(problem_of(chosen), ())
        if chosen is None and trial is not None and self.source.value == MEASURE and not self._running:
            # of a run whose views are gone, as another question was run meanwhile
            self.shown.row, alike = self.before.find(trial, self.panels.same_problem, self.store.has_run)
        self.shown.freeze(lambda estimated: predict(estimated, self.form.machine_value))
        self.shown.find_gain(alike, self.form.machine_value, goes_on=self._running)

    def _show_whose(self) -> None:
        """Names the question in the strip, and says where the views are of another one than the form's."""
        trial = self._trial()
        if trial is not None:
            self.page.name(page_words.question_text(trial))
        firsts = [rows[0] for rows in self.panels.problem.rows.values()]
        machine = self.form.machine.value
        is_shown = any(row["machine"] == machine and self.panels.same_problem(row) for row in firsts)
        older = page_words.older_text(firsts, is_shown=is_shown or self._running)
        self.page.older.value = note_html(older) if older else ""

    def _guessed(self) -> None:
        """Keeps the guess for the question that it is about, and shows it."""
        if self._guess_of is not None:
            self.memory.guess(self._guess_of, self.page.guess.value)
        self.shown.read_guess()

    def _follow_guess(self) -> None:
        """Shows the guess that was made for the form's question; a guess about another one waits until it returns."""
        trial = self._trial()
        key = None if trial is None else key_of(trial, self.form.question.fabric)
        if key != self._guess_of:
            self._guess_of = None  # what is shown now was typed before
            self.page.guess.value = self.memory.guesses.get(key or "", "")
            self._guess_of = key

    def _show_ratio(self) -> None:
        """Shows the ratios of wire to computation that are drawn, where one is not that of the slider."""
        note = self.shown.ratio_note(self.form.machine_value)
        self.form.drawn_ratio.value = folded_html(note) if note else ""

    def _pin(self) -> None:
        with self._drawing:
            self.shown.toggle_pin()

    def _warn(self) -> None:
        """Shows warnings about measuring, and ignored files."""
        measured = self.source.value == MEASURE and self.form.machine_value.backend == "cpu"
        warning = crowded(self.form.question.world, usable_cores()) if measured else None
        self.page.banner.value = warning_html(warning) if warning else ""
        trouble = warning_html(self.memory.trouble) if self.memory.trouble else ""
        self.page.left_out.value = left_out_html(resources.messages()) + trouble

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
        """Changes over to another way to begin, or to another recording: each way has a question of its own."""
        self.page.message.value = ""
        way, before = self.source.value, self._way
        if way != before:
            self.memory.keep(before, self.form.state)
            self._timelines[before] = self.shown.kept
            self.left.leave(self.explored.state)
            self._way = way
            self._begin_way(way)
            self._show_left(way)
        if way == REPLAY and self.source.recording.value not in (None, self._loaded_recording):
            if self._loaded_recording is not None and way == before and not self._running:
                self._show_none()
            self._loaded_recording = self.source.recording.value
            self._load_recorded()
        self.refresh()
        self.memory.keep(way, self.form.state)

    def _begin_way(self, way: str) -> None:
        """Sets the form to the question that *way* was left with; the first time, to one that suits it."""
        if way in self.memory.ways:
            self._restore_form(self.memory.ways[way])
        elif way == SIMULATE and self.form.machine_value.backend == machines.machine(DEFAULT_MACHINE).backend:
            self.form.choose_machine(ELSEWHERE)
        self._update_availability()
        if way == MEASURE:
            begin_with(self.form, self._workers, self.watcher.cluster)  # a cluster may have come meanwhile
        if way in self._timelines:
            self.shown.restore(self._timelines[way])
        else:
            self.shown.forget()

    def _show_left(self, way: str) -> None:
        """Shows the views as *way* was left, or empty ones; those of a run that goes on stay."""
        if self._running or way == self.left.shown:
            return
        state = self.left.state(way, self.store.has_run)
        if state is None:
            self._show_none()
        else:
            self._show_stored([self.store.run(run) for run in state.runs], loads=False)
            self.explored.dispatch(Restore(state))

    def _show_none(self) -> None:
        """Shows no run: the views are empty but for estimates."""
        self.before.keep(self.panels.problem.rows)
        self.run_id, self.left.shown = None, self._way
        self.report.forget()
        self.panels.clear()
        self.rows.begin(None)
        self.explored.dispatch(ShowRuns(()))
        self.explored.dispatch(OpenView(""))
        self.results.clear()
        self.calibrating.show([])

    def _restore_form(self, state: FormState) -> bool:
        """Sets the form to *state*, and returns whether it could: its machine or operator may be gone."""
        before = self.form.state
        try:
            self.form.restore(state)
        except (ValueError, KeyError, TypeError, TraitError):
            self.form.restore(before)
            return False
        return True

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
        self._start(lambda: self.source.run_for(self.form.question, self.form.machine_value))

    def measure_together(self, rows: Sequence[Row]) -> None:
        """Measures the schedules of *rows* in turns; returns at once."""
        if rows and not self._running:
            self.source.source.value = MEASURE
            self.form.load_row(rows[0])
            self._start(lambda: self.source.run_together(rows))

    def use_answer(self) -> None:
        """Sets the form to the schedule of the answer."""
        if (answer := self.answer.answer) is not None:
            self.loading.take({"scheme": answer.schedule.scheme, "axes": dict(answer.schedule.axes)})

    def measure_best(self) -> None:
        """Measures the best of the answer in one block, as many as its budget allows; returns at once."""
        answer, budget_s = self.answer.answer, float(self.answer.budget.value)
        if self._running or answer is None:
            return
        row = row_of_schedule(answer)
        if self.source.value != MEASURE:  # a replay returns to the question that was there before it
            self.source.source.value = MEASURE
            self.loading.take(row)
        self.loading.take({"scheme": row["scheme"], "axes": row["axes"]})
        protocol = self.form.question.protocol
        self._start(lambda: self.source.run_of(affordable(answer, budget_s, self._forecast_of, protocol)), budget_s)

    def _forecast_of(self, experiment: Experiment) -> Forecast:
        """The forecast of *experiment* on the cluster's ranks."""
        across = experiment.fabric.across
        return forecast(experiment, self.form.machine_value, self.store,
                        ranks=lambda world, backend: self.watcher.ranks(world, backend, across))  # fmt: skip

    def _start(self, make: Callable[[], StoredRun], budget_s: float | None = None) -> None:
        """Starts the run that *make* returns, unless a run goes on; shows its refusal."""
        if self._running:
            return
        try:
            self.store.refuse_absence()
            stored_run = make()
        except ValueError as refused:
            self.page.message.value = refusal_html(str(refused))
            return
        self.page.message.value = ""
        with self._drawing:
            self._begin(stored_run)
        self.session.start(stored_run, budget_s)

    def _begin(self, stored_run: StoredRun) -> None:
        self.before.keep(self.panels.problem.rows)
        self.run_id, self.left.shown, self.shown.row = stored_run.run, self._way, None
        self.memory.keep(self._way, self.form.state)  # it is newer than the run: a restarted kernel begins with it
        self.page.older.value = ""
        self._seen.add(stored_run.run)
        self.report.forget()
        question, machine = self.form.question, self.form.machine_value
        swept = {} if self.source.value == REPLAY and self.source.whole.value else question.swept_values(machine)
        estimate = self.shown.at_run = self.shown.estimate
        guess_s, guessed = self.shown.guess_of
        self.panels.begin(RunStart(
            swept=swept, context="" if estimate is None else self._context(estimate), guess_s=guess_s,
            timed=self.source.value != SIMULATE, guessed=guessed,
        ))  # fmt: skip
        self.rows.begin(stored_run.run)
        self.explored.dispatch(ShowRuns((stored_run.run,)))
        self.explored.dispatch(Select(None))  # an estimate that was selected gives way to what is timed
        self.explored.dispatch(OpenView("along" if swept else "trials"))
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
            answerable = self.shown.estimate is not None or (self.shown.unestimated and self.source.value == MEASURE)
            accepted = bool(answerable) and not self.form.refusal.value and not no_cluster
        self.page.run.disabled = self._running or not accepted
        self.page.stop.disabled = not self._running
        self.page.plan.layout.display = HIDDEN if self._running else SHOWN
        unmeasurable = Availability(True, self._workers).machine_refusal(self.form.machine_value)
        self.answer.allow(not self._running and self._workers is not None, unmeasurable)

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
            self.rows.add(news.rows)
            if news.ended:
                self.rows.settle()
            if news.rows or news.ended:
                self.follow.keep()
                self.deck.draw()
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
            self.page.message.value = refusal_html(page_words.failures_text(failed))
        self._allow_run()  # even if drawing fails below
        self.answer.forget()  # what was measured may be another answer
        self.frozen.freeze_soon(news.run)
        self.refresh()

    def _scene(self) -> Scene:
        """What the views read."""
        with self._drawing:
            return self.rows.scene(self.explored.state, self._space())

    def _space(self) -> SpaceQuestion | None:
        """The space of the form's question; None where that is not legal."""
        estimate = self.shown.estimate
        if estimate is None:
            return None
        return SpaceQuestion(self.form.question, self.form.machine_value, estimate.trial.fabric)

    def _load_cell(self, click: Click) -> None:
        """Selects the row of the clicked mark, and sets the form to its schedule."""
        row = self.panels.row_of(click)
        is_of_run = row is not None and row.get("run") and row_id(row) in self._scene().by_id  # a cell is of none
        if row is not None and is_of_run:
            self.explored.dispatch(Select(row_id(row)))
        if row is not None and not (is_of_run and self._is_shown(row)):
            self.loading.take(row)

    def _selection_changed(self, before: Exploration, after: Exploration) -> None:
        """Sets the form to the selected row, wherever it was selected."""
        if before.selected == after.selected:
            return
        row, estimate = self._scene().selected, estimate_row(after.selected)
        if estimate is not None:
            if not is_estimate_of(estimate, self._trial()):
                self.loading.take(estimate)
        elif row is not None and not self._is_shown(row):
            self.loading.take(row)
        elif row is not None and (self.shown.row is None or after.selected != row_id(self.shown.row)):
            self._show_measured()  # the same schedule of another run or block
            self._show_ratio()
            self.shown.draw()

    def _refuse(self, message: str) -> None:
        self.page.message.value = refusal_html(message)

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
        self._show_stored([stored])

    def show_runs(self, runs: Sequence[str]) -> bool:
        """Shows the ended *runs* in the same views, the last one as the page's own, and returns whether it could:
        not while a run goes on."""
        if self._running:
            self.page.message.value = refusal_html(page_words.GOES_ON)
            return False
        try:
            self.store.refuse_absence()
            stored = [self.store.run(run) for run in runs]
        except ValueError as unknown:
            self.page.message.value = refusal_html(str(unknown))
            return False
        with self._drawing:
            self._show_stored(stored)
            self.refresh()
        return True

    def compare_runs(self, first: str, second: str) -> None:
        """Shows both runs, with the fastest schedule of the *first* as the baseline for that of the *second*."""
        if not self.show_runs([first, second]):
            return
        fastest = [comparison.fastest(rows_of_first_problem(self.rows.rows([run]))) for run in (first, second)]
        if None in fastest:
            return
        base, selected = (row_id(row) for row in fastest if row is not None)
        for event in (PinBaseline(base), Select(selected), OpenView("compare")):
            self.explored.dispatch(event)

    # The state of the whole page, for links and saved views.

    def state(self) -> PageState:
        """What the page is about, and how it is looked at."""
        form = self.form.state
        return PageState(exploration=self.explored.state, question=form.question, machine=form.machine,
                         preset=form.preset)  # fmt: skip

    def open(self, wanted: PageState) -> None:
        """Shows *wanted*; ValueError where that cannot be, or where a run of it is not in this store."""
        if self._running:
            raise ValueError(page_words.GOES_ON)
        if not self._restore_form(FormState(wanted.question, wanted.machine, wanted.preset)):
            raise ValueError(page_words.not_described_text(wanted.machine, wanted.question.operator))
        known = [run for run in wanted.exploration.runs if self.store.has_run(run)]
        if known and known != list(self.explored.state.runs):
            self.show_runs(known)
            self._restore_form(FormState(wanted.question, wanted.machine, wanted.preset))
        self.explored.dispatch(Restore(replace(wanted.exploration, runs=self.explored.state.runs)))
        if missing := [run for run in wanted.exploration.runs if run not in known]:
            raise ValueError(page_words.missing_runs_text(missing, wanted.exploration.runs))

    def _forget_runs(self, runs: Sequence[str]) -> None:
        """Shows deleted *runs* no longer, except for the page's own, which stays until another one is shown."""
        self.deleted.take_away([run for run in runs if run != self.run_id])

    def _bring_back(self, runs: Sequence[str]) -> None:
        if not self._running:
            self.deleted.bring_back(runs)

    def _show_stored(self, runs: Sequence[Mapping[str, Any]], *, loads: bool = True) -> None:
        """Shows stored *runs* that have ended; the last one is the page's own, whose best schedule the form *loads*."""
        stored = runs[-1]
        self.before.keep(self.panels.problem.rows)
        rows = [row for run in runs for row in self.store.rows(run["id"])]
        whole = [row for row in rows if row["part"] == "whole"]
        best = comparison.fastest(rows_of_first_problem(whole))
        if best is not None and loads:
            self.form.load_row(best)
        self.run_id, self.left.shown = stored["id"], self._way
        self._run_began_at = float(stored["started_at"])
        self._seen.add(stored["id"])
        self.panels.show(stored["id"], rows, context(whole), NO_GUESS if loads else self.shown.guess_of)
        self.rows.begin(stored["id"])
        self.rows.add(row for row in rows if row["run"] == stored["id"])
        self.explored.dispatch(ShowRuns(tuple(run["id"] for run in runs)))
        self.explored.dispatch(OpenView("trials"))
        self.results.show(stored, rows)
        self.calibrating.show(rows)

    def _remember(self, run: str) -> None:
        """Sets the form to the question that a kernel before this one left, unless a run is newer or *run* is wanted.

        The page begins where it was left, except with a replay, which begins anew.
        """
        if not self.memory.read() or run != LAST or self.memory.at < self._run_began_at:
            return
        way = self.memory.way if self.memory.way in (MEASURE, SIMULATE) else MEASURE
        if way in self.memory.ways and self._restore_form(self.memory.ways[way]) and way != self._way:
            self.left.leave(self.explored.state)  # the last run is of the way before
            self._way = way
            self.source.source.value = way
