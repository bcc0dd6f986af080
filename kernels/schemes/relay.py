"""SMs that only send: how many bring the tiles of a fused GEMM to peers, when they cannot, and the steps of a Plan.

Others compute and put a peer's tiles aside. Where a last wave has fewer tiles than the GPU has SMs, some can be spared
for nothing. With more of them the others need another wave.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.machine import Machine
from kernels.operators.base import Flow
from kernels.plan import Ints, Planner, Ranges, some
from kernels.problem import Problem
from kernels.schedule import Schedule, Value, tile
from kernels.schemes import axis_rules, base, gemm_block

SMS = (4, 8, 16, 32)
"""Numbers of SMs that only communicate."""
RANKS_MOST = 2
"""Most ranks with SMs that only send by default: with more it was not measured."""
BYTES_PER_SECOND = 3.1e10
"""What such an SM brings to a peer while others compute: four did on H200s (docs/kernels.md)."""
PEAK_SHARE = 0.8
"""Share of the peak of its tensor cores that a GPU reaches with large tiles."""
WARPS = 8
"""All threads of a block send, so blocks of half as many warps send half as much."""
STORE = "tma"
"""The value of the axis `store` with which tiles are put aside."""


def usual_sms(problem: Problem, machine: Machine, values: Mapping[str, Value]) -> int:
    """Default number of SMs that only send results: as few as keep up, if the others then need no more waves.

    What they bring waits for the first wave, and the last wave of an all-reduce leaves without them.
    """
    if axis_rules.COMM_SMS in values:
        return int(values[axis_rules.COMM_SMS])
    if (block := gemm_block.usual(problem, machine)) is None:
        return 0
    if "tile" in values:
        block = gemm_block.of_size(problem, tile(values["tile"]), machine)
    operator, slots = base.operator_of(problem), machine.device.slots
    tiles, num_bytes = base.num_tiles(problem, str(block.tile)), operator.wire_bytes(problem)
    waves = -(-tiles // slots)
    peak = machine.device.matrix_flops_per_second.get(problem.dtype, float("inf"))
    excluded = problem.world > RANKS_MOST or int(values.get("num_warps", block.warps)) < WARPS or waves == 1
    if excluded or values.get("grid") or values.get("store", STORE) != STORE:
        return 0
    if operator.flow is Flow.BROADCAST:
        num_bytes -= num_bytes * slots // tiles
    seconds = operator.flops(problem) / (PEAK_SHARE * peak) * (waves - 1) / waves
    if num_bytes > seconds * machine.dimensions[0].bandwidth_bytes_per_second:
        return 0
    for count in (each for each in SMS if each < slots):
        if num_bytes <= count * BYTES_PER_SECOND * seconds and -(-tiles // (slots - count)) == waves:
            return count
    return 0


def refusal(schedule: Schedule, machine: Machine) -> str | None:
    """Why SMs that only send cannot bring results to peers, or None: peers' tiles come first, put aside in bulk."""
    request = f"{axis_rules.COMM_SMS} = {schedule[axis_rules.COMM_SMS]}"
    orders = " or ".join(axis_rules.RELAYED)
    if schedule["tile_order"] not in axis_rules.RELAYED:
        return (
            f"{request} does not go with tile_order = {schedule['tile_order']}: SMs that only send have the whole call "
            f"for what they bring if all tiles of peers come first. Accepted: tile_order = {orders}, or "
            f"{axis_rules.COMM_SMS} = 0."
        )
    grid, slots = schedule.count("grid"), machine.device.slots
    if grid > slots:
        return (
            f"{request} does not go with grid = {grid}: an SM that only sends has one block, and so have the others of "
            f"{machine.name}, which has {slots} SMs: {grid} > {slots}. Accepted: grid = {slots} or 0, or "
            f"{axis_rules.COMM_SMS} = 0."
        )
    if schedule.get("store") == STORE:
        return None
    return (
        f"{request} does not go with store = {schedule['store']}: the bulk copy engine puts tiles aside, and with "
        f"threads' stores 0 SMs can send for others. Accepted: store = {STORE}, or {axis_rules.COMM_SMS} = 0."
    )


def add_steps(planner: Planner, computed: Ints, chunk: Ints, ranges: Ranges) -> None:
    """Adds steps in which SMs that only send put each *computed* slice of a peer where it belongs.

    Of two ranks each then adds its own slices onto those that came, and in a broadcast the sums leave as well.
    """
    operator, world = base.operator_of(planner.problem), planner.problem.world
    stays = chunk == np.arange(world)[:, None]
    rank, at = np.nonzero(~stays)
    sent = base.put_tiles(planner, rank, chunk[~stays], some(ranges, at),
                          after=computed[~stays, None], in_place=True)  # fmt: skip
    planner.follow(sent, computed[~stays])
    if not operator.reduces:
        return
    (rank, at), came = np.nonzero(stays), sent.reshape(world, -1)[::-1].ravel()
    added_tiles = some(ranges, at)
    added = base.add(planner, rank, added_tiles, after=np.stack([computed[stays], came], axis=-1))
    if operator.flow is Flow.BROADCAST:
        planner.follow(base.put_tiles(planner, rank, 1 - rank, added_tiles, after=added[:, None], in_place=True), added)
