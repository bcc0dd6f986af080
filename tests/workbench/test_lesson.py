"""A lesson says in one call what a schedule does and takes, on machines as they are shipped."""

import pytest

from kernels.schedule import Refusal
from workbench import machines
from workbench.lesson import Lesson, lesson, table
from workbench.simulator.predict import predict


@pytest.fixture(scope="module")
def tiny() -> Lesson:
    return lesson("gemm_all_to_all", preset="tiny")


def test_a_lesson_is_on_the_shipped_machine_over_a_link_whose_speed_is_known(tiny: Lesson) -> None:
    assert tiny.machine == machines.shipped_machine("laptop_cpu")
    assert tiny.fabric.emulated
    assert tiny.fabric.resolved
    gpus = lesson("gemm_all_to_all", "mixtral_8x7b_experts_8192", machine="h200_nvl8", world=8)
    assert (gpus.fabric.kind, gpus.problem.world) == ("nvlink", 8)


def test_sizes_stand_side_by_side(tiny: Lesson) -> None:
    sizes = tiny.sizes()
    assert list(sizes.columns) == ["one rank", "all 2 ranks"]
    assert sizes.loc["tokens", "one rank"] == "64 x 64"
    assert sizes.loc["expert", "all 2 ranks"] == "2 x 64 x 64"


def test_an_estimate_is_that_of_the_simulator(tiny: Lesson) -> None:
    found = tiny.estimate("decomposed", pieces=2)
    assert found == predict(tiny.trial("decomposed", pieces=2), tiny.machine)
    alone = tiny.alone("compute", "decomposed", pieces=2)
    assert {span.kind for span in alone.spans} == {"compute"}
    with pytest.raises(Refusal, match="pieces = 999"):
        tiny.estimate("decomposed", pieces=999)


def test_rows_take_every_combination_with_floor_and_sequential_beside_it(tiny: Lesson) -> None:
    rows = tiny.rows("decomposed", pieces=(1, 2), steps=("uniform", "local_first"))
    assert [(row["axes"]["pieces"], row["axes"]["steps"]) for row in rows] == [
        (1, "uniform"), (1, "local_first"), (2, "uniform"), (2, "local_first")]  # fmt: skip
    assert all(row["source"] == "estimated" and row["floor_s"] and row["sequential_s"] for row in rows)


def test_steps_are_those_of_the_plan_and_say_what_they_wait_for(tiny: Lesson) -> None:
    steps = tiny.steps("sequential")
    assert steps.loc["0/put/1/0", "waits for"] == "0/compute/-1/0"
    assert steps.loc["0/compute/-1/0", "waits for"] == "nothing"
    assert steps.loc["0/put/1/0", "bytes"] == "8.19 kB"


def test_another_link_is_another_lesson(tiny: Lesson) -> None:
    slow = tiny.linked("emulated:wire_to_compute=4")
    assert slow.problem == tiny.problem
    assert slow.fabric.bandwidth_bytes_per_second * 4 == pytest.approx(tiny.fabric.bandwidth_bytes_per_second)


def test_the_fastest_is_the_best_of_its_combinations(tiny: Lesson) -> None:
    best = tiny.fastest("fused", slice_tiles="all", tile_order="all")
    rows = tiny.rows("fused", slice_tiles="all", tile_order="all")
    assert best.time_s == min(row["time_s"] for row in rows)


def test_a_table_has_one_line_per_row_and_nothing_where_a_scheme_has_no_such_axis(tiny: Lesson) -> None:
    lines = table([*tiny.rows("sequential"), *tiny.rows("decomposed", pieces=2)], "pieces").reset_index()
    assert list(lines["scheme"]) == ["sequential", "decomposed"]
    assert list(lines["pieces"]) == ["", 2]
    assert lines.loc[0, "of sequential"] == 1.0
    assert lines.loc[0, "hidden share"] == 0.0


def test_recordings_of_another_problem_are_not_shown(tiny: Lesson) -> None:
    assert tiny.recorded("sequential", "fused") == []


def test_all_values_of_an_axis_that_a_kernel_does_not_read_are_none() -> None:
    """A rung asks the same of all operators: a GEMV's packets have no slices."""
    case = lesson("gemv_all_reduce", preset="llama3_70b_attention_decode", machine="h200_nvl2", world=2)
    best = case.fastest("fused", slice_tiles="all", tile_order="all").trial.schedule
    assert "slice_tiles" not in dict(best.axes)
    for wrong in ({"slice_tiles": 4}, {"slices": "all"}):
        with pytest.raises(Refusal, match=r"(is an axis of fused on CPU ranks|fused has no axis)"):
            case.fastest("fused", **wrong)
