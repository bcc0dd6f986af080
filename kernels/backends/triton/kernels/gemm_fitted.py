"""GEMM of one rank in tiles of any number of columns: one instruction for all of them, and a warp that only loads.

Triton's own products have sides that are powers of two. The instruction (`wgmma` of sm_90) takes any multiple of 8, so
it is written as PTX here, inside a Gluon kernel: Gluon places operands in shared memory and moves them.

A ring of *stages* steps lies in shared memory. One warp fills it, also with the first steps of the next tile, and waits
for nothing else. Two barriers of each stage say that its operands are there, and that nobody reads them any more. The
results of a tile leave from the stages of its last steps, which are given back when they have been read.
"""

from __future__ import annotations

from typing import Any

import triton.experimental.gluon.language as gl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels import fitted
from kernels.backends.triton import device
from kernels.backends.triton.kernels import sync
from kernels.backends.triton.kernels.tiles import tile_table
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.reference import Operands
from kernels.schedule import Refusal, tile

if not hasattr(gl, "thread_barrier"):  # its name since Triton 3.7
    gl.thread_barrier = gl.barrier

UNIT = gl.constexpr(1024)
"""Bytes of 8 rows of 128: what the swizzle permutes, and what the pool in shared memory is counted in."""
ROWS_LAST = gl.constexpr(0x4000004000000000)
"""Descriptor of an operand whose contraction is contiguous, without its address: swizzle of 128 bytes (1 in bits 62 and
63), and 1,024 bytes from 8 rows to the next 8 (64 in bits 32 to 45, in 16 bytes). PTX ISA, "Matrix descriptor"."""


@gluon.constexpr_function
def rows_first(panel_bytes):
    """The same of an operand whose rows or columns are contiguous, in panels of 64 steps of the contraction by 128 or
    64 bytes: swizzle of as many bytes (2 in bits 62 and 63: 64), and in 16 bytes the way to the next 8 steps (8 rows of
    a panel) and to the next panel (64 rows, bits 16 to 29).
    """
    return (0x4000 if panel_bytes == 128 else -0x8000) << 48 | panel_bytes // 2 << 32 | panel_bytes * 4 << 16


# ---- PTX of one step


def multiply(m: int, n: int, dtype: str, swapped: bool, panel_bytes: int = 128) -> tuple[str, str]:
    """Text and constraints of one step: 16 of the contraction at a time, for each 64 rows of a group of warps.

    *panel_bytes*: of a panel of the operand whose rows or columns are contiguous.
    """
    groups = min(fitted.GROUPS_MOST, m // fitted.GROUP_ROWS)
    each, sums = m // fitted.GROUP_ROWS // groups, n // 2
    first, second = f"${2 * each * sums}", f"${2 * each * sums + 4}"
    # in 16 bytes: along the contraction an operand's next 16 are 32 bytes away, or 16 rows of a panel
    (across, along), transposed = ((panel_bytes, 2), "1, 0") if swapped else ((2, panel_bytes), "0, 1")
    instruction = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype}"
    lines = ["{", ".reg .pred adds;", ".reg .b64 x, y;", "setp.eq.u32 adds, 0, 0;", "wgmma.fence.sync.aligned;"]
    for k in range(fitted.STEP // 16):
        for part in range(each):
            registers = ", ".join(f"${part * sums + number}" for number in range(sums))
            lines += [
                f"add.s64 x, {first}, {across * k + 512 * groups * part};", f"add.s64 y, {second}, {along * k};",
                f"{instruction} {{{registers}}}, x, y, adds, 1, 1, {transposed};",
            ]  # fmt: skip
    lines += ["wgmma.commit_group.sync.aligned;", "}"]
    return "\n".join(lines), _in_place(each * sums, "l" * 8)


def wait_for_all(count: int) -> tuple[str, str]:
    """Text and constraints of the wait for all products of *count* sums, which nobody may read before."""
    return "wgmma.wait_group.sync.aligned 0;", _in_place(count, "")


def zeros(count: int) -> tuple[str, str]:
    """Text and constraints of *count* sums that are 0."""
    return "\n".join(f"mov.f32 ${number}, 0f00000000;" for number in range(count)), ",".join(["=f"] * count + ["r"] * 4)


def _in_place(count: int, others: str) -> str:
    """Constraints of *count* sums that are read and written, and then of *others*."""
    return ",".join(["=f"] * count + [str(number) for number in range(count)] + list(others))


# ---- where things lie


@gluon.constexpr_function
def sum_before(pieces, number):
    """What comes before piece *number*."""
    return sum(pieces[:number])


@gluon.constexpr_function
def leaving(pieces, parts, group_rows, units):
    """For each part of M and each piece of N: (stage counted from the last one, unit inside it) where it leaves from.

    *units*: of one stage. A piece never lies in two stages.
    """
    places, stage, used = [], 0, 0
    for _ in range(parts):
        for piece in pieces:
            count = group_rows * piece * 2 // 1024
            if used + count > units:
                stage, used = stage + 1, 0
            places.append((stage, used))
            used += count
    return tuple(places)


@gluon.constexpr_function
def stages_leaving(pieces, parts, group_rows, units):
    """Number of stages from which results leave."""
    return leaving(pieces, parts, group_rows, units)[-1][0] + 1


@gluon.constexpr_function
def floats(count):
    """float32, so many times: a tensor of 8 columns has 4 sums in each thread."""
    return (gl.float32,) * count


@gluon.constexpr_function
def place_of(places, number, part):
    """Stage (0) or unit (1) of a place."""
    return places[number][part]


@gluon.jit
def barriers(pool, STAGES: gl.constexpr, UNITS: gl.constexpr):
    """Behind the ring: whether the operands of each stage are there, then whether each stage may be filled."""
    return pool.index(STAGES * UNITS)._reinterpret(gl.int64, [2 * STAGES, 1], mbarrier.MBarrierLayout())


@gluon.jit
def pool_start():
    """Address of the pool, the first thing in shared memory: a test reads that in PTX, and Gluon does not tell it."""
    return gl.inline_asm_elementwise("mov.u32 $0, global_smem;", "=r", [], gl.int32, is_pure=True, pack=1)


@gluon.jit
def make_barriers(first, STAGES: gl.constexpr, WARPS: gl.constexpr):
    """Initializes the barriers at address *first*: one thread arrives when operands come, each of WARPS reads them.

    Not `mbarrier.init`: around each one Triton 3.6 has all warps meet.
    """
    for number in gl.static_range(2 * STAGES):
        gl.inline_asm_elementwise(
            """{ .reg .pred first; .reg .u32 t; mov.u32 t, %tid.x; setp.eq.u32 first, t, 0; mov.u32 $0, 0;
            @first mbarrier.init.shared::cta.b64 [$1], $2; }""",
            "=r,r,n", [first + 8 * number, 1 if number < STAGES else WARPS], gl.int32, is_pure=False, pack=1,
        )  # fmt: skip


# ---- the warp that loads


@gluon.jit
def load_tiles(pool, x, y_0, y_1, y_2, y_3, y_4, tiles, num_tiles, contraction, row, column,
               STAGES: gl.constexpr, M: gl.constexpr, N: gl.constexpr, PIECES: gl.constexpr, SWAPPED: gl.constexpr,
               DTYPE: gl.constexpr, PANEL: gl.constexpr):  # fmt: skip
    """Loads all steps of all tiles of this program into the ring; the first one begins at *row* and *column*."""
    UNITS: gl.constexpr = (M + N) // 8
    bars = barriers(pool, STAGES, UNITS)
    count = 0
    for at in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        later = tiles + 4 * gl.minimum(at + gl.num_programs(0), num_tiles - 1)
        next_row, next_column = gl.load(later + 1), gl.load(later + 2)
        for k in range(0, contraction, 64):
            stage = count % STAGES
            mbarrier.wait(bars.index(STAGES + stage), ((count // STAGES) & 1) ^ 1)
            load_step(pool, bars.index(stage), stage * UNITS, x, y_0, y_1, y_2, y_3, y_4, row, column, k,
                      M, N, PIECES, SWAPPED, DTYPE, PANEL)  # fmt: skip
            count += 1
        row, column = next_row, next_column


@gluon.jit
def load_step(pool, bar, first, x, y_0, y_1, y_2, y_3, y_4, row, column, k,
              M: gl.constexpr, N: gl.constexpr, PIECES: gl.constexpr, SWAPPED: gl.constexpr,
              DTYPE: gl.constexpr, PANEL: gl.constexpr):  # fmt: skip
    """Loads one step: M rows or columns, then the pieces of N, from unit *first* of the pool on."""
    PANELS: gl.constexpr = gl.NVMMASharedLayout(PANEL, 16, 2)
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    ys = (y_0, y_1, y_2, y_3, y_4)
    mbarrier.expect(bar, (M + N) * 128)
    if SWAPPED:
        tma.async_copy_global_to_shared(x, [k, column], bar, pool.index(first)._reinterpret(DTYPE, [64, M], SWIZZLED))
    else:
        tma.async_copy_global_to_shared(x, [row, k], bar, pool.index(first)._reinterpret(DTYPE, [M, 64], SWIZZLED))
    for j in gl.static_range(len(PIECES)):
        place = pool.index(first + M // 8 + sum_before(PIECES, j) // 8)
        if SWAPPED:
            tma.async_copy_global_to_shared(ys[j], [row + sum_before(PIECES, j), k], bar,
                                            place._reinterpret(DTYPE, [PIECES[j], 64], SWIZZLED))  # fmt: skip
        else:
            tma.async_copy_global_to_shared(ys[j], [k, column + sum_before(PIECES, j)], bar,
                                            place._reinterpret(DTYPE, [64, PIECES[j]], PANELS))  # fmt: skip


# ---- the warps that multiply


@gluon.jit
def multiply_tiles(pool, to_0, to_1, to_2, to_3, to_4, tiles, num_tiles, contraction, epoch_at, arrived, stamps,
                   GROUPS: gl.constexpr, STAGES: gl.constexpr, M: gl.constexpr, N: gl.constexpr, PIECES: gl.constexpr,
                   SWAPPED: gl.constexpr, DTYPE: gl.constexpr, PANEL: gl.constexpr, ZEROS: gl.constexpr,
                   MULTIPLY: gl.constexpr, WAIT: gl.constexpr):  # fmt: skip
    """Multiplies all tiles of this program, stores them and ends the call.

    The results of a tile are on their way while the next one begins: its first step lies in a stage that they leave
    alone. So only then the stages that they leave from are given back.
    """
    epoch = device.epoch_now(epoch_at)
    counted = device.count_in(arrived)
    UNITS: gl.constexpr = (M + N) // 8
    PARTS: gl.constexpr = M // (64 * GROUPS)
    SUMS: gl.constexpr = floats(M * N // (512 * GROUPS))
    HELD: gl.constexpr = stages_leaving(PIECES, PARTS, 64 * GROUPS, UNITS)
    OF_SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4 * GROUPS, 1], [16, 8, 16])
    start = pool_start()
    group = gl.inline_asm_elementwise(
        "{ .reg .u32 t; mov.u32 t, %tid.x; shr.u32 t, t, 7; shfl.sync.idx.b32 $0, t, 0, 31, -1; }",
        "=r", [], gl.int32, is_pure=True, pack=1,
    )  # fmt: skip
    full = start + STAGES * UNITS * UNIT
    free = full + 8 * STAGES
    at_16 = (start >> 4).to(gl.int64)
    if SWAPPED:
        x_first, y_first = at_16 + rows_first(128) + group * 512, at_16 + ROWS_LAST + M * 8
    else:
        x_first, y_first = at_16 + ROWS_LAST + group * 512, at_16 + rows_first(PANEL) + M * 8
    steps = (contraction + 63) // 64
    seed = gl.full([64 * GROUPS, 8], 0, gl.int32, OF_SUMS)
    none = gl.full([64 * GROUPS, 8], 0, gl.int64, OF_SUMS)
    count = 0
    for at in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        sync.begin(stamps, at)
        row, column = gl.load(tiles + 4 * at + 1), gl.load(tiles + 4 * at + 2)
        total = gl.inline_asm_elementwise(ZEROS[0], ZEROS[1], [seed], SUMS, is_pure=False, pack=4)
        for i in range(steps):
            stage = count % STAGES
            await_phase(full + stage * 8, (count // STAGES) & 1)
            x, y = none + (x_first + stage * (UNITS * 64)), none + (y_first + stage * (UNITS * 64))
            total = gl.inline_asm_elementwise(MULTIPLY[0], MULTIPLY[1], total + (x, y), SUMS, is_pure=False, pack=4)  # noqa: RUF005
            if (i == 0) & (count > 0):
                give_back_read(free, count, STAGES, HELD, 4 * GROUPS)
            # the step before is done; results leave from the last HELD stages, so they are kept
            give_back(free + (count + STAGES - 1) % STAGES * 8, (i >= 1) & (i <= steps - HELD))
            count += 1
        total = gl.inline_asm_elementwise(WAIT[0], WAIT[1], total, SUMS, is_pure=False, pack=4)
        sync.write(stamps, at, sync.COMPUTED)
        gl.thread_barrier()  # all groups have read the stages from which results leave
        store_tile(pool, total, (to_0, to_1, to_2, to_3, to_4), row, column, count,
                   GROUPS, STAGES, PARTS, N, PIECES, SWAPPED, DTYPE, PANEL, UNITS)  # fmt: skip
        sync.write(stamps, at, sync.SENT)
    tma.store_wait(pendings=0)  # read, not written
    # the end of a kernel is the end of its bulk stores
    device.leave(counted, epoch_at, arrived, epoch, gl.num_programs(0))


@gluon.jit
def await_phase(bar, phase):
    """Waits until *bar*, an address, has completed the phase of parity *phase*.

    Not `mbarrier.wait`: before that Triton has all warps meet in each step, since results lie in the same pool.
    """
    gl.inline_asm_elementwise(
        """{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$1], $2; @!done bra again;
        mov.u32 $0, 0; }""",
        "=r,r,r", [bar, phase], gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def give_back_read(free, count, STAGES: gl.constexpr, HELD: gl.constexpr, WARPS: gl.constexpr):
    """Gives back the HELD stages before step *count*, for all WARPS, when the results that leave from them are read.

    The warp that has sent them waits for that. The other ones have nothing to wait for: what they read and wrote there
    was complete before results left.
    """
    for back in gl.static_range(HELD):
        gl.inline_asm_elementwise(
            """{ .reg .pred p, q; .reg .u32 t; mov.u32 t, %tid.x; setp.lt.u32 p, t, 32; mov.u32 $0, 0;
            @!p bra over; cp.async.bulk.wait_group.read 0; bar.warp.sync 0xffffffff; elect.sync _|q, 0xffffffff;
            @q mbarrier.arrive.shared::cta.b64 _, [$1], $2; over: }""",
            "=r,r,n", [free + (count + 2 * STAGES - 1 - back) % STAGES * 8, WARPS], gl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@gluon.jit
def give_back(bar, holds):
    """Waits until at most one step is multiplied; one thread of each warp arrives at *bar* where *holds*."""
    gl.inline_asm_elementwise("wgmma.wait_group.sync.aligned 1; mov.u32 $0, 0;", "=r", [], gl.int32,
                              is_pure=False, pack=1)  # fmt: skip
    gl.inline_asm_elementwise(
        """{ .reg .pred p, q; elect.sync _|p, 0xffffffff; setp.ne.and.u32 q, $2, 0, p;
        @q mbarrier.arrive.shared::cta.b64 _, [$1]; mov.u32 $0, 0; }""",
        "=r,r,r", [bar, holds.to(gl.int32)], gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def store_tile(pool, total, to, row, column, count, GROUPS: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
               N: gl.constexpr, PIECES: gl.constexpr, SWAPPED: gl.constexpr, DTYPE: gl.constexpr,
               PANEL: gl.constexpr, UNITS: gl.constexpr):  # fmt: skip
    """Puts results into the last stages before step *count*, from where the bulk copy engine takes them."""
    PANELS: gl.constexpr = gl.NVMMASharedLayout(PANEL, 16, 2)
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    R: gl.constexpr = 64 * GROUPS
    PLACES: gl.constexpr = leaving(PIECES, PARTS, R, UNITS)
    for part in gl.static_range(PARTS):
        for j in gl.static_range(len(PIECES)):
            value = joined(total, part * (N // 8) + sum_before(PIECES, j) // 8, PIECES[j] // 8, R, DTYPE)
            stage = (count + 2 * STAGES - 1 - place_of(PLACES, part * len(PIECES) + j, 0)) % STAGES
            place = pool.index(stage * UNITS + place_of(PLACES, part * len(PIECES) + j, 1))
            if SWAPPED:
                place._reinterpret(DTYPE, [PIECES[j], R], SWIZZLED).permute((1, 0)).store(value)
            else:
                place._reinterpret(DTYPE, [R, PIECES[j]], PANELS).store(value)
    fence_async_shared()
    gl.thread_barrier()
    for part in gl.static_range(PARTS):
        for j in gl.static_range(len(PIECES)):
            stage = (count + 2 * STAGES - 1 - place_of(PLACES, part * len(PIECES) + j, 0)) % STAGES
            place = pool.index(stage * UNITS + place_of(PLACES, part * len(PIECES) + j, 1))
            if SWAPPED:
                tma.async_copy_shared_to_global(to[j], [row + sum_before(PIECES, j), column + part * R],
                                                place._reinterpret(DTYPE, [PIECES[j], R], SWIZZLED))  # fmt: skip
            else:
                tma.async_copy_shared_to_global(to[j], [row + part * R, column + sum_before(PIECES, j)],
                                                place._reinterpret(DTYPE, [R, PIECES[j]], PANELS))  # fmt: skip


@gluon.jit
def joined(total, FIRST: gl.constexpr, COUNT: gl.constexpr, ROWS: gl.constexpr, DTYPE: gl.constexpr):
    """DTYPE [ROWS, 8 * COUNT]: COUNT tensors of 8 columns next to each other, from FIRST on."""
    if COUNT == 1:
        return total[FIRST].to(DTYPE)
    else:  # noqa: RET505  (the compiler follows what is after a return)
        HALF: gl.constexpr = COUNT // 2
        left = joined(total, FIRST, HALF, ROWS, DTYPE)
        right = joined(total, FIRST + HALF, HALF, ROWS, DTYPE)
        return gl.reshape(gl.permute(gl.join(left, right), (0, 2, 1)), (ROWS, 8 * COUNT))


# ---- the kernel


@gluon.jit
def gemm_fitted(
    x, y_0, y_1, y_2, y_3, y_4, to_0, to_1, to_2, to_3, to_4, tiles, num_tiles, contraction, epoch_at, arrived, stamps,
    GROUPS: gl.constexpr, STAGES: gl.constexpr, M: gl.constexpr, N: gl.constexpr, PIECES: gl.constexpr,
    SWAPPED: gl.constexpr, DTYPE: gl.constexpr, PANEL: gl.constexpr, ZEROS: gl.constexpr, MULTIPLY: gl.constexpr,
    WAIT: gl.constexpr,
):  # fmt: skip
    """Multiplies a [m, k] by b [k, n] into a result [m, n].

    *x*: descriptor of the operand of M, of b where SWAPPED, else of a. *y_0* ..: of the other one, and *to_0* .. of the
    result, in boxes of each of PIECES; None beyond. PANEL: bytes of a panel of b, unless SWAPPED. *tiles*, *epoch_at*,
    *arrived*, *stamps*: as in `gemm_send`.
    """
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    UNITS: gl.constexpr = (M + N) // 8
    pool = gl.allocate_shared_memory(DTYPE, [STAGES * UNITS + 1, 8, 64], SWIZZLED)
    first = tiles + 4 * gl.minimum(gl.program_id(0), num_tiles - 1)
    row, column = gl.load(first + 1), gl.load(first + 2)
    make_barriers(pool_start() + STAGES * UNITS * UNIT, STAGES, 4 * GROUPS)
    fence_async_shared()
    gl.thread_barrier()
    gl.warp_specialize([
        (multiply_tiles, (pool, to_0, to_1, to_2, to_3, to_4, tiles, num_tiles, contraction, epoch_at, arrived, stamps,
                          GROUPS, STAGES, M, N, PIECES, SWAPPED, DTYPE, PANEL, ZEROS, MULTIPLY, WAIT)),
        (load_tiles, (pool, x, y_0, y_1, y_2, y_3, y_4, tiles, num_tiles, contraction, row, column, STAGES, M, N,
                      PIECES, SWAPPED, DTYPE, PANEL)),
    ], [1], [40])  # fmt: skip
    pool._keep_alive()


DTYPES = {"bfloat16": (gl.bfloat16, "bf16"), "float16": (gl.float16, "f16")}
DESCRIPTORS = 5
"""Most pieces of N."""


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_fitted` for one trial; *operands* a [m, k] and b [k, n] are on the rank's device."""
    size, (a, b) = tile(context.plan.schedule["tile"]), operands.values()
    of, table = fitted.sides(size), tile_table(context.plan, context.rank).to(context.device)
    if device.INTERPRETED.value:
        raise Refusal(
            f"tile = {size} does not run in Triton's interpreter: its kernel is written with Gluon, of which it runs 0 "
            "instructions. Accepted: a tile whose sides are powers of two, or a GPU."
        )
    result, group_rows = context.local if alone else context.of(0, "out"), fitted.GROUP_ROWS * of.warps // 4
    (dtype, name), sums = DTYPES[context.problem.dtype], of.m * of.n // (32 * of.warps)
    x = _described(b, fitted.STEP, of.m) if of.swapped else _described(a, of.m, fitted.STEP)
    if of.swapped:
        ys = [_described(a, piece, fitted.STEP) for piece in of.pieces]
        to = [_described(result, piece, group_rows) for piece in of.pieces]
    else:
        ys = [_described(b, fitted.STEP, piece, of.panel_bytes) for piece in of.pieces]
        to = [_described(result, group_rows, piece, of.panel_bytes) for piece in of.pieces]
    beyond = [None] * (DESCRIPTORS - len(of.pieces))
    return LaunchableKernel(
        function=gemm_fitted,
        arguments=(x, *ys, *beyond, *to, *beyond, table, len(table), a.shape[1], context.epoch, context.arrived, None),
        constants={
            "GROUPS": of.warps // fitted.GROUP_WARPS, "STAGES": context.plan.schedule.count("num_stages"), "M": of.m,
            "N": of.n, "PIECES": of.pieces, "SWAPPED": of.swapped, "DTYPE": dtype, "PANEL": of.panel_bytes,
            "ZEROS": zeros(sums), "MULTIPLY": multiply(of.m, of.n, name, of.swapped, of.panel_bytes),
            "WAIT": wait_for_all(sums),
        },
        num_warps=of.warps,
        num_stages=context.plan.schedule.count("num_stages"),
        items=len(table),
        grid=context.plan.schedule.count("grid"),
        records=2 * len(table),
    )  # fmt: skip


def layout_of(panel_bytes: int = 128) -> Any:
    """How a box lies in shared memory whose rows are panels of so many bytes."""
    return gl.NVMMASharedLayout(panel_bytes, 16, 2)


def _described(tensor: Tensor, rows: int, columns: int, panel_bytes: int = 128) -> Any:
    return TensorDescriptor.from_tensor(tensor, [rows, columns], layout_of(panel_bytes))
