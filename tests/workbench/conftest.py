"""A small machine, trials of it and their outcomes, made without measuring anything."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels.fabric import parse
from kernels.machine import Costs, Device, Dimension, Machine
from kernels.operators import problem
from kernels.outcome import Measurement, Span
from kernels.protocol import PROTOCOLS
from kernels.schemes import schedule
from kernels.trial import Trial
from workbench.store import Store

DEVICE = Device(kind="cpu", name="test", slots=1, matrix_flops_per_second={"float32": 1e11, "bfloat16": 1e11},
                memory_bytes_per_second=1e10, memory_bytes=8e9, l2_bytes=2e6, copy_engines=0,
                shared_memory_per_slot_bytes=0)  # fmt: skip
COSTS = Costs(launch_seconds=0, step_seconds=1e-4, tile_seconds=1e-5, signal_seconds=1e-5, barrier_seconds=1e-5,
              copy_engine_seconds=0, library_seconds=1e-4, library_share=0.9, send_blocks=0)  # fmt: skip


@pytest.fixture
def machine() -> Machine:
    dimension = Dimension(topology="switch", count=8, bandwidth_bytes_per_second=1e9, latency_seconds=1e-4)
    return Machine(name="test", title="A test machine", backend="cpu", device=DEVICE, costs=COSTS,
                   dimensions=(dimension,), provenance={}, digest="0123456789ab")  # fmt: skip


@pytest.fixture
def make_trial(machine: Machine) -> Callable[..., Trial]:
    """make_trial(scheme, part="whole", operator=..., fabric=..., world=..., **axes)"""

    def make(scheme: str = "sequential", part: str = "whole", *, operator: str = "gemm_all_to_all",
             fabric: str = "emulated:bandwidth_bytes_per_second=1e9", world: int = 2,
             **axes: int | str) -> Trial:  # fmt: skip
        asked = problem(operator, {"m": 256, "n": 128, "k": 64}, world=world)
        linked = parse(fabric)
        return Trial(problem=asked, schedule=schedule(asked, scheme, axes, machine, linked), backend="cpu",
                     machine=machine.name, fabric=linked, protocol=PROTOCOLS["quick"], part=part)  # fmt: skip

    return make


@pytest.fixture
def measure() -> Callable[..., Measurement]:
    """measure(trial, seconds): five samples on every rank around *seconds*; the last rank is the slowest."""

    def make(trial: Trial, seconds: float = 1e-3) -> Measurement:
        samples = tuple(
            tuple(seconds * (1 + 0.01 * (rank - trial.world + 1)) for _ in range(5)) for rank in range(trial.world)
        )
        return Measurement(trial=trial, samples=samples, correct=True, max_relative_error=1e-6,
                           spans=(Span("0/compute/-1/0", 0, "compute", "compute", 0.0, seconds),))  # fmt: skip

    return make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened
