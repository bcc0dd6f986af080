"""What of a notebook needs no kernel is kept; charts are found in every form that Altair gives them."""

from __future__ import annotations

from copy import deepcopy

import altair as alt
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from workbench.reports.pictures import ALT_TEXT, CHART, PICTURE, bundle, specification
from workbench.reports.render import SCRIPT, WIDGET, frozen

VIEW = {WIDGET: {"model_id": "a", "version_major": 2, "version_minor": 0}, ALT_TEXT: "VBox()"}


def notebook(*outputs: dict) -> NotebookNode:
    return new_notebook(cells=[new_code_cell(outputs=[new_output("display_data", data) for data in outputs])])


def kept(*outputs: dict) -> list[NotebookNode]:
    return [output.data for output in frozen(notebook(*outputs)).cells[0].outputs]


def test_a_bundle_stays_a_bundle(chart: alt.Chart) -> None:
    (data,) = kept(bundle(chart))
    assert set(data) == {CHART, PICTURE, ALT_TEXT}


def test_the_page_that_altair_writes_by_default_becomes_a_bundle(chart: alt.Chart) -> None:
    with alt.renderers.enable("default"):
        (data,) = kept({**chart._repr_mimebundle_(), ALT_TEXT: "alt.Chart(...)"})
    assert data[CHART]["mark"] == {"type": "bar"}
    assert data[ALT_TEXT].startswith("Times on")


@pytest.mark.parametrize("mime", ["application/vnd.vegalite.v5+json", "application/vnd.vegalite.v6.json+json"])
def test_a_chart_without_a_picture_gets_one(chart: alt.Chart, mime: str) -> None:
    (data,) = kept({mime: specification(chart)})
    assert (PICTURE in data) is mime.endswith("v5+json")


def test_a_chart_that_cannot_be_drawn_becomes_its_sentence() -> None:
    (data,) = kept({CHART: {"data": {"url": "https://example.org/a.csv"}, "mark": "bar"}})
    assert set(data) == {ALT_TEXT}
    assert "example.org/a.csv" in data[ALT_TEXT]


def test_live_widgets_are_counted_and_gone() -> None:
    live = notebook(VIEW, {SCRIPT: "alert(1)", ALT_TEXT: "<Javascript>"}, {ALT_TEXT: "3"})
    live.metadata["widgets"] = {"state": {}}
    still = frozen(live)
    assert [output.data for output in still.cells[0].outputs] == [{ALT_TEXT: "3"}]
    assert still.metadata["dropped_widgets"] == 2
    assert "widgets" not in still.metadata


def test_what_a_widget_also_is_on_paper_is_kept() -> None:
    assert kept({**VIEW, "image/png": "AA=="}) == [{ALT_TEXT: "VBox()", "image/png": "AA=="}]


def test_the_notebook_itself_is_not_changed(chart: alt.Chart) -> None:
    original = notebook(VIEW, bundle(chart))
    before = deepcopy(original)
    frozen(original)
    assert original == before
