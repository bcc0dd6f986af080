"""What a run has before it, said before it begins: how many schedules are to be measured, and for how long about."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.machine import Machine
from kernels.outcome import Estimate
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.trial import Trial, fingerprint
from kernels.units import about
from workbench.expected import SETTING_UP_SECONDS
from workbench.experiment import Experiment, with_parts
from workbench.predictions import known_link
from workbench.simulator.predict import predict
from workbench.store import Store

ESTIMATED_MOST = 48
"""So many trials of a problem are estimated; the others are taken to be like them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is not known yet and will be timed."""

    schedules: int
    trials: int
    """Schedules with what is timed beside them."""
    samples: int
    seconds: float

    def __str__(self) -> str:
        nouns = "1 schedule is" if self.schedules == 1 else f"{self.schedules:,} schedules are"
        beside = self.trials - self.schedules
        baselines = f" and {beside:,} {'baseline' if beside == 1 else 'baselines'}" * (beside > 0)
        return f"{nouns} measured{baselines}, {about(self.seconds)}."


def outlook(experiment: Experiment, machine: Machine, store: Store) -> Outlook:
    """What a run of *experiment* on *machine* would measure now."""
    found = [_of_problem(experiment, problem, machine, store) for problem in experiment.problems]
    return Outlook(
        schedules=sum(one.schedules for one in found),
        trials=sum(one.trials for one in found),
        samples=sum(one.samples for one in found),
        seconds=sum(one.seconds for one in found),
    )


def _of_problem(experiment: Experiment, problem: Problem, machine: Machine, store: Store) -> Outlook:
    # which schedules a search comes to is not known yet; how many is
    schedules = experiment.points(problem, machine).schedules[: experiment.search.count]
    fabric = known_link(experiment.fabric, problem, machine, store)
    wholes = [experiment.trial(problem, asked, fabric) for asked in schedules]
    trials = with_parts(experiment, wholes, machine)
    unknown = trials if experiment.fresh else [trial for trial in trials if not store.knows(trial.key, fingerprint())]
    if unknown and experiment.together:  # together or not at all
        unknown = trials
    asked_keys = {trial.key for trial in wholes}
    return Outlook(
        schedules=sum(trial.key in asked_keys for trial in unknown),
        trials=len(unknown),
        samples=len(unknown) * experiment.protocol.repeats * problem.world,
        seconds=_seconds(unknown, machine),
    )


def _seconds(trials: list[Trial], machine: Machine) -> float:
    """Verification, warm-ups and repeats of all *trials*."""
    some = trials[:: -(-len(trials) // ESTIMATED_MOST)] if trials else []
    times = [estimate.time_s for trial in some if (estimate := _estimate(trial, machine)) is not None]
    if not times:
        return SETTING_UP_SECONDS * len(trials)
    protocol = trials[0].protocol
    rounds = 1 + protocol.warmups + protocol.repeats
    return len(trials) * (SETTING_UP_SECONDS + rounds * sum(times) / len(times))


def _estimate(trial: Trial, machine: Machine) -> Estimate | None:
    try:
        return predict(trial, machine, with_spans=False)
    except Refusal:
        return None


def crowded(world: int, cores: int) -> str | None:
    """What to know before *world* ranks are timed on *cores*, or None."""
    if world <= cores:
        return None
    some = f"{cores} core" if cores == 1 else f"{cores} cores"
    return f"{world} ranks share {some} here: they slow each other down beyond what overlap explains."
