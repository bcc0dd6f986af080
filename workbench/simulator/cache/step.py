"""What one access does, compiled: L1, an L2 slice, DRAM. Cycles are what `state.py` says they are.

All compiled code of a replay is here (and in `bits.py`, which does not change), since numba's disk cache looks for
changes in the file of the called function only. What changes lies in two arrays, at places that `state.py` deals out:
many arrays would cost more to hand from function to function than an access costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Arithmetic of addresses and sectors, compiled: which place a line has, and how many sectors a mask names.


@njit(nogil=True, error_model="numpy")
def turned(number: int, count: int, hashed: int) -> int:
    """One of *count* places: neighbours take all places, turned by what the higher bits say."""
    return (number + (folded(number // count) if hashed else 0)) % count


@njit(nogil=True, error_model="numpy")
def folded(number: int) -> int:
    """*number* with its higher bits in its lower ones, too."""
    return number ^ (number >> 5) ^ (number >> 11)


@njit(nogil=True, error_model="numpy")
def scattered(number: float) -> float:
    """A number that looks random, the same in every replay."""
    mixed = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return float(mixed >> np.uint64(11))


@njit(nogil=True, error_model="numpy")
def ones(bits: int) -> int:
    """How many of the lowest four bits, which are sectors."""
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
    """The cell of the set that begins at cell *first* in which *line* is; -1: in none."""
    for cell in range(first, first + ways):
        if s.words[m.tag + cell] == line:
            return cell
    return -1


# What one access does, compiled: L1, an L2 slice, DRAM. Cycles are what `state.py` says they are.

FLAG_WRITE, FLAG_DIRECT, FLAG_PEER = 1, 2, 4
BYPASS, BACK, RANDOM, SRRIP = 0, 1, 1, 2
NORMAL, PERSIST, NO_ALLOCATE = 1, 3, 4
EMPTY = -1
AGE_MOST = 3
"""Of SRRIP: such a line goes next; a new one has one less."""
SURE, UNSURE, REUSE = 1023, 512, 4
"""An instruction's reuse counter: its most; where all begin, and below which it goes around; what a line adds that is
used again. One that is not takes 1: fewer than one in five. A wave of blocks in step must not turn it over."""
LEARNING = 32
"""In one of so many sets an instruction always allocates, others not, so that it can show reuse by itself again."""
SECTORS, DIRTY, HINT, REUSED, STRUCTURE, INSTRUCTION = 0, 4, 8, 11, 16, 24
"""Where a line's facts lie in the bits of one number; the first are which sectors it has, and which are dirty."""

READ, WRITTEN, L1_ASKED, L1_HIT, L2_ASKED, L2_HIT, LINE_ASKED = range(7)
LINE_MISSED, DRAM_READ, DRAM_WRITTEN, STALLS, STALLED, BYPASSED = range(7, 13)
COLUMNS = ("sectors_read", "sectors_written", "l1_asked", "l1_hit", "l2_asked", "l2_hit", "lines_asked", "lines_missed",
           "dram_read", "dram_written", "stalls", "stall_cycles", "bypassed")  # fmt: skip
"""By structure: sectors; lines read at L2; requests that waited for a way, and how long; those that went around L2."""
NUM_COLUMNS = len(COLUMNS)
ACCESS_COUNT, ROW_HITS, ROW_MISSES, RINSED, FILLED, DROPPED, DIRTIED, CLEANED, LAST = range(9)
TOTALS = ("accesses", "row_hits", "row_misses", "rinsed", "filled", "dropped", "dirtied", "cleaned", "cycles")


@njit(cache=True, nogil=True, error_model="numpy")
def replay(accesses: Any, s: Any, m: Any) -> None:
    """Replay *accesses*, records of trace.ACCESS, on state *s* as *m* says."""
    for i in range(accesses.shape[0]):
        a = accesses[i]
        need = np.int64(a.sectors)
        s.times[m.totals + ACCESS_COUNT] += 1.0
        at = s.words[m.flight_at + a.unit]
        place = m.flight + a.unit * m.in_flight + at
        t = s.times[m.clock + a.unit]
        from_peer = a.flags & FLAG_PEER  # it comes over the link: no unit waits for it
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
    """All requests end, L1 forgets, dirty lines are flushed where the machine asks for it, and all is written."""
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
    """When the bytes of a load are there."""
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
    """When a load has a line of its unit's L1, in which cell, -1 for none, and the sectors that are missing there."""
    first = (a.unit * m.l1_sets + turned(a.line, m.l1_sets, m.hashed)) * m.l1_ways
    _count(a, L1_ASKED, ones(need), s, m)
    cell = find(a.line, first, m.l1_ways, s, m)
    if cell >= 0:
        missing = need & ~s.words[m.facts + cell]
        _count(a, L1_HIT, ones(need) - ones(missing), s, m)
        _touch(cell, s, m)
        return t, cell, missing
    came = t
    while cell < 0:
        soonest, cell = _victim((first, m.l1_ways), t, NORMAL, s, m)
        if cell < 0:
            if m.allocation_bypass:
                return t, cell, need
            t = soonest
    if t > came:
        _count(a, STALLS, 1, s, m)
        _count(a, STALLED, t - came, s, m)
        s.times[m.clock + a.unit] = t + 1.0
    _place(a, cell, NORMAL, s, m)
    return t, cell, need


@njit(nogil=True, error_model="numpy")
def _load_l2(a: Any, need: int, t: float, s: Any, m: Any) -> float:
    """When the bytes of a load that L1 has not are there."""
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
    if s.times[register] > t:  # no miss-status register is free: those behind wait as well
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
    """When a store is acknowledged: where its line is, by L2; else as soon as DRAM has taken it into its queue.

    A sector is written whole, so that nothing is fetched for it. L1 gets the new bytes where it has the line.
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
    """When slice *part* takes a request that comes at *t*."""
    t = max(t, s.times[m.slice_free + part])
    s.times[m.slice_free + part] = t + max(1.0, sectors / m.port_sectors)
    return t


@njit(nogil=True, error_model="numpy")
def _allocate(a: Any, first: int, part: int, t: float, s: Any, m: Any) -> tuple[float, int]:
    """When access *a* has a line of the L2 set that begins at cell *first*, and its cell; -1: it goes around."""
    hint = s.words[m.hints + a.structure]
    learns = (first - m.l2_first) // m.l2_ways % LEARNING == a.instruction % LEARNING
    if hint == NO_ALLOCATE or (_unwanted(a, s, m) and not learns):
        _count(a, BYPASSED, 1, s, m)
        return t, -1
    came, cell = t, -1
    while cell < 0:
        soonest, cell = _victim((first, m.l2_ways), t, hint, s, m)
        if cell < 0:
            if m.allocation_bypass:
                _count(a, BYPASSED, 1, s, m)
                return t, -1
            t = soonest
    if t > came:
        _count(a, STALLS, 1, s, m)
        _count(a, STALLED, t - came, s, m)
        s.times[m.slice_free + part] = max(s.times[m.slice_free + part], t + 1.0)
    if s.words[m.tag + cell] != EMPTY:
        _evict(cell, t, s, m)
    _place(a, cell, hint, s, m)
    return t, cell


@njit(nogil=True, error_model="numpy")
def _unwanted(a: Any, s: Any, m: Any) -> bool:
    """Whether lines of *a*'s instruction are not used again. Unknown loads are wanted, stores are not."""
    return m.predicted_bypass != 0 and s.words[m.reuse + a.instruction] < UNSURE + (a.flags & FLAG_WRITE)


@njit(nogil=True, error_model="numpy")
def _evict(cell: int, t: float, s: Any, m: Any) -> None:
    """The line in *cell* goes: to DRAM where it is dirty, and its instruction learns where it was not used again."""
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
    """The dirty sectors of a line go to DRAM."""
    facts = s.words[m.facts + cell]
    sectors = ones(facts >> DIRTY)
    s.words[m.facts + cell] = facts & ~(15 << DIRTY)
    s.times[m.totals + CLEANED] += sectors
    s.times[m.counts + (facts >> STRUCTURE & 255) * NUM_COLUMNS + DRAM_WRITTEN] += sectors
    _write_dram(s.words[m.tag + cell], sectors, t, s, m)


@njit(nogil=True, error_model="numpy")
def _rinse(line: int, t: float, s: Any, m: Any) -> None:
    """All dirty lines of the DRAM row of *line* go with it, and stay as clean ones. The index of rows is complete."""
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
    """An empty cell of a set, else the one that is to go; -1, and when there will be one, where all wait for DRAM.

    Lines of the lowest hint go first. A persisting part that is full replaces its own; others never take from it.
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
    if best >= 0 and m.replacement == SRRIP:  # all grow as old as the one that goes
        for cell in range(first, first + ways):
            if s.times[m.ready + cell] <= t:
                s.words[m.stamp + cell] = min(AGE_MOST, s.words[m.stamp + cell] + AGE_MOST + int(best_age))
    return soonest, best


@njit(nogil=True, error_model="numpy")
def _place(a: Any, cell: int, hint: int, s: Any, m: Any) -> None:
    """The line of access *a* is in *cell* from now on, with no byte yet."""
    s.words[m.tag + cell] = a.line
    s.words[m.facts + cell] = hint << HINT | np.int64(a.structure) << STRUCTURE | np.int64(a.instruction) << INSTRUCTION
    s.words[m.stamp + cell] = AGE_MOST - 1 if m.replacement == SRRIP else int(s.times[m.totals + ACCESS_COUNT])
    s.times[m.ready + cell] = 0.0


@njit(nogil=True, error_model="numpy")
def _touch(cell: int, s: Any, m: Any) -> None:
    s.words[m.stamp + cell] = 0 if m.replacement == SRRIP else int(s.times[m.totals + ACCESS_COUNT])


@njit(nogil=True, error_model="numpy")
def _reuse(cell: int, s: Any, m: Any) -> None:
    """A line of L2 is used again: the first time, the instruction that brought it learns."""
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
    """When the last of *sectors* of *line* has come."""
    channel, inner = in_channel(line, m)
    return _burst((channel, inner // m.row_lines, 0), sectors, t, s, m)


@njit(nogil=True, error_model="numpy")
def _write_dram(line: int, sectors: int, t: float, s: Any, m: Any) -> float:
    """When the write queue of its channel has taken *line*."""
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
    """All that waits is written: in order, but with a line all others of its row."""
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
    """When the bytes have gone over the bus; *of* is the channel, the row, and whether it is a write."""
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
