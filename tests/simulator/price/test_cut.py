"""A GEMM that cuts its last wave: units at the same time, sums behind them, and two tiers that agree."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import expand, schedule
from kernels.schemes.axis_rules import WHOLE
from kernels.trial import PROTOCOLS, Trial
from workbench.machines import machine
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import predict

H200, LINK = machine("h200_nvl2"), parse("nvlink")
UNMEASURED = replace(H200, device=replace(H200.device, load_latency_seconds=0.0))
"""A machine that knows what tiles take, and not what blocks wait for."""


def gemm(m: int, n: int, k: int) -> Problem:
    return problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, dtype="bfloat16", world=1)


def chosen(of: Problem, **axes: int | str) -> Schedule:
    return schedule(of, "fused", axes, H200, LINK)


def trial(of: Problem, by: Schedule) -> Trial:
    protocol = PROTOCOLS["default"]
    return Trial(problem=of, schedule=by, backend="triton", machine=H200.name, fabric=LINK, protocol=protocol)


def played(of: Problem, by: Schedule, on: Machine = H200) -> float:
    return predict(trial(of, by), on, with_spans=False).time_s


@pytest.mark.parametrize("on", [H200, UNMEASURED])
@pytest.mark.parametrize(("sides", "tile", "splits"), [
    ((128, 1024, 13184), "64x64x128", (2, 4)), ((4096, 1152, 3200), "128x128x64", (2, 5)),
    ((3072, 1024, 5632), "128x256x64", (2,)),  # of 264 programs
    ((8192, 3200, 5120), "128x256x64", (2, 3)),
])  # fmt: skip
def test_both_tiers_agree(on: Machine, sides: tuple[int, int, int], tile: str, splits: tuple[int, ...]) -> None:
    of = gemm(*sides)
    for split in splits:
        by = chosen(of, tile=tile, split_k=split)
        closed = times(of, "fused", {name: [value] for name, value in by.axes}, on, LINK)[0]
        assert played(of, by, on) == pytest.approx(closed, rel=0.02)


def test_a_cut_wave_takes_its_share_and_not_less_than_memory() -> None:
    of = gemm(4096, 1152, 3200)  # 288 tiles: 2.2 waves
    whole, cut = (played(of, chosen(of, tile="128x128x64", split_k=split)) for split in (WHOLE, 5))
    assert 2.18 / 3 * whole < cut < 0.95 * whole
    thin = gemm(256, 7168, 8192)  # memory gives its weights in 27 us
    assert played(thin, chosen(thin, tile="128x256x64", split_k=2)) >= 117e6 / H200.device.memory_bytes_per_second


def test_the_default_gains_by_estimate_where_it_cuts() -> None:
    for sides in ((128, 1024, 13184), (256, 1536, 13696), (8192, 6784, 4480), (2379, 9344, 14464)):
        of = gemm(*sides)
        by = chosen(of)
        assert by["split_k"] != WHOLE
        assert played(of, by) < played(of, chosen(of, tile=by["tile"], split_k=WHOLE))


def test_spans_lie_on_the_plan() -> None:
    of = gemm(4096, 1152, 3200)
    by = chosen(of, tile="128x128x64", split_k=5)
    plan, spans = expand(of, by), {span.step: span for span in predict(trial(of, by), H200).spans}
    units = np.flatnonzero((plan.k_stop > plan.k_start) & (plan.k_stop - plan.k_start < of["k"]))
    begins = {spans[plan.address(int(step))].start_s for step in units}
    assert len(begins) == 1, "all units begin together"
