"""GEMM whose sums go from rank to rank: each adds its tile to the sum at the owner, and all owners get tiles at a time.

A rank that sends a wave of tiles holds itself up: the next tile begins when the links have taken this one. With tiles
for all owners, its own among them, only a part of a wave leaves, and others compute meanwhile (docs/kernels.md).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device, flat
from kernels.backends.triton.kernels import gemm_send, sync
from kernels.backends.triton.kernels.tiles import chosen, computed, tile_table
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block, descriptors
from kernels.backends.triton.memory import Context
from kernels.operators import OPERATORS
from kernels.reference import Operands
from kernels.schedule import tile


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def gemm_ring(
    a, b, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, tiles, num_tiles, each, chunk, columns,
    contraction, counters_at, credits_at, done_at, epoch_at, arrived, error, limit_ns, rank, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Multiplies a [m, k] by b [k, n]; each rank gets the sum over all ranks of the *chunk* rows that it owns.

    *tiles* [num_tiles, 4] int32 in the order of the plan (`schemes.fused.ring`): owner, row inside its chunk, column,
    number inside the chunk. There are *each* in a chunk, and as many for each number of ranks that come before. Those
    that have none are stored. Others are added by bulk stores when the rank before has counted. *to_0* ..: by rank, a
    descriptor of its result.

    The next rank of every sum is the one before this rank. It has a counter for each tile, by owner from itself on,
    which this rank raises when it has computed its next tile: the sum has left by then. Each part waits for the one
    before it, so the order never depends on timing. Every part and every sum is rounded to DTYPE, as in NCCL's ring.
    All programs run at once: one may wait for a higher one of the next rank.

    *stamps*: a record for each tile, then, at the same number, for each that is added.
    """
    targets = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    device.grant(credits_at, rank, WORLD, program)
    counters = device.peer(counters_at, rank, tl.int32)
    next_rank = device.peer(counters_at, (rank + WORLD - 1) % WORLD, tl.int32)
    sync.begin(stamps, program, program < num_tiles)
    for at in tl.range(program, each, programs, flatten=True):
        total = computed(a, b, tiles, at, chunk, columns, contraction, stamps, BLOCK_M, BLOCK_N, BLOCK_K)
        if at == program:  # who adds later waits for those who store, and needs no credit
            device.granted(credits_at, epoch, deadline, error, rank, WORLD)
        count(tiles, at - programs, program, each, next_rank, rank, WORLD)
        entry = tiles + 4 * at
        row, column = tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
        device.put_tma(chosen(targets, tl.load(entry), WORLD), row, column, total.to(DTYPE))
        sync.next_tile(stamps, at, programs, num_tiles)
    last = num_tiles - each  # from here on nobody comes after this rank
    first = program + tl.cdiv(tl.maximum(each - program, 0), programs) * programs
    for at in tl.range(first, num_tiles, programs, flatten=True):
        total = computed(a, b, tiles, at, chunk, columns, contraction, stamps, BLOCK_M, BLOCK_N, BLOCK_K)
        sync.begin(stamps, num_tiles + at)
        if at - programs < last:  # before waiting for a rank that may wait for it
            count(tiles, at - programs, program, each, next_rank, rank, WORLD)
        entry = tiles + 4 * at
        owner, row, column = tl.load(entry), tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
        number = (owner - rank + WORLD) % WORLD * each + tl.load(entry + 3)
        row += flat.wait(counters + number, epoch, deadline, error, rank, device.TILE, number)
        sync.write(stamps, num_tiles + at, sync.WAITED)
        device.add_tma(chosen(targets, owner, WORLD), row, column, total.to(DTYPE))
        sync.write(stamps, num_tiles + at, sync.COMPUTED)
        sync.next_tile(stamps, at, programs, num_tiles)
    at = program + (tl.cdiv(num_tiles - program, programs) - 1) * programs
    if at < last:
        count(tiles, at, program, each, next_rank, rank, WORLD)
    device.drain()
    device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)


@triton.jit
def count(tiles, at, program, each, next_rank, rank, WORLD: tl.constexpr):
    """Raises the counter of tile *at* of *program* on the next rank, if there is such a tile."""
    if at >= program:
        entry = tiles + 4 * at
        number = (tl.load(entry) - rank + 1 + WORLD) % WORLD * each + tl.load(entry + 3)
        flat.signal(next_rank + number)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_ring` for one trial; *alone*: of `gemm_send`, which computes the same tiles in the same order."""
    if alone:
        return gemm_send.kernel(context, operands, alone=True)
    problem, schedule, world = context.problem, context.plan.schedule, context.world
    operator, size, (a, b) = OPERATORS[problem.operator], tile(schedule["tile"]), operands.values()
    extent, table = operator.extent(problem), tile_table(context.plan, context.rank)
    results = [context.of(owner, "out") for owner in range(world)]
    return LaunchableKernel(
        function=gemm_ring,
        arguments=(
            block(a, size.m, size.k, bulk=True), block(b, size.k, size.n, bulk=True),
            *descriptors(results, size.m, size.n), table.to(context.device), len(table), len(table) // world,
            operator.chunk_rows(problem), extent.columns, extent.contraction,
            *(context.addresses(name) for name in ("counters", "credits", "done")),
            context.epoch, context.arrived, context.error, context.limit_ns, context.rank, None,
        ),
        constants={
            "WORLD": world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "DTYPE": TRITON_DTYPES[problem.dtype],
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=len(table),
        grid=schedule.count("grid"),
        records=2 * len(table),
    )  # fmt: skip
