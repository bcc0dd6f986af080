"""Bytes of a GPU's own memory: read, copied, and gathered as a pooled lookup gathers them."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.backends.triton.kernels.probe import copy, gather, read
from kernels.backends.triton.probes.site import Call, Site
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schemes.base import above

PIECE = 2048
"""int64 words of a piece, 16 KiB: 8 loads of 16 bytes by each of 128 threads."""
BLOCKS_PER_SM = 8
SETS_MOST = 64


def reads(pool: Tensor, num_bytes: int, processors: int) -> list[Call]:
    """Calls that read *num_bytes* of *pool* (int64) each, other ones in turns."""
    pieces, programs = num_bytes // 8 // PIECE, BLOCKS_PER_SM * processors
    out = torch.zeros(programs, dtype=torch.int64, device=pool.device)
    grid = (min(pieces, programs),)

    def one(part: Tensor) -> Call:
        return lambda: read[grid](part, out, pieces, PIECE=PIECE, num_warps=4)

    return [one(part) for part in _parts(pool, num_bytes)]


def copies(pool: Tensor, num_bytes: int, processors: int, *, own: bool) -> list[Call]:
    """Calls that copy *num_bytes* inside *pool*, by torch or by a kernel of our *own*."""
    half = pool.numel() // 2
    pairs = zip(_parts(pool[:half], num_bytes), _parts(pool[half:], num_bytes), strict=True)
    pieces = num_bytes // 8 // PIECE
    grid = (min(pieces, BLOCKS_PER_SM * processors),)

    def one(source: Tensor, target: Tensor) -> Call:
        if own:
            return lambda: copy[grid](source, target, pieces, PIECE=PIECE, num_warps=4)
        return lambda: _copy(source, target)

    return [one(*pair) for pair in pairs]


def _copy(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


def _parts(pool: Tensor, num_bytes: int) -> list[Tensor]:
    words = num_bytes // 8
    count = max(1, min(SETS_MOST, pool.numel() // words))
    return [pool[number * words : (number + 1) * words] for number in range(count)]


def gathers(site: Site, problem: Problem, operands: Operands, rows: int) -> list[Call]:
    """One call that reads every row that the pooled lookup of *problem* reads, *rows* of them by each program."""
    tables, indices = operands["tables"], operands["indices"].view(-1)
    programs = -(-indices.numel() // rows)
    out = torch.zeros(programs, dtype=torch.float32, device=tables.device)
    return [
        lambda: gather[(programs,)](
            tables, indices, out, indices.numel(), problem["rows"], site.limit_ns, site.error,
            ROWS=rows, DIM=problem["dim"], WIDTH=above(problem["dim"]), NUM_TABLES=problem["tables_per_rank"],
            POOLING=problem["pooling"], num_warps=4,
        )
    ]  # fmt: skip
