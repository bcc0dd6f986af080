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
from workbench.charts import best, landscape, samples, sweep, theme, timeline, trials, waterfall

ROWS = [made_row("a"), estimate_of(made_row("a"), 0.05), made_row("b", None, stage="hang", message="It hung.")]
SPANS = [made_span("0/compute/-1/0", 0.0, 0.01), made_span("0/put/1/0", 0.01, 0.02, lane="link")]
SAMPLES = [Sample("k", rank, index, 0.06, 0.0) for rank in range(2) for index in range(3)]

Drawn = tuple[Callable[[], alt.LayerChart], Callable[[], alt.LayerChart], str, Callable[[], list[dict[str, Any]]]]

CHARTS: dict[str, Drawn] = {
    "trials": (lambda: trials.chart(ROWS), trials.live, trials.DATASET, lambda: trials.rows(ROWS)),
    "best": (lambda: best.chart(ROWS), best.live, best.DATASET, lambda: best.rows(ROWS)),
    "samples": (lambda: samples.chart(SAMPLES), samples.live, samples.DATASET, lambda: samples.rows(SAMPLES)),
    "timeline": (
        lambda: timeline.chart({"measured": SPANS}), timeline.live, timeline.DATASET,
        lambda: timeline.rows({"measured": SPANS}),
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
}  # fmt: skip

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


@every_chart
def test_every_axis_or_legend_of_a_time_names_its_unit(name: str) -> None:
    titles = [
        entry.get("title") or (entry.get("legend") or {}).get("title") for entry in times(CHARTS[name][0]().to_dict())
    ]
    assert titles
    assert all(re.search(r" in (ms|s)\b", title) for title in titles), titles


def times(node: Any) -> Iterator[dict[str, Any]]:
    """Channels with a scale that hold milliseconds."""
    if isinstance(node, dict):
        for channel, entry in node.get("encoding", {}).items():
            if channel in ("x", "y", "color") and "_ms" in str(entry.get("field", "")):
                yield entry
        for entry in node.values():
            yield from times(entry)
    elif isinstance(node, list):
        for entry in node:
            yield from times(entry)


@every_chart
@pytest.mark.parametrize("mode", list(theme.Mode))
def test_it_draws_in_light_and_dark(name: str, mode: theme.Mode) -> None:
    theme.enable(mode)
    drawn = svg(CHARTS[name][0]())
    assert theme.INKS[mode].text in drawn


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


def test_charts_import_no_store_no_widgets_and_no_cluster() -> None:
    folder = Path(trials.__file__).parent
    found = {
        (path.name, node.module)
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        and node.module.startswith(("workbench.", "cluster", "ipywidgets", "anywidget"))
        and not node.module.startswith("workbench.charts")
    }  # fmt: skip
    assert not found
