"""Buckets of rows: GEMM calls of any m in one bucket are the same call, padded, so that a new m prepares nothing.

A first call expands a Plan, compiles, allocates symmetric memory and meets all ranks. A server whose batch changes
would do that for every m. In a bucket its rows are copied into a buffer of the bucket's size, and the rows of the
result are taken out again. Each row of a result depends on the same row of the operand alone. So padding changes no
bit: a row has the bits of a call of the bucket's size, whatever m is. Another bucket may run other tiles, whose sums
are added in another order: there the last bits may differ.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels import operators
from kernels.operators import OPERATORS
from kernels.ops.arguments import Operand, dtype_name, is_padded_inside, read
from kernels.problem import Problem
from kernels.schedule import Refusal

_C: Any = torch._C  # its names are not typed
_ROWS: list[int] = []
"""Rows of the buckets, in order."""


def bucket_rows(*rows: int) -> None:
    """Sets the buckets of GEMM operators by their rows m, such as `bucket_rows(16, 32, 64, 128)`; all ranks alike.

    A call runs in the smallest bucket with as many rows as it has. Without *rows* each m is a call of its own.
    """
    if wrong := [each for each in rows if each < 1]:
        raise Refusal(f"A bucket of {wrong[0]} rows holds no call, since {wrong[0]} < 1. Accepted: rows from 1.")
    _ROWS[:] = sorted(set(rows))


@dataclass(frozen=True, slots=True)
class Bucket:
    """How a call is padded. Rows come in chunks, one for each rank, or in one where nobody has to share them out."""

    problem: Problem
    """What runs: the sizes of the call, with m that of the bucket."""
    rows: int = 0
    """Rows of each chunk of the call; 0: it is as large as the bucket, and nothing is padded."""
    chunks: int = 1
    """Number of chunks of the first operand."""
    result_chunks: int = 1
    """Number of chunks of the result."""

    def buffer(self, first: Tensor) -> Tensor:
        """Zeros like the first operand of the bucket."""
        name = next(iter(OPERATORS[self.problem.operator].operands()))
        return first.new_zeros(OPERATORS[self.problem.operator].local(self.problem)[name])

    def fill(self, buffer: Tensor, first: Tensor) -> None:
        """Copies the rows of *first* to their places in *buffer*; what else is there does not matter."""
        by_chunk = buffer.view(self.chunks, -1, buffer.shape[1])
        by_chunk[:, : first.shape[0] // self.chunks].copy_(first.detach().view(self.chunks, -1, first.shape[1]))

    def take(self, result: Tensor) -> tuple[Tensor, bool]:
        """The rows of the call from the bucket's *result*, and whether they are a copy."""
        if self.result_chunks == 1:
            with _C._AutoDispatchBelowADInplaceOrView():  # or autograd took it for a view, which nothing may change
                return result[: self.rows], False
        return result.view(self.result_chunks, -1, result.shape[1])[:, : self.rows].flatten(0, 1), True


def of(operator: str, first: Operand, second: Operand, world: int) -> Bucket:
    """The bucket of a call; Refusal where the operands are illegal, or no bucket has as many rows."""
    known, sizes, dtype = OPERATORS[operator], read(operator, first, second, world), dtype_name(first)
    if known.work != "gemm":
        return Bucket(operators.problem(operator, sizes.by_key, dtype=dtype, world=world))
    m = int(sizes["m"])
    rows = _shared_out(_rows_for(operator, m), world)
    problem = operators.problem(operator, {**sizes.by_key, "m": rows}, dtype=dtype, world=world)
    if rows == m:
        return Bucket(problem)
    if is_padded_inside(known):
        return Bucket(problem, m)
    local = known.local(problem)
    chunks = [world if local[name][0] == rows else 1 for name in (next(iter(known.operands())), "output")]
    return Bucket(problem, m // world, *chunks)


def _rows_for(operator: str, m: int) -> int:
    if not _ROWS:
        return m
    if m > _ROWS[-1]:
        raise Refusal(
            f"{operator} got m = {m}, and the largest bucket has {_ROWS[-1]} rows: {m} > {_ROWS[-1]}. Accepted: up to "
            f"{_ROWS[-1]} rows, or a larger bucket in kernels.ops.bucket_rows."
        )
    return _ROWS[bisect_left(_ROWS, m)]


def _shared_out(rows: int, world: int) -> int:
    """The first multiple of *world* from *rows* on."""
    return -(-rows // world) * world
