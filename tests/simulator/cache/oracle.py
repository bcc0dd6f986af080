"""The cache simulator a second time: objects and dictionaries, slow and plain, from what `state.py` says of time."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from workbench.simulator.cache.hierarchy import LINE_BYTES, SECTOR_BYTES, Hierarchy
from workbench.simulator.cache.policies import Hint, Loads, Policy, Replacement, Stores
from workbench.simulator.cache.trace import DIRECT, PEER, WRITE, Trace

SECTORS = range(4)


@dataclass
class Line:
    number: int
    structure: int
    instruction: int
    hint: int
    age: int
    way: int
    sectors: set[int] = field(default_factory=set)
    dirty: set[int] = field(default_factory=set)
    ready: float = 0.0
    reused: bool = False


def fold(number: int) -> int:
    return number ^ (number >> 5) ^ (number >> 11)


def sectors_of(mask: int) -> set[int]:
    return {bit for bit in SECTORS if mask >> bit & 1}


class Oracle:
    """`counts[structure, word]`, `totals[word]` and `cycles` of a whole trace; LRU and SRRIP only."""

    def __init__(self, trace: Trace, on: Hierarchy, policy: Policy) -> None:
        self.on, self.policy, self.trace = on, policy, trace
        self.l1: dict[tuple[int, int], dict[int, Line]] = defaultdict(dict)
        self.l2: dict[tuple[int, int], dict[int, Line]] = defaultdict(dict)
        self.counts: Counter[tuple[int, str]] = Counter()
        self.totals: Counter[str] = Counter()
        self.clock: dict[int, float] = defaultdict(float)
        self.flying = {unit: deque([0.0] * on.in_flight) for unit in range(on.units)}
        self.port: dict[int, float] = defaultdict(float)
        self.registers = {part: deque([0.0] * on.l2_misses) for part in range(on.l2_slices)}
        self.reuse: dict[int, int] = defaultdict(lambda: 512)
        self.rows: dict[tuple[int, int], int] = {}
        self.bank_free: dict[tuple[int, int], float] = defaultdict(float)
        self.bus_free: dict[int, float] = defaultdict(float)
        self.wrote: dict[int, bool] = defaultdict(bool)
        self.queues: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.now = 0
        self.cycles = 0.0
        kernel = None
        for chunk in trace.chunks():
            if kernel not in (None, chunk.kernel):
                self.end_kernel()
            kernel = chunk.kernel
            for access in chunk.accesses:
                self.step(access)
        self.end_kernel()

    def spread(self, number: int, count: int) -> int:
        return (number + (fold(number // count) if self.on.hashed else 0)) % count

    def step(self, a) -> None:
        self.now += 1
        unit, flags = int(a["unit"]), int(a["flags"])
        t = self.clock[unit]
        if not flags & PEER:
            t = max(t, self.flying[unit].popleft())
            self.clock[unit] = t + 1
        done = self.store(a, t) if flags & WRITE else self.load(a, t)
        if not flags & PEER:
            self.flying[unit].append(done)
        self.cycles = max(self.cycles, done)

    def load(self, a, t: float) -> float:
        need, on, which = sectors_of(int(a["sectors"])), self.on, int(a["structure"])
        self.counts[which, "sectors_read"] += len(need)
        line = None
        if self.policy.loads is not Loads.BYPASS and on.l1_sets and not int(a["flags"]) & DIRECT:
            cache = self.l1[int(a["unit"]), self.spread(int(a["line"]), on.l1_sets)]
            self.counts[which, "l1_asked"] += len(need)
            line = cache.get(int(a["line"]))
            if line is not None:
                self.counts[which, "l1_hit"] += len(need & line.sectors)
                need -= line.sectors
                self.touch(line)
                if not need:
                    return max(t + on.l1_cycles, line.ready)
            else:
                t, room = self.room(cache, on.l1_ways, t, Hint.NORMAL, a)
                if room:
                    line = cache[int(a["line"])] = self.new(a, Hint.NORMAL, cache, on.l1_ways)
            t += on.l1_cycles
        done = self.load_l2(a, need, t)
        if line is not None:
            line.sectors |= need
            line.ready = max(line.ready, done)
        return done

    def load_l2(self, a, need: set[int], t: float) -> float:
        number, which = int(a["line"]), int(a["structure"])
        part = self.spread(number, self.on.l2_slices)
        t = self.enter(part, len(need), t)
        self.counts[which, "l2_asked"] += len(need)
        self.counts[which, "lines_asked"] += 1
        line = None
        if self.policy.loads is not Loads.BYPASS:
            cache = self.set_of(number)
            line = cache.get(number)
            if line is not None:
                self.counts[which, "l2_hit"] += len(need & line.sectors)
                need = need - line.sectors
                self.use(line)
                if not need:
                    return max(t + self.on.l2_cycles, line.ready)
            else:
                self.counts[which, "lines_missed"] += 1
                t, line = self.allocate(a, cache, part, t)
        else:
            self.counts[which, "lines_missed"] += 1
        self.counts[which, "dram_read"] += len(need)
        if line is None:
            return self.read(number, len(need), t + self.on.l2_cycles)
        free = self.registers[part].popleft()
        if free > t:
            t = free
            self.port[part] = max(self.port[part], t + 1)
        done = self.read(number, len(need), t + self.on.l2_cycles)
        self.registers[part].append(done)
        line.sectors |= need
        line.ready = max(line.ready, done)
        self.totals["filled"] += len(need)
        return done

    def store(self, a, t: float) -> float:
        need, number, which = sectors_of(int(a["sectors"])), int(a["line"]), int(a["structure"])
        self.counts[which, "sectors_written"] += len(need)
        part = self.spread(number, self.on.l2_slices)
        t = self.enter(part, len(need), t)
        if self.policy.loads is not Loads.BYPASS:
            cache = self.set_of(number)
            line = cache.get(number)
            stays = self.policy.stores is Stores.BACK and (line is not None or not self.shuns(a))
            if line is not None:
                self.use(line)
            elif self.policy.stores is Stores.BACK:
                t, line = self.allocate(a, cache, part, t)
            if line is not None:
                self.totals["filled"] += len(need - line.sectors)
                line.sectors |= need
                if stays:
                    self.totals["dirtied"] += len(need - line.dirty)
                    line.dirty |= need
                    return t + self.on.l2_cycles
        self.counts[which, "dram_written"] += len(need)
        return self.write(number, len(need), t + self.on.l2_cycles)

    def shuns(self, a) -> bool:
        """A load is wanted until it has shown no reuse, a store is not until it has shown some."""
        least = 513 if int(a["flags"]) & 1 else 512
        return self.policy.predicted_bypass and self.reuse[int(a["instruction"])] < least

    def set_of(self, number: int) -> dict[int, Line]:
        on = self.on
        return self.l2[self.spread(number, on.l2_slices), self.spread(number // on.l2_slices, on.l2_sets)]

    def enter(self, part: int, num_sectors: int, t: float) -> float:
        t = max(t, self.port[part])
        self.port[part] = t + max(1.0, num_sectors * SECTOR_BYTES / self.on.l2_port_bytes)
        return t

    def new(self, a, hint: int, cache: dict[int, Line], ways: int) -> Line:
        """In the last way that is free."""
        age = 2 if self.policy.replacement is Replacement.SRRIP else self.now
        way = max(set(range(ways)) - {line.way for line in cache.values()})
        return Line(int(a["line"]), int(a["structure"]), int(a["instruction"]), hint, age, way)

    def touch(self, line: Line) -> None:
        line.age = 0 if self.policy.replacement is Replacement.SRRIP else self.now

    def use(self, line: Line) -> None:
        self.touch(line)
        if not line.reused:
            line.reused = True
            self.reuse[line.instruction] = min(1023, self.reuse[line.instruction] + 4)

    def allocate(self, a, cache: dict[int, Line], part: int, t: float) -> tuple[float, Line | None]:
        hint = self.policy.hints.get(self.trace.structures[int(a["structure"])].role, Hint.NORMAL)
        number = int(a["line"])
        at = self.spread(number, self.on.l2_slices) * self.on.l2_sets
        at += self.spread(number // self.on.l2_slices, self.on.l2_sets)
        shunned = self.shuns(a) and at % 32 != int(a["instruction"]) % 32
        if hint is Hint.NO_ALLOCATE or shunned:
            self.counts[int(a["structure"]), "bypassed"] += 1
            return t, None
        t, room = self.room(cache, self.on.l2_ways, t, hint, a, part)
        if not room:
            self.counts[int(a["structure"]), "bypassed"] += 1
            return t, None
        cache[number] = self.new(a, hint, cache, self.on.l2_ways)
        return t, cache[number]

    def room(self, cache, ways: int, t: float, hint: int, a, part: int | None = None) -> tuple[float, bool]:
        came = t
        while True:
            kept = [line for line in cache.values() if line.hint == Hint.PERSIST]
            full = hint == Hint.PERSIST and len(kept) >= int(self.policy.persist_share * ways)
            if len(cache) < ways and not full:
                break
            able = kept if full else [line for line in cache.values() if line.hint != Hint.PERSIST]
            if idle := [line for line in able if line.ready <= t]:
                self.remove(cache, self.chosen(cache, idle, t), t, is_l2=part is not None)
                break
            if self.policy.allocation_bypass:
                return t, False
            t = min(line.ready for line in able)
        if t > came:
            self.counts[int(a["structure"]), "stalls"] += 1
            self.counts[int(a["structure"]), "stall_cycles"] += t - came
            if part is None:
                self.clock[int(a["unit"])] = t + 1
            else:
                self.port[part] = max(self.port[part], t + 1)
        return t, True

    def chosen(self, cache, idle: list[Line], t: float) -> Line:
        """Of lines of one age, as SRRIP has them, the one in the first way."""
        if self.policy.replacement is Replacement.LRU:
            return min(idle, key=lambda line: (line.hint, line.age))
        assert self.policy.replacement is Replacement.SRRIP
        least = min(line.hint for line in idle)
        oldest = max(line.age for line in idle if line.hint == least)
        for line in cache.values():
            if line.ready <= t:
                line.age = min(3, line.age + 3 - oldest)
        return min((line for line in idle if line.hint == least and line.age == 3), key=lambda line: line.way)

    def remove(self, cache, line: Line, t: float, is_l2: bool) -> None:
        del cache[line.number]
        if not is_l2:
            return
        was_dirty = bool(line.dirty)
        if was_dirty:
            self.clean(line, t)
        self.totals["dropped"] += len(line.sectors)
        if self.policy.predicted_bypass and not line.reused:
            self.reuse[line.instruction] = max(0, self.reuse[line.instruction] - 1)
        if was_dirty and self.policy.rinsing:
            self.rinse(line.number, t)

    def clean(self, line: Line, t: float) -> None:
        self.totals["cleaned"] += len(line.dirty)
        self.counts[line.structure, "dram_written"] += len(line.dirty)
        self.write(line.number, len(line.dirty), t)
        line.dirty = set()

    def rinse(self, number: int, t: float) -> None:
        """Of all lines of L2, in the order of their addresses inside the row."""
        alike = [line for cache in self.l2.values() for line in cache.values()
                 if line.dirty and self.row_of(line.number) == self.row_of(number)]  # fmt: skip
        for line in sorted(alike, key=lambda line: line.number):
            self.totals["rinsed"] += 1
            self.clean(line, t)

    def row_of(self, number: int) -> tuple[int, int]:
        blocks = self.on.dram_interleave_bytes // LINE_BYTES
        block = number // blocks
        inner = block // self.on.dram_channels * blocks + number % blocks
        return self.spread(block, self.on.dram_channels), inner // (self.on.dram_row_bytes // LINE_BYTES)

    def read(self, number: int, num_sectors: int, t: float) -> float:
        return self.burst(*self.row_of(number), num_sectors, t, False)

    def write(self, number: int, num_sectors: int, t: float) -> float:
        channel, row = self.row_of(number)
        if len(self.queues[channel]) == self.on.dram_write_queue:
            self.drain(channel, t)
            t = max(t, self.bus_free[channel])
        self.queues[channel].append((row, num_sectors))
        return t

    def drain(self, channel: int, t: float) -> None:
        waiting = self.queues.pop(channel, [])
        for row in dict.fromkeys(row for row, _ in waiting):
            for other, num_sectors in waiting:
                if other == row:
                    self.burst(channel, row, num_sectors, t, True)

    def burst(self, channel: int, row: int, num_sectors: int, t: float, is_write: bool) -> float:
        on = self.on
        bank = channel, (row ^ (row >> 4) if on.hashed else row) % on.dram_banks
        start = max(t, self.bank_free[bank])
        if self.rows.get(bank) == row:
            self.totals["row_hits"] += 1
        else:
            self.totals["row_misses"] += 1
            start += on.dram_activate_cycles
        self.rows[bank] = row
        turning = on.dram_turnaround_cycles if self.wrote[channel] != is_write else 0
        self.wrote[channel] = is_write
        end = max(start + on.dram_cycles, self.bus_free[channel] + turning) + num_sectors * on.sector_cycles
        self.bus_free[channel], self.bank_free[bank] = end, end - on.dram_cycles
        return end

    def end_kernel(self) -> None:
        self.l1.clear()
        if self.on.flushes:
            raise NotImplementedError("the order of a flush is that of the cells")
        for channel in range(self.on.dram_channels):
            self.drain(channel, self.cycles)
        self.cycles = max([self.cycles, *self.bus_free.values()])
        for unit in range(self.on.units):
            self.clock[unit] = self.cycles

    def resident(self) -> list[Line]:
        return [line for cache in self.l2.values() for line in cache.values()]
