"""What a run has before it: how much of it is known, how many blocks are left, and how long they take about.

One arithmetic for the sentence before Run, the progress of explorer and command line, and the deadline of a grant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

import numpy as np

from cluster.devices import local_ranks
from cluster.seating import Ranks
from kernels.machine import Machine
from kernels.prints import Ran
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE
from kernels.trial import Trial
from kernels.units import about
from workbench.ahead import Ahead
from workbench.blocks import Beside, Block, compute_alone, has_parts
from workbench.compile_time import Compiled, first_needed
from workbench.durations import Durations
from workbench.experiment import RESOLVING, Experiment
from workbench.legal_points import all_forms, legal
from workbench.links import known_link
from workbench.search import order
from workbench.space import MOST_POINTS
from workbench.store import Store

COUNTED_MOST = 200_000
"""Points that are looked at while somebody moves a slider: ten milliseconds' worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run would do now."""

    schedules: Mapping[str, int]
    """How many of each scheme are to be measured, or simulated."""
    known: int = 0
    blocks: int = 0
    trials: int = 0
    """Schedules with the baselines and parts that are timed beside them."""
    samples: int = 0
    seconds: float | None = None
    """None where nothing is timed."""
    ahead: tuple[Ahead, ...] = field(default=(), repr=False, compare=False)
    """By problem: what the time left is counted from."""

    @property
    def count(self) -> int:
        return sum(self.schedules.values())

    def __str__(self) -> str:
        known = f"{self.known:,} known, " if self.known else ""
        if not self.count:
            return f"{known}nothing to measure.".capitalize()
        named = [f"{count:,} {scheme}" for scheme, count in self.schedules.items() if count]
        noun = "schedule" if self.count == 1 else "schedules"
        what = f"{named[0]} {noun}" if len(named) == 1 else f"{self.count:,} {noun} ({', '.join(named)})"
        if self.seconds is None:
            return f"{what}, nothing is timed."
        beside = self.trials - self.count
        baselines = f" and {beside:,} {'baseline' if beside == 1 else 'baselines'}" if beside else ""
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks:,} blocks"
        verb = "is" if self.trials == 1 else "are"
        return f"{known}{what}{baselines} in {blocks} {verb} measured, {about(self.seconds)}."


def forecast(experiment: Experiment, machine: Machine, store: Store, *, measured: bool = True,
             most: int = MOST_POINTS, ranks: Callable[[int, str], Ranks | None] = local_ranks) -> Forecast:  # fmt: skip
    """What a run of *experiment* on *machine* would do now; Refusal of more points than *most*.

    *ranks*: what so many ranks of a backend would run on, by default those of the local cluster.
    """
    by_world = {world: ranks(world, experiment.backend) for world in {each.world for each in experiment.problems}}
    ahead = [_of_problem(experiment, problem, (machine, by_world[problem.world]), store, (measured, most))
             for problem in experiment.problems]  # fmt: skip
    schedules = Counter[str]()
    for one in ahead:
        schedules.update(one.schedules)
    cuts = [one.cut(one.start) for one in ahead]
    repeats = experiment.protocol.repeats
    resolving = sum(one.durations.problem.world for one in ahead if one.resolves) * RESOLVING.repeats
    timed = zip(cuts, ahead, strict=True)
    return Forecast(
        schedules=dict(schedules), known=sum(one.known for one in ahead), blocks=sum(cut.blocks for cut in cuts),
        trials=sum(cut.trials for cut in cuts), ahead=tuple(ahead),
        samples=resolving + sum(cut.trials * repeats * one.durations.problem.world for cut, one in timed),
        seconds=sum(cut.seconds() for cut in cuts) + sum(one.resolving_s() for one in ahead) if measured else None,
    )  # fmt: skip


def _of_problem(experiment: Experiment, problem: Problem, where: tuple[Machine, Ranks | None], store: Store,
                how: tuple[bool, int]) -> Ahead:  # fmt: skip
    (machine, ranks), (measured, most) = where, how
    hardware = ranks.hardware if ranks else None
    fabric = known_link(experiment.fabric, problem, machine, store, hardware)
    durations = Durations(problem, fabric, machine)
    known: frozenset[Schedule] = frozenset()
    times: frozenset[tuple[Schedule, float]] = frozenset()
    if measured and not experiment.fresh and ranks is not None:
        trials = frozenset(store.known_trials(problem, ranks.ran(experiment.backend)))
        wholes = [trial for trial in trials if trial == experiment.trial(problem, trial.schedule, fabric)]
        known = frozenset(trial.schedule for trial in wholes if experiment.parts != "each"
                          or not has_parts(trial) or compute_alone(trial) in trials)  # fmt: skip
        times = _baseline_times(wholes, store, ranks.ran(experiment.backend))
    resolves = measured and not experiment.fabric.resolved and (
        experiment.fresh or store.compute_seconds(machine.name, problem, hardware) is None)  # fmt: skip
    ran = ranks.ran(experiment.backend) if measured and ranks else None
    compiled = frozenset(compiled_before(experiment, problem, store, ran))
    before = known, compiled, times
    return _ahead(replace(experiment, problems=(), title=""), durations, before, (resolves, measured, most))


def _baseline_times(wholes: Sequence[Trial], store: Store, ran: Ran) -> frozenset[tuple[Schedule, float]]:
    """What the store knows of the baselines that GPU ranks choose from."""
    baselines = [trial for trial in wholes if trial.backend != "cpu" and trial.schedule.scheme == BASELINE]
    measured = ((trial.schedule, store.known(trial.key, ran)) for trial in baselines)
    return frozenset((schedule, known[0].time_s) for schedule, known in measured if known is not None)


def compiled_before(experiment: Experiment, problem: Problem, store: Store, ran: Ran | None) -> tuple[Trial, ...]:
    """What GPU ranks such as *ran* measured of *problem*: its kernels lie in files on their hosts."""
    return () if experiment.backend == "cpu" or ran is None else store.known_trials(problem, ran)


@lru_cache(maxsize=32)
def _ahead(experiment: Experiment, durations: Durations,
           before: tuple[frozenset[Schedule], frozenset[Trial], frozenset[tuple[Schedule, float]]],
           how: tuple[bool, bool, int]) -> Ahead:  # fmt: skip
    """Kept: a slider of a swept axis changes nothing here, and forty milliseconds are felt."""
    (known, compiled, times), (resolves, by_ranks, most) = before, how
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    choices = [legal(durations, choice, most, by_ranks) for choice in experiment.space.choices]
    seconds = np.concatenate([one.seconds for one in choices])
    tiles = list(chain.from_iterable(one.tiles for one in choices))
    schemes = list(chain.from_iterable([one.scheme] * len(one.seconds) for one in choices))
    starts = np.cumsum([0, *(len(one.seconds) for one in choices)])
    around = experiment.beside_tiles(problem, tiles, fabric, machine)

    def numbers(schedules: Iterable[Schedule]) -> set[int]:
        places = ((start, one.place(each)) for each in schedules for start, one in zip(starts, choices, strict=False))
        return {int(start) + place for start, place in places if place is not None}

    chosen = order(experiment.search, len(seconds), lambda: seconds.tolist())
    is_known = numbers(known)
    if experiment.together and not is_known.issuperset(chosen):
        is_known = set()
    around, first = _chosen(around, durations, dict(times), missing=by_ranks and not is_known.issuperset(chosen))
    firsts = numbers(trial.schedule for trial in first.schedules) if first else set()
    bases = numbers(trial.schedule for trial in around.baselines) if experiment.parts != "none" else set()
    rest = [number for number in chosen if number not in is_known | bases | firsts]
    asked_bases = [number for number in chosen if number in bases | firsts]
    base_alone = not first and not rest and any(number not in is_known for number in asked_bases)
    measured = [*asked_bases, *rest] if rest or base_alone or first else []
    calls_s = seconds * np.concatenate([one.problems for one in choices])
    whole_s = calls_s[rest]

    def trial(place: int) -> Trial:
        choice = int(np.searchsorted(starts, rest[place], side="right")) - 1
        return experiment.trial(problem, choices[choice].schedule(rest[place] - int(starts[choice])), fabric)

    forms = [] if experiment.backend == "cpu" else all_forms(choices)[rest].tolist()
    if experiment.search.proposes and len(rest):  # which it will come to is not known yet
        whole_s = np.full(len(rest), calls_s.mean())
    before_first, in_first = Compiled(compiled), first.trials if first else []
    first_compiling_s = before_first.seconds(in_first)
    before_first.add(in_first)
    return Ahead(
        durations=durations, experiment=experiment, base_tile=around.base.schedule["tile"],
        schedules=Counter(schemes[number] for number in measured), whole_s=tuple(whole_s.tolist()),
        tiles=tuple(around.tile_alone(trial(place).schedule) if schemes[number] == BASELINE else tiles[number]
                    for place, number in enumerate(rest)),
        base_alone=base_alone, resolves=resolves and len(seconds) > 0, known=len(chosen) - len(measured),
        compiling=None if experiment.backend == "cpu" else first_needed(before_first, around, forms, trial),
        base_s=_standing_s(around, durations), first_s=tuple(one or 0.0 for one in durations.of(in_first)),
        first_compiling_s=first_compiling_s,
    )  # fmt: skip


def _chosen(around: Beside, durations: Durations, known_s: Mapping[Schedule, float], *,
            missing: bool) -> tuple[Beside, Block | None]:  # fmt: skip
    """*around* with the baselines that will stand in every block, and the first block where they are not known."""
    if not around.legal:
        return around, None
    measured_s = {trial.key: known_s[trial.schedule] for trial in around.legal if trial.schedule in known_s}
    if len(measured_s) == len(around.legal):
        return around.chosen(measured_s), None
    guesses = durations.whole_s([trial.schedule for trial in around.legal])
    expected = around.chosen({trial.key: one for trial, one in zip(around.legal, guesses, strict=True)})
    return expected, around.first() if missing else None


def _standing_s(around: Beside, of: Durations) -> tuple[float, ...]:
    """One call of each that stands in every block."""
    if around.parts == "none":
        return ()
    if around.legal:
        stand = {trial.key: trial for trial in around.block(around.baselines).baselines}
        return tuple(one or 0.0 for one in of.of(stand.values()))
    tile = around.base.schedule["tile"]
    return of.compute_s(tile), of.sequential_s(tile), *([of.communication_s] if of.problem.world > 1 else [])
