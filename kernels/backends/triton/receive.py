"""GEMM operators whose operand rows come from all ranks: what `gemm_receive` is called with."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.axes import Tile, tile
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.gemm_receive import gemm_receive
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.pieces import piece
from kernels.backends.triton.send import TRITON_DTYPES, descriptors
from kernels.operators import OPERATORS
from kernels.plan import Kind, Plan
from kernels.reference import Operands
from kernels.schemes.fused import slice_rows


def tile_table(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles, 4] in the order of the plan: source, row inside its chunk, column, counter awaited (-1: none)."""
    tiles, slices = plan.tiles[rank], slice_rows(plan.problem, plan.schedule)
    awaited = tiles.chunk * len(slices) + tiles.row_start // slices[0][1]
    awaited = np.where(tiles.chunk == rank, -1, awaited)
    columns = np.stack([tiles.chunk, tiles.row_start, tiles.col_start, awaited], axis=1)
    return torch.from_numpy(columns.astype(np.int32))


def put_table(plan: Plan, rank: int) -> Tensor:
    """int32 [puts, 3]: peer, first row, counter there. What its peer computes first leaves first.

    The plan leaves open which step that is ready goes first; the kernel computes in the one order of its tiles.
    """
    slices = slice_rows(plan.problem, plan.schedule)
    entries = [(int(plan.peer[step]), int(plan.row_start[step])) for step in put_steps(plan, rank)]
    rows = [(peer, row, rank * len(slices) + row // slices[0][1]) for peer, row in entries]
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, 3)


def put_steps(plan: Plan, rank: int) -> list[int]:
    """The plan's puts of *rank* in the order of `put_table`."""
    steps = np.flatnonzero((plan.rank == rank) & (plan.kind == Kind.PUT)).tolist()
    return sorted(steps, key=lambda step: _first_use(plan, rank, int(plan.peer[step]), int(plan.row_start[step])))


def _first_use(plan: Plan, rank: int, peer: int, row: int) -> int:
    """Place in *peer*'s order of the first tile that reads the slice of *rank*'s rows that begins at *row*."""
    tiles = plan.tiles[peer]
    return int(np.flatnonzero((tiles.chunk == rank) & (tiles.row_start >= row))[0])


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """`gemm_receive` for one trial; *alone*: the computation on whatever lies in `operand`, nothing sent or awaited."""
    problem, schedule, rank = context.problem, context.plan.schedule, context.rank
    stated, size = OPERATORS[problem.operator], tile(schedule["tile"])
    alone = alone or problem.world == 1
    extent, chunk = stated.extent(problem), stated.chunk_rows(problem)
    tiles, puts = tile_table(context.plan, rank), put_table(context.plan, rank)
    source, b = operands.values()
    stride = chunk if len(source) > chunk else 0  # all-to-all: other rows for each peer
    put = piece(problem, size)
    comm = 0 if alone else schedule.count("comm_sms")
    if alone:
        context.of(rank, "operand").normal_()  # zeros would take less power, and a GPU clocks higher on them
    return Kernel(
        function=gemm_receive,
        arguments=(
            *_descriptors(context, source[rank * stride :][:chunk], b, size), *_ends(context, source, put, alone),
            TensorDescriptor.from_tensor(context.local, [size.m, size.n]), source, context.local,
            tiles.to(context.device), len(tiles), puts.to(context.device), len(puts), _pieces(context, put),
            chunk, stride, extent.columns, extent.contraction,
            *(context.addresses(name) for name in ("operand", "counters", "credits", "done")),
            context.epoch, context.arrived, torch.zeros(1, dtype=torch.int32, device=context.device), context.error,
            context.limit_ns, 0 if alone else rank, comm, None,
        ),
        constants={
            "WORLD": 1 if alone else problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "PUT_M": put.m, "PUT_K": put.k, "DTYPE": TRITON_DTYPES[problem.dtype],
            "TMA": schedule["store"] == "tma", "TMA_RESULT": schedule["store"] == "tma" and chunk % size.m == 0,
            "COMPUTE_ONLY": alone,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=len(tiles) + comm,
        records=len(tiles) + len(puts) * (comm or len(tiles)),
        asked=schedule.count("grid"),
    )  # fmt: skip


def _descriptors(context: Context, shard: Tensor, b: Tensor, size: Tile) -> tuple[TensorDescriptor, ...]:
    """Own rows, rows of all, weights: what tiles are computed from."""
    operand = context.of(context.rank, "operand")
    return (
        TensorDescriptor.from_tensor(shard, [size.m, size.k]),
        TensorDescriptor.from_tensor(operand, [size.m, size.k]),
        TensorDescriptor.from_tensor(b, [size.k, size.n]),
    )


def _ends(context: Context, source: Tensor, put: Tile, alone: bool) -> list[TensorDescriptor]:
    """What pieces are loaded from, and by rank where they go: descriptors that end with the chunk."""
    chunk = OPERATORS[context.problem.operator].chunk_rows(context.problem)
    mine = slice(context.rank * chunk, (context.rank + 1) * chunk)
    owners = [context.rank] if alone else range(context.world)
    landings = descriptors([context.of(owner, "operand")[mine] for owner in owners], put.m, put.k)
    return [TensorDescriptor.from_tensor(source, [put.m, put.k]), *landings]


def _pieces(context: Context, put: Tile) -> int:
    """Pieces of one put; those beyond the end of a last, smaller slice move nothing."""
    extent = OPERATORS[context.problem.operator].extent(context.problem)
    height = slice_rows(context.problem, context.plan.schedule)[0][1]
    return -(-height // put.m) * -(-extent.contraction // put.k)
