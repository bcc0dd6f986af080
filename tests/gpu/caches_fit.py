"""What was counted becomes values of the reuse tier, and text: `python -m tests.gpu.caches fit OUT.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from kernels import files
from kernels.occupancy import OTHER_REGISTERS, REGISTERS_MOST
from kernels.schedule import tile
from tests.gpu import caches_kernels
from tests.gpu.caches_measured import measured_kernels
from workbench.analysis import kernel_counters
from workbench.machines import machine
from workbench.resources import data_directory
from workbench.simulator.cache import measured
from workbench.simulator.cache.counters import READ, WRITTEN, hit_rate
from workbench.simulator.cache.hierarchy import Hierarchy, of_machine
from workbench.simulator.cache.operators import traced
from workbench.simulator.cache.policies import policies_of
from workbench.simulator.cache.replay import simulate

# What was counted becomes values of the reuse tier: `python -m tests.gpu.caches fit OUT.json`. Hints are replayed.

Row = dict[str, Any]


FAR = 0.1
"""GEMMs whose bytes are further off are listed: the bound of their median."""


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


# What a GPU counted of caches, as documents say it: how far the reuse tier is off by class, and what hints do.

Facts = Mapping[str, Any]
NAMES = {"gemm": "GEMM", "gemv": "GEMV"}


def counted_text(where: str, told: Facts) -> str:
    """Two tables, of classes and of the deepest GEMMs, both of kernels that were held out; then which bounds hold."""
    counted = measured_kernels(told)
    rows = list(measured.errors(counted, of_machine(machine(told["provenance"]["machine"]))))
    deep = [row for row in rows if row["shape"] == kernel_counters.DEEP]
    axes = {kernel["number"]: kernel["axes"] for kernel in told["kernels"]}
    broken = kernel_counters.broken_bounds(rows)
    parts = [
        f"{where}: {len(counted)} of {len(told['kernels'])} kernels are counted. Those that were held out:",
        _table(("class", "kernels", "DRAM bytes off, median", "p90", "hit rate off, mean"), [
            (NAMES.get(work, work), of["kernels"], f"{of['median_off']:.1%}", f"{of['p90_off']:.1%}",
             "" if of["mean_points_off"] is None else f"{of['mean_points_off']:.1f} points")
            for work, of in measured.by_class(rows).items() if of["kernels"]
        ]),
        *([_table(("8192x8192x28672: tile order, `group_rows`", "GB read", "spread", "estimated", "off"), [
            (f"{axes[row['number']]['tile_order']}, {axes[row['number']]['group_rows']}",
             f"{row['dram_read_bytes'] / 1e9:.2f}", f"{row['spread']:.1%}", f"{row['estimated_bytes'] / 1e9:.2f}",
             f"{row['off']:+.0%}") for row in deep
        ])] if deep else []),
        "All bounds hold." if not broken else " ".join(f"Missed: {sentence}" for sentence in broken),
        *_spilled_text(counted, rows),
    ]  # fmt: skip
    return _framed(parts)


def _spilled_text(counted: Sequence[measured.MeasuredKernel], rows: Sequence[Row]) -> Iterator[str]:
    """Where some do, how much more than their results GEMMs wrote whose sums spill, and the bytes of all others."""
    gemms = [(_spills(kernel), row) for kernel, row in zip(counted, rows, strict=True) if row["work"] == "gemm"]
    beyond = {side: [row["dram_write_bytes"] - kernel_results(row) for spills, row in gemms if spills is side]
              for side in (True, False)}  # fmt: skip
    if not beyond[True] or not beyond[False]:
        return
    others = measured.by_class([row for spills, row in gemms if not spills])["gemm"]
    yield (f"GEMMs whose sums do not fit registers, {len(beyond[True])}, wrote {min(beyond[True]) / 1e6:.0f} to "
            f"{max(beyond[True]) / 1e6:.0f} MB more than their results, all others at most "
            f"{max(beyond[False]) / 1e6:.0f} MB more. Without them the bytes of GEMMs are {others['p90_off']:.1%} off "
            "at p90.")  # fmt: skip
    yield _furthest(sorted(gemms, key=lambda each: -abs(each[1]["off"])), counted)


def _furthest(gemms: Sequence[tuple[bool, Row]], counted: Sequence[measured.MeasuredKernel]) -> str:
    """A table of the GEMMs whose bytes are more than FAR off, and whether their sums spill."""
    tiles = {kernel.number: dict(kernel.point[1].axes)["tile"] for kernel in counted}
    return _table(("m x n x k", "tile", "MB of operands", "of results", "read", "estimated", "off", "sums spill"), [
        (" x ".join(str(row["shape"][side]) for side in "mnk"), tiles[row["number"]],
         *(f"{value / 1e6:.0f}" for value in (row["operands"], kernel_results(row), row["dram_read_bytes"],
                                              row["estimated_bytes"])), f"{row['off']:+.0%}", "yes" if spills else "")
        for spills, row in gemms if abs(row["off"]) > FAR
    ])  # fmt: skip


def kernel_results(row: Row) -> int:
    """Bytes of the results of a GEMM of 2 bytes a number."""
    return int(2 * row["shape"]["m"] * row["shape"]["n"])


def _spills(kernel: measured.MeasuredKernel) -> bool:
    """Whether a thread's share of a tile's sums, of 4 bytes each, needs more registers than it may have."""
    axes = dict(kernel.point[1].axes)
    if "store" not in axes:
        return False
    size = tile(str(axes["tile"]))
    return size.m * size.n // (32 * int(axes["num_warps"])) + OTHER_REGISTERS > REGISTERS_MOST


def hints_text(told: Facts) -> str:
    """A table of kernels with hints, and what it advises."""
    kernels = [kernel for kernel in told["kernels"] if kernel.get("seconds") and kernel.get("repeats")]
    rows = []
    for operator in kernel_counters.hint_results(kernels):
        of = [kernel for kernel in kernels if kernel["operator"] == operator["operator"]]
        rows += [_hinted(kernel, times) for kernel, times in zip(of, operator["rows"], strict=True)]
    table = _table(("operator", "hint", "µs, middle 80 %", "L2 hits", "MB read", "MB written", "replayed: MB read",
                    "MB written"), rows)  # fmt: skip
    return _framed([table, " ".join(kernel_counters.advice(kernels))])


def _framed(parts: Sequence[str]) -> str:
    """Paragraphs on lines of their own: a table does not begin behind a mark."""
    return "\n\n" + "\n\n".join(parts) + "\n\n"


def _hinted(kernel: Facts, times: Facts) -> tuple[str, ...]:
    words = ", ".join(f"{name} = {value}" for name, value in times["hints"].items()) or "none"
    low, middle, high = (f"{times[name] * 1e6:.1f}" for name in ("low_s", "time_s", "high_s"))
    rates = [rate for each in kernel["repeats"] if (rate := hit_rate(each)) is not None]
    simulated = kernel.get("simulated", {})
    return (
        f"`{kernel['operator']}`", words, f"{middle} ({low} to {high})", f"{median(rates):.1%}" if rates else "",
        *(f"{median(each[name] for each in kernel['repeats']) / 1e6:.1f}" for name in (READ, WRITTEN)),
        *(f"{simulated[name] / 1e6:.1f}" if name in simulated else ""
          for name in ("dram_read_bytes", "dram_write_bytes")),
    )  # fmt: skip


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
