"""A replay of a trace on a hierarchy under a policy, with its traffic by structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.schedule import Refusal
from workbench.simulator.cache import step
from workbench.simulator.cache.hierarchy import LINE_BYTES, SECTOR_BYTES, Hierarchy
from workbench.simulator.cache.policies import Hint, Policy
from workbench.simulator.cache.trace import Chunk, Trace, heeded

# The state of a replay in two arrays (lines of both levels, DRAM, requests in flight), and its parameters as numbers.


class ReplayState(NamedTuple):
    """Everything that a replay changes, in two arrays."""

    words: NDArray[np.int64]
    """Tags, ages, facts of lines, queues and counters that are integers."""
    times: NDArray[np.float64]
    """Times in cycles, and the counts by structure and in total."""


class PlainConfiguration(NamedTuple):
    """A Hierarchy, a Policy and the offsets of a ReplayState's parts, as plain numbers for compiled code."""

    l1_sets: int
    l1_ways: int
    l2_sets: int
    l2_ways: int
    slices: int
    channels: int
    banks: int
    row_lines: int
    interleave_lines: int
    hashed: int
    flushes: int
    units: int
    in_flight: int
    num_misses: int
    num_queue: int
    l1_cycles: float
    l2_cycles: float
    port_sectors: float
    sector_cycles: float
    dram_cycles: float
    activate_cycles: float
    turnaround_cycles: float
    loads: int
    stores: int
    allocation_bypass: int
    rinsing: int
    predicted_bypass: int
    replacement: int
    persist_ways: int
    l2_first: int
    """Number of the first cell of L2. A cell is a way of a set; cells of the L1s come first, unit by unit."""
    cells: int
    tag: int
    """Offset in `words`, as of all fields to `reuse`: by cell the line, its last use (or SRRIP age), and its facts."""
    stamp: int
    facts: int
    hints: int
    flight_at: int
    misses_at: int
    was_write: int
    row: int
    queue: int
    queued: int
    reuse: int
    ready: int
    """Offset in `times`, as of all fields below: by cell the time at which all its bytes have arrived."""
    clock: int
    flight: int
    slice_free: int
    misses: int
    bus_free: int
    bank_free: int
    counts: int
    """Counts of step.COLUMNS by structure."""
    totals: int
    """Counts of step.TOTALS."""


def begin(on: Hierarchy, policy: Policy, trace: Trace) -> tuple[ReplayState, PlainConfiguration]:
    """The initial state: empty caches, closed rows, nothing in flight. Refusal if *policy* does not fit *on*."""
    banks, l2_first = on.dram_channels * on.dram_banks, on.units * on.l1_sets * on.l1_ways
    cells = l2_first + on.l2_slices * on.l2_sets * on.l2_ways
    words, num_words = _offsets(
        tag=cells, row=banks, stamp=cells, facts=cells, hints=len(trace.structures), flight_at=on.units,
        misses_at=on.l2_slices, was_write=on.dram_channels, queue=2 * on.dram_channels * on.dram_write_queue,
        queued=on.dram_channels, reuse=len(trace.instructions),
    )  # fmt: skip
    times, num_times = _offsets(
        ready=cells, clock=on.units, flight=on.units * on.in_flight, slice_free=on.l2_slices,
        misses=on.l2_slices * on.l2_misses, bus_free=on.dram_channels, bank_free=banks,
        counts=len(trace.structures) * len(step.COLUMNS), totals=len(step.TOTALS),
    )  # fmt: skip
    state = ReplayState(np.zeros(num_words, np.int64), np.zeros(num_times))
    state.words[: cells + banks] = step.EMPTY  # tags and open rows
    state.words[words["reuse"] :] = step.UNSURE
    hints = [int(policy.hints.get(each.role, Hint.NORMAL)) for each in trace.structures]
    state.words[words["hints"] : words["hints"] + len(hints)] = hints
    plain = PlainConfiguration(
        **_sizes(on), **_rules(policy, hints, on.l2_ways), l2_first=l2_first, cells=cells, **words, **times
    )
    return state, plain


def counted(state: ReplayState, plain: PlainConfiguration) -> NDArray[np.float64]:
    """The counts as an array [structures, step.COLUMNS]."""
    return state.times[plain.counts : plain.totals].reshape(-1, len(step.COLUMNS))


def _offsets(**lengths: int) -> tuple[dict[str, int], int]:
    """The offset of each part of an array, and the length of the array."""
    starts = np.concatenate([[0], np.cumsum(list(lengths.values()))])
    return {name: int(start) for name, start in zip(lengths, starts, strict=False)}, int(starts[-1])


def _sizes(on: Hierarchy) -> dict[str, Any]:
    return {
        "l1_sets": on.l1_sets, "l1_ways": on.l1_ways, "l2_sets": on.l2_sets, "l2_ways": on.l2_ways,
        "slices": on.l2_slices, "channels": on.dram_channels, "banks": on.dram_banks,
        "row_lines": on.dram_row_bytes // LINE_BYTES, "interleave_lines": on.dram_interleave_bytes // LINE_BYTES,
        "hashed": int(on.hashed), "flushes": int(on.flushes), "units": on.units, "in_flight": on.in_flight,
        "num_misses": on.l2_misses, "num_queue": on.dram_write_queue, "l1_cycles": float(on.l1_cycles),
        "l2_cycles": float(on.l2_cycles), "port_sectors": on.l2_port_bytes / SECTOR_BYTES,
        "sector_cycles": on.sector_cycles, "dram_cycles": float(on.dram_cycles),
        "activate_cycles": float(on.dram_activate_cycles), "turnaround_cycles": float(on.dram_turnaround_cycles),
    }  # fmt: skip


def _rules(of: Policy, hints: Sequence[int], ways: int) -> dict[str, int]:
    """A policy as numbers; Refusal if its persisting part is empty or a whole set."""
    persist_ways = int(of.persist_share * ways)
    if Hint.PERSIST in hints and not 1 <= persist_ways < ways:
        raise Refusal(
            f"policy = {of.name} keeps {of.persist_share:.0%} of {ways} ways for lines that persist: {persist_ways} "
            f"of them. Accepted: a share that gives 1 to {ways - 1} ways."
        )
    return {"loads": int(of.loads), "stores": int(of.stores), "allocation_bypass": int(of.allocation_bypass),
            "rinsing": int(of.rinsing), "predicted_bypass": int(of.predicted_bypass),
            "replacement": int(of.replacement), "persist_ways": persist_ways}  # fmt: skip


# A replay and its result.


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of one structure, or of all together. Rates are None if nothing was requested."""

    l1_hit_rate: float | None
    """Hit rate of the sectors loaded through L1."""
    l2_hit_rate: float | None
    """Hit rate of the sectors loaded from L2; a sector that another request is fetching counts as a hit."""
    dram_read_bytes: int
    dram_write_bytes: int
    l2_line_misses: int
    """Loads of a line that missed in L2."""
    stalls: int
    """Requests that waited because all ways of their set were waiting for DRAM."""
    stall_cycles: float
    bypassed: int
    """Requests that bypassed L2."""
    sectors: int
    """Sectors loaded and stored."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of the replay of one trace under one policy."""

    trace: str
    policy: str
    accesses: int
    cycles: float
    total: Traffic
    structures: dict[str, Traffic]
    row_hit_rate: float | None
    """Share of DRAM bursts that hit an open row; None without bursts."""
    rinsed_lines: int

    @property
    def stalls_per_request(self) -> float:
        return self.total.stalls / max(1, self.accesses)


def simulate(trace: Trace, on: Hierarchy, policy: Policy) -> ReplayResult:
    """Replay *trace* chunk by chunk. Deterministic; Refusal if *trace* has more units than *on*."""
    state, plain = replayed(trace, on, policy)
    counts = counted(state, plain)
    totals = dict(zip(step.TOTALS, state.times[plain.totals :], strict=True))
    bursts = totals["row_hits"] + totals["row_misses"]
    by_structure = {each.name: _traffic(counts[number]) for number, each in enumerate(trace.structures)}
    return ReplayResult(trace.name, policy.name, int(totals["accesses"]), float(totals["cycles"]),
                  _traffic(counts.sum(axis=0)), by_structure,
                  float(totals["row_hits"] / bursts) if bursts else None, int(totals["rinsed"]))  # fmt: skip


def replayed(trace: Trace, on: Hierarchy, policy: Policy) -> tuple[ReplayState, PlainConfiguration]:
    """The final state of a replay of *trace*, and its layout."""
    if trace.units > on.units:
        raise Refusal(
            f"{trace.name} has accesses of {trace.units} units, and {on.name} has {on.units}: {trace.units} > "
            f"{on.units}. Accepted: a trace of at most {on.units} units."
        )
    state, plain = begin(on, policy, trace)
    kernel = None
    for chunk in heeded(trace.chunks()):
        if kernel is not None and chunk.kernel != kernel:
            step.end_kernel(state, plain)
        kernel = chunk.kernel
        _check(trace, chunk)
        step.replay(chunk.accesses, state, plain)
    step.end_kernel(state, plain)
    return state, plain


def _check(trace: Trace, chunk: Chunk) -> None:
    """Refuse accesses out of bounds, which compiled code does not check."""
    limits = (("unit", trace.units), ("structure", len(trace.structures)), ("instruction", len(trace.instructions)))
    for name, count in limits:
        if len(chunk.accesses) and (most := int(chunk.accesses[name].max())) >= count:
            raise Refusal(f"{trace.name} has an access of {name} {most} and names {count}. Accepted: 0 to {count - 1}.")
    if len(chunk.accesses) and int(chunk.accesses["line"].min()) < 0:
        raise Refusal(f"{trace.name} has an access below address 0. Accepted: addresses from 0.")


def _traffic(counts: np.ndarray) -> Traffic:
    of = dict(zip(step.COLUMNS, counts, strict=True))
    return Traffic(
        l1_hit_rate=_share(of["l1_hit"], of["l1_asked"]), l2_hit_rate=_share(of["l2_hit"], of["l2_asked"]),
        dram_read_bytes=int(of["dram_read"]) * SECTOR_BYTES, dram_write_bytes=int(of["dram_written"]) * SECTOR_BYTES,
        l2_line_misses=int(of["lines_missed"]), stalls=int(of["stalls"]), stall_cycles=float(of["stall_cycles"]),
        bypassed=int(of["bypassed"]), sectors=int(of["sectors_read"] + of["sectors_written"]),
    )  # fmt: skip


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
