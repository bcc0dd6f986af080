"""How good estimates are, kind by kind: errors, order, intervals, speed-ups; beside each what the trivial one is worth.

*rows* are those of `workbench.validation`: a measured trial each, with today's estimate. A *case* is one problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.schemes import BASELINE

Row = Mapping[str, Any]

NEAR = 0.05
"""A choice is good that takes at most this share longer than the best."""
PAIRS = 2
"""Schedules of one problem that can be ordered."""
LARGE = 80
"""Schedules from which those of one problem are a space: two H200s measured 115, 108 and 85 of three problems."""
TOP, AS_GOOD = 0.05, 0.01
"""Of a space, the share that is measured because it is estimated to be fast; a time is as good as the best within."""


def table(rows: Iterable[Row]) -> dict[str, Any]:
    """Of the whole trials among *rows*: errors in all (None of no trials) and by kind, and speed-ups."""
    known = whole(rows)
    return {
        "count": len(known), "problems": len(_by(known, lambda row: (row["machine"], *_case(row)))),
        "all": errors(known) if known else None, "accuracy": accuracy(known), "speed_ups": speed_ups(known),
    }  # fmt: skip


def accuracy(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Of every machine, operator and scheme what whole trials say."""
    kinds = _by(whole(rows), lambda row: (row["machine"], row["operator"], row["scheme"]))
    return [dict(zip(("machine", "operator", "scheme"), kind, strict=True)) | errors(of_kind)
            for kind, of_kind in sorted(kinds.items())]  # fmt: skip


def errors(rows: Sequence[Row]) -> dict[str, Any]:
    """Of trials of any kind: errors are estimated over measured, less 1; those of the trivial estimate beside them."""
    signed = np.array([row["error"] for row in rows])
    measured = np.array([row["measured_s"] for row in rows])
    trivial = np.abs(np.array([row["trivial_s"] for row in rows]) / measured - 1)
    return {
        "count": len(rows),
        "median": float(np.median(np.abs(signed))),
        "p90": float(np.quantile(np.abs(signed), 0.9)),
        "weighted": float((np.abs(signed) * measured).sum() / measured.sum()),
        "bias": float(np.median(signed)),
        "rank_correlation": _of_cases(rows, _rank_correlation),
        "best_within_5_percent": _of_cases(rows, _chose_well),
        "inside_interval": fmean(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows),
        "half_width": median((row["high_s"] - row["low_s"]) / 2 / row["estimated_s"] for row in rows),
        "trivial_median": float(np.median(trivial)),
        "trivial_p90": float(np.quantile(trivial, 0.9)),
        "trivial_weighted": float((trivial * measured).sum() / measured.sum()),
    }  # fmt: skip


def speed_ups(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The error of scheme over baseline, both estimated, against both measured: pairs of one problem and one block.

    Of each the fastest in its block that was measured.
    """
    blocks = _by(whole(rows), lambda row: (row["machine"], *_case(row), row["block"] or row["run"]))
    errors: dict[tuple[str, str], list[float]] = {}
    for block in blocks.values():
        fastest = {scheme: min(of_scheme, key=lambda row: float(row["measured_s"]))
                   for (scheme,), of_scheme in _by(block, lambda row: (row["scheme"],)).items()}  # fmt: skip
        if (base := fastest.pop(BASELINE, None)) is not None:
            for scheme, row in fastest.items():
                estimated, measured = (row[name] / base[name] for name in ("estimated_s", "measured_s"))
                errors.setdefault((row["machine"], scheme), []).append(estimated / measured - 1)
    return [
        {
            "machine": machine, "scheme": scheme, "pairs": len(signed), "median": median(signed),
            "p90": float(np.quantile(np.abs(signed), 0.9)),
        }
        for (machine, scheme), signed in sorted(errors.items())
    ]  # fmt: skip


def spaces(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Of each problem with LARGE measured schedules: whether the TOP by estimate hold one that is as good as the best.

    A schedule that was measured several times counts once, with its middle time.
    """
    cases = _by(whole(rows), lambda row: (row["machine"], *_case(row)))
    made = []
    for (machine, *_), of_case in sorted(cases.items(), key=str):
        schedules = list(_by(of_case, lambda row: (row["scheme"], str(sorted(row["axes"].items())))).values())
        if len(schedules) < LARGE:
            continue
        measured, estimated = (np.array([median(row[name] for row in each) for each in schedules])
                               for name in ("measured_s", "estimated_s"))  # fmt: skip
        top = np.argsort(estimated, kind="stable")[: ceil(TOP * len(schedules))]
        over_best = float(measured[top].min() / measured.min())
        errors = np.abs(estimated / measured - 1)
        made.append({
            "machine": machine, **{name: of_case[0][name] for name in ("operator", "shape", "dtype", "world")},
            "schedules": len(schedules), "top": len(top), "best_s": float(measured.min()), "over_best": over_best,
            "within_1_percent": over_best <= 1 + AS_GOOD, "median": float(np.median(errors)),
            "p90": float(np.quantile(errors, 0.9)),
        })  # fmt: skip
    return made


def whole(rows: Iterable[Row]) -> list[Row]:
    """Rows of whole trials: what a person chooses between."""
    return [row for row in rows if row["part"] == "whole"]


def _by(rows: Iterable[Row], kind: Callable[[Row], tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Row]]:
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault(kind(row), []).append(row)
    return kinds


def _case(row: Row) -> tuple[Any, ...]:
    return row["operator"], tuple(sorted(row["shape"].items())), row["dtype"], row["world"], str(row["fabric"])


def _of_cases(rows: Sequence[Row], number: Callable[[Sequence[Row]], float | None]) -> float | None:
    """The mean of *number* over problems of which several schedules were measured; None where there is none."""
    cases = [case for case in _by(rows, _case).values() if len(case) >= PAIRS]
    numbers = [value for case in cases if (value := number(case)) is not None]
    return fmean(numbers) if numbers else None


def _rank_correlation(case: Sequence[Row]) -> float | None:
    """Spearman's: how alike both orders are, from -1 to 1; equal times share their ranks."""
    estimated, measured = (_ranks([row[name] for row in case]) for name in ("estimated_s", "measured_s"))
    if min(np.ptp(estimated), np.ptp(measured)) == 0:
        return None
    return float(np.corrcoef(estimated, measured)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, which, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[which])


def _chose_well(case: Sequence[Row]) -> float:
    """1 where the schedule that is estimated to be the fastest takes at most NEAR longer than the fastest."""
    chosen = min(case, key=lambda row: float(row["estimated_s"]))
    return float(chosen["measured_s"] <= (1 + NEAR) * min(row["measured_s"] for row in case))
