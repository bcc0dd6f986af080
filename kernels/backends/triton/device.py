"""Triton, extended so that a kernel can communicate: put, get, signal, wait, reduce, and the rules of memory order.

Memory order, explained here and nowhere else
---------------------------------------------
Ranks address each other's memory (`peer`) and notify each other with *signals*: counters in symmetric memory that only
rise. A counter that is raised once per call equals the *epoch*, the number of the call, so nothing is ever reset and a
CUDA graph may be replayed any number of times: the epoch lies in device memory (`epoch_now`, `finish`). Counters and
epochs are int32 and go on from 2^31 - 1 at -2^31: their distance decides, never which one is larger (`behind`).

1. Data before signal. All threads of a thread block store a tile, and one of them signals. `signal` therefore first
   synchronizes the thread block (`tl.debug_barrier`), then adds with `sem="release", scope="sys"`: a rank that sees
   the signal with `wait` also sees the data. Without the barrier the signal may overtake other threads' stores; with
   the default scope ("gpu") it may overtake them on other GPUs.
2. The bulk copy engine (TMA) stores (`put_tma`) through another agent, the async proxy. `drain` waits until its stores
   are *written*, not only read from shared memory, and hands them over to the generic proxy. A signal without a
   `drain` in between may overtake them. GPUs before sm_90 have no such engine: there `drain` and the others are the
   barrier that they contain (`known`), and all stores are those of threads.
3. Signal before data. `wait` polls relaxed, which is cheap, and then reads once with `sem="acquire"`, whose value
   decides the result: plain loads after it see the data. Loads by the bulk copy engine need a `fence_proxy` in between.
4. Transitivity. Thread blocks that count themselves in with acq_rel atomics (`finish`) pass on what they have seen: the
   last one signals for all, since what happened before its counter was read happened before its signal.
5. Packets (`put_packets`, `take_packets`) carry their epoch in the same 8 bytes as their data. Aligned 8-byte stores
   are not torn, so no signal and no fence is needed. A place is used every second call, by parity of the epoch, so that
   a packet that is still being read is not overwritten: a peer can be at most one call further, because it needs our
   packets of the call in between. The parity is the lowest bit: the rest of a division of a negative epoch may be -1.
6. Credit. A peer may begin call e + 1 while our next kernel still reads the result of call e. `grant` says that our
   buffers may be written in this call, `granted` waits for it before the first store to a peer.

Every wait ends: at `deadline` (globaltimer nanoseconds) it writes an error word and lets the kernel run to its end; the
epoch rises as in any call, and the host turns the word into a message. All threads of a thread block leave a wait in
the same iteration (`given_up`). Nothing traps, since a trap would poison the process's CUDA context. Once the word is
raised, no wait of this rank lasts longer than POLLS polls: a graph of many calls ends one deadline after its first
failure, not one deadline per call. The host never clears the word but makes a new one with each Context: results after
a failure are of no use.

Triton's interpreter runs the same source on CPU ranks (TRITON_INTERPRET=1): one thread, programs in order of their
number, so that a program may wait for lower programs of the same rank, and for any program of another rank.
"""

from __future__ import annotations

import os
import time

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

from kernels import occupancy

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
"""Whether kernels of this process are interpreted: inline PTX has no interpreter path of its own."""
HOST_NS = tl.constexpr(time.monotonic_ns)
"""The interpreter's clock. A constant, since the compiler reads the interpreted branches without compiling them."""
NAP_SECONDS = 1e-4
"""Pause between two polls of an interpreted kernel: about as long as one of its instructions takes."""


class _NsAfterANap:
    """A function whose text holds no address: it is part of Triton's key of a compiled kernel, the same everywhere."""

    def __call__(self) -> int:
        time.sleep(NAP_SECONDS)
        return time.monotonic_ns()

    def __repr__(self) -> str:
        return "nanoseconds after a nap"

    def __deepcopy__(self, known: dict[int, object]) -> _NsAfterANap:
        return self  # Triton compares its copy of a global at every launch, and refuses one that differs


HOST_NS_AFTER_A_NAP = tl.constexpr(_NsAfterANap())
BULK_ONLY = ("cp.async.bulk", "fence.proxy.async")
"""Instructions of the bulk copy engine, and the fence between its memory accesses and those of threads."""


@triton.constexpr_function
def known(statements):
    """*statements* of PTX without those that the GPU that is compiled for does not know: BULK_ONLY before sm_90."""
    if cuda_capability_geq(occupancy.BULK // 10):
        return statements
    return ";".join([each for each in statements.split(";") if not each.strip().startswith(BULK_ONLY)])


POLLS = tl.constexpr(1 if INTERPRETED.value else 64)
"""Polls of a wait between two reads of the clock, on which all threads of the thread block have to agree."""
NOBODY = tl.constexpr(-1)

ERROR_WORDS = ("raised", "rank", "signal", "index", "expected", "seen")
"""Names of the int32 values of the error word, in order; `raised` is 0 until a failure. The first failure stays."""

# Kinds of waits, stored as `signal` in the error word; memory.SIGNALS has a label for each.
CREDIT = tl.constexpr(1)
DONE = tl.constexpr(2)
TILE = tl.constexpr(3)
ROWS = tl.constexpr(4)
PACKET = tl.constexpr(5)
MEET = tl.constexpr(6)
SIGNAL = tl.constexpr(7)
PIECE = tl.constexpr(8)
PARTIAL = tl.constexpr(9)
SLICE = tl.constexpr(10)
UNSENT = tl.constexpr(11)


@triton.jit
def now():
    """The globaltimer in nanoseconds; it ticks once a microsecond on some cards (`workbench doctor` measures it)."""
    if INTERPRETED:
        return tl.full((), HOST_NS(), tl.int64)
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def given_up(deadline, error):
    """1 if *deadline* has passed or the error word is raised, else 0: all threads of the thread block decide together.

    Each thread reads clock and word at another moment. A thread that left a polling loop one iteration before its
    neighbours would wait at another barrier forever. Interpreted ranks share cores: a waiting rank yields its core.
    """
    if INTERPRETED:
        late = tl.full((), HOST_NS_AFTER_A_NAP(), tl.int64) >= deadline
        return (late | (tl.load(error, volatile=True) != 0)).to(tl.int32)
    return tl.inline_asm_elementwise(
        """{
        .reg .pred mine, any;
        .reg .u64 time;
        .reg .u32 raised;
        ld.relaxed.gpu.global.u32 raised, [$2];
        mov.u64 time, %globaltimer;
        setp.ge.u64 mine, time, $1;
        setp.ne.or.u32 mine, raised, 0, mine;
        bar.red.or.pred any, 0, mine;
        selp.u32 $0, 1, 0, any;
        }""",
        "=r,l,l", [deadline, error.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def processor():
    """Number of the SM that runs this thread block."""
    if INTERPRETED:
        return tl.full((), 0, tl.int32)
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def deadline_after(limit_ns):
    """The globaltimer value at which waits of this thread block give up: *limit_ns* from now."""
    return now() + limit_ns


@triton.jit
def peer(addresses, rank, dtype: tl.constexpr):
    """Pointer to *rank*'s memory of element type *dtype*, from a table of int64 addresses, 16-byte aligned."""
    return tl.multiple_of(tl.load(addresses + rank).to(tl.pointer_type(dtype)), 16)


# ---- data


@triton.jit
def put(places, values, mask=None):
    """Stores *values* at *places* (pointers, any rank's): visible after a `wait` for a later `signal` (rule 1)."""
    tl.store(places, values, mask=mask)


@triton.jit
def get(places, mask=None):
    """Loads *places* (pointers, any rank's), 0 outside *mask*: after `wait`, the values put before its signal."""
    if mask is None:
        return tl.load(places)
    return tl.load(places, mask=mask, other=0)


@triton.jit
def reduce(addresses, offsets, mask, dtype: tl.constexpr, world: tl.constexpr):
    """float32 sum over ranks of the elements *offsets* of each rank's tensor, at *addresses* by rank, after `wait`.

    Every rank adds in the same order, so that all get bitwise equal sums.
    """
    total = get(peer(addresses, 0, dtype) + offsets, mask).to(tl.float32)
    for other in tl.static_range(1, world):
        total += get(peer(addresses, other, dtype) + offsets, mask).to(tl.float32)
    return total


@triton.jit
def tile_in_order(step, tiles, slice_tiles, rank, order: tl.constexpr, world: tl.constexpr):
    """Tile that a rank computes as its number *step*: the owner, and the number among that owner's *tiles*.

    *order* is a value of the axis `tile_order`. natural: owners in the order of their ranks. remote_first: the same,
    but own tiles last. rotated: own tiles last, and peers from the next rank on, so that no two ranks start with the
    same peer. interleaved: rotated, *slice_tiles* of each owner at a time. Kernels with a Plan read its table instead.
    """
    if order == "interleaved":
        turn = step // (slice_tiles * world)
        wide = tl.minimum(slice_tiles, tiles - turn * slice_tiles)  # the last slices may be narrower
        within = step - turn * slice_tiles * world
        position, number = within // wide, turn * slice_tiles + within % wide
    else:
        position, number = step // tiles, step % tiles
    if order == "natural":
        owner = position
    elif order == "remote_first":
        owner = tl.where(position == world - 1, rank, position + (position >= rank).to(tl.int32))
    else:
        tl.static_assert((order == "rotated") | (order == "interleaved"))
        owner = (rank + 1 + position) % world
    return owner, number


# ---- signals


@triton.jit
def signal(counter, amount=1):
    """Raises *counter* (int32, any rank's) after all earlier stores of this thread block (rule 1)."""
    tl.debug_barrier()
    tl.atomic_add(counter, amount, sem="release", scope="sys")


@triton.jit
def signal_here(counter):
    """`signal` of a word that only this GPU reads."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def seen(counter):
    """Current value of *counter*, read without any ordering: for polling."""
    return tl.atomic_add(counter, 0, sem="relaxed", scope="sys")


@triton.jit
def behind(value, expected):
    """Whether a counter that shows *value* has yet to reach *expected*: they are less than 2^31 apart, and may wrap."""
    return value - expected < 0


@triton.jit
def fail(error, rank, kind, index, expected, value):
    """Writes the error word, unless an earlier failure has written it."""
    if tl.atomic_cas(error, 0, 1) == 0:
        tl.store(error + 1, rank)
        tl.store(error + 2, kind)
        tl.store(error + 3, index)
        tl.store(error + 4, expected)
        tl.store(error + 5, value)


@triton.jit
def wait(counter, expected, deadline, error, rank, kind: tl.constexpr, index):
    """Waits until *counter* is at least *expected* (rule 3); at *deadline* it writes what it waited for as error word.

    After the first failure it returns at once, whatever the counter is.
    """
    value, polls, late = seen(counter), tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    while behind(value, expected) & (late == 0):
        value = seen(counter)
        polls += 1
        if polls % POLLS == 0:
            late = given_up(deadline, error)
    value = tl.atomic_add(counter, 0, sem="acquire", scope="sys")
    if behind(value, expected):
        fail(error, rank, kind, index, expected, value)


FEW = tl.constexpr(2)
"""Most ranks that are signalled and awaited one after the other; more of them at once, each by a thread of its own."""


@triton.constexpr_function
def power_above(count):
    """The first power of two that is not less than *count*."""
    return 1 << (count - 1).bit_length()


@triton.jit
def every_rank(addresses, world: tl.constexpr):
    """int32 pointers to all ranks' memory, from a table of int64 addresses, in a tensor of a power of two; see below.

    Behind them, and everywhere that a mask leaves out, are zeros.
    """
    rank = tl.arange(0, power_above(world))
    return tl.load(addresses + rank, mask=rank < world, other=0).to(tl.pointer_type(tl.int32))


@triton.jit
def signal_each(counters, chosen, amount=1):
    """`signal` of every one of *counters* that is *chosen*; both are tensors. Their flights are one, not a sum."""
    tl.debug_barrier()
    tl.atomic_add(counters, amount, mask=chosen, sem="release", scope="sys")


@triton.jit
def wait_each(counters, chosen, expected, deadline, error, rank, kind: tl.constexpr, index):
    """`wait` for every one of *counters* that is *chosen*; *index* -1: the number of the first late one is written.

    Each thread polls a counter of its own, so that no wait begins after another. At the end all threads meet.
    """
    if INTERPRETED:
        value, late = _seen_each(counters, chosen), tl.full((), 0, tl.int32)
        while (tl.sum((chosen & behind(value, expected)).to(tl.int32)) > 0) & (late == 0):
            value = _seen_each(counters, chosen)
            late = given_up(deadline, error)
        late = tl.sum((chosen & behind(value, expected)).to(tl.int32))
    else:
        late = tl.max(_wait_each(counters, chosen, expected, deadline, error))
    if late > 0:
        value, number = _seen_each(counters, chosen), tl.arange(0, counters.shape[0])
        first = tl.min(tl.where(chosen & behind(value, expected), number, counters.shape[0] - 1))
        shown = tl.sum(tl.where(number == first, value, 0))
        fail(error, rank, kind, tl.where(index < 0, first, index), expected, shown)


@triton.jit
def _seen_each(counters, chosen):
    """Current values of *counters*, without any ordering; 0 where none is *chosen*."""
    if INTERPRETED:
        return tl.atomic_add(counters, 0, mask=chosen, sem="relaxed", scope="sys")
    return tl.inline_asm_elementwise(
        """{
        .reg .pred here;
        setp.ne.u32 here, $2, 0;
        mov.u32 $0, 0;
        @here ld.relaxed.sys.global.u32 $0, [$1];
        }""",
        "=&r,l,r", [counters.to(tl.int64), chosen.to(tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def _wait_each(counters, chosen, expected, deadline, error):
    """1 everywhere if any of the *chosen* *counters* is late, else 0; clock and error word are read every 64 polls."""
    return tl.inline_asm_elementwise(
        """{
        .reg .pred here, over, any;
        .reg .u64 time;
        .reg .u32 value, distance, raised, polls;
        mov.u32 polls, 0;
        setp.eq.u32 here, $5, 0;
        @here bra done;
        again:
        ld.relaxed.sys.global.u32 value, [$1];
        sub.s32 distance, value, $2;
        setp.ge.s32 here, distance, 0;
        @here bra done;
        add.u32 polls, polls, 1;
        and.b32 raised, polls, 63;
        setp.ne.u32 here, raised, 0;
        @here bra again;
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
        selp.u32 $0, 1, 0, any;
        }""",
        "=r,l,r,l,l,r", [counters.to(tl.int64), expected, deadline, error.to(tl.int64), chosen.to(tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def signal_peers(addresses, rank, world: tl.constexpr):
    """Raises this rank's counter, by its number, of every other rank."""
    if world == 1:
        pass  # the compiler does not know that this rank is number 0
    elif world <= FEW:
        for other in tl.static_range(world):
            if other != rank:
                signal(peer(addresses, other, tl.int32) + rank)
    else:
        other = tl.arange(0, power_above(world))
        signal_each(every_rank(addresses, world) + rank, (other < world) & (other != rank))


@triton.jit
def wait_for_peers(addresses, epoch, deadline, error, rank, kind: tl.constexpr, world: tl.constexpr):
    """Waits until every other rank has raised its counter of this rank to *epoch*."""
    counters = peer(addresses, rank, tl.int32)
    if world == 1:
        pass
    elif world <= FEW:
        for other in tl.static_range(world):
            if other != rank:
                wait(counters + other, epoch, deadline, error, rank, kind, other)
    else:
        other = tl.arange(0, power_above(world))
        wait_each(counters + other, (other < world) & (other != rank), epoch, deadline, error, rank, kind, -1)


@triton.jit
def issued(never, error):
    """Keeps all earlier loads in flight together before the first one is waited for.

    Otherwise ptxas moves each load close to its use, to save registers, and few are in flight. It moves nothing across
    a branch that is long enough to stay a branch; *never* is a condition that is false, but not provably so.
    """
    if never:
        fail(error, NOBODY, NOBODY, 0, 0, 0)


# ---- the bulk copy engine


@triton.jit
def put_tma(descriptor, row, column, tile):
    """Sends *tile* through shared memory to a peer; it has arrived after `drain` (rule 2)."""
    descriptor.store([row, column], tile)


@triton.jit
def add_tma(descriptor, row, column, tile):
    """As `put_tma`, but adds *tile* to the values at the target, in their dtype."""
    if INTERPRETED:
        descriptor.store([row, column], descriptor.load([row, column]) + tile)
    else:
        descriptor.atomic_add([row, column], tile)


@triton.jit
def drain():
    """Waits until all bulk stores of this thread block are written, and orders them before a later signal (rule 2)."""
    if not INTERPRETED:
        tl.inline_asm_elementwise(
            known("cp.async.bulk.wait_group 0; fence.proxy.async; mov.u32 $0, 0;"),
            "=r", [], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    tl.debug_barrier()


@triton.jit
def drain_but_one():
    """As `drain`, but the last bulk store may still be in flight: a tile is signalled while the next one leaves."""
    if not INTERPRETED:
        tl.inline_asm_elementwise(
            known("cp.async.bulk.wait_group 1; fence.proxy.async; mov.u32 $0, 0;"),
            "=r", [], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    tl.debug_barrier()


@triton.jit
def signal_but_one(counter):
    """`drain_but_one` and `signal` for a loop with pipelined loads: Triton pipelines no loop that has a barrier."""
    if not INTERPRETED:
        tl.inline_asm_elementwise(
            known("cp.async.bulk.wait_group 1; fence.proxy.async; bar.sync 0; mov.u32 $0, 0;"),
            "=r", [], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    tl.atomic_add(counter, 1, sem="release", scope="sys")


@triton.jit
def fence_proxy():
    """Allows the bulk copy engine to read data that a `wait` has waited for (rule 3)."""
    if not INTERPRETED:
        tl.inline_asm_elementwise(
            known("fence.proxy.async; mov.u32 $0, 0;"), "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


# ---- one call


@triton.jit
def epoch_now(epoch):
    """Number of this call, counted from 1; it wraps, as counters do."""
    return tl.load(epoch) + 1


@triton.jit
def grant(credits, rank, world: tl.constexpr, program):
    """Lets all peers write into this rank's buffers (rule 6); *credits*: each rank's counters, by writer."""
    if program == 0:
        signal_peers(credits, rank, world)


@triton.jit
def granted(credits, epoch, deadline, error, rank, world: tl.constexpr):
    """Waits until all peers' buffers may be written (rule 6)."""
    wait_for_peers(credits, epoch, deadline, error, rank, CREDIT, world)


@triton.jit
def finish(epoch_at, arrived, done, epoch, deadline, error, rank, world: tl.constexpr, programs):
    """Ends the call: the last program of this rank signals all peers and waits for their signals (rule 4).

    Every program calls it once, after `drain` if it used the bulk copy engine. When the kernel has ended, all data of
    this call have arrived and are visible to the next kernel of the stream.
    """
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == programs - 1:
        tl.atomic_xchg(arrived, 0, sem="relaxed", scope="gpu")
        signal_peers(done, rank, world)
        wait_for_peers(done, epoch, deadline, error, rank, DONE, world)
        tl.atomic_xchg(epoch_at, epoch, sem="relaxed", scope="gpu")


@triton.jit
def count_in(arrived):
    """For `leave`: counts this program in, once it needs the word of the epoch no more; it does not wait.

    Returns how many came before, and -1 in all threads but the first, which alone gets the answer. All threads meet
    first, so that none of them has yet to read the epoch.
    """
    tl.debug_barrier()
    if INTERPRETED:
        return tl.atomic_add(arrived, 1, sem="relaxed", scope="gpu")
    return tl.inline_asm_elementwise(
        """{
        .reg .pred first;
        .reg .u32 thread;
        mov.u32 thread, %tid.x;
        setp.eq.u32 first, thread, 0;
        mov.u32 $0, -1;
        @first atom.relaxed.gpu.global.add.u32 $0, [$1], 1;
        }""",
        "=&r,l", [arrived.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def leave(before, epoch_at, arrived, epoch, programs):
    """Ends the call without waiting for peers; *before*: what `count_in` returned.

    For kernels that have awaited all that peers sent to this rank, and where whatever peers write here later waits for
    a credit, or goes to the other half (rule 5). It orders no data. The program that was counted last raises the epoch.
    """
    if INTERPRETED:
        if before == programs - 1:
            tl.store(arrived, 0)
            tl.store(epoch_at, epoch)
    else:
        tl.inline_asm_elementwise(
            """{
            .reg .pred last;
            setp.eq.s32 last, $1, $2;
            @last st.relaxed.gpu.global.u32 [$3], 0;
            @last st.relaxed.gpu.global.u32 [$4], $5;
            mov.u32 $0, 0;
            }""",
            "=r,r,r,l,l,r", [before, programs - 1, arrived.to(tl.int64), epoch_at.to(tl.int64), epoch], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip


# ---- packets: data and epoch in the same 8 bytes


@triton.jit
def put_packets(places, values, epoch, mask):
    """Stores *values* (float32 or int32) with *epoch* at *places* (int64 pointers, any rank's), rule 5.

    `.wt` makes the store STRONG.SYS, as `st.relaxed.sys` would be, and lets two packets share one store. Inline PTX
    would be run by every thread that holds a copy of a value, and values that were just reduced have many copies.
    """
    word = (epoch.to(tl.int64) << 32) | values.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.store(places, word, mask=mask, cache_modifier=".wt")


@triton.jit
def take_packets(places, epoch, mask, deadline, error, rank, index):
    """float32 values at *places* (int64 pointers, this rank's) once all are of *epoch*; it ends as `wait`."""
    word = tl.load(places, mask=mask, other=0, volatile=True)
    missing = tl.sum((mask & ((word >> 32) != epoch)).to(tl.int32))
    polls, late = tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    while (missing > 0) & (late == 0):
        word = tl.load(places, mask=mask, other=0, volatile=True)
        missing = tl.sum((mask & ((word >> 32) != epoch)).to(tl.int32))
        polls += 1
        if polls % POLLS == 0:
            late = given_up(deadline, error)
    if missing > 0:
        fail(error, rank, PACKET, index, epoch, missing)
    return word.to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def add_packets(
    places, step, epoch, mask, deadline, error, rank, index, WORLD: tl.constexpr, DTYPE: tl.constexpr
):  # fmt: skip
    """float32 sums over ranks, in their order, of the first and of the second values of packets, as `take_packets`.

    Those of rank r lie at *places* + r * *step*. Two values of 16 bits are a word; of float32 both results are the sum.
    """
    first, second, missing = _added(places, step, epoch, mask, WORLD, DTYPE)
    polls, late = tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    while (missing > 0) & (late == 0):
        first, second, missing = _added(places, step, epoch, mask, WORLD, DTYPE)
        polls += 1
        if polls % POLLS == 0:
            late = given_up(deadline, error)
    if missing > 0:
        fail(error, rank, PACKET, index, epoch, missing)
    return first, second


@triton.jit
def _added(places, step, epoch, mask, WORLD: tl.constexpr, DTYPE: tl.constexpr):
    """The same of what lies there now, and how many packets are of another epoch.

    Nothing lies between the loads, so that ptxas issues all of them before it uses the first.
    """
    first, second = tl.zeros(places.shape, dtype=tl.float32), tl.zeros(places.shape, dtype=tl.float32)
    missing = tl.zeros(places.shape, dtype=tl.int32)
    for source in tl.static_range(WORLD):
        word = tl.load(places + source * step, mask=mask, other=0, volatile=True)
        missing += (mask & ((word >> 32) != epoch)).to(tl.int32)
        one, two = unpacked(word.to(tl.int32), DTYPE)
        first, second = first + one, second + two
    return first, second, tl.sum(missing)


@triton.jit
def packed(values, DTYPE: tl.constexpr):
    """int32 words of *values* [m, n] rounded to DTYPE: [m, n], or [m, n / 2] with two neighbours of 16 bits each."""
    rounded = values.to(DTYPE)
    if DTYPE.primitive_bitwidth == 32:
        return rounded.to(tl.int32, bitcast=True)
    pairs = tl.reshape(rounded, (values.shape[0], values.shape[1] // 2, 2))
    first, second = tl.split(pairs)
    return paired(first, second, DTYPE)


@triton.jit
def paired(first, second, DTYPE: tl.constexpr):
    """int32 words: *first* in the lower and *second* in the upper half, rounded to DTYPE; of float32 *first* alone."""
    if DTYPE.primitive_bitwidth == 32:
        return first.to(tl.int32, bitcast=True)
    low = first.to(DTYPE).to(tl.uint16, bitcast=True).to(tl.uint32)
    high = second.to(DTYPE).to(tl.uint16, bitcast=True).to(tl.uint32)
    return (low | (high << 16)).to(tl.int32, bitcast=True)


@triton.jit
def unpacked(words, DTYPE: tl.constexpr):
    """float32 of the first and of the second value of each of *words* (int32), of DTYPE; of float32 the same twice."""
    if DTYPE.primitive_bitwidth == 32:
        value = words.to(tl.float32, bitcast=True)
        return value, value
    low, high = words.to(tl.uint16), (words >> 16).to(tl.uint16)
    return low.to(DTYPE, bitcast=True).to(tl.float32), high.to(DTYPE, bitcast=True).to(tl.float32)
