"""A space becomes legal schedules in order; what is illegal is collected, what is unknown is refused at once."""

from collections.abc import Callable

import pytest

from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import axes
from kernels.trial import Trial
from workbench.experiment.space import EVERY, Choice, Points, Space, choices, left_out_text, points
from workbench.machines import shipped_machine

MakeTrial = Callable[..., Trial]


@pytest.fixture
def asked() -> Problem:
    return problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=2)


@pytest.fixture
def fabric() -> Fabric:
    return parse("emulated")


def spread(machine: Machine, asked: Problem, fabric: Fabric, *wanted: Choice) -> Points:
    return points(Space(wanted), asked, machine, fabric)


def test_the_last_axis_varies_fastest(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    cut = Choice("decomposed", (("pieces", (2, 4)), ("steps", ("uniform", "local_first"))))
    found = spread(machine, asked, fabric, Choice("sequential"), cut)
    assert found.schedules[0].scheme == "sequential"
    assert [(s["pieces"], s["steps"]) for s in found.schedules[1:]] == [
        (2, "uniform"), (2, "local_first"), (4, "uniform"), (4, "local_first")]  # fmt: skip
    assert not found.refused


def test_every_value_of_an_axis_can_be_asked_for(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    offered = next(axis for axis in axes(asked, "fused", machine, fabric) if axis.name == "slice_tiles").values
    found = spread(machine, asked, fabric, Choice("fused", (("slice_tiles", (EVERY,)),)))
    assert tuple(schedule["slice_tiles"] for schedule in found.schedules) == offered


def test_what_is_illegal_is_collected_with_its_sentence(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    found = spread(machine, asked, fabric, Choice("decomposed", (("pieces", (2, 4096)),)))
    assert [schedule["pieces"] for schedule in found.schedules] == [2]
    assert [(schedule["pieces"], "4096 > 128" in sentence) for schedule, sentence in found.refused] == [(4096, True)]


def test_what_comes_out_equal_is_tried_once(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    found = spread(machine, asked, fabric, Choice("decomposed"), Choice("decomposed", (("pieces", (8, 8)),)))
    assert len(found.schedules) == 1


def test_unknown_names_are_refused_before_anything_is_tried(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    with pytest.raises(Refusal, match=r"decomposed has no axis 'peices'\. Accepted: tile, pieces"):
        spread(machine, asked, fabric, Choice("decomposed", (("peices", (2,)),)))
    with pytest.raises(Refusal, match=r"There is no scheme 'fuzed'.*Accepted: sequential"):
        spread(machine, asked, fabric, Choice("fuzed"))


def test_words_go_to_every_scheme_that_has_the_axis(machine: Machine, asked: Problem, fabric: Fabric) -> None:
    schemes = ("sequential", "decomposed")
    known = {scheme: axes(asked, scheme, machine, fabric) for scheme in schemes}
    made = choices(schemes, {"pieces": ["2", "4"], "tile": ["64x64x64"]}, known)
    assert made == Space((Choice("sequential", (("tile", ("64x64x64",)),)),
                          Choice("decomposed", (("pieces", (2, 4)), ("tile", ("64x64x64",))))))  # fmt: skip
    with pytest.raises(Refusal, match=r"None of sequential.* has an axis 'slice_tiles'"):
        choices(schemes, {"slice_tiles": ["2"]}, known)


def test_a_space_survives_json() -> None:
    space = Space((Choice("sequential"), Choice("decomposed", (("pieces", (2, 4)), ("split", (EVERY,))))))
    assert Space.from_json(space.to_json()) == space


def test_what_ranks_do_not_run_is_left_out_before_anything_is_measured_and_told_shortly() -> None:
    gpus, link = shipped_machine("h200_nvl4"), parse("nvlink")
    asked = problem("all_gather_gemm", {"m": 1024, "n": 508, "k": 512}, world=2, dtype="bfloat16")
    every = Space((Choice("sequential", (("collective", (EVERY,)), ("kernel", (EVERY,)))),))
    found = points(every, asked, gpus, link, MeasuringRanks(gpus, link))
    assert {one["kernel"] for one in found.schedules} == {"library"}  # ours moves multiples of 16 bytes
    assert len(found.schedules) == len(found.left_out) == 5
    assert found.refused == ()
    words = left_out_text([found])
    assert words.startswith(f"{len(found.left_out)} combinations of all values were left out.")
    assert words.count("n = 508") == 1
    stated = points(
        Space((Choice("sequential", (("kernel", ("ours",)),)),)), asked, gpus, link, MeasuringRanks(gpus, link)
    )
    assert [one["kernel"] for one, _ in stated.refused] == ["ours"]


def test_slices_are_tried_once_where_they_change_nothing() -> None:
    gpus, link = shipped_machine("h200_nvl4"), parse("nvlink")
    asked = problem("gemm_reduce_scatter", {"m": 2048, "n": 2048, "k": 512}, world=2, dtype="bfloat16")
    wanted = Choice("fused", (("tile_order", ("rotated", "interleaved")), ("slice_tiles", (1, 2, 4))))
    found = points(Space((wanted,)), asked, gpus, link)
    assert [one.get("slice_tiles") for one in found.schedules] == [None, 1, 2, 4]
