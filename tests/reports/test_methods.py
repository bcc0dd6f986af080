"""The sentences around the numbers say what is known and no more."""

from __future__ import annotations

from tests.reports.conftest import row
from workbench.reports.methods import cautions, methods


def test_times_of_cpu_ranks_are_labelled() -> None:
    assert "Plan executed on CPU ranks" in cautions({}, [row("fused", 0.1)])[0]
    assert cautions({}, [row("fused", 0.1, backend="triton")]) == []


def test_more_ranks_than_cores_is_said_with_both_numbers() -> None:
    assert cautions({"world": 4, "cores": 2}, [])[0].startswith("4 ranks shared 2 cores")
    assert cautions({"world": 2, "cores": 2}, []) == []


def test_uncalibrated_estimates_and_wrong_results_are_said() -> None:
    said = cautions({}, [row("fused", 0.1, "estimated", calibrated=False), row("fused", None, stage="wrong")])
    assert ["not calibrated" in said[0], said[1].startswith("1 schedule gave a wrong result")] == [True, True]


def test_the_method_counts_what_was_verified() -> None:
    text = methods({"protocol": {"warmups": 3, "repeats": 15}}, [row("fused", 0.1), row("fused", 0.1, correct=None)])
    assert "3 times to warm up" in text
    assert "1 of 2 were found correct" in text


def test_a_part_alone_is_not_counted_as_unverified() -> None:
    text = methods({}, [row("fused", 0.1), row("fused", 0.1, part="compute", correct=None)])
    assert "1 of 1 were found correct" in text


def test_the_hardware_of_the_ranks_is_named_where_it_is_known() -> None:
    hardware = {"model": "NVIDIA H200", "link": "nvlink", "memory_bytes": 141 << 30, "cores": None}
    text = methods({}, [row("fused", 0.1, hardware=hardware), row("sequential", 0.2, hardware=hardware)])
    assert text.count("The ranks ran on NVIDIA H200, 141 GiB, nvlink.") == 1
    assert "ran on" not in methods({}, [row("fused", 0.1)])


def test_the_predictor_is_named() -> None:
    assert "(play 1)" in methods({}, [row("fused", 0.1, "estimated", predictor="play 1")])


def test_nothing_is_said_of_what_did_not_happen() -> None:
    assert methods({}, []) == "Nothing was run."
    estimated = methods({"protocol": "default"}, [row("fused", 0.1, "estimated")])
    assert "simulator" in estimated
    assert "clock" not in estimated
