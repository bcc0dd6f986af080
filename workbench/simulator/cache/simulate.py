"""One replay: a trace on a hierarchy under a policy, and what came of it by structure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.schedule import Refusal
from workbench.simulator.cache import step
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.interrupts import heeded
from workbench.simulator.cache.policies import Policy
from workbench.simulator.cache.state import Plain, State, begin, counted
from workbench.simulator.cache.trace import SECTOR_BYTES, Chunk, Trace


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one structure, or all of them, moved. Rates are None where nothing was asked."""

    l1_hit_rate: float | None
    """Of the sectors that were loaded through L1."""
    l2_hit_rate: float | None
    """Of the sectors that were loaded from L2; one that another request is fetching counts as a hit."""
    dram_read_bytes: int
    dram_write_bytes: int
    l2_line_misses: int
    """Loads of a line that L2 did not have."""
    stalls: int
    """Requests that waited since all ways of their set were waiting for DRAM."""
    stall_cycles: float
    bypassed: int
    """Requests that went around L2."""
    sectors: int
    """Loaded and stored."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of one trace under one policy."""

    trace: str
    policy: str
    accesses: int
    cycles: float
    total: Traffic
    structures: dict[str, Traffic]
    row_hit_rate: float | None
    """Bursts of DRAM that met an open row."""
    rinsed_lines: int

    @property
    def stalls_per_request(self) -> float:
        return self.total.stalls / max(1, self.accesses)


def simulate(trace: Trace, on: Hierarchy, policy: Policy) -> Replay:
    """*trace* replayed chunk by chunk: deterministic; Refusal where it asks for units that *on* has not."""
    state, plain = replayed(trace, on, policy)
    counts = counted(state, plain)
    totals = dict(zip(step.TOTALS, state.times[plain.totals :], strict=True))
    bursts = totals["row_hits"] + totals["row_misses"]
    by_structure = {each.name: _traffic(counts[number]) for number, each in enumerate(trace.structures)}
    return Replay(trace.name, policy.name, int(totals["accesses"]), float(totals["cycles"]),
                  _traffic(counts.sum(axis=0)), by_structure,
                  float(totals["row_hits"] / bursts) if bursts else None, int(totals["rinsed"]))  # fmt: skip


def replayed(trace: Trace, on: Hierarchy, policy: Policy) -> tuple[State, Plain]:
    """All that a replay of *trace* leaves behind, and where it lies."""
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
    """Compiled code checks no bounds: who asks for what a trace does not have is refused before."""
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
