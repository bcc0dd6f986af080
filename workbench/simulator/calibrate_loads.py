"""How fast one SM loads the operands of a tile: from recorded kernels of ours whose tiles are too small to compute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import geometric_mean

import numpy as np

from kernels.axes import tile
from kernels.machine import Machine
from kernels.operators import operator
from kernels.outcome import Measurement
from kernels.schemes.base import num_tiles
from workbench.simulator.calibrate_gpus import listed
from workbench.simulator.held_out import held_out
from workbench.simulator.predict import predict
from workbench.simulator.price import tiles

SHORT = 0.9
"""An estimate without loads below this share of the measured time says that loads were waited for."""


def with_loads(machine: Machine, measured: Iterable[Measurement]) -> Machine:
    """*machine* with the speed of loads that those of *measured* tell which compute alone, by our own GEMMs."""
    without = replace(machine, device=replace(machine.device, load_bytes_per_second=0.0))
    speeds: dict[str, list[float]] = {}
    for one in measured:
        problem = one.trial.problem
        is_ours = one.trial.schedule.get("num_warps") is not None
        if one.trial.part != "compute" or not is_ours or held_out(problem):
            continue
        if operator(problem.operator).work == "gemm" and predict(one.trial, without).time_s < SHORT * one.time_s:
            speeds.setdefault(listed(problem), []).append(_speed(without, one))
    if not speeds:
        return machine
    each = geometric_mean(speed for of_problem in speeds.values() for speed in of_problem)
    count = sum(map(len, speeds.values()))
    how = f"calibrated: {count} recorded kernels of ours that wait for loads, of {len(speeds)} problems"
    return replace(
        machine,
        device=replace(machine.device, load_bytes_per_second=each),
        fitted_to=tuple(sorted({*machine.fitted_to, *speeds})),
        provenance={**machine.provenance, "device.load_bytes_per_second": how},
        digest="",
    )


def _speed(machine: Machine, one: Measurement) -> float:
    """Bytes per second of one SM that explain the time of *one* beyond its launch, its memory and its tiles' ends."""
    problem, size = one.trial.problem, tile(one.trial.schedule["tile"])
    waves = -(-num_tiles(problem, str(size)) // machine.device.slots)
    memory_s = float(np.max(tiles.kernel_memory_seconds(machine, problem)))
    fixed_s = machine.costs.launch_seconds + waves * tiles.fixed_seconds(machine, "gemm") + memory_s
    loaded = waves * (size.m + size.n) * operator(problem.operator).extent(problem).contraction * problem.itemsize
    return loaded / max(one.time_s - fixed_s, one.time_s / 10)
