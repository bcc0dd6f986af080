"""What was counted becomes values of the reuse tier: `python -m tests.gpu.caches fit OUT.json`. Hints are replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernels import files
from tests.gpu import caches_kernels
from workbench.analysis import kernel_counters
from workbench.machines import machine
from workbench.resources import data_directory
from workbench.simulator.cache import measured
from workbench.simulator.cache.hierarchy import Hierarchy, of_machine
from workbench.simulator.cache.operators import traced
from workbench.simulator.cache.policies import policies_of
from workbench.simulator.cache.replay import simulate

Row = dict[str, Any]


def main(out: Path) -> None:
    """Fits the caches of the machine that was counted, where they and the counts are shipped."""
    fit(out, data_directory() / "caches" / "h200.toml", kernel_counters.path())


def fit(out: Path, into: Path, kept: Path) -> dict[str, Row]:
    """Writes the fitted values into the cache file *into* and *out* to *kept*; what is off when held out, by class."""
    document = json.loads(out.read_text())
    known = measured.truths(document)
    best = measured.fitted(known, of_machine(machine(caches_kernels.MACHINE)))
    rows = list(measured.errors(known, best))
    from_where = document["provenance"]
    count = sum(each.part == "fit" for each in known)
    source = f"{from_where['gpus']}, {from_where['date'][:10]}: bytes that ncu counts of {count} kernels"
    files.write(into, measured.written_into(into.read_text(), best, source))
    for kernel in document["kernels"]:
        if kernel["work"] == caches_kernels.COMPARED:
            kernel["simulated"] = replayed(kernel, best)
    files.write(kept, json.dumps(document, separators=(",", ":")) + "\n")
    print(", ".join(f"{name} = {getattr(best, name):g}" for name in measured.FITTED))
    for row in rows:
        points = "not counted" if row["points_off"] is None else f"off by {row['points_off']:.1f} points"
        print(f"{row['number']:3} {row['work']:20} {row['part']:8} {row['dram_read_bytes'] / 1e9:9.3f} GB read, "
              f"estimated {row['off']:+.1%}, spread {row['spread']:.1%}, hits {points}")  # fmt: skip
    classes = measured.by_class(rows)
    print(json.dumps(classes, indent=1))
    for sentence in kernel_counters.broken_bounds(rows):
        print(f"Missed: {sentence}")
    for sentence in kernel_counters.advice(document["kernels"]):
        print(sentence)
    return classes


def replayed(kernel: Row, on: Hierarchy) -> Row:
    """What a replay on *on* says of *kernel*, its hints taken at their word; the last of its policies has them."""
    of, schedule = caches_kernels.point(kernel)
    policy = policies_of(schedule)[-1]
    replay = simulate(traced(of, schedule, on.units), on, policy)
    return {"policy": policy.name, "dram_read_bytes": replay.total.dram_read_bytes,
            "dram_write_bytes": replay.total.dram_write_bytes, "cycles": round(replay.cycles)}  # fmt: skip
