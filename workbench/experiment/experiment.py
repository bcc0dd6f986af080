"""An Experiment: problems, the schedules to try on them, the baselines of each block, and the order of the search."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from math import inf
from typing import Any

from kernels.backends.capabilities import MeasuringRanks, baselines
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import BASELINE, axis_rules, library, schedule, stream_controls
from kernels.schemes.sequential import OURS
from kernels.trial import PROTOCOLS, Protocol, Trial, protocol_refusal
from workbench.experiment.space import Points, Space, points
from workbench.results.comparison import MAX_BLOCK_SCHEDULES

# Blocks: at most eight schedules of one problem and their baselines, timed interleaved in one grant.

FASTEST = 2
"""Number of the fastest baselines in every block: one of them may be torch's, which overlaps and has no parts."""
LONGEST_SECONDS = 8.0
"""Expected seconds of a block above which it holds fewer schedules, so that other clients get their turn."""
PARTS = ("none", "baseline", "each")
"""What a block times in addition to the schedules: nothing; the sequential baseline, its computation and its
communication alone; or these and the computation of each schedule alone."""

Legal = Callable[[Value], Sequence[Schedule]]
"""Returns the baselines with a given tile that are legal."""
Seconds = Callable[[Sequence[Trial], Sequence[Trial]], float]
"""Returns the expected seconds of some trials, given those before them in their block, whose kernels they may share."""


@dataclass(frozen=True, slots=True)
class Block:
    """Trials that are timed interleaved; ratios are formed inside a block and nowhere else."""

    baselines: tuple[Trial, ...]
    schedules: tuple[Trial, ...]
    """The requested ones, which may include the baseline."""
    parts: tuple[Trial, ...] = ()
    """The computation of each schedule alone."""
    first: bool = False
    """Whether its schedules are all baselines, from which those of the other blocks are chosen."""

    @property
    def trials(self) -> list[Trial]:
        """Every trial once, baselines first, so that ratios are known as soon as a schedule is timed."""
        return list({trial.key: trial for trial in (*self.baselines, *self.schedules, *self.parts)}.values())


@dataclass(frozen=True, slots=True)
class BaselinePlan:
    """The baselines and parts that every block of one problem contains."""

    base: Trial
    """The sequential schedule, everything at its default."""
    parts: str
    machine: Machine
    legal: tuple[Trial, ...] = ()
    """All baselines to choose from, timed in a first block; empty where there is only one baseline."""
    fastest: tuple[Trial, ...] = ()
    """The chosen baselines of every block, fastest first; empty: `base` alone."""

    def first(self, some: Sequence[Trial] = ()) -> Block:
        """The first block: all baselines, or *some* to be timed again, with the parts from which their floor (the least
        possible time) is computed."""
        return Block(tuple(self._parts(self.base, ())), tuple(some) or self.legal, first=True)

    def chosen(self, seconds: Mapping[str, float]) -> BaselinePlan:
        """This plan with the fastest baselines, whose times are *seconds* by key; with `base` where no time is
        known."""
        timed = sorted((trial for trial in self.legal if trial.key in seconds), key=lambda trial: seconds[trial.key])
        return replace(self, fastest=tuple(timed[:FASTEST]))

    def with_all(self) -> BaselinePlan:
        """This plan with all baselines in every block, for estimates, which cost little."""
        return replace(self, fastest=self.legal)

    @property
    def baselines(self) -> tuple[Trial, ...]:
        """The baselines of every block."""
        return self.fastest or (self.base,)

    def block(self, schedules: Sequence[Trial]) -> Block:
        """The block of *schedules* with their baselines and, for every tile, its computation alone, which the floor
        needs."""
        if self.parts == "none" or not schedules:
            return Block((), tuple(schedules))
        plain = next((trial for trial in self.baselines if has_parts(trial)), self.base)
        parts = [compute_alone(trial) for trial in schedules if has_parts(trial)] if self.parts == "each" else []
        parts += self.stream_parts(schedules) if self.parts == "each" else []
        return Block((*self._parts(plain, schedules), *self.baselines), tuple(schedules), tuple(parts))

    def _parts(self, plain: Trial, schedules: Sequence[Trial]) -> list[Trial]:
        """The computation alone of every tile, and the communication alone of *plain*."""
        alone = [compute_alone(self.base)]
        if self.legal:  # the library computes alike whatever the tile is
            alone += [compute_alone(trial) for trial in self.legal if is_ours(trial)][:1]
        alone += [compute_alone(self._sequential(trial.schedule)) for trial in schedules]
        return alone + ([plain.of_part("communication")] if plain.world > 1 else [])

    def stream_parts(self, schedules: Sequence[Trial]) -> list[Trial]:
        """Computation and communication alone of schedules with two streams, and their communication in one piece.

        Communication in one piece sums nothing, unlike that of the baselines; T_comm, the time of communication, is the
        faster one. Schedules with stream controls also get the same streams without controls.
        """
        linked = [trial for trial in schedules if trial.world > 1]
        cut = [trial for trial in linked if trial.schedule.get(axis_rules.LAUNCHES) is not None]
        in_one = [replace(trial, schedule=in_one_piece(trial, self.machine)) for trial in cut]
        moved = [trial.of_part("communication") for trial in (*cut, *in_one)]
        return [*map(compute_alone, cut), *moved, *_controlled_stream_parts(linked)]

    def _sequential(self, other: Schedule) -> Trial:
        """The sequential schedule with the tile of *other*, computed by our kernel where the library ignores tiles."""
        base, problem, chosen = self.base, self.base.problem, any(map(is_ours, self.legal))
        by_library = other.scheme == BASELINE and other[axis_rules.KERNEL] != OURS
        if other["tile"] == base.schedule["tile"] or (chosen and by_library):
            return base
        values = {"tile": other["tile"], **({axis_rules.KERNEL: OURS} if chosen else {})}
        return replace(base, schedule=schedule(problem, BASELINE, values, self.machine, base.fabric))

    def tile_alone(self, other: Schedule) -> Value:
        """The tile of the computation that is timed alone for *other*."""
        return self._sequential(other).schedule["tile"]

    def others(self, schedules: Sequence[Trial]) -> list[Trial]:
        """*schedules* without the baselines that every block contains anyway."""
        in_every_block = {trial.key for trial in self.baselines}
        return [trial for trial in schedules if self.parts == "none" or trial.key not in in_every_block]

    def blocks(
        self, schedules: Sequence[Trial], seconds: Seconds, longest_s: float = LONGEST_SECONDS
    ) -> Iterator[Block]:
        """Blocks of *schedules*, each schedule in exactly one, and the baselines in all of them.

        *seconds* is called anew for every block: times measured so far correct the expected ones.
        """
        rest = self.others(schedules)
        base = [trial for trial in schedules if trial not in rest]
        if not rest and base:
            yield self.block(base)
        while rest:
            alone = self.block(rest[:1]).trials
            baselines_s = seconds([trial for trial in alone if trial.key != rest[0].key], rest[:1])
            costs_s = [seconds([trial], rest[:number]) for number, trial in enumerate(rest[:MAX_BLOCK_SCHEDULES])]
            count = fit(costs_s, baselines_s, longest_s)
            yield self.block([*base, *rest[:count]])
            rest = rest[count:]


def fit(schedules_s: Sequence[float], baselines_s: float, longest_s: float = LONGEST_SECONDS) -> int:
    """How many of the next schedules fit into one block whose baselines take *baselines_s*: 1 to MAX_BLOCK_SCHEDULES.

    Where baselines take long, schedules may take as long as they do: otherwise most of the time would go to baselines.
    """
    room_s = max(longest_s - baselines_s, baselines_s)
    taken_s = 0.0
    for count, schedule_s in enumerate(schedules_s[:MAX_BLOCK_SCHEDULES]):
        taken_s += schedule_s
        if count and taken_s > room_s:
            return count
    return min(len(schedules_s), MAX_BLOCK_SCHEDULES)


def baseline_plan(
    base: Trial, tiles: Iterable[Value], parts: str, machine: Machine, legal: Legal | None = None
) -> BaselinePlan:
    """The baseline plan of a run of schedules with *tiles*; *base* has everything else at its default.

    *legal* returns the baselines with a tile to choose from, where there are several.
    """
    assert parts in PARTS, parts
    first = replace(base, schedule=baseline(tiles, base.problem, machine, base.fabric))
    several = legal(first.schedule["tile"]) if legal is not None and parts != "none" else ()
    return BaselinePlan(first, parts, machine, tuple(replace(base, schedule=each) for each in several))


def baseline(tiles: Iterable[Value], problem: Problem, machine: Machine, fabric: Fabric) -> Schedule:
    """The sequential schedule that schedules with *tiles* are compared with; it has their tile where all have the
    same."""
    several = set(tiles)
    return schedule(problem, BASELINE, {"tile": several.pop()} if len(several) == 1 else {}, machine, fabric)


def _controlled_stream_parts(schedules: Sequence[Trial]) -> list[Trial]:
    """For schedules with stream controls: each half alone, and both streams with every control off.

    Halves that differ only in ignored axes are one trial.
    """
    controlled = [trial for trial in schedules if stream_controls.has_controls(dict(trial.schedule.axes))]
    halves = [replace(trial, schedule=stream_controls.half(trial.schedule, part)).of_part(part)
              for part in (stream_controls.COMPUTE, stream_controls.COMMUNICATION) for trial in controlled]  # fmt: skip
    return [
        *(compute_alone(each) if each.part == stream_controls.COMPUTE else each for each in halves),
        *(replace(trial, schedule=stream_controls.streams_alone(trial.schedule)) for trial in controlled),
    ]


def is_baseline(trial: Trial) -> bool:
    """Whether *trial* is a baseline: a part alone, or a whole trial of the sequential scheme."""
    return trial.part != "whole" or trial.schedule.scheme == BASELINE


def has_parts(trial: Trial) -> bool:
    """Whether the computation of *trial* can be timed alone, unlike torch's overlapped operators, which are one
    call."""
    return trial.schedule.scheme != BASELINE or trial.schedule["collective"] != library.OVERLAPPED


def is_ours(trial: Trial) -> bool:
    """Whether the baseline *trial* computes with our kernel rather than the library's."""
    return trial.schedule[axis_rules.KERNEL] == OURS


def in_one_piece(trial: Trial, machine: Machine) -> Schedule:
    """The schedule of *trial* in one piece with its tile and engine; all other axes have their default."""
    kept: dict[str, Value] = {name: trial.schedule[name] for name in ("tile", "engine")}
    if (
        trial.world > 2 and trial.schedule[axis_rules.LAUNCHES] == axis_rules.ONE
    ):  # such a schedule has no step that sums the results of several peers
        kept[axis_rules.LAUNCHES] = axis_rules.ONE
    return schedule(trial.problem, trial.schedule.scheme, {**kept, "pieces": 1}, machine, trial.fabric)


def compute_alone(trial: Trial) -> Trial:
    """The computation of *trial* alone. It crosses no link, so that one trial serves all emulated links."""
    fabric = Fabric(kind="shared_memory") if trial.fabric.emulated else trial.fabric
    return replace(trial, fabric=fabric, part="compute")


# Searches: which schedules of a space are measured, and in what order.

KINDS = ("exhaustive", "random", "estimate_first", "optuna")

Times = Mapping[Schedule, float]
Estimates = Callable[[Sequence[Schedule]], Sequence[float]]
"""Estimated seconds of many schedules at once."""
Rounds = Generator[Sequence[Schedule], Times, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which schedules of a space are measured, and in what order."""

    kind: str = "exhaustive"
    """One of KINDS: all schedules, some at random, the best by estimate, or those that Optuna proposes from measured
    times."""
    count: int | None = None
    """The most schedules measured on one problem; None: no limit."""
    seed: int = 0
    budget_s: float | None = None
    """Seconds of a whole run, the wait for ranks and compilation included, after which no block begins; None: no
    limit. The last block ends after it, by at most its own length."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Refusal(f"There is no search {self.kind!r}. Accepted: {', '.join(KINDS)}.")
        if self.kind != "exhaustive" and self.count is None and self.budget_s is None:
            raise Refusal(
                f"search = {self.kind} needs count, the most to measure, or a budget. Accepted: values such as count = "
                "20, or budget_s = 60."
            )
        if self.count is not None and self.count < 1:
            raise Refusal(f"count = {self.count} is too small: {self.count} < 1. Accepted: 1 schedule or more.")
        if self.budget_s is not None and not 0 < self.budget_s < inf:
            raise Refusal(
                f"budget_s = {self.budget_s:g} is no time to measure in: {self.budget_s:g} s is not above 0. Accepted: "
                "seconds, such as budget_s = 60."
            )

    def most(self, schedules: int) -> int:
        """How many of so many schedules are measured at most."""
        return schedules if self.count is None else min(self.count, schedules)

    @property
    def has_stopping_rule(self) -> bool:
        """Whether it ends where the next lower bound exceeds the best measured time: estimates come in rising order."""
        return self.kind == "estimate_first"

    @property
    def proposes(self) -> bool:
        """Whether measured times decide which schedules come next."""
        return self.kind == "optuna"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Search:
        return cls(**data)


def rounds(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """Yields lists of schedules to measure, and receives their measured times."""
    if search.proposes:
        yield from _optuna(search, schedules, estimates)
    else:
        yield [schedules[number] for number in order(search, len(schedules), lambda: estimates(schedules))]


def order(search: Search, count: int, seconds: Callable[[], Sequence[float]]) -> Sequence[int]:
    """Which of *count* numbered schedules to measure, in order; for optuna, only how many these are matters.

    *seconds* returns their estimated times; only estimate_first calls it.
    """
    match search.kind:
        case "random":
            return random.Random(search.seed).sample(range(count), search.most(count))
        case "estimate_first":
            estimates = seconds()
            return sorted(range(count), key=lambda number: estimates[number])[: search.count]
    return range(count)[: search.count]


def installed_kinds() -> tuple[str, ...]:
    """The KINDS that can run here: Optuna's needs the extra `search`."""
    return KINDS if find_spec("optuna") else tuple(kind for kind in KINDS if kind != "optuna")


def _optuna(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """Optuna's ask and tell loop, seeded with the best estimates; proposals outside the space count as failed."""
    try:
        import optuna
    except ImportError as error:
        raise Refusal(
            "search = optuna needs optuna, which is not installed. Accepted: pip install "
            "'overlap-workbench[search]', or search = estimate_first."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=search.seed)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    offered = {(each.scheme, frozenset(each.axes)): each for each in schedules}
    target, values = search.most(len(schedules)), _values(schedules)
    favourites = Search(kind="estimate_first", count=max(1, min(target // 4, MAX_BLOCK_SCHEDULES)))
    for number in order(favourites, len(schedules), lambda: estimates(schedules)):
        study.enqueue_trial(_names(schedules[number], values))
    measured: set[Schedule] = set()
    times: Times = {}
    waiting: dict[Schedule, Any] = {}
    for _ in range(20 * target):  # proposals may repeat or be illegal
        trial = study.ask()
        proposed = offered.get(_propose(trial, values))
        if proposed is not None and proposed in times:
            study.tell(trial, times[proposed])
        elif proposed is None or proposed in waiting or proposed in measured:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            waiting[proposed] = trial
        if len(waiting) == min(MAX_BLOCK_SCHEDULES, target - len(measured)):  # as many as one block holds
            times = yield list(waiting)
            for proposed, trial in waiting.items():
                state = None if proposed in times else optuna.trial.TrialState.FAIL
                study.tell(trial, times.get(proposed), state=state)
            measured |= waiting.keys()
            waiting = {}
        if len(measured) == target:
            return
    if waiting:
        yield list(waiting)


def best_so_far(
    search: Search, times: Times, estimates: Estimates, lowest: Callable[[Schedule], float] | None = None
) -> list[tuple[Schedule, float]]:
    """*search* played over a space that was measured before: each schedule that it takes, with the best time so far.

    *times* has the space. *lowest* gives the lower bound of an estimate, for searches that stop by it.
    """
    walk, walked = rounds(search, list(times), estimates), list[tuple[Schedule, float]]()
    chosen: Sequence[Schedule] | None = next(walk, None)
    while chosen is not None:
        for each in chosen:
            best_s = min([walked[-1][1]] if walked else [inf])
            if lowest is not None and search.has_stopping_rule and lowest(each) > best_s:
                return walked
            walked.append((each, min(best_s, times[each])))
        try:
            chosen = walk.send({each: times[each] for each, _ in walked})
        except StopIteration:
            chosen = None
    return walked


Values = Mapping[str, Mapping[str, Sequence[Value | None]]]
"""By scheme and axis the occurring values; None where a schedule lacks the axis, as no kernel reads it there."""


def _values(schedules: Sequence[Schedule]) -> Values:
    by_scheme: dict[str, list[dict[str, Value]]] = {}
    for each in schedules:
        by_scheme.setdefault(each.scheme, []).append(dict(each.axes))
    return {scheme: {axis: list(dict.fromkeys(one.get(axis) for one in several))
                     for axis in dict.fromkeys(axis for one in several for axis in one)}
            for scheme, several in by_scheme.items()}  # fmt: skip


def _names(schedule: Schedule, values: Values) -> dict[str, Value | None]:
    axes_set, scheme = dict(schedule.axes), schedule.scheme
    return {"scheme": scheme, **{f"{scheme}.{axis}": axes_set.get(axis) for axis in values[scheme]}}


def _propose(trial: Any, values: Values) -> tuple[str, frozenset[tuple[str, Value]]]:
    """The scheme and the axes that *trial* proposes."""
    scheme = trial.suggest_categorical("scheme", list(values))
    chosen = {axis: trial.suggest_categorical(f"{scheme}.{axis}", offered) for axis, offered in values[scheme].items()}
    return scheme, frozenset((axis, value) for axis, value in chosen.items() if value is not None)


# Experiments.

RESOLVING = Protocol(name="resolve", warmups=3, repeats=10)
"""The protocol of the computation that gives a relative link its bandwidth; it is timed in a block of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Every problem with every schedule of a space, in the order of a search, timed by one protocol."""

    problems: tuple[Problem, ...]
    space: Space
    backend: str
    machine: str
    """Name of the machine that is measured or simulated."""
    fabric: Fabric
    search: Search = field(default_factory=Search)
    protocol: Protocol = field(default_factory=lambda: PROTOCOLS["default"])
    title: str = ""
    parts: str = "baseline"
    """What a block contains in addition to its schedules: one of PARTS."""
    together: bool = False
    """Whether blocks are as large as allowed, however long they take; then all schedules are known or all are
    measured."""
    fresh: bool = False
    """Whether known schedules are measured again."""

    def __post_init__(self) -> None:
        assert self.parts in PARTS, self.parts
        if (message := protocol_refusal(self.protocol, self.backend)) is not None:
            raise Refusal(message)

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

    def trial(self, problem: Problem, schedule: Schedule, fabric: Fabric, part: str = "whole") -> Trial:
        return Trial(problem=problem, schedule=schedule, backend=self.backend, machine=self.machine, fabric=fabric,
                     protocol=self.protocol, part=part)  # fmt: skip

    def points(self, problem: Problem, machine: Machine, *, measured: bool = False) -> Points:
        """The legal schedules on *problem*, whatever the bandwidth of its fabric.

        If they are to be *measured*: those that the backend runs.
        """
        return points(self.space, problem, machine, self.fabric, self.ranks(machine) if measured else None)

    def ranks(self, machine: Machine) -> MeasuringRanks:
        """The ranks that would measure the experiment."""
        return MeasuringRanks(machine, self.fabric)

    def baseline(self, problem: Problem, fabric: Fabric, machine: Machine) -> Trial:
        """The sequential trial with every axis at its default."""
        return self.trial(problem, schedule(problem, BASELINE, {}, machine, fabric), fabric)

    def baseline_plan(
        self, problem: Problem, schedules: Sequence[Schedule], fabric: Fabric, machine: Machine
    ) -> BaselinePlan:
        """The baselines and parts that *schedules* are compared with."""
        return self.baseline_plan_of_tiles(problem, [each["tile"] for each in schedules], fabric, machine)

    def baseline_plan_of_tiles(
        self, problem: Problem, tiles: Iterable[Value], fabric: Fabric, machine: Machine
    ) -> BaselinePlan:
        """The baselines of schedules with *tiles*: several for two or more GPU ranks, one for CPU ranks."""
        several = machine.backend == "triton" and problem.world > 1
        legal = partial(baselines, problem, ranks=self.ranks(machine)) if several else None
        return baseline_plan(self.baseline(problem, fabric, machine), tiles, self.parts, machine, legal)
