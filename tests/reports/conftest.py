"""A run as plain values, with a name in it that tries to be markup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt
import pandas as pd
import pytest
from nbformat import NotebookNode

from tests.workbench.conftest import (  # noqa: F401
    fake_cluster,
    machine,
    make_experiment,
    make_trial,
    measure,
    measure_it,
    store,
)
from workbench.reports.run_report import CaseDrawing, run_report
from workbench.results.metrics import fill

MARKUP = "</script><script>alert(1)</script>"


def row(scheme: str, seconds: float | None, source: str = "measured", **more: Any) -> dict[str, Any]:
    """One row with the keys of `run --json` that matter to a report."""
    outcome = "failure" if seconds is None else "estimate" if source == "estimated" else "measurement"
    problem = {"operator": "gemm_all_to_all", "shape": {"m": 64, "n": 64, "k": 64}, "dtype": "float32", "world": 2}
    known = {"outcome": outcome, "source": source, **problem, "machine": "laptop", "fabric": "emulated"}
    ran = {"backend": "cpu", "protocol": "default", "correct": True, "max_relative_error": 1e-7, "samples": 30}
    return {**known, **(ran if source == "measured" else {}), "scheme": scheme, "axes": {}, "time_s": seconds,
            "rounds_s": [seconds] * 15 if seconds and source != "estimated" else None, **more}  # fmt: skip


@pytest.fixture
def markup() -> str:
    return MARKUP


def joined(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """*rows* with the sequential time of their block, as a store gives them; their floors are as they were made."""
    given = [{"part": "whole", **each} for each in rows]
    return [{**each, "sequential_s": full["sequential_s"]} for each, full in zip(given, fill(given), strict=True)]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    slices = [{"tile": "32x32x32", "slice_tiles": count} for count in (1, 4)]
    return joined([
        row("sequential", 0.08, floor_s=0.04),
        row("fused", 0.05, axes=slices[0], floor_s=0.04),
        row("fused", 0.045, axes=slices[1], floor_s=0.04),
        row("fused", 0.044, "estimated", axes=slices[1], floor_s=0.04, low_s=0.042, high_s=0.047, calibrated=False),
        row("concurrent", None, stage="refused", message=f"{MARKUP} was asked for. Accepted: fused."),
    ])  # fmt: skip


@pytest.fixture
def facts() -> dict[str, Any]:
    return {
        "title": f"A run on {MARKUP}",
        "run": "2025-a",
        "operator": "gemm_all_to_all",
        "world": 4,
        "cores": 2,
        "protocol": {"name": "default", "warmups": 3, "repeats": 15},
        "local_sizes": {"tokens": (64, 32)},
        "global_sizes": {"tokens": (128, 32)},
        "guess_s": 0.06,
        "provenance": {"host": MARKUP, "memory_bytes": 2_000_000_000},
    }


@pytest.fixture
def chart() -> alt.Chart:
    frame = pd.DataFrame({"host": [MARKUP, "other"], "ms": [1.0, 2.0]})
    return alt.Chart(frame, title=f"Times on {MARKUP}").mark_bar().encode(x=alt.X("ms", title="Time (ms)"), y="host")


@pytest.fixture
def report(facts: dict[str, Any], rows: list[dict[str, Any]], chart: alt.Chart) -> NotebookNode:
    """A run's report with three charts."""
    return run_report(facts, rows, [CaseDrawing([(f"Chart {number} of {MARKUP}", chart) for number in (1, 2, 3)])])
