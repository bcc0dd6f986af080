"""Three interchangeable sources of outcomes: a cluster measures, the simulator estimates, recordings are replayed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from typing import Any, Protocol

from cluster.hosts import local_ranks
from cluster.seating import Ranks
from cluster.watchdog import WAIT_S, Deadlines
from kernels.backends.base import LONGEST_COMPILATION_SECONDS
from kernels.events import ProgressEvent, TrialEvent, WaitingEvent
from kernels.fabric import Fabric
from kernels.hardware import source_print
from kernels.machine import Machine
from kernels.outcome import BLOCK_KIND, CHOOSING, Failure, Gather, Outcome, Sample
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import BASELINE, axis_rules, needs_peer_memory
from kernels.trial import Trial
from workbench.experiment.experiment import Experiment, is_baseline
from workbench.experiment.forecast import ExpectedTime
from workbench.experiment.links import link_here
from workbench.results import metrics
from workbench.results.recordings import RECORDED, Recorded, origin
from workbench.results.store import Store
from workbench.simulator.predict import predict

# News of a run before its clock starts: how long it has waited for ranks, and why.


@dataclass(frozen=True, slots=True)
class WaitReport:
    """A wait for the grant of *world* ranks, in seconds so far; *world* is 0 once the wait is over."""

    world: int = 0
    seconds: float = 0.0
    why: str = ""
    most_s: float | None = None
    """The run gives up after this many seconds; None if unknown."""

    @classmethod
    def of(cls, event: WaitingEvent, most_s: float) -> WaitReport:
        """The report of a cluster's `waiting` event; an event without a reason ends the wait. *most_s*: its limit."""
        return cls(event["world"], event["seconds"], event["why"], most_s) if event["why"] else cls()

    def __str__(self) -> str:
        if not self.world:
            return ""
        ranks = f"{self.world} ranks" if self.world > 1 else "1 rank"
        most = "" if self.most_s is None else f" of at most {self.most_s:.0f} s"
        return f"waiting for {ranks} for {self.seconds:.0f} s{most} ({self.why})"


# Progress of compilation: that of the slowest rank.


@dataclass(frozen=True, slots=True)
class CompileProgress:
    """The trial that the slowest rank compiles now; *number* is 0 if it compiles none."""

    number: int = 0
    """Number of the trial, counted from 1."""
    of: int = 0
    """Number of trials."""

    def __str__(self) -> str:
        return f"compiling {self.number:,} of {self.of:,}" if self.number else ""


class SlowestRank:
    """The compilation progress of the slowest of *world* ranks, from the events of all of them."""

    def __init__(self, world: int) -> None:
        self._at: list[float] = [0.0] * world
        """The number of the trial that each rank compiles, 0 before the first, infinity after the last."""
        self._of = 0
        self._reported = CompileProgress()

    def update(self, event: TrialEvent) -> CompileProgress | None:
        """Record an event and return the progress to report, or None if it is unchanged."""
        if event["kind"] == "stage" and event["stage"] == "open":
            self._at[event["rank"]] = 0.0
        elif event["kind"] == "stage" and "number" in event:
            self._at[event["rank"]], self._of = event["number"], event["of"]
        elif event["kind"] == "stage" or event["kind"] == "sample":
            self._at[event["rank"]] = inf
        slowest = min(self._at)
        now = CompileProgress(int(slowest), self._of) if 0 < slowest < inf else CompileProgress()
        if now == self._reported:
            return None
        self._reported = now
        return now


# Answers: lists of trials go in, samples and outcomes come out.

DEADLINE_SECONDS = 30.0
"""The longest silence of a rank whose trials have no estimate, and the time allowed per trial of its list."""
LEAST_DEADLINE_SECONDS = {"cpu": 10.0, "triton": 30.0}
"""The shortest deadline by backend, however short the stages are: a busy computer lets a rank wait, and GPU ranks draw
operands and compute the reference without a report."""
COMPILING_SECONDS = {"cpu": 0.0, "triton": LONGEST_COMPILATION_SECONDS}
"""The longest silence of a rank while it compiles one trial; CPU ranks compile nothing."""
PATIENCE = 20.0
"""A stage or a list may take this many times its estimate before it counts as hanging."""
LONGEST_PAUSE_SECONDS = 1.0
"""Longer pauses between samples are shortened in a replay."""

Answers = Iterator[Sample | Outcome | CompileProgress | WaitReport]


class Answer(Protocol):
    """A source of outcomes for lists of trials: samples as they come, an outcome for each trial, and news before
    them."""

    source: str
    """The source of its outcomes: measured, estimated or recorded."""
    starting_s: float
    """Seconds that its ranks take to start, before the first sample."""

    def answer(
        self, trials: Sequence[Trial], cancelled: threading.Event, expected: ExpectedTime | None = None
    ) -> Answers:
        """The samples, outcomes and news of *trials*; they end soon after *cancelled* is set."""

    def ranks(self, world: int, backend: str, cancelled: threading.Event, across: bool = False) -> Ranks | None:
        """The ranks that would run trials of *world* ranks, None if unknown; *across*: on several hosts."""

    def matching_trial(self, trial: Trial) -> Trial:
        """The trial that it answers for *trial*: another one where it has its own machine and protocol."""

    def fabric(self, problem: Problem, link: Fabric) -> Fabric | None:
        """The link whose outcomes this source has, if *link* is relative; None if it has those of any link, so that the
        run resolves the bandwidth."""


class NoReplay:
    """A source that answers every trial as it is requested, over the link that the run resolved."""

    def matching_trial(self, trial: Trial) -> Trial:
        return trial

    def fabric(self, problem: Problem, link: Fabric) -> Fabric | None:
        return None


class TrialStreams(Protocol):
    """The part of a cluster that measuring needs: `cluster.client.Cluster`."""

    def stream(self, trials: Sequence[Trial], *, world: int, shares_heap: bool, deadline_s: float | Deadlines,
               cancelled: threading.Event | None = None,
               source_print: str | None = None) -> Iterator[ProgressEvent]:  # fmt: skip
        """The events of the ranks as they come."""

    def ranks(self, world: int, backend: str, cancelled: threading.Event | None = None,
              across: bool = False) -> Ranks | None:  # fmt: skip
        """The ranks of a gang; *across*: on several hosts."""


class FromCluster(NoReplay):
    """An answer that measures on gangs of a cluster."""

    source = "measured"

    def __init__(self, cluster: TrialStreams, deadline_s: float = DEADLINE_SECONDS, starting_s: float = 0.0,
                 wait_s: float = WAIT_S, shared: bool = False) -> None:  # fmt: skip
        """*wait_s* is the longest wait for a grant; *shared*: in a workshop others' answers will do."""
        self._cluster, self._deadline_s, self.starting_s, self._wait_s = cluster, deadline_s, starting_s, wait_s
        self._shared = shared

    def answer(
        self, trials: Sequence[Trial], cancelled: threading.Event, expected: ExpectedTime | None = None
    ) -> Answers:
        for (world, backend), same in groupby(trials, key=lambda trial: (trial.world, trial.backend)):
            together = list(same)
            limits = self._limits(backend, len(together), expected)
            yield from self._one_gang((world, backend), together, cancelled, limits)

    def ranks(self, world: int, backend: str, cancelled: threading.Event, across: bool = False) -> Ranks | None:
        return self._cluster.ranks(world, backend, cancelled, across)

    def _limits(self, backend: str, count: int, expected: ExpectedTime | None) -> Deadlines:
        """Deadlines of *count* trials: their longest single stage detects a hang, their sum bounds the whole list."""
        least_s = LEAST_DEADLINE_SECONDS.get(backend, self._deadline_s)
        compiling_s, longest_s = COMPILING_SECONDS.get(backend, 0.0), self._deadline_s
        if expected is None:
            return Deadlines(longest_s, (longest_s + compiling_s) * count, compiling_s, wait_s=self._wait_s,
                             shared=self._shared)  # fmt: skip
        silence_s = max(min(longest_s, least_s), PATIENCE * expected.silent_s)
        total_s = max((longest_s + compiling_s) * count, PATIENCE * expected.total_s)
        return Deadlines(silence_s, total_s, compiling_s, expected_s=expected.total_s, wait_s=self._wait_s,
                         shared=self._shared)  # fmt: skip

    def _one_gang(
        self, gang: tuple[int, str], trials: list[Trial], cancelled: threading.Event, limits: Deadlines
    ) -> Answers:
        world, backend = gang
        open_trials, slowest = {trial.key: Gather(trial) for trial in trials}, SlowestRank(world)
        for event in self._cluster.stream(trials, world=world, shares_heap=share_memory(trials), deadline_s=limits,
                                          cancelled=cancelled, source_print=source_print(backend)):  # fmt: skip
            if event["kind"] == "waiting":
                yield WaitReport.of(event, self._wait_s)
                continue
            if (compiling := slowest.update(event)) is not None:
                yield compiling
            gather = open_trials.get(event["trial"])  # several ranks may report the same failure: the first counts
            news = gather.feed(event) if gather is not None else None
            if news is not None:
                if not isinstance(news, Sample):
                    del open_trials[event["trial"]]
                yield news


def share_memory(trials: Iterable[Trial]) -> bool:
    """Whether the ranks of *trials* must be on one host; GPU ranks of one host create their shared heap together.

    Between hosts nothing is shared: what needs it there is refused.
    """
    return any((trial.backend == "triton" or needs_peer_memory(trial.schedule)) and not trial.across
               for trial in trials)  # fmt: skip


class FromSimulator(NoReplay):
    """An answer that plays the plans of trials on a machine description."""

    source, starting_s = "estimated", 0.0

    def __init__(self, machine: Machine, ranks: Callable[[int, str], Ranks | None] = local_ranks) -> None:
        self._machine, self._ranks = machine, ranks

    def ranks(self, world: int, backend: str, cancelled: threading.Event, across: bool = False) -> Ranks | None:
        """The ranks that a relative link is estimated for."""
        return self._ranks(world, backend)

    def answer(
        self, trials: Sequence[Trial], cancelled: threading.Event, expected: ExpectedTime | None = None
    ) -> Answers:
        for trial in trials:
            if cancelled.is_set():
                return
            try:
                yield predict(trial, self._machine)
            except Refusal as refusal:
                yield Failure(trial=trial, stage="refused", message=str(refusal), source=self.source)


class FromRecordings:
    """An answer that replays recorded samples with their rhythm at *speed* (None: at once)."""

    source, starting_s = "recorded", 0.0

    def __init__(self, recorded: Iterable[Recorded], speed: float | None = 1.0) -> None:
        self._speed = speed
        self._by_question: dict[tuple[Any, ...], Recorded] = {}
        self._entries: dict[tuple[Any, ...], Recorded] = {}
        for entry in recorded:  # the newest comes last and replaces older ones
            self._by_question[_question(entry.measurement.trial)] = entry
            self._entries[_mark(entry)] = entry
        self._played: set[tuple[Any, ...]] = set()

    def ranks(self, world: int, backend: str, cancelled: threading.Event, across: bool = False) -> Ranks | None:
        """None: a replay needs no ranks."""

    @property
    def entries(self) -> tuple[Recorded, ...]:
        """All entries that are played, in the order of recording; a baseline is in several blocks.

        Blocks that only chose the baselines of other blocks are left out.
        """
        every = self._entries.values()
        return tuple(entry for entry in every if entry.measurement.facts.get(BLOCK_KIND) != CHOOSING)

    @property
    def origin(self) -> dict[str, Any]:
        """Where and when the entries were recorded, as the provenance of a replay has it."""
        return {RECORDED: origin(self.entries)}

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The recorded trials."""
        return tuple(entry.measurement.trial for entry in self._by_question.values())

    def absence(self, trial: Trial) -> str | None:
        """Why there is no recording of *trial*; None where there is one."""
        return None if _question(trial) in self._by_question else self._absent(trial)

    def matching_trial(self, trial: Trial) -> Trial:
        """The recorded trial that answers *trial*, or *trial* itself."""
        entry = self._by_question.get(_question(trial))
        return entry.measurement.trial if entry else trial

    def fabric(self, problem: Problem, link: Fabric) -> Fabric:
        """*link* with the bandwidth that *problem* was recorded with."""
        recorded = (trial.fabric for trial in self.trials if trial.problem == problem and trial.fabric.emulated)
        return next((fabric for fabric in recorded if fabric.as_requested == link.as_requested), link)

    def answer(
        self, trials: Sequence[Trial], cancelled: threading.Event, expected: ExpectedTime | None = None
    ) -> Answers:
        for trial in trials:
            entry = self._by_question.get(_question(trial))
            if entry is None:
                yield Failure(trial=trial, stage="refused", message=self._absent(trial), source=self.source)
                continue
            for other in (*self._baselines(entry), entry):
                yield from self.play(other, cancelled)
                if cancelled.is_set():
                    return

    def _baselines(self, entry: Recorded) -> list[Recorded]:
        """The baselines of the block of *entry* that were not played yet."""
        block = entry.measurement.block
        return [
            other for mark, other in self._entries.items() if block is not None and other.measurement.block == block
            and mark not in self._played and other is not entry and is_baseline(other.measurement.trial)
        ]  # fmt: skip

    def play(self, entry: Recorded, cancelled: threading.Event) -> Iterator[Sample | Outcome]:
        """The samples of *entry* in their rhythm, then its outcome."""
        self._played.add(_mark(entry))
        yield from self._play(entry, cancelled)
        if not cancelled.is_set():
            yield replace(entry.measurement, source=self.source)

    def _play(self, entry: Recorded, cancelled: threading.Event) -> Iterator[Sample]:
        previous = entry.samples[0].at if entry.samples else 0.0
        for sample in entry.samples:
            if self._speed is not None:
                cancelled.wait(min(max(0.0, sample.at - previous) / self._speed, LONGEST_PAUSE_SECONDS))
            if cancelled.is_set():
                return
            previous = sample.at
            yield replace(sample, key=entry.measurement.trial.key, at=time.time())

    def _absent(self, trial: Trial) -> str:
        same = [known for known in self.trials if known.problem == trial.problem and known.part == trial.part]
        accepted = "; ".join(dict.fromkeys(str(known.schedule) for known in same)) or "other problems only"
        return (f"{trial.schedule} ({trial.part}) is not among the {len(self.trials)} recorded trials. Accepted: "
                f"{accepted}.")  # fmt: skip


def _question(trial: Trial) -> tuple[Any, ...]:
    """The identity of a trial in a replay: machine and protocol are the recording's, but for steady load, and older
    schedules may have axes that are ignored today."""
    today = axis_rules.effective(trial.problem, trial.schedule, trial.backend)
    return trial.problem, today, trial.backend, trial.part, trial.fabric.as_requested, trial.protocol.is_steady


def _mark(entry: Recorded) -> tuple[Any, ...]:
    """The identity of an entry: the same trial may be recorded in several blocks."""
    return *_question(entry.measurement.trial), entry.measurement.block


# Predictions of an experiment by the simulator, as joined rows that are not stored.


def predictions(experiment: Experiment, machine: Machine, store: Store | None = None) -> list[dict[str, Any]]:
    """One row per schedule of *experiment*, joined with estimates of its baselines; refused schedules are failures.

    A relative link is resolved with the measured computation in *store*, if any, so that a prediction and a run of the
    same trial have the same key.
    """
    return predictions_and_baselines(experiment, machine, store)[0]


def predictions_and_baselines(
    experiment: Experiment, machine: Machine, store: Store | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """`predictions`, and of each problem the sequential schedule that their ratios name, where it is not among them."""
    baselines: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for problem in experiment.problems:
        points = experiment.points(problem, machine)
        fabric = link_here(experiment.fabric, problem, machine, store)
        wholes = [experiment.trial(problem, schedule, fabric) for schedule in points.schedules]
        keys = {trial.key for trial in wholes}
        plan = experiment.baseline_plan(problem, points.schedules, fabric, machine).with_all()
        timed = (*plan.block(wholes).trials, *plan.stream_parts(wholes)) if wholes else ()
        trials = list({trial.key: trial for trial in timed}.values())
        answers = FromSimulator(machine).answer(trials, threading.Event())
        outcomes = [answer for answer in answers if isinstance(answer, Outcome)]
        filled = metrics.fill([metrics.row_of(outcome, None, machine) for outcome in outcomes])
        of_problem = [row for row in filled if row["key"] in keys]
        rows += of_problem
        fastest = [row for row in filled if row["time_ratio"] == 1.0 and row["scheme"] == BASELINE]
        baselines += [] if any(row in of_problem for row in fastest) else fastest[:1]
        for schedule, message in points.refused:
            trial = experiment.trial(problem, schedule, fabric)
            refused = Failure(trial=trial, stage="refused", message=message, source="estimated")
            rows.append(metrics.row_of(refused, None, machine))
    return rows, baselines
