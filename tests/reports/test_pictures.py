"""Charts as pictures: a mime bundle in which names stay text, titles that fit, colours that follow the page."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pandas as pd
import pytest

from workbench.charts import theme
from workbench.reports.pictures import (
    ALT_TEXT,
    CHART,
    PAGE,
    PAPER,
    PICTURE,
    WIDTH,
    alt_text,
    bundle,
    enable_renderer,
    inked,
    paper_wide,
    picture,
    plain,
    specification,
    wrapped,
)

# A chart as a mime bundle: what is in it, and that a name in it stays text.


def test_a_bundle_is_a_specification_a_picture_and_a_line(chart: alt.Chart) -> None:
    data = bundle(chart)
    assert set(data) == {CHART, PICTURE, ALT_TEXT}
    assert json.loads(json.dumps(data[CHART], allow_nan=False)) == data[CHART]
    assert ElementTree.fromstring(data[PICTURE]).tag.endswith("svg")
    assert "\n" not in data[ALT_TEXT]


def test_a_picture_follows_a_dark_page_where_the_page_is_seen_behind_it(chart: alt.Chart) -> None:
    """In each ink of the rules something is drawn; an author's own background stays under an author's own ink."""
    drawn = bundle(chart, themed=True)[PICTURE]
    assert theme.dark_page_rules() in drawn.partition("<g")[0].replace("&quot;", '"')
    for ink in (theme.INKS[theme.Mode.LIGHT].text, theme.INKS[theme.Mode.LIGHT].faint):
        assert f'="{ink}"' in drawn.partition("</style>")[2], "the renderer writes colours as the rules name them"
    assert "<style>" not in bundle(chart.properties(background="#ffffff"), themed=True)[PICTURE]


def test_a_name_with_markup_is_text_in_the_picture(chart: alt.Chart, markup: str) -> None:
    root = ElementTree.fromstring(bundle(chart)[PICTURE])
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert any(markup in (element.text or "") for element in root.iter())


def test_a_chart_may_have_more_rows_than_altair_allows(chart: alt.Chart) -> None:
    many = alt.Chart(pd.DataFrame({"a": range(6000)})).mark_point().encode(x="a")
    assert sum(map(len, specification(many)["datasets"].values())) == 6000
    with pytest.raises(alt.MaxRowsError):
        many.to_dict()


def test_rows_that_arrived_live_are_put_into_the_specification() -> None:
    live = alt.Chart(alt.NamedData("samples")).mark_point().encode(x="at:Q", y="s:Q")
    data = bundle(live, datasets={"samples": [{"at": np.int64(1), "s": np.float64(0.5)}, {"at": 2, "s": float("nan")}]})
    assert data[CHART]["datasets"]["samples"] == [{"at": 1, "s": 0.5}, {"at": 2, "s": None}]
    assert "2 rows" in data[ALT_TEXT]


def test_what_json_cannot_hold_becomes_what_it_can() -> None:
    held = plain({1: [np.float32(0.5), float("inf"), True, (np.int32(3),)], "at": pd.Timestamp("2025-01-02")})
    assert held == {"1": [0.5, None, True, [3]], "at": "2025-01-02 00:00:00"}


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"description": "two\nlines", "mark": "bar"}, "two lines"),
        ({"mark": "bar"}, "bar chart"),
        ({"title": ["A", "B"], "mark": {"type": "point"}}, "A B: point chart"),
        (
            {
                "title": {"text": "T"},
                "layer": [
                    {"mark": "bar", "encoding": {"x": {"field": "ms", "title": "Time (ms)"}, "y": {"field": "scheme"}}},
                    {"mark": "rule", "encoding": {"color": {"field": "source"}}},
                ],
                "datasets": {"d": [{}, {}]},
            },
            "T: bar and rule chart of scheme over Time (ms) by source, 2 rows",
        ),
    ],
)
def test_the_line_says_what_is_drawn(spec: dict, line: str) -> None:
    assert alt_text(spec) == line


def test_data_at_an_address_is_refused_with_the_address() -> None:
    spec = {"data": {"url": "https://example.org/rows.csv"}, "mark": "bar", "title": "Far"}
    with pytest.raises(ValueError, match=r"'Far' cannot be drawn.*example\.org/rows\.csv.*Accepted"):
        picture(spec)


def test_a_chart_as_wide_as_its_page_has_a_width_in_its_picture() -> None:
    spec = {"data": {"values": [{"a": 1}]}, "mark": "bar", "width": "container", "encoding": {"x": {"field": "a"}}}
    assert float(ElementTree.fromstring(picture(spec)).get("width", 0)) > 700


def test_charts_that_end_a_cell_show_as_bundles_once_enabled(chart: alt.Chart) -> None:
    before = alt.renderers.active
    try:
        enable_renderer()
        assert set(chart._repr_mimebundle_()) == {CHART, PICTURE, ALT_TEXT}
    finally:
        alt.renderers.enable(before)


# Titles end before their plot does, and a plot is as wide as its column unless its author said otherwise.

LONG = "How long does each of these many trials take, in milliseconds, " * 4


def lines(spec: dict[str, Any], key: str = "text") -> list[str]:
    return wrapped(spec)["title"][key]


def test_a_long_title_is_broken_into_lines_and_loses_no_word() -> None:
    found = lines({"title": LONG, "width": 300})
    assert len(found) > 3
    assert " ".join(found).split() == LONG.split()
    assert max(map(len, found)) * 7 < 300


def test_subtitles_are_broken_too_and_keep_their_own_lines() -> None:
    found = lines({"title": {"text": "T", "subtitle": ["first", LONG]}, "width": 400}, "subtitle")
    assert found[0] == "first"
    assert len(found) > 3


def test_titles_of_plots_side_by_side_are_broken_to_their_own_width() -> None:
    spec = {"title": LONG, "hconcat": [{"title": LONG, "width": 200}, {"width": 400}]}
    whole = wrapped(spec)
    assert len(whole["title"]["text"]) < len(whole["hconcat"][0]["title"]["text"])


def test_a_plot_without_a_width_gets_the_columns() -> None:
    assert paper_wide({"mark": "bar"})["width"] == WIDTH
    assert paper_wide({"mark": "bar", "width": 100})["width"] == 100
    assert "width" not in paper_wide({"facet": {}, "spec": {"mark": "bar"}})


# Colours of a chart that are not data follow the page; colours of data never change.


def test_an_authors_ink_is_replaced_wherever_it_stands() -> None:
    spec = {"layer": [{"encoding": {"x": {"axis": {"labelColor": "#fff"}}}}], "title": {"text": "T", "color": "#fff"}}
    painted = inked(spec, PAPER)
    assert painted["layer"][0]["encoding"]["x"]["axis"]["labelColor"] == PAPER["ink-soft"]
    assert painted["title"] == {"text": "T", "color": PAPER["ink"]}


def test_colours_of_data_and_rows_are_left_alone() -> None:
    mark = {"type": "bar", "color": "#123456"}
    rows = {"d": [{"labelColor": "#fff", "title": {"color": "#fff"}}]}
    painted = inked({"mark": mark, "datasets": rows, "data": {"values": [{"tickColor": "a"}]}}, PAPER)
    assert (painted["mark"], painted["datasets"]) == (mark, rows)
    assert painted["data"] == {"values": [{"tickColor": "a"}]}


@pytest.mark.parametrize("ink", [PAGE, PAPER])
@pytest.mark.parametrize("mode", list(theme.Mode))
def test_a_chart_made_for_either_mode_keeps_no_ink_of_it(mode: theme.Mode, ink: dict[str, str]) -> None:
    own = theme.INKS[mode]
    config = inked({"mark": "bar", "config": theme.config(mode)}, ink)["config"]
    assert not {own.text, own.faint, own.grid} & set(_strings(config))


def test_what_an_author_set_otherwise_is_kept() -> None:
    config = inked({"config": {"font": "Own", "axis": {"labelFontSize": 20}}}, PAPER)["config"]
    assert (config["font"], config["axis"]["labelFontSize"]) == ("Own", 20)


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for entry in value.values() for text in _strings(entry)]
    return [value] if isinstance(value, str) else []
