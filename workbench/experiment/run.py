"""Runs: an Experiment is measured block by block, and everything that comes back is stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import fsum
from typing import Any, Protocol, TypeGuard

from cluster.seating import Ranks
from kernels.fabric import Fabric
from kernels.files import Failed
from kernels.hardware import Execution, Hardware, versions_print
from kernels.machine import Machine
from kernels.outcome import Estimate, Failure, Measurement, Outcome, Sample
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes.concurrent import problems
from kernels.trial import Trial
from kernels.units import about, seconds_text
from workbench.experiment.experiment import (
    RESOLVING,
    BaselinePlan,
    Block,
    Experiment,
    compute_alone,
    has_parts,
)
from workbench.experiment.experiment import (
    rounds as search_rounds,
)
from workbench.experiment.forecast import (
    GRANT_SECONDS,
    CompiledKernels,
    Durations,
    ExpectedTime,
    Forecast,
    WorkTotals,
    compiled_before,
    crowd,
    crowded,
    cutting,
    expected,
    forecast,
    longest,
    overhead_s,
    rounds,
    work_of,
)
from workbench.experiment.links import known_link, link_of
from workbench.experiment.retries import Retries, RetryReport, is_broken_off
from workbench.experiment.sources import Answer, CompileProgress, FromRecordings, WaitReport
from workbench.experiment.space import Points
from workbench.experiment.time_left import TimeLeft
from workbench.machines import matching
from workbench.results import metrics
from workbench.results.decode import CANCELLED, FINISHED, REFUSED
from workbench.results.provenance import provenance
from workbench.results.quiet import is_busy
from workbench.results.recordings import Recorded
from workbench.results.store import SampleBuffer, Store
from workbench.simulator.predict import predict, resolved

# Stored runs: samples and outcomes pass through them into the store, whatever ends the run.

Events = Iterator[Sample | Outcome]


class RemainingTime(Protocol):
    """The remaining time of a run that measures: workbench.experiment.time_left.TimeLeft."""

    correction: float
    block: int

    @property
    def blocks(self) -> int:
        """The number of blocks of the run."""

    def share(self) -> float:
        """The share of all work that is done."""

    def seconds(self) -> float:
        """The remaining seconds."""


@dataclass(slots=True)
class Progress:
    """The progress of a run in schedules, without their parts and baselines."""

    total: int = 0
    """Number of legal schedules."""
    done: int = 0
    failed: int = 0
    known: int = 0
    """Number of done schedules that were measured before this run."""
    refused: int = 0
    """Number of illegal combinations of the space."""
    samples: int = 0
    started_at: float = field(default_factory=time.monotonic)
    left: RemainingTime | None = None
    """The remaining time of a run that measures."""
    compiling: CompileProgress = field(default_factory=CompileProgress)
    """The current progress of compilation."""
    waiting: WaitReport = field(default_factory=WaitReport)
    """The current wait for ranks."""
    again: RetryReport = field(default_factory=RetryReport)
    """The trials that ran again after a rank was lost."""
    timed_again: int = 0
    """Number of blocks that were timed twice, because others used the cores."""
    ended_early: str = ""
    """Why the search ended before all of its schedules, as a sentence."""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def share(self) -> float:
        """The share of the run that is done."""
        if self.left is not None:
            return self.left.share()
        return min(1.0, self.done / self.total) if self.total else 0.0

    def counted(self) -> list[str]:
        """The progress as texts: schedules, block, samples, compilation, retries, wait."""
        noun = "schedule" if self.total == 1 else "schedules"
        block = self.left and self.left.block
        return [
            f"{self.done:,} of {self.total:,} {noun}",
            *([f"block {self.left.block:,} of {self.left.blocks:,}"] if self.left and block else []),
            *([f"{self.samples:,} samples"] if self.samples else []),
            *([f"{self.timed_again:,} timed again, as the computer is busy"] if self.timed_again else []),
            *filter(None, (*map(str, (self.compiling, self.again, self.waiting)), self.ended_early)),
        ]  # fmt: skip

    def left_text(self) -> str:
        """The remaining time as text."""
        if self.ended_early:
            return "ends"
        if self.left is not None:
            return f"{about(self.left.seconds())} left"
        if 0 < self.done < self.total:
            return f"{about(self.elapsed_s * (self.total - self.done) / self.done)} left"
        return "running"


class StoredRun:
    """A run that is stored; iterate it in the thread that does the work, and set `cancelled` from any other to end
    it."""

    def __init__(self, store: Store, question: Mapping[str, Any], facts: Mapping[str, Any], title: str = "") -> None:
        self.store = store
        self.progress = Progress()
        self.cancelled = threading.Event()
        self.timing: Mapping[str, Trial] = {}
        """The trials by key that samples may come from now."""
        self._tried = False
        """Whether anything was answered or began: otherwise the request was refused, and is no run."""
        self._gpus: set[tuple[int, str]] = set()
        """Ranks with their GPUs, from all measurements."""
        self.run = store.begin_run(question, facts, title)
        """The run's id."""
        self._events = self._guarded()

    def __iter__(self) -> Events:
        return self._events

    def _work(self) -> Events:
        """Does the work; yields only stored samples and outcomes."""
        raise NotImplementedError

    def _guarded(self) -> Events:
        self._buffer = SampleBuffer(self.store, self.run)
        status = "ended before its end"
        try:
            yield from self._work()
            status = CANCELLED if self.cancelled.is_set() else FINISHED if self._tried else REFUSED
        except (KeyboardInterrupt, GeneratorExit):
            status = CANCELLED
            raise
        except Exception as error:
            status = REFUSED if _is_refusal(error) and not self._tried else str(error)
            raise
        finally:
            try:
                self._buffer.close()
            finally:  # a full disk may still have room for the status
                self.store.end_run(self.run, status)

    def _keep_sample(self, sample: Sample) -> Sample:
        self.progress.samples += 1
        self._buffer.add(sample)
        return sample

    def _keep(self, outcome: Outcome, machine: Machine | None, origin: str | None = None) -> Outcome:
        """Stores *outcome* together with the samples that came before it."""
        row = metrics.row_of(outcome, self.run, machine)
        self._tried |= self._tries(outcome)
        if isinstance(outcome, Measurement) and outcome.source == "measured":
            self._learn_gpus(outcome)
        self.store.add_outcome(self.run, outcome, row, origin=origin, samples=self._buffer.take())
        return outcome

    def _tries(self, outcome: Outcome) -> bool:
        """Whether *outcome* shows that more was done than refusing."""
        return not (isinstance(outcome, Failure) and outcome.stage == "refused")

    def _learn_gpus(self, outcome: Measurement) -> None:
        gpus = {(rank["rank"], f"{rank['gpu_name']} {rank['gpu']}") for rank in outcome.conditions if "gpu" in rank}
        if not gpus <= self._gpus:
            self._gpus |= gpus
            self.store.add_facts(self.run, {"gpus": [f"rank {rank}: {gpu}" for rank, gpu in sorted(self._gpus)]})

    def _count(self, outcome: Outcome) -> None:
        """Counts *outcome* as done, unless its trial had not begun when a person stopped the run."""
        if isinstance(outcome, Failure) and outcome.stage == "cancelled":
            return
        self.progress.done += 1
        self.progress.failed += isinstance(outcome, Failure)


def _is_refusal(error: Exception) -> bool:
    """Whether the question cannot be asked; other errors are the world's."""
    return isinstance(error, ValueError) and not isinstance(error, Failed)


class Replay(StoredRun):
    """A run of replayed recorded trials, with the estimates of *machine* if one is given."""

    def __init__(self, recorded: Iterable[Recorded], store: Store, *, machine: Machine | None = None,
                 speed: float | None = 1.0, title: str = "") -> None:  # fmt: skip
        self._answer = FromRecordings(recorded, speed)
        self._machine = machine
        super().__init__(store, {"replay": title}, {**provenance(machine), **self._answer.origin}, title)
        self._settled: set[str] = set()
        trials = (entry.measurement.trial for entry in self._answer.entries)
        self.progress.total = len({trial.key for trial in trials if trial.part == "whole"})

    def _work(self) -> Events:
        for entry in self._answer.entries:
            trial = entry.measurement.trial
            if self._machine is not None and trial.key not in self._settled:
                with suppress(Refusal):  # *machine* cannot run what was recorded: no estimate
                    yield self._keep(predict(trial, self._machine, with_spans=False), self._machine)
            self.timing = {trial.key: trial}
            for event in self._answer.play(entry, self.cancelled):
                if isinstance(event, Sample):
                    yield self._keep_sample(event)
                else:
                    if trial.part == "whole" and trial.key not in self._settled:
                        self._count(event)
                    self._settled.add(trial.key)
                    yield self._keep(event, self._machine)
            if self.cancelled.is_set():
                return


# Runs of experiments.

AHEAD = 48
"""The number of problems whose schedules are counted before the first one begins, and with each further one: a sweep of
thousands would say nothing for a minute."""


class PointsAhead:
    """The points of an experiment's problems, some problems ahead of the one that runs."""

    def __init__(self, experiment: Experiment, machine: Machine, *, measured: bool) -> None:
        self._experiment, self._machine, self._measured = experiment, machine, measured
        self._points: dict[int, Points] = {}
        self._counted = self._schedules = 0
        self._count_on(AHEAD)

    @property
    def total(self) -> int:
        """The number of schedules; estimated from the counted problems until all are counted."""
        return round(self._schedules * len(self._experiment.problems) / max(1, self._counted))

    def take(self, number: int) -> Points:
        """The points of problem *number*, once; AHEAD further problems are counted."""
        self._count_on(max(AHEAD, number + 1 - self._counted))
        return self._points.pop(number)

    def _count_on(self, more: int) -> None:
        most = self._experiment.search.count
        for problem in self._experiment.problems[self._counted : self._counted + more]:
            points = self._experiment.points(problem, self._machine, measured=self._measured)
            self._points[self._counted] = points
            self._counted += 1
            self._schedules += min(len(points.schedules), most or len(points.schedules))


IN_VAIN_MOST = 2
"""Repetitions that others disturbed as well, after which nothing is timed again until a block was quiet."""
LOST_IN_A_ROW = 3
"""Blocks lost in a row through no rank's fault after which the cluster counts as gone."""


class Run(StoredRun):
    """A run of an experiment: trials are estimated, then measured, and each is settled by one outcome."""

    def __init__(self, experiment: Experiment, store: Store, answer: Answer, machine: Machine) -> None:
        facts = provenance(machine, experiment.search.seed)
        facts |= answer.origin if isinstance(answer, FromRecordings) else {}
        super().__init__(store, experiment.to_json(), facts, experiment.title)
        self.experiment, self._answer, self._machine = experiment, answer, machine
        self.requested: set[str] = set()
        """Keys of the requested trials, which count as progress, unlike their parts and baselines."""
        self._estimates: dict[str, Estimate | None] = {}
        self._settled: dict[str, Outcome] = {}
        self._shown: set[tuple[str, str | None]] = set()
        """Keys and blocks of known outcomes that were already yielded."""
        self._left: TimeLeft | None = None
        self._compiled = CompiledKernels()
        self._blocks = self._lost = self._in_vain = 0
        self._others_share: float | None = None
        """Share of the cores that others had during the last block."""
        self._referenced: set[Problem] = set()
        """Problems whose reference the ranks have computed in a block of schedules."""
        self._problem = 0
        self._plans: dict[Problem, BaselinePlan] = {}
        """The baseline plan of all blocks after the first, by problem."""
        self._first: set[str] = set()
        """Keys of the trials of first blocks."""
        self._ranks_of: dict[int, Ranks | None] = {}
        """The ranks by world, requested once."""

    @property
    def _measures(self) -> bool:
        return self._answer.source == "measured"

    def _tries(self, outcome: Outcome) -> bool:
        """An estimate that comes before a measurement answers nothing by itself."""
        return super()._tries(outcome) and not (self._measures and isinstance(outcome, Estimate))

    def _work(self) -> Events:
        ahead = PointsAhead(self.experiment, self._machine, measured=self._measures)
        self.progress.total = ahead.total
        if self._measures:
            self._check_hardware()
            expected_work = self.forecast()
            starting_s = self._answer.starting_s if expected_work.samples else 0.0  # known trials need no ranks
            among = expected_work.looked, expected_work.problems
            self.progress.left = self._left = TimeLeft(expected_work.remaining, starting_s, among=among)
        for number, problem in enumerate(self.experiment.problems):
            self._problem = number
            if self._left is not None and not self._left.has(number):
                ranks = self._ranks(problem.world, self.experiment.backend)
                self._left.add(number, work_of(self.experiment, problem, self._machine, self.store, ranks))
            points = ahead.take(number)
            self.progress.total = ahead.total
            yield from self._walk(problem, points)
            if self.cancelled.is_set() or self._is_spent():
                return

    def forecast(self) -> Forecast:
        """The remaining work, as far as known now."""
        return forecast(self.experiment, self._machine, self.store, measured=self._measures, ranks=self._ranks)

    def _ranks(self, world: int, backend: str) -> Ranks | None:
        """The *world* ranks of *backend* that would run trials, stored with the run; None if unknown."""
        if world not in self._ranks_of:
            self.progress.waiting = WaitReport(world, 0.0, "they have not reported yet what they are")
            self._ranks_of[world] = granted = self._answer.ranks(
                world, backend, self.cancelled, self.experiment.fabric.across)  # fmt: skip
            self.progress.waiting = WaitReport()
            if granted is not None and self._measures:
                gangs = {f"world {each}": str(ranks.hardware) for each, ranks in self._ranks_of.items() if ranks}
                versions = {"versions": dict(granted.versions), "versions_print": versions_print(granted.versions)}
                self.store.add_facts(self.run, {"ranks": {**versions, "hardware": gangs}})
        return self._ranks_of[world]

    def _ran(self, world: int) -> Execution | None:
        """The execution of a trial of *world* ranks now; None if unknown, so that no trial counts as known."""
        ranks = self._ranks(world, self.experiment.backend)
        return ranks.execution(self.experiment.backend) if ranks else None

    def _hardware(self, world: int) -> Hardware | None:
        ranks = self._ranks(world, self.experiment.backend)
        return ranks.hardware if ranks else None

    def _check_hardware(self) -> None:
        """Raises Refusal where the ranks are not those of the machine, before wrong measurements are stored."""
        for world in sorted({problem.world for problem in self.experiment.problems}):
            if (hardware := self._hardware(world)) is None:
                continue
            fits = matching.refusal(self._machine, hardware, world)
            sharing = matching.sharing_refusal(self.experiment.fabric, hardware, world)
            if (message := fits or sharing) is not None:
                raise Refusal(message)

    def _walk(self, problem: Problem, points: Points) -> Events:
        """Measures one problem."""
        for schedule, message in points.refused:
            trial = self.experiment.trial(problem, schedule, self.experiment.fabric)
            self.progress.refused += 1
            self.requested.add(trial.key)
            yield self._fail(trial, "refused", message)
        if self._measures:
            self._compiled.add(compiled_before(self.experiment, problem, self.store, self._ran(problem.world)))
        fabric = yield from self._fabric(problem, points.schedules)
        if fabric is None or not points.schedules:
            return
        durations = self._durations(problem, fabric)
        plan = self.experiment.baseline_plan(problem, points.schedules, fabric, self._machine)
        walk = search_rounds(self.experiment.search, points.schedules, durations.whole_s)
        times: dict[Schedule, float] = {}
        chosen = next(walk, None)
        while chosen is not None and not self.cancelled.is_set():
            wholes = [
                self._answer.matching_trial(self.experiment.trial(problem, schedule, fabric)) for schedule in chosen
            ]
            self.requested |= {trial.key for trial in wholes}
            yield from self._measure(wholes, plan, durations)
            times |= {trial.schedule: outcome.time_s for trial in wholes
                      if isinstance(outcome := self._settled.get(trial.key), Measurement | Estimate)}  # fmt: skip
            try:
                chosen = None if self._is_spent() else walk.send(times)
            except StopIteration:
                chosen = None

    def _is_spent(self) -> bool:
        """Whether the search's budget is over."""
        budget_s = self.experiment.search.budget_s
        return budget_s is not None and self.progress.elapsed_s >= budget_s

    def _ends_before(self, block: Block) -> bool:
        """Whether the search ends before *block*: its budget is over, or nothing in it can be the fastest."""
        search, why = self.experiment.search, ""
        if self._is_spent():
            why = f"its budget of {about(search.budget_s or 0.0)} is over"
        elif search.has_stopping_rule and not block.first:
            why = self._cannot_be_fastest(block)
        if why and not self.progress.ended_early:
            progress = self.progress
            progress.ended_early = f"The search ended after {progress.done:,} of {progress.total:,} schedules: {why}."
            self.store.add_facts(self.run, {"ended_early": progress.ended_early})
        return bool(why)

    def _cannot_be_fastest(self, block: Block) -> str:
        """Why no schedule of *block* can beat the best measured time, as a clause; empty where one can."""
        wholes = [one for one in block.schedules if one not in block.baselines]
        problem = block.trials[0].problem
        right = [one for one in self._settled.values() if isinstance(one, Measurement) and one.correct]
        times = [one.time_s for one in right if one.trial.part == "whole" and one.trial.problem == problem]
        if not times or not wholes:
            return ""
        best_s = min(times)
        try:
            lowest_s = min(predict(one, self._machine, with_spans=False).low_s for one in wholes)
        except Refusal:  # without an estimate there is no bound
            return ""
        if lowest_s <= best_s:
            return ""
        return f"the next lower bound, {seconds_text(lowest_s)}, exceeds the best measured time, {seconds_text(best_s)}"

    def _durations(self, problem: Problem, fabric: Fabric) -> Durations:
        """The expected durations on ranks that may share cores; *fabric* is resolved by the machine's estimate."""
        ranks_per_core = crowd(self._hardware(problem.world)) if self._measures else 1.0
        machine = crowded(self._machine, ranks_per_core)
        return Durations(problem, resolved(fabric, problem, machine), machine, ranks_per_core)

    def _fabric(
        self, problem: Problem, schedules: Sequence[Schedule]
    ) -> Generator[Sample | Outcome, None, Fabric | None]:
        """The fabric with its bandwidth, measured once per machine and problem if relative; None where that failed."""
        fabric = self.experiment.fabric
        if fabric.resolved or not schedules:
            return fabric
        if (recorded := self._answer.fabric(problem, fabric)) is not None:
            return recorded
        hardware = self._hardware(problem.world)
        is_known = self.store.compute_seconds(self._machine.name, problem, hardware) is not None
        if not self._measures or (is_known and not self.experiment.fresh):
            return known_link(fabric, problem, self._machine, self.store, hardware)
        base = self.experiment.baseline(problem, fabric, self._machine)
        alone = replace(compute_alone(base), protocol=RESOLVING)
        durations = self._durations(problem, fabric)
        yield from self._until_settled([alone], lambda trials: [Block(tuple(trials), ())], durations)
        outcome = self._settled.get(alone.key)
        if isinstance(outcome, Measurement):
            # the fastest iteration: a disturbance of the others would slow the link for ever
            seconds = max(map(min, outcome.samples))
            if is_busy(outcome.others_share):  # good enough for this run, but not to be kept
                return link_of(fabric, problem, seconds)
            kept = self.store.keep_compute_seconds(self.experiment.machine, problem, outcome.hardware, seconds,
                                                   self.run, again=self.experiment.fresh)  # fmt: skip
            return link_of(fabric, problem, kept)
        if isinstance(outcome, Failure) and not self.cancelled.is_set():
            for schedule in schedules[: self.experiment.search.count]:
                trial = self.experiment.trial(problem, schedule, fabric)
                self.requested.add(trial.key)
                self.progress.done += 1
                self.progress.failed += 1
                yield self._fail(trial, outcome.stage, outcome.message)
        return None

    def _measure(self, wholes: Sequence[Trial], plan: BaselinePlan, durations: Durations) -> Events:
        """Yields known outcomes, then times the other trials in blocks; simulator and recordings answer one by one."""
        if not self._measures:
            plan = plan.with_all() if self._answer.source == "estimated" else plan
            for trial in map(self._answer.matching_trial, plan.block(wholes).trials):
                if trial.key not in self._settled and not self.cancelled.is_set():
                    yield from self._estimated([trial])
                    yield from self._answered([trial], None, None)
            return
        known = self._known(wholes)
        if any(trial.key not in known for trial in wholes):  # then the baselines are timed again, too
            plan = yield from self._chosen(plan, durations)
            for key in {*self._first, *(trial.key for trial in plan.baselines)}:
                known.pop(key, None)
        yield from self._recorded(known)
        if self.cancelled.is_set():
            return
        rest = [trial for trial in wholes if trial.key not in {*known, *self._first}]

        said = self._said(durations)

        def seconds(trials: Sequence[Trial], before: Sequence[Trial]) -> float:
            correction = self._left.correction if self._left else 1.0
            return self._cut(trials, said, before).seconds(cutting(correction))

        def blocks(trials: Sequence[Trial]) -> Iterable[Block]:
            return plan.blocks(trials, seconds, longest(self.experiment, len(plan.others(trials))))

        yield from self._until_settled(rest, blocks, durations)

    def _said(self, durations: Durations) -> Durations:
        """The durations by which the forecast cut its blocks: those before a relative link was resolved."""
        return durations if self._left is None else self._left.durations(self._problem) or durations

    def _until_settled(
        self, trials: Sequence[Trial], blocks: Callable[[Sequence[Trial]], Iterable[Block]], durations: Durations
    ) -> Events:
        """Times *trials* in *blocks*; interrupted ones run again when a rank was lost, as often as `Retries` allows."""
        again = Retries(self.progress.again)
        groups: Sequence[Sequence[Trial]] = [trials]
        while groups:
            for block in chain.from_iterable(map(blocks, groups)):
                if not again.has_begun and self._ends_before(block):
                    return
                yield from self._time(again.without_spoilt(block), durations, again)
                if self._times_again():
                    yield from self._time(again.without_spoilt(block), durations, again, repeated=True)
                if self.cancelled.is_set():
                    return
            groups = again.groups()

    def _times_again(self) -> bool:
        """Whether others disturbed the block just timed, so that it is timed once more; not where that was in vain."""
        if self.cancelled.is_set() or not is_busy(self._others_share) or self._in_vain >= IN_VAIN_MOST:
            return False
        self.progress.timed_again += 1
        self.store.add_facts(self.run, {"timed_again": self.progress.timed_again})
        return True

    def _note_others(self, outcomes: Sequence[Outcome], repeated: bool) -> None:
        """Notes how much others used while a block was timed, and whether its repetition was disturbed as well."""
        shares = [one.others_share for one in outcomes if isinstance(one, Measurement) and one.others_share is not None]
        self._others_share = max(shares, default=None)
        if not is_busy(self._others_share):
            self._in_vain = 0
        elif repeated:
            self._in_vain += 1

    def _chosen(self, plan: BaselinePlan, durations: Durations) -> Generator[Sample | Outcome, None, BaselinePlan]:
        """*plan* with the fastest of several baselines, timed in a first block where not all are known."""
        problem = plan.base.problem
        if plan.legal and problem not in self._plans:
            known = {} if self.experiment.fresh else {
                one.key: stored[0] for one in plan.legal if (stored := self._known_of(one))}  # fmt: skip
            if len(known) < len(plan.legal):
                yield from self._until_settled(plan.legal, lambda some: [plan.first(some)], durations)
                self._first |= {trial.key for trial in plan.legal}
                known = {key: one for key in self._first if isinstance(one := self._settled.get(key), Measurement)}
            self._plans[problem] = plan.chosen({key: one.time_s for key, one in known.items()})
        return self._plans.get(problem, plan)

    def _known(self, wholes: Sequence[Trial]) -> dict[str, tuple[Measurement, str]]:
        """Known outcomes by key, with their runs. Trials that are compared in one run are all known, or none is."""
        if self.experiment.fresh:
            return {}
        known = {trial.key: self._known_of(trial) for trial in wholes}
        if self.experiment.parts == "each":  # then the computation alone is requested, too
            known |= {one.key: None for one in wholes if has_parts(one) and self._known_of(compute_alone(one)) is None}
        if self.experiment.together and None in known.values():
            return {}
        return {key: measured for key, measured in known.items() if measured is not None}

    def _known_of(self, trial: Trial) -> tuple[Measurement, str] | None:
        """The stored measurement of *trial* by the same execution as now, and its run."""
        ran = self._ran(trial.world)
        return self.store.known(trial.key, ran) if ran else None

    def _recorded(self, known: dict[str, tuple[Measurement, str]]) -> Events:
        """Yields *known* outcomes after the baselines of their blocks."""
        self.progress.known += len(known)
        blocks = dict.fromkeys(outcome.block for outcome, _ in known.values())
        of_blocks = [one for block in blocks if block is not None for one in self.store.references_of_block(block)]
        if self.experiment.parts == "each":
            alone = [self._known_of(compute_alone(each.trial)) for each, _ in known.values() if has_parts(each.trial)]
            of_blocks += [one for one in alone if one is not None]
        for outcome, origin in (*of_blocks, *known.values()):
            mark = outcome.trial.key, outcome.block
            if mark not in self._shown:
                self._shown.add(mark)
                yield from self._estimated_before(outcome.trial, origin)
                yield self._settle(outcome, origin)

    def _time(self, block: Block, durations: Durations, again: Retries, repeated: bool = False) -> Events:
        """Times *block* in one grant; interrupted trials go to *again*, and are settled if they do not run again.

        *repeated*: it was timed before, while others disturbed it.
        """
        trials, left = block.trials, self._left
        self._blocks += 1
        name = f"{self.run}.{self._blocks}"
        yield from self._estimated(trials)
        if left is not None and block.schedules:
            protocol, beyond = self.experiment.protocol, sum(one not in block.baselines for one in block.schedules)
            new = 0 if again.has_begun or repeated else 1 if block.first else max(1, beyond)
            samples = len(trials) * protocol.repeats * durations.problem.world
            left.begin(
                self._problem, self._cut_once(trials, durations), new, samples, protocol.repeats / rounds(protocol)
            )
        self.timing = {trial.key: trial for trial in trials}
        outcomes: list[Outcome] = []
        yield from self._answered(trials, self._expected(trials, durations), name, outcomes)
        self.timing = {}
        if broken_off := [one for one in outcomes if self._is_broken_off(one)]:
            settled = [one for one in outcomes if not self._is_broken_off(one)]
            for failed in again.final(block, broken_off, settled):
                yield self._settle(failed)
        if broken_off or again.has_begun:
            self.store.add_facts(self.run, {"run_again": self.progress.again.to_json()})
        # what a lost rank interrupted runs again anyway
        self._note_others([] if broken_off else outcomes, repeated)
        self._compiled.add(trials)
        correction = self._corrected(trials, durations)
        if left is not None:
            left.end(correction)

    def _cut(self, trials: Sequence[Trial], durations: Durations, before: Sequence[Trial] = ()) -> WorkTotals:
        calls_s = sum((one or 0.0) * rounds(trial.protocol)
                      for trial, one in zip(trials, durations.of(trials), strict=True))  # fmt: skip
        overheads_s = sum(overhead_s(trial.backend, trial.protocol) for trial in trials)
        verifying_s = fsum(durations.verifying_s(problems(trial.schedule)) for trial in trials if trial.part == "whole")
        overheads_s += verifying_s + self._compiled.seconds(trials, before)
        return WorkTotals(1, len(trials), overheads_s, calls_s)

    def _cut_once(self, trials: Sequence[Trial], durations: Durations) -> WorkTotals:
        """The totals of a block that begins, with its grant, and the reference if it is the first of its problem."""
        once_s = GRANT_SECONDS[self.experiment.backend]
        if durations.problem not in self._referenced:
            self._referenced.add(durations.problem)
            once_s += durations.reference_s
        totals = self._cut(trials, durations)
        return replace(totals, overhead_s=totals.overhead_s + once_s)

    def _expected(self, trials: Sequence[Trial], durations: Durations) -> ExpectedTime:
        """The expected time of *trials* with verification, warm-ups, repeats and compilation."""
        correction = self._left.correction if self._left else 1.0
        estimated = expected(trials, [one if one is None else correction * one for one in durations.of(trials)])
        verifying_s = [durations.verifying_s(problems(trial.schedule)) for trial in trials if trial.part == "whole"]
        total_s = estimated.total_s + durations.reference_s + fsum(verifying_s) + self._compiled.seconds(trials)
        silent_s = max(estimated.silent_s, durations.reference_s + max(verifying_s, default=0.0))
        return replace(estimated, total_s=total_s, silent_s=silent_s)

    def _answered(
        self,
        trials: Sequence[Trial],
        expected: ExpectedTime | None,
        block: str | None,
        collected: list[Outcome] | None = None,
    ) -> Events:
        """Yields what comes back from one grant and settles it, except interrupted trials; *collected* gets all
        outcomes."""
        outcomes: list[Outcome] = [] if collected is None else collected
        for news in self._answer.answer(trials, self.cancelled, expected):
            if isinstance(news, WaitReport):
                self.progress.waiting = news
            elif isinstance(news, CompileProgress):
                self.progress.compiling = news
                if self._left is not None:
                    self._left.opened()
            elif isinstance(news, Sample):
                if self._left is not None:
                    self._left.sample()
                yield self._keep_sample(news if block is None else replace(news, block=block))
            else:
                outcome = news if block is None or isinstance(news, Estimate) else replace(news, block=block)
                outcomes.append(outcome)
                if not self._is_broken_off(outcome):
                    yield self._settle(outcome)
        self.progress.compiling, self.progress.waiting = CompileProgress(), WaitReport()
        self._give_up_without(outcomes)

    def _is_broken_off(self, outcome: Outcome) -> TypeGuard[Failure]:
        """Whether *outcome* is due to a lost rank, and no person stopped the run."""
        return self._measures and not self.cancelled.is_set() and is_broken_off(outcome)

    def _corrected(self, trials: Sequence[Trial], durations: Durations) -> float:
        """The new ratio of measured to estimated time: half from the block just timed, half from before."""
        timed = [(outcome.time_s * problems(trial.schedule), one)
                 for trial, one in zip(trials, durations.of(trials), strict=True)
                 if one and isinstance(outcome := self._settled.get(trial.key), Measurement)]  # fmt: skip
        before = self._left.correction if self._left else 1.0
        measured_s, estimated_s = map(sum, zip(*timed, strict=True)) if timed else (before, 1.0)
        return (before + measured_s / estimated_s) / 2 if self._blocks > 1 else measured_s / estimated_s

    def _give_up_without(self, outcomes: Sequence[Outcome]) -> None:
        """Raises Failed where the cluster is gone: all outcomes of several blocks were lost through no rank's fault."""
        gone = [each for each in outcomes
                if isinstance(each, Failure) and each.stage == "lost" and each.rank is None]  # fmt: skip
        self._lost = self._lost + 1 if outcomes and len(gone) == len(outcomes) else 0
        if self._lost == LOST_IN_A_ROW:
            raise Failed(gone[0].message)

    def _estimated(self, trials: Sequence[Trial]) -> Events:
        """The estimates of *trials*, once each."""
        if self._answer.source == "estimated":
            return
        for trial in trials:
            if trial.key not in self._estimates:
                try:
                    # a sweep has thousands: whoever shows simulated spans plays the trial again
                    estimate = predict(trial, self._machine, with_spans=self.experiment.together)
                except Refusal:
                    self._estimates[trial.key] = None
                    continue
                self._estimates[trial.key] = estimate
                yield self._keep(estimate, self._machine)

    def _estimated_before(self, trial: Trial, origin: str) -> Events:
        """The estimate that was stored with the measurement of *trial* in run *origin*; today's where there was
        none."""
        before = None if trial.key in self._estimates else self.store.estimate(origin, trial.key)
        if before is None:
            yield from self._estimated([trial])
        else:
            self._estimates[trial.key] = before
            yield self._keep(before, self._machine)

    def _settle(self, outcome: Outcome, origin: str | None = None) -> Outcome:
        """Stores an outcome that settles its trial. A baseline has one in every block, and counts once."""
        if outcome.trial.key in self.requested and outcome.trial.key not in self._settled:
            self._count(outcome)
        before = self._settled.get(outcome.trial.key)
        if not (isinstance(before, Measurement) and _is_more_disturbed(outcome, before)):
            self._settled[outcome.trial.key] = outcome
        self.progress.again.settle(outcome)
        return self._keep(outcome, self._machine, origin)

    def _fail(self, trial: Trial, stage: str, message: str) -> Outcome:
        """Stores the failure of a trial that never reached a rank."""
        self._settled[trial.key] = failure = Failure(trial=trial, stage=stage, message=message,
                                                     source=self._answer.source)  # fmt: skip
        return self._keep(failure, self._machine)


def _is_more_disturbed(outcome: Outcome, before: Measurement) -> bool:
    """Whether others disturbed *outcome*, and more than the measurement *before* it; a failure is no better."""
    if not is_busy(before.others_share):
        return isinstance(outcome, Measurement) and is_busy(outcome.others_share)
    return not isinstance(outcome, Measurement) or (outcome.others_share or 0.0) > (before.others_share or 0.0)


def run(experiment: Experiment, store: Store, answer: Answer, machine: Machine) -> Run:
    """A Run; iterate it in the thread that does the work, and set its `cancelled` from any other to end it."""
    return Run(experiment, store, answer, machine)
