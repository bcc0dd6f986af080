"""The panels of charts: cells of a landscape that know their problem, and a model's step on many ranks."""

from dataclasses import replace

import pytest

from kernels.fabric import parse
from tests.widgets.conftest import row
from workbench.charts import scale_out
from workbench.experiment.form import FormQuestion
from workbench.machines import machine
from workbench.machines.presets import presets
from workbench.simulator.predict import predict
from workbench.simulator.scaling.model import names
from workbench.widgets.chart_panels import WORLDS, StepPanel, cells, model_of, same_problem

# The cells of a landscape are the estimates of all legal combinations, and know which problem they are of.

LINK = parse("emulated:wire_to_compute=1,bandwidth_bytes_per_second=1e9")
ASKED = FormQuestion(operator="gemm_all_to_all", shape=(("m", 512), ("n", 512), ("k", 64)), dtype="float32", world=2,
              scheme="fused", fabric="emulated:wire_to_compute=1")  # fmt: skip


def test_every_legal_combination_has_a_cell_with_a_complete_schedule() -> None:
    here = machine("laptop_cpu")
    found = cells(ASKED, here, LINK, "slice_tiles", "tile_order")
    experiment = replace(ASKED, swept=("slice_tiles", "tile_order")).experiment(here)
    wanted = experiment.points(experiment.problems[0], here).schedules
    assert {tuple(cell["axes"].items()) for cell in found} == {schedule.axes for schedule in wanted}


def test_a_cell_is_about_what_is_played_when_it_is_loaded() -> None:
    here = machine("laptop_cpu")
    for cell in cells(ASKED, here, LINK, "slice_tiles", "write"):
        trial = replace(ASKED, values=(("fused", tuple(cell["axes"].items())),)).trial(here)
        assert cell["time_s"] == pytest.approx(predict(replace(trial, fabric=LINK), here).time_s, rel=0.3)


def test_rows_of_another_problem_or_link_belong_elsewhere() -> None:
    same = same_problem(ASKED)
    mine = row(shape={"m": 512, "n": 512, "k": 64})
    assert same(mine)
    assert same({**mine, "machine": "another", "protocol": "thorough"})
    assert not same({**mine, "shape": {"m": 512, "n": 512, "k": 128}})
    assert not same({**mine, "world": 4})
    assert not same({**mine, "fabric": "emulated:wire_to_compute=2,bandwidth_bytes_per_second=1e+09"})
    assert not same({**mine, "fabric": "shared_memory"})


# A preset opens its model's step on many ranks, simulated while the tab is open; others say that there is none.


def test_a_preset_has_the_model_with_which_its_name_begins() -> None:
    assert {name: model_of(name) for name in ("dlrm_pooling", "dlrm_dcnv2_16384", "llama3_70b_mlp_512", "tiny")} == {
        "dlrm_pooling": "dlrm", "dlrm_dcnv2_16384": "dlrm_dcnv2", "llama3_70b_mlp_512": "llama3_70b", "tiny": None,
    }  # fmt: skip
    assert {model_of(preset.name) for preset in presets()} - {None} == set(names()), "each model is somebody's"


@pytest.fixture
def panel() -> StepPanel:
    return StepPanel()


def test_a_step_is_simulated_only_while_somebody_looks(panel: StepPanel) -> None:
    panel.offer("dlrm_dcnv2")
    assert panel.chart.rows(scale_out.DATASET) == []
    panel.look(True)
    drawn = panel.chart.rows(scale_out.DATASET)
    assert {record["world"] for record in drawn} == set(WORLDS)
    assert "DCNv2" in panel.message.value
    assert "estimated" in panel.message.value
    assert "more than sequential" in panel.message.value, "a batch of MLPerf's size on 4,096 ranks gains nothing"
    assert {record["configuration"] for record in drawn} == {"sequential", "fused"}
    panel.configuration.value = "decomposed"
    assert {record["configuration"] for record in panel.chart.rows(scale_out.DATASET)} == {"sequential", "decomposed"}


def test_a_preset_without_a_model_says_so_and_draws_nothing(panel: StepPanel) -> None:
    panel.look(True)
    panel.offer("dlrm_dcnv2")
    panel.offer("tiny")
    assert panel.chart.rows(scale_out.DATASET) == []
    assert "No model of dlrm" in panel.message.value
    panel.offer("dlrm_dcnv2")
    assert panel.chart.rows(scale_out.DATASET), "it comes again with its preset"
