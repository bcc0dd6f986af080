"""Rows become lines: joined by schedule, fastest first, saying only what differs."""

from __future__ import annotations

from typing import Any

from tests.reports.conftest import joined, row
from workbench.charts.labels import schedule_label
from workbench.reports.tables import (
    common,
    differing,
    failure_table,
    gain_text,
    lines,
    outcome_table,
    parts_of,
    schedule_text,
)


def texts(table: Any) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.rows]


def test_a_measurement_and_its_estimate_share_a_line(rows: list[dict[str, Any]]) -> None:
    assert [sorted(line.by_source) for line in lines(rows)] == [["estimated", "measured"], ["measured"], ["measured"]]


def test_the_table_names_what_differs_and_common_names_what_does_not(rows: list[dict[str, Any]]) -> None:
    table = outcome_table(rows)
    assert [column.heading for column in table.columns] == [
        "Schedule",
        "●\N{NO-BREAK SPACE}measured",
        "○\N{NO-BREAK SPACE}estimated",
        "Speed-up over sequential",
    ]
    assert texts(table) == [
        ["fused", "45 ms", "44 ms", "1.78x"],
        ["fused", "50 ms", "–", "1.60x"],
        ["sequential", "80 ms", "–", "1.00x"],
    ]
    assert table.rows[0][0].aside == "tiles per slice 4"
    assert table.rows[0][2].aside == "42.0 to 47.0, uncalibrated"
    assert common(rows) == [
        ("Floor", "40 ms"),
        ("Sequential", "80 ms"),
        ("Samples", "30"),
        ("Largest error", "1.0e-07"),
        ("fused schedules", "tile 32x32x32"),
    ]


def test_a_ratio_is_to_the_baseline_of_its_own_block_however_quiet_another_was() -> None:
    block = [("sequential", 0.3, 1), ("fused", 0.2, 1), ("sequential", 0.15, 2), ("decomposed", 0.3, 2)]
    rows = joined(row(scheme, seconds, block=f"r.{n}") for scheme, seconds, n in block)
    speed_ups = {(line[0], line[1]): line[2] for line in texts(outcome_table(rows))}
    assert speed_ups["fused", "200 ms"] == "1.50x"
    assert speed_ups["decomposed", "300 ms"] == "0.50x"
    assert {speed_ups["sequential", "150 ms"], speed_ups["sequential", "300 ms"]} == {"1.00x"}
    assert gain_text([rows[1], rows[3]]).startswith("Fastest: fused, 200 ms measured, 1.50x")


def test_rows_of_one_block_have_one_baseline_however_early_they_came() -> None:
    early = [row("sequential", 0.3, sequential_s=0.3), row("fused", 0.2, sequential_s=0.3)]
    late = row("sequential", 0.25, sequential_s=0.25, axes={"collective": "direct"})
    table = outcome_table([*early, late])
    assert [line[2] for line in texts(table)] == ["1.25x", "1.00x", "0.83x"]


def test_the_fastest_that_ran_is_lifted_out_even_when_an_estimate_is_faster() -> None:
    table = outcome_table([row("fused", 0.01, "estimated"), row("sequential", 0.08), row("decomposed", 0.05)])
    assert table.best == 1
    assert [line[0].badge for line in table.rows] == ["", "fastest", ""]


def test_the_same_schedule_measured_twice_is_two_lines() -> None:
    assert len(lines([row("fused", 0.05), row("fused", 0.06), row("fused", 0.055, "estimated")])) == 2


def test_an_estimate_of_another_machine_is_not_put_beside_a_measurement() -> None:
    both = [row("fused", 0.05), row("fused", 0.001, "estimated", machine="h200_nvl8")]
    assert len(lines(both)) == 2
    assert "Machine" in [column.heading for column in outcome_table(both).columns]


def test_problems_that_differ_get_their_own_columns() -> None:
    both = [row("fused", 0.05), row("fused", 0.09, shape={"m": 128, "n": 64, "k": 64}, world=4)]
    assert differing(both) == ["shape", "world"]
    assert texts(outcome_table(both))[1] == ["fused", "m = 128, n = 64, k = 64", "4", "90 ms"]


def test_parts_timed_alone_are_no_schedules() -> None:
    rows = [row("sequential", 0.08, part="whole"), row("sequential", 0.01, part="compute"), row("fused", 0.05)]
    whole, parts = parts_of(rows)
    assert [line.leading["time_s"] for line in lines(whole)] == [0.05, 0.08]
    assert texts(outcome_table([*parts, row("sequential", 0.02, part="communication")]))[0][:2] == [
        "sequential",
        "compute",
    ]


def test_every_failure_has_its_stage_and_sentence(rows: list[dict[str, Any]], markup: str) -> None:
    failed = failure_table([*rows, row("fused", None)])
    assert texts(failed)[0] == ["concurrent", "refused", f"{markup} was asked for. Accepted: fused."]
    assert texts(failed)[1][1:] == ["unknown", "no message was stored"]


def test_a_schedule_reads_in_a_report_as_on_a_chart(rows: list[dict[str, Any]]) -> None:
    assert schedule_text(rows[2], rows) == "fused, tiles per slice 4"
    writes = [row("fused", 0.1, axes={"write": write}) for write in ("staged", "zero_copy")]
    assert schedule_text(writes[1], writes) == schedule_label(writes[1]) == "fused, write zero copy"


def test_no_rows_make_no_table() -> None:
    assert outcome_table([]).rows == failure_table([]).rows == ()
