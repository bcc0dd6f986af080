"""The compiled step of a replay: one access passes through L1, an L2 slice and DRAM, and takes its cycles.

All compiled code of a replay is in this file, since numba's disk cache looks for changes only in the file of the called
function. The state lies in two arrays, at offsets that `replay.py` computes: passing many arrays from function to
function would cost more than an access. `s` is the ReplayState, `m` the PlainConfiguration, `a` an access, `t` a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Arithmetic of addresses and sectors: the place of a line, and the number of sectors in a mask.


@njit(nogil=True, error_model="numpy")
def turned(number: int, count: int, hashed: int) -> int:
    """One of *count* places: consecutive numbers take all places in turn, permuted by their higher bits if *hashed*."""
    return (number + (folded(number // count) if hashed else 0)) % count


@njit(nogil=True, error_model="numpy")
def folded(number: int) -> int:
    """*number* with its higher bits folded into its lower ones."""
    return number ^ (number >> 5) ^ (number >> 11)


@njit(nogil=True, error_model="numpy")
def scattered(number: float) -> float:
    """A pseudo-random hash of *number*, the same in every replay."""
    mixed = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return float(mixed >> np.uint64(11))


@njit(nogil=True, error_model="numpy")
def ones(bits: int) -> int:
    """Number of ones among the lowest four bits, which are sectors."""
    return (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1)


@njit(nogil=True, error_model="numpy")
def in_channel(line: int, m: Any) -> tuple[int, int]:
    """The DRAM channel of *line*, and its number among the lines of that channel."""
    block = line // m.interleave_lines
    return turned(block, m.channels, m.hashed), block // m.channels * m.interleave_lines + line % m.interleave_lines


@njit(nogil=True, error_model="numpy")
def first_cell(line: int, part: int, m: Any) -> int:
    """The first cell of the L2 set of *line*, which is in slice *part*."""
    return m.l2_first + (part * m.l2_sets + turned(line // m.slices, m.l2_sets, m.hashed)) * m.l2_ways


@njit(nogil=True, error_model="numpy")
def find(line: int, first: int, ways: int, s: Any, m: Any) -> int:
    """The cell that holds *line* in the set that begins at cell *first*, or -1 if none does."""
    for cell in range(first, first + ways):
        if s.words[m.tag + cell] == line:
            return cell
    return -1


# An access in L1, L2 and DRAM.

FLAG_WRITE, FLAG_DIRECT, FLAG_PEER = 1, 2, 4
BYPASS, BACK, RANDOM, SRRIP = 0, 1, 1, 2
NORMAL, PERSIST, NO_ALLOCATE = 1, 3, 4
EMPTY = -1
AGE_MOST = 3
"""Age at which SRRIP evicts a line; a new line begins one below it."""
SURE, UNSURE, REUSE = 1023, 512, 4
"""An instruction's reuse counter: its maximum, its initial value (below it, accesses bypass), and the gain of a reuse.

A line that was not reused subtracts 1, so that an instruction bypasses if fewer than one in five of its lines are
reused. The range is wide enough that one wave of blocks in lockstep cannot flip the decision."""
LEARNING = 32
"""In one of this many sets an instruction always allocates, so that it can show reuse again."""
SECTORS, DIRTY, HINT, REUSED, STRUCTURE, INSTRUCTION = 0, 4, 8, 11, 16, 24
"""Bit offsets of a line's facts in one integer: valid sectors, dirty sectors, hint, reused or not, and so on."""

READ, WRITTEN, L1_ASKED, L1_HIT, L2_ASKED, L2_HIT, LINE_ASKED = range(7)
LINE_MISSED, DRAM_READ, DRAM_WRITTEN, STALLS, STALLED, BYPASSED = range(7, 13)
COLUMNS = ("sectors_read", "sectors_written", "l1_asked", "l1_hit", "l2_asked", "l2_hit", "lines_asked", "lines_missed",
           "dram_read", "dram_written", "stalls", "stall_cycles", "bypassed")  # fmt: skip
"""Counts by structure: sectors, lines read at L2, requests that waited for a way and their cycles, L2 bypasses."""
NUM_COLUMNS = len(COLUMNS)
ACCESS_COUNT, ROW_HITS, ROW_MISSES, RINSED, FILLED, DROPPED, DIRTIED, CLEANED, LAST = range(9)
TOTALS = ("accesses", "row_hits", "row_misses", "rinsed", "filled", "dropped", "dirtied", "cleaned", "cycles")


@njit(cache=True, nogil=True, error_model="numpy")
def replay(accesses: Any, s: Any, m: Any) -> None:
    """Replay *accesses*, records of trace.ACCESS, on state *s* with configuration *m*."""
    for i in range(accesses.shape[0]):
        a = accesses[i]
        need = np.int64(a.sectors)
        s.times[m.totals + ACCESS_COUNT] += 1.0
        at = s.words[m.flight_at + a.unit]
        place = m.flight + a.unit * m.in_flight + at
        t = s.times[m.clock + a.unit]
        from_peer = a.flags & FLAG_PEER  # a peer's store comes over the link: no unit waits for it
        if not from_peer:
            t = max(t, s.times[place])
            s.times[m.clock + a.unit] = t + 1.0
        done = _store(a, need, t, s, m) if a.flags & FLAG_WRITE else _load(a, need, t, s, m)
        if not from_peer:
            s.times[place] = done
            s.words[m.flight_at + a.unit] = at + 1 if at + 1 < m.in_flight else 0
        s.times[m.totals + LAST] = max(s.times[m.totals + LAST], done)


@njit(cache=True, nogil=True, error_model="numpy")
def end_kernel(s: Any, m: Any) -> None:
    """End a kernel: requests finish, the L1s are emptied, dirty lines are flushed if m.flushes, write queues drain."""
    now = s.times[m.totals + LAST]
    s.words[m.tag : m.tag + m.l2_first] = EMPTY
    if m.flushes:
        for cell in range(m.l2_first, m.cells):
            if s.words[m.facts + cell] >> DIRTY & 15 and s.words[m.tag + cell] != EMPTY:
                _clean(cell, now, s, m)
                if m.rinsing:
                    _rinse(s.words[m.tag + cell], now, s, m)
    for channel in range(m.channels):
        _drain(channel, now, s, m)
    for channel in range(m.channels):
        now = max(now, s.times[m.bus_free + channel])
    s.times[m.totals + LAST] = now
    s.times[m.clock : m.clock + m.units] = now


@njit(nogil=True, error_model="numpy")
def _load(a: Any, need: Any, t: float, s: Any, m: Any) -> float:
    """Time at which the bytes of a load arrive."""
    _count(a, READ, ones(need), s, m)
    cell = -1
    if m.loads != BYPASS and m.l1_sets and not a.flags & FLAG_DIRECT:
        t, cell, need = _look_l1(a, need, t, s, m)
        if need == 0:
            return max(t + m.l1_cycles, s.times[m.ready + cell])
        t += m.l1_cycles
    done = _load_l2(a, need, t, s, m)
    if cell >= 0:
        s.words[m.facts + cell] |= need
        s.times[m.ready + cell] = max(s.times[m.ready + cell], done)
    return done


@njit(nogil=True, error_model="numpy")
def _look_l1(a: Any, need: int, t: float, s: Any, m: Any) -> tuple[float, int, int]:
    """Look up a load in its unit's L1: the time at which it has a line, its cell (-1: none), the missing sectors."""
    first = (a.unit * m.l1_sets + turned(a.line, m.l1_sets, m.hashed)) * m.l1_ways
    _count(a, L1_ASKED, ones(need), s, m)
    cell = find(a.line, first, m.l1_ways, s, m)
    if cell >= 0:
        missing = need & ~s.words[m.facts + cell]
        _count(a, L1_HIT, ones(need) - ones(missing), s, m)
        _touch(cell, s, m)
        return t, cell, missing
    arrival = t
    while cell < 0:
        soonest, cell = _victim((first, m.l1_ways), t, NORMAL, s, m)
        if cell < 0:
            if m.allocation_bypass:
                return t, cell, need
            t = soonest
    if t > arrival:
        _count(a, STALLS, 1, s, m)
        _count(a, STALLED, t - arrival, s, m)
        s.times[m.clock + a.unit] = t + 1.0
    _place(a, cell, NORMAL, s, m)
    return t, cell, need


@njit(nogil=True, error_model="numpy")
def _load_l2(a: Any, need: int, t: float, s: Any, m: Any) -> float:
    """Time at which the bytes of a load that missed in L1 arrive."""
    part = turned(a.line, m.slices, m.hashed)
    t = _enter(part, ones(need), t, s, m)
    _count(a, L2_ASKED, ones(need), s, m)
    _count(a, LINE_ASKED, 1, s, m)
    if m.loads == BYPASS:
        _count(a, LINE_MISSED, 1, s, m)
        _count(a, DRAM_READ, ones(need), s, m)
        return _read_dram(a.line, ones(need), t + m.l2_cycles, s, m)
    first = first_cell(a.line, part, m)
    cell = find(a.line, first, m.l2_ways, s, m)
    if cell >= 0:
        missing = need & ~s.words[m.facts + cell]
        _count(a, L2_HIT, ones(need) - ones(missing), s, m)
        _reuse(cell, s, m)
        if missing == 0:
            return max(t + m.l2_cycles, s.times[m.ready + cell])
        need = missing
    else:
        _count(a, LINE_MISSED, 1, s, m)
        t, cell = _allocate(a, first, part, t, s, m)
    _count(a, DRAM_READ, ones(need), s, m)
    if cell < 0:
        return _read_dram(a.line, ones(need), t + m.l2_cycles, s, m)
    at = s.words[m.misses_at + part]
    register = m.misses + part * m.num_misses + at
    if s.times[register] > t:  # no miss-status register is free: later requests wait as well
        t = s.times[register]
        s.times[m.slice_free + part] = max(s.times[m.slice_free + part], t + 1.0)
    done = _read_dram(a.line, ones(need), t + m.l2_cycles, s, m)
    s.times[register] = done
    s.words[m.misses_at + part] = at + 1 if at + 1 < m.num_misses else 0
    s.words[m.facts + cell] |= need
    s.times[m.ready + cell] = max(s.times[m.ready + cell], done)
    s.times[m.totals + FILLED] += ones(need)
    return done


@njit(nogil=True, error_model="numpy")
def _store(a: Any, need: Any, t: float, s: Any, m: Any) -> float:
    """Time at which a store is acknowledged: by L2 if it keeps the line, else when DRAM's write queue has taken it.

    A sector is written whole, so that nothing is fetched for it. An L1 that holds the line gets the new bytes.
    """
    _count(a, WRITTEN, ones(need), s, m)
    part = turned(a.line, m.slices, m.hashed)
    t = _enter(part, ones(need), t, s, m)
    if m.loads != BYPASS:
        first = first_cell(a.line, part, m)
        cell = find(a.line, first, m.l2_ways, s, m)
        stays = m.stores == BACK and (cell >= 0 or not _unwanted(a, s, m))
        if cell >= 0:
            _reuse(cell, s, m)
        elif m.stores == BACK:
            t, cell = _allocate(a, first, part, t, s, m)
        if cell >= 0:
            facts = s.words[m.facts + cell]
            s.times[m.totals + FILLED] += ones(need & ~facts)
            s.words[m.facts + cell] = facts | need
            if stays:
                s.times[m.totals + DIRTIED] += ones(need & ~(facts >> DIRTY))
                s.words[m.facts + cell] |= need << DIRTY
                return t + m.l2_cycles
    _count(a, DRAM_WRITTEN, ones(need), s, m)
    return _write_dram(a.line, ones(need), t + m.l2_cycles, s, m)


@njit(nogil=True, error_model="numpy")
def _enter(part: int, sectors: int, t: float, s: Any, m: Any) -> float:
    """Time at which slice *part* takes a request that arrives at *t*."""
    t = max(t, s.times[m.slice_free + part])
    s.times[m.slice_free + part] = t + max(1.0, sectors / m.port_sectors)
    return t


@njit(nogil=True, error_model="numpy")
def _allocate(a: Any, first: int, part: int, t: float, s: Any, m: Any) -> tuple[float, int]:
    """Allocate a line for access *a* in the L2 set that begins at cell *first*: the time, and the cell (-1: bypass)."""
    hint = s.words[m.hints + a.structure]
    learns = (first - m.l2_first) // m.l2_ways % LEARNING == a.instruction % LEARNING
    if hint == NO_ALLOCATE or (_unwanted(a, s, m) and not learns):
        _count(a, BYPASSED, 1, s, m)
        return t, -1
    arrival, cell = t, -1
    while cell < 0:
        soonest, cell = _victim((first, m.l2_ways), t, hint, s, m)
        if cell < 0:
            if m.allocation_bypass:
                _count(a, BYPASSED, 1, s, m)
                return t, -1
            t = soonest
    if t > arrival:
        _count(a, STALLS, 1, s, m)
        _count(a, STALLED, t - arrival, s, m)
        s.times[m.slice_free + part] = max(s.times[m.slice_free + part], t + 1.0)
    if s.words[m.tag + cell] != EMPTY:
        _evict(cell, t, s, m)
    _place(a, cell, hint, s, m)
    return t, cell


@njit(nogil=True, error_model="numpy")
def _unwanted(a: Any, s: Any, m: Any) -> bool:
    """Whether the lines of *a*'s instruction are predicted dead; of unknown instructions only those of stores are."""
    return m.predicted_bypass != 0 and s.words[m.reuse + a.instruction] < UNSURE + (a.flags & FLAG_WRITE)


@njit(nogil=True, error_model="numpy")
def _evict(cell: int, t: float, s: Any, m: Any) -> None:
    """Evict the line in *cell*: write it to DRAM if dirty, and lower its instruction's counter if it was not reused."""
    line, facts = s.words[m.tag + cell], s.words[m.facts + cell]
    if facts >> DIRTY & 15:
        _clean(cell, t, s, m)
    s.times[m.totals + DROPPED] += ones(facts)
    if m.predicted_bypass and not facts >> REUSED & 1:
        number = m.reuse + (facts >> INSTRUCTION)
        s.words[number] = max(0, s.words[number] - 1)
    s.words[m.tag + cell] = EMPTY
    if m.rinsing and facts >> DIRTY & 15:
        _rinse(line, t, s, m)


@njit(nogil=True, error_model="numpy")
def _clean(cell: int, t: float, s: Any, m: Any) -> None:
    """Write the dirty sectors of the line in *cell* to DRAM."""
    facts = s.words[m.facts + cell]
    sectors = ones(facts >> DIRTY)
    s.words[m.facts + cell] = facts & ~(15 << DIRTY)
    s.times[m.totals + CLEANED] += sectors
    s.times[m.counts + (facts >> STRUCTURE & 255) * NUM_COLUMNS + DRAM_WRITTEN] += sectors
    _write_dram(s.words[m.tag + cell], sectors, t, s, m)


@njit(nogil=True, error_model="numpy")
def _rinse(line: int, t: float, s: Any, m: Any) -> None:
    """Write back all dirty lines of the DRAM row of *line*; they stay as clean lines."""
    channel, inner = in_channel(line, m)
    begin = inner // m.row_lines * m.row_lines
    for each in range(begin, begin + m.row_lines):
        above, below = each // m.interleave_lines, each % m.interleave_lines
        turn = folded(above) if m.hashed else 0
        other = (above * m.channels + (channel - turn) % m.channels) * m.interleave_lines + below
        first = first_cell(other, turned(other, m.slices, m.hashed), m)
        cell = find(other, first, m.l2_ways, s, m)
        if cell >= 0 and s.words[m.facts + cell] >> DIRTY & 15:
            s.times[m.totals + RINSED] += 1.0
            _clean(cell, t, s, m)


@njit(nogil=True, error_model="numpy")
def _victim(cells: tuple[int, int], t: float, hint: int, s: Any, m: Any) -> tuple[float, int]:
    """An empty cell of a set, else the one to evict; -1 and the time of the next candidate if all wait for DRAM.

    Lines of the lowest hint are evicted first. A full persisting part evicts its own lines, and other lines never
    displace it.
    """
    first, ways = cells
    least, most, empty, persisting = 0, PERSIST - 1, -1, 0
    for cell in range(first, first + ways):
        if s.words[m.tag + cell] == EMPTY:
            empty = cell
        else:
            persisting += (s.words[m.facts + cell] >> HINT & 7) == PERSIST
    if hint == PERSIST and persisting >= m.persist_ways:
        least, most = PERSIST, PERSIST
    elif empty >= 0:
        return t, empty
    best, best_hint, best_age, soonest = -1, PERSIST + 1, 0.0, np.inf
    for cell in range(first, first + ways):
        of_line = s.words[m.facts + cell] >> HINT & 7
        if s.words[m.tag + cell] == EMPTY or of_line < least or of_line > most:
            continue
        if s.times[m.ready + cell] > t:
            soonest = min(soonest, s.times[m.ready + cell])
            continue
        age = float(s.words[m.stamp + cell])
        if m.replacement == RANDOM:
            age = scattered(s.times[m.totals + ACCESS_COUNT] * ways + (cell - first))
        elif m.replacement == SRRIP:
            age = -age
        if of_line < best_hint or (of_line == best_hint and age < best_age):
            best, best_hint, best_age = cell, of_line, age
    if best >= 0 and m.replacement == SRRIP:  # all lines age as much as the evicted one lacked
        for cell in range(first, first + ways):
            if s.times[m.ready + cell] <= t:
                s.words[m.stamp + cell] = min(AGE_MOST, s.words[m.stamp + cell] + AGE_MOST + int(best_age))
    return soonest, best


@njit(nogil=True, error_model="numpy")
def _place(a: Any, cell: int, hint: int, s: Any, m: Any) -> None:
    """Assign *cell* to the line of access *a*, with no bytes yet."""
    s.words[m.tag + cell] = a.line
    s.words[m.facts + cell] = hint << HINT | np.int64(a.structure) << STRUCTURE | np.int64(a.instruction) << INSTRUCTION
    s.words[m.stamp + cell] = AGE_MOST - 1 if m.replacement == SRRIP else int(s.times[m.totals + ACCESS_COUNT])
    s.times[m.ready + cell] = 0.0


@njit(nogil=True, error_model="numpy")
def _touch(cell: int, s: Any, m: Any) -> None:
    s.words[m.stamp + cell] = 0 if m.replacement == SRRIP else int(s.times[m.totals + ACCESS_COUNT])


@njit(nogil=True, error_model="numpy")
def _reuse(cell: int, s: Any, m: Any) -> None:
    """Record a reuse of a line of L2; the first reuse raises the counter of the instruction that fetched it."""
    _touch(cell, s, m)
    facts = s.words[m.facts + cell]
    if not facts >> REUSED & 1:
        s.words[m.facts + cell] = facts | 1 << REUSED
        number = m.reuse + (facts >> INSTRUCTION)
        s.words[number] = min(SURE, s.words[number] + REUSE)


@njit(nogil=True, error_model="numpy")
def _count(a: Any, column: int, number: float, s: Any, m: Any) -> None:
    s.times[m.counts + a.structure * NUM_COLUMNS + column] += number


@njit(nogil=True, error_model="numpy")
def _read_dram(line: int, sectors: int, t: float, s: Any, m: Any) -> float:
    """Time at which the last of *sectors* sectors of *line* has arrived."""
    channel, inner = in_channel(line, m)
    return _burst((channel, inner // m.row_lines, 0), sectors, t, s, m)


@njit(nogil=True, error_model="numpy")
def _write_dram(line: int, sectors: int, t: float, s: Any, m: Any) -> float:
    """Time at which the write queue of the channel has taken *line*."""
    channel, inner = in_channel(line, m)
    if s.words[m.queued + channel] == m.num_queue:
        _drain(channel, t, s, m)
        t = max(t, s.times[m.bus_free + channel])
    at = s.words[m.queued + channel]
    place = m.queue + 2 * (channel * m.num_queue + at)
    s.words[place], s.words[place + 1] = inner // m.row_lines, sectors
    s.words[m.queued + channel] = at + 1
    return t


@njit(nogil=True, error_model="numpy")
def _drain(channel: int, t: float, s: Any, m: Any) -> None:
    """Write the queue of *channel* to DRAM in order, but with the lines of a row grouped."""
    first = m.queue + 2 * channel * m.num_queue
    end = first + 2 * s.words[m.queued + channel]
    for i in range(first, end, 2):
        row = s.words[i]
        if row == EMPTY:
            continue
        for j in range(i, end, 2):
            if s.words[j] == row:
                _burst((channel, row, 1), s.words[j + 1], t, s, m)
                s.words[j] = EMPTY
    s.words[m.queued + channel] = 0


@njit(nogil=True, error_model="numpy")
def _burst(of: tuple[int, int, int], sectors: int, t: float, s: Any, m: Any) -> float:
    """Time at which the bytes have crossed the bus; *of* is the channel, the row, and whether it is a write."""
    channel, row, is_write = of
    bank = channel * m.banks + (row ^ (row >> 4) if m.hashed else row) % m.banks
    start = max(t, s.times[m.bank_free + bank])
    if s.words[m.row + bank] == row:
        s.times[m.totals + ROW_HITS] += 1.0
    else:
        s.times[m.totals + ROW_MISSES] += 1.0
        s.words[m.row + bank] = row
        start += m.activate_cycles
    turning = m.turnaround_cycles if s.words[m.was_write + channel] != is_write else 0.0
    s.words[m.was_write + channel] = is_write
    end = max(start + m.dram_cycles, s.times[m.bus_free + channel] + turning) + sectors * m.sector_cycles
    s.times[m.bus_free + channel] = end
    s.times[m.bank_free + bank] = end - m.dram_cycles
    return end
