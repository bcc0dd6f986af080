"""Pooled embedding lookup that stores its sums directly into the output of the sample's owner, one warp per vector."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.gin import transport
from kernels.backends.triton.gin.context import NetworkContext
from kernels.backends.triton.kernels import sync
from kernels.backends.triton.kernels.tiles import tile_table
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel
from kernels.backends.triton.limits import walk
from kernels.backends.triton.memory import Context
from kernels.operators import OPERATORS
from kernels.reference import Operands
from kernels.schedule import tile
from kernels.schemes import axis_rules
from kernels.schemes.base import above

COPIED_MOST = 1024
"""Most elements of a row that landed and that a warp copies at once."""


@triton.jit
def entry(tiles, at, last):
    """Returns owner, first row in its chunk and first column of tile *at*; those of *last* if *at* is beyond it."""
    words = tiles + 4 * tl.minimum(at, last)
    return tl.load(words), tl.load(words + 1), tl.load(words + 2)


@triton.jit
def lookups(
    indices, owner, row, column, step, chunk, num_tables,
    TABLES: tl.constexpr, DIM: tl.constexpr, POOLING: tl.constexpr, UNROLL: tl.constexpr, GROUPS: tl.constexpr,
    EVEN: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """int32 [UNROLL]: table rows that *step* of a tile looks up; -1 outside its samples, tables and lookups."""
    sample, table = row + step // GROUPS // TABLES, column // DIM + step // GROUPS % TABLES
    number = step % GROUPS * UNROLL + tl.arange(0, UNROLL)
    places = indices + ((owner * chunk + sample).to(tl.int64) * num_tables + table) * POOLING + number
    if EVEN:
        return tl.load(places, eviction_policy=CACHE).to(tl.int32)
    mask = (number < POOLING) & (sample < chunk) & (table < num_tables)
    return tl.load(places, mask=mask, other=-1, eviction_policy=CACHE).to(tl.int32)


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def embedding(
    tables, indices, tiles, num_tiles, chunk, table_rows, num_tables, stride, first_column,
    out_at, credits_at, done_at, epoch_at, arrived, error, limit_ns, rank,
    network, calls, counts, slices, arrivals, landing, stamps,
    WORLD: tl.constexpr, PAIRS: tl.constexpr, TABLES: tl.constexpr, DIM: tl.constexpr, ELEMENTS: tl.constexpr,
    POOLING: tl.constexpr, UNROLL: tl.constexpr, DTYPE: tl.constexpr, EVEN: tl.constexpr,
    COMPUTE_ONLY: tl.constexpr, ROWS_CACHE: tl.constexpr, INDICES_CACHE: tl.constexpr, STORE_CACHE: tl.constexpr,
    NETWORK: tl.constexpr, COPIED: tl.constexpr,
):  # fmt: skip
    """Sums rows of *tables* [num_tables, table_rows, DIM] by *indices* [samples, num_tables, POOLING] for their owners.

    *tiles* [num_tiles, 4] int32: owner, row inside the owner's chunk, column; in the order of the plan. A tile is
    PAIRS pairs of a sample and one of TABLES tables, over ELEMENTS elements of the vectors.
    *out_at*: int64 addresses by owner; rows have *stride* elements, and our columns start at *first_column*.

    One warp sums one vector: its lanes read adjacent elements, so that every load covers a whole row, and UNROLL rows
    are in flight before the first of them is added. Meanwhile the warp reads the lookups of the next step, or of the
    next tile's first step. Before its first store it also waits for the credits of peers.

    NETWORK: peers are on other hosts. *out_at* is where an owner's rows are staged, or our own output. The fourth word
    of a tile is its slice, which its last warp puts. Then warps copy what landed, COPIED elements at once.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    if not COMPUTE_ONLY and not NETWORK:
        device.grant(credits_at, rank, WORLD, program)
    element = tl.arange(0, ELEMENTS)
    groups: tl.constexpr = (POOLING + UNROLL - 1) // UNROLL
    owner, row, column = entry(tiles, program, num_tiles - 1)
    rows = lookups(indices, owner, row, column, 0, chunk, num_tables,
                   TABLES, DIM, POOLING, UNROLL, groups, EVEN, INDICES_CACHE)  # fmt: skip
    next_owner, next_row, next_column = entry(tiles, program + programs, num_tiles - 1)
    total = tl.zeros((ELEMENTS,), dtype=tl.float32)
    for at in tl.range(program, num_tiles, programs):
        sync.begin(stamps, at)
        after_owner, after_row, after_column = entry(tiles, at + 2 * programs, num_tiles - 1)
        start = tl.multiple_of(column % DIM, ELEMENTS if ELEMENTS < DIM else DIM)
        out = device.peer(out_at, owner, DTYPE)
        width, left = stride, first_column
        if NETWORK:  # staged rows lie behind each other
            width = tl.where(owner == rank, stride, num_tables * DIM)
            left = tl.where(owner == rank, first_column, 0)
        for step in range(PAIRS * groups):
            sample, table = row + step // groups // TABLES, column // DIM + step // groups % TABLES
            vectors = tables + (table.to(tl.int64) * table_rows * DIM + start)
            places = vectors + (rows.to(tl.int64) * DIM)[:, None] + element[None, :]
            if EVEN:
                values = tl.load(places, eviction_policy=ROWS_CACHE)
            else:
                valid = (rows >= 0)[:, None] & (start + element < DIM)[None, :]
                values = tl.load(places, mask=valid, other=0.0, eviction_policy=ROWS_CACHE)
            more = step + 1 < PAIRS * groups
            rows = lookups(
                indices, tl.where(more, owner, next_owner), tl.where(more, row, next_row),
                tl.where(more, column, next_column), tl.where(more, step + 1, 0), chunk, num_tables,
                TABLES, DIM, POOLING, UNROLL, groups, EVEN, INDICES_CACHE,
            )  # fmt: skip
            device.issued(limit_ns < 0, error)  # never true: it keeps the loads in flight together
            if not COMPUTE_ONLY and not NETWORK:
                if (at == program) & (step == 0):  # while the first rows are in flight
                    device.granted(credits_at, epoch, deadline, error, rank, WORLD)
            total = tl.where(step % groups == 0, 0.0, total) + tl.sum(values.to(tl.float32), axis=0)
            if step % groups == groups - 1:
                place = out + (sample.to(tl.int64) * width + left + table * DIM + start) + element
                if EVEN:
                    tl.store(place, total.to(DTYPE), cache_modifier=STORE_CACHE)
                else:
                    mask = (start + element < DIM) & (sample < chunk) & (table < num_tables)
                    tl.store(place, total.to(DTYPE), mask=mask, cache_modifier=STORE_CACHE)
        sync.write(stamps, at, sync.COMPUTED)
        if NETWORK:
            transport.leave(network, calls, counts, slices, tl.load(tiles + 4 * at + 3), rank, owner, error)
        sync.write(stamps, at, sync.SENT)
        owner, row, column = next_owner, next_row, next_column
        next_owner, next_row, next_column = after_owner, after_row, after_column
    if NETWORK:
        transport.copy_landed(network, calls, landing, device.peer(out_at, rank, DTYPE), arrivals, chunk,
                              num_tables * DIM, stride, num_tables * DIM, deadline, error, rank, program, programs,
                              WORLD, COPIED)  # fmt: skip
        transport.finish(network, calls, epoch_at, arrived, deadline, error, rank, programs)
    elif not COMPUTE_ONLY:
        device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `embedding` for one trial; *alone*: the lookup into `context.local` without communication."""
    problem, schedule = context.problem, context.plan.schedule
    tables, indices = operands["tables"], operands["indices"]
    walked = walk(problem, tile(schedule["tile"]))
    items = tile_table(context.plan, context.rank)
    network = context.sent() if isinstance(context, NetworkContext) and not alone else None
    if network is not None:
        items[:, 3] = network.slice_of_tile
    chunk = OPERATORS[problem.operator].chunk_rows(problem)
    if alone:  # as if one rank owned all samples
        items[:, 1] += items[:, 0] * chunk
        items[:, 0], chunk = 0, problem["batch"]
    return LaunchableKernel(
        function=embedding,
        arguments=(
            tables, indices, items.to(context.device), len(items), chunk, problem["rows"], problem["tables_per_rank"],
            *_places(context, alone), context.epoch, context.arrived, context.error, context.limit_ns, context.rank,
            *(network.arguments if network is not None else (None,) * 6), None,
        ),
        constants={
            "WORLD": problem.world, "PAIRS": walked.pairs, "TABLES": walked.tables, "DIM": problem["dim"],
            "ELEMENTS": walked.elements, "POOLING": problem["pooling"], "UNROLL": walked.unroll,
            "DTYPE": TRITON_DTYPES[problem.dtype], "EVEN": walked.even, "COMPUTE_ONLY": alone,
            "ROWS_CACHE": axis_rules.eviction(schedule), "INDICES_CACHE": "evict_first",
            "STORE_CACHE": axis_rules.modifier(schedule), "NETWORK": network is not None,
            "COPIED": 0 if network is None else min(COPIED_MOST, above(network.columns)),
        },
        num_warps=1,
        num_stages=1,
        items=len(items) if network is None else max(len(items), network.arrivals),
        libraries=None if network is None else network.libraries,
        grid=int(schedule.get("grid", 0) or 0),
        records=len(items),
    )  # fmt: skip


def _places(context: Context, alone: bool) -> tuple[Any, ...]:
    """Stride of the output, our first column there, and addresses by rank of out, credits and done."""
    columns = OPERATORS[context.problem.operator].extent(context.problem).columns
    if alone:
        local_at = torch.tensor([context.local.data_ptr()], dtype=torch.int64, device=context.device)
        return columns, 0, local_at, local_at, local_at
    if isinstance(context, NetworkContext):  # where rows are staged, and our own output
        places = [context.of(context.rank, "stage")[owner] for owner in range(context.world)]
        places[context.rank] = context.of(context.rank, "out")
        out_at = torch.tensor([each.data_ptr() for each in places], dtype=torch.int64, device=context.device)
        return context.world * columns, context.rank * columns, out_at, None, None
    addresses = [context.addresses(name) for name in ("out", "credits", "done")]
    return context.world * columns, context.rank * columns, *addresses
