"""What cannot be answered here is greyed out with its reason, and Run waits until it would be accepted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.seating import WorkerDescription, Workers
from tests.widgets.conftest import FakeLab, eventually, headings, run
from workbench.results import recordings
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.form import Availability, QuestionForm, refused_choices

MakeExplorer = Callable[..., Explorer]

CPU = Availability(
    measures=True, workers=Workers(tuple(WorkerDescription(f"rank{n}", "here", "cpu") for n in range(4)))
)
GPUS = Availability(
    measures=True, workers=Workers(tuple(WorkerDescription(f"gpu{n}", "here", "triton") for n in range(2)))
)


@pytest.fixture
def form() -> QuestionForm:
    made = QuestionForm("laptop_overlap", "laptop_cpu")
    made.set_availability(CPU)
    return made


def greyed(form: QuestionForm, mark: str) -> set[str]:
    """The choices of the control *mark* that a browser greys out, by place."""
    return set(form.unavailable.reasons.get(mark, {}))


def test_a_dtype_that_ranks_do_not_know_is_greyed_out_with_the_backend_s_sentence(form: QuestionForm) -> None:
    assert list(form.refused["wb-dtype"]) == ["float16"]
    assert "Accepted: float32, bfloat16" in form.refused["wb-dtype"]["float16"]
    place = str(form.problem.dtype.options.index("float16"))
    assert greyed(form, "wb-dtype") == {place}
    assert "dtype float16</b>: dtype = float16 does not run on backend = cpu" in form.elsewhere.value
    form.set_availability(Availability())
    assert "wb-dtype" not in form.refused, "it can be simulated"


def cpus(count: int, host: str = "here") -> tuple[WorkerDescription, ...]:
    return tuple(WorkerDescription(f"{host}{number}", host, "cpu") for number in range(count))


def test_as_many_ranks_are_offered_as_the_cluster_can_seat(form: QuestionForm) -> None:
    assert form.problem.world.options == (1, 2, 4)
    for count, worlds in ((6, (1, 2, 4, 6)), (16, (1, 2, 4, 8, 16)), (32, (1, 2, 4, 8, 16, 32))):
        form.set_availability(Availability(measures=True, workers=Workers(cpus(count))))
        assert form.problem.world.options == worlds
        assert form.problem.world.value == 2
    form.problem.world.value = 32
    assert form.refusal.value == ""
    form.set_availability(CPU)
    assert form.problem.world.options == (1, 2, 4, 32), "what a person chose stays, and is refused"
    assert "32 ranks are too many" in form.refusal.value
    form.set_availability(Availability())
    assert form.problem.world.options[-1] == form.machine_value.max_world, "there is nobody to seat"


def test_the_network_is_offered_where_workers_are_on_several_hosts_and_only_there(form: QuestionForm) -> None:
    assert "the cluster's 4 workers for them are on 1" in form.refused["wb-fabric"]["network"]
    form.set_availability(Availability(measures=True, workers=Workers((*cpus(2), *cpus(2, "there")))))
    assert "network" not in form.refused["wb-fabric"]
    form.fabric.value = "network"
    form.scheme.value = "sequential"
    assert form.refusal.value == ""
    assert form.question.trial(form.machine_value).schedule["collective"] == "library"


def test_worlds_beyond_the_cluster_s_ranks_and_machines_of_gpus_are_greyed_out(form: QuestionForm) -> None:
    form.problem.load("gemm_all_to_all", {"m": 256, "n": 64, "k": 32}, 8, "float32")
    assert "4 workers" in form.refused["wb-world"][8]
    assert "laptop_cpu" not in form.refused["wb-machine"]
    assert "h200_nvl2" in form.refused["wb-machine"]
    assert "Ranks 8</b>: 8 ranks are too many" in form.elsewhere.value
    assert "Machine, 10 of them</b>" in form.elsewhere.value
    assert "0 of the cluster's 4 workers have one" in form.refused["wb-machine"]["h200_nvl2"]
    form.set_availability(GPUS)
    assert "wb-machine" not in form.refused


def test_a_scheme_that_ranks_do_not_run_is_greyed_out_and_not_swept(form: QuestionForm) -> None:
    assert "wb-scheme" not in form.refused
    form.sweep_schemes.value = True
    assert form.question.schemes() == ("sequential", "decomposed", "fused"), "micro-batches answer another question"
    assert "sequential, decomposed, fused" in form.sweep_schemes.tooltip
    form.problem.operator.value = "embedding_all_to_all"
    form.machine.value = "h200_nvl2"
    form.set_availability(GPUS)
    assert "decomposed" in form.refused["wb-scheme"]
    assert form.question.schemes() == ("sequential", "fused")


def test_a_link_that_ranks_do_not_have_is_greyed_out(form: QuestionForm) -> None:
    assert set(form.refused["wb-fabric"]) == {"nvlink", "network"}
    form.machine.value = "h200_nvl2"
    form.set_availability(GPUS)
    assert {"emulated", "shared_memory"} <= set(form.refused["wb-fabric"])
    assert "Its gap of 150 µs" in form.refused["wb-fabric"]["emulated"]
    form.set_availability(Availability())
    assert "emulated" in form.refused["wb-fabric"]


def test_axes_that_gpu_kernels_do_not_read_are_not_on_the_form(form: QuestionForm) -> None:
    form.machine.value = "h200_nvl2"
    form.set_availability(GPUS)
    assert not {"write", "comm_sms"} & set(form.axes.rows)
    form.axes.rows["tile_order"].control.value = "rotated"
    assert "slice_tiles" not in form.axes.rows, "tiles leave one by one"
    form.axes.rows["tile_order"].control.value = "interleaved"
    form.axes.rows["slice_tiles"].control.value = 1
    form.axes.rows["slice_tiles"].sweep.value = True
    form.axes.rows["tile_order"].control.value = "rotated"
    assert (form.refusal.value, form.question.swept_values(form.machine_value)) == ("", {})
    form.problem.operator.value = "gemv_all_reduce"
    assert not {"store", "slice_tiles"} & set(form.axes.rows)
    assert form.refusal.value == ""


def test_who_computes_is_on_the_form_where_it_can_be_chosen(form: QuestionForm) -> None:
    form.scheme.value = "sequential"
    assert "kernel" not in form.axes.rows
    form.machine.value = "h200_nvl2"
    form.set_availability(GPUS)
    assert "wb-scheme" not in form.refused, "GPUs run them all"
    form.scheme.value = "sequential"
    kernel = form.axes.rows["kernel"]
    assert (kernel.control.value, dict(form.question.schedule(form.machine_value).axes).get("kernel")) == (
        "library", None)  # fmt: skip
    kernel.control.value = "ours"
    assert form.question.schedule(form.machine_value)["kernel"] == "ours"
    assert (form.refusal.value, form.axes.rows["kernel"].control.value) == ("", "ours")
    form.problem.load("gemm_all_to_all", {"m": 1024, "n": 508, "k": 512}, 2, "bfloat16")
    assert "n = 508" in form.refused["wb-axis-kernel"]["ours"]
    form.problem.operator.value = "embedding_all_to_all"
    form.scheme.value = "sequential"
    assert "kernel" not in form.axes.rows


def test_a_reason_that_lies_elsewhere_greys_nothing_out() -> None:
    assert refused_choices({"a": "no", "b": None}) == {"a": "no"}
    assert refused_choices({"a": "no", "b": "no"}) == {}


def test_run_waits_for_the_cluster(make_explorer: MakeExplorer, lab: FakeLab) -> None:
    without = make_explorer(cluster=None)
    assert eventually(lambda: "No cluster answers" in without.page.status.value)
    assert without.page.run.disabled
    without.source.source.value = "simulator"
    assert not without.page.run.disabled
    with_one = make_explorer()
    assert eventually(lambda: not with_one.page.run.disabled)


def test_run_waits_for_ranks_that_there_are(explorer: Explorer, lab: FakeLab) -> None:
    assert eventually(lambda: not explorer.page.run.disabled)
    explorer.form.problem.load("gemm_all_to_all", dict(explorer.form.question.shape), 8, "float32")
    assert explorer.page.run.disabled
    assert "Accepted: at most 4" in explorer.form.refusal.value
    assert headings(explorer) == ["simulated"], "it can be estimated all the same"
    explorer.source.source.value = "simulator"
    assert not explorer.page.run.disabled
    assert explorer.form.refusal.value == ""


def test_run_waits_for_a_dtype_that_the_ranks_know(explorer: Explorer) -> None:
    assert eventually(lambda: not explorer.page.run.disabled)
    explorer.form.problem.dtype.value = "float16"
    assert explorer.page.run.disabled
    assert "dtype = float16" in explorer.form.refusal.value
    explorer.form.problem.dtype.value = "bfloat16"
    assert not explorer.page.run.disabled


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
