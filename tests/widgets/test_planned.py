"""Before Run is pressed, the form says how many schedules there are and how long they take about."""

from dataclasses import replace

import pytest

from kernels.fabric import parse
from kernels.schedule import Refusal
from kernels.units import about
from workbench.machines import machine
from workbench.simulator import grid
from workbench.widgets.asking import Asked
from workbench.widgets.planned import Plan, plan

LINK = parse("emulated:wire_to_compute=1,bandwidth_bytes_per_second=1e8")
ASKED = Asked(operator="gemm_all_to_all", shape=(("m", 512), ("n", 512), ("k", 64)), dtype="float32", world=2,
              scheme="fused", fabric=str(LINK), protocol="quick")  # fmt: skip


def planned(asked: Asked, measured: bool = True) -> Plan:
    return plan(asked, machine("laptop_cpu"), LINK, measured=measured)


def test_one_schedule_comes_with_its_baseline_and_the_parts_of_both() -> None:
    found = planned(ASKED)
    assert found.schedules == {"fused": 1}
    assert found.trials == 5
    assert found.samples == 5 * 5 * 2
    assert str(found) == "1 fused schedule and 4 baselines, about a second."


def test_a_sweep_counts_what_will_run() -> None:
    here = machine("laptop_cpu")
    for swept in (("slice_tiles",), ("slice_tiles", "scheme"), ("tile_order", "write")):
        asked = replace(ASKED, swept=swept)
        experiment = asked.experiment(here)
        assert planned(asked).count == len(experiment.points(experiment.problems[0], here).schedules)


def test_a_slider_of_a_swept_axis_has_nothing_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    times = grid.times
    monkeypatch.setattr(
        grid, "times", lambda problem, scheme, *more: counted.append(scheme) or times(problem, scheme, *more)
    )
    here, link = machine("laptop_cpu"), parse("emulated:wire_to_compute=1,bandwidth_bytes_per_second=2e8")
    asked = replace(ASKED, swept=("slice_tiles", "tile_order"))
    first, other = (
        plan(replace(asked, values=(("fused", (("slice_tiles", tiles),)),)), here, link, measured=True)
        for tiles in (1, 2)
    )
    assert counted == ["fused"]
    assert first == other
    faster = replace(here, costs=replace(here.costs, tile_seconds=10 * here.costs.tile_seconds))
    assert plan(asked, faster, link, measured=True).seconds > first.seconds


def test_a_longer_protocol_takes_longer() -> None:
    quick, thorough = planned(ASKED), planned(replace(ASKED, protocol="thorough"))
    assert thorough.seconds > quick.seconds


def test_nothing_is_timed_by_the_simulator() -> None:
    assert planned(ASKED, measured=False).seconds is None
    assert "nothing is timed" in str(planned(ASKED, measured=False))


def test_a_comparison_names_every_scheme() -> None:
    assert str(planned(replace(ASKED, swept=("scheme",)))).startswith(
        "3 schedules (1 sequential, 1 decomposed, 1 fused)"
    )


def test_what_cannot_be_is_refused_like_the_run() -> None:
    with pytest.raises(Refusal, match="concurrent"):
        planned(replace(ASKED, scheme="concurrent"))


@pytest.mark.parametrize(("seconds", "words"), [
    (0.2, "about a second"), (12.4, "about 12 s"), (100, "about 2 min"), (9000, "about 2.5 hours"),
])  # fmt: skip
def test_a_duration_is_as_rough_as_it_is_known(seconds: float, words: str) -> None:
    assert about(seconds) == words
