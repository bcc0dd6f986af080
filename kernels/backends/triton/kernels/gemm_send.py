"""GEMM that sends each finished tile to its owner, which sums contributions in the epilogue of its own tiles."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device
from kernels.backends.triton.kernels import partial, sync
from kernels.backends.triton.kernels.tiles import chosen, multiply, rectangle, tile_table
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block, descriptors
from kernels.backends.triton.memory import Context
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.reference import Operands
from kernels.schedule import Tile, tile
from kernels.schemes import axis_rules, split_k


@triton.jit(do_not_specialize=["rank", "limit_ns", "cut", "cut_programs"])
def gemm_send(
    a, b, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, tiles, num_tiles, chunk, columns, contraction,
    out_at, stage_at, counters_at, credits_at, done_at, epoch_at, arrived, error, limit_ns, rank,
    units, adders, begins, cut, cut_programs, sums, added, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    DTYPE: tl.constexpr, REDUCES: tl.constexpr, BROADCASTS: tl.constexpr, TMA: tl.constexpr,
    STORE_CACHE: tl.constexpr, BULK: tl.constexpr, CUTS: tl.constexpr, AT_A_TIME: tl.constexpr,
):  # fmt: skip
    """Multiplies a [m, k] by b [k, n] and sends each tile to the owner of its rows; REDUCES: summed there over ranks.

    *tiles* [num_tiles, 4] int32: owner, row inside the owner's chunk, column, number of the tile inside the chunk; in
    the order of the plan. *to_0* ..: by rank, a descriptor of where its tiles go (out, or our slot of its stage);
    arbitrary beyond WORLD. Without BULK, a and b are pointers, and nothing is a descriptor.
    *out_at*, *stage_at*, *counters_at*, *credits_at*, *done_at*: int64 addresses of those tensors on each rank.

    A sum is computed in the epilogue of our own tile: our own rows come last, so that peers' contributions are in our
    stage by then. With BROADCASTS the epilogue stores the sum into the out of all ranks.

    CUTS: the first *cut* tiles are computed by *units* and *adders* (see `partial.py`), of program p those from
    *begins* [2, cut_programs + 1] on, before the others, which are whole.

    *stamps*: a record for each tile, then for each tile's sum, which only own tiles have; then for units and adders.
    """
    targets = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    device.grant(credits_at, rank, WORLD, program)
    late = tl.full((), -1, tl.int32)  # number of the tile that has left but is not signalled yet
    late_owner = rank
    first = program
    if CUTS:
        first += cut
        partial.compute_cut_tiles(a, b, 0, units, adders, begins, cut_programs, sums, added,
                                  device.peer(out_at, rank, DTYPE), chunk, columns, contraction, epoch, deadline, error,
                                  rank, stamps, 2 * num_tiles, program, programs, BLOCK_M, BLOCK_N, BLOCK_K, DTYPE,
                                  BULK, AT_A_TIME)  # fmt: skip
    if WORLD == 1:
        counted = device.count_in(arrived)
    sync.begin(stamps, first, first < num_tiles)
    # flat: the next tile's operands are in flight while this one is stored; a barrier in the loop would prevent that
    for at in tl.range(first, num_tiles, programs, flatten=BULK and not REDUCES):
        owner, row = tl.load(tiles + 4 * at), tl.load(tiles + 4 * at + 1)
        column, number = tl.multiple_of(tl.load(tiles + 4 * at + 2), 16), tl.load(tiles + 4 * at + 3)
        total = multiply(a, b, owner * chunk + row, chunk - row, column, columns, contraction,
                         BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
        sync.write(stamps, at, sync.COMPUTED)
        if at == first:
            device.granted(credits_at, epoch, deadline, error, rank, WORLD)
        if REDUCES:
            if owner == rank:
                sync.begin(stamps, num_tiles + at)
                if late >= 0:  # before waiting for peers that may wait for it
                    device.drain()
                    device.signal(device.peer(counters_at, late_owner, tl.int32) + late)
                    late = -1
                counter = device.peer(counters_at, rank, tl.int32) + number
                device.wait(counter, epoch * (WORLD - 1), deadline, error, rank, device.TILE, number)
                sync.write(stamps, num_tiles + at, sync.WAITED)
                place, mask = rectangle(row, column, chunk, columns, columns, BLOCK_M, BLOCK_N)
                stage = device.peer(stage_at, rank, DTYPE)
                for other in tl.static_range(WORLD):
                    if other != rank:
                        slot = stage + tl.cast(other * chunk, tl.int64) * columns
                        total += tl.load(slot + place, mask=mask, other=0.0).to(tl.float32)
                value = total.to(DTYPE)
                sync.write(stamps, num_tiles + at, sync.COMPUTED)
                if BROADCASTS:
                    place, mask = rectangle(rank * chunk + row, column, (rank + 1) * chunk, columns, columns,
                                            BLOCK_M, BLOCK_N)  # fmt: skip
                    for step in tl.static_range(WORLD):
                        other = (rank + step) % WORLD
                        tl.store(device.peer(out_at, other, DTYPE) + place, value, mask=mask)
                else:
                    tl.store(device.peer(out_at, rank, DTYPE) + place, value, mask=mask)
                sync.write(stamps, num_tiles + at, sync.SENT)
            else:
                if TMA:
                    if late >= 0:  # before the next tile leaves: a release waits for all stores in flight
                        device.drain()
                        device.signal(device.peer(counters_at, late_owner, tl.int32) + late)
                    device.put_tma(chosen(targets, owner, WORLD), row, column, total.to(DTYPE))
                    late, late_owner = number, owner
                else:
                    place, mask = rectangle(row, column, chunk, columns, columns, BLOCK_M, BLOCK_N)
                    slot = device.peer(stage_at, owner, DTYPE) + tl.cast(rank * chunk, tl.int64) * columns
                    tl.store(slot + place, total.to(DTYPE), mask=mask, cache_modifier=STORE_CACHE)
                    device.signal(device.peer(counters_at, owner, tl.int32) + number)
        else:
            if TMA:
                device.put_tma(chosen(targets, owner, WORLD), row, column, total.to(DTYPE))
            else:
                place, mask = rectangle(row, column, chunk, columns, columns, BLOCK_M, BLOCK_N)
                slot = device.peer(out_at, owner, DTYPE) + tl.cast(rank * chunk, tl.int64) * columns
                tl.store(slot + place, total.to(DTYPE), mask=mask, cache_modifier=STORE_CACHE)
        sync.next_tile(stamps, at, programs, num_tiles)
    if WORLD == 1:
        device.leave(counted, epoch_at, arrived, epoch, programs)  # the end of a kernel is the end of its bulk stores
        return
    device.drain()
    if REDUCES:
        if late >= 0:
            device.signal(device.peer(counters_at, late_owner, tl.int32) + late)
    if REDUCES and not BROADCASTS:  # all that peers sent was awaited, and later tiles need credit
        device.leave(device.count_in(arrived), epoch_at, arrived, epoch, programs)
    else:
        device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_send` for one trial; *operands* a [m, k] and b [k, n] are on the rank's device."""
    problem, schedule = context.problem, context.plan.schedule
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    extent, (a, b) = operator.extent(problem), operands.values()
    table = tile_table(context.plan, context.rank).to(context.device)
    of_units = partial.arguments(context, *_first_places(context))
    cuts = of_units[0] is not None
    return LaunchableKernel(
        function=gemm_send,
        arguments=(
            block(a, size.m, size.k, bulk=context.bulk), block(b, size.k, size.n, bulk=context.bulk),
            *(_for_itself(context, table, size) if alone else _for_peers(context, table, size)),
            extent.columns, extent.contraction, *_places(context, alone),
            context.epoch, context.arrived, context.error, context.limit_ns, 0 if alone else context.rank,
            *of_units, None,
        ),
        constants={
            "WORLD": 1 if alone else problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "DTYPE": TRITON_DTYPES[problem.dtype], "REDUCES": operator.reduces and not alone,
            "BROADCASTS": operator.flow is Flow.BROADCAST and not alone, "BULK": context.bulk,
            "TMA": schedule["store"] == "tma" and context.bulk, "STORE_CACHE": axis_rules.modifier(schedule),
            "CUTS": cuts, "AT_A_TIME": split_k.adder_columns(size, schedule.count("num_warps")) if cuts else 0,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=max(len(table), context.plan.schedule.count("grid") if cuts else 0),
        grid=schedule.count("grid"),
        takes_fewer=cuts,
        records=2 * len(table) + (len(of_units[0]) + len(of_units[1]) if cuts else 0),
    )  # fmt: skip


def _first_places(context: Context) -> tuple[Any, Any]:
    """First row in the whole result and first column of each tile, in the order of the plan."""
    tiles, operator = context.plan.tiles[context.rank], OPERATORS[context.problem.operator]
    return tiles.chunk * operator.chunk_rows(context.problem) + tiles.row_start, tiles.col_start


def _for_peers(context: Context, table: Tensor, size: Tile) -> tuple[Any, ...]:
    """Arguments for a communicating launch: targets by owner, tiles, their number, rows of a chunk."""
    operator = OPERATORS[context.problem.operator]
    chunk = operator.chunk_rows(context.problem)
    slots = [_slot(context, owner, chunk, operator.reduces) for owner in range(context.world)]
    return *descriptors(slots, size.m, size.n, bulk=context.bulk), table, len(table), chunk


def _for_itself(context: Context, table: Tensor, size: Tile) -> tuple[Any, ...]:
    """The same arguments as if this rank owned all rows, so that results stay local."""
    chunk, whole = OPERATORS[context.problem.operator].chunk_rows(context.problem), table.clone()
    whole[:, 1] += whole[:, 0] * chunk
    whole[:, 0] = 0
    to = descriptors([context.local], size.m, size.n, bulk=context.bulk)
    return *to, whole, len(whole), context.local.shape[0]


def _places(context: Context, alone: bool) -> list[Tensor]:
    """Addresses by rank of out, stage, tile counters, credits and done."""
    if alone:
        local_at = torch.tensor([context.local.data_ptr()], dtype=torch.int64, device=context.device)
        return [local_at] * 5
    stage = "stage" if OPERATORS[context.problem.operator].reduces else "out"
    return [context.addresses(name) for name in ("out", stage, "counters", "credits", "done")]


def _slot(context: Context, owner: int, chunk: int, reduces: bool) -> Tensor:
    """Where this rank's tiles go on *owner*."""
    if reduces:
        return context.of(owner, "stage")[context.rank]
    return context.of(owner, "out")[context.rank * chunk : (context.rank + 1) * chunk]
