"""What holds for every chart: it asks a question, states its units, draws in both modes, and imports no other room."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from kernels.outcome import Sample
from tests.charts.made import estimate_of, made_row, made_span, svg
from workbench.charts import (
    best,
    landscape,
    pair,
    pareto,
    parting,
    samples,
    sweep,
    theme,
    timeline,
    trials,
    waterfall,
)

ROWS = [made_row("a"), estimate_of(made_row("a"), 0.05), made_row("b", None, stage="hang", message="It hung.")]
PAIR = {"baseline": ROWS[0], "selected": ROWS[1]}
SPANS = [made_span("0/compute/-1/0", 0.0, 0.01), made_span("0/put/1/0", 0.01, 0.02, pool="link")]
LATER = [made_span("0/compute/-1/0", 0.0, 0.012), made_span("0/put/1/0", 0.012, 0.025, pool="link")]
SAMPLES = [Sample("k", rank, index, 0.06, 0.0) for rank in range(2) for index in range(3)]


def schedules(scale: float = 1.0) -> tuple[waterfall.Schedule, waterfall.Schedule]:
    """Two schedules of tens of milliseconds, or of *scale* of that."""
    chosen, other = (
        waterfall.Schedule(name=name, parts={"floor": scale * 0.04}, time_s=scale * time_s, source="measured")
        for name, time_s in (("fused", 0.06), ("decomposed", 0.07))
    )
    return chosen, other


Drawn = tuple[Callable[[], alt.LayerChart], Callable[[], alt.LayerChart], str, Callable[[], list[dict[str, Any]]]]

CHARTS: dict[str, Drawn] = {
    "trials": (lambda: trials.chart(ROWS), trials.live, trials.DATASET, lambda: trials.rows(ROWS)),
    "best": (lambda: best.chart(ROWS), best.live, best.DATASET, lambda: best.rows(ROWS)),
    "samples": (lambda: samples.chart(SAMPLES), samples.live, samples.DATASET, lambda: samples.rows(SAMPLES)),
    "timeline": (
        lambda: timeline.chart({"measured": SPANS}), timeline.live, timeline.DATASET,
        lambda: timeline.rows({"measured": SPANS}),
    ),
    "parting": (
        lambda: parting.chart(LATER, SPANS), parting.live, parting.DATASET, lambda: parting.rows(LATER, SPANS),
    ),
    "waterfall": (
        lambda: waterfall.chart({"floor": 0.04}, 0.06), waterfall.live, waterfall.DATASET,
        lambda: waterfall.rows({"floor": 0.04}, 0.06),
    ),
    "landscape": (
        lambda: landscape.chart(ROWS, "slice_tiles", "tile"), lambda: landscape.live("slice_tiles", "tile"),
        landscape.DATASET, lambda: landscape.rows(ROWS, "slice_tiles", "tile"),
    ),
    "sweep": (
        lambda: sweep.chart(ROWS, "slice_tiles"), lambda: sweep.live("slice_tiles", (1, 8)), sweep.DATASET,
        lambda: sweep.rows(ROWS, "slice_tiles"),
    ),
    "pair": (lambda: pair.chart(PAIR), pair.live, pair.DATASET, lambda: pair.rows(PAIR)),
}  # fmt: skip


def scaled_rows(scale: float) -> list[dict[str, Any]]:
    """Times of tens of milliseconds, or of *scale* of that."""

    def row(key: str, time_s: float, slices: int) -> dict[str, Any]:
        axes = {"tile": "t", "slice_tiles": slices}
        return made_row(key, scale * time_s, axes=axes, floor_s=scale * 0.043, sequential_s=scale * 0.085)

    return [row("a", 0.06, 1), row("b", 0.05, 2), row("c", 0.055, 4)]


SCALED: dict[str, Callable[[float], alt.LayerChart]] = {
    "trials": lambda scale: trials.chart(scaled_rows(scale)),
    "best": lambda scale: best.chart(scaled_rows(scale)),
    "samples": lambda scale: samples.chart(
        [Sample("k", rank, index, scale * (0.06 + 0.01 * index), 0.0) for rank in range(2) for index in range(3)]
    ),
    "timeline": lambda scale: timeline.chart({"measured": [made_span("0/compute/-1/0", 0.0, scale * 0.05)]}),
    "parting": lambda scale: parting.chart(
        [made_span("0/compute/-1/0", 0.0, scale * 0.05)], [made_span("0/compute/-1/0", 0.0, scale * 0.03)]
    ),
    "waterfall": lambda scale: waterfall.chart({"floor": scale * 0.04}, scale * 0.06),
    "landscape": lambda scale: landscape.chart(scaled_rows(scale), "slice_tiles", "tile"),
    "sweep": lambda scale: sweep.chart(scaled_rows(scale), "slice_tiles"),
    "pair": lambda scale: pair.chart(dict(zip(("baseline", "selected"), scaled_rows(scale), strict=False))),
    "pareto": lambda scale: pareto.chart(scaled_rows(scale), "world", "Ranks"),
    "waterfall of two": lambda scale: waterfall.chart_of_two(*schedules(scale)),
}

every_chart = pytest.mark.parametrize("name", CHARTS)


@pytest.fixture(autouse=True)
def plain_theme() -> Iterator[None]:
    yield
    alt.theme.enable("default")


@every_chart
def test_the_title_is_a_question_and_it_is_described_for_who_cannot_see_it(name: str) -> None:
    spec = CHARTS[name][0]().to_dict()
    assert spec["title"]["text"].endswith("?")
    assert spec["description"].endswith(".")


@pytest.mark.slow(keeps=13)
@every_chart
@pytest.mark.parametrize(("scale", "unit", "others"), [(1.0, "ms", ("µs", "s")), (1e-3, "µs", ("ms", "ns"))])
def test_a_time_has_the_unit_of_its_values_on_every_axis_and_legend(
    name: str, scale: float, unit: str, others: tuple[str, ...]
) -> None:
    drawn = svg(SCALED[name](scale))
    labels = re.findall(r">([\d.,]+) ?(ns|µs|ms|s)<", drawn)
    assert labels, "no axis or legend has labels with a unit"
    assert {found for _, found in labels} == {unit}
    assert not [number for number, _ in labels if 0 < float(number.replace(",", "")) < 0.01], "small fractions"
    assert not [other for other in others if re.search(rf"[ (]in {other}\b", drawn)]


@pytest.mark.slow(keeps=11)
@every_chart
@pytest.mark.parametrize("mode", list(theme.Mode))
def test_it_draws_in_light_and_dark(name: str, mode: theme.Mode) -> None:
    theme.enable(mode)
    drawn = svg(CHARTS[name][0]())
    assert theme.INKS[mode].text in drawn


@pytest.mark.slow(keeps=3)
@every_chart
def test_live_it_names_one_dataset_without_rows_and_draws_the_same_marks(name: str) -> None:
    chart, live, dataset, rows = CHARTS[name]
    spec = live().to_dict()
    assert spec["data"] == {"name": dataset}
    assert not spec.get("datasets")
    spoken = re.compile(r'aria-label="[^"]*"')
    drawn, grown = (set(spoken.findall(text)) for text in (svg(chart()), svg(live(), {dataset: rows()})))
    said = {
        label for label in drawn if " legend " not in label and "axis" not in label and "title" not in label.lower()
    }
    assert said
    assert said <= grown


@every_chart
def test_it_draws_before_the_first_row_has_come(name: str) -> None:
    _, live, dataset, _ = CHARTS[name]
    assert "<svg" in svg(live(), {dataset: []})


ALLOWED = ("workbench.charts", "workbench.naming", "workbench.results.rows", "workbench.results.timelines",
           "workbench.results.deltas", "workbench.results.columns")  # fmt: skip


def test_charts_import_no_store_no_widgets_and_no_cluster() -> None:
    folder = Path(trials.__file__).parent
    found = {
        (path.name, node.module)
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        and node.module.startswith(("workbench.", "cluster", "ipywidgets", "anywidget"))
        and not node.module.startswith(ALLOWED)
    }  # fmt: skip
    assert not found
