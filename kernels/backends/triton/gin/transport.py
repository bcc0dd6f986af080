"""What a kernel calls to reach other hosts: put with a signal, wait and flush with a deadline, and their twins.

Rules, in addition to those of memory order in `kernels/backends/triton/device.py`
---------------------------------------------------------------------------------
1. Each put raises a signal of its own place: one counter for each source, slice and parity of the call. Networks order
   nothing between two puts, so that one signal never stands for several puts. A counter that two sources share could be
   reached by the next call of the faster one, and one that two calls share by a put that overtakes the one before it.
2. Signals have 64 bits and only rise: what is expected is the number of the calls of that parity.
3. A put reads its source later: `flush` comes before the source is overwritten. The queue of one context and peer holds
   a few puts, and a put into a full queue waits without a deadline: `kernels/backends/triton/gin/table.py` proves from
   the table of puts that none is ever full between two flushes.
4. The receiver never says that it has read. Landing places alternate between two halves by the call's parity: who sends
   call e + 2 has seen everybody's call e + 1, which was sent after call e was read. So a lost put ends in a deadline.
5. Data that landed were written by the network, not by this GPU: they are loaded past the L1 (`.cg`).

Every function acts for the whole thread block, whose threads call it together; stores before a put belong to it. At the
deadline the error word says what was waited for, as for every wait, and no later wait of this rank lasts.

The interpreter cannot link device functions. There each function is a twin over memory that the ranks share, where a
put has arrived before it returns: the same kernels run, and late or reordered messages are those of the model in
`tests/kernels/backends/triton/gin/`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language import core

from kernels.backends.triton import device

TURN_CYCLES = tl.constexpr(50_000)
"""Cycles of the SM that one look at a signal may last: about 25 us, after which the deadline is looked at."""
AT_ONCE = tl.constexpr(4096)
"""Bytes that a twin copies at once."""

# Words of the int64 table that stands for a communicator on interpreted ranks; then the addresses, by rank, of data and
# of signals.
RANK, WORLD, SIGNALS, ADDRESSES = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)

# Words of the int64 table `network` of one trial.
COMM, WINDOW, HALF_BYTES, HALF_SIGNALS, CONTEXTS, ARRIVALS = (tl.constexpr(number) for number in range(6))
NETWORK_WORDS = 6
# Words of a slice that leaves (int64): its tiles, which raise COUNTER on this rank (-1: none); bytes from the windows'
# start, in the first half; its size; whose it is.
TILES, COUNTER, FROM, TO, BYTES, CONTEXT, SIGNAL, OWNER = (tl.constexpr(number) for number in range(8))
SLICE_WORDS = tl.constexpr(8)
# Words of a block of rows that arrives (int32): whose it is, the slice it is of, its rows, and the counter of this rank
# that it raises (-1: none).
SOURCE, NUMBER, TOP, HEIGHT, AT_CONTEXT, AT_SIGNAL, RAISES = (tl.constexpr(number) for number in range(7))
ARRIVAL_WORDS = tl.constexpr(7)
SLICES_MOST = tl.constexpr(1 << 16)
"""The error word names slice s of rank r as r times this plus s (`memory.SLICES_MOST`)."""

_I32, _I64 = core.dtype("int32"), core.dtype("int64")


def _entry(name: str, types: list[Any], result: Any, values: list[Any], semantic: Any) -> Any:
    """A call of entry point *name* of shim.ll; it is not pure, so that no call is left out or moved."""
    return core.extern_elementwise("", "", values, {tuple(types): (name, result)}, is_pure=False, _semantic=semantic)


@core.extern
def _put(comm, context, peer, target, to, source, start, num_bytes, signal, _semantic=None):
    return _entry("overlap_gin_put", [_I64, _I32, _I32, _I64, _I64, _I64, _I64, _I64, _I32], _I32,
                  [comm, context, peer, target, to, source, start, num_bytes, signal], _semantic)  # fmt: skip


@core.extern
def _pending(comm, context, signal, least, cycles, _semantic=None):
    return _entry("overlap_gin_pending", [_I64, _I32, _I32, _I64, _I64], _I32,
                  [comm, context, signal, least, cycles], _semantic)  # fmt: skip


@core.extern
def _signal(comm, context, signal, _semantic=None):
    return _entry("overlap_gin_signal", [_I64, _I32, _I32], _I64, [comm, context, signal], _semantic)


@core.extern
def _unsent(comm, context, cycles, _semantic=None):
    return _entry("overlap_gin_unsent", [_I64, _I32, _I64], _I32, [comm, context, cycles], _semantic)


# ---- twins of interpreted ranks


@triton.jit
def _word(comm, number):
    """Word *number* of the table that stands for a communicator."""
    return tl.load(comm.to(tl.pointer_type(tl.int64)) + number)


@triton.jit
def _counter(comm, rank, context, signal):
    """Pointer to a signal of *rank*, whose numbers are those of one context."""
    signals = _word(comm, ADDRESSES + _word(comm, WORLD) + rank).to(tl.pointer_type(tl.int64))
    return signals + context * _word(comm, SIGNALS) + signal


@triton.jit
def _carry(comm, context, peer, to, start, num_bytes, signal):
    """Copies *num_bytes* of this rank's data into *peer*'s, then raises the signal there."""
    source = _word(comm, ADDRESSES + _word(comm, RANK)).to(tl.pointer_type(tl.uint8)) + start
    target = _word(comm, ADDRESSES + peer).to(tl.pointer_type(tl.uint8)) + to
    for first in range(0, num_bytes, AT_ONCE):
        place = first + tl.arange(0, AT_ONCE)
        tl.store(target + place, tl.load(source + place, mask=place < num_bytes), mask=place < num_bytes)
    tl.atomic_add(_counter(comm, peer, context, signal), tl.full((), 1, tl.int64), sem="release", scope="sys")


# ---- what kernels call


@triton.jit
def put(comm, context, peer, target, to, source, start, num_bytes, signal):
    """Sends *num_bytes* of window *source* from byte *start* on to byte *to* of *peer*'s window *target*, and a signal.

    *comm*: int64, address of the device communicator; windows are int64. *context* has a queue and signals of its own.
    All stores of this thread block before it are part of what is sent.
    """
    numbers = tl.cast(to, tl.int64), tl.cast(start, tl.int64), tl.cast(num_bytes, tl.int64)
    if device.INTERPRETED:
        _carry(comm, context, peer, numbers[0], numbers[1], numbers[2], signal)
    else:
        tl.debug_barrier()
        _put(comm, tl.cast(context, tl.int32), tl.cast(peer, tl.int32), target, numbers[0], source, numbers[1],
             numbers[2], tl.cast(signal, tl.int32))  # fmt: skip


@triton.jit
def value_of(comm, context, signal):
    """int64: the signal as it is now, for messages and for counts that were agreed on before."""
    if device.INTERPRETED:
        counter = _counter(comm, _word(comm, RANK), context, signal)
        return tl.atomic_add(counter, tl.full((), 0, tl.int64), sem="acquire", scope="sys")
    return _signal(comm, tl.cast(context, tl.int32), tl.cast(signal, tl.int32))


@triton.jit
def _is_pending(comm, context, signal, expected):
    """1 while the signal is less than *expected*, the same in all threads of the block; it looks for TURN_CYCLES."""
    if device.INTERPRETED:
        return (value_of(comm, context, signal) < expected).to(tl.int32)
    return _pending(comm, tl.cast(context, tl.int32), tl.cast(signal, tl.int32), expected,
                    tl.full((), TURN_CYCLES, tl.int64))  # fmt: skip


@triton.jit
def wait(comm, context, signal, expected, deadline, error, rank, kind: tl.constexpr, index):
    """Waits until the signal is at least *expected* (int64); what was put with it may then be loaded (rule 5).

    At *deadline* it writes what it waited for as error word: *kind* and *index* as in `device.wait`.
    """
    late, over = _is_pending(comm, context, signal, expected), tl.full((), 0, tl.int32)
    while (late != 0) & (over == 0):
        over = device.given_up(deadline, error)
        late = _is_pending(comm, context, signal, expected)
    if late != 0:
        seen = value_of(comm, context, signal)
        device.fail(error, rank, kind, index, expected.to(tl.int32), seen.to(tl.int32))


@triton.jit
def flush(comm, context, deadline, error, rank):
    """Waits until the sources of all puts of *context* may be overwritten; it says nothing about their arrival."""
    if not device.INTERPRETED:
        cycles = tl.full((), TURN_CYCLES, tl.int64)
        late, over = _unsent(comm, tl.cast(context, tl.int32), cycles), tl.full((), 0, tl.int32)
        while (late != 0) & (over == 0):
            over = device.given_up(deadline, error)
            late = _unsent(comm, tl.cast(context, tl.int32), cycles)
        if late != 0:
            device.fail(error, rank, device.UNSENT, context, 1, 0)


# ---- slices of a trial, by tables from the host (`kernels/backends/triton/gin/context.py`)


@triton.jit
def leave(network, calls, counts, slices, number, rank, owner, error):
    """Counts a finished tile of slice *number*; the last tile of a slice of another *owner* puts the slice.

    After a failure nothing is put: the queues are not flushed any more, and a put into a full one would never end.

    *counts*: int32 by slice, 0 between calls. *slices*: int64 by slice, SLICE_WORDS each. A slice has passed through
    acq_rel counts of one GPU (rule 4 of memory order), so that its last program sends what all have stored.
    """
    if owner != rank:
        entry = slices + number.to(tl.int64) * SLICE_WORDS
        tl.debug_barrier()
        if tl.atomic_add(counts + number, 1, sem="acq_rel", scope="gpu") == tl.load(entry + TILES) - 1:
            tl.atomic_xchg(counts + number, 0, sem="relaxed", scope="gpu")
            put_slice(network, calls, entry, owner, error)


@triton.jit
def put_slice(network, calls, entry, owner, error):
    """Puts the slice of *entry* (int64, SLICE_WORDS) to *owner*, unless a wait of this rank has failed."""
    half, window = tl.load(calls) & 1, tl.load(network + WINDOW)
    to = tl.load(entry + TO) + half * tl.load(network + HALF_BYTES)
    signal = tl.load(entry + SIGNAL) + half * tl.load(network + HALF_SIGNALS)
    if device.seen(error) == 0:  # read by one thread for all
        put(tl.load(network + COMM), tl.load(entry + CONTEXT), owner, window, to, window, tl.load(entry + FROM),
            tl.load(entry + BYTES), signal)  # fmt: skip


@triton.jit
def arrive(network, calls, entry, before, deadline, error, rank):
    """Waits for the slice of *entry* (int32, ARRIVAL_WORDS), unless it is *before*, the last one; returns its number.

    What is expected is the number of the calls of this one's parity, itself included.
    """
    index = tl.load(entry + SOURCE) * SLICES_MOST + tl.load(entry + NUMBER)
    if index != before:
        ended = tl.load(calls)
        signal = tl.load(entry + AT_SIGNAL) + (ended & 1) * tl.load(network + HALF_SIGNALS)
        wait(tl.load(network + COMM), tl.load(entry + AT_CONTEXT), signal, (ended >> 1) + 1, deadline, error, rank,
             device.SLICE, index)  # fmt: skip
    return index


@triton.jit
def copy_landed(
    network, calls, landing, out, arrivals, chunk, columns, stride, step, deadline, error, rank, program, programs,
    WORLD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copies rows that landed from peers into *out*, whose rows have *stride* elements: source s's from s * *step* on.

    *landing* [2, W, chunk, columns]; *arrivals*: int32, ARRIVAL_WORDS for each block of rows of a slice, as slices are
    expected. Programs take them in turns, and wait for a slice when they first need it.
    """
    half = (tl.load(calls) & 1) * WORLD
    before = tl.full((), -1, tl.int32)
    for at in range(program, tl.load(network + ARRIVALS).to(tl.int32), programs):
        entry = arrivals + at * ARRIVAL_WORDS
        before = arrive(network, calls, entry, before, deadline, error, rank)
        source, top = tl.load(entry + SOURCE), tl.load(entry + TOP)
        for row in range(top, top + tl.load(entry + HEIGHT)):
            from_row = landing + ((half + source) * chunk + row) * columns
            to_row = out + tl.cast(row, tl.int64) * stride + tl.cast(source, tl.int64) * step
            for first in range(0, columns, BLOCK):
                column = first + tl.arange(0, BLOCK)
                inside = column < columns
                tl.store(to_row + column, tl.load(from_row + column, mask=inside, cache_modifier=".cg"), mask=inside)


@triton.jit
def finish(network, calls, epoch_at, arrived, deadline, error, rank, programs):
    """Ends the call: the last program of this rank flushes all contexts, and the numbers of the call rise.

    Every program calls it once, when it has waited for all that it reads. *calls*: int64, the epoch with 64 bits;
    *epoch_at*: None where the call's beginning has raised it.
    """
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == programs - 1:
        tl.atomic_xchg(arrived, 0, sem="relaxed", scope="gpu")
        for context in range(tl.load(network + CONTEXTS).to(tl.int32)):
            flush(tl.load(network + COMM), context, deadline, error, rank)
        tl.store(calls, tl.load(calls) + 1)
        if epoch_at is not None:
            tl.atomic_add(epoch_at, 1, sem="relaxed", scope="gpu")


@triton.jit(do_not_specialize=["comm", "window", "signal", "context", "start", "limit_ns", "rank"])
def meet(
    comm, window, signal, context, start, calls, error, limit_ns, stamp, rank, WORLD: tl.constexpr, BYTES: tl.constexpr
):
    """A barrier of all hosts' ranks; *stamp* gets the globaltimer in nanoseconds when this rank continues.

    Every rank puts BYTES from byte *start* of its window to its own place behind them in each peer's. Rank r raises
    signal *signal* + r; *calls*: int64, the barriers so far.
    """
    number, deadline = tl.load(calls) + 1, device.deadline_after(limit_ns)
    comm, window = tl.cast(comm, tl.int64), tl.cast(window, tl.int64)
    for other in tl.static_range(WORLD):
        if other != rank:
            put(comm, context, other, window, start + (1 + rank) * BYTES, window, start, BYTES, signal + rank)
    for other in tl.static_range(WORLD):
        if other != rank:
            wait(comm, context, signal + other, number, deadline, error, rank, device.MEET, other)
    flush(comm, context, deadline, error, rank)
    tl.store(calls, number)
    tl.store(stamp, device.now())
