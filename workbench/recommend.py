"""Which schedules are worth trying: whole spaces by closed form first, the best of them played."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod

import numpy as np

from kernels.axes import Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.outcome import Estimate
from kernels.problem import Problem
from kernels.protocol import Protocol
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axes, schedule
from kernels.trial import Trial
from workbench.simulator import grid
from workbench.simulator.predict import predict, resolved
from workbench.space import EVERY, Space

MOST_POINTS = 1_000_000
"""A space that is larger is refused: its columns would not fit beside a notebook."""
PLAYED = 4
"""So many times more schedules are played than are recommended: closed form and play may disagree about neighbours."""
UNSEEN = ("num_warps", "num_stages", "group_rows")
"""Axes of GPU kernels that change no estimate: their defaults are recommended, and only measuring tells more."""


def recommend(problem: Problem, machine: Machine, fabric: Fabric, space: Space, protocol: Protocol,
              count: int) -> tuple[list[Estimate], int]:  # fmt: skip
    """The *count* schedules estimated fastest, fastest first, and how many points were looked at."""
    fabric = resolved(fabric, problem, machine)
    favourites: list[tuple[float, Schedule]] = []
    num_points = 0
    for choice in space.choices:
        columns = _columns(problem, choice.scheme, dict(choice.values), machine, fabric)
        seconds = grid.times(problem, choice.scheme, columns, machine, fabric)
        num_points += len(seconds)
        order = np.argsort(seconds)[: np.count_nonzero(np.isfinite(seconds))]
        made = (_made(problem, choice.scheme, columns, int(number), machine, fabric) for number in order)
        best = islice(
            ((float(seconds[n]), asked) for n, asked in zip(order, made, strict=True) if asked), PLAYED * count
        )
        favourites += best
    favourites = sorted(favourites, key=lambda entry: entry[0])[: PLAYED * count]
    trials = [Trial(problem=problem, schedule=asked, backend=machine.backend, machine=machine.name, fabric=fabric,
                    protocol=protocol) for _, asked in favourites]  # fmt: skip
    played = [predict(trial, machine, with_spans=False) for trial in trials]
    return sorted(played, key=lambda estimate: estimate.time_s)[:count], num_points


def estimates(problem: Problem, schedules: Sequence[Schedule], machine: Machine, fabric: Fabric) -> list[float]:
    """Seconds of many schedules by closed form; infinite where it finds one illegal."""
    found = np.full(len(schedules), np.inf)
    for scheme in dict.fromkeys(asked.scheme for asked in schedules):
        mine = [number for number, asked in enumerate(schedules) if asked.scheme == scheme]
        names = [name for name, _ in schedules[mine[0]].axes]
        columns = {name: np.array([schedules[number][name] for number in mine]) for name in names}
        found[mine] = grid.times(problem, scheme, columns, machine, resolved(fabric, problem, machine))
    return [float(seconds) for seconds in np.nan_to_num(found, nan=np.inf)]


def every(schemes: Sequence[str], problem: Problem, machine: Machine, fabric: Fabric) -> dict[str, tuple[str, ...]]:
    """Settings that ask for all values of all axes of *schemes* that an estimate depends on."""
    found = dict.fromkeys(axis.name for name in schemes for axis in axes(problem, name, machine, fabric))
    return {name: (EVERY,) for name in found if name not in UNSEEN}


def _columns(problem: Problem, scheme: str, wanted: dict[str, tuple[Value, ...]], machine: Machine,
             fabric: Fabric) -> dict[str, np.ndarray]:  # fmt: skip
    """The product of the values wanted, axes not mentioned at their default, as columns."""
    lists = {}
    for axis in axes(problem, scheme, machine, fabric):
        values = wanted.get(axis.name, (axis.default,))
        lists[axis.name] = axis.values if EVERY in values else values
    size = prod(len(values) for values in lists.values())
    if size > MOST_POINTS:
        raise Refusal(f"All values of all axes of {scheme} were asked for, which are {size:,} points; at most "
                      f"{MOST_POINTS:,} are looked at. Fix some axes, such as --set tile=128x128x64.")  # fmt: skip
    numbers = np.meshgrid(*(np.arange(len(values)) for values in lists.values()), indexing="ij")
    return {
        name: np.array(values)[number.ravel()] for (name, values), number in zip(lists.items(), numbers, strict=True)
    }


def _made(problem: Problem, scheme: str, columns: dict[str, np.ndarray], number: int, machine: Machine,
          fabric: Fabric) -> Schedule | None:  # fmt: skip
    """Point *number* as a schedule; None where only the scheme itself knows that it is illegal."""
    values = {name: column[number].item() for name, column in columns.items()}
    try:
        return schedule(problem, scheme, values, machine, fabric)
    except Refusal:
        return None
