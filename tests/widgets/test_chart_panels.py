"""The panels of charts: cells of a landscape that know their problem, and a model's step on many ranks."""

from dataclasses import replace

import pytest

from kernels.fabric import parse
from kernels.schedule import Schedule
from tests.widgets.conftest import row
from workbench.charts import landscape, scale_out
from workbench.experiment.estimated_space import SpaceQuestion
from workbench.experiment.form import FormQuestion
from workbench.machines import machine
from workbench.machines.presets import presets
from workbench.results.filters import Filters
from workbench.simulator.predict import predict
from workbench.simulator.scaling.model import names
from workbench.widgets.chart_panels import WORLDS, StepPanel, cells, landscape_axes, model_of, same_problem

# The cells of a landscape are the estimates of all legal combinations, and know which problem they are of.

LINK = parse("emulated:wire_to_compute=1,bandwidth_bytes_per_second=1e9")
ASKED = FormQuestion(operator="gemm_all_to_all", shape=(("m", 512), ("n", 512), ("k", 64)), dtype="float32", world=2,
              scheme="fused", fabric="emulated:wire_to_compute=1")  # fmt: skip


def test_every_legal_combination_has_a_cell_with_a_complete_schedule() -> None:
    here = machine("laptop_cpu")
    found = cells(SpaceQuestion(ASKED, here, LINK), "slice_tiles", "tile_order")[0]
    experiment = replace(ASKED, swept=("slice_tiles", "tile_order")).experiment(here)
    wanted = experiment.points(experiment.problems[0], here).schedules
    shown = [Schedule("fused", tuple(cell["axes"].items())) for cell in found]
    assert {schedule.axes for schedule in shown} == {schedule.axes for schedule in wanted}


def test_a_filter_reaches_the_cells_and_the_number_left_out_is_said() -> None:
    space = SpaceQuestion(ASKED, machine("laptop_cpu"), LINK)
    every, said = cells(space, "slice_tiles", "write")
    assert said == ""
    kept, said = cells(space, "slice_tiles", "write", Filters().with_range("slice_tiles", (2.0, 4.0)))
    assert kept == [cell for cell in every if cell["axes"]["slice_tiles"] in (2, 4)]
    assert 0 < len(kept) < len(every)
    assert said == f"The filter leaves out {len(every) - len(kept)} of {len(every)} estimates."


def test_a_cell_is_about_what_is_played_when_it_is_loaded() -> None:
    here = machine("laptop_cpu")
    for cell in cells(SpaceQuestion(ASKED, here, LINK), "slice_tiles", "write")[0]:
        trial = replace(ASKED, values=(("fused", tuple(cell["axes"].items())),)).trial(here)
        assert cell["time_s"] == pytest.approx(predict(replace(trial, fabric=LINK), here).time_s, rel=0.3)


def test_a_side_of_the_tile_is_an_axis_whose_cells_are_the_best_of_their_tiles() -> None:
    here = machine("laptop_cpu")
    offered = landscape_axes(ASKED.axes(here))
    sides = {side: count for side, count in offered.items() if side.startswith("tile_") and side != "tile_order"}
    assert set(sides) == {"tile_rows", "tile_columns", "tile_depth"}
    tiles = next(axis.values for axis in ASKED.axes(here) if axis.name == "tile")
    assert sides["tile_rows"] == len({str(size).partition("x")[0] for size in tiles}) > 1
    estimates = cells(SpaceQuestion(ASKED, here, LINK), "tile_rows", "slice_tiles")[0]
    assert len(estimates) == len(cells(SpaceQuestion(ASKED, here, LINK), "tile", "slice_tiles")[0]), (
        "all tiles are tried"
    )
    drawn = landscape.rows(estimates, "tile_rows", "slice_tiles")
    assert 0 < len(drawn) < len(estimates), "a cell has the tiles of its number of rows"
    for cell in drawn:
        inside = [row["time_s"] for row in estimates if row["axes"]["slice_tiles"] == cell["y"]
                  and row["axes"]["tile"].startswith(f"{cell['x']}x")]  # fmt: skip
        assert cell["time_ms"] == pytest.approx(min(inside) * 1e3, rel=1e-5)


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


@pytest.mark.slow
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
