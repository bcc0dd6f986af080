"""What was counted becomes values of the reuse tier: `python -m tests.gpu.caches fit OUT.json`. Hints are replayed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from kernels import files
from tests.gpu import caches_kernels
from tests.gpu.caches_measured import measured_kernels
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
    known = measured_kernels(document)
    best = fitted(known, of_machine(machine(caches_kernels.MACHINE)))
    rows = list(measured.errors(known, best))
    from_where = document["provenance"]
    count = sum(each.part == "fit" for each in known)
    source = f"{from_where['gpus']}, {from_where['date'][:10]}: bytes that ncu counts of {count} kernels"
    files.write(into, written_into(into.read_text(), best, source))
    for kernel in document["kernels"]:
        if kernel["work"] == caches_kernels.COMPARED:
            kernel["simulated"] = replayed(kernel, best)
    files.write(kept, json.dumps(document, separators=(",", ":")) + "\n")
    print(", ".join(f"{name} = {getattr(best, name):g}" for name in FITTED))
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


# The fit: a search over a grid of parameter values.

Grid = Mapping[str, Sequence[float]]
TRAFFIC: Grid = {
    "uneven": (0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.56),
    "far_copies": (0.0, 0.25, 0.5, 0.75, 1.0),
    "pace_spread": (0.0, 0.002, 0.003, 0.004, 0.005, 0.006, 0.0075, 0.01, 0.02),
}
"""The parameters that decide the DRAM bytes, with the values to try."""
REQUESTS: Grid = {
    "merged": tuple(i / 10 for i in range(11)), "l1_bytes": (131_072, 163_840, 196_608, 229_376),
}  # fmt: skip
"""The parameters that decide the bytes requested from L2, with the values to try."""
FITTED = (*TRAFFIC, *REQUESTS)


def fitted(of: Sequence[measured.MeasuredKernel], on: Hierarchy) -> Hierarchy:
    """*on* with the values of FITTED of least mean error over the kernels of part `fit`, DRAM bytes first."""
    chosen = [each for each in of if each.part == "fit"]
    if not chosen:
        raise ValueError(
            "The document has 0 kernels of part = fit. Accepted: a document with at least 1 of part = fit."
        )

    def error(one: Hierarchy, name: str) -> float:
        return _mean(abs(math.log1p(row[name])) for row in measured.errors(chosen, one) if row[name] is not None)

    best = min(_combinations(on, TRAFFIC), key=lambda one: error(one, "off"))
    return min(_combinations(best, REQUESTS), key=lambda one: error(one, "asked_off"))


def _combinations(on: Hierarchy, grid: Grid) -> Iterator[Hierarchy]:
    """Copies of *on*, one for each combination of values of *grid*."""
    for values in product(*grid.values()):
        changed: dict[str, Any] = dict(zip(grid, values, strict=True))
        yield replace(on, **changed)


def _mean(values: Iterable[float]) -> float:
    """Arithmetic mean, or 0 without values, so that uncounted metrics prefer no parameter value."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def written_into(text: str, of: Hierarchy, source: str) -> str:
    """The *text* of a cache file with the fitted values of *of*, and with *source* as their provenance."""
    lines = []
    for line in text.splitlines():
        key = line.split("=")[0].strip()
        for name in FITTED:
            value = getattr(of, name)
            line = f"{name} = {value:_}" if key == name and isinstance(value, int) else line
            line = f"{name} = {value:g}" if key == name and isinstance(value, float) else line
            line = f'"{name}" = "calibrated: {source}"' if key == f'"{name}"' else line
        lines.append(line)
    return "\n".join(lines) + "\n"
