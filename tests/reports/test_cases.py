"""One problem, one floor: rows become cases, and no estimate's floor stands beside what was timed."""

from __future__ import annotations

from typing import Any

from tests.reports.conftest import row
from workbench.charts import trials
from workbench.reports.cases import cases, titles

LARGE = {"m": 128, "n": 64, "k": 64}


def floors(rows: list[dict[str, Any]]) -> set[float | None]:
    return {each["floor_s"] for case in cases(rows) for each in case.whole}


def test_the_floor_of_what_was_timed_holds_for_its_estimates_too() -> None:
    rows = [row("sequential", 0.2, "estimated", floor_s=0.163), row("sequential", 0.21, floor_s=0.0895)]
    assert floors(rows) == {0.0895}


def test_an_estimated_floor_is_not_shown_beside_times_that_have_none() -> None:
    rows = [row("fused", 0.1, "estimated", floor_s=0.163), row("fused", 0.1)]
    assert floors(rows) == {None}
    assert floors(rows[:1]) == {0.163}


def test_every_shape_is_a_case_with_its_own_floor_and_parts() -> None:
    rows = [row("fused", 0.1, floor_s=0.08), row("fused", 0.3, floor_s=0.2, shape=LARGE),
            row("sequential", 0.2, part="compute", shape=LARGE, fabric="shared_memory")]  # fmt: skip
    small, large = cases(rows)
    assert [each["floor_s"] for each in (*small.whole, *large.whole)] == [0.08, 0.2]
    assert (len(small.parts), len(large.parts)) == (0, 1)
    assert titles([small, large]) == ["m = 64, n = 64, k = 64", "m = 128, n = 64, k = 64"]


def test_blocks_of_one_problem_have_one_floor_and_their_own_baselines() -> None:
    rows = [row("sequential", 0.2, block=1, floor_s=0.1), row("fused", 0.15, block=1, floor_s=0.1),
            row("sequential", 0.19, block=2, floor_s=0.09), row("fused", 0.12, block=2, floor_s=0.09)]  # fmt: skip
    (case,) = cases(rows)
    assert [each["floor_s"] for each in case.whole] == [0.09] * 4
    assert case.fastest is not None
    assert [case.fastest["time_s"], *(each["time_s"] for each in case.baselines(case.fastest))] == [0.12, 0.19]


def test_an_estimate_has_the_floor_of_what_was_timed() -> None:
    """An estimate comes first: its own floor stood above times that were measured."""
    axes = [{"slice_tiles": count} for count in (1, 2, 4)]
    estimates = [row("fused", 0.3, "estimated", axes=each, floor_s=0.35, key=str(n)) for n, each in enumerate(axes, 1)]
    timed = [
        row("fused", 0.3, axes=each, block=f"r.{n}", floor_s=n / 10, key=str(n)) for n, each in enumerate(axes[:2], 1)
    ]
    (case,) = cases([*estimates, *timed])
    assert [each["floor_s"] for each in case.whole if each["source"] == "estimated"] == [0.1] * 3
    drawn = [each for each in trials.rows(case.rows) if each["look"] == "floor"]
    assert {each["time_ms"] for each in drawn} == {100}


def test_problems_are_told_apart_by_what_differs_alone() -> None:
    several = cases([row("fused", 0.1), row("fused", 0.1, operator="all_gather_gemm"),
                     row("fused", 0.1, operator="all_gather_gemm", world=4)])  # fmt: skip
    assert titles(several) == ["GEMM -> all-to-all", "all-gather -> GEMM, 2 ranks", "all-gather -> GEMM, 4 ranks"]
    assert titles(several[:1]) == [""]


def test_an_estimate_without_protocol_belongs_to_the_problem_that_was_timed() -> None:
    (case,) = cases([row("fused", 0.1, "estimated"), row("fused", 0.1)])
    assert len(case.whole) == 2


def test_a_stop_is_no_failure() -> None:
    (case,) = cases([row("fused", 0.1), row("fused", None, stage="cancelled"), row("fused", None, stage="hang")])
    assert (len(case.stopped), len(case.failed), len(case.rows)) == (1, 1, 2)


def test_parts_without_a_whole_are_kept() -> None:
    (case,) = cases([row("sequential", 0.1, part="compute")])
    assert (len(case.whole), len(case.parts), case.fastest) == (0, 1, None)
    assert cases([]) == []
