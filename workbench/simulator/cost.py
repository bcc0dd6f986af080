"""What every step of a Plan costs on a Machine over a Fabric: columns of seconds, and the pools they are spent on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.axes import tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.plan import EVERYTHING, Kind, Plan, Pool
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import library
from kernels.schemes.reads import KERNEL
from workbench.simulator import gpu_costs
from workbench.simulator.links import links
from workbench.simulator.rates import collective_seconds, work_seconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


RESIDENT = {"gemv": 6, "gather": 28}
"""Blocks that share an SM where a kernel waits for memory alone: as the GEMV and the pooled lookup of ours compile."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepCosts:
    """By step. A step holds its share for `issue`, then its egress link for `transit`; others see it `delay` later."""

    pool: Ints
    """Of its rank; a CPU rank has one thread, so that it issues its puts on COMPUTE."""
    share: Ints
    """Units of that pool, or EVERYTHING."""
    capacity: Ints
    """Units by rank and pool."""
    issue: Floats
    link: Ints
    """Number of the egress link; -1 for steps that send nothing."""
    transit: Floats
    delay: Floats
    start_seconds: float
    """Before the first step of every rank."""


def step_costs(plan: Plan, machine: Machine, fabric: Fabric) -> StepCosts:
    """The costs of *plan*. *fabric* must be resolved."""
    plan, count = replace(plan, schedule=library.carried_out(plan.schedule)), len(plan)
    issue, transit, delay = np.zeros(count), np.zeros(count), np.zeros(count)
    link = np.full(count, -1, dtype=np.int64)
    overhead = step_overhead(plan.schedule, machine)
    computes = plan.kind == Kind.COMPUTE
    issue[computes] = compute_seconds(plan, machine)[computes] + overhead
    for kind, work in ((Kind.REDUCE, "reduce"), (Kind.COPY, "copy")):
        mine = plan.kind == kind
        issue[mine] = work_seconds(machine, work, plan.problem.dtype, plan.num_bytes[mine]) + overhead
    if not gpu_costs.unpacks(plan.problem, machine, plan.schedule.scheme):
        issue[plan.kind == Kind.COPY] = 0.0
    wires = links(plan.problem.world, machine, fabric)
    moves = (plan.kind == Kind.PUT) | (plan.kind == Kind.PULL)
    sources = np.where(plan.kind == Kind.PULL, plan.peer, plan.rank)[moves]
    ends = (sources, np.where(plan.kind == Kind.PULL, plan.rank, plan.peer)[moves])
    issue[moves] = _send(plan, machine, moves)
    link[moves] = wires.number[ends]
    measured = gpu_costs.put_byte_seconds(plan.problem, machine, fabric, dict(plan.schedule.axes))
    byte_seconds = wires.byte_seconds[ends] if measured is None else measured
    transit[moves] = plan.num_bytes[moves] * byte_seconds + wires.message_seconds[ends]
    delay[moves] = wires.latency_seconds[ends] + machine.costs.signal_seconds
    calls = plan.kind == Kind.COLLECTIVE
    issue[calls] = _library_seconds(plan, machine, _largest(plan, calls), wires.collective_byte_seconds)
    pool, share = _held(plan, machine, moves)
    return StepCosts(pool=pool, share=share, capacity=capacities(machine, plan.problem.world), issue=issue,
                     link=link, transit=transit, delay=delay, start_seconds=_start_seconds(plan, machine))  # fmt: skip


def _library_seconds(plan: Plan, machine: Machine, num_bytes: Floats, byte_seconds: float) -> Floats:
    """Collectives as measured, or by a fixed cost and a share of the link."""
    name, costs = operator(plan.problem.operator).collective, machine.costs
    by = plan.schedule.get("collective")
    measured = collective_seconds(machine, name, plan.problem.world, num_bytes, by)
    return costs.library_seconds + num_bytes * byte_seconds / costs.library_share if measured is None else measured


def _start_seconds(plan: Plan, machine: Machine) -> float:
    communicates = bool((plan.kind != Kind.COMPUTE).any())
    return start_seconds(machine, plan.schedule.scheme, plan.schedule.get("collective"), communicates)


def start_seconds(machine: Machine, scheme: str, collective: Any, communicates: bool) -> float:
    """Before the first step: all ranks meet, in a kernel of its own or in the fused one.

    On GPUs calls follow each other on a stream: ranks meet in kernels that communicate, not around those that do not,
    nor around a library's, whose time contains it.
    """
    costs = machine.costs
    ours = communicates and collective in ("copy_engine", "direct")
    launch = costs.launch_seconds if scheme == "fused" or ours else 0.0
    meets = machine.device.kind == "cpu" or (communicates and collective not in library.CALLS)
    return launch + (costs.barrier_seconds if meets else 0.0)


def step_overhead(schedule: Schedule, machine: Machine) -> float:
    """Beside a step's work: bookkeeping, and a launch where steps are launched from the host (all but fused)."""
    return machine.costs.step_seconds + (0.0 if schedule.scheme == "fused" else machine.costs.launch_seconds)


def slots_left(machine: Machine, grid: Any, comm_sms: Any, engine: Any) -> Ints:
    """Tiles computed at once, as numbers or columns: a small grid leaves slots empty, communication takes some."""
    slots = machine.device.slots
    grids = np.asarray(grid, dtype=np.int64)
    taken = comm_sms + np.isin(engine, ("sm", "library")) * machine.costs.send_blocks
    return np.maximum(1, np.minimum(slots, np.where(grids > 0, grids, slots)) - taken)


def work_share(problem: Problem) -> tuple[str, float]:
    """The speed curve an operator runs on, and its FLOP or bytes per (row, column, contraction) element."""
    stated = operator(problem.operator)
    extent = stated.extent(problem)
    total = stated.memory_bytes(problem) if stated.work == "gather" else stated.flops(problem)
    return stated.work, total / (extent.rows * extent.columns * extent.contraction)


def tile_width(problem: Problem, rows: Ints | int, columns: Ints | int) -> Ints | int:
    """What the speed of a tile depends on beside its size: rows of a GEMM, tokens, or the bytes of an embedding."""
    work = operator(problem.operator).work
    if work == "gather":
        return problem["dim"] * problem.itemsize
    return rows if work == "gemm" else columns


def compute_seconds(plan: Plan, machine: Machine) -> Floats:
    """Seconds of every compute step without its overhead, 0 for other steps: tiles over slots, in waves."""
    seconds = np.zeros(len(plan))
    steps = np.flatnonzero(plan.kind == Kind.COMPUTE)
    if not len(steps):
        return seconds
    schedule = plan.schedule
    if (alone := gpu_costs.library_seconds(plan.problem, plan.problem, machine, schedule.get(KERNEL))) is not None:
        seconds[steps] = alone
        return seconds
    slots = int(slots_left(machine, schedule.get("grid", 0), schedule.get("comm_sms", 0), schedule.get("engine", "")))
    if plan.schedule.scheme == "fused":
        seconds[steps] = _one_kernel(plan, machine, steps, slots)
    else:
        seconds[steps] = _own_kernels(plan, machine, steps, slots)
    return seconds


def _own_kernels(plan: Plan, machine: Machine, steps: Ints, slots: int) -> Floats:
    """Every step begins its own waves; all tiles of a wave wait for its slowest."""
    counts = plan.tile_stop[steps] - plan.tile_start[steps]
    first = np.concatenate([[0], np.cumsum(counts)])
    inside = np.arange(first[-1]) - np.repeat(first[:-1], counts)
    offsets = _offsets(plan)[plan.rank[steps]] + plan.tile_start[steps]
    tiles = np.repeat(offsets, counts) + inside
    k = np.repeat(plan.k_stop[steps] - plan.k_start[steps], counts)
    seconds = _tile_seconds(plan, machine, tiles, k)
    waves = np.flatnonzero(inside % slots == 0)
    of_wave = np.maximum.reduceat(seconds, waves)
    return np.maximum(np.add.reduceat(of_wave, np.searchsorted(waves, first[:-1])),
                      _memory_seconds(plan, machine, steps, tiles, first[:-1]))  # fmt: skip


def _one_kernel(plan: Plan, machine: Machine, steps: Ints, slots: int) -> Floats:
    """Waves run through the whole tile order; a step costs what it adds to the time at which its last wave ends."""
    added = np.zeros(len(steps))
    contraction = operator(plan.problem.operator).extent(plan.problem).contraction
    for rank, offset in enumerate(_offsets(plan)[:-1]):
        mine = plan.rank[steps] == rank
        count = len(plan.tiles[rank])
        seconds = _tile_seconds(plan, machine, offset + np.arange(count), np.full(count, contraction))
        ends = np.concatenate([[0.0], np.cumsum(np.maximum.reduceat(seconds, np.arange(0, count, slots)))])
        wave = -(-np.stack([plan.tile_start[steps[mine]], plan.tile_stop[steps[mine]]]) // slots)
        added[mine] = ends[wave[1]] - ends[wave[0]]
        bound = _kernel_memory_seconds(plan.problem, machine)
        added[mine] *= max(1.0, bound / ends[-1])
    return added


def _offsets(plan: Plan) -> Ints:
    """Where each rank's tiles begin when all ranks' are laid end to end."""
    return np.concatenate([[0], np.cumsum([len(tiles) for tiles in plan.tiles])])


def _tile_seconds(plan: Plan, machine: Machine, tiles: Ints, k: Ints) -> Floats:
    """*tiles* are counted over all ranks. A GPU computes a cut tile as a whole one; a CPU rank only what is there."""
    rows = np.concatenate([each.row_stop - each.row_start for each in plan.tiles])[tiles]
    columns = np.concatenate([each.col_stop - each.col_start for each in plan.tiles])[tiles]
    if machine.device.kind == "gpu":
        size = tile(plan.schedule["tile"])
        rows, columns = np.full_like(rows, size.m), np.full_like(columns, size.n)
    work, share = work_share(plan.problem)
    size_of_tile = share * rows * columns * k
    seconds = work_seconds(machine, work, plan.problem.dtype, size_of_tile, tile_width(plan.problem, rows, columns))
    return fixed_seconds(machine, work) + seconds * machine.device.slots


def fixed_seconds(machine: Machine, work: str) -> float:
    """What a tile costs beside its work: where only memory is waited for, blocks that share an SM wait together."""
    resident = 1 if machine.device.kind == "cpu" else RESIDENT.get(work, 1)
    return machine.costs.tile_seconds / resident


def _memory_seconds(plan: Plan, machine: Machine, steps: Ints, tiles: Ints, first: Ints) -> Floats:
    """Each operand of a step read once and its results written, where no measured curve contains it for sure."""
    problem = plan.problem
    work, share = work_share(problem)
    if not gpu_costs.memory_bounds(machine, work, problem.dtype):
        return np.zeros(len(steps))
    starts = np.concatenate([each.col_start for each in plan.tiles])[tiles]
    stops = np.concatenate([each.col_stop for each in plan.tiles])[tiles]
    heights = np.concatenate([each.row_stop - each.row_start for each in plan.tiles])[tiles]
    columns = np.maximum.reduceat(stops, first) - np.minimum.reduceat(starts, first)
    elements = np.add.reduceat(heights * (stops - starts), first)
    k = plan.k_stop[steps] - plan.k_start[steps]
    if work == "gather":
        num_bytes = share * elements * k
    else:
        num_bytes = (elements / columns * k + k * columns + elements) * problem.itemsize
    return num_bytes / machine.device.memory_bytes_per_second


def _kernel_memory_seconds(problem: Problem, machine: Machine) -> float:
    if not gpu_costs.memory_bounds(machine, work_share(problem)[0], problem.dtype):
        return 0.0
    return operator(problem.operator).memory_bytes(problem) / machine.device.memory_bytes_per_second


def capacities(machine: Machine, world: int) -> Ints:
    """Units by rank and pool: SMs or a CPU rank's one thread, copy engines, who drives the link, the library."""
    units = np.ones(len(Pool), dtype=np.int64)
    units[Pool.COMPUTE] = machine.device.slots
    units[Pool.COPY_ENGINE] = max(1, machine.device.copy_engines)
    return np.tile(units, (world, 1))


def _held(plan: Plan, machine: Machine, moves: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Pool and share by step: as the Plan says, but a CPU rank moves bytes with its one thread."""
    if machine.device.kind == "gpu":
        return plan.pool, plan.share
    return np.where(moves, Pool.COMPUTE, plan.pool), np.where(moves, EVERYTHING, plan.share)


def _send(plan: Plan, machine: Machine, moves: NDArray[np.bool_]) -> Floats:
    """Issue time of puts. What is in place is only signalled; the rest is copied, one read and one write.

    A copy engine or, on a GPU, blocks of its own copy while the wire is busy: their launch is all that is issued.
    """
    costs, schedule = machine.costs, plan.schedule
    size = plan.num_bytes[moves]
    if "copy_engine" in (schedule.get("engine"), schedule.get("collective")):
        return np.full(len(size), costs.copy_engine_seconds)
    if machine.device.kind == "gpu" and (schedule.scheme != "fused" or schedule.get("comm_sms")):
        return np.full(len(size), step_overhead(schedule, machine))
    copied = np.where(plan.in_place[moves] == 1, 0.0, work_seconds(machine, "copy", plan.problem.dtype, 2 * size))
    return costs.step_seconds + copied


def _largest(plan: Plan, calls: NDArray[np.bool_]) -> Floats:
    """Bytes of each collective: the most that any rank sends in the call with the same number."""
    index = plan.index[calls]
    most = np.zeros(int(index.max(initial=-1)) + 1)
    np.maximum.at(most, index, plan.num_bytes[calls])
    return most[index]


def resolve(fabric: Fabric, problem: Problem, compute_s: float) -> Fabric:
    """*fabric* with its bandwidth; *compute_s*: the sequential schedule's computation alone, measured or estimated."""
    return fabric.resolve(operator(problem.operator).wire_bytes(problem), compute_s)
