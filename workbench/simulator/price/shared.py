"""Prices kernels of two streams that share the SMs of a GPU: which hold SMs, in how many blocks, for how long.

A kernel that waits for one of its own stream begins before a kernel of another stream that waits for the same one. So a
collective finds the next computation on all SMs, which keeps them to its end. Blocks of a GEMM that find SMs taken
begin when these are free: blocks of cuBLAS then take remaining tiles, ours compute their own.
HBM and L2 are not divided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import Fabric
from kernels.machine import LIMITED, Machine
from kernels.occupancy import NCCL, BlockResources, blocks_alongside, gemm_block, limits_of, padding, resident_blocks
from kernels.operators import operator
from kernels.plan import EVERYTHING, Kind, Plan, Pool, nth
from kernels.problem import Problem
from kernels.schedule import Refusal, Tile, tile
from kernels.schemes import axis_rules, fused, library
from workbench.simulator.price import tiles
from workbench.simulator.price.collectives import few_blocks_slowdown, usual_blocks
from workbench.simulator.price.costs import Grids, StepCosts
from workbench.simulator.price.messages import hidden_launch_seconds, put_byte_seconds
from workbench.simulator.price.rates import copy_seconds, step_overhead

# Blocks of kernels that share the SMs of a GPU, and seconds of each block for a tile.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FILLS = ("direct",)
"""Values of `collective` whose kernel has enough blocks for every SM, unless the schedule sets a number of SMs."""
ROUNDS = 8
"""Blocks of a sum or a copy, of our puts, or of a library's GEMV, for each SM: they are short, and leave SMs often."""


@dataclass(frozen=True, slots=True)
class GridBlocks:
    """Blocks of one kernel: the fields of Grids, as numbers or columns."""

    blocks: Any
    tiles: Any
    resident: Any
    tile_seconds: Any
    alone_seconds: Any
    is_pooled: bool = False
    shared_seconds: Any = 0.0

    def longer_by(self, seconds: Any) -> GridBlocks:
        """These blocks if another kernel holds all units for *seconds* of their time."""
        of_tile, floor = seconds / -(-self.tiles // self.blocks), np.asarray(self.shared_seconds)
        return replace(self, tile_seconds=self.tile_seconds + of_tile, alone_seconds=self.alone_seconds + of_tile,
                       shared_seconds=floor + seconds * (floor > 0))  # fmt: skip

    @property
    def waits_for_memory(self) -> Any:
        """Whether what all blocks share takes longer than their tiles."""
        return self.shared_seconds > self.tile_seconds * -(-self.tiles // self.blocks)

    @property
    def seconds(self) -> Floats:
        """Seconds of all blocks if they get the units that they request."""
        each = self.tile_seconds * -(-self.tiles // self.blocks)
        return np.asarray(np.maximum(each, self.shared_seconds))


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation and its tiles, as numbers or columns."""

    sizes: Problem
    tile: tuple[Any, Any]
    """Rows and columns of a tile."""
    num_tiles: Any
    resident: Any
    """Blocks that an SM holds."""
    in_flight: Any
    """Bytes that each block has in flight; 0: unknown."""
    seconds: Any
    """Seconds on all SMs, by the rule of other schemes: for kernels of which no more is known."""
    comm_sms: Any
    """Number of SMs that it leaves free."""


def simple(count: Any, seconds: Any) -> GridBlocks:
    """Blocks that have a unit and a tile each."""
    return GridBlocks(count, count, np.ones_like(count), seconds, seconds)


def sending(machine: Machine, name: str, collective: Any, comm_sms: Any) -> Ints:
    """Blocks of the kernel of collective *name*, which hold an SM each: *comm_sms*, or its usual number.

    *collective*: the value of the schedule's axis. *comm_sms* may be a column.
    """
    usual = machine.device.slots if collective in FILLS else machine.costs.send_blocks
    by_library = collective in library.CALLS
    if by_library:
        usual = usual_blocks(machine, name)
    limit = np.asarray(comm_sms)
    most = np.where(limit > 0, limit, max(1, usual))
    if by_library and name == "all_to_all":  # its channels are a power of two
        most = np.where(limit > 0, 2 ** np.floor(np.log2(np.maximum(1, limit))), most).astype(np.int64)
    return np.asarray(most if collective in FILLS else np.minimum(most, max(1, usual)))


def of_call(machine: Machine, one: Computation) -> GridBlocks:
    """Blocks of a library GEMM: persistent blocks, each of which takes the next tile when it is done with one.

    So others take the tiles of blocks that find no SM, and blocks without a remaining tile release theirs.
    """
    left = machine.device.slots - np.asarray(one.comm_sms)
    if operator(one.sizes.operator).work != "gemm":
        called, count = tiles.library_parts(machine, one.sizes)[1], ROUNDS * left
        return GridBlocks(left, count, np.ones_like(left), 0.0 * called, 0.0 * called, True, called)
    count, seconds = tiles.library_tiles(machine, one.sizes, left)
    memory = tiles.library_parts(machine, one.sizes)[1]
    blocks = np.minimum(left, count)
    return GridBlocks(blocks, count, np.ones_like(left), seconds, seconds, True, memory)


def of_ours(machine: Machine, one: Computation) -> GridBlocks:
    """Blocks of our kernel: persistent blocks, whose tiles are assigned beforehand."""
    left = machine.device.slots - np.asarray(one.comm_sms)
    blocks = np.minimum(one.num_tiles, left * one.resident)
    # with SMs set aside, each remaining SM gets equally many blocks if there are more blocks than SMs
    blocks = np.where((np.asarray(one.comm_sms) > 0) & (blocks > left), blocks - blocks % left, blocks)
    waves = -(-one.num_tiles // blocks)
    alike = one.seconds / waves
    if operator(one.sizes.operator).work != "gemm" or not machine.device.loads_in_flight:
        return GridBlocks(blocks, one.num_tiles, one.resident, alike, alike)
    read = _read_seconds(machine, one.sizes) / waves
    together, alone = (np.maximum(computed, loaded + read) for computed, loaded in
                       (_tile_seconds(machine, one, held) for held in (one.resident, 1)))  # fmt: skip
    known = (np.asarray(one.in_flight) > 0) & (one.num_tiles >= machine.device.slots)  # else SMs wait for no others
    return GridBlocks(
        blocks, one.num_tiles, one.resident, np.where(known, together, alike), np.where(known, alone, alike)
    )


def _tile_seconds(machine: Machine, one: Computation, resident: Any) -> tuple[Floats, Floats]:
    """Seconds to compute a tile of one of *resident* blocks on an SM, and to load its operands from the L2.

    The end of a tile overlaps with the other blocks' work. More bytes in flight give a higher load throughput.
    """
    contraction, fixed = operator(one.sizes.operator).extent(one.sizes).contraction, machine.costs.tile_seconds
    computed = tiles.tile_seconds(machine, one.sizes, *one.tile, contraction) - fixed
    loaded = sum(one.tile) * contraction * one.sizes.itemsize / load_speed(machine, one.in_flight * resident)
    return np.asarray(fixed + resident * computed), np.asarray(fixed + resident * loaded)


def _read_seconds(machine: Machine, sizes: Problem) -> Floats:
    """Seconds in which memory delivers each operand once: SMs that wait for loads wait for this as well."""
    extent = operator(sizes.operator).extent(sizes)
    num_bytes = (extent.rows + extent.columns) * extent.contraction * sizes.itemsize
    return np.asarray(machine.costs.cold_seconds + num_bytes / machine.device.memory_bytes_per_second)


def load_speed(machine: Machine, in_flight: Any) -> Floats:
    """Bytes per second that an SM loads with *in_flight* bytes: lines over both logarithms, flat beyond the largest.

    Below the smallest measured number, proportional to *in_flight*.
    """
    known = sorted((float(num_bytes), speed) for num_bytes, speed in machine.device.loads_in_flight.items())
    sizes, speeds = np.array(known).T
    in_flight_bytes = np.maximum(1.0, np.asarray(in_flight, dtype=float))
    inside = np.exp(np.interp(np.log(in_flight_bytes), np.log(sizes), np.log(speeds)))
    return np.asarray(inside * np.minimum(1.0, in_flight_bytes / sizes[0]))


# How many blocks of our GEMM an SM holds, and whether blocks of a library's collective fit next to them.


class FreeResources(NamedTuple):
    """Room that a computation leaves on one SM."""

    resident: int
    """Blocks of the computation that the SM holds."""
    has_more: bool
    """Whether a block of the library's collective fits next to them, without waiting."""
    is_call: bool = False
    """Whether the computation is a library call."""
    in_flight: int = 0
    """Bytes of operands that a block of our GEMM has in flight while it computes; 0: unknown."""


def room(machine: Machine, problem: Problem, kernel: object, size: Tile, resident: int) -> FreeResources:
    """Room that a computation with tiles of *size* leaves if *resident* of its blocks share an SM, 0: as many as fit.

    Padding limits the blocks of our GEMM to that number. Collectives wait for other kernels, and if the machine's file
    lacks the limits of an SM. *kernel*: value of the schedule's axis.
    """
    work = operator(problem.operator).work
    if tiles.library_seconds(machine, problem, kernel) is not None:
        return FreeResources(1, False, is_call=True)
    if not machine.device.limits or work != "gemm":
        return FreeResources(resident or int(tiles.resident_blocks(machine, work)), False)
    limits, usual = limits_of(machine), fused.alone(problem, str(size))
    block = gemm_block(size, problem.itemsize, int(usual["num_stages"]), int(usual["num_warps"]),
                       architecture=machine.device.architecture)  # fmt: skip
    most = max(1, resident_blocks(limits, block.shared_bytes, block.registers, block.threads))
    held = min(resident or most, most)
    if held < most:
        try:
            more = padding(limits, block, held).fewest
        except Refusal:  # no padding makes exactly so many
            more = 0
        block = BlockResources(block.shared_bytes + more, block.registers, block.threads)
    in_flight_bytes = (int(usual["num_stages"]) - 1) * (size.m + size.n) * size.k * problem.itemsize
    return FreeResources(held, blocks_alongside(limits, block, held, NCCL) > 0, in_flight=in_flight_bytes)


# Kernels of two streams on a GPU.

SHOTS = ("one_shot", "two_shot")
"""Values of `collective` that are one kernel of torch from their first put to their last."""
PACKED = 2
"""Blocks of torch's shots, of 1,024 threads, that an SM holds. They are assumed to be as fast as with an SM each."""
FEW = 8
"""SMs on which puts wait for the SMs, not for the link."""


def are_dealt(plan: Plan, machine: Machine) -> bool:
    """Whether kernels of several problems, in one call, share the SMs of a GPU."""
    return machine.device.kind == "gpu" and bool(plan.launches.micro_batch.any())


def dealt(plan: Plan, machine: Machine, fabric: Fabric, costs: StepCosts) -> StepCosts:
    """*costs* of *plan*, from seconds of kernels alone to grids of blocks, which take SMs as these become free.

    Meetings of ranks are paid by each problem's collective, on its stream.
    """
    grids = _GridColumns(plan, machine, costs)
    grids.computation()
    grids.collectives(fabric)
    grids.puts(fabric)
    grids.sums()
    return grids.costs()


def crossing_seconds(machine: Machine) -> float:
    """Seconds from a kernel's end to the start of a waiting kernel on another stream; longer than on its own."""
    launch = step_overhead(machine, one_kernel=False)
    return launch + max(machine.costs.stream_seconds, launch)


def wanted_by_both(machine: Machine, computing: Any, sending: Any) -> Ints:
    """Number of SMs that both a computation and a collective want, as numbers or columns."""
    return np.clip(np.asarray(computing) + sending - machine.device.slots, 0, sending)


def slower_call(machine: Machine, sizes: Problem, fabric: Fabric, num_bytes: Any, comm_sms: Any) -> Floats:
    """How many times as long a library call takes with *comm_sms* SMs as with its usual number (0).

    As measured with few channels, or else as our puts on equally few SMs. *num_bytes* leave each rank.
    """
    name = operator(sizes.operator).collective
    comm_sms = np.where(np.asarray(comm_sms) > 0, sending(machine, name, "library", comm_sms), 0)
    measured = few_blocks_slowdown(machine, name, sizes.world, num_bytes, comm_sms)
    if measured is not None:
        return measured
    usual = put_byte_seconds(sizes, machine, fabric, {"comm_sms": machine.costs.send_blocks})
    if usual is None:
        return np.ones(np.shape(comm_sms))
    on_these = put_byte_seconds(sizes, machine, fabric, {"comm_sms": np.asarray(comm_sms)})
    assert on_these is not None
    return np.where(np.asarray(comm_sms) > 0, np.maximum(1.0, on_these / usual), 1.0)


def call_blocks(machine: Machine, sizes: Problem, num_bytes: Any, comm_sms: Any, seconds: Any) -> GridBlocks:
    """Blocks of a library call that takes *seconds* if each block has an SM.

    The fewest measured blocks are bound by their SMs; more blocks are bound by the link.
    """
    name = operator(sizes.operator).collective
    count = sending(machine, name, "library", comm_sms)
    few = few_blocks_slowdown(machine, name, sizes.world, num_bytes, LIMITED[0])
    usual = few_blocks_slowdown(machine, name, sizes.world, num_bytes, count)
    if few is None or usual is None:
        return simple(count, seconds)
    of_one = np.minimum(seconds, seconds * few / usual * LIMITED[0] / count)
    return GridBlocks(count, count, np.ones_like(count), of_one, of_one, True, seconds)


def room_for(machine: Machine, blocks: Any, comm_sms: int) -> Any:
    """SMs that must be free for a library's call to begin. With a share of the SMs its blocks come one by one."""
    clustered = np.ceil(blocks * machine.costs.cluster_room).astype(np.int64)
    return np.ones_like(clustered) if comm_sms else np.minimum(clustered, machine.device.slots)


def computation_slowdown(machine: Machine, world: int, one: GridBlocks) -> Any:
    """How many times as long a computation takes while bytes are sent to peers, if there are any."""
    costs = machine.costs
    return np.where(one.waits_for_memory, costs.streaming_beside, costs.computing_beside) if world > 1 else 1.0


def collective_slowdown(machine: Machine, collective: object, comm_sms: Any, one: GridBlocks) -> Any:
    """How many times as long a collective takes during computation *one*.

    It is slower if it has a share of the SMs while the others compute, and if the computation waits for memory.
    """
    slowed = collective in (*library.CALLS, *FILLS)
    by_clock = np.where(np.asarray(comm_sms) > 0, machine.costs.sending_beside if slowed else 1.0, 1.0)
    return np.where(one.waits_for_memory, np.maximum(by_clock, machine.costs.streaming_beside), by_clock)


def own_share_copy_seconds(machine: Machine, sizes: Problem, num_bytes: Any) -> Floats:
    """Seconds in which all SMs copy a rank's own share of *num_bytes*, while copy engines move the others.

    CUDA copies inside one GPU by a kernel. What is summed is not copied.
    """
    if operator(sizes.operator).reduces:
        return np.zeros(np.shape(num_bytes))
    return copy_seconds(machine, sizes.dtype, num_bytes)


def put_blocks(machine: Machine, sizes: Problem, fabric: Fabric, collective: object, comm_sms: int,
               seconds: float) -> GridBlocks:  # fmt: skip
    """Blocks of our puts or of a shot, whose bytes are on their links for *seconds* altogether.

    Puts of all SMs have many short blocks; on few SMs they have the speed of few, and are never faster than links.
    """
    name = operator(sizes.operator).collective
    count = sending(machine, name, collective, comm_sms)
    few = put_byte_seconds(sizes, machine, fabric, {"comm_sms": FEW})
    every = put_byte_seconds(sizes, machine, fabric, {})
    if collective not in FILLS:
        return GridBlocks(count, count, PACKED, seconds, seconds)
    if comm_sms or few is None or every is None:
        return simple(count, seconds)
    number = ROUNDS * count
    of_one = seconds * (few / every) * FEW / number
    return GridBlocks(count, number, 1, of_one, of_one, True, seconds)


class _GridColumns:
    """Columns of Grids while they are filled in, kind by kind."""

    def __init__(self, plan: Plan, machine: Machine, costs: StepCosts) -> None:
        self._plan, self._machine, self._given = plan, machine, costs
        self._comm_sms, padded_to = (int(plan.schedule.get(name) or 0) for name in ("comm_sms", axis_rules.RESIDENT))
        self._room = room(
            machine, plan.problem, plan.schedule.get(axis_rules.KERNEL), tile(plan.schedule["tile"]), padded_to
        )
        self._pool, self._share = costs.pool.copy(), costs.share.copy()
        self._issue, self._overlap, self._transit = costs.issue.copy(), costs.overlap.copy(), costs.transit.copy()
        none = np.zeros(len(plan), dtype=np.int64)
        self._blocks, self._tiles, self._resident = none.copy(), none.copy(), none + 1
        self._seconds, self._alone, self._shared = np.zeros((3, len(plan)))
        self._room_for = none + 1
        self._packs = np.zeros(len(plan), dtype=np.bool_)
        self._is_pooled, self._slowdown = np.zeros(len(plan), dtype=np.bool_), np.ones(len(plan))
        self._lead, self._slower = step_overhead(machine, one_kernel=False), 1.0

    def computation(self) -> None:
        plan = self._plan
        steps, size = np.flatnonzero(plan.kind == Kind.COMPUTE), tile(plan.schedule["tile"])
        one = Computation(
            sizes=plan.problem, tile=(size.m, size.n), num_tiles=(plan.tile_stop - plan.tile_start)[steps],
            resident=self._room.resident, in_flight=self._room.in_flight, seconds=self._issue[steps] - self._lead,
            comm_sms=self._comm_sms,
        )  # fmt: skip
        if not len(steps):
            return
        blocks = (of_call if self._room.is_call else of_ours)(self._machine, one)
        by_engine = np.flatnonzero((plan.kind == Kind.PUT) & (plan.pool == Pool.COPY_ENGINE))
        if len(by_engine):
            blocks = blocks.longer_by(own_share_copy_seconds(self._machine, plan.problem, plan.num_bytes[by_engine[0]]))
        self._grid(steps, blocks, 0.0)
        self._slowdown[steps] = computation_slowdown(self._machine, plan.problem.world, blocks)
        slower = collective_slowdown(self._machine, plan.schedule.get("collective"), self._comm_sms, blocks)
        self._slower = float(np.max(slower))

    def collectives(self, fabric: Fabric) -> None:
        """Prices library calls as grids, unless they fit on SMs next to the computation."""
        plan = self._plan
        steps = np.flatnonzero(plan.kind == Kind.COLLECTIVE)
        num_bytes, sms = plan.num_bytes[steps], self._comm_sms
        self._issue[steps] *= slower_call(self._machine, plan.problem, fabric, num_bytes, sms)
        if not self._room.has_more:
            one = call_blocks(self._machine, plan.problem, num_bytes, sms, self._issue[steps])
            self._grid(steps, one, 0.0)
            self._slowdown[steps] = self._slower
            self._room_for[steps] = room_for(self._machine, one.blocks, self._comm_sms)

    def puts(self, fabric: Fabric) -> None:
        """Prices puts: blocks hold SMs while any byte of their kernel is in flight; copy engines hold none."""
        plan = self._plan
        moves = plan.kind == Kind.PUT
        first = np.flatnonzero(moves)[nth(plan.launch[moves]) == 0]
        self._issue[first] += self._given.start_seconds
        by_engine = plan.pool == Pool.COPY_ENGINE
        self._issue[moves & by_engine] += hidden_launch_seconds(self._machine)  # ranks meet between problems
        self._issue[moves & by_engine] *= self._slower
        collective = plan.schedule.get("collective")
        for steps in self._kernels(np.flatnonzero(moves & ~by_engine)):
            seconds = self._on_the_way(steps)
            if collective in SHOTS:
                seconds += self._rest_of_shot(steps)
            if seconds:
                self._put(steps, put_blocks(self._machine, plan.problem, fabric, collective, self._comm_sms, seconds))
            self._overlap[steps] = seconds

    def _put(self, steps: Ints, one: GridBlocks) -> None:
        """Each of *steps* has a part of the blocks of their kernel."""
        shares = len(steps)
        of_each = replace(one, blocks=np.maximum(1, one.blocks // shares), tiles=np.maximum(1, one.tiles // shares))
        self._grid(steps, of_each, self._issue[steps])
        self._slowdown[steps], self._packs[steps] = self._slower, one.resident > 1 and not self._comm_sms

    def _rest_of_shot(self, steps: Ints) -> float:
        """Seconds of a shot's kernel after its first puts *steps*; the later steps then take no SMs and no time.

        Its blocks keep their SMs from the first put to the last.
        """
        plan = self._plan
        behind = np.flatnonzero((plan.launch == plan.launch[steps[0]]) & (np.arange(len(plan)) > steps.max()))
        sums = behind[plan.kind[behind] == Kind.REDUCE]
        again = behind[plan.kind[behind] == Kind.PUT]
        seconds = float(self._issue[sums].sum()) + (self._on_the_way(again) if len(again) else 0.0)
        self._pool[behind], self._share[behind], self._issue[behind] = Pool.LIBRARY, EVERYTHING, 0.0
        self._transit[behind] = self._overlap[behind] = 0.0
        return seconds

    def _on_the_way(self, steps: Ints) -> float:
        """Seconds for which the kernel of puts *steps* has bytes on its links, which are used at the same time."""
        return float(np.bincount(self._given.link[steps], self._transit[steps]).max())

    def _kernels(self, steps: Ints) -> list[Ints]:
        """Groups of *steps* whose blocks belong to one kernel."""
        kernel = self._kernel_of()[steps]
        return [steps[kernel == each] for each in np.unique(kernel)]

    def _kernel_of(self) -> Ints:
        """Number of the kernel of each put: a launch sends contributions in one, and sums afterwards in another."""
        plan = self._plan
        waiting = np.repeat(np.arange(len(plan)), np.diff(plan.after_start))
        sends_sums = np.bincount(waiting, plan.kind[plan.after] == Kind.REDUCE, minlength=len(plan)) > 0
        return 2 * plan.launch + sends_sums

    def sums(self) -> None:
        """Prices sums and copies, except copies that cost nothing."""
        count, works = ROUNDS * self._machine.device.slots, np.isin(self._plan.kind, (Kind.REDUCE, Kind.COPY))
        self._pool[works & (self._issue == 0)] = Pool.LIBRARY
        steps = np.flatnonzero(works & (self._issue > 0))
        self._grid(steps, simple(count, (self._issue[steps] - self._lead) / ROUNDS), 0.0)

    def _grid(self, steps: Ints, one: GridBlocks, lead: Floats | float) -> None:
        self._pool[steps], self._share[steps] = Pool.COMPUTE, EVERYTHING
        self._blocks[steps], self._tiles[steps], self._resident[steps] = one.blocks, one.tiles, one.resident
        self._seconds[steps], self._alone[steps] = one.tile_seconds, one.alone_seconds
        self._is_pooled[steps], self._shared[steps] = one.is_pooled, one.shared_seconds
        self._issue[steps] = lead

    def _delay(self) -> Floats:
        """Delays of steps; those that another stream waits for are longer."""
        plan, delay = self._plan, self._given.delay.copy()
        stream = plan.launches.stream[plan.launch]
        waiting = np.repeat(np.arange(len(plan)), np.diff(plan.after_start))
        crosses = (stream[waiting] != stream[plan.after]) & (plan.rank[waiting] == plan.rank[plan.after])
        delay[np.unique(plan.after[crosses])] += crossing_seconds(self._machine)
        delay[plan.pool == Pool.COPY_ENGINE] -= hidden_launch_seconds(self._machine)
        return delay

    def costs(self) -> StepCosts:
        grids = Grids(blocks=self._blocks, tiles=self._tiles, resident=self._resident, tile_seconds=self._seconds,
                      alone_seconds=self._alone, is_pooled=self._is_pooled, shared_seconds=self._shared,
                      room=self._room_for, packs=self._packs,
                      computes=self._plan.kind == Kind.COMPUTE, slowdown=self._slowdown,
                      gap_seconds=self._lead)  # fmt: skip
        return replace(self._given, pool=self._pool, share=self._share, issue=self._issue, overlap=self._overlap,
                       transit=self._transit, delay=self._delay(), start_seconds=self._lead, grids=grids)  # fmt: skip


def shares_are_measured(problem_count: int, machine: Machine) -> bool:
    """Whether it was measured how a GPU's streams share SMs in a call of *problem_count* problems.

    It was not on a machine whose number of sending blocks is assumed.
    """
    return not shares_sms(problem_count, machine) or not machine.provenance_of("costs.send_blocks").startswith(
        "assumed"
    )


def shares_sms(problem_count: int, machine: Machine) -> bool:
    """Whether a call of *problem_count* problems has streams that want the same SMs."""
    return machine.device.kind == "gpu" and problem_count > 1
