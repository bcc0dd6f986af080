"""How many estimates a second: plans played one by one, and the closed form over whole spaces."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice

import numpy as np

from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, operator
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
UNLIKE = 27
"""Fewer points of which hardly two are alike than of those that repeat."""

Entry = tuple[Problem, str, Machine, Fabric]
Draw = Callable[[Problem, str, Machine, Fabric, int, np.random.Generator], dict[str, np.ndarray]]


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
    """Random points of the whole spaces of all operators and schemes, legal or not.

    Choices repeat, as in the spaces that people look through; of sizes drawn from a range hardly two are alike.
    """
    made = [entry for preset, machine, fabric in SPACES
             for entry in _spaces(preset, machines.machine(machine), parse(fabric))]  # fmt: skip
    each = max(1, setting.effort.points // len(made))
    yield _rate("grid_estimates", made, each, _choices, Target(least=5e6), "values of all axes and three of each size")
    least = max(1, each // UNLIKE)
    yield _rate("grid_estimates_unlike", made, least, _unlike, None, "values of all axes, and sizes hardly two alike")


def _rate(name: str, made: Sequence[Entry], each: int, drawn: Draw, target: Target | None, words: str) -> Row:
    """Points by seconds of *each* points *drawn* of each space *made*, on one core."""
    random, rates, seconds = np.random.default_rng(0), [], 0.0
    for problem, scheme, machine, fabric in made:
        columns = drawn(problem, scheme, machine, fabric, each, random)
        began = time.thread_time()  # one thread does it; what other processes do meanwhile is not counted
        grid.times(problem, scheme, columns, machine, fabric)
        took = time.thread_time() - began
        rates.append(each / took)
        seconds += took
    how = (
        f"{len(made)} spaces of {each:,} random points on CPU ranks and H200s, legality included: {words}. Points by "
        "seconds of one core; the spread is the slowest and the fastest space."
    )
    total = each * len(made)
    return Row(name=name, value=total / seconds, unit="1/s", target=target, n=total, spread=(min(rates), max(rates)),
               how=how)  # fmt: skip


def _spaces(preset: str, machine: Machine, fabric: Fabric) -> Iterator[Entry]:
    offered = {entry.operator for entry in presets.named(preset).entries}
    for name in (name for name in OPERATORS if name in offered):
        (problem,) = presets.preset(preset, name)
        for scheme in COMPARED:
            yield problem, scheme, machine, resolved(fabric, problem, machine)


def _choices(problem: Problem, scheme: str, machine: Machine, fabric: Fabric, count: int,
             random: np.random.Generator) -> dict[str, np.ndarray]:  # fmt: skip
    """All values of every axis, and every size halved, kept and doubled."""
    sizes = {key: (max(1, size // 2), size, 2 * size) for key, size in problem.shape if isinstance(size, int)}
    values = {axis.name: axis.values for axis in axes(problem, scheme, machine, fabric)}
    return {name: random.choice(np.array(each), count) for name, each in {**values, **sizes}.items()}


def _unlike(problem: Problem, scheme: str, machine: Machine, fabric: Fabric, count: int,
            random: np.random.Generator) -> dict[str, np.ndarray]:  # fmt: skip
    """All values of every axis, and any size from its half to its double that every rank has a share of."""
    columns = _choices(problem, scheme, machine, fabric, count, random)
    sizes = {key: size for key, size in problem.shape if isinstance(size, int)}
    shares = {key.name: problem.world if key.shared else 1 for key in operator(problem.operator).keys}
    return columns | {key: share * random.integers(max(1, size // share // 2), 2 * size // share + 1, count)
                      for key, size in sizes.items() for share in (shares[key],)}  # fmt: skip
