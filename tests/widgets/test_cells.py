"""The cells of a landscape are the estimates of all legal combinations, and know which problem they are of."""

from dataclasses import replace

import pytest

from kernels.fabric import parse
from tests.widgets.conftest import row
from workbench.experiment.form import FormQuestion
from workbench.machines import machine
from workbench.simulator.predict import predict
from workbench.widgets.chart_panels import cells, same_problem

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
