"""An Experiment is what a person wants to know: problems, schedules to try on them, and how they are timed."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from kernels.backends.capabilities import MeasuringRanks, baselines
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import BASELINE, axis_rules, library, schedule, stream_controls
from kernels.schemes.sequential import OURS
from kernels.trial import PROTOCOLS, Protocol, Trial
from workbench.experiment.space import Points, Space, points
from workbench.results.comparison import MAX_BLOCK_SCHEDULES

# A Block is timed in turns in one grant: at most eight schedules of one problem beside what they are compared with.

FASTEST = 2
"""So many of several baselines stand in every block: one of them may be torch's, which overlaps and has no parts."""
LONGEST_SECONDS = 8.0
"""A block that is expected to take longer holds fewer schedules, so that others get their turn."""
PARTS = ("none", "baseline", "each")
"""What stands beside the schedules: nothing; the sequential baseline, its computation and its communication alone; or
these and the computation of each schedule alone."""

Legal = Callable[[Value], Sequence[Schedule]]
Seconds = Callable[[Sequence[Trial], Sequence[Trial]], float]
"""How long trials are expected to take, all together, after others of their block: these may have compiled for them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Everything that is timed in turns; ratios are formed inside it and nowhere else."""

    baselines: tuple[Trial, ...]
    schedules: tuple[Trial, ...]
    """Those that were asked for; the baseline is among them where it was."""
    parts: tuple[Trial, ...] = ()
    """The computation of each schedule alone."""
    first: bool = False
    """Whether its schedules are all baselines, from which those of the other blocks are chosen."""

    @property
    def trials(self) -> list[Trial]:
        """Each of them once: what the schedules are compared with comes first, so that ratios are there at once."""
        return list({trial.key: trial for trial in (*self.baselines, *self.schedules, *self.parts)}.values())


@dataclass(frozen=True, slots=True)
class BaselinePlan:
    """What stands beside the schedules of one problem in every block."""

    base: Trial
    """The sequential schedule, everything at its default."""
    parts: str
    machine: Machine
    legal: tuple[Trial, ...] = ()
    """All baselines to choose from, in a first block; none where there is one baseline only."""
    standing: tuple[Trial, ...] = ()
    """Those that stand in every block, the fastest first; empty: `base` alone."""

    def first(self, some: Sequence[Trial] = ()) -> Block:
        """All baselines, or *some* that are timed again, with what their floor is made of."""
        return Block(tuple(self._parts(self.base, ())), tuple(some) or self.legal, first=True)

    def chosen(self, seconds: Mapping[str, float]) -> BaselinePlan:
        """The same with the fastest of all baselines, whose times are *seconds* by key; `base` where none is known."""
        timed = sorted((trial for trial in self.legal if trial.key in seconds), key=lambda trial: seconds[trial.key])
        return replace(self, standing=tuple(timed[:FASTEST]))

    def with_all(self) -> BaselinePlan:
        """The same with all baselines in every block: estimates cost little."""
        return replace(self, standing=self.legal)

    @property
    def baselines(self) -> tuple[Trial, ...]:
        """What stands in every block: what overlaps needs one beside it that has parts."""
        return self.standing or (self.base,)

    def block(self, schedules: Sequence[Trial]) -> Block:
        """*schedules* and what they are compared with: every tile is computed alone, or the floor would not hold."""
        if self.parts == "none" or not schedules:
            return Block((), tuple(schedules))
        plain = next((trial for trial in self.baselines if has_parts(trial)), self.base)
        each = [compute_alone(trial) for trial in schedules if has_parts(trial)] if self.parts == "each" else []
        each += self.own_parts(schedules) if self.parts == "each" else []
        return Block((*self._parts(plain, schedules), *self.baselines), tuple(schedules), tuple(each))

    def _parts(self, plain: Trial, schedules: Sequence[Trial]) -> list[Trial]:
        """Computations alone, and the communication of *plain*."""
        alone = [compute_alone(self.base)]
        if self.legal:  # the library computes alike whatever the tile is
            alone += [compute_alone(trial) for trial in self.legal if is_ours(trial)][:1]
        alone += [compute_alone(self._sequential(trial.schedule)) for trial in schedules]
        return alone + ([plain.of_part("communication")] if plain.world > 1 else [])

    def own_parts(self, schedules: Sequence[Trial]) -> list[Trial]:
        """Computation and communication alone of what has streams for each, and the communication in one piece.

        That adds nothing: it is what T_comm is the fastest of, where the baselines' communication sums. Beside two
        streams with controls stand the same streams without any.
        """
        linked = [trial for trial in schedules if trial.world > 1]
        cut = [trial for trial in linked if trial.schedule.get(axis_rules.LAUNCHES) is not None]
        in_one = [replace(trial, schedule=in_one_piece(trial, self.machine)) for trial in cut]
        moved = [trial.of_part("communication") for trial in (*cut, *in_one)]
        return [*map(compute_alone, cut), *moved, *_beside_streams(linked)]

    def _sequential(self, other: Schedule) -> Trial:
        """The sequential schedule with the tile of *other*, computed by us where a library takes no notice of tiles."""
        base, problem, chosen = self.base, self.base.problem, any(map(is_ours, self.legal))
        by_library = other.scheme == BASELINE and other[axis_rules.KERNEL] != OURS
        if other["tile"] == base.schedule["tile"] or (chosen and by_library):
            return base
        values = {"tile": other["tile"], **({axis_rules.KERNEL: OURS} if chosen else {})}
        return replace(base, schedule=schedule(problem, BASELINE, values, self.machine, base.fabric))

    def tile_alone(self, other: Schedule) -> Value:
        """The tile of the computation that is timed alone beside *other*."""
        return self._sequential(other).schedule["tile"]

    def others(self, schedules: Sequence[Trial]) -> list[Trial]:
        """*schedules* but for the baselines, where these stand in every block anyway."""
        stand = {trial.key for trial in self.baselines}
        return [trial for trial in schedules if self.parts == "none" or trial.key not in stand]

    def blocks(
        self, schedules: Sequence[Trial], seconds: Seconds, longest_s: float = LONGEST_SECONDS
    ) -> Iterator[Block]:
        """*schedules*, each in exactly one block but for the baseline, which stands in all of them.

        *seconds* is asked anew for every block: what was measured until then corrects what is expected.
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
    """How many of the next schedules go into one block with baselines that take *baselines_s*.

    At least one, at most MOST. Where baselines take long, schedules may take as long as they do: otherwise baselines
    would be most of what is measured.
    """
    room_s = max(longest_s - baselines_s, baselines_s)
    taken_s = 0.0
    for count, schedule_s in enumerate(schedules_s[:MAX_BLOCK_SCHEDULES]):
        taken_s += schedule_s
        if count and taken_s > room_s:
            return count
    return min(len(schedules_s), MAX_BLOCK_SCHEDULES)


def beside(
    base: Trial, tiles: Iterable[Value], parts: str, machine: Machine, legal: Legal | None = None
) -> BaselinePlan:
    """For a run of schedules with *tiles*, whose *base* has everything else at its default.

    *legal* says which baselines with a tile there are to choose from, where there are several.
    """
    assert parts in PARTS, parts
    made = replace(base, schedule=baseline(tiles, base.problem, machine, base.fabric))
    several = legal(made.schedule["tile"]) if legal is not None and parts != "none" else ()
    return BaselinePlan(made, parts, machine, tuple(replace(base, schedule=one) for one in several))


def baseline(tiles: Iterable[Value], problem: Problem, machine: Machine, fabric: Fabric) -> Schedule:
    """The sequential schedule beside schedules with *tiles*: where all of them have one tile, it has it, too."""
    several = set(tiles)
    return schedule(problem, BASELINE, {"tile": several.pop()} if len(several) == 1 else {}, machine, fabric)


def _beside_streams(schedules: Sequence[Trial]) -> list[Trial]:
    """The halves alone of each that has controls of two streams, and these streams with every control off.

    Halves that differ in nothing that they read are one trial.
    """
    controlled = [trial for trial in schedules if stream_controls.has_controls(dict(trial.schedule.axes))]
    halves = [replace(trial, schedule=stream_controls.half(trial.schedule, part)).of_part(part)
              for part in (stream_controls.COMPUTE, stream_controls.COMMUNICATION) for trial in controlled]  # fmt: skip
    return [
        *(compute_alone(each) if each.part == stream_controls.COMPUTE else each for each in halves),
        *(replace(trial, schedule=stream_controls.streams_alone(trial.schedule)) for trial in controlled),
    ]


def is_baseline(trial: Trial) -> bool:
    """Whether schedules are compared with *trial*: a part, or a whole of the sequential scheme."""
    return trial.part != "whole" or trial.schedule.scheme == BASELINE


def has_parts(trial: Trial) -> bool:
    """Whether its computation can be timed alone: torch's overlapped operators are one call."""
    return trial.schedule.scheme != BASELINE or trial.schedule["collective"] != library.OVERLAPPED


def is_ours(trial: Trial) -> bool:
    """Whether a baseline computes by our kernel where the library could."""
    return trial.schedule[axis_rules.KERNEL] == OURS


def in_one_piece(trial: Trial, machine: Machine) -> Schedule:
    """The schedule of *trial* in one piece by its engine; everything else as it is by default."""
    kept: dict[str, Value] = {name: trial.schedule[name] for name in ("tile", "engine")}
    if (
        trial.world > 2 and trial.schedule[axis_rules.LAUNCHES] == axis_rules.ONE
    ):  # whose sums of several peers stand in no step
        kept[axis_rules.LAUNCHES] = axis_rules.ONE
    return schedule(trial.problem, trial.schedule.scheme, {**kept, "pieces": 1}, machine, trial.fabric)


def compute_alone(trial: Trial) -> Trial:
    """The computation of *trial* alone. No emulated link is crossed, so that one trial serves all of them."""
    fabric = Fabric(kind="shared_memory") if trial.fabric.emulated else trial.fabric
    return replace(trial, fabric=fabric, part="compute")


# A Search decides which schedules of a space are measured, and in what order: lists go out, times come back.

KINDS = ("exhaustive", "random", "estimate_first", "optuna")

Times = Mapping[Schedule, float]
Estimates = Callable[[Sequence[Schedule]], Sequence[float]]
"""Estimated seconds of many schedules at once."""
Rounds = Generator[Sequence[Schedule], Times, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How a space is walked through."""

    kind: str = "exhaustive"
    """One of KINDS: everything, some at random, the best by estimate, or what Optuna proposes from the times so far."""
    count: int | None = None
    """The most that is measured on one problem; None: no limit (exhaustive only)."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Refusal(f"There is no search {self.kind!r}. Accepted: {', '.join(KINDS)}.")
        if self.kind != "exhaustive" and self.count is None:
            raise Refusal(
                f"search = {self.kind} needs count, the most to measure. Accepted: values such as count = 20."
            )
        if self.count is not None and self.count < 1:
            raise Refusal(f"count = {self.count} is too small: {self.count} < 1. Accepted: 1 schedule or more.")

    @property
    def proposes(self) -> bool:
        """Whether times decide what is measured next."""
        return self.kind == "optuna"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Search:
        return cls(**data)


def rounds(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """The schedules to measure, list by list."""
    if search.proposes:
        yield from _optuna(search, schedules, estimates)
    else:
        yield [schedules[number] for number in order(search, len(schedules), lambda: estimates(schedules))]


def order(search: Search, count: int, seconds: Callable[[], Sequence[float]]) -> Sequence[int]:
    """Which of *count* schedules are measured, in order; of a search that proposes, how many.

    *seconds*, what they are estimated to take, is asked by a search that goes by it.
    """
    match search.kind:
        case "random":
            return random.Random(search.seed).sample(range(count), min(search.count or 0, count))
        case "estimate_first":
            estimates = seconds()
            return sorted(range(count), key=lambda number: estimates[number])[: search.count]
    return range(count)[: search.count]


def _optuna(search: Search, schedules: Sequence[Schedule], estimates: Estimates) -> Rounds:
    """Ask and tell. Seeded with the estimates' favourites; a proposal outside the space is told to be bad."""
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
    offered = set(schedules)
    favourites = Search(kind="estimate_first", count=max(1, (search.count or 0) // 4))
    for number in order(favourites, len(schedules), lambda: estimates(schedules)):
        study.enqueue_trial(_names(schedules[number]))
    values, target = _values(schedules), min(search.count or 0, len(schedules))
    measured: set[Schedule] = set()
    times: Times = {}
    waiting: dict[Schedule, Any] = {}
    for _ in range(20 * target):  # proposals may repeat or be illegal
        trial = study.ask()
        proposed = _propose(trial, values)
        if proposed in times:
            study.tell(trial, times[proposed])
        elif proposed not in offered or proposed in waiting or proposed in measured:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            waiting[proposed] = trial
        if len(waiting) == min(MAX_BLOCK_SCHEDULES, target - len(measured)):  # as many as are timed in turns
            times = yield list(waiting)
            for proposed, trial in waiting.items():
                failed = {} if proposed in times else {"state": optuna.trial.TrialState.FAIL}
                study.tell(trial, times.get(proposed), **failed)
            measured |= waiting.keys()
            waiting = {}
        if len(measured) == target:
            return
    if waiting:
        yield list(waiting)


def _values(schedules: Sequence[Schedule]) -> dict[str, dict[str, list[Value]]]:
    """Scheme -> axis -> the values that occur."""
    values: dict[str, dict[str, list[Value]]] = {}
    for one in schedules:
        for axis, value in one.axes:
            occurring = values.setdefault(one.scheme, {}).setdefault(axis, [])
            if value not in occurring:
                occurring.append(value)
    return values


def _names(schedule: Schedule) -> dict[str, Value]:
    return {"scheme": schedule.scheme, **{f"{schedule.scheme}.{axis}": value for axis, value in schedule.axes}}


def _propose(trial: Any, values: Mapping[str, Mapping[str, Sequence[Value]]]) -> Schedule:
    scheme = trial.suggest_categorical("scheme", list(values))
    chosen = {axis: trial.suggest_categorical(f"{scheme}.{axis}", some) for axis, some in values[scheme].items()}
    return Schedule(scheme, tuple(chosen.items()))


# An Experiment is what a person wants to know: problems, schedules to try on them, and how they are timed.

RESOLVING = Protocol(name="resolve", warmups=3, repeats=10)
"""How the computation is timed that a relative link is resolved with: apart from every run's own comparison."""


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
    """What stands beside the schedules of a block: one of workbench.experiment.experiment.PARTS."""
    together: bool = False
    """Blocks as large as they may be, however long they take; all of it is known, or all of it is measured."""
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

    def trial(self, problem: Problem, schedule: Schedule, fabric: Fabric, part: str = "whole") -> Trial:
        return Trial(problem=problem, schedule=schedule, backend=self.backend, machine=self.machine, fabric=fabric,
                     protocol=self.protocol, part=part)  # fmt: skip

    def points(self, problem: Problem, machine: Machine, *, measured: bool = False) -> Points:
        """The legal schedules on *problem*; the bandwidth of its fabric does not matter for that.

        Where they are to be *measured*, those that the backend runs.
        """
        return points(self.space, problem, machine, self.fabric, self.ranks(machine) if measured else None)

    def ranks(self, machine: Machine) -> MeasuringRanks:
        """Who would measure it."""
        return MeasuringRanks(machine, self.fabric)

    def baseline(self, problem: Problem, fabric: Fabric, machine: Machine) -> Trial:
        """The sequential schedule, everything at its default."""
        return self.trial(problem, schedule(problem, BASELINE, {}, machine, fabric), fabric)

    def beside(self, problem: Problem, schedules: Sequence[Schedule], fabric: Fabric, machine: Machine) -> BaselinePlan:
        """What *schedules* are compared with."""
        return self.beside_tiles(problem, [one["tile"] for one in schedules], fabric, machine)

    def beside_tiles(self, problem: Problem, tiles: Iterable[Value], fabric: Fabric, machine: Machine) -> BaselinePlan:
        """The same of schedules with *tiles*. GPU ranks of several have several baselines; CPU ranks have one."""
        several = machine.backend == "triton" and problem.world > 1
        legal = partial(baselines, problem, ranks=self.ranks(machine)) if several else None
        return beside(self.baseline(problem, fabric, machine), tiles, self.parts, machine, legal)
