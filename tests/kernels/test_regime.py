"""The regime of a measurement is what the readings of its GPUs say, and unknown with one sentence where they do not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.operators import problem
from kernels.outcome import Measurement, row
from kernels.regime import BURST, STEADY, UNKNOWN, regime
from kernels.trial import PROTOCOLS, Trial
from workbench.results import recordings


def reading(*reasons: str, **more: Any) -> dict[str, Any]:
    """A reading of a GPU whose clock is low for *reasons*."""
    clock = 1500 if reasons else 1980
    limits = {"power_limit_watts": 700.0, "power_limit_default_watts": 700.0, "sm_clock_max_mhz": 1980}
    state = {"sm_clock_mhz": clock, "power_now_watts": 690.0, "throttled": list(reasons)}
    return {"rank": 0, **state, **limits, **more}


NOBODY_READ = "No clock was read: nvidia-ml-py, its driver or its access to this GPU is missing."
CAPPED, FREE = reading("power cap"), reading()


@pytest.mark.parametrize(
    ("readings", "name"),
    [([CAPPED] * 5, STEADY), ([FREE] * 5, BURST), ([CAPPED] * 9 + [FREE], STEADY), ([FREE] * 9 + [CAPPED], BURST),
     ([CAPPED] * 4 + [FREE], UNKNOWN), ([FREE, CAPPED], UNKNOWN)],
)  # fmt: skip
def test_the_power_cap_decides_by_most_readings(readings: list[dict[str, Any]], name: str) -> None:
    assert regime(readings, 1).name == name


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ([], NOBODY_READ),
        ([{"rank": 0, "gpu": "GPU-1"}], NOBODY_READ),
        ([{"rank": 0, "sm_clock_mhz": 1980}], "This GPU does not say why its clock is low."),
        ([{"rank": 0, "sm_clock_mhz": 1980, "throttled": []}], "This GPU does not say its power."),
        ([reading("power cap", power_limit_watts=500.0)],
         "Its power cap was changed: 500 W, and the card's own is 700 W."),
        ([reading(sm_clock_mhz=1200)], "Its clock was locked: 1200 of 1980 MHz, and the driver gives no reason."),
        ([reading("application clocks")], "Its clock was locked at 1500 MHz: the driver says application clocks."),
        ([reading("power cap", "heat (software)")],
         "Its clock was lowered for another reason than its power cap: heat (software)."),
        ([CAPPED, FREE], "The power cap lowered its clock in 1 of 2 readings, which is neither regime."),
    ],
)  # fmt: skip
def test_it_is_unknown_with_one_sentence(readings: list[dict[str, Any]], why: str) -> None:
    assert regime(readings, 1) == (UNKNOWN, why)


def test_all_ranks_are_in_one_regime() -> None:
    both = [CAPPED, {**CAPPED, "rank": 1}]
    assert regime(both, 2).name == STEADY
    assert regime([CAPPED], 2).why.startswith("Rank 1: No clock was read")
    mixed = regime([CAPPED, {**FREE, "rank": 1}], 2)
    assert mixed == (UNKNOWN, "Its ranks were not in one regime: rank 0 was steady and rank 1 was burst.")


def test_readings_of_cores_say_nothing_about_a_gpu() -> None:
    cores = {"rank": 0, "cores": 8, "others_cores": 0.1, "whom": {}}
    assert regime([CAPPED, cores], 1).name == STEADY


@pytest.fixture
def measured(make_trial: Any) -> Measurement:
    trial: Trial = make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1), "sequential")
    steady = replace(trial, backend="triton", protocol=PROTOCOLS["steady"])
    return Measurement(trial=steady, samples=((1e-4, 1e-4),), conditions=(CAPPED, CAPPED))


def test_the_row_has_the_regime_and_the_time_stands_where_it_is_unknown(measured: Measurement) -> None:
    assert (row(measured)["regime"], row(measured)["message"]) == (STEADY, None)
    unread = row(replace(measured, conditions=()))
    assert unread["time_s"] == 1e-4
    assert unread["regime"] == UNKNOWN
    assert unread["message"] == NOBODY_READ
    rested = replace(measured, conditions=(), trial=replace(measured.trial, protocol=PROTOCOLS["default"]))
    assert row(rested)["message"] is None, "bursts were never promised"
    on_cores = replace(measured, trial=replace(rested.trial, backend="cpu"))
    assert row(on_cores)["regime"] is None


def test_a_clock_that_was_not_flat_leaves_it_unknown(measured: Measurement) -> None:
    flat, moving = {"load_s": 3.1, "runs": 900, "flat": True}, {"load_s": 10.1, "runs": 900, "flat": False}
    assert row(replace(measured, facts={"loads": [flat, flat]}))["regime"] == STEADY
    for loads in ([flat, moving], [[flat], [moving]]):
        unsettled = row(replace(measured, facts={"loads": loads}))
        assert unsettled["regime"] == UNKNOWN
        assert "not flat" in unsettled["message"]


RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"


def test_recordings_are_in_the_regime_that_their_readings_say() -> None:
    names = ("h200_nvl2_gemv", "h200_nvl2_gemm", "h200_nvl4_gemm", "laptop_overlap_2_ranks")
    regimes = {name: {row(each.measurement)["regime"] for each in recordings.read(RECORDINGS / f"{name}.jsonl")}
               for name in names}  # fmt: skip
    assert regimes["h200_nvl2_gemv"] == {BURST}, "no power cap in any of its readings"
    assert UNKNOWN in regimes["h200_nvl2_gemm"], "a block between the regimes"
    assert regimes["h200_nvl4_gemm"] == {UNKNOWN}, "nobody read its clocks"
    assert regimes["laptop_overlap_2_ranks"] == {None}
