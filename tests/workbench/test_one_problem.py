"""Explorer, terminal, report and lists of runs mean the same by one problem."""

from collections.abc import Sequence
from typing import Any

import pytest

from kernels import outcome
from workbench.cli import output
from workbench.reports.cases import cases
from workbench.results.recordings import recordings
from workbench.results.rows import by_problem, current_problem_and_schedule, link_of
from workbench.widgets.results import parts

ROW = {"operator": "gemm_all_to_all", "shape": {"m": 8, "n": 8, "k": 8}, "dtype": "float32", "world": 2,
       "machine": "laptop_cpu", "fabric": "emulated:wire_to_compute=1", "protocol": "quick", "backend": "cpu",
       "scheme": "sequential", "axes": {}, "part": "whole", "time_s": 1.0, "source": "measured", "key": "a",
       "outcome": "measurement", "stage": None, "sequential_s": 1.0, "block": "r.1"}  # fmt: skip
OTHER = {"operator": "all_gather_gemm", "shape": {"m": 16, "n": 8, "k": 8}, "dtype": "bfloat16", "world": 4,
         "machine": "another", "fabric": "emulated:wire_to_compute=2", "protocol": "default"}  # fmt: skip


def counts(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [len(found) for found in (by_problem(rows), cases(rows), output.by_problem(rows), parts(rows))]


@pytest.mark.parametrize("column", OTHER)
def test_what_differs_in_a_column_is_another_problem_for_everybody(column: str) -> None:
    assert counts([ROW, {**ROW, column: OTHER[column], "key": "b"}]) == [2, 2, 2, 2]


def test_a_bandwidth_that_followed_from_a_ratio_makes_no_other_problem() -> None:
    resolved = {**ROW, "fabric": "emulated:wire_to_compute=1,bandwidth_bytes_per_second=5e8", "key": "b"}
    assert counts([ROW, resolved]) == [1, 1, 1, 1]
    assert link_of("emulated:bandwidth_bytes_per_second=5e8") != link_of("emulated:bandwidth_bytes_per_second=6e8")
    assert link_of("of another program") == "of another program"


def test_a_schedule_of_an_older_version_is_the_one_that_is_asked_for_today() -> None:
    """Recorded with axes that the kernel does not read; the explorer would not find its time again."""
    measured = next(
        each.measurement for each in recordings("h200_nvl4_gemm")
        if each.measurement.trial.schedule.scheme == "fused" and each.measurement.trial.part == "whole"
    )  # fmt: skip
    row = outcome.row(measured)
    problem, schedule = current_problem_and_schedule(row)
    assert problem == measured.trial.problem
    assert "write" in set(row["axes"]) - set(dict(schedule.axes))
