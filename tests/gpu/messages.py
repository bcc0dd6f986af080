"""Kernels that exchange messages by each way of device.py, and by a twin of each that breaks one rule of memory order.

A *channel* is one program on each of two ranks. In every round both write a message of that round's own values to the
other, tell it, wait for the other's, and compare. A place is used again SLOTS rounds later, so that a value of another
round is a stale or a torn one. The other programs of the kernel keep the links busy meanwhile.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.kernels.tiles import chosen

ROW = tl.constexpr(64)
"""Words of a row of a tile that the bulk copy engine stores."""
BURST = tl.constexpr(4096)
BURSTS = tl.constexpr(8)
"""A program of background load stores so many words, so often, before it looks whether the others have ended."""
HOPS = tl.constexpr(4)
"""Loads, each of which needs the one before, that make all warps but the first store late."""

# How a message is told. A name of what is missing is a form that breaks a rule; so are RELAXED and TWO_HALVES.
SIGNAL, NO_BARRIER, RELAXED, NO_ACQUIRE, STALE = (tl.constexpr(form) for form in range(5))
PACKET, TWO_HALVES = (tl.constexpr(form) for form in range(2))
DRAIN, NO_DRAIN, BUT_ONE, SIGNAL_BUT_ONE = (tl.constexpr(form) for form in range(4))
COUNTED, COUNTED_RELAXED = (tl.constexpr(form) for form in range(2))


@triton.jit
def written(number, place, rank, program):
    """What *rank* writes at *place* in round *number*, int32: of no other round, and exact as float32 below 2^24."""
    return number * 8 + (place + rank + program) % 8


@triton.jit
def late(chain, length, number, place):
    """0, known after HOPS dependent loads from memory for all warps but the first, whose word is always there."""
    at = tl.where(place % (128 * 4) < 128, 0, (number * 40503 + place * 7919) & (length - 1))
    for _ in tl.static_range(HOPS):
        at = tl.load(chain + at)
    return at >> 31


@triton.jit
def keep_links_busy(load_at, stored, arrived, channels, first, deadline, error, partner):
    """Stores into *partner*'s memory until all channels of this rank have ended; *first*: the first such program."""
    target = device.peer(load_at, partner, tl.int32) + (tl.program_id(0) - first) * BURST
    place = tl.arange(0, BURST)
    bursts = tl.full((), 0, tl.int32)
    ended = tl.full((), 0, tl.int32)
    while (ended < channels) & (device.given_up(deadline, error) == 0):
        for _ in range(BURSTS):
            tl.store(target + place, place + bursts)
            bursts += 1
        ended = tl.atomic_add(arrived, 0, sem="acquire", scope="gpu")
    tl.atomic_add(stored, bursts, sem="relaxed", scope="gpu")


@triton.jit
def end(violations, broken, arrived):
    """Counts this channel's broken rounds, and that it has ended."""
    tl.atomic_add(violations, broken, sem="relaxed", scope="gpu")
    tl.atomic_add(arrived, 1, sem="relaxed", scope="gpu")


@triton.jit(do_not_specialize=["rank", "rounds", "channels"])
def data_and_flag(
    inbox_at, counters_at, load_at, chain, length, violations, stored, arrived, error, limit_ns, rounds, channels, rank,
    WORLD: tl.constexpr, SIZE: tl.constexpr, SLOTS: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """Rules 1 and 3: stores of all threads, one signal; a wait, then plain loads of all threads."""
    program, deadline = tl.program_id(0), device.deadline_after(limit_ns)
    partner = rank ^ (1 + program % (WORLD - 1))
    if program < channels:
        place, broken = tl.arange(0, SIZE), tl.full((), 0, tl.int32)
        theirs = device.peer(inbox_at, partner, tl.int32) + program * (SLOTS * SIZE)
        mine = device.peer(inbox_at, rank, tl.int32) + program * (SLOTS * SIZE)
        theirs_told = device.peer(counters_at, partner, tl.int32) + program
        mine_told = device.peer(counters_at, rank, tl.int32) + program
        number = tl.full((), 0, tl.int32)
        for _ in range(rounds):
            number += 1
            slot = number % SLOTS * SIZE
            value = written(number, place, rank, program) + late(chain, length, number, place)
            if FORM == STALE:
                value -= 8  # the round before's
            tl.store(theirs + slot + place, value)
            if FORM == NO_BARRIER:
                tl.atomic_add(theirs_told, 1, sem="release", scope="sys")
            elif FORM == RELAXED:
                tl.debug_barrier()
                tl.atomic_add(theirs_told, 1, sem="relaxed", scope="sys")
            else:
                device.signal(theirs_told)
            if FORM == NO_ACQUIRE:
                while device.behind(device.seen(mine_told), number) & (device.given_up(deadline, error) == 0):
                    pass
            else:
                device.wait(mine_told, number, deadline, error, rank, device.TILE, program)
            found = tl.load(mine + slot + place)
            wrong = found != written(number, place, partner, program)
            broken += (tl.sum(wrong.to(tl.int32)) > 0).to(tl.int32)
        end(violations, broken, arrived)
    else:
        keep_links_busy(load_at, stored, arrived, channels, channels, deadline, error, partner)


@triton.jit(do_not_specialize=["rank", "rounds", "channels"])
def third_party(
    inbox_at, counters_at, load_at, chain, length, handed, violations, stored, arrived, error, limit_ns, rounds,
    channels, rank, WORLD: tl.constexpr, SIZE: tl.constexpr, SLOTS: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """Rule 4: one block stores and counts itself in, another one that has counted itself in after it signals.

    *handed* [2, channels]: how often both have counted themselves in, and the rounds that the second one has read. The
    first one stores up to SLOTS rounds before that.
    """
    program, deadline = tl.program_id(0), device.deadline_after(limit_ns)
    channel = program % channels
    partner = rank ^ (1 + channel % (WORLD - 1))
    place = tl.arange(0, SIZE)
    counted, passed = handed + channel, handed + channels + channel
    if program < channels:
        theirs = device.peer(inbox_at, partner, tl.int32) + channel * (SLOTS * SIZE)
        for number in range(1, rounds + 1):
            device.wait(passed, number - SLOTS + 1, deadline, error, rank, device.SIGNAL, channel)
            value = written(number, place, rank, channel) + late(chain, length, number, place)
            tl.store(theirs + number % SLOTS * SIZE + place, value)
            tl.debug_barrier()
            tl.atomic_add(counted, 1, sem="acq_rel", scope="gpu")
    elif program < 2 * channels:
        broken = tl.full((), 0, tl.int32)
        mine = device.peer(inbox_at, rank, tl.int32) + channel * (SLOTS * SIZE)
        theirs_told = device.peer(counters_at, partner, tl.int32) + channel
        mine_told = device.peer(counters_at, rank, tl.int32) + channel
        for number in range(1, rounds + 1):
            while device.behind(device.seen(counted), 2 * number - 1) & (device.given_up(deadline, error) == 0):
                pass
            if FORM == COUNTED_RELAXED:
                tl.atomic_add(counted, 1, sem="relaxed", scope="gpu")
            else:
                tl.atomic_add(counted, 1, sem="acq_rel", scope="gpu")
            device.signal(theirs_told)
            device.wait(mine_told, number, deadline, error, rank, device.TILE, channel)
            found = tl.load(mine + number % SLOTS * SIZE + place)
            wrong = found != written(number, place, partner, channel)
            broken += (tl.sum(wrong.to(tl.int32)) > 0).to(tl.int32)
            device.signal(passed)
        end(violations, broken, arrived)
    else:
        keep_links_busy(load_at, stored, arrived, channels, 2 * channels, deadline, error, partner)


@triton.jit(do_not_specialize=["rank", "rounds", "channels"])
def packets_whole(
    packets, counters_at, load_at, chain, length, violations, stored, arrived, error, limit_ns, rounds, channels, rank,
    WORLD: tl.constexpr, SIZE: tl.constexpr, SLOTS: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """Rule 5: value and epoch of one word of 8 bytes belong together."""
    program, deadline = tl.program_id(0), device.deadline_after(limit_ns)
    partner = rank ^ (1 + program % (WORLD - 1))
    if program < channels:
        place, broken = tl.arange(0, SIZE), tl.full((), 0, tl.int32)
        theirs = tl.multiple_of(chosen(packets, partner, WORLD), 16) + program * (SLOTS * SIZE)
        mine = tl.multiple_of(chosen(packets, rank, WORLD), 16) + program * (SLOTS * SIZE)
        every = place >= 0
        number = tl.full((), 0, tl.int32)
        for _ in range(rounds):
            number += 1
            slot = number % SLOTS * SIZE
            value = written(number, place, rank, program) + late(chain, length, number, place)
            if FORM == TWO_HALVES:
                halves = (theirs + slot + place).to(tl.pointer_type(tl.int32))
                tl.store(halves + 1, place * 0 + number, cache_modifier=".wt")
                tl.store(halves, value.to(tl.float32).to(tl.int32, bitcast=True), cache_modifier=".wt")
            else:
                device.put_packets(theirs + slot + place, value.to(tl.float32), number, every)
            found = device.take_packets(mine + slot + place, number, every, deadline, error, rank, program)
            wrong = found != written(number, place, partner, program).to(tl.float32)
            broken += (tl.sum(wrong.to(tl.int32)) > 0).to(tl.int32)
        end(violations, broken, arrived)
    else:
        keep_links_busy(load_at, stored, arrived, channels, channels, deadline, error, partner)


@triton.jit
def broken_tile(mine_told, mine, tile, number, partner, program, deadline, error, rank, SLOTS: tl.constexpr):
    """1 if the tile of round *number*, which is waited for, is not what *partner* wrote in that round."""
    device.wait(mine_told, number, deadline, error, rank, device.TILE, program)
    found = tl.load(mine + number % SLOTS * tile.numel + tile)
    return (tl.sum((found != written(number, tile, partner, program)).to(tl.int32)) > 0).to(tl.int32)


@triton.jit(do_not_specialize=["rank", "rounds", "channels"])
def bulk_and_flag(
    to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7,
    inbox_at, counters_at, load_at, violations, stored, arrived, error, limit_ns, rounds, channels, rank,
    WORLD: tl.constexpr, SIZE: tl.constexpr, SLOTS: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """Rule 2: bulk stores are written before their signal; BUT_ONE and SIGNAL_BUT_ONE signal one round late."""
    targets = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, deadline = tl.program_id(0), device.deadline_after(limit_ns)
    partner = rank ^ (1 + program % (WORLD - 1))
    if program < channels:
        rows: tl.constexpr = SIZE // ROW
        tile = tl.arange(0, rows)[:, None] * ROW + tl.arange(0, ROW)[None, :]
        broken = tl.full((), 0, tl.int32)
        mine = device.peer(inbox_at, rank, tl.int32) + program * (SLOTS * SIZE)
        theirs_told = device.peer(counters_at, partner, tl.int32) + program
        mine_told = device.peer(counters_at, rank, tl.int32) + program
        number = tl.full((), 0, tl.int32)
        for _ in range(rounds):
            number += 1
            value = written(number, tile, rank, program)
            row = (program * SLOTS + number % SLOTS) * rows
            device.put_tma(chosen(targets, partner, WORLD), row, 0, value)
            if FORM < BUT_ONE:
                if FORM == DRAIN:
                    device.drain()
                device.signal(theirs_told)
                broken += broken_tile(mine_told, mine, tile, number, partner, program, deadline, error, rank, SLOTS)
            elif number > 1:
                if FORM == BUT_ONE:
                    device.drain_but_one()
                    device.signal(theirs_told)
                else:
                    device.signal_but_one(theirs_told)
                broken += broken_tile(mine_told, mine, tile, number - 1, partner, program, deadline, error, rank, SLOTS)
        device.drain()
        if FORM >= BUT_ONE:
            device.signal(theirs_told)
            broken += broken_tile(mine_told, mine, tile, rounds, partner, program, deadline, error, rank, SLOTS)
        end(violations, broken, arrived)
    else:
        keep_links_busy(load_at, stored, arrived, channels, channels, deadline, error, partner)
