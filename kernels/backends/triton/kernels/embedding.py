"""Pooled embedding lookup whose sums go straight into the output of the rank that owns the sample."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.kernels import stamp


@triton.jit
def entry(tiles, at, last):
    """Owner, first row inside its chunk and first column of tile *at*, or of *last* where there are no more."""
    here = tiles + 4 * tl.minimum(at, last)
    return tl.load(here), tl.load(here + 1), tl.load(here + 2)


@triton.jit
def lookups(
    indices, sample, table, group, end, num_tables,
    PAIRS: tl.constexpr, TABLES: tl.constexpr, LANES: tl.constexpr, POOLING: tl.constexpr, UNROLL: tl.constexpr,
    EVEN: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """int32 [UNROLL, PAIRS, LANES]: lookups *group*.. of samples *sample*.. up to *end* and tables *table*...

    Every lane of a pair reads the same number: it then lies where it is used, and no barrier ties the warps.
    """
    pair = tl.arange(0, PAIRS)[:, None] + tl.zeros((PAIRS, LANES), tl.int32)
    at = group + tl.arange(0, UNROLL)
    start = (sample.to(tl.int64) * num_tables + table) * POOLING + group
    place = ((pair // TABLES) * num_tables + pair % TABLES) * POOLING
    # not told that lookups lie side by side, the compiler leaves each where its row is loaded
    places = tl.max_contiguous(indices + start + (place[None, :, :] + tl.arange(0, UNROLL)[:, None, None]), [1, 1, 1])
    if EVEN:
        return tl.load(places, eviction_policy=CACHE).to(tl.int32)
    mask = (at < POOLING)[:, None, None] & (sample + pair // TABLES < end)[None, :, :]
    mask = mask & (table + pair % TABLES < num_tables)[None, :, :]
    return tl.load(places, mask=mask, other=-1, eviction_policy=CACHE).to(tl.int32)


@triton.jit(do_not_specialize=["rank"])
def embedding(
    tables, indices, tiles, num_tiles, chunk, table_rows, num_tables, stride, first_column,
    out_at, credits_at, done_at, epoch_at, arrived, error, limit_ns, rank, stamps,
    WORLD: tl.constexpr, PAIRS: tl.constexpr, TABLES: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr, POOLING: tl.constexpr, UNROLL: tl.constexpr, DTYPE: tl.constexpr, EVEN: tl.constexpr,
    COMPUTE_ONLY: tl.constexpr, ROWS_CACHE: tl.constexpr, INDICES_CACHE: tl.constexpr, STORE_CACHE: tl.constexpr,
):  # fmt: skip
    """tables [num_tables, table_rows, DIM], indices [samples, num_tables, POOLING]; sums to the samples' owners.

    *tiles* [num_tiles, 4] int32: owner, row inside the owner's chunk, column; in the order of the plan. A tile is
    PAIRS pairs of a sample and one of TABLES tables, over LANES times WIDTH (16 bytes) elements of the vectors.
    *out_at*: int64 addresses by owner of rows of *stride* elements, ours from *first_column* on.

    UNROLL rows per pair are loaded before the first of them is added: [UNROLL, PAIRS, LANES, WIDTH] lies on the threads
    so that the sum over UNROLL stays inside a thread. The lookups of the next group, or of the next tile's first, are
    read while these rows are on their way, and so are the credits of peers before the first store.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    if not COMPUTE_ONLY:
        device.grant(credits_at, rank, WORLD, program)
    pair = tl.arange(0, PAIRS)
    element = WIDTH * tl.arange(0, LANES)[:, None] + tl.arange(0, WIDTH)[None, :]
    groups: tl.constexpr = (POOLING + UNROLL - 1) // UNROLL
    owner, row, column = entry(tiles, program, num_tiles - 1)
    ahead = lookups(indices, owner * chunk + row, column // DIM, 0, (owner + 1) * chunk, num_tables,
                    PAIRS, TABLES, LANES, POOLING, UNROLL, EVEN, INDICES_CACHE)  # fmt: skip
    next_owner, next_row, next_column = entry(tiles, program + programs, num_tiles - 1)
    for at in tl.range(program, num_tiles, programs):
        stamp.begin(stamps, at)
        after_owner, after_row, after_column = entry(tiles, at + 2 * programs, num_tiles - 1)
        table, start = column // DIM, tl.multiple_of(column % DIM, LANES * WIDTH if LANES * WIDTH < DIM else DIM)
        out = device.peer(out_at, owner, DTYPE)
        vectors = tables + (table.to(tl.int64) * table_rows * DIM + start)
        total = tl.zeros((PAIRS, LANES, WIDTH), dtype=tl.float32)
        for group in range(groups):
            found = ahead.to(tl.int64)
            if TABLES > 1:
                found += ((pair % TABLES) * tl.cast(table_rows, tl.int64))[None, :, None]
            places = vectors + (found * DIM)[:, :, :, None] + element[None, None, :, :]
            if EVEN:
                values = tl.load(places, eviction_policy=ROWS_CACHE)
            else:
                mask = (ahead >= 0)[:, :, :, None] & (start + element < DIM)[None, None, :, :]
                values = tl.load(places, mask=mask, other=0.0, eviction_policy=ROWS_CACHE)
            more = group + 1 < groups
            whose = tl.where(more, owner, next_owner)
            ahead = lookups(
                indices, whose * chunk + tl.where(more, row, next_row), tl.where(more, column, next_column) // DIM,
                tl.where(more, (group + 1) * UNROLL, 0), (whose + 1) * chunk, num_tables,
                PAIRS, TABLES, LANES, POOLING, UNROLL, EVEN, INDICES_CACHE,
            )  # fmt: skip
            device.issued(limit_ns < 0, error)
            if not COMPUTE_ONLY:
                if (at == program) & (group == 0):  # while the first rows are on their way
                    device.granted(credits_at, epoch, deadline, error, rank, WORLD)
            total += tl.sum(values.to(tl.float32), axis=0)
        stamp.write(stamps, at, stamp.COMPUTED)
        sample, place = row + pair // TABLES, (table + pair % TABLES) * DIM + start
        place = (sample.to(tl.int64) * stride + first_column + place)[:, None, None] + element[None, :, :]
        if EVEN:
            tl.store(out + place, total.to(DTYPE), cache_modifier=STORE_CACHE)
        else:
            mask = ((sample < chunk) & (table + pair % TABLES < num_tables))[:, None, None]
            mask = mask & (start + element < DIM)[None, :, :]
            tl.store(out + place, total.to(DTYPE), mask=mask, cache_modifier=STORE_CACHE)
        stamp.write(stamps, at, stamp.SENT)
        owner, row, column = next_owner, next_row, next_column
        next_owner, next_row, next_column = after_owner, after_row, after_column
    if not COMPUTE_ONLY:
        device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)
