"""How well the simulator predicts what was measured here: every stored measurement beside today's estimate of it.

The estimate that was made before it was measured stands there too: that one never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from kernels.machine import Machine
from kernels.outcome import row as row_of
from kernels.prints import source_print
from kernels.schemes import BASELINE
from kernels.trial import Trial
from workbench import machines, recordings
from workbench.accuracy import accuracy, spaces, table
from workbench.bounds import bounds, broken
from workbench.off_estimates import Off, off_pairs
from workbench.simulator.calibrate_gpus import listed
from workbench.simulator.held_out import held_out
from workbench.simulator.predict import predict, resolved
from workbench.simulator.price.trivial import trivial_seconds
from workbench.store import Store
from workbench.store.known_by import same_source

CLOSE = 0.15
"""An estimate is close when it is within this share of the measured time."""

ONE_CALL = "They time one call per graph, and estimates are of calls in a row."
NOT_CONTROLLED = "Their captured graphs do not show what a control of the schedule asks for."


def validate(store: Store, runs: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One row per measured trial of *runs* (its newest measurement), and how far the estimates are off in all."""
    newest: dict[str, tuple[dict[str, Any], Any]] = {}
    before: dict[str, float] = {}
    for run in runs:
        trials = store.trials(run)
        for row in store.rows(run):
            if row["outcome"] == "estimate":
                before[row["key"]] = row["time_s"]
            elif row["outcome"] == "measurement" and row["source"] == "measured":
                newest[row["key"]] = ({**row, "predicted_s": before.get(row["key"])}, trials[row["key"]])
    rows, without = _estimated(newest.values(), None, Counter())
    return rows, {**_summary(rows), **without, "off": [each.to_json() for each in off_now(rows)]}


def off_now(rows: Iterable[Mapping[str, Any]]) -> list[Off]:
    """Which of today's estimates among the *rows* of `validate` are off; other kernels than today's are no evidence."""
    fresh = [row for row in rows if row["source_print"] in same_source(source_print(row["backend"]))]
    return off_pairs(({**row, "time_s": row["measured_s"]}, {**row, "time_s": row["estimated_s"]}) for row in fresh)


def validate_recordings(
    names: Iterable[str], machine: Machine | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """As `validate`, of recordings; by *machine*, or by the one that each trial names.

    Bounds are of estimates for the machine that was recorded: those for another one break none.
    """
    by_name = {name: recordings.recordings(name) for name in names}
    if empty := [name for name, trials in by_name.items() if not trials]:
        raise ValueError(f"{empty[0]} has 0 recorded trials. Accepted: a file that `workbench export RUN --to "
                         "recording` writes, with a line for each.")  # fmt: skip
    recorded = [one.measurement for trials in by_name.values() for one in trials]
    controlled = [one for one in recorded if not one.unmet]
    reasons = Counter({NOT_CONTROLLED: len(recorded) - len(controlled)})
    rows, without = _estimated([(row_of(one), one.trial) for one in controlled], machine, reasons)
    return rows, {**_summary(rows), **without}


def by_kind(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Ratios of estimated to measured times by operator, scheme and part: how many, the middle, the extremes."""
    kinds: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        how = str(row["axes"].get("collective", "")) if row["scheme"] == BASELINE else ""
        kinds.setdefault((row["operator"], row["scheme"], how, row["part"]), []).append(1 + row["error"])
    names = ("operator", "scheme", "collective", "part")
    return [{**dict(zip(names, kind, strict=True)), "count": len(ratios), "ratio": median(ratios),
             "lowest": min(ratios), "highest": max(ratios)} for kind, ratios in sorted(kinds.items())]  # fmt: skip


def _estimated(
    measured: Iterable[tuple[Mapping[str, Any], Trial]], machine: Machine | None, reasons: Counter[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows with today's estimates, and by the key `without_estimate` how many trials have none, for each reason.

    *reasons*: those of trials that are left out before.
    """
    rows = []
    for row, trial in measured:
        if trial.is_one_call:
            reasons[ONE_CALL] += 1
            continue
        try:
            by = machine or machines.machine(trial.machine)
            estimate = predict(trial, by, with_spans=False)
        except ValueError as reason:  # an unknown machine, a damaged file of one, what it cannot run
            reasons[str(reason)] += 1
            continue
        keys = ("key", "run", "operator", "shape", "dtype", "world", "scheme", "axes", "part", "backend", "machine",
                "fabric", "block", "source_print")  # fmt: skip
        rows.append({
            **{key: row[key] for key in keys}, "measured_s": row["time_s"], "estimated_s": estimate.time_s,
            "low_s": estimate.low_s, "high_s": estimate.high_s, "calibrated": estimate.calibrated,
            "estimated_for": by.name,
            "error": estimate.time_s / row["time_s"] - 1, "predicted_s": row.get("predicted_s"),
            "trivial_s": trivial_seconds(trial.problem, trial.schedule.scheme, trial.part, by,
                                         resolved(trial.fabric, trial.problem, by)),
            "held_out": held_out(trial.problem) and listed(trial.problem) not in by.fitted_to,
        })  # fmt: skip
    without = [{"count": count, "message": sentence} for sentence, count in (+reasons).items()]
    return rows, {"without_estimate": without}


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {"count": 0}
    errors = [abs(row["error"]) for row in rows]
    inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows)
    worst = max(rows, key=lambda row: abs(row["error"]))
    its_own = [row for row in rows if row["estimated_for"] == row["machine"]]
    return {
        "count": len(rows),
        "whole": table(rows),
        "held_out": table(row for row in rows if row["held_out"]),
        "spaces": spaces(rows),
        "broken_bounds": list(broken(accuracy(its_own), bounds())),
        "median_absolute_error": median(errors),
        "median_error": median(row["error"] for row in rows),
        "within_15_percent": sum(error <= CLOSE for error in errors) / len(rows),
        "inside_interval": inside / len(rows),
        "worst_error": worst["error"],
        "worst_key": worst["key"],
        "calibrated": all(row["calibrated"] for row in rows),
    }
