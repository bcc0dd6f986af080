"""What a GPU's counters said of our kernels, as it is shipped: beside what is simulated, and as advice on cache hints.

`python -m tests.gpu.caches` counts. Where nothing is shipped, there are no rows and no advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from kernels import files
from kernels.problem import Problem
from kernels.schedule import OMITTED_DEFAULTS, Schedule
from kernels.schemes import axis_rules
from workbench.machines import machine
from workbench.resources import data_directory
from workbench.results.metrics import apart
from workbench.simulator.cache.counters import READ, WRITTEN, hit_rate
from workbench.simulator.cache.hierarchy import Hierarchy, of_machine
from workbench.simulator.cache.measured import by_class

KIND = files.TextKind("file of counted kernels", "counted kernels", "a JSON file that `python -m tests.gpu.caches` "
                      "writes")  # fmt: skip
MEDIAN_MOST, P90_MOST, DEEP_MOST, POINTS_MOST = 0.10, 0.25, 0.25, 3.0
"""Shares of the DRAM bytes of kernels that were held out, in the median, at the 90th percentile, and of the deepest
GEMM; points of hit rate in the mean."""
DEEP = {"m": 8192, "n": 8192, "k": 28672}
WORTH = 0.01
"""A hint pays from this share of the time on."""
Row = dict[str, Any]


def path() -> Path:
    """Where counts are shipped."""
    return data_directory() / "probes" / "h200_nvl2_caches.json"


def document() -> Row | None:
    """What is shipped, or None; ValueError where it is something else."""
    if not path().exists():
        return None
    value = files.json_value(path(), KIND)
    for key, kind in (("kernels", list), ("provenance", dict)):
        if not isinstance(value, dict) or not isinstance(value.get(key), kind):
            raise KIND.unreadable(path(), f"it has no {key}")
    return dict(value)


def points(problem: Problem, schedule: Schedule, on: Hierarchy) -> list[Row]:
    """The row that a GPU with caches *on* counted of this kernel, with the names of a simulated one; or none."""
    if (counts := document()) is None:
        return []
    same = of_machine(machine(counts["provenance"]["machine"]))
    if problem.world != 1 or (on.name, on.l2_bytes) != (same.name, same.l2_bytes):
        return []
    return [_row(each, counts, on) for each in counts["kernels"]
            if each.get("repeats") and _is_of(each, problem, schedule)]  # fmt: skip


def _is_of(kernel: Mapping[str, Any], problem: Problem, schedule: Schedule) -> bool:
    return bool(
        kernel["operator"] == problem.operator and kernel["shape"] == dict(problem.shape)
        and kernel["dtype"] == problem.dtype and kernel["axes"] == dict(schedule.axes)
    )  # fmt: skip


def _row(kernel: Mapping[str, Any], counts: Mapping[str, Any], on: Hierarchy) -> Row:
    repeats = kernel["repeats"]
    rates = [rate for each in repeats if (rate := hit_rate(each)) is not None]
    return {"trace": f"{kernel['operator']} fused", "source": "measured", "tier": None, "policy": None, "group": None,
            "caches": on.name, "cycles": None, "relative_cycles": None, "l2_line_misses": None,
            "l2_hit_rate": median(rates) if rates else None, "l2_bytes": on.l2_bytes, "structures": {},
            "dram_read_bytes": round(median(each[READ] for each in repeats)),
            "dram_write_bytes": round(median(each[WRITTEN] for each in repeats)), "repeats": len(repeats),
            "gpus": counts["provenance"]["gpus"], "date": counts["provenance"]["date"][:10]}  # fmt: skip


def missed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bounds that estimates of *rows* (`measured.errors`) break, a sentence for each."""
    broken = []
    for work, of in by_class([dict(row) for row in rows]).items():
        for name, most in (("median_off", MEDIAN_MOST), ("p90_off", P90_MOST), ("mean_points_off", POINTS_MOST)):
            if of[name] is not None and of[name] > most:
                broken.append(f"{work}: {name} = {of[name]:.3g} > {most:g} of {of['kernels']} kernels held out.")
    for row in rows:
        if row["shape"] == DEEP and abs(row["off"]) > DEEP_MOST:
            broken.append(f"the deepest GEMM, number {row['number']}: off by {row['off']:+.3g}, > {DEEP_MOST:g}.")
    return broken


def advised(kernels: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """By operator that was timed with hints: the one that pays, or the axes without any; times in seconds.

    A hint pays where it saves more than WORTH of the time, and neither time lies within the other's spread.
    """
    timed = [kernel for kernel in kernels if kernel.get("seconds")]
    for operator in dict.fromkeys(kernel["operator"] for kernel in timed):
        rows = [_time(kernel) for kernel in timed if kernel["operator"] == operator]
        if (plain := next((row for row in rows if not row["hints"]), None)) is None:
            continue
        best = min(rows, key=lambda row: row["time_s"])
        saved = 1.0 - best["time_s"] / plain["time_s"]
        pays = saved > WORTH and apart(best, plain)
        yield {"operator": operator, "hints": best["hints"] if pays else {}, "fastest": best["hints"],
               "saved": saved, "plain_s": plain["time_s"], "rows": rows}  # fmt: skip


def _time(kernel: Mapping[str, Any]) -> Row:
    """A time with its spread, the middle 80 % of its samples."""
    low_s, time_s, high_s = (float(each) for each in np.quantile(kernel["seconds"], (0.1, 0.5, 0.9)))
    usual = OMITTED_DEFAULTS["fused"]
    hinted = {name: kernel["axes"][name] for name in (axis_rules.LOAD, axis_rules.STORE)
            if kernel["axes"].get(name, usual[name]) != usual[name]}  # fmt: skip
    return {"hints": hinted, "time_s": time_s, "low_s": low_s, "high_s": high_s}


def advice(kernels: Sequence[Mapping[str, Any]]) -> list[str]:
    """What `advised` says, a sentence for each operator."""
    sentences = []
    for row in advised(kernels):
        words = ", ".join(f"{name} = {value}" for name, value in row["fastest"].items()) or "no hint"
        beside = (
            f"{row['operator']}: the fastest has {words} and saves {row['saved']:.1%} of {row['plain_s'] * 1e6:.1f} us"
        )
        sentences.append(f"{beside}. Use it." if row["hints"] else f"{beside}: no hint pays.")
    return sentences
