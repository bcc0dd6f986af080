"""Tiles that span the rows of all ranks: what lands, who pushes later columns, and the steps of a Plan.

A rank computes all rows together, as a rank alone would. Where rows come in, each tile waits for those of all ranks.
Programs that only push bring the later columns of the contraction, in ranges that grow, while others compute the
first ones: where a last wave leaves SMs without a tile, they cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from kernels.machine import Machine
from kernels.operators.base import Flow
from kernels.plan import Ints, Planner
from kernels.problem import Problem
from kernels.schedule import Schedule, Value, tile
from kernels.schemes import axis_rules, base, split_k
from kernels.schemes.base import TileOrder
from kernels.units import bytes_text

LANDED_MOST = 8 << 20
"""Most bytes that land in each of two halves: they are private to each trial."""
SHARES = (16, 4)
"""All programs push the first 1 / 16 of the contraction. Later columns come up to 1 / 4 first, and then the rest: each
range flies while the one before it is multiplied."""
LATER_MOST = len(SHARES)
"""Most ranges of later columns."""
RANGE_STEP = 512
"""A range ends at a multiple of it: of a step of any tile, and of a piece that is pushed."""
PUSHERS = 16
"""Default number of programs that only push. One shape gained 9 % with 8 or 16 (h200_nvl2_later_columns.jsonl)."""
MIDWAY_SECONDS = 4e-6
"""What a call loses because its tiles wait midway. With it estimates of what later columns bring are within 4 % of what
two H200s took in five shapes, but for 256 rows with 8 programs: 12 % too long (h200_nvl2_later_columns.jsonl)."""
LONG = 4096
"""Shortest contraction whose later columns are pushed apart by default."""
PUSHED_FROM = 3 << 20
"""Fewest bytes that come in from which they are the default. Fewer are there before a tile could go on with them."""
PAIR = 2
"""Most ranks with programs that only push by default: with more it was not measured."""


def landed_bytes(problem: Problem) -> int:
    """Bytes of what lands on a rank in a call whose tiles span ranks."""
    rows, columns = axis_rules.landed(problem)
    return rows * columns * problem.itemsize


def limits(problem: Problem, schedule: Schedule) -> tuple[int, ...]:
    """Where ranges of the contraction begin and end: all programs push the first one; all of it where none only pushes.

    Contractions of less than 8 * RANGE_STEP columns have fewer later ranges than LATER_MOST.
    """
    contraction = base.operator_of(problem).extent(problem).contraction
    between = limits_of(contraction) if pushers(problem, schedule) else ()
    return tuple(sorted({0, contraction, *map(int, between)}))


def limits_of(contraction: Any) -> tuple[Any, ...]:
    """Ends of all ranges but the last of a *contraction*, a number or a column, where some programs only push.

    Where it is short, ranges are empty.
    """
    return tuple(
        np.minimum(contraction, np.maximum(RANGE_STEP, contraction // share // RANGE_STEP * RANGE_STEP))
        for share in SHARES
    )


def later_ranges(problem: Problem, schedule: Schedule) -> int:
    """Number of ranges of the contraction that come by programs that only push."""
    return len(limits(problem, schedule)) - 2


def pushers(problem: Problem, schedule: Schedule) -> int:
    """Programs of *schedule* that only push; 0 where all push, and results leave."""
    receives = base.operator_of(problem).flow is Flow.RECEIVE
    return int(schedule.get(axis_rules.COMM_SMS, 0) or 0) if receives and axis_rules.spans_ranks(schedule) else 0


def usual_pushers(problem: Problem, machine: Machine, values: Mapping[str, Value]) -> int:
    """Default number of programs that only push: two ranks with many bytes take PUSHERS if others need one wave."""
    contraction, slots = base.operator_of(problem).extent(problem).contraction, machine.device.slots
    split = values.get(axis_rules.SPLIT_K, axis_rules.WHOLE)
    if "tile" not in values or split != axis_rules.WHOLE or values.get("grid") or contraction < LONG:
        return 0
    if problem.world > PAIR or landed_bytes(problem) // problem.world * (problem.world - 1) < PUSHED_FROM:
        return 0
    return PUSHERS if base.num_tiles(base.whole(problem), str(values["tile"])) <= slots - PUSHERS else 0


def refusal(problem: Problem, schedule: Schedule) -> str | None:
    """Why tiles of *schedule* cannot span ranks, or None."""
    num_bytes = landed_bytes(problem)
    if num_bytes <= LANDED_MOST:
        return _no_pushers(problem, schedule)
    return (
        f"tile_order = {axis_rules.SPANNING} keeps what ranks send each other in two halves, which alternate by call, "
        f"and each would have {bytes_text(num_bytes)}: more than {bytes_text(LANDED_MOST)}. Tiles wait for all ranks, "
        "so many rows gain nothing by it. Accepted: another tile_order, or fewer rows."
    )


def no_packets(problem: Problem, schedule: Schedule) -> str | None:
    """Why the sums of *schedule* do not leave in packets, or None: tiles span ranks, bytes are few, tiles not too."""
    setting, others = f"store = {axis_rules.PACKETS}", f"another value of store, or tile_order = {axis_rules.SPANNING}"
    if not axis_rules.are_few(problem):
        come = int(axis_rules.incoming_bytes(problem))
        return (
            f"{setting} doubles the {bytes_text(come)} that come in from all peers in a shot: more than "
            f"{bytes_text(axis_rules.PACKETS_MOST)}, the most that packets are for. Accepted: store = "
            f"{axis_rules.REGISTERS}, or fewer rows or columns."
        )
    if not axis_rules.spans_ranks(schedule):
        return (
            f"{setting} does not go with tile_order = {schedule['tile_order']}: sums are taken from packets where "
            f"tiles span the rows of all ranks, and such tiles have those of 1. Accepted: {others}."
        )
    size, threads = tile(schedule["tile"]), 32 * schedule.count("num_warps")
    packets = axis_rules.packets_of(size.m, size.n, problem.itemsize)
    if packets < threads:
        return (
            f"{setting} needs a packet of a tile for each thread, so that none has a copy of another's and leaves a "
            f"wait before it: tile = {schedule['tile']} has {packets} packets, and {packets} < {threads}. Accepted: a "
            "larger tile, or fewer num_warps."
        )
    return None


def _no_pushers(problem: Problem, schedule: Schedule) -> str | None:
    """Why no program of *schedule* only pushes, or None: all tiles have to be whole, and k long enough."""
    count = pushers(problem, schedule)
    if not count:
        return None
    setting, split = f"{axis_rules.COMM_SMS} = {count}", schedule.get(axis_rules.SPLIT_K, axis_rules.WHOLE)
    contraction, step = base.operator_of(problem).extent(problem).contraction, tile(schedule["tile"]).k
    if split != axis_rules.WHOLE:
        if (reason := split_k.refusal(problem, schedule)) is not None:
            return reason
        cut = split_k.of(problem, schedule)
        assert cut is not None
        return (
            f"{setting} does not go with {axis_rules.SPLIT_K} = {split}: the cut makes {len(cut.tile)} units for "
            f"{cut.programs} programs, which multiply all columns of the contraction at once, and later ones would "
            f"not be there. Accepted: {axis_rules.COMM_SMS} = 0, or {axis_rules.SPLIT_K} = {axis_rules.WHOLE}."
        )
    if uneven := [int(limit) for limit in limits_of(contraction) if limit % step]:
        return (
            f"{setting} does not go with tile = {schedule['tile']}: a range of the columns that come in ends at "
            f"{uneven[0]}, which is no multiple of its step: {uneven[0]} % {step} != 0. Accepted: "
            f"{axis_rules.COMM_SMS} = 0, or a tile with a step that divides {uneven[0]}."
        )
    if contraction <= RANGE_STEP:
        return (
            f"{setting} has nothing to push: all programs push the first {RANGE_STEP} columns of the contraction, and "
            f"k = {contraction} <= {RANGE_STEP}. Accepted: {axis_rules.COMM_SMS} = 0, or a longer contraction."
        )
    return None


def gather(planner: Planner, order: TileOrder) -> None:
    """Adds steps that bring each rank's rows to all, its own too, and then compute tiles that span them.

    Where some programs only push, a range of the contraction is computed while the next one is on its way.
    """
    problem, schedule = planner.problem, planner.schedule
    ranks = np.arange(problem.world)
    source = ranks[:, None]
    cut = split_k.of(problem, schedule)
    order = order if cut is None else order.after(cut.count)
    before = np.empty((problem.world, len(order.bounds) - 1, 0), dtype=np.int64)
    for k in pairwise(limits(problem, schedule)):
        arrived = _spread(planner, k)
        if cut is not None:  # then there is one range: `_no_pushers`
            for rank in ranks:
                split_k.compute(planner, cut, int(rank), arrived[rank])
        here = np.broadcast_to(arrived[:, None, :], (*before.shape[:2], problem.world))
        step = base.compute(planner, source, order.ranges, after=np.concatenate([before, here], axis=-1), k=k)
        before = step[..., None]


def _spread(planner: Planner, k: tuple[int, int]) -> Ints:
    """[rank, source] the step that brings columns *k* of the source's rows to rank."""
    problem = planner.problem
    ranks, rows = np.arange(problem.world), (0, base.operator_of(problem).chunk_rows(problem))
    peers = base.peers_of(problem.world)
    arrived = np.empty((problem.world, problem.world), dtype=np.int64)
    arrived[peers, ranks[:, None]] = base.put_rows(planner, ranks[:, None], peers, rows, k=k)
    arrived[ranks, ranks] = base.unstage(planner, ranks, ranks, rows, k, after=())
    return arrived


def scatter(planner: Planner, order: TileOrder) -> None:
    """Adds steps that compute slices of tiles that span ranks, send each owner its rows, and add those of all ranks.

    Nothing is added where the operator does not reduce. In one shot every rank owns all rows. Else an all-reduce's sums
    leave for all ranks.
    """
    problem, one_shot = planner.problem, axis_rules.spans_in_one_shot(planner.problem)
    world, cut = problem.world, split_k.of(problem, planner.schedule)
    added = np.empty((world, 0), dtype=np.int64)
    if cut is not None:
        added, order = np.stack([split_k.compute(planner, cut, rank) for rank in range(world)]), order.singly(cut.count)
    (start, stop), held, whole = order.ranges, _elements_by_owner(planner, order), added.shape[1]
    computed = base.compute(planner, np.arange(world)[:, None], (start[whole:], stop[whole:]))
    computed = np.concatenate([added, computed], axis=1)
    rank, number, turn = (each.ravel() for each in np.indices((world, len(start), world - 1)))
    peer = base.peers_of(world)[rank, turn]
    rank, number, peer = (each[held[peer, number] > 0] for each in (rank, number, peer))
    parts = np.empty((world, world, len(start)), dtype=np.int64)
    parts[np.arange(world), np.arange(world)] = computed
    parts[peer, rank, number] = base.put_elements(planner, rank, peer, (start[number], stop[number]),
                                                  held[peer, number], after=computed[rank, number, None])  # fmt: skip
    if not base.operator_of(problem).reduces:
        return
    owner, number = np.nonzero(held > 0)
    start, stop = start[number], stop[number]
    total = base.reduce(planner, owner, (start, stop), after=parts[owner, :, number], elements=held[owner, number])
    if base.operator_of(problem).flow is Flow.BROADCAST and not one_shot:
        peers, at = base.peers_of(world)[owner], (start[:, None], stop[:, None])
        base.put_elements(planner, owner[:, None], peers, at, held[owner, number][:, None],
                          after=total[:, None, None])  # fmt: skip


def _elements_by_owner(planner: Planner, order: TileOrder) -> Ints:
    """[owner, slice] elements of each slice in rows of each owner; in one shot every rank owns all."""
    problem, tiles = planner.problem, order.tiles[0]
    height, owners = base.operator_of(problem).chunk_rows(problem), np.arange(problem.world)[:, None]
    first, last = owners * height, (owners + 1) * height
    if axis_rules.spans_in_one_shot(problem):
        first, last = np.zeros_like(owners), np.full_like(owners, problem.world * height)
    rows = np.maximum(0, np.minimum(tiles.row_stop, last) - np.maximum(tiles.row_start, first))
    summed = np.cumsum(rows * (tiles.col_stop - tiles.col_start), axis=1)
    return np.diff(np.pad(summed, ((0, 0), (1, 0)))[:, order.bounds], axis=1)
