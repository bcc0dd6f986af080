"""With a pinned baseline the charts of times draw signed per cent of the same rows, and a line at zero."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import altair as alt
import pytest

from tests.charts.made import estimate_of, made_row, svg
from workbench.charts import best, landscape, layers, pareto, sweep, theme, trials
from workbench.charts.relative import name_of, scale_of
from workbench.results.deltas import Pinned

ROUNDS = [1.0] * 15


def timed(key: str, time_s: float, slices: int, **more: Any) -> dict[str, Any]:
    axes = {"tile": "t", "slice_tiles": slices}
    return made_row(key, time_s, axes=axes, block="r.1", run="r", rounds_s=[time_s * one for one in ROUNDS], **more)


ROWS = [timed("a", 0.05, 1), timed("b", 0.04, 2), timed("c", 0.06, 4), estimate_of(timed("b", 0.04, 2), 0.035),
        made_row("d", None, stage="hang", message="It hung.", block="r.1")]  # fmt: skip
BASE = Pinned.of(ROWS[0], ROWS)


class TimeChart(NamedTuple):
    """One chart of times: drawn whole, live, and its records."""

    chart: Callable[[Pinned | None], alt.LayerChart]
    live: Callable[[str], alt.LayerChart]
    rows: Callable[[Pinned | None], list[dict[str, Any]]]
    dataset: str


CHARTS = {
    "trials": TimeChart(
        lambda base: trials.chart(ROWS, baseline=base), lambda name: trials.live(baseline=name),
        lambda base: trials.rows(ROWS, baseline=base), trials.DATASET,
    ),
    "best": TimeChart(
        lambda base: best.chart(ROWS, baseline=base), lambda name: best.live(baseline=name),
        lambda base: best.rows(ROWS, baseline=base), best.DATASET,
    ),
    "sweep": TimeChart(
        lambda base: sweep.chart(ROWS, "slice_tiles", base),
        lambda name: sweep.live("slice_tiles", (1, 8), baseline=name),
        lambda base: sweep.rows(ROWS, "slice_tiles", base), sweep.DATASET,
    ),
}  # fmt: skip
every_chart = pytest.mark.parametrize("name", CHARTS)


@every_chart
def test_the_axis_is_signed_per_cent_and_a_line_marks_the_baseline(name: str) -> None:
    drawn = svg(CHARTS[name].chart(BASE))
    labels = re.findall(r">([+−]?[\d.]+) %<", drawn)
    assert {"0"} < set(labels)
    assert any(label.startswith("−") for label in labels)
    assert any(label.startswith("+") for label in labels)
    assert ">baseline<" in drawn
    assert not re.search(r">[\d.,]+ (ns|µs|ms|s)<", drawn), "no time is left on an axis or a mark"
    assert "Below zero is less time than the baseline: fused, tile t, tiles per slice 1, 50 ms" in drawn


@every_chart
def test_a_record_has_the_share_of_each_of_its_times_and_the_verdict_in_words(name: str) -> None:
    records = {(record["key"], record["look"]): record for record in CHARTS[name].rows(BASE)}
    faster = records["b", "measured"]
    assert faster["time_share"] == pytest.approx(-0.2)
    assert faster["difference"] == "-10 ms (-20 %), faster"
    assert faster["aloud"].endswith("; to the baseline: -10 ms (-20 %), faster")
    assert records["b", "estimated"]["difference"] == "-15 ms (-30 %), estimated against measured"
    if "low_share" in faster:
        assert faster["low_share"] == pytest.approx(0.97 * 0.8 - 1)
    if "floor_share" in faster:
        assert faster["floor_share"] == pytest.approx(0.043 / 0.05 - 1)


@every_chart
def test_without_a_baseline_nothing_of_it_is_there(name: str) -> None:
    chart = CHARTS[name]
    assert not [key for record in chart.rows(None) for key in record if key.endswith("_share") or key == "difference"]
    assert "share" not in str(chart.live("").to_dict())
    assert ">baseline<" not in svg(chart.chart(None))


@pytest.mark.slow(keeps=2)
@every_chart
@pytest.mark.parametrize("mode", list(theme.Mode))
def test_live_it_says_the_same_as_drawn_whole_in_light_and_dark(name: str, mode: theme.Mode) -> None:
    spoken = re.compile(r'aria-label="([^"]*to the baseline[^"]*)"')
    with theme.enabled(mode):
        chart = CHARTS[name]
        grown = svg(chart.live(name_of(BASE)), {chart.dataset: chart.rows(BASE)})
        whole = set(spoken.findall(svg(chart.chart(BASE))))
    assert whole
    assert whole <= set(spoken.findall(grown))
    assert theme.INKS[mode].text in grown


def test_a_trial_that_is_being_timed_has_its_difference_too() -> None:
    running = {**timed("e", 0.045, 8), "samples": 7, "due": 20, "stopped": False, "rounds_s": None}
    (record,) = layers.rows([running], {}, baseline=BASE)
    assert record["time_share"] == pytest.approx(-0.1)
    assert record["difference"] == "-5 ms (-10 %), not certain"
    assert "running, 7 of 20 samples" in svg(trials.live(baseline=name_of(BASE)), {layers.DATASET: [record]})


def test_rows_of_another_problem_are_no_marks() -> None:
    other = timed("z", 0.001, 1, shape={"m": 1, "n": 512, "k": 1024})
    assert [record["time_share"] for record in trials.rows([other], baseline=BASE)] == [None, None]


def test_the_floor_of_a_failure_is_drawn_at_the_baselines_pace() -> None:
    floors = [
        record for record in trials.rows(ROWS, baseline=BASE) if record["look"] == "floor" and record["key"] == "d"
    ]
    assert [record["time_share"] for record in floors] == [pytest.approx(0.043 / 0.05 - 1)]


def test_a_guess_is_a_difference_too() -> None:
    assert trials.guess(ROWS[1], 0.1, 2, baseline=BASE)["time_share"] == pytest.approx(1.0)


# Cells and the front.


def test_cells_of_a_landscape_have_signed_differences_and_estimates_say_so() -> None:
    records = landscape.rows(ROWS, "slice_tiles", "tile", baseline=BASE)
    cells = {record["x"]: record for record in records}
    assert [cells[slices]["label"] for slices in (1, 2, 4)] == ["0 %", "-20 %", "+20 %"]
    assert cells[2]["difference"] == "-10 ms (-20 %), faster"
    assert [slices for slices, record in cells.items() if record["best"]] == [2]
    estimate = estimate_of(timed("e", 0.1, 8), 0.1)
    (cell,) = (record for record in landscape.rows([*ROWS, estimate], "slice_tiles", "tile", baseline=BASE)
               if record["look"] == "estimated")  # fmt: skip
    scale = 0.04 / 0.035  # timed / estimated of the one schedule that has both
    assert cell["time_share"] == pytest.approx(0.1 * scale / 0.05 - 1, rel=1e-4)
    assert cell["label"] == f"\N{ALMOST EQUAL TO}+{100 * (0.1 * scale / 0.05 - 1):.0f} %"
    assert cell["difference"].startswith("+64.3 ms (+129 %)"), "of the number in the cell, not of the raw estimate"
    drawn = svg(landscape.live("slice_tiles", "tile", baseline=name_of(BASE)), {landscape.DATASET: records})
    assert ">-20 %<" in drawn
    assert "orange is slower" in drawn
    assert "brighter is faster" not in drawn


def test_the_front_is_drawn_in_differences() -> None:
    trials_of = [{**row, "sms": 4, "standing": ""} for row in ROWS]
    records = pareto.rows(trials_of, "sms", BASE)
    assert {record["key"]: record["difference"] for record in records if record["look"] == "measured"} == {
        "a": "baseline", "b": "-10 ms (-20 %), faster", "c": "+10 ms (+20 %), slower",
    }  # fmt: skip
    drawn = svg(pareto.live("sms", "SMs", baseline=name_of(BASE)), {pareto.DATASET: records})
    assert ">baseline<" in drawn
    assert "to the baseline: -10 ms (-20 %), faster" in drawn
    assert not re.search(r">[\d.,]+ (ns|µs|ms|s)<", drawn), "no time is left on the axis"


@pytest.mark.parametrize(
    ("chosen", "times_s", "wanted"),
    [
        ("automatic", (0.01, 0.02), "linear"), ("automatic", (0.01, 1.0), "log"), ("automatic", (), "linear"),
        ("log", (0.01, 0.02), "log"), ("linear", (0.01, 1.0), "linear"),
    ],
)  # fmt: skip
def test_the_axis_of_time_is_as_chosen_or_as_wide_as_the_times(
    chosen: str, times_s: tuple[float, ...], wanted: str
) -> None:
    assert scale_of(chosen, times_s) == wanted
    assert scale_of(chosen, times_s, BASE) == "linear"
