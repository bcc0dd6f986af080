"""Waits and signals for flat loops, which load the next tile while the current one leaves; barriers would prevent that.

The rules of memory order are those of `device.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.kernels import sync


@triton.jit
def wait(counter, expected, deadline, error, rank, kind: tl.constexpr, index):
    """`device.wait` for a flat loop with pipelined loads: Triton does not flatten a loop around another loop.

    All threads poll and synchronize at the end; the bulk copy engine may read and write from then on. Returns 0, which
    callers add to an address so that loads from it come after the wait.
    """
    if device.INTERPRETED:
        device.wait(counter, expected, deadline, error, rank, kind, index)
        return tl.full((), 0, tl.int32)
    late = tl.inline_asm_elementwise(
        device.known("""{
        .reg .pred here, over, any;
        .reg .u64 time;
        .reg .u32 value, distance, raised;
        again:
        ld.relaxed.sys.global.u32 value, [$1];
        sub.s32 distance, value, $2;
        setp.ge.s32 here, distance, 0;
        @here bra done;
        ld.relaxed.gpu.global.u32 raised, [$4];
        mov.u64 time, %globaltimer;
        setp.ge.u64 over, time, $3;
        setp.ne.or.u32 over, raised, 0, over;
        @!over bra again;
        done:
        bar.warp.sync 0xffffffff;
        ld.acquire.sys.global.u32 value, [$1];
        sub.s32 distance, value, $2;
        setp.lt.s32 over, distance, 0;
        fence.proxy.async;
        bar.red.or.pred any, 0, over;
        selp.u32 $0, 1, 0, any;
        }"""),
        "=r,l,r,l,l", [counter.to(tl.int64), expected, deadline, error.to(tl.int64)], dtype=tl.int32, is_pure=False,
        pack=1,
    )  # fmt: skip
    if late != 0:
        device.fail(error, rank, kind, index, expected, device.seen(counter))
    return tl.minimum(late, 0)


@triton.jit
def wait_for_columns(k, later, stamps):
    """Waits at the steps *k* of a contraction at which later columns of rows begin, until all peers have pushed them.

    *later*: whether it waits; the two steps; counters [2, world] of this rank; the epoch that they reach; deadline,
    error, rank; the tile's first record of *stamps*, and how many tiles have one for each step; world.

    Returns 0, as `wait` does. At all other steps it costs a comparison: Triton pipelines no bare inline PTX, but an
    `if` around it goes into the stage of the load that needs it.
    """
    waits, soon, middle, counters, epoch, deadline, error, rank, record, tiles, world = later
    late = tl.full((), 0, tl.int32)
    if waits & ((k == soon) | (k == middle)):
        late = _wait_for_peers(counters + tl.where(k == soon, 0, world), epoch, deadline, error, rank, world)
    sync.begin(stamps, record, k == soon)
    sync.begin(stamps, record + tiles, k == middle)
    return late


@triton.jit
def _wait_for_peers(counters, expected, deadline, error, rank, world: tl.constexpr):
    """`wait` for *counters* [world] of all ranks but *rank*, for rows: each of the first threads polls one.

    A thread acquires for all others, which it meets then. Then the one whose counter is late writes the error word:
    `device.fail` would stand in the loop as often as loads are ahead.
    """
    if device.INTERPRETED:
        ranks = tl.arange(0, device.power_above(world))
        others = (ranks < world) & (ranks != rank)
        device.wait_each(counters + ranks, others, expected, deadline, error, rank, device.ROWS, -1)
        return tl.full((), 0, tl.int32)
    thread = tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    polls = (thread < world) & (thread != rank)
    return tl.inline_asm_elementwise(
        device.known("""{
        .reg .pred here, over, any;
        .reg .u64 time;
        .reg .u32 value, distance, raised;
        setp.eq.u32 here, $5, 0;
        @here bra done;
        again:
        ld.relaxed.sys.global.u32 value, [$1];
        sub.s32 distance, value, $2;
        setp.ge.s32 here, distance, 0;
        @here bra done;
        ld.relaxed.gpu.global.u32 raised, [$4];
        mov.u64 time, %globaltimer;
        setp.ge.u64 over, time, $3;
        setp.ne.or.u32 over, raised, 0, over;
        @!over bra again;
        done:
        bar.warp.sync 0xffffffff;
        mov.u32 distance, 0;
        setp.ne.u32 here, $5, 0;
        @here ld.acquire.sys.global.u32 value, [$1];
        @here sub.s32 distance, value, $2;
        setp.lt.s32 over, distance, 0;
        bar.red.or.pred any, 0, over;
        fence.proxy.async;
        @!any bra.uni here_all;
        @!over bra named;
        atom.global.cas.b32 raised, [$4], 0, 1;
        setp.ne.u32 here, raised, 0;
        @here bra named;
        st.global.u32 [$4+4], $6;
        st.global.u32 [$4+8], $8;
        st.global.u32 [$4+12], $7;
        st.global.u32 [$4+16], $2;
        st.global.u32 [$4+20], value;
        named:
        bar.warp.sync 0xffffffff;
        here_all:
        mov.u32 $0, 0;
        }"""),
        "=r,l,r,l,l,r,r,r,r",
        [(counters + thread).to(tl.int64), expected, deadline, error.to(tl.int64), polls.to(tl.int32), rank, thread,
         tl.full((), device.ROWS, tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def signal(counter):
    """`device.drain` and `device.signal` for such a loop: covers stores of threads and of the bulk copy engine."""
    if not device.INTERPRETED:
        tl.inline_asm_elementwise(
            device.known("cp.async.bulk.wait_group 0; fence.proxy.async; bar.sync 0; mov.u32 $0, 0;"),
            "=r", [], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    tl.atomic_add(counter, 1, sem="release", scope="sys")
