"""What must hold of every estimate, whatever the machine: nothing is faster than its bytes, its FLOP and its parts."""

from dataclasses import replace

import pytest

from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schemes import COMPARED, schedule
from tests.simulator.trials import ask, trial
from workbench.machines import shipped_machine
from workbench.simulator.predict import predict

NVLINK = Fabric(kind="nvlink")
CASES = [(operator, scheme) for operator in OPERATORS for scheme in COMPARED]


@pytest.fixture(scope="module")
def host(gpu_pod: Machine) -> Machine:
    """One host of four GPUs."""
    return replace(gpu_pod, dimensions=gpu_pod.dimensions[:1])


def estimated(of: Problem, scheme: str, machine: Machine, part: str = "whole") -> float:
    chosen = schedule(of, scheme, {}, machine, NVLINK)
    return predict(replace(trial(of, chosen, machine, NVLINK), part=part), machine, with_spans=False).time_s


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(("operator", "scheme"), CASES)
def test_no_estimate_is_below_its_bytes_and_its_flop(operator: str, scheme: str, world: int, host: Machine) -> None:
    of, kind = ask(operator, world, scale=4), OPERATORS[operator]
    seconds = estimated(of, scheme, host)
    links = world - 1  # a link to every peer
    assert seconds >= kind.wire_bytes(of) / links / host.dimensions[0].bandwidth_bytes_per_second
    assert seconds >= kind.flops(of) / host.device.matrix_flops_per_second[of.dtype]
    assert seconds >= kind.memory_bytes(of) / host.device.memory_bytes_per_second * 0.999


@pytest.mark.parametrize(("operator", "scheme"), CASES)
def test_the_whole_is_no_shorter_than_either_part(operator: str, scheme: str, host: Machine) -> None:
    of = ask(operator, 4, scale=4)
    whole, *parts = (estimated(of, scheme, host, part) for part in ("whole", "compute", "communication"))
    assert whole >= max(parts) * 0.999


@pytest.mark.parametrize(("operator", "scheme"), CASES)
def test_a_slower_link_makes_nothing_faster(operator: str, scheme: str, host: Machine) -> None:
    of, link, times = ask(operator, 4, scale=4), host.dimensions[0], []
    for speed in (8e11, 4e11, 2e11, 1e11, 5e10):
        slower = replace(host, dimensions=(replace(link, bandwidth_bytes_per_second=speed),))
        times.append(estimated(of, scheme, slower))
    assert times == sorted(times)
    assert times[-1] > times[0]


@pytest.mark.parametrize(("operator", "scheme"), CASES)
def test_a_rank_alone_sends_nothing(operator: str, scheme: str, host: Machine) -> None:
    of = ask(operator, 1, scale=4)
    endless = replace(
        host, dimensions=(replace(host.dimensions[0], bandwidth_bytes_per_second=1.0, latency_seconds=1),)
    )
    assert estimated(of, scheme, endless) == estimated(of, scheme, host) < 1


@pytest.mark.parametrize("operator", [name for name, kind in OPERATORS.items() if kind.work == "gemm"])
def test_more_rows_take_no_less_time(operator: str, host: Machine) -> None:
    for scheme in COMPARED:
        times = [estimated(problem(operator, {"m": m, "n": 2048, "k": 2048}, world=4, dtype="bfloat16"), scheme, host)
                 for m in (1024, 2048, 4096, 8192)]  # fmt: skip
        assert times == sorted(times), scheme


FIXED = ("launch_seconds", "step_seconds", "tile_seconds", "signal_seconds", "barrier_seconds", "copy_engine_seconds",
         "copy_engine_gap_seconds",
         "library_seconds", "cold_seconds")  # fmt: skip
SIZES = {"m": 4096, "n": 4096, "k": 4096}
LINKS = {"laptop_cpu": "emulated:bandwidth_bytes_per_second=1e9,latency_seconds=0,message_seconds=0",
         "h200_nvl2": "nvlink"}  # fmt: skip


def free_of_fixed_costs(machine: Machine) -> Machine:
    """*machine* without launches, latencies and flags, on one slot, so that no wave is cut, and with endless memory."""
    costs = replace(machine.costs, **dict.fromkeys(FIXED, 0.0))
    links = tuple(replace(each, latency_seconds=0.0, message_seconds=0.0) for each in machine.dimensions)
    device = replace(machine.device, slots=1, memory_bytes_per_second=1e30)
    return replace(machine, device=device, costs=costs, dimensions=links, rates=(), collectives=())


@pytest.mark.parametrize("part", ["compute", "communication"])
@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("operator", [name for name, kind in OPERATORS.items() if kind.work == "gemm"])
def test_splitting_then_merging_changes_nothing_where_nothing_is_fixed(operator: str, name: str, part: str) -> None:
    machine, link = free_of_fixed_costs(shipped_machine(name)), parse(LINKS[name])
    of = problem(operator, SIZES, dtype="bfloat16" if machine.backend == "triton" else "float32", world=2)
    engine = "copy_engine" if machine.backend == "triton" else "sm"
    times = []
    for pieces in (1, 2, 4, 8):
        chosen = schedule(of, "decomposed", {"pieces": pieces, "engine": engine}, machine, link)
        cut = replace(trial(of, chosen, machine, link), part=part)
        times.append(predict(cut, machine, with_spans=False).time_s)
    assert times == pytest.approx([times[0]] * len(times), rel=1e-9)
    assert times[0] > 0
