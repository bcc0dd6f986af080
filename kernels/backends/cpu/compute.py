"""The compiled kernels of a tile: ATen with `out=`, and our pooling where ATen has none."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.backends.cpu.layout import Memory, Rectangle
from kernels.backends.cpu.pooling import pool

Action = Callable[[], None]


def tile_action(memory: Memory, at: Rectangle, k: tuple[int, int], in_place: bool) -> Action:
    """What computes tile *at* over contraction range *k* into its target."""
    target = memory.target(at, in_place)
    if memory.operator.work == "gather":
        return _gather(memory, at, target)
    left, right = _factors(memory, at, k)
    if k[0] == 0:
        return lambda: torch.mm(left, right, out=target)  # type: ignore[return-value]
    return lambda: torch.addmm(target, left, right, out=target)  # type: ignore[return-value]


def _factors(memory: Memory, at: Rectangle, k: tuple[int, int]) -> tuple[Tensor, Tensor]:
    chunk, r0, r1, c0, c1 = at
    if memory.receives:
        left = memory.operand_rows(chunk, (r0, r1), k, memory.rank, "operand")
        right = next(value for name, value in memory.operands.items() if name in ("b", "expert"))
    else:
        first, right = memory.operands.values()
        start = chunk * memory.chunk
        left = first[start + r0 : start + r1, k[0] : k[1]]
    return left, right[k[0] : k[1], c0:c1]


def _gather(memory: Memory, at: Rectangle, target: Tensor) -> Action:
    """The columns of a tile lie in one table or in several."""
    chunk, r0, r1, c0, c1 = at
    dim, start = memory.problem["dim"], chunk * memory.chunk
    tables, indices = memory.operands["tables"], memory.operands["indices"]
    calls = []
    for table in range(c0 // dim, -(-c1 // dim)):
        low, high = max(c0, table * dim), min(c1, (table + 1) * dim)
        calls.append(
            (
                tables[table][:, low - table * dim : high - table * dim],
                indices[start + r0 : start + r1, table],
                target[:, low - c0 : high - c0],
            )
        )

    def gather() -> None:
        for rows, which, out in calls:
            pool(rows, which, out)

    return gather


def reduce_action(memory: Memory, at: Rectangle) -> Action:
    """What sums all ranks' contributions to tile *at*."""
    summands, out = memory.summands(at)
    if memory.problem.world == 2:
        return lambda: torch.add(summands[0], summands[1], out=out)  # type: ignore[return-value]
    return lambda: torch.sum(summands, dim=0, out=out)  # type: ignore[return-value]


def copy_action(source: Tensor, target: Tensor) -> Action:
    """What copies *source* over *target*."""
    return lambda: target.copy_(source)  # type: ignore[return-value]
