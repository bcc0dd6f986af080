"""GEMM whose tiles leave by SMs that only send: those that compute put them aside, where no link holds them up.

An SM whose tile leaves over a link begins its next one when the links have taken this one (docs/kernels.md). Tiles of
peers come first, so that the senders have the whole call for them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device, flat
from kernels.backends.triton.kernels import gemm_send, sync
from kernels.backends.triton.kernels.tiles import chosen, computed, rectangle, tile_table
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block, descriptors
from kernels.backends.triton.memory import Context
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.reference import Operands
from kernels.schedule import tile

SEND_STAGES = tl.constexpr(4)
"""Pipeline stages of an SM that only sends: it loads later pieces while it stores earlier ones."""
SEND_BYTES = 16 * 1024
"""Bytes of a piece that such an SM sends at once."""


@triton.jit(do_not_specialize=["rank", "limit_ns", "comm_programs"])
def gemm_relay(
    a, b, aside_0, aside_1, aside_2, aside_3, aside_4, aside_5, aside_6, aside_7, ours, theirs, leaving, sums_here,
    out_at, tiles, num_tiles, remote, chunk, columns, contraction, counters_at, credits_at, done_at, epoch_at, arrived,
    error, limit_ns, rank, comm_programs, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SEND_M: tl.constexpr,
    DTYPE: tl.constexpr, SUMS: tl.constexpr, BROADCASTS: tl.constexpr,
):  # fmt: skip
    """Multiplies a [m, k] by b [k, n] and brings each tile to the owner of its rows; SUMS: added there, by two ranks.

    *tiles* [num_tiles, 4] int32 in the order of the plan: owner, row inside its chunk, column, number inside the chunk;
    the first *remote* ones are those of peers. Descriptors: *aside_0* .. by owner of memory [chunk, n] of this rank,
    *ours* and *theirs* of where own tiles go here and on the peer, *leaving* and *sums_here* of what senders read, in
    pieces of SEND_M rows: all asides [WORLD * chunk, n], and our out. *out_at*: by rank, the address of its out.

    The last *comm_programs* programs send, the others compute a wave of tiles at a time. A peer's tile is put aside.
    When its wave is complete, senders store it where it belongs. SUMS: what the peer sent then lies in *ours*, and this
    rank adds its own part. BROADCASTS: senders bring these sums to the peer, too. But each program's last tile, behind
    which nothing comes, leaves by itself.

    A rank has a counter for each wave of peers' tiles that lies aside, for each wave of sums, and for each wave that
    the peer has sent. So every launch has equally many programs, on both ranks. All run at once: those that compute
    wait for the peer's senders.

    *stamps*: a record for each tile, then for each tile's sum, which only own tiles have. What senders bring they stamp
    as sent.
    """
    # launchers before Triton 3.7 take no tuple of them
    asides = (aside_0, aside_1, aside_2, aside_3, aside_4, aside_5, aside_6, aside_7)
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    device.grant(credits_at, rank, WORLD, program)
    senders = tl.minimum(comm_programs, programs // 2)  # some programs have to compute
    computing = programs - senders
    waves = tl.cdiv(remote, computing)
    kept = tl.maximum(num_tiles - computing, remote) if BROADCASTS else num_tiles  # those behind leave by themselves
    summed = tl.cdiv(kept - remote, computing)
    here = device.peer(counters_at, rank, tl.int32)
    sums = here + waves
    brought = sums + summed
    if program < computing:
        sync.begin(stamps, program, program < num_tiles)
        for at in tl.range(program, remote, computing, flatten=True):
            total = computed(a, b, tiles, at, chunk, columns, contraction, stamps, BLOCK_M, BLOCK_N, BLOCK_K)
            entry = tiles + 4 * at
            row, column = tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
            device.put_tma(chosen(asides, tl.load(entry), WORLD), row, column, total.to(DTYPE))
            flat.signal(here + at // computing)
            sync.begin(stamps, at + computing, at + computing < num_tiles)
        first = program + tl.cdiv(tl.maximum(remote - program, 0), computing) * computing
        for at in tl.range(first, kept, computing, flatten=True):
            total = computed(a, b, tiles, at, chunk, columns, contraction, stamps, BLOCK_M, BLOCK_N, BLOCK_K)
            entry = tiles + 4 * at
            row, column = tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
            if SUMS:
                wave = (at - remote) // computing
                sync.begin(stamps, num_tiles + at)
                row += flat.wait(brought + wave, epoch * senders, deadline, error, rank, device.PIECE, wave)
                sync.write(stamps, num_tiles + at, sync.WAITED)
                device.add_tma(ours, row, column, total.to(DTYPE))
                sync.write(stamps, num_tiles + at, sync.COMPUTED)
                if BROADCASTS:
                    flat.signal(sums + wave)
            else:
                device.put_tma(ours, row, column, total.to(DTYPE))
            sync.begin(stamps, at + computing, at + computing < num_tiles)
        if BROADCASTS:
            first = program + tl.cdiv(tl.maximum(kept - program, 0), computing) * computing
            for at in tl.range(first, num_tiles, computing):
                total = computed(a, b, tiles, at, chunk, columns, contraction, stamps, BLOCK_M, BLOCK_N, BLOCK_K)
                entry = tiles + 4 * at
                row, column = tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
                wave = (at - remote) // computing
                sync.begin(stamps, num_tiles + at)
                device.wait(brought + wave, epoch * senders, deadline, error, rank, device.PIECE, wave)
                device.fence_proxy()
                sync.write(stamps, num_tiles + at, sync.WAITED)
                value = total.to(DTYPE) + ours.load([row, column])
                sync.write(stamps, num_tiles + at, sync.COMPUTED)
                device.put_tma(theirs, row, column, value)
                device.put_tma(ours, row, column, value)
                sync.write(stamps, num_tiles + at, sync.SENT)
    else:
        device.granted(credits_at, epoch, deadline, error, rank, WORLD)
        sender = program - computing
        for wave in range(waves):
            end = tl.minimum(remote, (wave + 1) * computing)
            device.wait(here + wave, epoch * (end - wave * computing), deadline, error, rank, device.PIECE, wave)
            device.fence_proxy()
            bring(leaving, out_at, tiles, wave * computing + sender, end, senders, chunk, columns, rank, stamps, 0,
                  BLOCK_M, BLOCK_N, SEND_M, DTYPE, SUMS, BROADCASTS, False)  # fmt: skip
            if SUMS:
                device.signal(device.peer(counters_at, 1 - rank, tl.int32) + waves + summed + wave)
        if BROADCASTS:
            for wave in range(summed):
                start = remote + wave * computing
                end = tl.minimum(kept, start + computing)
                device.wait(sums + wave, epoch * (end - start), deadline, error, rank, device.PIECE, waves + wave)
                device.fence_proxy()
                bring(sums_here, out_at, tiles, start + sender, end, senders, chunk, columns,
                      rank, stamps, num_tiles, BLOCK_M, BLOCK_N, SEND_M, DTYPE, SUMS, BROADCASTS, True)  # fmt: skip
    device.drain()
    if SUMS and not BROADCASTS:  # all that the peer sent was awaited, and later tiles need credit
        device.leave(device.count_in(arrived), epoch_at, arrived, epoch, programs)
    else:
        device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)


@triton.jit
def bring(
    source, out_at, tiles, first, end, senders, chunk, columns, rank, stamps, record,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SEND_M: tl.constexpr, DTYPE: tl.constexpr, SUMS: tl.constexpr,
    BROADCASTS: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    """Puts every *senders*-th tile from *first* on, up to *end*, where it belongs, in pieces of SEND_M rows.

    Peers' tiles lie in *source* by owner, sums (SUMMED) where the out of this rank has them.
    """
    parts: tl.constexpr = BLOCK_M // SEND_M
    for piece in tl.range(0, tl.cdiv(tl.maximum(end - first, 0), senders) * parts, num_stages=SEND_STAGES):
        at = first + piece // parts * senders
        entry = tiles + 4 * at
        owner, row = tl.load(entry), tl.load(entry + 1) + piece % parts * SEND_M
        column = tl.load(entry + 2)
        value = source.load([owner * chunk + row, column])
        # a hint on what a pipelined loop carries is lost, and without it values leave two bytes at a time
        place, mask = rectangle(row, column // 16 * 16, chunk, columns, columns, SEND_M, BLOCK_N)
        aside = tl.cast(owner * chunk, tl.int64) * columns
        target = device.peer(out_at, 1 - rank if SUMMED else owner, DTYPE)
        if BROADCASTS:
            target += aside
        elif not SUMS:
            target += tl.cast(rank * chunk, tl.int64) * columns
        tl.store(target + place, value, mask=mask)
        sync.write(stamps, record + at, sync.SENT)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_relay` for one trial; *alone*: of `gemm_send`, which computes the same tiles in that order."""
    if alone:
        return gemm_send.kernel(context, operands, alone=True)
    problem, schedule, rank, world = context.problem, context.plan.schedule, context.rank, context.world
    operator, size, (a, b) = OPERATORS[problem.operator], tile(schedule["tile"]), operands.values()
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    table, stage, out = tile_table(context.plan, rank), context.of(rank, "stage"), context.of(rank, "out")
    ours, theirs = (_own_rows(context, where) for where in (rank, (rank + 1) % world))
    put, comm = min(size.m, SEND_BYTES // (size.n * problem.itemsize)), schedule.count("comm_sms")
    return LaunchableKernel(
        function=gemm_relay,
        arguments=(
            block(a, size.m, size.k, bulk=True), block(b, size.k, size.n, bulk=True),
            *descriptors(list(stage), size.m, size.n),
            *(block(rows, size.m, size.n, bulk=True) for rows in (ours, theirs)),
            *(block(rows, put, size.n, bulk=True) for rows in (stage.view(-1, extent.columns), out)),
            context.addresses("out"), table.to(context.device), len(table), int((table[:, 0] != rank).sum()),
            chunk, extent.columns, extent.contraction,
            *(context.addresses(name) for name in ("counters", "credits", "done")),
            context.epoch, context.arrived, context.error, context.limit_ns, rank, comm, None,
        ),
        constants={
            "WORLD": world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k, "SEND_M": put,
            "DTYPE": TRITON_DTYPES[problem.dtype], "SUMS": operator.reduces,
            "BROADCASTS": operator.flow is Flow.BROADCAST,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=len(table) + comm,
        grid=schedule.count("grid"),
        one_each=True,
        records=2 * len(table),
    )  # fmt: skip


def _own_rows(context: Context, where: int) -> Tensor:
    """Where this rank's own tiles lie in the out of rank *where*; for a peer only those of an all-reduce are read."""
    out, operator = context.of(where, "out"), OPERATORS[context.problem.operator]
    if operator.reduces and operator.flow is not Flow.BROADCAST:
        return out
    chunk = operator.chunk_rows(context.problem)
    return out[context.rank * chunk : (context.rank + 1) * chunk]
