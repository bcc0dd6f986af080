"""Searches, played over a space of schedules that was measured before: what each would have cost, without ranks.

Kernel Tuner calls this a simulation of the tuner. A space is all schedules of one problem on one machine and fabric,
as recordings or one run have them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from kernels.machine import Machine
from kernels.outcome import Measurement
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, SCHEMES
from kernels.trial import Trial
from workbench import machines
from workbench.experiment.experiment import Search, best_so_far, installed_kinds
from workbench.results.quiet import least_disturbed
from workbench.results.recordings import Recorded
from workbench.simulator.predict import predict

# Spaces.

FEWEST = 2
"""Schedules of a space in which there is something to search."""


@dataclass(frozen=True, eq=False)
class RecordedSpace:
    """All measured schedules of one problem, with times that are free of what differs between blocks."""

    trial: Trial
    """Any of its trials: they differ in their schedules alone."""
    machine: Machine
    """The machine whose prices estimate them."""
    times: dict[Schedule, float]
    """Seconds of the slowest rank."""

    @property
    def problem(self) -> Problem:
        return self.trial.problem

    @property
    def best_s(self) -> float:
        return min(self.times.values())

    def estimates(self, schedules: Sequence[Schedule]) -> list[float]:
        """The simulator's times of *schedules*, s."""
        return [self._estimated[each][0] for each in schedules]

    def lowest(self, schedule: Schedule) -> float:
        """The lower bound of the estimate of *schedule*, s."""
        return self._estimated[schedule][1]

    @cached_property
    def _estimated(self) -> dict[Schedule, tuple[float, float]]:
        """By schedule the estimate and its lower bound."""
        known = {}
        for each in self.times:
            estimate = predict(replace(self.trial, schedule=each), self.machine, with_spans=False)
            known[each] = estimate.time_s, estimate.low_s
        return known


def spaces(recorded: Iterable[Recorded], named: Callable[[str], Machine] = machines.machine) -> list[RecordedSpace]:
    """The spaces of *recorded* in which there is something to search, the largest first.

    *named*: the machine of a name; ValueError where nobody described it.
    """
    by_question: dict[Any, list[Measurement]] = defaultdict(list)
    for measured in (entry.measurement for entry in recorded):
        trial = measured.trial
        if trial.part == "whole" and measured.correct and SCHEMES[trial.schedule.scheme].is_compared:
            by_question[trial.problem, trial.machine, str(trial.fabric.as_requested), trial.protocol.name].append(
                measured
            )
    known = [RecordedSpace(same[0].trial, named(same[0].trial.machine), _levelled(_blocks(same)))
             for same in by_question.values()]  # fmt: skip
    return sorted((each for each in known if len(each.times) >= FEWEST), key=lambda each: -len(each.times))


def _blocks(measured: Sequence[Measurement]) -> list[dict[Schedule, float]]:
    """The times of each block; of a disturbed one that was timed again those of the quieter one, as everywhere."""
    rows = [{"key": each.trial.schedule, "scheme": each.trial.schedule.scheme, "block": each.block,
             "others_share": each.others_share, "time_s": each.time_s} for each in measured]  # fmt: skip
    blocks: dict[Any, dict[Schedule, float]] = defaultdict(dict)
    for row in least_disturbed(rows):
        blocks[row["block"]][row["key"]] = row["time_s"]
    return list(blocks.values())


def _levelled(blocks: Sequence[dict[Schedule, float]]) -> dict[Schedule, float]:
    """The median time of each schedule over *blocks*, each scaled so that its baseline takes what it takes in all."""
    baselines = [each for times in blocks for each in times if each.scheme == BASELINE]
    common = max(baselines, key=baselines.count, default=None)
    usual_s = median(times[common] for times in blocks if common in times) if common is not None else 1.0
    values: dict[Schedule, list[float]] = defaultdict(list)
    for times in blocks:
        scale = usual_s / times[common] if common is not None and common in times else 1.0
        for schedule, taken in times.items():
            values[schedule].append(scale * taken)
    return {schedule: median(several) for schedule, several in values.items()}


# Searches, played.

NAMES = {"exhaustive": "all", "random": "random", "estimate_first": "estimate first", "optuna": "Optuna"}
"""By kind of search the name that people read."""
NEAR = 0.02
"""A search has arrived once the best so far is within so much of the best of the space."""
SEEDS = 200
"""Random searches whose median and band are shown."""
BAND = (0.1, 0.9)
"""The quantiles of the band."""


def walked(space: RecordedSpace, kind: str, seed: int = 0, *, stops: bool = False) -> np.ndarray:
    """Best time so far over the best of *space*, by number of measurements from 1; *stops*: by its stopping rule."""
    search = Search(kind=kind, count=len(space.times), seed=seed)
    path = best_so_far(search, space.times, space.estimates, space.lowest if stops else None)
    return np.array([best_s for _, best_s in path]) / space.best_s


def random_walks(space: RecordedSpace) -> np.ndarray:
    """[seed, number of measurements] as `walked`."""
    return np.array([walked(space, "random", seed) for seed in range(SEEDS)])


def needed(path: np.ndarray) -> int | None:
    """Measurements until the best so far is within NEAR of the best; None where it never is."""
    near = np.flatnonzero(path <= 1 + NEAR)
    return int(near[0]) + 1 if len(near) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedSearch:
    """What one search needs in one space."""

    kind: str
    """One of the kinds of `Search`."""
    needed: int
    """Measurements until it is within NEAR of the best; of random the median over SEEDS."""
    low: int | None = None
    high: int | None = None
    """BAND of the seeds; random alone has it."""
    stopped_after: int | None = None
    """Measurements after which its stopping rule ends it; None: it has none."""
    then_over_best: float | None = None
    """The best time by then over the best of the space."""


def played(space: RecordedSpace) -> list[PlayedSearch]:
    """All searches over *space*; Optuna's only where it is installed."""
    return [_played(space, kind) for kind in installed_kinds()]


def _played(space: RecordedSpace, kind: str) -> PlayedSearch:
    count = len(space.times)
    if kind == "random":
        counts = [needed(path) or count for path in random_walks(space)]
        low, high = np.quantile(counts, BAND)
        return PlayedSearch(kind=kind, needed=round(median(counts)), low=round(low), high=round(high))
    stops = Search(kind=kind, count=count).has_stopping_rule
    ended = walked(space, kind, stops=True) if stops else None
    return PlayedSearch(kind=kind, needed=needed(walked(space, kind)) or count,
                        stopped_after=None if ended is None else len(ended),
                        then_over_best=None if ended is None else float(ended[-1]))  # fmt: skip


def row_of(space: RecordedSpace, search: PlayedSearch) -> dict[str, Any]:
    """One search in one space as a row."""
    trial = space.trial
    return {"operator": trial.problem.operator, "shape": dict(trial.problem.shape), "dtype": trial.problem.dtype,
            "world": trial.world, "machine": trial.machine, "fabric": str(trial.fabric), "schedules": len(space.times),
            "best_s": space.best_s, "search": search.kind, **{name: value for name, value in asdict(search).items()
                                                             if name != "kind"}}  # fmt: skip
