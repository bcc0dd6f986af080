"""A Space: schemes with lists of axis values, and the legal schedules that it makes on a problem and a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from kernels import fabric as fabrics
from kernels.backends import capabilities
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule, Value
from kernels.schemes import axes, axis_rules, schedule
from workbench import machines
from workbench.machines import shipped_machine
from workbench.resources import LAPTOP
from workbench.results.rows import QUESTION

# Axes of a scheme on each backend: some are only for GPU ranks, some only for CPU ranks.

TYPICAL = {"cpu": LAPTOP, "triton": "h200_nvl8"}
"""A machine by backend whose ranks have every axis."""
RANKS = {"cpu": "CPU ranks", "triton": "GPU ranks"}


def of_backend(backend: str, problem: Problem, scheme: str) -> tuple[Axis, ...]:
    """The axes of *scheme* for *problem* on ranks of *backend*; none where the ranks cannot run it."""
    machine = shipped_machine(TYPICAL[backend])
    try:
        return axes(problem, scheme, machine, fabrics.parse(fabrics.usual(machine, problem.world)))
    except Refusal:
        return ()


def axis_of_other_backend(name: str, backend: str, problem: Problem, schemes: Sequence[str]) -> str | None:
    """Which of *schemes* have axis *name* on another backend than *backend*, as a message; None where none has."""
    for other in TYPICAL:
        having = [scheme for scheme in schemes if name in {axis.name for axis in of_backend(other, problem, scheme)}]
        if other != backend and having:
            return (f"{name} is an axis of {', '.join(having)} on {RANKS[other]} (backend = {other}), and these are "
                    f"{RANKS[backend]}.")  # fmt: skip
    return None


def without_only_choices(row: Mapping[str, Any]) -> dict[str, Value]:
    """The axes of *row* without those whose one choice on its problem, machine and link it has; all if one is unknown.

    *row*: at least `scheme` and `axes`.
    """
    known = dict(row["axes"] or {})
    try:
        problem = Problem.from_json({key: row[key] for key in QUESTION})
        only = _only_choices(problem, str(row["scheme"]), str(row["machine"]), str(row["fabric"]))
    except (KeyError, TypeError, ValueError):  # an imported row, or of a machine or scheme that is not here
        return known
    return {name: value for name, value in known.items() if only.get(name) != value}


@lru_cache(maxsize=256)
def _only_choices(problem: Problem, scheme: str, machine: str, fabric: str) -> dict[str, Value]:
    """The axes with one choice, by name; Refusal where the problem has no such scheme there."""
    known = axes(problem, scheme, machines.machine(machine), fabrics.parse(fabric))
    return {axis.name: axis.default for axis in known if len(axis.values) < 2}


# Spaces and their points.

MOST_POINTS = 1_000_000
"""The most points of a space: the columns of more would not fit into memory together with a notebook."""
EVERY = "all"
"""The value that means all values that an axis offers on the problem."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One scheme and the requested values of some of its axes; the other axes keep their default."""

    scheme: str
    values: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    """Axis names and their values in the order of trying; EVERY means all."""

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "values": {name: list(wanted) for name, wanted in self.values}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Choice:
        return cls(data["scheme"], tuple((name, tuple(wanted)) for name, wanted in data["values"].items()))


@dataclass(frozen=True, slots=True)
class Space:
    """The choices that are tried on every problem."""

    choices: tuple[Choice, ...]

    @property
    def has_every(self) -> bool:
        """Whether some axis has EVERY value, of which illegal ones are left out."""
        return any(EVERY in wanted for choice in self.choices for _, wanted in choice.values)

    def to_json(self) -> list[dict[str, Any]]:
        return [choice.to_json() for choice in self.choices]

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]]) -> Space:
        return cls(tuple(map(Choice.from_json, data)))


@dataclass(frozen=True, slots=True)
class Points:
    """A Space on one problem: legal schedules choice by choice, the last axis varying fastest, and refused ones."""

    schedules: tuple[Schedule, ...]
    refused: tuple[tuple[Schedule, str], ...]
    """Illegal schedules that were requested by their values, without axes at their default; each with its message."""
    left_out: tuple[tuple[Schedule, str], ...] = ()
    """Illegal schedules that only EVERY made, each with its message."""


def points(
    space: Space, problem: Problem, machine: Machine, fabric: Fabric, ranks: capabilities.MeasuringRanks | None = None
) -> Points:
    """The legal schedules of *space*; if *ranks* are to measure them, those that the ranks run.

    Raises Refusal of an unknown scheme or axis.
    """
    legal: dict[Schedule, None] = {}
    refused: dict[Schedule, str] = {}
    left_out: dict[Schedule, str] = {}
    for choice in space.choices:
        every = any(EVERY in wanted for _, wanted in choice.values)
        known = axes(problem, choice.scheme, machine, fabric)
        for axis_values in _candidates(choice, _checked_axes(choice, known, problem, machine)):
            candidate = Schedule(choice.scheme, tuple(axis_values.items()))
            settings = _with_effect(choice, problem, axis_values, machine)
            try:
                legal[_complete(problem, choice.scheme, settings, machine, fabric, ranks)] = None
            except Refusal as refusal:
                (left_out if every else refused)[candidate] = str(refusal)
    return Points(tuple(legal), tuple(refused.items()), tuple(left_out.items()))


def left_out_text(by_problem: Sequence[Points]) -> str:
    """How many combinations of all values were left out, with one reason for each axis or scheme that caused it."""
    reasons: dict[str, list[str]] = {}
    for points in by_problem:
        for _, message in points.left_out:
            reasons.setdefault(message.partition(" ")[0], []).append(message)
    if not reasons:
        return ""
    count = sum(map(len, reasons.values()))
    counts = " ".join(f"{len(messages):,} for {name}: {messages[0]}" for name, messages in reasons.items())
    return f"{count:,} combinations of all values were left out. {counts}"


def _complete(
    problem: Problem, scheme: str, settings: Mapping[str, Value], machine: Machine, fabric: Fabric,
    ranks: capabilities.MeasuringRanks | None,
) -> Schedule:  # fmt: skip
    if ranks is not None:
        return capabilities.complete(problem, scheme, settings, ranks)
    return schedule(problem, scheme, settings, machine, fabric)


def _with_effect(
    choice: Choice, problem: Problem, settings: Mapping[str, Value], machine: Machine
) -> dict[str, Value]:  # fmt: skip
    """*settings* without axes that only other tile orders of the same choice use, so that it is tried once.

    No Schedule yet: that omits some values, which then would be those of the default.
    """
    wanted = dict(choice.values).get(axis_rules.TILE_ORDER, ())
    several = len(wanted) > 1 or EVERY in wanted
    ignored = axis_rules.ignored_axes(problem, choice.scheme, settings, machine.backend) if several else {}
    return {name: value for name, value in settings.items() if name not in ignored}


def first_occurrences(problem: Problem, scheme: str, crossed: Mapping[str, np.ndarray], machine: Machine) -> np.ndarray:
    """A mask of the points of *crossed* that differ from all earlier ones: of an ignored axis, the first value
    counts."""
    kept = np.ones(len(next(iter(crossed.values()))), dtype=bool)
    for name, decider in axis_rules.DECIDED_BY.items():
        if name not in crossed or decider not in crossed or not len(kept):
            continue
        for value in np.unique(crossed[decider]):
            point: dict[str, Value] = {decider: str(value), name: 1}
            if name in axis_rules.ignored_axes(problem, scheme, point, machine.backend):
                kept &= (crossed[decider] != value) | (crossed[name] == crossed[name][0])
    return kept


def _checked_axes(choice: Choice, known: Sequence[Axis], problem: Problem, machine: Machine) -> dict[str, Axis]:
    """The axes that *choice* may name, by name; Refusal where it names another one."""
    by_name = {axis.name: axis for axis in known}
    for name, _ in choice.values:
        if name not in by_name:
            message = axis_of_other_backend(name, machine.backend, problem, (choice.scheme,))
            raise Refusal(f"{message or f'{choice.scheme} has no axis {name!r}.'} Accepted: {', '.join(by_name)}.")
    return by_name


def _candidates(choice: Choice, by_name: Mapping[str, Axis]) -> Iterator[dict[str, Value]]:
    names = [name for name, _ in choice.values]
    lists = [by_name[name].values if EVERY in wanted else wanted for name, wanted in choice.values]
    for values in product(*lists):
        yield dict(zip(names, values, strict=True))


def values(
    choice: Choice,
    problem: Problem,
    machine: Machine,
    fabric: Fabric,
    most: int,
    ranks: capabilities.MeasuringRanks | None = None,
) -> dict[str, tuple[Value, ...]]:
    """The values of each axis of *choice*, in the scheme's order; Refusal of more than *most* combinations.

    If *ranks* are to measure them: the values that the ranks run, which may be none.
    """
    known = axes(problem, choice.scheme, machine, fabric)
    by_name = _checked_axes(choice, known, problem, machine)
    wanted = dict(choice.values)
    fixed = {name: some[0] for name, some in wanted.items() if EVERY not in some and _decides(name, some, wanted)}
    fixed |= _most_resident(wanted, by_name) | _whole_tiles(wanted, by_name)
    try:
        whole = _complete(problem, choice.scheme, fixed, machine, fabric, ranks)
        usual = axis_rules.all_axes(problem, whole, machine.backend)
    except Refusal:  # none is legal, or only together with swept values
        usual = {axis.name: axis.default for axis in known} | fixed
    lists = {
        axis.name: axis.values if EVERY in wanted.get(axis.name, ()) else
        tuple(dict.fromkeys(wanted.get(axis.name, (usual.get(axis.name, axis.default),)))) for axis in known
    }  # fmt: skip
    if ranks is not None:
        lists = capabilities.run_values(problem, choice.scheme, lists, ranks)
    if (size := prod(len(some) for some in lists.values())) > most:
        several = ", ".join(name for name, some in lists.items() if len(some) > 1)
        raise Refusal(
            f"{choice.scheme} with all values of {several} has {size:,} schedules: {size:,} > {most:,}. "
            f"Accepted: at most {most:,}. Fix some axes."
        )
    return lists


def _whole_tiles(wanted: Mapping[str, Sequence[Value]], known: Mapping[str, Axis]) -> dict[str, Value]:
    """The split of tiles that are swept without one: the default's goes with its own tile alone."""
    tiles, split = wanted.get("tile", ()), axis_rules.SPLIT_K
    swept = EVERY in tiles or len(tiles) > 1
    return {split: axis_rules.WHOLE} if swept and split in known and split not in wanted else {}


def _most_resident(wanted: Mapping[str, Sequence[Value]], known: Mapping[str, Axis]) -> dict[str, Value]:
    """The largest of the *wanted* numbers of resident blocks: a tile that leaves room for those leaves it for fewer."""
    some = wanted.get(axis_rules.RESIDENT, ())
    return (
        {axis_rules.RESIDENT: max(known[axis_rules.RESIDENT].values if EVERY in some else some, key=int)}
        if some
        else {}
    )


def _decides(name: str, some: Sequence[Value], wanted: Mapping[str, Sequence[Value]]) -> bool:
    """Whether *some* values of axis *name* decide the defaults of other axes: one value, or slices without a tile
    order."""
    return len(some) == 1 or (name == "slice_tiles" and axis_rules.TILE_ORDER not in wanted)


def columns(lists: Mapping[str, Sequence[Value]]) -> dict[str, np.ndarray]:
    """Every combination of *lists*, column by column, the last axis varying fastest."""
    numbers = np.meshgrid(*(np.arange(len(some)) for some in lists.values()), indexing="ij")
    return {name: np.array(some)[number.ravel()] for (name, some), number in zip(lists.items(), numbers, strict=True)}


def combinations(crossed: Mapping[str, np.ndarray]) -> Iterator[dict[str, Value]]:
    """The points of *crossed*, one by one."""
    for point in zip(*(column.tolist() for column in crossed.values()), strict=True):
        yield dict(zip(crossed, point, strict=True))


def choices(
    schemes: Sequence[str], settings: Mapping[str, Sequence[str]], known: Mapping[str, Sequence[Axis]]
) -> Space:
    """A Space from texts: each setting applies to every one of *schemes* that has its axis.

    *known* are the axes by scheme. Refusal where none of the schemes has an axis.
    """
    offered = list(dict.fromkeys(axis.name for name in schemes for axis in known[name]))
    if unknown := [name for name in settings if name not in offered]:
        has_none = f"{schemes[0]} has" if len(schemes) == 1 else f"None of {', '.join(schemes)} has"
        no = "no" if len(schemes) == 1 else "an"
        raise Refusal(f"{has_none} {no} axis {unknown[0]!r}. Accepted: {', '.join(offered)}.")
    return Space(tuple(_choice(scheme, settings, known[scheme]) for scheme in schemes))


def _choice(scheme: str, settings: Mapping[str, Sequence[str]], known: Sequence[Axis]) -> Choice:
    by_name = {axis.name: axis for axis in known}
    wanted = {name: tuple(by_name[name].parse(text) for text in texts) for name, texts in settings.items()
              if name in by_name}  # fmt: skip
    return Choice(scheme, tuple(wanted.items()))
