"""What the compute steps of a Plan cost: its tiles in their order, in waves over the slots that a step has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels import ranges
from kernels.axes import tile
from kernels.machine import Machine
from kernels.operators import operator
from kernels.plan import EVERYTHING, Kind, Plan, Tiles
from kernels.schemes.reads import KERNEL
from workbench.simulator.price import tiles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def compute_seconds(plan: Plan, machine: Machine) -> Floats:
    """Seconds of every compute step without its overhead, 0 for other steps."""
    seconds = np.zeros(len(plan))
    steps = np.flatnonzero(plan.kind == Kind.COMPUTE)
    if not len(steps):
        return seconds
    by_library = tiles.library_seconds(machine, plan.problem, plan.schedule.get(KERNEL))
    if by_library is not None:
        seconds[steps] = by_library
    elif one_kernel(plan):
        seconds[steps] = _one_kernel(plan, machine, steps)
    else:
        seconds[steps] = _own_kernels(plan, machine, steps)
    return seconds


def one_kernel(plan: Plan) -> bool:
    """Whether all that a rank does is one launch: its steps then begin inside a kernel that runs."""
    return len(plan) > 0 and len(plan.launches) <= plan.problem.world


def _slots(plan: Plan, machine: Machine, steps: Ints) -> Ints:
    """By step: tiles computed at once. A step with a share of its own has no more slots than that."""
    schedule, share = plan.schedule, plan.share[steps]
    most = tiles.slots(machine, grid=plan.launches.grid[plan.launch[steps]], comm_sms=schedule.get("comm_sms", 0),
                       engine=schedule.get("engine"))  # fmt: skip
    return np.where(share == EVERYTHING, most, np.minimum(most, share))


def _own_kernels(plan: Plan, machine: Machine, steps: Ints) -> Floats:
    """Every step begins its own waves; all tiles of a wave wait for its slowest."""
    counts = plan.tile_stop[steps] - plan.tile_start[steps]
    first, inside = ranges.bounds(counts), ranges.inside(counts)
    offsets = _offsets(plan)[plan.rank[steps]] + plan.tile_start[steps]
    chosen = np.repeat(offsets, counts) + inside
    k = np.repeat(plan.k_stop[steps] - plan.k_start[steps], counts)
    rows, columns = _sides(plan.tiles)
    seconds = _tile_seconds(plan, machine, (rows[chosen], columns[chosen]), k)
    waves = np.flatnonzero(inside % np.repeat(_slots(plan, machine, steps), counts) == 0)
    of_wave = np.maximum.reduceat(seconds, waves)
    return np.maximum(np.add.reduceat(of_wave, np.searchsorted(waves, first[:-1])),
                      _memory_seconds(plan, machine, steps, chosen, first[:-1]))  # fmt: skip


def _one_kernel(plan: Plan, machine: Machine, steps: Ints) -> Floats:
    """Waves run through the whole tile order; a step costs what it adds to the time at which its last wave ends."""
    added, slots = np.zeros(len(steps)), _slots(plan, machine, steps)
    contraction = operator(plan.problem.operator).extent(plan.problem).contraction
    bound = tiles.kernel_memory_seconds(machine, plan.problem)
    for rank, of_rank in enumerate(plan.tiles):
        here = plan.rank[steps] == rank
        count, at_once = len(of_rank), int(slots[here].max(initial=1))
        seconds = _tile_seconds(plan, machine, _sides([of_rank]), np.full(count, contraction))
        ends = np.concatenate([[0.0], np.cumsum(np.maximum.reduceat(seconds, np.arange(0, count, at_once)))])
        wave = -(-np.stack([plan.tile_start[steps[here]], plan.tile_stop[steps[here]]]) // at_once)
        added[here] = (ends[wave[1]] - ends[wave[0]]) * np.maximum(1.0, bound / ends[-1])
    return added


def _offsets(plan: Plan) -> Ints:
    """Where each rank's tiles begin when all ranks' are laid end to end."""
    return ranges.bounds(np.array([len(each) for each in plan.tiles], dtype=np.int64))


def _sides(of_ranks: Sequence[Tiles]) -> tuple[Ints, Ints]:
    """Rows and columns of all tiles, rank after rank."""
    rows = np.concatenate([each.row_stop - each.row_start for each in of_ranks])
    return rows, np.concatenate([each.col_stop - each.col_start for each in of_ranks])


def _tile_seconds(plan: Plan, machine: Machine, sides: tuple[Ints, Ints], k: Ints) -> Floats:
    """Of tiles with these *sides*. A GPU computes a cut tile as a whole one."""
    rows, columns = sides
    if tiles.in_waves(machine):
        size = tile(plan.schedule["tile"])
        rows, columns = np.full_like(rows, size.m), np.full_like(columns, size.n)
    return tiles.tile_seconds(machine, plan.problem, rows, columns, k)


def _memory_seconds(plan: Plan, machine: Machine, steps: Ints, chosen: Ints, first: Ints) -> Floats:
    """Of each step, whose tiles begin at *first* among those *chosen*: its operands once and its results."""
    starts = np.concatenate([each.col_start for each in plan.tiles])[chosen]
    stops = np.concatenate([each.col_stop for each in plan.tiles])[chosen]
    heights = np.concatenate([each.row_stop - each.row_start for each in plan.tiles])[chosen]
    columns = np.maximum.reduceat(stops, first) - np.minimum.reduceat(starts, first)
    elements = np.add.reduceat(heights * (stops - starts), first)
    k = plan.k_stop[steps] - plan.k_start[steps]
    return tiles.memory_seconds(machine, plan.problem, elements / columns, columns, k)
