"""Waits and signals for flat loops, which load the next tile while the current one leaves; barriers would prevent that.

The rules of memory order are those of `device.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device


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
def wait_for_peers(counters, expected, deadline, error, rank, world: tl.constexpr):
    """`wait` for *counters* [world] of all ranks but *rank*, for rows: each of the first threads polls one. Returns 0.

    They acquire for all others, which they meet then. They do so in every poll: products wait meanwhile, and midway a
    first read mostly finds what it asks for. A thread whose counter is late writes the error word itself, in fewer
    instructions than `device.fail`: a pipelined loop has a copy of them for each load that is ahead.
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
        mov.u32 distance, 0;
        setp.eq.u32 here, $5, 0;
        @here bra done;
        again:
        ld.acquire.sys.global.u32 value, [$1];
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
