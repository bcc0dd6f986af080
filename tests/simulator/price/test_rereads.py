"""A fused GEMM ends no sooner than memory gives what the reuse tier counts: estimates get better, and none worse."""

import numpy as np
import pytest

from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.outcome import Measurement
from kernels.schemes import expand, schedule
from workbench.analysis import kernel_counters
from workbench.machines import machine
from workbench.results import recordings
from workbench.simulator.predict import predict
from workbench.simulator.price import gemm, steps

GPUS = machine("h200_nvl2")


def recorded() -> list[Measurement]:
    """Every fused GEMM that two H200s were timed with."""
    measured = [
        one.measurement for name in ("h200_nvl2_gemm", "h200_nvl2_layers") for one in recordings.recordings(name)
    ]
    return [one for one in measured if one.trial.schedule.scheme == "fused" and not one.trial.is_one_call
            and OPERATORS[one.trial.problem.operator].work == "gemm"]  # fmt: skip


def off(measured: list[Measurement]) -> np.ndarray:
    return np.array([abs(predict(one.trial, GPUS, with_spans=False).time_s / one.time_s - 1.0) for one in measured])


def test_bytes_that_are_read_again_make_estimates_better_and_none_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most compute for longer than they read; those of few rows in small tiles were a third too fast."""
    measured = recorded()
    with_all = off(measured)
    monkeypatch.setattr(steps, "memory_floor_seconds", lambda plan, on, otherwise_s: 0.0)
    once = off(measured)
    changed = np.abs(with_all - once) > 0.001
    assert len(once) >= 150
    assert changed.any()
    assert (with_all[changed] < once[changed]).all()
    assert once.max() > 0.3
    assert with_all[changed].max() < 0.35
    assert np.quantile(with_all, 0.9) < np.quantile(once, 0.9)


def test_as_many_programs_share_an_sm_as_a_gpu_launched() -> None:
    document = kernel_counters.document()
    assert document is not None
    for kernel in document["kernels"]:
        if OPERATORS[kernel["operator"]].work == "gemm":
            of = problem(kernel["operator"], kernel["shape"], dtype=kernel["dtype"], world=1)
            stated = schedule(of, "fused", kernel["axes"], GPUS, parse("nvlink"))
            held = gemm.residents(GPUS, of, stated) * GPUS.device.slots
            assert held == kernel["repeats"][0]["programs"], kernel["number"]


def test_a_library_and_a_gpu_without_caches_have_no_floor() -> None:
    of = problem("gemm_all_to_all", {"m": 512, "n": 512, "k": 512}, dtype="bfloat16", world=2)
    usual = schedule(of, "fused", {}, GPUS, parse("nvlink"))
    assert gemm.memory_floor_seconds(expand(of, usual), GPUS, 0.0) > 0.0
    assert gemm.memory_floor_seconds(expand(of, usual), GPUS, 1.0) == 0.0, "it is far from mattering"
    library = expand(of, schedule(of, "sequential", {}, GPUS, parse("nvlink")))
    assert gemm.memory_floor_seconds(library, GPUS, 0.0) == 0.0
    assert gemm.memory_floor_seconds(expand(of, usual), machine("mi300x_mesh8"), 0.0) == 0.0
