"""How many estimates a second: plans played one by one, and the closed form over whole spaces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice

import numpy as np

from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.protocol import PROTOCOLS
from kernels.schemes import COMPARED, PLANS, axes, schedule
from kernels.trial import Trial
from workbench import machines, presets
from workbench.benchmark.rows import Row, Target, typical
from workbench.benchmark.setting import Setting
from workbench.simulator import grid
from workbench.simulator.predict import predict, resolved

SPACES = (("laptop_overlap", machines.LAPTOP, "emulated"), ("mixtral_8x7b_experts_8192", "h200_nvl8", "nvlink"))
"""Preset, machine and fabric of the spaces whose closed form is timed."""


def plays(setting: Setting) -> Iterator[Row]:
    """Trials of all operators and schemes, their plans expanded anew."""
    trials = list(islice(_trials(setting.machine), setting.effort.plays))
    rates = []
    for trial in trials:
        PLANS.clear()
        began = time.perf_counter()
        predict(trial, setting.machine)
        rates.append(1 / (time.perf_counter() - began))
    how = "laptop_overlap at worlds 2 and 4, all operators x schemes: a plan made, priced and played with its spans."
    yield typical("play_estimates", rates, "1/s", how)


def _trials(machine: Machine) -> Iterator[Trial]:
    """All operators and schemes of the laptop's preset, without end."""
    link = parse("emulated")
    made = []
    for world in (2, 4):
        for problem in presets.preset("laptop_overlap", world=world):
            fabric = resolved(link, problem, machine)
            made += [Trial(problem=problem, schedule=schedule(problem, scheme, {}, machine, fabric), backend="cpu",
                            machine=machine.name, fabric=fabric, protocol=PROTOCOLS["default"])
                      for scheme in COMPARED]  # fmt: skip
    return cycle(made)


def points(setting: Setting) -> Iterator[Row]:
    """Random points of the whole spaces of all operators and schemes, legal or not."""
    random = np.random.default_rng(0)
    made = [entry for preset, machine, fabric in SPACES
             for entry in _spaces(preset, machines.machine(machine), parse(fabric))]  # fmt: skip
    each = max(1, setting.effort.points // len(made))
    rates, seconds = [], 0.0
    for problem, scheme, machine, fabric in made:
        columns = _random_columns(_axes_and_sizes(problem, scheme, machine, fabric), each, random)
        began = time.perf_counter()
        grid.times(problem, scheme, columns, machine, fabric)
        took = time.perf_counter() - began
        rates.append(each / took)
        seconds += took
    total = each * len(made)
    how = (
        f"{len(made)} spaces of {each:,} random points over all axes and sizes, on CPU ranks and H200s, legality "
        "included: points by seconds; the spread is the slowest and the fastest space."
    )
    yield Row(name="grid_estimates", value=total / seconds, unit="1/s", target=Target(least=20_000), n=total,
              spread=(min(rates), max(rates)), how=how)  # fmt: skip


def _spaces(preset: str, machine: Machine, fabric: Fabric) -> Iterator[tuple[Problem, str, Machine, Fabric]]:
    offered = {entry.operator for entry in presets.named(preset).entries}
    for name in (name for name in OPERATORS if name in offered):
        (problem,) = presets.preset(preset, name)
        for scheme in COMPARED:
            yield problem, scheme, machine, resolved(fabric, problem, machine)


def _axes_and_sizes(problem: Problem, scheme: str, machine: Machine, fabric: Fabric) -> dict[str, np.ndarray]:
    """All values of every axis, and every size halved, kept and doubled."""
    sizes = {key: [max(1, size // 2), size, 2 * size] for key, size in problem.shape if isinstance(size, int)}
    values = {axis.name: axis.values for axis in axes(problem, scheme, machine, fabric)}
    return {name: np.array(made) for name, made in {**values, **sizes}.items()}


def _random_columns(lists: dict[str, np.ndarray], count: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: random.choice(values, count) for name, values in lists.items()}
