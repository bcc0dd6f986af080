"""How far tier A is from tier B: `python -m tests.simulator.agreement` prints it over a committed grid of schedules.

The grid: every operator and scheme on shipped machines, two and eight ranks, with each value that an axis offers.
Beside it, schedules drawn by a committed seed, with all values at once and smaller and larger problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Value
from kernels.schemes import COMPARED, axes
from tests.kernels.covering import legal as complete
from tests.simulator.trials import ask, legal, trial
from workbench.machines import shipped_machine
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import predict

MACHINES = {"h200_nvl2": ("nvlink", (2,)), "h200_nvl8": ("nvlink", (2, 8)), "mi300x_mesh8": ("nvlink", (2, 8)),
            "laptop_cpu": ("emulated:wire_to_compute=1", (2, 8))}  # fmt: skip
"""By machine the link, and how many ranks."""
NEAR = 0.15
SEED, SCALES, DRAWN = 20261123, (1, 2, 4), 25
"""Of schedules that are drawn: for every machine, world, operator and scheme so many, legal or not."""


def errors(machine: str, scheme: str, every: int = 1) -> Iterator[float]:
    """The closed form over play, less 1, of every so many schedules of the grid."""
    (link, worlds), place = MACHINES[machine], shipped_machine(machine)
    fabric = parse(link)
    for world, name in product(worlds, OPERATORS):
        of = _sized(name, world, place, scale=2)
        for chosen in legal(of, scheme, place, fabric, pairs=False, turn=world // 2)[::every]:
            yield _error(of, chosen, place, fabric)


def drawn_errors(machine: str, each: int) -> Iterator[float]:
    """The same of *each* schedules drawn for every operator, scheme and world, as far as they are legal."""
    (link, worlds), place, random = MACHINES[machine], shipped_machine(machine), np.random.default_rng(SEED)
    fabric = parse(link)
    for world, scheme, name in product(worlds, COMPARED, OPERATORS):
        for _ in range(each):
            of = _sized(name, world, place, scale=int(random.choice(SCALES)))
            known = axes(of, scheme, place, fabric)
            chosen = complete(of, scheme, place, fabric)({axis.name: _one_of(axis, random) for axis in known})
            if chosen is not None:
                yield _error(of, chosen, place, fabric)


def _one_of(axis: Axis, random: np.random.Generator) -> Value:
    return axis.values[int(random.integers(len(axis.values)))]


def _sized(name: str, world: int, place: Machine, scale: int) -> Problem:
    dtype = "float32" if OPERATORS[name].work == "gather" or place.backend == "cpu" else "bfloat16"
    return problem(name, dict(ask(name, world, scale).shape), dtype=dtype, world=world)


def _error(of: Problem, chosen: Schedule, place: Machine, fabric: Fabric) -> float:
    played = predict(trial(of, chosen, place, fabric), place, with_spans=False).time_s
    return float(times(of, chosen.scheme, dict(chosen.axes), place, fabric)[0] / played - 1)


def main() -> None:
    print("machine       scheme      points  median     p90     max  within 15 %")
    every: list[float] = []
    for machine in MACHINES:
        for scheme in COMPARED:
            apart = np.abs(list(errors(machine, scheme)))
            every.extend(apart)
            _print(f"{machine:<13} {scheme:<11}", apart)
    _print(f"{'all':<25}", np.array(every))
    _print(f"{'drawn':<25}", np.abs([error for machine in MACHINES for error in drawn_errors(machine, each=DRAWN)]))


def _print(name: str, apart: np.ndarray) -> None:
    print(f"{name} {len(apart):>6} {np.median(apart):>7.1%} {np.quantile(apart, 0.9):>7.1%} {apart.max():>7.1%} "
          f"{np.mean(apart <= NEAR):>12.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
