"""An interval is that of a trial's class; it widens with distance, and holds other cards until they are calibrated."""

from dataclasses import replace
from math import exp, log, log2
from typing import Any

import pytest

from kernels.fabric import Fabric
from kernels.operators import problem
from kernels.schedule import Schedule
from kernels.schemes import schedule
from kernels.trial import Trial
from tests.simulator.trials import trial
from workbench.machines import shipped_machine
from workbench.simulator import intervals
from workbench.simulator.intervals import UNIT, Bounds, Recorded, Residuals, features, widening
from workbench.simulator.predict import UNCALIBRATED, predict

GPUS, NVLINK = shipped_machine("h200_nvl2"), Fabric(kind="nvlink")
GEMM = problem("gemm_all_to_all", {"m": 4096, "n": 2048, "k": 1024}, dtype="bfloat16", world=2)
KIND = "whole gemm fused"


def asked(name: str = "fused", *, part: str = "whole", **axes: Any) -> Trial:
    return trial(GEMM, schedule(GEMM, name, axes, GPUS, NVLINK), GPUS, NVLINK).of_part(part)


def residuals(*points: Trial, cards: float = 0.02) -> Residuals:
    """A table with one class, recorded at *points*."""
    cells = [features(each.problem, each.schedule) for each in points]
    names = sorted(cells[0])
    recorded = Recorded.of(names, [[each.get(name) for name in names] for each in cells])
    bounds = Bounds(low=-0.1, high=0.2, trials=100, pooled=False)
    return Residuals(str(GPUS.calibrated), {KIND: bounds}, {KIND: recorded}, {"gemm": cards}, "nvlink")


def test_a_distance_is_doublings_of_counts_and_things_that_differ() -> None:
    near = Schedule("fused", (("tile", "128x256x64"), ("grid", 132), ("store", "tma")))
    far = Schedule("fused", (("tile", "64x256x128"), ("grid", 132), ("store", "registers"), ("num_warps", 4)))
    larger = replace(GEMM, shape=(("m", 16384), ("n", 2048), ("k", 1024)))
    cells = features(GEMM, near)
    known = Recorded.of(list(cells), [list(cells.values())])
    assert known.distances(cells).tolist() == [0.0]
    # m is two doublings away, two sides of the tile one each; the stores differ, and only one has a number of warps
    assert known.distances(features(larger, far)).tolist() == [pytest.approx(2 + 1 + 1 + 1 + 1)]
    assert cells["tile 1"] == log2(256)


def test_an_interval_is_as_wide_as_its_class_near_what_was_recorded_and_wider_far_from_it() -> None:
    known, here = residuals(asked(), cards=0.0), asked()
    assert known.interval(here, GPUS) == (pytest.approx(exp(-0.1)), pytest.approx(exp(0.2)))
    far = replace(here, problem=replace(GEMM, shape=(("m", 4096 << 9), ("n", 2048), ("k", 1024))))
    assert known.distance(far) == pytest.approx(9)
    assert widening(9) == 9 / UNIT
    assert known.interval(far, GPUS) == (pytest.approx(exp(-0.1 * 9 / UNIT)), pytest.approx(exp(0.2 * 9 / UNIT)))


def test_other_cards_count_until_the_machine_is_calibrated_on_its_own() -> None:
    known, here = residuals(asked()), asked()
    assert known.interval(here, GPUS) == (pytest.approx(exp(-0.12)), pytest.approx(exp(0.22)))
    fitted = replace(GPUS, calibrated="2026-12-01T00:00:00+00:00 on another host")
    assert known.interval(here, fitted) == (pytest.approx(exp(-0.1)), pytest.approx(exp(0.2)))


def test_a_calibration_s_own_check_lies_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "tables", lambda: {GPUS.name: residuals(asked())})
    fitted = replace(GPUS, calibrated="2026-12-01T00:00:00+00:00 on another host", spread=(0.5, 1.1))
    assert intervals.interval(asked(), fitted) == (0.5, pytest.approx(exp(0.2)))
    assert intervals.interval(asked(), GPUS) == (pytest.approx(exp(-0.12)), pytest.approx(exp(0.22)))


def test_a_scheme_that_was_not_recorded_is_one_further_than_the_nearest_of_another() -> None:
    known, other = residuals(asked()), asked("decomposed")
    bare = Recorded.distances(known.recorded[KIND], features(other.problem, other.schedule)).min()
    assert known.distance(other) == pytest.approx(float(bare) + 1)
    assert known.interval(other, GPUS) is None, "it has bounds of fused schedules only"


def test_what_was_not_recorded_at_all_has_no_residuals() -> None:
    known = residuals(asked())
    assert known.interval(asked(part="communication"), GPUS) is None
    assert known.interval(replace(asked(), fabric=Fabric(kind="shared_gpu")), GPUS) is None
    assert intervals.interval(asked(), replace(GPUS, calibrated=None)) is None
    unknown = shipped_machine("h100_nvl8")
    assert intervals.interval(asked(), unknown) is None
    estimate = predict(replace(asked(), machine=unknown.name), unknown, with_spans=False)
    assert (estimate.low_s / estimate.time_s, estimate.high_s / estimate.time_s) == pytest.approx(UNCALIBRATED)


def test_the_estimate_lies_inside_its_interval_by_the_committed_table() -> None:
    for name in ("sequential", "decomposed", "fused"):
        for part in ("whole", "compute"):
            low, high = intervals.interval(asked(name, part=part), GPUS) or UNCALIBRATED
            assert low < 1 < high
            assert log(high / low) < log(UNCALIBRATED[1] / UNCALIBRATED[0])
