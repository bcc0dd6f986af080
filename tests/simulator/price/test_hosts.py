"""What puts between hosts cost: a gap, bytes and latency of the network, a copy; closed form and play agree."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from kernels.fabric import Fabric, parse
from kernels.machine import NETWORK, Machine
from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.plan import Kind
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axes, axis_rules, expand, schedule
from tests.simulator.trials import trial
from workbench.machines import shipped_machine
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import predict
from workbench.simulator.price.collectives import call_seconds
from workbench.simulator.price.messages import are_measured, routes
from workbench.simulator.price.steps import step_costs

IB, OVER = shipped_machine("h200_ib"), parse("network")
SIZES: Mapping[str, dict[str, Any]] = {
    "embedding_all_to_all": {"tables_per_rank": 16, "rows": 100_000, "dim": 128, "batch": 4096, "pooling": 32},
    "gemm_all_to_all": {"m": 8192, "n": 2048, "k": 2048},
    "all_gather_gemm": {"m": 8192, "n": 2048, "k": 2048},
}
TOLERANCE = 0.12
puts = pytest.mark.parametrize("operator", sorted(axis_rules.BETWEEN_HOSTS))


def ask(operator: str, world: int) -> Problem:
    dtype = "float32" if OPERATORS[operator].work == "gather" else "bfloat16"
    return problem(operator, SIZES[operator], dtype=dtype, world=world)


def fused(of: Problem, machine: Machine = IB, fabric: Fabric = OVER, **values: Any) -> Schedule:
    return schedule(of, "fused", {"transport": "gin", **values}, machine, fabric)


def played(of: Problem, chosen: Schedule, machine: Machine = IB, fabric: Fabric = OVER) -> float:
    return predict(trial(of, chosen, machine, fabric), machine, with_spans=False).time_s


def with_network(**numbers: float) -> Machine:
    """H200s on a network with other *numbers*."""
    levels = [replace(each, **numbers) if each.link == NETWORK else each for each in IB.dimensions]
    return replace(IB, dimensions=tuple(levels))


@puts
@pytest.mark.parametrize("world", [2, 16])
def test_a_put_costs_its_gap_its_bytes_and_the_latency(operator: str, world: int) -> None:
    of, network = ask(operator, world), IB.dimensions[1]
    plan = expand(of, fused(of))
    costs, each = step_costs(plan, IB, OVER), plan.schedule.count(axis_rules.PER_HOST)
    far = (plan.kind == Kind.PUT) & (plan.rank // each != plan.peer // each)
    num_bytes = plan.num_bytes[far] / network.bandwidth_bytes_per_second
    assert costs.transit[far] == pytest.approx(num_bytes + network.message_seconds)
    assert costs.delay[far] == pytest.approx(network.latency_seconds + IB.costs.signal_seconds)
    assert costs.issue[far] == pytest.approx(IB.costs.step_seconds)
    assert (plan.kind == Kind.COPY).any() == (OPERATORS[operator].flow is not Flow.RECEIVE)


@puts
def test_what_the_network_costs_is_in_the_time(operator: str) -> None:
    of = ask(operator, 2)
    chosen = fused(of)
    usual = played(of, chosen)
    late = with_network(latency_seconds=IB.dimensions[1].latency_seconds + 1e-3)
    assert played(of, chosen, late) == pytest.approx(usual + 1e-3, rel=0.2)
    slow = with_network(bandwidth_bytes_per_second=1e9)
    assert played(of, chosen, slow) >= OPERATORS[operator].wire_bytes(of) / 1e9


@pytest.mark.slow(keeps=4)
@puts
@pytest.mark.parametrize("world", [2, 4])
def test_the_default_slice_is_near_the_best_of_all(operator: str, world: int) -> None:
    """For the network's gap of a put, and for one that is forty times as long, where few slices are better."""
    of = ask(operator, world)
    for machine in (IB, with_network(message_seconds=20e-6)):
        sizes = next(axis.values for axis in axes(of, "fused", machine, OVER) if axis.name == "slice_tiles")
        best = min(played(of, chosen, machine) for chosen in legal(of, sizes, machine))
        assert played(of, fused(of, machine), machine) <= 1.1 * best


def legal(of: Problem, sizes: tuple[Any, ...], machine: Machine) -> Iterator[Schedule]:
    for size in sizes:
        try:
            chosen = fused(of, machine, slice_tiles=size)
        except Refusal:
            continue
        if -(-OPERATORS[of.operator].chunk_rows(of) // 128) * of.world <= 4096 and len(expand(of, chosen)) < 20_000:
            yield chosen


def test_longer_gaps_make_fewer_slices() -> None:
    of = ask("gemm_all_to_all", 2)
    counts = [(expand(of, fused(of, machine)).kind == Kind.PUT).sum()
              for machine in (IB, with_network(message_seconds=20e-6))]  # fmt: skip
    assert counts[0] > counts[1]


def test_ranks_of_a_host_that_share_a_put_pay_fewer_gaps() -> None:
    of, gaps = ask("gemm_all_to_all", 16), with_network(message_seconds=50e-6)
    together, apart = (fused(of, gaps, slice_tiles=64, ranks_per_host=each) for each in (8, 1))
    assert played(of, together, gaps) < played(of, apart, gaps)


def test_fewer_ranks_than_a_host_has_are_on_hosts_of_their_own() -> None:
    far, near = IB.dimensions[1], IB.dimensions[0]
    assert routes(2, IB, OVER).between(0, 1).byte_seconds == pytest.approx(1 / far.bandwidth_bytes_per_second)
    assert routes(16, IB, OVER).between(0, 1).byte_seconds == pytest.approx(1 / near.bandwidth_bytes_per_second)
    assert not are_measured(2, IB, OVER)


def test_the_library_has_a_share_of_nvlink_and_all_of_a_network() -> None:
    """Rows that all ranks of a host need cross the network once; what each needs for itself crosses for each."""
    far, num_bytes = IB.dimensions[1], 15e9
    fixed = IB.costs.library_seconds
    to_each = float(call_seconds(IB, routes(16, IB, OVER), "all_to_all", num_bytes)) - fixed
    assert to_each == pytest.approx(8 / 15 * num_bytes / far.bandwidth_bytes_per_second)
    inside = num_bytes * 7 / 15 / IB.dimensions[0].bandwidth_bytes_per_second / IB.costs.library_share
    to_all = float(call_seconds(IB, routes(16, IB, OVER), "all_gather", num_bytes)) - fixed
    assert to_all == pytest.approx(max(inside, to_each / 8))


@pytest.mark.slow(keeps=6)
@puts
@pytest.mark.parametrize(("world", "per_host"), [(2, 1), (4, 1), (16, 8)])
def test_the_closed_form_agrees_with_play_on_a_network(operator: str, world: int, per_host: int) -> None:
    of = ask(operator, world)
    known = {axis.name: axis.values for axis in axes(of, "fused", IB, OVER)}
    usual = fused(of).count("slice_tiles")
    errors = []
    for order, size in product(known["tile_order"], (usual // 2, usual, 4 * usual)):
        try:
            chosen = fused(of, tile_order=order, slice_tiles=size, ranks_per_host=per_host)
        except Refusal:
            continue
        errors.append(times(of, "fused", dict(chosen.axes), IB, OVER)[0] / played(of, chosen) - 1)
    assert len(errors) >= 3
    assert np.abs(errors).max() <= TOLERANCE, errors


def test_the_closed_form_has_no_number_where_puts_are_refused() -> None:
    of, fabric = problem("gemm_all_to_all", {"m": 512, "n": 512, "k": 512}, world=4), parse("emulated:hosts=2")
    laptop = shipped_machine("laptop_cpu")
    values = {"transport": "gin", "tile": "64x64x512", "slice_tiles": np.array([8, 4, 8, 8]),
              "ranks_per_host": np.array([2, 2, 4, 3])}  # fmt: skip
    assert np.isnan(times(of, "fused", values, laptop, fabric)).tolist() == [False, True, True, True]
