"""A run as a notebook: every part is there, every name is text, every number comes from the rows."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from kernels.trial import GPU_ONLY, protocol
from tests.reports.conftest import joined, row
from workbench.reports.pictures import CHART
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
        "## The question",
        "## What came back",
        "## All outcomes",
        "### The same in every row",
        "### What failed, and why",
        "## Comparison with published results",
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
    text = shown(run_report({"backend": backend, "protocol": protocol("latency").to_json()}, [row("fused", 0.1)]))
    assert "latency, warmups = 5, repeats = 50" in text
    assert [f"{name} = " in text for name in GPU_ONLY] == [told] * 3


def test_no_name_becomes_markup(report: NotebookNode, markup: str) -> None:
    pages = [cell.source for cell in report.cells]
    pages += [output.data.get("text/html", "") for cell in report.cells for output in cell.get("outputs", ())]
    assert "<script" not in "".join(pages)
    assert markup in report.metadata.title


def test_a_part_alone_is_never_the_fastest_and_has_its_own_table() -> None:
    text = shown(run_report({}, [row("sequential", 0.08), row("sequential", 0.01, part="compute")]))
    assert "Fastest measured: **80 ms**" in text
    assert "### Parts, timed alone" in text
    assert "Outcomes: 1 measured, 1 of computation or communication alone." in text


def test_what_a_frame_says_with_nan_is_nothing() -> None:
    nan = float("nan")
    text = shown(run_report({}, [row("fused", 0.1, floor_s=nan, part="whole"), row("fused", nan, stage="hang")]))
    assert "nan" not in text
    assert "| fused | hang |" in text


def test_the_headline_stands_above_everything_and_below_the_author(facts: dict[str, Any]) -> None:
    rows = joined([row("sequential", 0.08), row("fused", 0.05)])
    cells = run_report({**facts, "notes": "First look.\n\n*Not* final."}, rows).cells
    said = [cell.source or cell.outputs[0].data["text/html"] for cell in cells[:3]]
    assert said[0].startswith("# A run on")
    assert said[1] == '<div class="wb-author"><p>First look.</p><p>*Not* final.</p></div>'
    assert said[2].startswith('<p class="wb-lead">fused takes 50 ms, 1.60x faster than the sequential schedule (80 ms)')


def test_an_authors_words_are_never_markup(markup: str) -> None:
    data = run_report({"notes": markup}, []).cells[1].outputs[0].data
    assert [f"&lt;{'/' * ends}script" in data["text/html"] for ends in (0, 1)] == [True, True]
    assert "<" not in data["text/markdown"]


def test_one_floor_stands_in_card_and_table_of_a_block() -> None:
    rows = [row("sequential", 0.1, "estimated", floor_s=0.163), row("sequential", 0.11, floor_s=0.0895)]
    text = shown(run_report({}, rows))
    assert text.count("89\\.5 ms") == 2
    assert "163 ms" not in text


def test_a_stop_is_listed_apart_from_failures_and_stands_in_the_headline() -> None:
    rows = [row("fused", 0.05), row("decomposed", None, stage="cancelled", message="stopped")]
    notebook = run_report({"status": "cancelled"}, rows)
    assert "### What failed, and why" not in headings(notebook)
    assert "### Not measured: the run was stopped" in headings(notebook)
    text = shown(notebook)
    assert "**Stopped after 1 schedule had been timed.**" in text
    assert "Outcomes: 1 measured, 1 not measured, stopped." in text
    assert "| decomposed | not measured, stopped |" in text


def test_several_problems_have_a_line_each_in_short_and_a_section_each() -> None:
    large = {"m": 128, "n": 64, "k": 64}
    rows = joined([row("sequential", 0.08), row("fused", 0.05),
                   row("sequential", 0.3, shape=large), row("fused", 0.2, shape=large)])  # fmt: skip
    notebook = run_report({}, rows)
    assert {"## In short", "## m = 64, n = 64, k = 64", "## m = 128, n = 64, k = 64"} <= set(headings(notebook))
    text = shown(notebook)
    assert "| m = 128, n = 64, k = 64 | fused | 200 ms | 300 ms (nothing overlaps) | 1\\.50x |" in text
    assert "fused takes 50 ms, 1.60x faster than the sequential schedule (80 ms)" in text


def test_a_fact_that_nobody_planned_for_is_listed() -> None:
    assert "Moon phase: full" in shown(run_report({"moon_phase": "full"}, []))


@pytest.mark.parametrize("rows", [[], [row("fused", None)], [row("fused", 0.1, "estimated")]])
def test_a_report_of_little_is_still_a_report(rows: list[dict[str, Any]]) -> None:
    notebook = run_report({}, rows)
    nbformat.validate(notebook)
    assert headings(notebook)[0] == "# Run without a name"


def test_the_same_run_gives_the_same_notebook(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    assert run_report(facts, rows) == run_report(facts, rows)
