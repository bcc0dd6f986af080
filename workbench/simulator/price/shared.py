"""What kernels of two streams do to each other on a GPU: which of them hold SMs, in how many blocks, for how long.

A cuBLAS GEMM and our kernels are taken to be persistent: as many blocks as there are SMs, each of which stays to the
end. Blocks of a collective that come meanwhile wait for one of them to leave; blocks of a GEMM that find SMs taken run
in a second round. HBM and the L2 are not shared out: nobody has measured what streams take from each other there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import ranges
from kernels.axes import tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.plan import EVERYTHING, Kind, Plan, Pool
from kernels.problem import Problem
from kernels.schemes import reads
from workbench.simulator.price.costs import Grids, StepCosts
from workbench.simulator.price.launches import step_overhead
from workbench.simulator.price.messages import put_byte_seconds
from workbench.simulator.price.residency import room

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FILLS = ("direct",)
"""Values of `collective` whose kernel has a block for each SM, unless a number of SMs is stated."""
ROUNDS = 8
"""Blocks of a sum or a copy for each SM (assumed): they are short, and leave SMs often."""


def are_dealt(plan: Plan, machine: Machine) -> bool:
    """Whether kernels of several problems, in one call, share the SMs of a GPU."""
    return machine.device.kind == "gpu" and bool(plan.launches.micro_batch.any())


def dealt(plan: Plan, machine: Machine, fabric: Fabric, costs: StepCosts) -> StepCosts:
    """*costs* of *plan*, which say what each kernel takes alone: now by blocks, which take SMs as these come free.

    Meetings of ranks are paid by each problem's collective, on its stream.
    """
    made = _Made(plan, machine, costs)
    made.computation()
    made.collectives(fabric)
    made.puts()
    made.sums()
    return made.costs()


def sending_blocks(machine: Machine, collective: Any, comm_sms: Any) -> Ints:
    """Blocks of a collective's kernel, which hold an SM each: as stated, or as many as it usually has. Or columns."""
    usual = machine.device.slots if collective in FILLS else machine.costs.send_blocks
    return np.where(np.asarray(comm_sms) > 0, comm_sms, max(1, usual))


def wanted_by_both(machine: Machine, computing: Any, sending: Any) -> Ints:
    """Of the SMs that a computation and a collective want, those that both do. Numbers or columns."""
    return np.clip(np.asarray(computing) + sending - machine.device.slots, 0, sending)


def slower_call(machine: Machine, sizes: Problem, fabric: Fabric, comm_sms: Any) -> Floats:
    """By how much a library's call takes longer on *comm_sms* SMs than on its usual ones, 0 for these: as our puts do.

    Assumed, since calls were measured on their usual number alone.
    """
    usual = put_byte_seconds(sizes, machine, fabric, {"comm_sms": machine.costs.send_blocks})
    if usual is None:
        return np.ones(np.shape(comm_sms))
    on_these = put_byte_seconds(sizes, machine, fabric, {"comm_sms": np.asarray(comm_sms)})
    assert on_these is not None
    return np.where(np.asarray(comm_sms) > 0, np.maximum(1.0, on_these / usual), 1.0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Of a computation's kernel, numbers or columns."""

    blocks: Any
    tiles: Any
    resident: Any
    tile_seconds: Any


def computing_blocks(machine: Machine, *, is_call: bool, num_tiles: Any, seconds: Any, comm_sms: Any,
                     resident: Any) -> Blocks:  # fmt: skip
    """The blocks of a computation that takes *seconds* where nobody takes SMs away from those that it was given.

    *is_call*: the library computes, and takes as much longer as it has fewer SMs; *comm_sms*: SMs that it leaves free;
    *resident*: blocks that an SM holds.
    """
    left = machine.device.slots - np.asarray(comm_sms)
    if is_call:
        return Blocks(left, left, np.ones_like(left), seconds * machine.device.slots / left)
    blocks = np.minimum(num_tiles, left * resident)
    return Blocks(blocks, num_tiles, resident, seconds / -(-num_tiles // blocks))


class _Made:
    """Columns as they are filled in, kind by kind."""

    def __init__(self, plan: Plan, machine: Machine, costs: StepCosts) -> None:
        self._plan, self._machine, self._given = plan, machine, costs
        self._comm_sms, padded_to = (int(plan.schedule.get(name) or 0) for name in ("comm_sms", reads.RESIDENT))
        self._room = room(
            machine, plan.problem, plan.schedule.get(reads.KERNEL), tile(plan.schedule["tile"]), padded_to
        )
        self._pool, self._share = costs.pool.copy(), costs.share.copy()
        self._issue, self._ahead = costs.issue.copy(), costs.ahead.copy()
        none = np.zeros(len(plan), dtype=np.int64)
        self._blocks, self._tiles, self._resident = none.copy(), none.copy(), none + 1
        self._seconds = np.zeros(len(plan))
        self._lead = step_overhead(machine, one_kernel=False)

    def computation(self) -> None:
        plan = self._plan
        steps = np.flatnonzero(plan.kind == Kind.COMPUTE)
        one = computing_blocks(
            self._machine, is_call=self._room.is_call, comm_sms=self._comm_sms,
            num_tiles=(plan.tile_stop - plan.tile_start)[steps], seconds=self._issue[steps] - self._lead,
            resident=self._room.resident,
        )  # fmt: skip
        self._grid(steps, one, self._lead)

    def collectives(self, fabric: Fabric) -> None:
        """Where there is room for them beside the computation, its SMs are theirs as well."""
        plan = self._plan
        steps = np.flatnonzero(plan.kind == Kind.COLLECTIVE)
        self._issue[steps] *= slower_call(self._machine, plan.problem, fabric, self._comm_sms)
        if not self._room.has_more:
            blocks = sending_blocks(self._machine, plan.schedule.get("collective"), self._comm_sms)
            self._grid(steps, Blocks(blocks, blocks, 1, self._issue[steps]), 0.0)

    def puts(self) -> None:
        """Those of SMs hold them while all bytes of their kernel are on the way; copy engines hold none."""
        plan = self._plan
        moves = np.isin(plan.kind, (Kind.PUT, Kind.PULL))
        first = np.flatnonzero(moves)[ranges.nth(plan.launch[moves]) == 0]
        self._issue[first] += self._given.start_seconds
        steps = np.flatnonzero(moves & (plan.pool != Pool.COPY_ENGINE))
        blocks = sending_blocks(self._machine, plan.schedule.get("collective"), self._comm_sms)
        _, together, count = np.unique(self._kernel_of()[steps], return_inverse=True, return_counts=True)
        seconds = self._on_the_way(steps, together)
        of_each = np.maximum(1, blocks // count[together])
        self._grid(steps, Blocks(of_each, of_each, 1, seconds), self._issue[steps])
        self._ahead[steps] = seconds

    def _on_the_way(self, steps: Ints, together: Ints) -> Floats:
        """For how long the kernels of puts have bytes on their links, which they use at the same time."""
        link = self._given.link[steps]
        key = together * (int(link.max(initial=0)) + 1) + link
        on_link = np.bincount(key, self._given.transit[steps])[key]
        longest = np.zeros(int(together.max(initial=-1)) + 1)
        np.maximum.at(longest, together, on_link)
        return longest[together]

    def _kernel_of(self) -> Ints:
        """By put a number that those share whose blocks are of one kernel: sums are told after all that is summed."""
        plan = self._plan
        waiting = np.repeat(np.arange(len(plan)), np.diff(plan.after_start))
        tells = np.bincount(waiting, plan.kind[plan.after] == Kind.REDUCE, minlength=len(plan)) > 0
        return 2 * plan.launch + tells

    def sums(self) -> None:
        """And copies, but for those that cost nothing."""
        kind, count = self._plan.kind, ROUNDS * self._machine.device.slots
        steps = np.flatnonzero(np.isin(kind, (Kind.REDUCE, Kind.COPY)) & (self._issue > 0))
        self._grid(steps, Blocks(count, count, 1, (self._issue[steps] - self._lead) / ROUNDS), self._lead)
        self._pool[np.isin(kind, (Kind.REDUCE, Kind.COPY)) & (self._issue == 0)] = Pool.LIBRARY

    def _grid(self, steps: Ints, one: Blocks, lead: Floats | float) -> None:
        self._pool[steps], self._share[steps] = Pool.COMPUTE, EVERYTHING
        self._blocks[steps], self._tiles[steps], self._resident[steps] = one.blocks, one.tiles, one.resident
        self._seconds[steps], self._issue[steps] = one.tile_seconds, lead

    def costs(self) -> StepCosts:
        grids = Grids(blocks=self._blocks, tiles=self._tiles, resident=self._resident, tile_seconds=self._seconds)
        return replace(self._given, pool=self._pool, share=self._share, issue=self._issue, ahead=self._ahead,
                       start_seconds=0.0, grids=grids)  # fmt: skip


def shares_are_measured(problem_count: int, machine: Machine) -> bool:
    """Whether it was measured what a GPU's streams take from each other in a call of *problem_count* problems.

    Nobody has on a machine whose count of sending blocks is assumed.
    """
    shares = machine.device.kind == "gpu" and problem_count > 1
    return not shares or not machine.provenance_of("costs.send_blocks").startswith("assumed")
