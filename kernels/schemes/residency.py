"""Which tiles let an SM hold as many blocks of our computation as are wanted: padding can only make them fewer.

Our kernel alone has the shape of `fused.alone`; what a block of it takes is that of `kernels/occupancy.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels.axes import Value, tile
from kernels.machine import Machine
from kernels.occupancy import gemm_block, limits_of, padding
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import base, fused
from kernels.schemes.reads import KERNEL, OURS, RESIDENT


def refusal(problem: Problem, size: Value, blocks: int, machine: Machine) -> str | None:
    """Why an SM of *machine* cannot be made to hold *blocks* blocks of tiles of *size*, or None.

    None also where nobody knows: of kernels that are no GEMM, and of machines that do not state what an SM has. What is
    compiled decides there.
    """
    if not blocks or not machine.device.limits or base.operator_of(problem).work != "gemm":
        return None
    alone = fused.alone(problem, size)
    block = gemm_block(tile(size), problem.itemsize, alone.count("num_stages"), alone.count("num_warps"))
    try:
        padding(limits_of(machine), block, blocks)
    except Refusal as sentence:
        return str(sentence)
    return None


def beside(problem: Problem, machine: Machine, values: Mapping[str, Value]) -> dict[str, Value]:
    """What is taken beside the resident blocks among *values*: our kernel, and the largest tile that leaves room."""
    blocks = values.get(RESIDENT)
    if not isinstance(blocks, int) or not blocks:
        return {}
    known = base.tile_axis(problem, machine)
    sizes = sorted(known.values, key=_largest_and_squarest)
    fits = (size for size in (known.default, *sizes) if refusal(problem, size, blocks, machine) is None)
    return {KERNEL: OURS, "tile": next(fits, known.default)}


def _largest_and_squarest(size: Value) -> tuple[int, int]:
    sides = tile(size)
    return -sides.m * sides.n, abs(sides.m - sides.n)
