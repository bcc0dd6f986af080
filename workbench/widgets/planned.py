"""What pressing Run would do, said before: how many schedules, how long about, and how many samples will come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np

from kernels.axes import Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.protocol import protocol
from kernels.schedule import Refusal
from kernels.schemes import schedule
from kernels.units import about
from workbench.expected import SETTING_UP_SECONDS
from workbench.simulator import grid
from workbench.simulator.points import Floats
from workbench.widgets.asking import Asked

COUNTED_MOST = 200_000
"""Points that are looked at while somebody moves a slider: ten milliseconds' worth."""

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An expectation, from the closed form."""

    schedules: dict[str, int]
    """How many of each scheme."""
    trials: int
    """Schedules with the baselines and parts that are timed beside them."""
    samples: int
    seconds: float | None
    """None where nothing is timed."""

    @property
    def count(self) -> int:
        return sum(self.schedules.values())

    def __str__(self) -> str:
        named = [f"{count:,} {scheme}" for scheme, count in self.schedules.items()]
        noun = "schedule" if self.count == 1 else "schedules"
        what = f"{named[0]} {noun}" if len(named) == 1 else f"{self.count:,} {noun} ({', '.join(named)})"
        if self.seconds is None:
            return f"{what}, nothing is timed."
        return f"{what} and {self.trials - self.count} baselines, {about(self.seconds)}."


def plan(asked: Asked, machine: Machine, fabric: Fabric, *, measured: bool) -> Plan:
    """What Run would do with *asked* over the resolved *fabric*; Refusal where it would refuse, too."""
    asked.schedule(machine)
    repeats = protocol(asked.protocol)
    times = {scheme: _legal(asked, scheme, machine, fabric) for scheme in asked.schemes()}
    few = not asked.swept_values(machine)
    count = sum(len(seconds) for seconds in times.values())
    # the sequential baseline, its computation and its communication, and of a few the computation of each alone
    beside = 3 - ("sequential" in times) + (count if few else 0)
    seconds = sum(float(found.sum()) for found in times.values())
    mean = seconds / count if count else 0.0
    rounds = 1 + repeats.warmups + repeats.repeats
    return Plan(
        schedules={scheme: len(found) for scheme, found in times.items()},
        trials=count + beside,
        samples=(count + beside) * repeats.repeats * asked.world,
        seconds=(seconds + beside * mean) * rounds + SETTING_UP_SECONDS * (count + beside) if measured else None,
    )


def _legal(asked: Asked, scheme: str, machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of every legal schedule of *scheme* that is asked for."""
    lists = tuple((name, tuple(values)) for name, values in _lists(asked, scheme, machine).items())
    return _times(_Combinations(asked.problem(), scheme, lists, fabric, machine))


@dataclass(frozen=True, slots=True)
class _Combinations:
    """All that the times of combinations of axes' values follow from."""

    problem: Problem
    scheme: str
    lists: tuple[tuple[str, tuple[Value, ...]], ...]
    fabric: Fabric
    machine: Machine = field(hash=False)


@lru_cache(maxsize=16)
def _times(of: _Combinations) -> Floats:
    """Of the legal ones. Kept: a slider of a swept axis changes nothing here, and forty milliseconds are felt."""
    found = grid.times(of.problem, of.scheme, _crossed(dict(of.lists)), of.machine, of.fabric)
    return found[np.isfinite(found)]


def columns(asked: Asked, scheme: str, machine: Machine) -> Columns:
    """Every combination of the swept axes' values, the other axes as the form has them; Refusal of too many."""
    return _crossed(_lists(asked, scheme, machine))


def _lists(asked: Asked, scheme: str, machine: Machine) -> dict[str, Sequence[Value]]:
    """The values that each axis takes; Refusal of too many combinations."""
    known = asked.axes_of(scheme, machine)
    base = schedule(asked.problem(), scheme, asked.values_of(scheme), machine, asked.link())
    lists: dict[str, Sequence[Value]] = {
        axis.name: axis.values if axis.name in asked.swept else (base[axis.name],) for axis in known
    }
    size = prod(len(values) for values in lists.values())
    if size > COUNTED_MOST:
        raise Refusal(
            f"All values of {', '.join(asked.swept)} were asked for, which are {size:,} schedules of {scheme}; "
            f"accepted are {COUNTED_MOST:,}. Fix some axes."
        )
    return lists


def _crossed(lists: Mapping[str, Sequence[Value]]) -> Columns:
    numbers = np.meshgrid(*(np.arange(len(values)) for values in lists.values()), indexing="ij")
    return {
        name: np.array(values)[number.ravel()] for (name, values), number in zip(lists.items(), numbers, strict=True)
    }


def each(of: Columns) -> Iterator[dict[str, Value]]:
    """The points of *of*, one by one."""
    for values in zip(*(column.tolist() for column in of.values()), strict=True):
        yield dict(zip(of, values, strict=True))
