"""Whole spaces are looked through in closed form; what is recommended is legal and ranked by play."""

import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.protocol import PROTOCOLS
from kernels.schedule import Refusal
from kernels.schemes import axes, refusal, schedule
from workbench import recommend as module
from workbench.machines import shipped_machine
from workbench.recommend import estimates, every, recommend
from workbench.space import Choice, Space

ASKED = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)
LINK = parse("emulated:bandwidth_bytes_per_second=1e9")


def test_the_fastest_come_first_and_are_legal(machine: Machine) -> None:
    free = every(("decomposed",), ASKED, machine, LINK)
    space = Space((Choice("sequential"), Choice("decomposed", tuple(free.items()))))
    found, num_points = recommend(ASKED, machine, LINK, space, PROTOCOLS["quick"], 5)
    assert len(found) == 5
    assert num_points > 100
    assert [estimate.time_s for estimate in found] == sorted(estimate.time_s for estimate in found)
    assert all(refusal(ASKED, estimate.trial.schedule, machine, LINK) is None for estimate in found)


def test_nothing_better_was_overlooked_in_a_small_space(machine: Machine) -> None:
    pieces = (1, 2, 4, 8, 16)
    space = Space((Choice("decomposed", (("pieces", pieces),)),))
    found, num_points = recommend(ASKED, machine, LINK, space, PROTOCOLS["quick"], 5)
    assert num_points == 5
    assert {estimate.trial.schedule["pieces"] for estimate in found} == set(pieces)


def test_a_space_that_is_too_large_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 3)
    space = Space((Choice("decomposed", (("pieces", (1, 2, 4, 8)),)),))
    with pytest.raises(Refusal, match=r"which are 4 points; at most 3 are looked at\. Fix some axes"):
        recommend(ASKED, machine, LINK, space, PROTOCOLS["quick"], 1)


def test_estimates_of_mixed_schemes_keep_their_order(machine: Machine) -> None:
    mixed = [schedule(ASKED, name, values, machine, LINK) for name, values in
             (("fused", {}), ("decomposed", {"pieces": 2}), ("fused", {"slice_tiles": 1}))]  # fmt: skip
    together = estimates(ASKED, mixed, machine, LINK)
    assert together == [estimates(ASKED, [one], machine, LINK)[0] for one in mixed]
    assert all(0 < seconds < float("inf") for seconds in together)


def test_axes_that_are_left_out_change_no_estimate() -> None:
    gpus, link = shipped_machine("h200_nvl4"), parse("nvlink")
    asked = problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}, world=4, dtype="bfloat16")
    free = every(("fused",), asked, gpus, link)
    left_out = [axis for axis in axes(asked, "fused", gpus, link) if axis.name not in free]
    assert {axis.name for axis in left_out} == set(module.UNSEEN)
    made = [schedule(asked, "fused", {axis.name: value}, gpus, link) for axis in left_out for value in axis.values]
    assert len(set(made)) > len(left_out)
    assert len(set(estimates(asked, made, gpus, link))) == 1
