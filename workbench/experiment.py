"""An Experiment is what a person wants to know; a Run asks for it, trial by trial, and keeps whatever comes back."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.outcome import Estimate, Failure, Measurement, Outcome, Sample
from kernels.problem import Problem
from kernels.protocol import PROTOCOLS, Protocol
from kernels.schedule import Refusal, Schedule
from kernels.schemes import schedule
from kernels.trial import Trial, fingerprint
from workbench.answer import Answer, FromRecordings
from workbench.expected import Expected, expected
from workbench.provenance import provenance
from workbench.recommend import estimates
from workbench.search import Search, rounds
from workbench.simulator.predict import predict, resolved
from workbench.sitting import Events, Sitting
from workbench.space import Points, Space, points
from workbench.store import Store

GRANT_SECONDS = 2.0
"""Work that is asked for at once: long enough to interleave, short enough to be fair to others and to stop soon."""
RESOLVING = Protocol(name="resolve", warmups=3, repeats=10)
"""How the computation is timed that a relative link is resolved with: apart from every run's own comparison."""
PARTS = ("none", "baseline", "each")
LOST_IN_A_ROW = 3
"""So many grants may be lost one after the other through no rank's fault; then there is no cluster any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Problems x space, searched, under one protocol."""

    problems: tuple[Problem, ...]
    space: Space
    backend: str
    machine: str
    """Name of the machine that it runs on or is simulated for."""
    fabric: Fabric
    search: Search = field(default_factory=Search)
    protocol: Protocol = field(default_factory=lambda: PROTOCOLS["default"])
    title: str = ""
    parts: str = "baseline"
    """Beside the schedules: nothing; the sequential baseline, its computation and its communication alone; or these and
    the computation of each schedule alone."""
    together: bool = False
    """Everything of one problem in one sitting, interleaved sample by sample, however long it takes."""
    fresh: bool = False
    """Measure again what is known."""

    def __post_init__(self) -> None:
        assert self.parts in PARTS, self.parts

    def to_json(self) -> dict[str, Any]:
        return {
            "problems": [problem.to_json() for problem in self.problems], "space": self.space.to_json(),
            "backend": self.backend, "machine": self.machine, "fabric": self.fabric.to_json(),
            "search": self.search.to_json(), "protocol": self.protocol.to_json(), "title": self.title,
            "parts": self.parts, "together": self.together, "fresh": self.fresh,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Experiment:
        return cls(
            problems=tuple(map(Problem.from_json, data["problems"])), space=Space.from_json(data["space"]),
            backend=data["backend"], machine=data["machine"], fabric=Fabric.from_json(data["fabric"]),
            search=Search.from_json(data["search"]), protocol=Protocol.from_json(data["protocol"]),
            title=data["title"], parts=data["parts"], together=data["together"], fresh=data["fresh"],
        )  # fmt: skip

    def trial(self, problem: Problem, asked: Schedule, fabric: Fabric, part: str = "whole") -> Trial:
        return Trial(problem=problem, schedule=asked, backend=self.backend, machine=self.machine, fabric=fabric,
                     protocol=self.protocol, part=part)  # fmt: skip

    def points(self, problem: Problem, machine: Machine) -> Points:
        """The legal schedules on *problem*; the bandwidth of its fabric does not matter for that."""
        return points(self.space, problem, machine, self.fabric)


def compute_alone(trial: Trial) -> Trial:
    """The computation of *trial* alone. No emulated link is crossed, so that one trial serves all of them."""
    fabric = Fabric(kind="shared_memory") if trial.fabric.emulated else trial.fabric
    return replace(trial, fabric=fabric, part="compute")


def baseline(experiment: Experiment, problem: Problem, fabric: Fabric, machine: Machine) -> Trial:
    """The sequential schedule, everything at its default."""
    return experiment.trial(problem, schedule(problem, "sequential", {}, machine, fabric), fabric)


def with_parts(experiment: Experiment, wholes: Sequence[Trial], machine: Machine) -> list[Trial]:
    """*wholes* of one problem after what they are compared with: the floor is only as good as the best computation
    alone, so that every tile size among them is computed alone, too."""
    if experiment.parts == "none" or not wholes:
        return list(wholes)
    problem, fabric = wholes[0].problem, wholes[0].fabric
    tiles = dict.fromkeys(trial.schedule["tile"] for trial in wholes)
    plain = [experiment.trial(problem, schedule(problem, "sequential", {"tile": tile}, machine, fabric), fabric)
             for tile in tiles]  # fmt: skip
    base = plain[0] if len(plain) == 1 else baseline(experiment, problem, fabric, machine)
    communication = [base.of_part("communication")] if problem.world > 1 else []
    each = [compute_alone(trial) for trial in wholes] if experiment.parts == "each" else []
    alone = [compute_alone(trial) for trial in (base, *plain)]
    return list({trial.key: trial for trial in (*alone, *communication, base, *wholes, *each)}.values())


class Run(Sitting):
    """One sitting of an experiment."""

    def __init__(self, experiment: Experiment, store: Store, answer: Answer, machine: Machine) -> None:
        super().__init__(store, experiment.to_json(), provenance(machine, experiment.search.seed), experiment.title)
        self.experiment, self._answer, self._machine = experiment, answer, machine
        self._estimates: dict[str, Estimate | None] = {}
        self._settled: dict[str, Outcome] = {}
        self.asked: set[str] = set()
        """Keys of what was asked for, without the parts and baselines beside it: these count as progress."""
        self._correction = 1.0
        """Measured over estimated time, lately."""
        self._granted = 0
        self._lost = 0

    def _work(self) -> Events:
        asked = [(problem, self.experiment.points(problem, self._machine)) for problem in self.experiment.problems]
        most = self.experiment.search.count
        self.progress.total = sum(
            len(found.refused) + min(len(found.schedules), most or len(found.schedules)) for _, found in asked
        )
        for problem, found in asked:
            yield from self._walk(problem, found)
            if self.cancelled.is_set():
                return

    def _walk(self, problem: Problem, found: Points) -> Events:
        """One problem."""
        for asked, sentence in found.refused:
            trial = self.experiment.trial(problem, asked, self.experiment.fabric)
            yield self._fail(trial, "refused", sentence)
        fabric = yield from self._fabric(problem, found.schedules)
        if fabric is None:
            return
        walk = rounds(self.experiment.search, found.schedules,
                      lambda some: estimates(problem, some, self._machine, fabric))  # fmt: skip
        times: dict[Schedule, float] = {}
        chosen = next(walk, None)
        while chosen is not None and not self.cancelled.is_set():
            wholes = [self._meant(self.experiment.trial(problem, asked, fabric)) for asked in chosen]
            self.asked |= {trial.key for trial in wholes}
            yield from self._ask(with_parts(self.experiment, wholes, self._machine))
            times |= {trial.schedule: outcome.time_s for trial in wholes
                      if isinstance(outcome := self._settled.get(trial.key), Measurement | Estimate)}  # fmt: skip
            try:
                chosen = walk.send(times)
            except StopIteration:
                chosen = None

    def _meant(self, trial: Trial) -> Trial:
        """*trial*, or the recorded one that stands for it: machine and protocol are the recording's own."""
        return self._answer.meant(trial) if isinstance(self._answer, FromRecordings) else trial

    # the fabric

    def _fabric(
        self, problem: Problem, schedules: Sequence[Schedule]
    ) -> Generator[Sample | Outcome, None, Fabric | None]:
        """The experiment's fabric with its bandwidth, found once per machine and problem; None where that failed."""
        fabric = self.experiment.fabric
        if fabric.resolved or not schedules:
            return fabric
        if isinstance(self._answer, FromRecordings):
            return self._answer.fabric(problem, fabric)
        wire_bytes = OPERATORS[problem.operator].wire_bytes(problem)
        seconds = self.store.compute_seconds(self.experiment.machine, problem)
        if seconds is not None and not (self.experiment.fresh and self._answer.source == "measured"):
            return fabric.resolve(wire_bytes, seconds)
        if self._answer.source == "estimated":
            return resolved(fabric, problem, self._machine)
        base = baseline(self.experiment, problem, fabric, self._machine)
        alone = replace(compute_alone(base), protocol=RESOLVING)
        yield from self._ask([alone])
        outcome = self._settled.get(alone.key)
        if isinstance(outcome, Measurement):
            # the fastest iteration: what disturbs the others would slow the link for ever
            seconds = max(map(min, outcome.samples))
            kept = self.store.keep_compute_seconds(self.experiment.machine, problem, seconds, self.run,
                                                   again=self.experiment.fresh)  # fmt: skip
            return fabric.resolve(wire_bytes, kept)
        if isinstance(outcome, Failure) and not self.cancelled.is_set():
            for asked in schedules[: self.experiment.search.count]:
                trial = self.experiment.trial(problem, asked, fabric)
                yield self._fail(trial, outcome.stage, outcome.message)
        return None

    # asking

    def _ask(self, trials: Sequence[Trial]) -> Events:
        """What is known is shown, the rest is asked for in grants."""
        meant = {trial.key: trial for trial in map(self._meant, trials)}
        wanted = [trial for key, trial in meant.items() if key not in self._settled]
        known = self._known(wanted)
        for trial in wanted:
            if trial.key in known:
                outcome, origin = known[trial.key]
                yield from self._estimated([trial])
                yield self._settle(outcome, origin)
        for grant in self._grants([trial for trial in wanted if trial.key not in known]):
            yield from self._estimated(grant)
            yield from self._granted_to(grant)
            if self.cancelled.is_set():
                return

    def _known(self, trials: Sequence[Trial]) -> dict[str, tuple[Measurement, str]]:
        """What need not be measured. What is to be compared in one sitting is known together or not at all."""
        if self.experiment.fresh or self._answer.source != "measured":
            return {}
        found = {trial.key: self.store.known(trial.key, fingerprint()) for trial in trials}
        if self.experiment.together and None in found.values():
            return {}
        return {key: known for key, known in found.items() if known is not None}

    def _grants(self, trials: Sequence[Trial]) -> Iterator[list[Trial]]:
        """One trial first, so that something is seen soon and the estimates are corrected; then lists."""
        if self.experiment.together:
            yield from [list(trials)] if trials else []
            return
        grant: list[Trial] = []
        seconds = 0.0
        for trial in trials:
            more = self._expected([trial]).total_s
            if grant and (seconds + more > GRANT_SECONDS or self._granted == 0):
                yield grant
                grant, seconds, more = [], 0.0, self._expected([trial]).total_s
            grant.append(trial)
            seconds += more
        if grant:
            yield grant

    def _expected(self, trials: Sequence[Trial]) -> Expected:
        """Verification, warm-ups and repeats of *trials*, as far as they can be estimated."""
        estimates = map(self._estimate, trials)
        return expected(trials, [one if one is None else self._correction * one.time_s for one in estimates])

    def _granted_to(self, trials: list[Trial]) -> Events:
        self._granted += 1
        outcomes: list[Outcome] = []
        for found in self._answer.answer(trials, self.cancelled, self._expected(trials)):
            if isinstance(found, Sample):
                yield self._keep_sample(found)
            else:
                outcomes.append(found)
                yield self._settle(found)
        self._learn(outcomes)

    def _learn(self, outcomes: Sequence[Outcome]) -> None:
        """Corrects the estimates by what was measured; gives up when there is nobody left to ask."""
        for outcome in outcomes:
            estimate = self._estimates.get(outcome.trial.key)
            if isinstance(outcome, Measurement) and estimate and estimate.time_s > 0:
                ratio = outcome.time_s / estimate.time_s
                self._correction = (self._correction + ratio) / 2 if self._granted > 1 else ratio
        gone = [
            found for found in outcomes if isinstance(found, Failure) and found.stage == "lost" and found.rank is None
        ]
        self._lost = self._lost + 1 if outcomes and len(gone) == len(outcomes) else 0
        if self._lost == LOST_IN_A_ROW:
            raise ValueError(gone[0].message)

    # estimates and outcomes

    def _estimate(self, trial: Trial) -> Estimate | None:
        if trial.key not in self._estimates:
            try:
                # a sweep has thousands: their simulated spans are played again from the trial by who wants to see one
                self._estimates[trial.key] = predict(trial, self._machine, with_spans=self.experiment.together)
            except Refusal:
                self._estimates[trial.key] = None
        return self._estimates[trial.key]

    def _estimated(self, trials: Sequence[Trial]) -> Events:
        """The estimate beside each measurement."""
        if self._answer.source != "estimated":
            for trial in trials:
                if (estimate := self._estimate(trial)) is not None:
                    yield self._keep(estimate, self._machine)

    def _settle(self, outcome: Outcome, origin: str | None = None) -> Outcome:
        """A trial's own outcome."""
        self._settled[outcome.trial.key] = outcome
        if outcome.trial.key in self.asked:
            self._count(outcome)
        return self._keep(outcome, self._machine, origin)

    def _fail(self, trial: Trial, stage: str, message: str) -> Outcome:
        """A schedule that was asked for and never got as far as a rank."""
        self.asked.add(trial.key)
        return self._settle(Failure(trial=trial, stage=stage, message=message, source=self._answer.source))


def run(experiment: Experiment, store: Store, answer: Answer, machine: Machine) -> Run:
    """A Run, to be iterated where the work is to be done; its `cancelled` ends it from elsewhere."""
    return Run(experiment, store, answer, machine)
