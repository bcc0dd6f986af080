"""Whole spaces are looked through in closed form; what is recommended is legal and ranked by play."""

from dataclasses import replace
from itertools import pairwise

import pytest

from kernels import backends
from kernels.backends.capabilities import MeasuringRanks, dtypes
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.schedule import Refusal
from kernels.schemes import axes, refusal, schedule
from kernels.trial import PROTOCOLS
from workbench.experiment import recommend as module
from workbench.experiment.forecast import Durations
from workbench.experiment.recommend import every_value, fastest, leaders, recommend
from workbench.experiment.space import Choice, Space
from workbench.machines import shipped_machine
from workbench.simulator.predict import predict

ASKED = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
LINK = parse("emulated:bandwidth_bytes_per_second=1e9")


def test_the_fastest_come_first_and_are_legal(machine: Machine) -> None:
    free = every_value(("decomposed",), ASKED, machine, LINK)
    space = Space((Choice("sequential"), Choice("decomposed", tuple(free.items()))))
    found, num_points = recommend(ASKED, MeasuringRanks(machine, LINK), space, PROTOCOLS["quick"], 5)
    assert len(found) == 5
    assert num_points > 100
    seconds = [each.estimate.time_s for each in found]
    assert seconds == sorted(set(seconds)), "no two of them are one estimate"
    assert all(refusal(ASKED, each.estimate.trial.schedule, machine, LINK) is None for each in found)


def test_nothing_better_was_overlooked_in_a_small_space(machine: Machine) -> None:
    pieces = (1, 2, 4, 8, 16)
    space = Space((Choice("decomposed", (("pieces", pieces),)),))
    found, num_points = recommend(ASKED, MeasuringRanks(machine, LINK), space, PROTOCOLS["quick"], 5)
    assert num_points == 5
    assert {each.estimate.trial.schedule["pieces"] for each in found} == set(pieces)


def test_a_space_that_is_too_large_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 3)
    space = Space((Choice("decomposed", (("pieces", (1, 2, 4, 8)),)),))
    with pytest.raises(
        Refusal, match=r"decomposed with all values of .* has 4 schedules: 4 > 3\. Accepted: at most 3\. Fix some axes"
    ):
        recommend(ASKED, MeasuringRanks(machine, LINK), space, PROTOCOLS["quick"], 1)


@pytest.mark.slow
def test_a_space_that_is_too_large_is_looked_through_without_axes_that_change_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU alone has 2 million fused schedules. What is named is within 4 % of what looking through all names."""
    gpus, link = shipped_machine("h200_nvl2"), parse("nvlink")
    of = problem("gemm_all_to_all", {"m": 4096, "n": 2048, "k": 4096}, world=1, dtype="bfloat16")
    free = every_value(("fused",), of, gpus, link)
    whole = Space((Choice("fused", tuple(free.items())),))
    best, num_points = fastest(of, MeasuringRanks(gpus, link), whole, PROTOCOLS["default"], 5)
    assert 1000 < num_points < 100_000
    assert len(best) == 5
    fewer = {name: values for name, values in free.items() if name not in ("split_k", "tile_order", "slice_tiles")}
    space = Space((Choice("fused", tuple(fewer.items())),))
    every, examined = fastest(of, MeasuringRanks(gpus, link), space, PROTOCOLS["default"], 5)
    monkeypatch.setattr(module, "MOST_POINTS", examined - 1)
    some, num_some = fastest(of, MeasuringRanks(gpus, link), space, PROTOCOLS["default"], 5)
    assert num_some < examined / 4
    assert [each.time_s for each in some] == pytest.approx([each.time_s for each in every], rel=0.04)


def test_the_best_of_an_answer_is_the_first_of_its_list() -> None:
    """`comm_sms` makes five times as many points; an answer still looks through all stages and stores of a tile."""
    gpus, link = shipped_machine("h200_nvl2"), parse("nvlink")
    of = problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}, world=2, dtype="bfloat16")
    ranks, free = MeasuringRanks(gpus, link), every_value(("fused",), of, gpus, link)
    listed, num_points = fastest(of, ranks, Space((Choice("fused", tuple({**free, "tile": ("128x256x64",)}.items())),)),
                                 PROTOCOLS["default"], 1)  # fmt: skip
    assert num_points > module.FEW_POINTS
    of_answer = leaders(of, ranks, ("fused",), {"tile": ("128x256x64",)}, PROTOCOLS["default"])["fused"]
    assert of_answer[0].time_s == pytest.approx(listed[0].time_s, rel=1e-3)


def test_estimates_of_mixed_schemes_keep_their_order(machine: Machine) -> None:
    mixed = [schedule(ASKED, name, values, machine, LINK) for name, values in
             (("fused", {}), ("decomposed", {"pieces": 2}), ("fused", {"slice_tiles": 1}))]  # fmt: skip
    together = Durations(ASKED, LINK, machine).whole_s(mixed)
    assert together == [Durations(ASKED, LINK, machine).whole_s([one])[0] for one in mixed]
    assert all(0 < seconds < float("inf") for seconds in together)


SIZES: dict[str, dict[str, int]] = {
    "gemm": {"m": 1024, "n": 1024, "k": 512}, "gemv": {"n": 4096, "k": 4096, "tokens": 1},
    "gather": {"tables_per_rank": 2, "rows": 1000, "dim": 128, "batch": 128, "pooling": 4},
}  # fmt: skip


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("name", "link"), [("h200_nvl4", "nvlink"), ("laptop_cpu", LINK.kind)])
def test_what_is_named_runs_and_is_no_estimate_twice(operator: str, name: str, link: str) -> None:
    where, fabric = shipped_machine(name), parse(link) if name != "laptop_cpu" else LINK
    dtype = dtypes(where.backend, operator)[0]
    asked = problem(operator, SIZES[OPERATORS[operator].work], world=2, dtype=dtype)
    free = every_value(("fused",), asked, where, fabric)
    wanted = {axis: values for axis, values in free.items() if axis != "tile"}
    space = Space((Choice("sequential"), Choice("decomposed"), Choice("fused", tuple(wanted.items()))))
    found, _ = recommend(asked, MeasuringRanks(where, fabric), space, PROTOCOLS["quick"], 5)
    seconds = [each.estimate.time_s for each in found]
    assert len(found) >= 2
    assert all(later > 1.0000001 * sooner for sooner, later in pairwise(seconds))
    for each in found:
        assert backends.refusal(each.estimate.trial, shares_heap=True) is None
    tied = [each for each in found if each.alike]
    kind = OPERATORS[operator]  # every axis of sums in a GEMM costs something on GPUs
    assert tied or where.backend == "cpu" or (kind.reduces and kind.work == "gemm")
    for each in tied[:1]:
        axis, (value, *_) = next(iter(each.alike.items()))
        asked_for = each.estimate.trial.schedule
        other = schedule(asked, asked_for.scheme, {**dict(asked_for.axes), axis: value}, where, fabric)
        trial = replace(each.estimate.trial, schedule=other)
        assert predict(trial, where).time_s == pytest.approx(each.estimate.time_s, rel=1e-5)


def test_a_scheme_that_the_ranks_do_not_run_is_refused_and_simulated_where_nobody_measures() -> None:
    gpus, link = shipped_machine("h200_nvl4"), parse("nvlink")
    asked = problem("gemv_all_reduce", SIZES["gemv"], world=4, dtype="bfloat16")
    space = Space((Choice("decomposed"),))
    with pytest.raises(
        Refusal, match=r"decomposed does not run on backend = triton.*Accepted: sequential, concurrent, fused"
    ):
        recommend(asked, MeasuringRanks(gpus, link), space, PROTOCOLS["quick"], 1)
    (found,), _ = recommend(asked, MeasuringRanks(gpus, link), space, PROTOCOLS["quick"], 1, measured=False)
    assert found.estimate.trial.schedule.scheme == "decomposed"


def test_axes_that_are_left_out_change_no_estimate() -> None:
    gpus, link = shipped_machine("h200_nvl4"), parse("nvlink")
    asked = problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}, world=4, dtype="bfloat16")
    free = every_value(("fused",), asked, gpus, link)
    left_out = [axis for axis in axes(asked, "fused", gpus, link) if axis.name not in free]
    assert {axis.name for axis in left_out} == set(module.OMITTED_AXES)
    made = [schedule(asked, "fused", {axis.name: value}, gpus, link) for axis in left_out for value in axis.values]
    assert len(set(made)) > len(left_out)
    assert len(set(Durations(asked, link, gpus).whole_s(made))) == 1
