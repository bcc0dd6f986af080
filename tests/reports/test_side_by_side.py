"""Several runs in one report: what differs between them, the same schedules beside each other, each run by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode

from tests.reports.conftest import joined, row
from tests.reports.test_run_report import headings, shown
from workbench.experiment.run import Replay
from workbench.reports.side_by_side import RunSummary, side_by_side, stored_runs
from workbench.results import recordings
from workbench.results.store import Store


def summary_of(run: str, seconds: float, *, machine: str = "laptop", torch: str = "2.13") -> RunSummary:
    """A run of a sequential schedule of 80 ms and a fused one."""
    spread = {"low_s": 0.99 * seconds, "high_s": 1.01 * seconds}
    rows = joined(
        [
            row("sequential", 0.08, machine=machine, block=run),
            row("fused", seconds, machine=machine, block=run, **spread),
        ]
    )
    provenance = {"host": "here", "versions": {"torch": torch, "numpy": "2.4"}}
    return RunSummary({"title": f"Run of {run}", "run": run, "machine": machine, "provenance": provenance}, rows)


def lines(notebook: NotebookNode, heading: str) -> list[str]:
    """The lines of the table below *heading*, without emphasis."""
    sources = [cell.source for cell in notebook.cells]
    at = next(number for number, source in enumerate(sources) if source.startswith(heading))
    table = next(cell for cell in notebook.cells[at:] if cell.get("outputs"))
    text = str(table.outputs[0].data["text/markdown"]).replace("*", "").replace("\\", "")
    return text.splitlines()[2:]


def test_what_differs_stands_in_one_table_and_what_does_not_is_left_out() -> None:
    report = side_by_side([summary_of("a", 0.05), summary_of("b", 0.06, machine="server", torch="2.14")])
    assert lines(report, "## What differs") == [
        "| Run | a | b |",
        "| Title | Run of a | Run of b |",
        "| Machine | laptop | server |",
        "| torch | 2.13 | 2.14 |",
    ]


def test_the_same_schedule_stands_side_by_side_and_its_ratio_names_the_first_run() -> None:
    report = side_by_side([summary_of("a", 0.05), summary_of("b", 0.06), summary_of("c", 0.0502)])
    table, never = lines(report, "### GEMM"), "(not compared)"
    assert table == [
        f"| fused | 50 ms (49.5 to 50.5) | 60 ms (59.4 to 60.6) | 50.2 ms (49.7 to 50.7) | 1.2 {never} | 1 {never} |",
        f"| sequential | 80 ms | 80 ms | 80 ms | 1 {never} | 1 {never} |",
    ]
    assert "| Schedule | Run 1 | Run 2 | Run 3 | Run 2 / run 1 | Run 3 / run 1 |" in shown(report)
    assert "Run 2 compared with run 1: of 2 schedules that both timed, 2 not compared." in shown(report)


def test_no_gain_of_a_scheme_is_told_across_runs() -> None:
    """The fused schedule of the second run is faster than the sequential one of the first: nobody may say so."""
    slow = RunSummary({"run": "a"}, [row("sequential", 0.2)])
    fast = RunSummary({"run": "b"}, [row("fused", 0.05)])
    text = shown(side_by_side([slow, fast]))
    assert "No two of these runs timed the same schedule" in text
    assert "x faster" not in text
    assert "no sequential schedule was timed with it" in text


def test_each_run_follows_with_its_own_headline() -> None:
    report = side_by_side([summary_of("a", 0.05), summary_of("b", 0.06)], author="Two tries.")
    found = headings(report)
    assert found[0] == "# 2 runs side by side"
    assert [heading for heading in found if heading.startswith("## Run")] == [
        "## Run 1: Run of a", "## Run 2: Run of b", "## Run 1, the rest", "## Run 2, the rest",
    ]  # fmt: skip
    assert found.count("### All outcomes") == 2
    text = shown(report)
    assert "> Two tries." in text
    assert ["fused takes 50 ms, 1.60x faster" in text, "fused takes 60 ms, 1.33x faster" in text] == [True, True]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "store.sqlite") as opened:
        for _ in range(2):
            list(Replay(recordings.recordings("laptop_ladder_pieces_and_slices"), opened, speed=None, title="ladder"))
        yield opened


@pytest.mark.slow
def test_runs_of_a_store_are_compared_and_none_twice(store: Store) -> None:
    first, second = (run["id"] for run in store.runs())
    assert "of 12 schedules that both timed, 12 not certain" in shown(stored_runs(store, [first, second]))
    assert headings(stored_runs(store, [first], note="x"))[0] == "# ladder"
    with pytest.raises(ValueError, match=f"Run {first} was given twice. Accepted"):
        stored_runs(store, [first, "last"])
    with pytest.raises(ValueError, match=r"9 runs are too many for one report: 9 > 8\. Accepted: at most 8"):
        stored_runs(store, [store.begin_run({}, {}) for _ in range(9)])
