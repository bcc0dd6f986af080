"""A run as a notebook: every part is there, every name is text, every number comes from the rows."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from kernels.protocol import GPU_ONLY, protocol
from tests.reports.conftest import row
from workbench.reports.bundle import CHART
from workbench.reports.run_report import run_report


def headings(notebook: NotebookNode) -> list[str]:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return [line for line in text.splitlines() if line.startswith("#")]


def shown(notebook: NotebookNode) -> str:
    outputs = [output.data.get("text/markdown", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    return "\n".join([*(cell.source for cell in notebook.cells), *outputs])


def test_a_report_has_all_its_parts_in_order(report: NotebookNode) -> None:
    nbformat.validate(report)
    found = [heading for heading in headings(report) if "Chart" not in heading and not heading.startswith("# ")]
    assert found == [
        "## What was asked",
        "## What came back",
        "## All outcomes",
        "### The same in every row",
        "### What failed, and why",
        "## Where the numbers come from",
        "## Method",
        "## Provenance",
    ]
    assert sum(CHART in output.data for cell in report.cells for output in cell.get("outputs", ())) == 3


def test_facts_rows_and_cautions_are_shown(report: NotebookNode) -> None:
    text = shown(report)
    assert "Run 2025-a" in text
    assert "64 × 32 | 128 × 32" in text
    assert "Memory: 2 GB" in text
    assert "Outcomes: 3 measured, 1 estimated, 1 failed." in text
    assert "The guess: **60 ms**" in text
    assert "4 ranks shared 2 cores" in text


@pytest.mark.parametrize(("backend", "told"), [("cpu", False), ("triton", True)])
def test_what_only_a_gpu_does_is_not_said_of_cpu_ranks(backend: str, told: bool) -> None:
    text = shown(run_report({"backend": backend, "protocol": protocol("latency").to_json()}, [row("fused", 0.1)], []))
    assert "latency, warmups = 5, repeats = 50" in text
    assert [f"{name} = " in text for name in GPU_ONLY] == [told] * 3


def test_no_name_becomes_markup(report: NotebookNode, markup: str) -> None:
    pages = [cell.source for cell in report.cells]
    pages += [output.data.get("text/html", "") for cell in report.cells for output in cell.get("outputs", ())]
    assert "<script" not in "".join(pages)
    assert markup in report.metadata.title


def test_a_part_alone_is_never_the_fastest_and_has_its_own_table() -> None:
    text = shown(run_report({}, [row("sequential", 0.08), row("sequential", 0.01, part="compute")], []))
    assert "Fastest measured: **80 ms**" in text
    assert "### Parts, timed alone" in text
    assert "Outcomes: 1 measured, 1 of computation or communication alone." in text


def test_what_a_frame_says_with_nan_is_nothing() -> None:
    nan = float("nan")
    text = shown(run_report({}, [row("fused", 0.1, floor_s=nan, part="whole"), row("fused", nan, stage="hang")], []))
    assert "nan" not in text
    assert "| fused | hang |" in text


def test_a_fact_that_nobody_planned_for_is_listed() -> None:
    assert "Moon phase: full" in shown(run_report({"moon_phase": "full"}, [], []))


@pytest.mark.parametrize("rows", [[], [row("fused", None)], [row("fused", 0.1, "estimated")]])
def test_a_report_of_little_is_still_a_report(rows: list[dict[str, Any]]) -> None:
    notebook = run_report({}, rows, [])
    nbformat.validate(notebook)
    assert headings(notebook)[0] == "# Run without a name"


def test_the_same_run_gives_the_same_notebook(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    assert run_report(facts, rows, []) == run_report(facts, rows, [])
