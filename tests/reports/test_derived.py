"""Derived numbers as people read them: each with its unit and a meaning, none that is not known."""

from __future__ import annotations

from typing import Any

from kernels.outcome import Span
from tests.reports.conftest import row
from workbench.reports.methods import MEANING, derived, derived_table
from workbench.reports.run_report import CaseDrawing, run_report

TIMES: dict[str, Any] = {"floor_s": 0.04, "compute_s": 0.04, "comm_s": 0.02, "sequential_s": 0.06, "plain_s": 0.06,
                         "whole_s": 0.04, "transfer_s": 0.02}  # fmt: skip
OF_LIBRARY: dict[str, Any] = {
    "library_s": 0.065, "pipeline_floor_s": 0.046, "put_bytes_per_second": 360e9,
    "put_rate_from": "calibrated: somewhere", "decomposition_loss": {"compute": 1.1, "communication": 1.2},
    "contention_loss": {"compute": 1.09, "communication": 1.3}, "against_streams": 0.95,
}  # fmt: skip
SPANS = (
    Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 0.048),
    Span("0/put/1/0", 0, "put", "link", 0.038, 0.05),
)


def test_every_derived_number_has_its_unit_and_its_meaning() -> None:
    found = derived(row("fused", 0.05, **TIMES, **OF_LIBRARY), SPANS, 0.044)
    assert {number.name: number.text for number in found} == {
        "time ratio": "0.833 ×",
        "against streams alone": "0.95 ×",
        "exposed communication": "10 ms",
        "of the library's exposed": "40 %",
        "pipeline floor": "46 ms",
        "of the pipeline floor": "1.09 ×",
        "put rate": "360 GB/s (calibrated: somewhere)",
        "overlap efficiency": "50 %",
        "ideal speed-up": "1.5 ×",
        "share of ideal": "40 %",
        "overlap ratio": "83 %",
        "decomposition loss": "1.1 ×",
        "contention loss": "1.09 ×",
        "decomposition loss of communication": "1.2 ×",
        "contention loss of communication": "1.3 ×",
        "algbw": "819 kB/s",
        "busbw": "410 kB/s",
    }
    assert [number.meaning for number in found] == list(MEANING.values())


def test_what_is_not_known_is_left_out() -> None:
    assert derived(row("fused", 0.05), (), None) == []
    found = derived(row("fused", 0.05, **{**TIMES, "comm_s": None}), (), None)
    assert [number.name for number in found] == [
        "time ratio", "exposed communication", "ideal speed-up", "share of ideal",
    ]  # fmt: skip


def test_a_rank_alone_has_no_bandwidth() -> None:
    found = derived(row("fused", 0.05, **{**TIMES, "world": 1, "comm_s": 1e-6}), SPANS[:1], 0.044)
    assert not {"algbw", "busbw", "overlap efficiency", "overlap ratio"} & {number.name for number in found}


def test_the_report_lists_them() -> None:
    rows = [row("fused", 0.05, **TIMES)]
    report = run_report({}, rows, [CaseDrawing(numbers=derived(rows[0], SPANS, 0.044))])
    assert any("What follows from the times of the fastest" in cell.source for cell in report.cells)
    assert derived_table(derived(rows[0], SPANS, 0.044)).to_markdown() in [
        output.data["text/markdown"] for cell in report.cells for output in cell.get("outputs", ())
    ]
