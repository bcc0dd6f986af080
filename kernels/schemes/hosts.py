"""Puts between hosts: which ranks are on a host, who sends a slice to another host, and who copies or spreads it there.

A slice is whole rows of a chunk. It lies contiguous at its sender, crosses by one put with a signal of its own, and
lands contiguous. Ranks of a host reach each other's memory, so one put carries what all of them have for its receiver:

- Results: for every rank of another host, the rank with the same place in this host collects the slice. The others
  store their columns into its staging buffer. The receiver copies what landed into its result.
- Operand rows: a rank puts its rows to the rank with the same place in every other host, which stores them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from kernels import plan as ranges
from kernels.fabric import Fabric, ranks_on_host
from kernels.machine import NETWORK, Machine
from kernels.operators.base import Flow
from kernels.plan import EVERYTHING, Ints, Kind, Planner, Pool, Ranges, Step
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Tile, Value, tile
from kernels.schemes import axis_rules, base
from kernels.schemes.base import Units

# Hosts of equally many ranks, in order.


@dataclass(frozen=True, slots=True)
class Hosts:
    """The ranks of *world* on hosts of *each* ranks."""

    world: int
    each: int

    @property
    def count(self) -> int:
        """Number of hosts."""
        return self.world // self.each

    def host(self, rank: Any) -> Any:
        """The host of *rank*: a number, or a column of numbers."""
        return rank // self.each

    def place(self, rank: Any) -> Any:
        """The place of *rank* in its host."""
        return rank % self.each

    def at(self, host: Any, place: Any) -> Any:
        """The rank at *place* in *host*."""
        return host * self.each + place

    def mates(self) -> Ints:
        """[rank, turn] the other ranks of its host, from the next place on."""
        rank = np.arange(self.world)[:, None]
        return np.asarray(self.at(self.host(rank), (self.place(rank) + np.arange(1, self.each)) % self.each))

    def others(self) -> Ints:
        """[rank, turn] the other hosts, from the next one on."""
        rank = np.arange(self.world)[:, None]
        return np.asarray((self.host(rank) + np.arange(1, self.count)) % self.count)


def hosts(problem: Problem, schedule: Schedule) -> Hosts:
    """The hosts between which *schedule* puts."""
    return Hosts(problem.world, schedule.count(axis_rules.PER_HOST))


def chunk_orders(problem: Problem, schedule: Schedule) -> Ints:
    """[rank, turn] the chunks in the order in which each rank computes them: those of other hosts first.

    Where operands come in it is the other way: own rows, those of the host, those of the host that sends here first.
    """
    of, receives = hosts(problem, schedule), base.operator_of(problem).flow is Flow.RECEIVE
    rank, chunk = np.indices((of.world, of.world))
    away, apart = of.host(chunk) - of.host(rank), of.place(chunk) - of.place(rank)
    if schedule[axis_rules.TILE_ORDER] == "natural":
        return chunk
    if schedule[axis_rules.TILE_ORDER] == "remote_first":
        near = np.where(away != 0, 2, chunk != rank)
        return np.lexsort((chunk, near if receives else -near), axis=1)
    if receives:
        return np.lexsort((-apart % of.each, -away % of.count), axis=1)
    before = np.where(away != 0, apart % of.each, (apart - 1) % of.each)
    return np.lexsort((before, (away - 1) % of.count), axis=1)


# The axes, and the rules.

SLICES = 8
"""About how many slices a chunk has where no file says what a put costs, as `fused.SLICES`."""
SLICES_MOST = 128
"""Most default slices of a chunk."""
PER_HOST_DOC = "How many ranks of a host share a put to another host; 1: every rank puts for itself."


def axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, Axis]:
    """The axes `transport` and `ranks_per_host`, with the values that *fabric* makes useful."""
    far = on_network(machine, fabric)
    several = far or fabric.hosts > 1
    doc = "Stores into peers' memory, or puts through the network card that the kernel starts (NCCL's device API)."
    on_each = ranks_on_host(fabric, machine, problem.world)
    shared = on_each if several and 1 < on_each < problem.world and problem.world % on_each == 0 else 1
    both = (axis_rules.PEER, axis_rules.GIN)
    offered = both[1:] if far else both if several else both[:1]
    return (
        Axis(axis_rules.TRANSPORT, offered, offered[0], doc, unoffered=tuple(v for v in both if v not in offered)),
        Axis(axis_rules.PER_HOST, (1, shared) if shared > 1 else (1,), shared, PER_HOST_DOC, open=True),
    )


def on_network(machine: Machine, fabric: Fabric) -> bool:
    """Whether ranks of *machine* are GPUs on several hosts, which reach each other by puts alone."""
    return fabric.across and machine.backend == "triton"


def refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    """Why *schedule* cannot put between hosts, or None."""
    if fabric.across and machine.backend == "cpu":
        return (
            f"{axis_rules.TRANSPORT} = {axis_rules.GIN} does not run on CPU ranks of several hosts, which have 0 "
            "network cards that a kernel can start. Accepted: fabric = emulated:hosts=2, where hosts are emulated."
        )
    return _uneven(problem, schedule, machine, fabric) or _partial_rows(problem, schedule)


def _uneven(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    """Why the ranks are not on hosts of as many as the schedule says, or None."""
    each, world = schedule.count(axis_rules.PER_HOST), problem.world
    if world % each:
        even = ", ".join(str(number) for number in range(1, world) if world % number == 0)
        return (
            f"{axis_rules.PER_HOST} = {each} does not divide {world} ranks: {world} / {each} is not whole. Accepted: "
            f"{even}, or a world that {each} divides."
        )
    if each == world:
        return (
            f"{axis_rules.PER_HOST} = {each} leaves 1 host for {world} ranks, and no put goes between fewer than 2. "
            f"Accepted: {axis_rules.PER_HOST} = 1, or {axis_rules.TRANSPORT} = {axis_rules.PEER}."
        )
    on_each = ranks_on_host(fabric, machine, world)
    if on_each % each:
        return (
            f"{axis_rules.PER_HOST} = {each} does not fit hosts of {on_each} ranks: {on_each} / {each} is not whole, "
            f"and ranks that share a put share memory. Accepted: a number that divides {on_each}."
        )
    return None


def _partial_rows(problem: Problem, schedule: Schedule) -> str | None:
    """Why slices are less than a row of tiles, or None."""
    least, tiles = tiles_across(problem, tile(schedule["tile"])), schedule.count("slice_tiles")
    if tiles >= least:
        return None
    return (
        f"slice_tiles = {tiles} is less than a row of tiles of {schedule['tile']}, which has {least}: {tiles} < "
        f"{least}, and a put carries whole rows. Accepted: slice_tiles = {least} or more, or a wider tile."
    )


def tiles_across(problem: Problem, size: Tile) -> int:
    """Number of tiles of *size* across all columns: the fewest of a slice."""
    return -(-base.operator_of(problem).extent(problem).columns // size.n)


def usual_slice(problem: Problem, machine: Machine, fabric: Fabric, size: Tile) -> int:
    """Default number of tiles of a slice: a power of two that covers whole rows of tiles.

    A rank's n puts to other hosts cost n o, where o is what a put costs without its bytes. The last one, or the first
    one that others wait for, takes 1/n of the wire's time T. The sum n o + T / n is least for n = (T / o) ** 0.5.
    """
    across, rows = tiles_across(problem, size), base.operator_of(problem).chunk_rows(problem)
    height = -(-rows // _number_of_slices(problem, machine, fabric) // size.m) * size.m
    wanted = base.above(across * max(1, height // size.m))
    most = base.num_tiles(problem, str(size))
    return min(wanted, max(2 ** (most.bit_length() - 1), base.above(across)))


def _number_of_slices(problem: Problem, machine: Machine, fabric: Fabric) -> int:
    """About how many slices a chunk should have: by the cost of a put on the machine's network, or else SLICES."""
    of = [dimension for dimension in machine.dimensions if dimension.link == NETWORK]
    if not on_network(machine, fabric) or not of or not of[0].message_seconds:
        return SLICES
    each = ranks_on_host(fabric, machine, problem.world)
    others = max(1, problem.world // each - 1)
    operator = base.operator_of(problem)
    num_bytes = operator.wire_bytes(problem) / max(1, problem.world - 1) * others
    num_bytes *= 1 if operator.flow is Flow.RECEIVE else each
    puts = sqrt(num_bytes / (of[0].bandwidth_bytes_per_second * of[0].message_seconds))
    return max(1, min(SLICES_MOST, round(puts / others)))


def dependent_defaults(problem: Problem, machine: Machine, fabric: Fabric, size: Value) -> dict[str, Value]:
    """The slice that goes with a tile where a schedule puts between hosts."""
    return {"slice_tiles": usual_slice(problem, machine, fabric, tile(size))}


# Results: collected inside a host, put, copied.


def deliver(planner: Planner, units: Units) -> None:
    """Adds steps that take every unit to the owner of its chunk, who copies what came from other hosts."""
    of, world = hosts(planner.problem, planner.schedule), planner.problem.world
    number = ranges.nth(units.rank * world + units.chunk)
    collector = of.at(of.host(units.rank), of.place(units.chunk))
    far = of.host(units.chunk) != of.host(units.rank)
    carries = far & (collector == units.rank)
    # [collector, place, chunk, number] the step after which a rank's part of a slice is with its collector
    there = np.full((world, of.each, world, int(number.max(initial=-1)) + 1), -1)
    carried = units.where(carries)
    there[carried.rank, of.place(carried.rank), carried.chunk, number[carries]] = carried.step
    near = units.where(far & ~carries)
    there[collector[far & ~carries], of.place(near.rank), near.chunk, number[far & ~carries]] = base.put_tiles(
        planner, near.rank, collector[far & ~carries], near.at, after=near.step[:, None], in_place=True
    )
    parts = there[carried.rank, :, carried.chunk, number[carries]]
    num_bytes = of.each * base.result_bytes(planner, carried.rank, carried.at)
    step = Step(carried.rank, Kind.PUT, Pool.LINK, carried.chunk, EVERYTHING, tiles=carried.at, num_bytes=num_bytes)
    puts = planner.add(step, parts)
    home = units.where(~far & (units.chunk != units.rank))
    base.put_tiles(planner, home.rank, home.chunk, home.at, after=home.step[:, None], in_place=True)
    _copy(planner, units, (carried, number[carries]), puts)


def _copy(planner: Planner, units: Units, sent: tuple[Units, Ints], puts: Ints) -> None:
    """Adds a copy of every slice that landed into the owner's result, which its kernel makes when all is computed."""
    world = planner.problem.world
    (came, number), stays = sent, units.chunk == units.rank
    kept = units.where(stays)
    # [owner, number] the range of the owner's tiles with the rows of the slice
    start, stop = (np.zeros((world, int(number.max(initial=-1)) + 1), dtype=np.int64) for _ in range(2))
    nth = ranges.nth(kept.rank)
    start[kept.rank, nth], stop[kept.rank, nth] = kept.start, kept.stop
    last = np.full(world, -1)
    np.maximum.at(last, units.rank, units.step)
    order = np.lexsort(((came.chunk - came.rank) % world, number, came.chunk))
    owner, source, which = came.chunk[order], came.rank[order], number[order]
    at: Ranges = (start[owner, which], stop[owner, which])
    num_bytes = 2 * hosts(planner.problem, planner.schedule).each * base.result_bytes(planner, owner, at)
    step = Step(owner, Kind.COPY, Pool.COMPUTE, source, tiles=at, num_bytes=num_bytes)
    planner.add(step, np.column_stack([puts[order], last[owner]]))


# Operand rows: put to every other host, and stored on to its ranks.


def spread(planner: Planner, rows: Sequence[tuple[int, int]]) -> Ints:
    """[rank, source, slice] the step after which that slice of the source's rows can be read on rank; -1: own rows."""
    of, world, (start, stop) = hosts(planner.problem, planner.schedule), planner.problem.world, np.array(rows).T
    arrived = np.full((world, world, len(rows)), -1)
    k = base.full_k(planner.problem)
    rank, number, turn = (each.ravel() for each in np.indices((world, len(rows), of.count - 1)))
    others = of.others() if planner.schedule[axis_rules.TILE_ORDER] == "rotated" else np.sort(of.others())
    peer = of.at(others[rank, turn], of.place(rank))
    if "num_warps" in dict(planner.schedule.axes):  # a GPU's kernel computes in order: what is used first leaves first
        used = np.argsort(chunk_orders(planner.problem, planner.schedule), axis=1)  # [rank, chunk] its turn there
        order = np.lexsort((number, used[peer, rank], rank))
        rank, number, peer = rank[order], number[order], peer[order]
    at = (start[number], stop[number])
    num_bytes = base.operand_bytes(planner.problem, at, k)
    step = Step(rank, Kind.PUT, Pool.LINK, peer, EVERYTHING, rows=at, k=k, num_bytes=num_bytes)
    puts = arrived[peer, rank, number] = planner.add(step)
    mates = of.mates()
    if not mates.size:
        return arrived
    here, slices, turn = np.indices((world, len(rows), of.each - 1))
    arrived[mates[here, turn], here, slices] = base.put_rows(planner, here, mates[here, turn],
                                                             ranges.some((start, stop), slices))  # fmt: skip
    via, which = peer[:, None], number[:, None]
    onward = base.put_rows(planner, np.repeat(via, of.each - 1, axis=1), mates[peer],
                           ranges.some((start, stop), np.repeat(which, of.each - 1, axis=1)),
                           after=puts[:, None, None])  # fmt: skip
    arrived[mates[peer], rank[:, None], which] = onward
    return arrived
