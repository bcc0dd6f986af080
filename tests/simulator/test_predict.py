"""Estimates of every operator x scheme: never below floor, bytes and FLOP, slower over slower links."""

import time
from dataclasses import replace
from itertools import pairwise

import pytest

from kernels.fabric import Fabric, parse, usual
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.outcome import Estimate
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import COMPARED, SCHEMES, axes, schedule
from kernels.schemes.concurrent import problems
from tests.simulator.trials import ask, legal, trial
from workbench.lesson import lesson
from workbench.machines import shipped_machine
from workbench.results.metrics import floor
from workbench.simulator import intervals
from workbench.simulator.predict import (
    PREDICTOR,
    UNCALIBRATED,
    checked_spread,
    compute_alone_seconds,
    predict,
    resolved,
)

# Estimates of every operator x scheme: never below the floor, slower over a slower link, honest about themselves.

pairs = pytest.mark.parametrize(("operator", "scheme"), [(o, s) for o in OPERATORS for s in SCHEMES])


def best_compute_alone(operator: str, world: int, machine: Machine, fabric: Fabric) -> float:
    """The floor's first half: computation alone with the best tile that is offered, as one step per rank."""
    asked = ask(operator, world)
    tiles = next(axis for axis in axes(asked, "sequential", machine, fabric) if axis.name == "tile").values
    made = (schedule(asked, "sequential", {"tile": tile}, machine, fabric) for tile in tiles)
    return min(predict(trial(asked, one, machine, fabric).of_part("compute"), machine).time_s for one in made)


@pytest.mark.slow(keeps=18)
@pairs
@pytest.mark.parametrize("world", [1, 2, 4])
def test_no_estimate_is_below_the_floor(operator: str, scheme: str, world: int, laptop: Machine) -> None:
    asked, fabric = ask(operator, world), parse("emulated:wire_to_compute=1")
    fabric = resolved(fabric, asked, laptop)
    assert fabric.bandwidth_bytes_per_second is not None
    least_bytes = OPERATORS[operator].wire_bytes(asked)
    least = floor(best_compute_alone(operator, world, laptop, fabric), least_bytes, fabric.bandwidth_bytes_per_second)
    for chosen in legal(asked, scheme, laptop, fabric, pairs=False, turn=world // 2):
        found = predict(trial(asked, chosen, laptop, fabric), laptop, with_spans=False)
        assert found.time_s >= least * (1 - 1e-9), chosen
        assert found.low_s <= found.time_s <= found.high_s


@pytest.mark.slow(keeps=8)
@pairs
def test_a_slower_link_is_never_faster(operator: str, scheme: str, laptop: Machine) -> None:
    asked = ask(operator, 2)
    for chosen in legal(asked, scheme, laptop, parse("emulated"))[::5]:
        found = [
            predict(trial(asked, chosen, laptop, parse(f"emulated:wire_to_compute={r}")), laptop, with_spans=False)
            for r in (0.1, 0.5, 1, 2, 8)
        ]
        times = [one.time_s for one in found]
        # sums in another order may differ in the last bit
        assert times == pytest.approx(sorted(times), rel=1e-12), chosen


@pairs
def test_more_rows_take_longer(operator: str, scheme: str, laptop: Machine) -> None:
    """More bytes over the same link."""
    fabric = parse("emulated:bandwidth_bytes_per_second=1e9")
    small, large = ask(operator, 2), ask(operator, 2, scale=2)
    for chosen in legal(small, scheme, laptop, fabric)[::7]:
        times = [predict(trial(asked, chosen, laptop, fabric), laptop).time_s for asked in (small, large)]
        assert times[0] < times[1], chosen


@pairs
def test_the_parts_take_no_longer_than_the_whole(operator: str, scheme: str, laptop: Machine) -> None:
    asked, fabric = ask(operator, 2), parse("emulated")
    whole = trial(asked, schedule(asked, scheme, {}, laptop, fabric), laptop, fabric)
    time_s, compute_s, comm_s = (
        predict(whole.of_part(part), laptop).time_s for part in ("whole", "compute", "communication")
    )
    assert max(compute_s, comm_s) <= time_s <= compute_s + comm_s + 1e-3


@pairs
def test_one_rank_alone_takes_as_long_over_any_link(operator: str, scheme: str, laptop: Machine) -> None:
    asked = ask(operator, 1)
    chosen = schedule(asked, scheme, {}, laptop, parse("emulated"))
    slow, fast = (parse(f"emulated:bandwidth_bytes_per_second={speed}") for speed in ("1e3", "1e12"))
    times = {predict(trial(asked, chosen, laptop, fabric), laptop).time_s for fabric in (slow, fast)}
    assert len(times) == 1


def test_overlap_pays_where_wire_and_compute_are_balanced(laptop: Machine) -> None:
    asked, fabric = ask("gemm_all_to_all", 2, scale=4), parse("emulated:wire_to_compute=1")
    found = {s: predict(trial(asked, schedule(asked, s, {}, laptop, fabric), laptop, fabric), laptop).time_s
             for s in COMPARED}  # fmt: skip
    assert found["fused"] < 0.75 * found["sequential"]
    assert found["decomposed"] < 0.75 * found["sequential"]


def test_the_wire_takes_as_long_as_was_asked_for(laptop: Machine) -> None:
    asked = ask("gemm_all_to_all", 2)
    fabric = resolved(parse("emulated:wire_to_compute=2"), asked, laptop)
    wire_s = fabric.links(2)[0].wire_seconds(OPERATORS[asked.operator].wire_bytes(asked), 0)
    assert wire_s == pytest.approx(2 * compute_alone_seconds(asked, laptop, fabric))


def test_the_estimate_carries_the_link_it_was_made_for(laptop: Machine) -> None:
    asked, fabric = ask("gemm_all_to_all", 2), parse("emulated:wire_to_compute=2")
    chosen = schedule(asked, "fused", {}, laptop, fabric)
    found = predict(trial(asked, chosen, laptop, fabric), laptop)
    assert found.trial.fabric.resolved
    again = predict(found.trial, laptop)
    assert (again.trial, again.time_s) == (found.trial, found.time_s)


def test_what_is_illegal_is_refused(laptop: Machine) -> None:
    asked, fabric = ask("gemm_all_to_all", 2), parse("emulated")
    illegal = Schedule("fused", (("tile", "32x64x1000"), ("slice_tiles", 0)))
    with pytest.raises(Refusal, match="slice_tiles = 0"):
        predict(trial(asked, illegal, laptop, fabric), laptop)


def test_an_uncalibrated_estimate_says_so_with_a_wide_band(laptop: Machine) -> None:
    asked, fabric = ask("gemm_all_to_all", 2), parse("emulated")
    one = trial(asked, schedule(asked, "fused", {}, laptop, fabric), laptop, fabric)
    found = predict(one, laptop)
    assert not found.calibrated
    assert (found.low_s, found.high_s) == tuple(pytest.approx(found.time_s * share) for share in UNCALIBRATED)
    fitted = predict(one, replace(laptop, calibrated="today", spread=(1.02, 1.1), digest="abc"))
    assert fitted.calibrated
    assert (fitted.low_s, fitted.high_s) == (found.time_s, pytest.approx(1.1 * found.time_s))
    assert (fitted.predictor, fitted.digest) == (PREDICTOR, "abc")


@pairs
def test_spans_are_those_of_the_plans_steps(operator: str, scheme: str, laptop: Machine) -> None:
    asked, fabric = ask(operator, 2), parse("emulated")
    found = predict(trial(asked, schedule(asked, scheme, {}, laptop, fabric), laptop, fabric), laptop)
    assert {span.rank for span in found.spans} == {0, 1}
    whole_s = found.time_s * problems(found.trial.schedule) * (1 + 1e-12)
    assert all(0 <= span.start_s <= span.stop_s <= whole_s for span in found.spans)
    for pool in ("compute", "link"):
        mine = sorted((s.start_s, s.stop_s) for s in found.spans if s.rank == 0 and s.pool == pool)
        assert all(before[1] <= after[0] + 1e-12 for before, after in pairwise(mine))


@pytest.mark.slow(keeps=4)
@pairs
def test_every_scheme_is_estimated_on_gpus_of_two_hosts(operator: str, scheme: str, gpu_pod: Machine) -> None:
    asked, fabric = ask(operator, 8), Fabric(kind="nvlink")
    for chosen in legal(asked, scheme, gpu_pod, fabric)[::6]:
        assert 0 < predict(trial(asked, chosen, gpu_pod, fabric), gpu_pod).time_s < 1


def test_a_slider_is_answered_at_once(laptop: Machine) -> None:
    """10 ms is the promise for a laptop's plan; ten times that is still told from a mistake on a busy computer."""
    asked, fabric = ask("gemm_all_to_all", 4), parse("emulated")
    chosen = schedule(asked, "decomposed", {"pieces": 32}, laptop, fabric)
    seconds = []
    for _ in range(5):
        begin = time.thread_time()  # what other processes do meanwhile is not counted
        predict(trial(asked, chosen, laptop, fabric), laptop)
        seconds.append(time.thread_time() - begin)
    assert min(seconds) < 0.1


def asked_of(machine: Machine, world: int, part: str = "whole") -> Estimate:
    """The fused schedule of one problem, over the links between GPUs."""
    asked = problem("gemm_all_to_all", {"m": 2048, "n": 1024, "k": 512}, dtype="bfloat16", world=world)
    link = Fabric(kind="nvlink")
    chosen = schedule(asked, "fused", {}, machine, link)
    return predict(trial(asked, chosen, machine, link).of_part(part), machine, with_spans=False)


def test_an_estimate_is_calibrated_where_the_links_that_it_crosses_are() -> None:
    assert asked_of(shipped_machine("h200_nvl2"), 2).calibrated
    devices_only = shipped_machine("h200_nvl4")
    assert devices_only.calibrated is not None
    assert devices_only.provenance_of("dimension.0.bandwidth_bytes_per_second").startswith("datasheet")
    assert not asked_of(devices_only, 2).calibrated
    assert asked_of(devices_only, 2, "compute").calibrated
    assert asked_of(devices_only, 1).calibrated


def test_nobody_has_measured_what_streams_take_from_each_other_where_the_sending_blocks_are_assumed() -> None:
    machine, link = shipped_machine("h200_nvl2"), Fabric(kind="nvlink")
    asked = problem("gemm_all_reduce", {"m": 2048, "n": 2048, "k": 2048}, world=2, dtype="bfloat16")
    whole = trial(asked, schedule(asked, "concurrent", {}, machine, link), machine, link)
    known = predict(whole, machine, with_spans=False)
    assert known.calibrated
    assert machine.streams_spread is not None
    assert checked_spread(whole, machine) == machine.streams_spread
    assert (known.low_s, known.high_s) == tuple(
        pytest.approx(known.time_s * factor) for factor in intervals.interval(whole, machine) or ()
    )
    sources = {**machine.provenance, "costs.send_blocks": "assumed: 24"}
    unknown = replace(machine, provenance=sources)
    estimate = predict(whole, unknown, with_spans=False)
    assert not estimate.calibrated
    assert (estimate.low_s, estimate.high_s) == tuple(pytest.approx(estimate.time_s * band) for band in UNCALIBRATED)
    assert predict(whole.of_part("compute"), unknown, with_spans=False).calibrated


def test_links_that_have_no_price_are_not_estimated_however_they_are_asked_for() -> None:
    with pytest.raises(Refusal, match="Its gap of 150 µs a message suits CPU ranks"):
        lesson("gemm_all_to_all", world=2, machine="h200_nvl4", fabric="emulated")
    pod = shipped_machine("h200_ib")
    with pytest.raises(Refusal, match=r"8 GPUs: 16 > 8\. Accepted: world 1\.\.8, or fabric = network"):
        asked_of(pod, 16)
    assert asked_of(pod, 8).time_s > 0
    assert usual(pod, 8) == "nvlink"
    assert usual(pod, 16) == "network"


def test_micro_batches_hide_the_wire_and_priority_begins_it_one_computation_earlier(laptop: Machine) -> None:
    """Where both parts take as long, b problems one by one take 2 b; overlapped b + 1, or b + 2 where sends queue."""
    of_sequential = ratios("gemm_all_to_all", laptop)
    for count in (2, 4, 8, 16):
        high, normal = of_sequential[count]
        assert high == pytest.approx((count + 1) / (2 * count), abs=0.02)
        assert normal == pytest.approx((count + 2) / (2 * count), abs=0.02)


@pytest.mark.parametrize("operator", ["gemm_reduce_scatter", "gemm_all_reduce"])
def test_sums_stand_in_the_stream_of_the_sends_and_hide_less(operator: str, laptop: Machine) -> None:
    """The next send begins once the sum before it is made, which waits for the thread and for peers."""
    for high, normal in ratios(operator, laptop).values():
        assert 0.5 < high < normal < 1
    assert ratios(operator, laptop)[16][0] > ratios("gemm_all_to_all", laptop)[16][0]


def ratios(operator: str, laptop: Machine) -> dict[int, tuple[float, float]]:
    """By micro-batches: what one takes with priority and without, over the sequential schedule; no latency counts."""
    asked = problem(operator, {"m": 1024, "n": 1024, "k": 1024}, world=2)
    fabric = resolved(parse("emulated:wire_to_compute=1,latency_seconds=0,message_seconds=0"), asked, laptop)

    def seconds(scheme: str, **values: int | str) -> float:
        chosen = schedule(asked, scheme, values, laptop, fabric)
        return predict(trial(asked, chosen, laptop, fabric), laptop, with_spans=False).time_s

    def over(count: int, priority: str) -> float:
        return seconds("concurrent", micro_batches=count, comm_priority=priority) / seconds("sequential")

    return {count: (over(count, "high"), over(count, "normal")) for count in (2, 4, 8, 16)}


# What must hold of every estimate, whatever the machine: nothing is faster than its bytes, its FLOP and its parts.

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
