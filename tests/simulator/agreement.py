"""How far tier A is from tier B: `python -m tests.simulator.agreement` prints it over a committed grid of schedules.

The grid: every operator and scheme on shipped machines, two and eight ranks, with each value that an axis offers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.schemes import COMPARED
from tests.simulator.trials import ask, legal, trial
from workbench.machines import shipped_machine
from workbench.simulator.grid import times
from workbench.simulator.predict import predict

MACHINES = {"h200_nvl2": ("nvlink", (2,)), "h200_nvl8": ("nvlink", (2, 8)), "mi300x_mesh8": ("nvlink", (2, 8)),
            "laptop_cpu": ("emulated:wire_to_compute=1", (2, 8))}  # fmt: skip
"""By machine the link, and how many ranks."""
NEAR = 0.15


def errors(machine: str, scheme: str, every: int = 1) -> Iterator[float]:
    """The closed form over play, less 1, of every so many schedules of the grid."""
    (link, worlds), place = MACHINES[machine], shipped_machine(machine)
    for world in worlds:
        for name, kind in OPERATORS.items():
            dtype = "float32" if kind.work == "gather" or place.backend == "cpu" else "bfloat16"
            of, fabric = problem(name, dict(ask(name, world, scale=2).shape), dtype=dtype, world=world), parse(link)
            for chosen in legal(of, scheme, place, fabric, pairs=False, turn=world // 2)[::every]:
                played = predict(trial(of, chosen, place, fabric), place, with_spans=False).time_s
                yield times(of, scheme, dict(chosen.axes), place, fabric)[0] / played - 1


def main() -> None:
    print("machine       scheme      points  median     p90     max  within 15 %")
    every: list[float] = []
    for machine in MACHINES:
        for scheme in COMPARED:
            apart = np.abs(list(errors(machine, scheme)))
            every.extend(apart)
            _print(f"{machine:<13} {scheme:<11}", apart)
    _print(f"{'all':<25}", np.array(every))


def _print(name: str, apart: np.ndarray) -> None:
    print(f"{name} {len(apart):>6} {np.median(apart):>7.1%} {np.quantile(apart, 0.9):>7.1%} {apart.max():>7.1%} "
          f"{np.mean(apart <= NEAR):>12.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
