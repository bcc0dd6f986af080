"""How many blocks of our GEMM an SM holds, and whether blocks of a library's collective find room beside them."""

from __future__ import annotations

from typing import NamedTuple

from kernels.axes import Tile
from kernels.machine import Machine
from kernels.occupancy import NCCL, Block, beside, gemm_block, limits_of, padding
from kernels.occupancy import resident_blocks as fitting
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import fused
from workbench.simulator.price import tiles


class Room(NamedTuple):
    """Of one SM."""

    resident: int
    """Blocks of the computation that it holds."""
    has_more: bool
    """Whether a block of the library's collective runs beside them, and waits for nobody."""
    is_call: bool = False
    """Whether it is the library that computes."""
    in_flight: int = 0
    """Bytes of operands that a block of our GEMM has asked for while it computes; 0: not known."""


def room(machine: Machine, problem: Problem, kernel: object, size: Tile, resident: int) -> Room:
    """What a computation with tiles of *size* leaves, where *resident* of its blocks share an SM, 0: as many as fit.

    Blocks of our GEMM are padded to be no more than that. Of others, and where the machine's file does not say what an
    SM has, nothing is known: collectives wait for them. *kernel*: who computes.
    """
    work = operator(problem.operator).work
    if tiles.library_seconds(machine, problem, kernel) is not None:
        return Room(1, False, is_call=True)
    if not machine.device.limits or work != "gemm":
        return Room(resident or int(tiles.resident_blocks(machine, work)), False)
    limits, usual = limits_of(machine), fused.alone(problem, str(size))
    block = gemm_block(size, problem.itemsize, int(usual["num_stages"]), int(usual["num_warps"]))
    most = max(1, fitting(limits, block.shared_bytes, block.registers, block.threads))
    held = min(resident or most, most)
    if held < most:
        try:
            more = padding(limits, block, held).fewest
        except Refusal:  # no padding makes exactly so many
            more = 0
        block = Block(block.shared_bytes + more, block.registers, block.threads)
    asked_for = (int(usual["num_stages"]) - 1) * (size.m + size.n) * size.k * problem.itemsize
    return Room(held, beside(limits, block, held, NCCL) > 0, in_flight=asked_for)
