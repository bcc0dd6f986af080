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
from workbench.widgets.form_fields import OWN_SIZES


@pytest.fixture
def form() -> QuestionForm:
    return QuestionForm("laptop_overlap", "laptop_cpu")


def test_the_form_begins_with_something_that_can_be_run(form: QuestionForm) -> None:
    assert form.question.trial(form.machine_value).schedule.scheme == "fused"
    assert form.refusal.value == ""


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_sizes_and_schedules_that_are_legal(form: QuestionForm, operator: str) -> None:
    form.problem.operator.value = operator
    for scheme in ("sequential", "decomposed", "fused"):
        form.scheme.value = scheme
        assert form.question.trial(form.machine_value).problem.operator == operator
        assert form.refusal.value == ""
    assert "one rank" in form.sizes.value


def test_a_slider_changes_what_is_asked_and_tells_once(form: QuestionForm) -> None:
    questions = []
    form.on_change(lambda: questions.append(form.question))
    form.axes.rows["slice_tiles"].control.value = 8
    assert len(questions) == 1
    assert questions[0].trial(form.machine_value).schedule["slice_tiles"] == 8


def test_a_control_stays_under_the_hand_that_moves_it(form: QuestionForm) -> None:
    control = form.axes.rows["tile"].control
    control.value = next(value for value in control.options if value != control.value)
    assert form.axes.rows["tile"].control is control


def test_basic_is_one_knob_and_everything_else_is_under_advanced(form: QuestionForm) -> None:
    assert form.axes.basic.children == (form.axes.rows["slice_tiles"].view,)
    form.scheme.value = "decomposed"
    assert form.axes.basic.children == (form.axes.rows["pieces"].view,)
    form.scheme.value = "sequential"
    assert form.axes.basic.children == ()


def test_the_ratio_becomes_the_link(form: QuestionForm) -> None:
    form.ratio.value = 2.0
    assert form.question.link().wire_to_compute == 2.0
    form.fabric.value = "shared_memory"
    assert form.question.fabric == "shared_memory"
    assert form.ratio.layout.display == "none"


def test_all_sweeps_an_axis_and_another_scheme_does_not_have_it(form: QuestionForm) -> None:
    form.axes.rows["slice_tiles"].sweep.value = True
    assert list(form.question.swept_values(form.machine_value)) == ["slice_tiles"]
    form.scheme.value = "sequential"
    assert form.question.swept_values(form.machine_value) == {}
    form.sweep_schemes.value = True
    assert form.question.schemes() == ("sequential", "decomposed", "fused")
    assert list(form.question.swept_values(form.machine_value)) == ["slice_tiles"]


def test_micro_batches_are_asked_for_beside_what_goes_first(form: QuestionForm) -> None:
    form.scheme.value = "concurrent"
    assert form.refusal.value == ""
    assert list(form.axes.rows) == ["tile", "micro_batches", "collective", "comm_priority"]
    form.axes.rows["micro_batches"].control.value = 8
    trial = form.question.trial(form.machine_value)
    assert (trial.schedule["micro_batches"], trial.schedule["comm_priority"]) == (8, "high")
    headline = numbers_html({}, predict(trial, form.machine_value))
    assert "Times are of one micro-batch of 8, the timeline is of the call with all 8." in headline


def test_an_illegal_combination_shows_its_refusal(form: QuestionForm) -> None:
    form.scheme.value = "decomposed"
    form.axes.rows["pattern"].control.value = "ring"
    assert form.axes.rows["grouping"].control.value == "unfused", "what was not set follows what was"
    form.axes.rows["grouping"].control.value = "fused"
    assert "pattern = ring" in form.refusal.value
    assert "Accepted" in form.refusal.value


def test_own_sizes_begin_with_those_that_were_there_and_can_be_typed(form: QuestionForm) -> None:
    problem_form = form.problem
    assert problem_form.sizes.layout.display == "none"
    problem_form.preset.value = OWN_SIZES
    assert problem_form.sizes.layout.display is None
    assert form.question.shape == (("m", 4096), ("n", 1024), ("k", 768))
    form.problem.sizes.children[0].value = 256
    assert form.question.problem()["m"] == 256
    assert "256" in form.sizes.value


def test_sizes_that_do_not_divide_say_which_would(form: QuestionForm) -> None:
    form.problem.preset.value = OWN_SIZES
    form.problem.sizes.children[0].value = 1023
    assert "1023" in form.refusal.value
    assert "Accepted" in form.refusal.value


def test_a_size_that_is_none_is_refused_as_it_was_typed(form: QuestionForm) -> None:
    form.problem.preset.value = OWN_SIZES
    for typed in (0, -3):
        form.problem.sizes.children[0].value = typed
        assert f"m = {typed} is not a size" in form.refusal.value


def test_own_sizes_of_another_operator_have_its_keys(form: QuestionForm) -> None:
    form.problem.preset.value = OWN_SIZES
    form.problem.operator.value = "embedding_all_to_all"
    assert [name for name, _ in form.question.shape] == [key.name for key in OPERATORS["embedding_all_to_all"].keys]
    # sizes that were a GEMM's may be too large for tables: then the form says so
    assert form.refusal.value == "" or "Accepted: smaller sizes" in form.refusal.value


def test_a_preset_that_is_too_long_for_its_list_is_told_in_full(form: QuestionForm) -> None:
    form.problem.operator.value = "gemm_all_to_all"
    form.problem.preset.value = "mixtral_8x7b_laptop"
    assert "Mixtral 8x7B, experts and attention, laptop-sized" in form.problem.about.value
    assert "divided: tokens 2,048 by 8" in form.problem.about.value


def test_another_number_of_ranks_brings_the_sizes_that_follow_it(form: QuestionForm) -> None:
    form.problem.operator.value = "gemv_all_reduce"
    form.problem.world.value = 4
    assert form.question.problem()["k"] == 10240 * 4


def test_a_machine_of_gpus_brings_its_links_its_ranks_and_real_models(form: QuestionForm) -> None:
    form.machine.value = "h200_nvl8"
    assert form.fabric.value == "nvlink"
    assert form.problem.world.options[-1] == 8
    assert form.question.dtype == "bfloat16"
    assert form.question.trial(form.machine_value).backend == "triton"
    form.machine.value = "h200_nvl2"
    assert form.question.world == 2
    form.machine.value = "laptop_cpu"
    assert form.problem.preset.value == "laptop_overlap"
    assert form.fabric.value == "emulated"


def test_a_machine_of_fewer_ranks_gives_them_back_when_it_is_left(form: QuestionForm) -> None:
    form.machine.value = "h200_nvl8"
    form.problem.preset.value = "deepseek_v3_experts_2048"
    assert form.question.world == 8
    form.machine.value = "h200_nvl2"
    assert form.question.world == 2
    form.machine.value = "h200_nvl8"
    assert form.question.world == 8
    form.problem.world.value = 4
    form.machine.value = "h200_nvl2"
    form.machine.value = "h200_nvl8"
    assert form.question.world == 4, "what a person chose, not what the preset is meant for"


def test_ranks_of_another_kind_give_back_what_was_asked_when_they_are_left(form: QuestionForm) -> None:
    form.problem.preset.value = "tiny"
    form.problem.world.value, form.problem.dtype.value = 4, "bfloat16"
    before = form.question.problem()
    form.machine.value = "h200_nvl2"
    assert form.question.problem() != before
    form.machine.value = "laptop_cpu"
    assert form.question.problem() == before
    form.problem.preset.value = OWN_SIZES
    form.problem.sizes.children[0].value = 128
    form.machine.value = "h200_nvl2"
    form.machine.value = "laptop_cpu"
    assert form.question.problem()["m"] == 128


def test_another_number_of_ranks_keeps_the_dtype_that_was_chosen(form: QuestionForm) -> None:
    form.problem.dtype.value = "bfloat16"
    form.problem.world.value = 4
    assert form.question.dtype == "bfloat16"


def test_another_problem_lets_go_of_the_tile_that_suited_the_one_before(form: QuestionForm) -> None:
    form.axes.rows["tile"].control.value = "256x1024x768"
    form.problem.preset.value = "tiny"
    assert form.question.trial(form.machine_value).schedule["tile"] == "32x64x64"


def test_a_loaded_schedule_is_the_one_that_is_asked(form: QuestionForm) -> None:
    form.axes.rows["slice_tiles"].sweep.value = True
    form.scheme.value = "decomposed"
    wanted = {**dict(form.question.schedule(form.machine_value).axes), "pieces": 4, "steps": "local_first"}
    form.load("decomposed", wanted)
    assert dict(form.question.schedule(form.machine_value).axes) == wanted
    assert form.question.swept == ()
    assert form.axes.rows["pieces"].control.value == 4


def test_a_row_of_the_store_sets_problem_machine_link_and_schedule(form: QuestionForm) -> None:
    form.load_row(row(shape={"m": 64, "n": 64, "k": 64}, fabric="emulated:wire_to_compute=0.3", protocol="default"))
    asked = form.question
    assert form.problem.preset.value == "tiny"
    assert asked.link().wire_to_compute == 0.3
    assert asked.protocol == "default"
    assert asked.schedule(form.machine_value)["slice_tiles"] == 1


def test_a_row_of_no_preset_has_own_sizes_and_a_link_of_its_own(form: QuestionForm) -> None:
    bandwidth = "emulated:bandwidth_bytes_per_second=2e+09,latency_seconds=0,message_seconds=0"
    form.load_row(row(shape={"m": 128, "n": 96, "k": 64}, fabric=bandwidth))
    assert form.problem.preset.value == OWN_SIZES
    assert dict(form.question.shape) == {"m": 128, "n": 96, "k": 64}
    assert form.question.link().bandwidth_bytes_per_second == 2e9


def test_a_choice_of_one_is_words_and_a_sweep_of_one_is_not_offered(form: QuestionForm) -> None:
    def shown() -> tuple[str | None, ...]:
        row = form.axes.rows["tile"]
        return tuple(part.layout.display for part in (*row.view.children[0].children, row.sweep))

    assert shown() == (None, "none", None)
    form.problem.preset.value = OWN_SIZES
    for size in form.problem.sizes.children:
        size.value = 2
    assert shown() == ("none", None, "none")
    assert form.axes.rows["tile"].view.children[0].children[1].value == "1x2x2"


def test_people_read_names_and_what_is_typed_stands_in_the_tooltip(form: QuestionForm) -> None:
    assert form.machine.label == "This computer: CPU ranks on shared memory"
    assert form.problem.preset.label == "laptop overlap"
    assert form.fabric.label == "emulated link"
    write = form.axes.rows["write"].control
    assert (write.description, write.label) == ("Write", "zero copy")
    assert write.tooltip.startswith("write: ")
    form.problem.operator.value = "embedding_all_to_all"
    form.problem.preset.value = OWN_SIZES
    assert "Tables per rank" in [size.description for size in form.problem.sizes.children]


def test_a_sweep_is_a_checkbox_that_says_its_values(form: QuestionForm) -> None:
    sweep = form.axes.rows["slice_tiles"].sweep
    assert (type(sweep).__name__, sweep.description) == ("Checkbox", "sweep")
    assert sweep.tooltip == "Try every value: 1, 2, 4, 8, 16, 32"
    assert (type(form.sweep_schemes).__name__, form.sweep_schemes.description) == ("Checkbox", "sweep")


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
    assert explorer.form.machine_value == shipped_machine("laptop_cpu")
    said = explorer.page.left_out.value
    assert "<summary>3 files are damaged and left out</summary>" in said
    assert said.count("own &lt;b&gt;.toml cannot be read as ") == 2
    for path in (tmp_path / "machines").glob("*.toml"):
        path.unlink()
    explorer.form.problem.operator.value = "gemv_all_reduce"
    assert "<summary>1 file is damaged and left out</summary>" in explorer.page.left_out.value
