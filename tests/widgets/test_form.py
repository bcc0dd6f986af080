"""Set a value, read what is asked: the form greys out with a reason what cannot be answered here."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.seating import WorkerDescription, Workers
from kernels.hardware import WorkerDevice
from kernels.operators import OPERATORS
from kernels.outcome import trial_row
from kernels.schedule import Value
from kernels.schemes import SCHEMES, axes
from tests.widgets.conftest import FakeLab, eventually, headings, row, run
from workbench import resources
from workbench.machines import shipped_machine
from workbench.results import recordings
from workbench.simulator.predict import predict
from workbench.widgets import form_fields
from workbench.widgets.controls import numbers_html
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.form import Availability, QuestionForm, refused_choices
from workbench.widgets.form_fields import OWN_SIZES

# Set a value, read what is asked: the form offers what is legal and says why the rest is not.


@pytest.fixture
def form() -> QuestionForm:
    return QuestionForm("laptop_overlap", "laptop_cpu")


def test_the_form_begins_with_something_that_can_be_run(form: QuestionForm) -> None:
    assert form.question.trial(form.machine_value).schedule.scheme == "fused"
    assert form.refusal.value == ""


@pytest.mark.slow(keeps=4)
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
    assert list(form.axes.rows) == ["tile", "micro_batches", "comm_priority"], "one collective is no choice"
    form.axes.rows["micro_batches"].control.value = 8
    trial = form.question.trial(form.machine_value)
    assert (trial.schedule["micro_batches"], trial.schedule["comm_priority"]) == (8, "high")
    headline = numbers_html({}, predict(trial, form.machine_value))
    assert "Times are of one micro-batch of 8, the timeline is of the call with all 8." in headline


def test_an_axis_with_one_choice_has_no_row_until_its_value_is_another(form: QuestionForm) -> None:
    known = {axis.name: axis.values for axis in form.question.axes(form.machine_value)}
    assert known["transport"] == ("peer",)
    assert "transport" not in form.axes.rows
    trial = form.question.trial(form.machine_value)
    form.load_row({**trial_row(trial), "axes": {**dict(trial.schedule.axes), "transport": "gin"}})
    assert form.axes.rows["transport"].control.value == "gin", "a value that is refused can be taken back"


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
    assert type(sweep).__name__ == "Checkbox"
    assert re.sub("<[^>]*>", "", sweep.description) == "sweep Tiles per slice, 1\N{EN DASH}32"
    assert sweep.tooltip == "Try every value: 1, 2, 4, 8, 16, 32"
    assert form.axes.rows["tile"].sweep.description.endswith(f"all {len(form.axes.rows['tile'].control.options)}")
    assert (type(form.sweep_schemes).__name__, form.sweep_schemes.description) == ("Checkbox", "compare all schemes")


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


# What cannot be answered here is greyed out with its reason, and Run waits until it would be accepted.

MakeExplorer = Callable[..., Explorer]

CPU = Availability(
    measures=True, workers=Workers(tuple(WorkerDescription(f"rank{n}", "here", "cpu") for n in range(4)))
)
GPUS = Availability(
    measures=True, workers=Workers(tuple(WorkerDescription(f"gpu{n}", "here", "triton") for n in range(2)))
)


@pytest.fixture
def judging_form() -> QuestionForm:
    made = QuestionForm("laptop_overlap", "laptop_cpu")
    made.set_availability(CPU)
    return made


def greyed(form: QuestionForm, mark: str) -> set[str]:
    """The choices of the control *mark* that a browser greys out, by place."""
    return set(form.unavailable.reasons.get(mark, {}))


def test_a_dtype_that_ranks_do_not_know_is_greyed_out_with_the_backend_s_sentence(judging_form: QuestionForm) -> None:
    assert list(judging_form.refused["wb-dtype"]) == ["float16"]
    assert "Accepted: float32, bfloat16" in judging_form.refused["wb-dtype"]["float16"]
    place = str(judging_form.problem.dtype.options.index("float16"))
    assert greyed(judging_form, "wb-dtype") == {place}
    assert "dtype float16</b>: dtype = float16 does not run on backend = cpu" in judging_form.elsewhere.value
    judging_form.set_availability(Availability())
    assert "wb-dtype" not in judging_form.refused, "it can be simulated"


def cpus(count: int, host: str = "here") -> tuple[WorkerDescription, ...]:
    return tuple(WorkerDescription(f"{host}{number}", host, "cpu") for number in range(count))


def test_as_many_ranks_are_offered_as_the_cluster_can_seat(judging_form: QuestionForm) -> None:
    assert judging_form.problem.world.options == (1, 2, 4)
    for count, worlds in ((6, (1, 2, 4, 6)), (16, (1, 2, 4, 8, 16)), (32, (1, 2, 4, 8, 16, 32))):
        judging_form.set_availability(Availability(measures=True, workers=Workers(cpus(count))))
        assert judging_form.problem.world.options == worlds
        assert judging_form.problem.world.value == 2
    judging_form.problem.world.value = 32
    assert judging_form.refusal.value == ""
    judging_form.set_availability(CPU)
    assert judging_form.problem.world.options == (1, 2, 4, 32), "what a person chose stays, and is refused"
    assert "32 ranks are too many" in judging_form.refusal.value
    judging_form.set_availability(Availability())
    assert judging_form.problem.world.options[-1] == judging_form.machine_value.max_world, "there is nobody to seat"


def test_the_network_is_offered_where_workers_are_on_several_hosts_and_only_there(judging_form: QuestionForm) -> None:
    assert "the cluster's 4 workers for them are on 1" in judging_form.refused["wb-fabric"]["network"]
    judging_form.set_availability(Availability(measures=True, workers=Workers((*cpus(2), *cpus(2, "there")))))
    assert "network" not in judging_form.refused["wb-fabric"]
    judging_form.fabric.value = "network"
    judging_form.scheme.value = "sequential"
    assert judging_form.refusal.value == ""
    assert judging_form.question.trial(judging_form.machine_value).schedule["collective"] == "library"


def test_worlds_beyond_the_cluster_s_ranks_and_machines_of_gpus_are_greyed_out(judging_form: QuestionForm) -> None:
    judging_form.problem.load("gemm_all_to_all", {"m": 256, "n": 64, "k": 32}, 8, "float32")
    assert "4 workers" in judging_form.refused["wb-world"][8]
    assert "laptop_cpu" not in judging_form.refused["wb-machine"]
    assert "h200_nvl2" in judging_form.refused["wb-machine"]
    assert "Ranks 8</b>: 8 ranks are too many" in judging_form.elsewhere.value
    assert "Machine, 11 of them</b>" in judging_form.elsewhere.value
    assert "0 of the cluster's 4 workers have one" in judging_form.refused["wb-machine"]["h200_nvl2"]
    judging_form.set_availability(GPUS)
    assert "wb-machine" not in judging_form.refused


def test_a_scheme_that_ranks_do_not_run_is_greyed_out_and_not_swept(judging_form: QuestionForm) -> None:
    assert "wb-scheme" not in judging_form.refused
    judging_form.sweep_schemes.value = True
    assert judging_form.question.schemes() == ("sequential", "decomposed", "fused"), (
        "micro-batches answer another question"
    )
    assert "sequential, decomposed, fused" in judging_form.sweep_schemes.tooltip
    judging_form.problem.operator.value = "embedding_all_to_all"
    judging_form.machine.value = "h200_nvl2"
    judging_form.set_availability(GPUS)
    assert "decomposed" in judging_form.refused["wb-scheme"]
    assert judging_form.question.schemes() == ("sequential", "fused")


def test_a_link_that_ranks_do_not_have_is_greyed_out(judging_form: QuestionForm) -> None:
    assert set(judging_form.refused["wb-fabric"]) == {"nvlink", "network"}
    judging_form.machine.value = "h200_nvl2"
    judging_form.set_availability(GPUS)
    assert {"emulated", "shared_memory"} <= set(judging_form.refused["wb-fabric"])
    assert "Its gap of 150 µs" in judging_form.refused["wb-fabric"]["emulated"]
    judging_form.set_availability(Availability())
    assert "emulated" in judging_form.refused["wb-fabric"]


def test_axes_that_gpu_kernels_do_not_read_are_not_on_the_form(judging_form: QuestionForm) -> None:
    judging_form.machine.value = "h200_nvl2"
    judging_form.set_availability(GPUS)
    assert "write" not in judging_form.axes.rows
    judging_form.axes.rows["tile_order"].control.value = "rotated"
    assert "comm_sms" in judging_form.axes.rows, "SMs that only send"
    assert "slice_tiles" not in judging_form.axes.rows, "tiles leave one by one"
    judging_form.axes.rows["tile_order"].control.value = "interleaved"
    judging_form.axes.rows["slice_tiles"].control.value = 1
    judging_form.axes.rows["slice_tiles"].sweep.value = True
    judging_form.axes.rows["tile_order"].control.value = "rotated"
    assert (judging_form.refusal.value, judging_form.question.swept_values(judging_form.machine_value)) == ("", {})
    judging_form.problem.operator.value = "gemv_all_reduce"
    assert not {"store", "slice_tiles"} & set(judging_form.axes.rows)
    assert judging_form.refusal.value == ""


def test_who_computes_is_on_the_form_where_it_can_be_chosen(judging_form: QuestionForm) -> None:
    judging_form.scheme.value = "sequential"
    assert "kernel" not in judging_form.axes.rows
    judging_form.machine.value = "h200_nvl2"
    judging_form.set_availability(GPUS)
    assert "wb-scheme" not in judging_form.refused, "GPUs run them all"
    judging_form.scheme.value = "sequential"
    kernel = judging_form.axes.rows["kernel"]
    axes = dict(judging_form.question.schedule(judging_form.machine_value).axes)
    assert (kernel.control.value, axes.get("kernel")) == ("library", None)
    kernel.control.value = "ours"
    assert judging_form.question.schedule(judging_form.machine_value)["kernel"] == "ours"
    assert (judging_form.refusal.value, judging_form.axes.rows["kernel"].control.value) == ("", "ours")
    judging_form.problem.load("gemm_all_to_all", {"m": 1024, "n": 508, "k": 512}, 2, "bfloat16")
    assert "n = 508" in judging_form.refused["wb-axis-kernel"]["ours"]
    judging_form.problem.operator.value = "embedding_all_to_all"
    judging_form.scheme.value = "sequential"
    assert "kernel" not in judging_form.axes.rows


def test_a_reason_that_lies_elsewhere_greys_nothing_out() -> None:
    assert refused_choices({"a": "no", "b": None}) == {"a": "no"}
    assert refused_choices({"a": "no", "b": "no"}) == {}


def test_news_of_the_cluster_may_come_while_another_operator_is_chosen(
    judging_form: QuestionForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread with news is in the middle of its refresh when a person's change has taken the old sizes away."""
    failures: list[BaseException] = []
    refreshing, changing, reported = threading.Event(), threading.Event(), threading.Event()
    fit, title = judging_form._fit, form_fields.shape_title

    def fit_during_a_change(values: dict[str, Value]) -> None:
        if threading.current_thread() is watcher:
            refreshing.set()
            changing.wait(0.5)  # not set where the change waits for this refresh
        fit(values)

    def title_during_a_change(name: str) -> str:
        changing.set()
        reported.wait(5)
        return title(name)

    def report_news() -> None:
        try:
            judging_form.set_availability(Availability())
        except Exception as failure:
            failures.append(failure)
        reported.set()

    watcher = threading.Thread(target=report_news)
    monkeypatch.setattr(judging_form, "_fit", fit_during_a_change)
    monkeypatch.setattr(form_fields, "shape_title", title_during_a_change)
    watcher.start()
    assert refreshing.wait(30)
    judging_form.problem.operator.value = "gemm_all_reduce"
    watcher.join(30)
    assert not watcher.is_alive()
    assert failures == []
    assert judging_form.question.operator == "gemm_all_reduce"
    assert judging_form.refusal.value == ""


@pytest.mark.slow
def test_run_waits_for_the_cluster(make_explorer: MakeExplorer, lab: FakeLab) -> None:
    without = make_explorer(cluster=None)
    assert eventually(lambda: "No cluster answers" in without.page.status.value)
    assert without.page.run.disabled
    without.source.source.value = "simulator"
    assert not without.page.run.disabled
    with_one = make_explorer()
    assert eventually(lambda: not with_one.page.run.disabled)


@pytest.mark.slow
def test_run_waits_for_ranks_that_there_are(explorer: Explorer, lab: FakeLab) -> None:
    assert eventually(lambda: not explorer.page.run.disabled)
    explorer.form.problem.load("gemm_all_to_all", dict(explorer.form.question.shape), 8, "float32")
    assert explorer.page.run.disabled
    assert "Accepted: at most 4" in explorer.form.refusal.value
    assert headings(explorer) == ["simulated"], "it can be estimated all the same"
    explorer.source.source.value = "simulator"
    assert not explorer.page.run.disabled
    assert explorer.form.refusal.value == ""


@pytest.mark.slow
def test_run_waits_for_a_dtype_that_the_ranks_know(explorer: Explorer) -> None:
    assert eventually(lambda: not explorer.page.run.disabled)
    explorer.form.problem.dtype.value = "float16"
    assert explorer.page.run.disabled
    assert "dtype = float16" in explorer.form.refusal.value
    explorer.form.problem.dtype.value = "bfloat16"
    assert not explorer.page.run.disabled


@pytest.mark.slow
def test_run_waits_for_a_recording_of_what_is_asked(explorer: Explorer) -> None:
    explorer.source.source.value = "recordings"
    assert explorer.page.run.disabled
    assert "0 recordings" in explorer.page.plan.value
    explorer.source.source.value = "cluster"
    run(explorer)
    explorer.source.source.value = "recordings"
    assert not explorer.page.run.disabled
    explorer.source.whole.value = False
    assert not explorer.page.run.disabled
    explorer.form.scheme.value = "decomposed"
    assert explorer.page.run.disabled
    assert "not among the" in explorer.page.plan.value
    explorer.source.whole.value = True
    assert not explorer.page.run.disabled


@pytest.mark.slow
def test_a_recording_is_read_once_while_sliders_move(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    run(explorer)
    read = []
    of_run = recordings.recordings_of_run
    monkeypatch.setattr(recordings, "recordings_of_run", lambda *given: read.append(given) or of_run(*given))
    explorer.source.source.value = "recordings"
    explorer.source.whole.value = False
    before = len(read)
    explorer.form.ratio.value = 2.0
    explorer.form.ratio.value = 4.0
    assert len(read) == before


def test_a_run_waits_for_ranks_as_long_as_the_form_says(explorer: Explorer, lab: FakeLab) -> None:
    explorer.form.wait.value = 30.0
    run(explorer)
    assert {limits.wait_s for limits in lab.limits} == {30.0}


# What a refusal names is on the page: options of commands are not.

SEATED = [
    Availability(),
    CPU,
    GPUS,
    Availability(measures=True, workers=Workers((WorkerDescription("gpu0", "here", "triton"), *CPU.workers.here))),
]


def refusals(availability: Availability) -> set[str]:
    """What the form says of each machine and scheme, of two operators, and of each greyed out choice."""
    form = QuestionForm("laptop_overlap", "laptop_cpu")
    form.set_availability(availability)
    messages: set[str | None] = set()
    for name in ("laptop_cpu", "h200_nvl2", "h200_ib"):
        form.machine.value = name
        for operator in ("gemm_all_to_all", "embedding_all_to_all"):
            form.problem.operator.value = operator
            messages |= {message for refused in form.refused.values() for message in refused.values()}
            messages.add(form.refusal.value)
        messages.add(availability.machine_refusal(form.machine_value))
    return {html.unescape(re.sub("<[^>]*>", "", message)) for message in messages if message}


def names_of_controls(form: QuestionForm) -> set[str]:
    """The typed name of each control of the page: `fabric` of the one with the class wb-fabric."""
    marks: set[str] = set()
    waiting: list[object] = [form.question_group, form.schedule_group, form.sweep_group, form.advanced]
    while waiting:
        control = waiting.pop()
        marks |= set(getattr(control, "_dom_classes", ()))
        waiting += getattr(control, "children", ())
    return {re.sub(r"^wb-(axis-|size-)?", "", mark) for mark in marks}


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("availability", SEATED, ids=["simulated", "cpu", "gpus", "both"])
def test_no_refusal_names_a_control_that_the_page_does_not_have(availability: Availability) -> None:
    form = QuestionForm("laptop_overlap", "laptop_cpu")
    question, machine = form.question, shipped_machine("laptop_cpu")
    of_schemes = [axes(question.problem(), scheme, machine, question.link()) for scheme in SCHEMES]
    known = names_of_controls(form) | {axis.name for known_axes in of_schemes for axis in known_axes}
    messages = refusals(availability)
    assert messages
    for message in messages:
        accepted = message.partition("Accepted")[2]
        named = set(re.findall(r"\b([a-z_]+) = ", accepted))
        assert named <= known, message
        assert not re.search(r"(?<!\w)--\w", message), message


# Ranks that share a GPU: a tick where there are fewer GPUs than ranks.


def on_one_gpu(sharing: int) -> Workers:
    """Four workers of a host with one GPU, which *sharing* of them have; 1: only the first one."""
    gpu = WorkerDevice(kind="gpu", model="NVIDIA H200", processor="p", cores=(0, 1), memory_bytes=141 << 30,
                       uuid="GPU-0", links=(), ranks_on_gpu=sharing)  # fmt: skip
    cpu = WorkerDevice(kind="cpu", model="p", processor="p", cores=(0, 1))
    devices = [gpu] * sharing + [cpu] * (4 - sharing)
    return Workers([WorkerDescription(f"rank{number}", "here", "triton" if device is gpu else "cpu", "", (), device)
                    for number, device in enumerate(devices)])  # fmt: skip


def shown(form: QuestionForm) -> bool:
    return form.share_gpu.layout.display != "none"


def test_sharing_is_offered_where_there_are_fewer_gpus_than_ranks(judging_form: QuestionForm) -> None:
    judging_form.set_availability(Availability(True, on_one_gpu(4)))
    assert not shown(judging_form), "CPU ranks"
    judging_form.machine.value = "h200_nvl2"
    judging_form.problem.world.value = 2
    assert shown(judging_form)
    assert "4 ranks share the GPU here" in html.unescape(judging_form.refusal.value)
    judging_form.share_gpu.value = True
    assert judging_form.question.fabric == "shared_gpu"
    assert judging_form.refusal.value == ""
    assert set(judging_form.problem.world.options) >= {2, 4}, "more ranks than the machine connects"
    judging_form.problem.world.value = 4
    assert judging_form.refusal.value == ""
    judging_form.machine.value = "laptop_cpu"
    assert (judging_form.share_gpu.value, shown(judging_form)) == (False, False)


def test_where_each_rank_has_a_gpu_sharing_is_not_offered_and_refused(judging_form: QuestionForm) -> None:
    judging_form.machine.value = "h200_nvl2"
    judging_form.problem.world.value = 2
    gpus = [WorkerDevice(kind="gpu", model="NVIDIA H200", processor="p", cores=(0,), memory_bytes=141 << 30,
                         uuid=f"GPU-{number}", links=(f"GPU-{1 - number}",)) for number in range(2)]  # fmt: skip
    workers = [WorkerDescription(f"rank{number}", "here", "triton", "", (), gpu) for number, gpu in enumerate(gpus)]
    judging_form.set_availability(Availability(True, Workers(workers)))
    assert not shown(judging_form)
    judging_form.share_gpu.value = True
    assert shown(judging_form), "to take it back"
    assert "each GPU has 1 rank, and ranks that share one are 2 or more" in html.unescape(judging_form.refusal.value)


def test_a_copy_engine_is_greyed_out_where_ranks_share_a_gpu(judging_form: QuestionForm) -> None:
    judging_form.set_availability(Availability(True, on_one_gpu(4)))
    judging_form.machine.value = "h200_nvl2"
    judging_form.problem.world.value = 2
    judging_form.share_gpu.value = True
    judging_form.scheme.value = "sequential"
    assert "copy_engine" in judging_form.refused["wb-axis-collective"]
    judging_form.scheme.value = "decomposed"
    assert judging_form.question.schedule(judging_form.machine_value)["engine"] != "copy_engine"
    assert judging_form.refusal.value == ""


def test_a_loaded_row_of_a_shared_gpu_ticks_it_and_another_one_does_not(form: QuestionForm) -> None:
    form.machine.value = "h200_nvl2"
    about = row(machine="h200_nvl2", backend="triton", fabric="shared_gpu", dtype="bfloat16", axes={})
    form.load_row(about)
    assert form.share_gpu.value
    form.load_row({**about, "fabric": "nvlink"})
    assert not form.share_gpu.value


@pytest.mark.slow
def test_run_needs_no_estimate_where_ranks_share_a_gpu(explorer: Explorer, lab: FakeLab) -> None:
    assert eventually(lambda: not explorer.page.run.disabled)
    explorer._workers = on_one_gpu(4)
    explorer.form.machine.value = "h200_nvl2"
    explorer.form.problem.world.value = 2
    explorer.form.share_gpu.value = True
    assert explorer.form.refusal.value == ""
    assert explorer.shown.estimate is None
    assert not explorer.page.run.disabled
    said = html.unescape(explorer.shown.headline.value)
    assert "Ranks share a GPU: order and results are real, times are not." in said
    assert "fabric = shared_gpu has no estimate." in said
    explorer.source.source.value = "simulator"
    assert explorer.page.run.disabled
