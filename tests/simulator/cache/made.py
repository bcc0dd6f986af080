"""Small caches and traces whose numbers fit into a head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.simulator.cache.hierarchy import LINE_BYTES, Hierarchy
from workbench.simulator.cache.trace import ACCESS, Structure, Trace, in_memory

STRUCTURES = (Structure("w", "weights"), Structure("x", "activations"), Structure("y", "output"))

SMALL = {
    "name": "small", "title": "small", "devices": (), "provenance": {}, "clock_hertz": 1e9, "units": 1, "in_flight": 1,
    "l1_bytes": 0, "l1_ways": 1, "l1_cycles": 10, "l2_bytes": 2 * LINE_BYTES, "l2_ways": 2, "l2_slices": 1,
    "l2_cycles": 100, "l2_port_bytes": 64, "l2_misses": 8, "dram_channels": 1, "dram_banks": 1,
    "dram_row_bytes": 4 * LINE_BYTES, "dram_interleave_bytes": LINE_BYTES, "dram_bytes_per_second": 32e9,
    "dram_cycles": 1000, "dram_activate_cycles": 500, "dram_turnaround_cycles": 50, "dram_write_queue": 8,
    "flushes": False, "hashed": False,
}  # fmt: skip
"""No L1, one set of two lines; a sector holds the bus of DRAM for one cycle; four lines are one row."""


def small(**values: object) -> Hierarchy:
    return Hierarchy(**(SMALL | values))


def trace(*kernels: Sequence[dict[str, int]], units: int = 1) -> Trace:
    """Each access by its fields; without `sectors` it is of a whole line."""
    made = []
    for accesses in kernels:
        rows = np.zeros(len(accesses), ACCESS)
        for row, fields in zip(rows, accesses, strict=True):
            for name, value in ({"sectors": 15} | fields).items():
                row[name] = value
        made.append(rows)
    return in_memory("made", made, STRUCTURES, units)


def load(line: int, **fields: int) -> dict[str, int]:
    return {"line": line, **fields}


def store(line: int, **fields: int) -> dict[str, int]:
    return {"line": line, "flags": 1, "structure": 2, **fields}
