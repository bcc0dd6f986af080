"""A preset opens its model's step on many ranks, simulated while the tab is open; others say that there is none."""

import pytest

from workbench.charts import scale_out
from workbench.machines.presets import presets
from workbench.simulator.scaling.model import names
from workbench.widgets.chart_panels import WORLDS, StepPanel, model_of


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
