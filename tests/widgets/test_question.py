"""Set a value, read what is asked: the form offers what is legal and says why the rest is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.operators import OPERATORS
from tests.widgets.conftest import row
from workbench import resources
from workbench.machines import shipped_machine
from workbench.simulator.predict import predict
from workbench.widgets.controls import numbers_html
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.form import QuestionForm
from workbench.widgets.form_fields import OWN


@pytest.fixture
def question() -> QuestionForm:
    return QuestionForm("laptop_overlap", "laptop_cpu")


def test_the_form_begins_with_something_that_can_be_run(question: QuestionForm) -> None:
    assert question.asked.trial(question.machine_value).schedule.scheme == "fused"
    assert question.refusal.value == ""


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_sizes_and_schedules_that_are_legal(question: QuestionForm, operator: str) -> None:
    question.problem.operator.value = operator
    for scheme in ("sequential", "decomposed", "fused"):
        question.scheme.value = scheme
        assert question.asked.trial(question.machine_value).problem.operator == operator
        assert question.refusal.value == ""
    assert "one rank" in question.sizes.value


def test_a_slider_changes_what_is_asked_and_tells_once(question: QuestionForm) -> None:
    told = []
    question.on_change(lambda: told.append(question.asked))
    question.axes.rows["slice_tiles"].control.value = 8
    assert len(told) == 1
    assert told[0].trial(question.machine_value).schedule["slice_tiles"] == 8


def test_a_control_stays_under_the_hand_that_moves_it(question: QuestionForm) -> None:
    control = question.axes.rows["tile"].control
    control.value = next(value for value in control.options if value != control.value)
    assert question.axes.rows["tile"].control is control


def test_basic_is_one_knob_and_everything_else_is_under_advanced(question: QuestionForm) -> None:
    assert question.axes.basic.children == (question.axes.rows["slice_tiles"].view,)
    question.scheme.value = "decomposed"
    assert question.axes.basic.children == (question.axes.rows["pieces"].view,)
    question.scheme.value = "sequential"
    assert question.axes.basic.children == ()


def test_the_ratio_becomes_the_link(question: QuestionForm) -> None:
    question.ratio.value = 2.0
    assert question.asked.link().wire_to_compute == 2.0
    question.fabric.value = "shared_memory"
    assert question.asked.fabric == "shared_memory"
    assert question.ratio.layout.display == "none"


def test_all_sweeps_an_axis_and_another_scheme_does_not_have_it(question: QuestionForm) -> None:
    question.axes.rows["slice_tiles"].sweep.value = True
    assert list(question.asked.swept_values(question.machine_value)) == ["slice_tiles"]
    question.scheme.value = "sequential"
    assert question.asked.swept_values(question.machine_value) == {}
    question.sweep_schemes.value = True
    assert question.asked.schemes() == ("sequential", "decomposed", "fused")
    assert list(question.asked.swept_values(question.machine_value)) == ["slice_tiles"]


def test_micro_batches_are_asked_for_beside_what_goes_first(question: QuestionForm) -> None:
    question.scheme.value = "concurrent"
    assert question.refusal.value == ""
    assert list(question.axes.rows) == ["tile", "micro_batches", "collective", "comm_priority"]
    question.axes.rows["micro_batches"].control.value = 8
    trial = question.asked.trial(question.machine_value)
    assert (trial.schedule["micro_batches"], trial.schedule["comm_priority"]) == (8, "high")
    headline = numbers_html({}, predict(trial, question.machine_value))
    assert "Times are of one micro-batch of 8, the timeline is of the call with all 8." in headline


def test_an_illegal_combination_shows_its_refusal(question: QuestionForm) -> None:
    question.scheme.value = "decomposed"
    question.axes.rows["pattern"].control.value = "ring"
    assert question.axes.rows["grouping"].control.value == "unfused", "what was not set follows what was"
    question.axes.rows["grouping"].control.value = "fused"
    assert "pattern = ring" in question.refusal.value
    assert "Accepted" in question.refusal.value


def test_own_sizes_begin_with_those_that_were_there_and_can_be_typed(question: QuestionForm) -> None:
    form = question.problem
    assert form.sizes.layout.display == "none"
    form.preset.value = OWN
    assert form.sizes.layout.display is None
    assert question.asked.shape == (("m", 4096), ("n", 1024), ("k", 768))
    question.problem.sizes.children[0].value = 256
    assert question.asked.problem()["m"] == 256
    assert "256" in question.sizes.value


def test_sizes_that_do_not_divide_say_which_would(question: QuestionForm) -> None:
    question.problem.preset.value = OWN
    question.problem.sizes.children[0].value = 1023
    assert "1023" in question.refusal.value
    assert "Accepted" in question.refusal.value


def test_a_size_that_is_none_is_refused_as_it_was_typed(question: QuestionForm) -> None:
    question.problem.preset.value = OWN
    for typed in (0, -3):
        question.problem.sizes.children[0].value = typed
        assert f"m = {typed} is not a size" in question.refusal.value


def test_own_sizes_of_another_operator_have_its_keys(question: QuestionForm) -> None:
    question.problem.preset.value = OWN
    question.problem.operator.value = "embedding_all_to_all"
    assert [name for name, _ in question.asked.shape] == [key.name for key in OPERATORS["embedding_all_to_all"].keys]
    # sizes that were a GEMM's may be too large for tables: then the form says so
    assert question.refusal.value == "" or "Accepted: smaller sizes" in question.refusal.value


def test_a_preset_that_is_too_long_for_its_list_is_told_in_full(question: QuestionForm) -> None:
    question.problem.operator.value = "gemm_all_to_all"
    question.problem.preset.value = "mixtral_8x7b_laptop"
    assert "Mixtral 8x7B, experts and attention, laptop-sized" in question.problem.about.value
    assert "divided: tokens 2,048 by 8" in question.problem.about.value


def test_another_number_of_ranks_brings_the_sizes_that_follow_it(question: QuestionForm) -> None:
    question.problem.operator.value = "gemv_all_reduce"
    question.problem.world.value = 4
    assert question.asked.problem()["k"] == 10240 * 4


def test_a_machine_of_gpus_brings_its_links_its_ranks_and_real_models(question: QuestionForm) -> None:
    question.machine.value = "h200_nvl8"
    assert question.fabric.value == "nvlink"
    assert question.problem.world.options[-1] == 8
    assert question.asked.dtype == "bfloat16"
    assert question.asked.trial(question.machine_value).backend == "triton"
    question.machine.value = "h200_nvl2"
    assert question.asked.world == 2
    question.machine.value = "laptop_cpu"
    assert question.problem.preset.value == "laptop_overlap"
    assert question.fabric.value == "emulated"


def test_a_machine_of_fewer_ranks_gives_them_back_when_it_is_left(question: QuestionForm) -> None:
    question.machine.value = "h200_nvl8"
    question.problem.preset.value = "deepseek_v3_experts_2048"
    assert question.asked.world == 8
    question.machine.value = "h200_nvl2"
    assert question.asked.world == 2
    question.machine.value = "h200_nvl8"
    assert question.asked.world == 8
    question.problem.world.value = 4
    question.machine.value = "h200_nvl2"
    question.machine.value = "h200_nvl8"
    assert question.asked.world == 4, "what a person chose, not what the preset is meant for"


def test_ranks_of_another_kind_give_back_what_was_asked_when_they_are_left(question: QuestionForm) -> None:
    question.problem.preset.value = "tiny"
    question.problem.world.value, question.problem.dtype.value = 4, "bfloat16"
    before = question.asked.problem()
    question.machine.value = "h200_nvl2"
    assert question.asked.problem() != before
    question.machine.value = "laptop_cpu"
    assert question.asked.problem() == before
    question.problem.preset.value = OWN
    question.problem.sizes.children[0].value = 128
    question.machine.value = "h200_nvl2"
    question.machine.value = "laptop_cpu"
    assert question.asked.problem()["m"] == 128


def test_another_number_of_ranks_keeps_the_dtype_that_was_chosen(question: QuestionForm) -> None:
    question.problem.dtype.value = "bfloat16"
    question.problem.world.value = 4
    assert question.asked.dtype == "bfloat16"


def test_another_problem_lets_go_of_the_tile_that_suited_the_one_before(question: QuestionForm) -> None:
    question.axes.rows["tile"].control.value = "256x1024x768"
    question.problem.preset.value = "tiny"
    assert question.asked.trial(question.machine_value).schedule["tile"] == "32x64x64"


def test_a_loaded_schedule_is_the_one_that_is_asked(question: QuestionForm) -> None:
    question.axes.rows["slice_tiles"].sweep.value = True
    question.scheme.value = "decomposed"
    wanted = {**dict(question.asked.schedule(question.machine_value).axes), "pieces": 4, "steps": "local_first"}
    question.load("decomposed", wanted)
    assert dict(question.asked.schedule(question.machine_value).axes) == wanted
    assert question.asked.swept == ()
    assert question.axes.rows["pieces"].control.value == 4


def test_a_row_of_the_store_sets_problem_machine_link_and_schedule(question: QuestionForm) -> None:
    question.load_row(row(shape={"m": 64, "n": 64, "k": 64}, fabric="emulated:wire_to_compute=0.3", protocol="default"))
    asked = question.asked
    assert question.problem.preset.value == "tiny"
    assert asked.link().wire_to_compute == 0.3
    assert asked.protocol == "default"
    assert asked.schedule(question.machine_value)["slice_tiles"] == 1


def test_a_row_of_no_preset_has_own_sizes_and_a_link_of_its_own(question: QuestionForm) -> None:
    bandwidth = "emulated:bandwidth_bytes_per_second=2e+09,latency_seconds=0,message_seconds=0"
    question.load_row(row(shape={"m": 128, "n": 96, "k": 64}, fabric=bandwidth))
    assert question.problem.preset.value == OWN
    assert dict(question.asked.shape) == {"m": 128, "n": 96, "k": 64}
    assert question.asked.link().bandwidth_bytes_per_second == 2e9


def test_a_choice_of_one_is_words_and_a_sweep_of_one_is_not_offered(question: QuestionForm) -> None:
    def shown() -> tuple[str | None, ...]:
        row = question.axes.rows["tile"]
        return tuple(part.layout.display for part in (*row.view.children[0].children, row.sweep))

    assert shown() == (None, "none", None)
    question.problem.preset.value = OWN
    for size in question.problem.sizes.children:
        size.value = 2
    assert shown() == ("none", None, "none")
    assert question.axes.rows["tile"].view.children[0].children[1].value == "1x2x2"


def test_people_read_names_and_what_is_typed_stands_in_the_tooltip(question: QuestionForm) -> None:
    assert question.machine.label == "This computer: CPU ranks on shared memory"
    assert question.problem.preset.label == "laptop overlap"
    assert question.fabric.label == "emulated link"
    write = question.axes.rows["write"].control
    assert (write.description, write.label) == ("Write", "zero copy")
    assert write.tooltip.startswith("write: ")
    question.problem.operator.value = "embedding_all_to_all"
    question.problem.preset.value = OWN
    assert "Tables per rank" in [size.description for size in question.problem.sizes.children]


def test_a_sweep_is_a_checkbox_that_says_its_values(question: QuestionForm) -> None:
    sweep = question.axes.rows["slice_tiles"].sweep
    assert (type(sweep).__name__, sweep.description) == ("Checkbox", "sweep")
    assert sweep.tooltip == "Try every value: 1, 2, 4, 8, 16, 32"
    assert (type(question.sweep_schemes).__name__, question.sweep_schemes.description) == ("Checkbox", "sweep")


def test_the_form_goes_on_without_damaged_files_and_says_which_in_a_line_that_opens(
    make_explorer: Callable[..., Explorer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, folder in (("machines", "machines"), ("machines.presets", "problems")):
        monkeypatch.setattr(f"workbench.{module}.runs_directory", lambda: tmp_path)
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own <b>.toml").write_text("name = [")
    (tmp_path / "machines" / "laptop_cpu.toml").write_text("name = [")
    resources.begin()
    explorer = make_explorer()
    assert explorer.question.machine_value == shipped_machine("laptop_cpu")
    said = explorer.page.left_out.value
    assert "<summary>3 files are damaged and left out</summary>" in said
    assert said.count("own &lt;b&gt;.toml cannot be read as ") == 2
    for path in (tmp_path / "machines").glob("*.toml"):
        path.unlink()
    explorer.question.problem.operator.value = "gemv_all_reduce"
    assert "<summary>1 file is damaged and left out</summary>" in explorer.page.left_out.value
