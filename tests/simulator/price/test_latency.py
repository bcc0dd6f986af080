"""GEMVs and lookups that wait for memory: few blocks, few steps ahead, rows that the L2 has; beside one H200."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schemes import expand, schedule
from workbench.machines import machine
from workbench.machines.calibrate_gpu import held_out
from workbench.results import recordings
from workbench.simulator.cache.popularity import found_share
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import predict
from workbench.simulator.price import latency
from workbench.simulator.price.steps import compute_seconds

GPUS, NVLINK = machine("h200_nvl2"), parse("nvlink")
GEMV = problem("gemv_all_reduce", {"n": 16384, "k": 16384, "tokens": 1}, dtype="bfloat16", world=2)
FEW = problem("gemv_all_reduce", {"n": 16384, "k": 16384, "tokens": 8}, dtype="bfloat16", world=2)
TABLES = {"tables_per_rank": 2, "rows": 500_000, "dim": 128, "batch": 4096, "pooling": 40}
LOOKUP = problem("embedding_all_to_all", {**TABLES, "indices": "uniform"}, dtype="bfloat16", world=2)
SKEWED = problem("embedding_all_to_all", {**TABLES, "rows": 2000, "indices": "power_law"}, dtype="bfloat16", world=2)


def computed(of: Problem, on: Machine = GPUS, **axes: Any) -> float:
    """Seconds in which rank 0 computes."""
    plan = expand(of, schedule(of, "fused", axes, GPUS, NVLINK))
    return float(compute_seconds(plan, on, NVLINK)[plan.rank == 0].sum())


@pytest.mark.parametrize(("of", "size"), [(GEMV, "8x1x256"), (LOOKUP, "1x128x8")])
def test_few_blocks_leave_memory_idle(of: Problem, size: str) -> None:
    fewest, twice, most = (computed(of, tile=size, grid=grid) for grid in (132, 264, 0))
    assert 2.05 * twice > fewest > 1.8 * twice > 1.3 * 1.8 * most  # each block has half as many tiles


def test_tensor_cores_keep_an_sm_busy_whatever_its_blocks() -> None:
    fewest, twice, most = (computed(FEW, tile="16x8x256", grid=grid) for grid in (132, 264, 0))
    assert fewest > 1.3 * twice
    assert twice == most


def test_steps_ahead_hide_the_way_to_memory() -> None:
    few, usual, many = (computed(GEMV, tile="16x1x256", num_stages=stages, grid=132) for stages in (2, 3, 4))
    assert few > 1.3 * usual > 1.3 * 1.1 * many


def test_half_a_vector_at_once_takes_twice_the_steps() -> None:
    assert computed(LOOKUP, tile="1x64x8", grid=132) > 1.8 * computed(LOOKUP, tile="1x128x8", grid=132)


def test_rows_that_the_l2_has_come_sooner() -> None:
    """Skewed lookups, and all in tables that fit: one H200 took as long for both in 20 MB of tables."""
    uniform = replace(SKEWED, shape=(*SKEWED.shape[:-1], ("indices", "uniform")))
    assert computed(uniform, grid=132) == pytest.approx(computed(SKEWED, grid=132), rel=0.05)
    large = [replace(one, shape=tuple((name, 500_000 if name == "rows" else size) for name, size in one.shape))
             for one in (SKEWED, uniform)]  # fmt: skip
    assert computed(large[0], grid=132) < 0.9 * computed(large[1], grid=132)
    assert computed(uniform, grid=132) < 0.8 * computed(large[1], grid=132)


def test_the_share_that_an_l2_answers_grows_with_it() -> None:
    sizes = (2, 500_000, 512, 81_920)
    small, large, repeated = (found_share("power_law", sizes, 1, (l2, 0.4)) for l2 in (4e6, 16e6, 80e6))
    assert 0.2 < small < large < 1.0
    assert repeated == 1.0  # the calls that are timed look up the same rows


def test_copies_of_which_few_rows_are_read_stay_in_the_l2() -> None:
    """Four copies of 51 MB, of each of which a call reads 8: one H200 took 0.45 us a step, and where all miss 0.7."""
    sizes, l2 = (2, 100_000, 256, 32_768), (52_428_800.0, 0.4)
    assert found_share("uniform", sizes, 4, l2) == 1.0
    assert found_share("uniform", (*sizes[:3], 5 * sizes[3]), 4, l2) < 0.1
    assert 0.2 < found_share("power_law", (4, 500_000, 512, 131_072), 4, l2) < 0.8  # of 43 MB some are lost
    few = problem("embedding_all_to_all", {"tables_per_rank": 2, "rows": 100_000, "dim": 64, "batch": 4096,
                                           "pooling": 4, "indices": "uniform"}, dtype="float32", world=2)  # fmt: skip
    assert computed(few, tile="1x64x4", grid=132) == pytest.approx(28.1e-6, rel=0.1)


def test_where_it_was_not_measured_a_grid_costs_what_memory_gives() -> None:
    nobody = replace(GPUS, device=replace(GPUS.device, gemv_step={}, gather_step={}))
    assert latency.of_schedule(nobody, GEMV, schedule(GEMV, "fused", {}, GPUS, NVLINK)) is None
    for of in (GEMV, LOOKUP):
        assert computed(of, nobody, grid=132) == computed(of, nobody, grid=0) < computed(of, grid=132)


@pytest.mark.parametrize(("of", "axes"), [
    (GEMV, {"tile": "16x1x256", "num_warps": 8, "num_stages": 2, "grid": 132}),
    (FEW, {"tile": "16x8x512", "num_warps": 8, "num_stages": 4, "grid": 264}),
    (LOOKUP, {"tile": "1x64x8", "grid": 132}), (SKEWED, {"tile": "1x128x8", "grid": 264}),
])  # fmt: skip
def test_the_closed_form_knows_it_as_well(of: Problem, axes: dict[str, Any]) -> None:
    recorded, one = recordings.recordings("h200_nvl2_alone")[0].measurement, schedule(of, "fused", axes, GPUS, NVLINK)
    trial = replace(recorded.trial, problem=of, schedule=one, part="whole")
    played = predict(trial, GPUS, with_spans=False).time_s
    columns = {name: np.array([value, value]) for name, value in one.axes}
    assert times(of, "fused", columns, GPUS, NVLINK) == pytest.approx(played, rel=0.1)


@pytest.mark.parametrize(("operator", "more_than", "median", "p90"), [
    ("gemm_all_to_all", 30, 0.09, 0.25), ("gemv_all_reduce", 15, 0.08, 0.22), ("embedding_all_to_all", 30, 0.09, 0.28),
])  # fmt: skip
def test_drawn_schedules_of_problems_that_nothing_was_fitted_to(
    operator: str, more_than: int, median: float, p90: float
) -> None:
    """One H200, 2026-11-23: in the middle GEMMs were estimated 16 % off before, GEMVs 33 %, and lookups 83 %.

    GEMVs of several tokens have another kernel since.
    """
    errors = []
    for one in (each.measurement for each in recordings.recordings("h200_nvl2_alone")):
        of = one.trial.problem
        if of.operator == operator and held_out(of) and dict(of.shape).get("tokens", 1) == 1:
            errors.append(abs(predict(one.trial, GPUS, with_spans=False).time_s / one.time_s - 1))
    assert len(errors) > more_than
    assert np.median(errors) < median
    assert np.quantile(errors, 0.9) < p90


def test_gemvs_of_several_tokens_that_nothing_was_fitted_to() -> None:
    """Two H200s, 2026-11-28: 8 tokens were estimated 1.4 times too long by prices of an older kernel."""
    errors = []
    for one in (each.measurement for each in recordings.recordings("h200_nvl2_gemv")):
        of, is_ours = one.trial.problem, one.trial.schedule.scheme == "fused"
        if is_ours and one.trial.part == "compute" and held_out(of) and of["tokens"] > 1:
            errors.append(abs(predict(one.trial, GPUS, with_spans=False).time_s / one.time_s - 1))
    assert len(errors) >= 9
    assert np.median(errors) < 0.12
    assert max(errors) < 0.2
