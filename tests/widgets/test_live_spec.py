"""A chart becomes Vega-Lite without a theme, with the names of its datasets and a label that can be read aloud."""

import altair as alt
import pandas as pd
import pytest

from tests.charts.test_every_chart import CHARTS
from workbench.charts import scale_out, theme
from workbench.widgets.live_chart import FIRST_WIDTH, live_spec, ready

SAMPLES = alt.NamedData("samples")


def points(**properties: object) -> alt.Chart:
    return alt.Chart(SAMPLES, **properties).mark_point().encode(x="x:Q", y="y:Q")


def test_an_enabled_theme_stays_out_because_the_browser_adds_its_mode() -> None:
    before = alt.theme.active
    theme.enable(theme.Mode.DARK)
    try:
        assert "config" not in live_spec(points()).spec
    finally:
        alt.theme.enable(before)


def test_a_configuration_of_the_charts_own_is_kept() -> None:
    assert live_spec(points().configure_axis(grid=False)).spec["config"] == {"axis": {"grid": False}}


def test_charts_of_ours_are_read_once_and_need_no_check() -> None:
    for live in (*(live for _, live, _, _ in CHARTS.values()), scale_out.live):
        assert ready(live) == live_spec(live())
        assert ready(live) is ready(live)


def test_a_chart_of_somebody_else_is_checked() -> None:
    wrong = points()
    wrong.mark = {"type": "no mark"}
    with pytest.raises(alt.utils.schemapi.SchemaValidationError):
        live_spec(wrong)


def test_named_datasets_are_found_in_every_layer_and_lookup() -> None:
    looked_up = points().transform_lookup("x", alt.LookupData(alt.NamedData("bounds"), "x", ["low"]))
    chart = alt.layer(looked_up, alt.Chart(alt.NamedData("floor")).mark_rule().encode(y="y:Q"))
    assert set(live_spec(chart).datasets) == {"samples", "bounds", "floor"}


def test_a_dataset_that_brings_its_rows_is_not_waited_for() -> None:
    still = alt.Chart(pd.DataFrame({"y": [1.0]})).mark_rule().encode(y="y:Q")
    read = live_spec(points() + still)
    assert read.datasets == ("samples",)
    assert list(read.spec["datasets"].values()) == [[{"y": 1.0}]]


@pytest.mark.parametrize(
    ("properties", "label"),
    [
        ({}, "Chart"),
        ({"title": "Time"}, "Time"),
        ({"title": ["Time", "by pieces"]}, "Time by pieces"),
        ({"title": alt.Title("Time", subtitle="2 ranks"), "description": "U-curve"}, "Time. 2 ranks. U-curve"),
    ],
)
def test_the_label_says_title_and_description(properties: dict[str, object], label: str) -> None:
    assert live_spec(points(**properties)).label == label


def test_a_single_chart_takes_the_width_of_its_cell() -> None:
    read = live_spec(points())
    assert (read.stretch, read.spec["width"]) == ("whole", FIRST_WIDTH)


def test_the_title_is_left_to_the_page_where_it_wraps_and_takes_no_width_from_the_plot() -> None:
    read = live_spec(points(title=alt.Title("Time", subtitle=["2 ranks", "by pieces"])))
    assert "title" not in read.spec
    assert (read.title, read.subtitle) == (("Time",), ("2 ranks", "by pieces"))
    assert read.to_json()["subtitle"] == ["2 ranks", "by pieces"]


def test_charts_one_under_the_other_and_rows_of_facets_take_it_as_children() -> None:
    column = live_spec(alt.vconcat(points(), points() + points()))
    assert column.stretch == "children"
    assert [child["width"] for child in column.spec["vconcat"]] == [FIRST_WIDTH, FIRST_WIDTH]
    rows = live_spec(points().encode(row="rank:N"))
    assert (rows.stretch, rows.spec["width"]) == ("children", FIRST_WIDTH)
    facets = live_spec((points() + points()).facet(row="rank:N"))
    assert (facets.stretch, facets.spec["spec"]["width"]) == ("children", FIRST_WIDTH)


@pytest.mark.parametrize(
    "chart",
    [points(width=300), points() | points(), points().encode(column="rank:N"), alt.vconcat(points(width=9), points())],
)
def test_a_width_that_was_chosen_or_shared_is_left_alone(chart: alt.TopLevelMixin) -> None:
    assert live_spec(chart).stretch == "none"
    assert live_spec(chart).spec.get("width") in {None, 300}
