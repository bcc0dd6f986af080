"""Shipped hardware counters of our kernels on a GPU: rows to compare with the simulator, and advice on cache hints.

`python -m tests.gpu.caches` counts. Without a shipped file there are no rows and no advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from workbench.results.rows import Row
from workbench.simulator.cache.counters import READ, WRITTEN, hit_rate
from workbench.simulator.cache.hierarchy import Hierarchy, of_machine
from workbench.simulator.cache.measured import by_class

KIND = files.TextKind("file of counted kernels", "counted kernels", "a JSON file that `python -m tests.gpu.caches` "
                      "writes")  # fmt: skip
MAX_MEDIAN, MAX_P90, MAX_DEEP, MAX_POINTS = 0.10, 0.25, 0.25, 3.0
"""Bounds of the errors of kernels that were held out.

Shares of DRAM bytes in the median, at the 90th percentile and for the deepest GEMM; mean points of hit rate.
"""
DEEP = {"m": 8192, "n": 8192, "k": 28672}
WORTH = 0.01
"""A hint pays if it saves more than this share of the time."""


def path() -> Path:
    """The file of shipped counts."""
    return data_directory() / "probes" / "h200_nvl2_caches.json"


def document() -> dict[str, Any] | None:
    """The shipped counts, or None; ValueError if the file holds something else."""
    if not path().exists():
        return None
    value = files.json_value(path(), KIND)
    for key, kind in (("kernels", list), ("provenance", dict)):
        if not isinstance(value, dict) or not isinstance(value.get(key), kind):
            raise KIND.unreadable(path(), f"it has no {key}")
    return dict(value)


def points(problem: Problem, schedule: Schedule, on: Hierarchy) -> list[dict[str, Any]]:
    """Rows of this kernel as counted on a GPU with caches *on*, with the columns of a simulated row."""
    if (counts := document()) is None:
        return []
    same = of_machine(machine(counts["provenance"]["machine"]))
    if problem.world != 1 or (on.name, on.l2_bytes) != (same.name, same.l2_bytes):
        return []
    return [_row(each, counts, on) for each in counts["kernels"]
            if each.get("repeats") and _is_of(each, problem, schedule)]  # fmt: skip


def _is_of(kernel: Row, problem: Problem, schedule: Schedule) -> bool:
    return bool(
        kernel["operator"] == problem.operator and kernel["shape"] == dict(problem.shape)
        and kernel["dtype"] == problem.dtype and kernel["axes"] == dict(schedule.axes)
    )  # fmt: skip


def _row(kernel: Row, counts: Row, on: Hierarchy) -> dict[str, Any]:
    repeats = kernel["repeats"]
    rates = [rate for each in repeats if (rate := hit_rate(each)) is not None]
    return {"trace": f"{kernel['operator']} fused", "source": "measured", "tier": None, "policy": None, "group": None,
            "caches": on.name, "cycles": None, "relative_cycles": None, "l2_line_misses": None,
            "l2_hit_rate": median(rates) if rates else None, "l2_bytes": on.l2_bytes, "structures": {},
            "dram_read_bytes": round(median(each[READ] for each in repeats)),
            "dram_write_bytes": round(median(each[WRITTEN] for each in repeats)), "repeats": len(repeats),
            "gpus": counts["provenance"]["gpus"], "date": counts["provenance"]["date"][:10]}  # fmt: skip


def broken_bounds(rows: Sequence[Row]) -> list[str]:
    """The bounds that estimates of *rows* (`measured.errors`) break, as messages."""
    broken = []
    for work, errors in by_class([dict(row) for row in rows]).items():
        for name, most in (("median_off", MAX_MEDIAN), ("p90_off", MAX_P90), ("mean_points_off", MAX_POINTS)):
            if errors[name] is not None and errors[name] > most:
                broken.append(
                    f"{work}: {name} = {errors[name]:.3g} > {most:g} of {errors['kernels']} kernels held out."
                )
    for row in rows:
        if row["shape"] == DEEP and abs(row["off"]) > MAX_DEEP:
            broken.append(f"the deepest GEMM, number {row['number']}: off by {row['off']:+.3g}, > {MAX_DEEP:g}.")
    return broken


def hint_results(kernels: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """For each operator that was timed with hints: the hints that pay, if any, and all times in seconds.

    A hint pays if it saves more than WORTH of the time, and neither time is within the other's spread.
    """
    timed = [kernel for kernel in kernels if kernel.get("seconds")]
    for operator in dict.fromkeys(kernel["operator"] for kernel in timed):
        rows = [_time(kernel) for kernel in timed if kernel["operator"] == operator]
        if (plain := next((row for row in rows if not row["hints"]), None)) is None:
            continue
        best = min(rows, key=lambda row: row["time_s"])
        saved = 1.0 - best["time_s"] / plain["time_s"]
        pays = saved > WORTH and not (_within(best, plain) or _within(plain, best))
        yield {"operator": operator, "hints": best["hints"] if pays else {}, "fastest": best["hints"],
               "saved": saved, "plain_s": plain["time_s"], "rows": rows}  # fmt: skip


def _within(row: Row, other: Row) -> bool:
    """Whether the time of *row* lies in the spread of *other*: a counter's kernels take no turns."""
    return bool(other["low_s"] <= row["time_s"] <= other["high_s"])


def _time(kernel: Row) -> dict[str, Any]:
    """The hints and the median time of *kernel*, with its spread, the middle 80 % of its samples."""
    low_s, time_s, high_s = (float(each) for each in np.quantile(kernel["seconds"], (0.1, 0.5, 0.9)))
    usual = OMITTED_DEFAULTS["fused"]
    hinted = {name: kernel["axes"][name] for name in (axis_rules.LOAD, axis_rules.STORE)
            if kernel["axes"].get(name, usual[name]) != usual[name]}  # fmt: skip
    return {"hints": hinted, "time_s": time_s, "low_s": low_s, "high_s": high_s}


def advice(kernels: Sequence[Row]) -> list[str]:
    """The results of `hint_results` as a sentence for each operator."""
    sentences = []
    for row in hint_results(kernels):
        hints = ", ".join(f"{name} = {value}" for name, value in row["fastest"].items()) or "no hint"
        result = (
            f"{row['operator']}: the fastest has {hints} and saves {row['saved']:.1%} of {row['plain_s'] * 1e6:.1f} us"
        )
        sentences.append(f"{result}. Use it." if row["hints"] else f"{result}: no hint pays.")
    return sentences
