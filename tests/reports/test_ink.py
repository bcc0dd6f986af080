"""Colours of a chart that are not data follow the page; colours of data never change."""

from __future__ import annotations

import pytest

from workbench.charts import theme
from workbench.reports.pictures import PAGE, PAPER, inked


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
