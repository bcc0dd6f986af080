"""A live chart: rows go out in few messages, specifications need no theme, Vega is sent once, clicks come back."""

import datetime
import gzip
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import altair as alt
import nbclient
import nbformat
import numpy as np
import pandas as pd
import pytest
from altair.utils.selection import IntervalSelection, PointSelection

from tests.charts.test_every_chart import CHARTS
from workbench.charts import scale_out, theme
from workbench.reports.pictures import KEPT
from workbench.widgets import live_chart
from workbench.widgets.live_chart import FIRST_WIDTH, Click, LiveChart, LiveRows, encode, live_spec, ready, records
from workbench.widgets.live_chart import message as live_chart_message

# A live chart keeps its rows, tells the browser what is new in few messages, and hands clicks to Python.

Message = dict[str, list[int]]
"""Of each dataset that a message is about: generation, first row, the rows' x."""


def points(*names: str) -> alt.TopLevelMixin:
    return alt.layer(*(alt.Chart(alt.NamedData(name)).mark_point().encode(x="x:Q") for name in names))


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"x": number} for number in numbers]


class Wire:
    """What a chart sent, as the browser would read it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        assert content["kind"] == "rows"
        self.messages.append(
            {
                part["name"]: (part["generation"], part["start"], [row["x"] for row in json.loads(buffer)])
                for part, buffer in zip(content["datasets"], buffers, strict=True)
            }
        )

    def wait(self, until: Callable[[list[dict[str, Any]]], bool], deadline_s: float = 60.0) -> list[dict[str, Any]]:
        """The messages, once *until* is true of them."""
        deadline = time.monotonic() + deadline_s
        while not until(self.messages):
            assert time.monotonic() < deadline, f"after {deadline_s} s there was only {self.messages}"
            time.sleep(0.005)
        return self.messages


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr("workbench.widgets.live_chart.send_once", lambda: None)
    monkeypatch.setattr(LiveChart, "send", lambda _chart, content, buffers: wire.send(content, buffers))
    return wire


@pytest.fixture
def make(wire: Wire) -> Iterator[Callable[..., LiveChart]]:
    """Makes charts that are closed afterwards."""
    made: list[LiveChart] = []

    def make_chart(*names: str, **options: Any) -> LiveChart:
        made.append(LiveChart(points(*(names or ("samples",))), **options))
        return made[-1]

    yield make_chart
    for chart in made:
        chart.close()


Make = Callable[..., LiveChart]


def test_the_first_rows_leave_at_once(make: Make, wire: Wire) -> None:
    make().append("samples", rows(1, 2))
    assert wire.messages == [{"samples": (1, 0, [1, 2])}]


def test_rows_in_quick_succession_travel_together(make: Make, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_chart, "MESSAGE_INTERVAL_S", 0.2)
    chart = make("samples", "floor")
    chart.append("samples", rows(0))
    for number in range(1, 50):
        chart.append("samples", rows(number))
    chart.append("floor", rows(7))
    first, second = wire.wait(lambda messages: len(messages) > 1)
    assert first == {"samples": (1, 0, [0]), "floor": (2, 0, [])}
    assert second == {"samples": (1, 1, list(range(1, 50))), "floor": (2, 0, [7])}


def test_of_replacements_in_quick_succession_the_last_is_sent(
    make: Make, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_chart, "MESSAGE_INTERVAL_S", 0.2)
    chart = make()
    for number in range(20):
        chart.replace("samples", rows(number))
    assert wire.wait(lambda messages: len(messages) > 1) == [{"samples": (2, 0, [0])}, {"samples": (21, 0, [19])}]


def test_a_replacement_by_nothing_is_sent_too(make: Make, wire: Wire) -> None:
    chart = make()
    chart.append("samples", rows(1))
    chart.replace("samples", [])
    assert wire.wait(lambda messages: len(messages) > 1)[-1] == {"samples": (2, 0, [])}
    assert chart.rows("samples") == []


def test_rows_from_many_threads_all_arrive_in_an_unbroken_row(make: Make, wire: Wire) -> None:
    chart = make()
    threads = [
        threading.Thread(target=lambda: [chart.append("samples", rows(1)) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    end = 0
    for message in wire.wait(lambda messages: sum(len(message["samples"][2]) for message in messages) >= 800):
        _, start, numbers = message["samples"]
        assert start == end
        end += len(numbers)
    assert end == 800


def test_only_the_newest_max_rows_are_kept(make: Make) -> None:
    chart = make(max_rows=3)
    for number in range(10):
        chart.append("samples", rows(number))
    assert chart.rows("samples") == rows(7, 8, 9)


def test_a_page_that_opens_late_gets_everything_and_one_that_has_it_gets_nothing(make: Make, wire: Wire) -> None:
    chart = make("samples", "floor")
    chart.append("samples", rows(1, 2))
    wire.messages.clear()
    chart._receive(chart, {"kind": "hello", "have": {}}, [])
    assert wire.messages == [{"samples": (1, 0, [1, 2]), "floor": (2, 0, [])}]
    wire.messages.clear()
    chart._receive(chart, {"kind": "hello", "have": {"samples": [1, 2], "floor": [2, 0]}}, [])
    assert wire.messages == []


def test_another_chart_keeps_the_rows_of_the_datasets_it_shares(make: Make, wire: Wire) -> None:
    chart = make("samples", "floor")
    chart.append("samples", rows(1))
    chart.show(points("samples", "ceiling"))
    assert chart.rows("samples") == rows(1)
    assert chart.rows("ceiling") == []
    with pytest.raises(ValueError, match=r"has no dataset 'floor'\. Accepted: samples, ceiling"):
        chart.append("floor", rows(1))
    assert wire.messages[0] == {"samples": (1, 0, [1]), "floor": (2, 0, [])}


@pytest.mark.parametrize("method", ["append", "replace"])
def test_an_unknown_dataset_is_refused_with_the_known_ones(make: Make, method: str) -> None:
    with pytest.raises(ValueError, match=r"has no dataset 'sample'\. Accepted: samples"):
        getattr(make(), method)("sample", rows(1))


def test_a_click_reaches_python_as_one_value(make: Make) -> None:
    chart = make()
    clicks: list[Click] = []
    chart.on_click(clicks.append)
    chart._receive(chart, {"kind": "click", "datum": {"x": 1}, "layer": "points", "shift": True}, [])
    assert clicks == [Click(datum={"x": 1}, layer="points", shift=True)]
    chart.on_click(clicks.append, remove=True)
    chart._receive(chart, {"kind": "click", "datum": {"x": 2}, "layer": "", "shift": False}, [])
    assert len(clicks) == 1


def test_selections_arrive_as_altairs_own_and_the_browser_tells_only_when_somebody_listens(make: Make) -> None:
    chart = make()
    assert chart._listening is False
    selections: list[Any] = []
    chart.on_selection(selections.append)
    assert chart._listening is True
    told = {"kind": "selection", "store": []}
    chart._receive(chart, {**told, "name": "pin", "type": "point", "value": [{"scheme": "fused"}]}, [])
    chart._receive(chart, {**told, "name": "brush", "type": "interval", "value": {"x": [0, 1]}}, [])
    assert selections == [
        PointSelection(name="pin", value=[{"scheme": "fused"}], store=[]),
        IntervalSelection(name="brush", value={"x": [0, 1]}, store=[]),
    ]


def test_a_chart_that_is_closed_takes_rows_without_complaint(make: Make) -> None:
    chart = make()
    chart.close()
    chart.append("samples", rows(1))
    assert chart.rows("samples") == rows(1)


@pytest.mark.slow
def test_a_kernel_without_a_browser_runs_a_notebook_with_a_live_chart(tmp_path: Path) -> None:
    source = """
import threading
import altair as alt
from workbench.widgets.live_chart import LiveChart
chart = LiveChart(alt.Chart(alt.NamedData("samples"), title="Headless").mark_point().encode(x="x:Q"))
display(chart)
thread = threading.Thread(target=lambda: [chart.append("samples", [{"x": x}]) for x in range(100)])
thread.start(); thread.join(timeout=100)
chart.show(alt.Chart(alt.NamedData("samples")).mark_bar().encode(x="x:Q"))
len(chart.rows("samples"))
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    client = nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3")
    here = str(Path(__file__).parents[2])
    client.execute(env={**os.environ, "PYTHONPATH": here, "XDG_CACHE_HOME": str(tmp_path)})
    shown, kept, result = notebook.cells[0].outputs
    assert [len(rows) for rows in kept["data"][KEPT]["datasets"].values()] == [100]
    assert kept["data"][KEPT]["mark"]["type"] == "bar"
    assert "application/vnd.jupyter.widget-view+json" in shown["data"]
    assert result["data"]["text/plain"] == "100"


# Rows go in as they come, and out as messages in which none can be lost unnoticed.


def numbers(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"x": number} for number in range(start, stop)]


def filled(*sizes: int, max_rows: int = 10) -> LiveRows:
    rows = LiveRows(generation=3, max_rows=max_rows)
    for size in sizes:
        rows.add(numbers(rows.end, rows.end + size))
    return rows


def test_a_message_names_each_dataset_and_carries_its_rows_as_one_json_buffer() -> None:
    content, buffers = live_chart_message([("samples", filled(2), 0), ("bounds", filled(1), 0)])
    assert content == {
        "kind": "rows",
        "datasets": [
            {"name": "samples", "generation": 3, "start": 0, "whole": True},
            {"name": "bounds", "generation": 3, "start": 0, "whole": True},
        ],
    }
    assert [json.loads(buffer) for buffer in buffers] == [numbers(0, 2), numbers(0, 1)]


def test_a_message_of_news_begins_where_the_last_one_ended() -> None:
    rows = filled(3, 2)
    content, (buffer,) = live_chart_message([("samples", rows, 3)])
    assert content["datasets"] == [{"name": "samples", "generation": 3, "start": 3, "whole": False}]
    assert json.loads(buffer) == numbers(3, 5)


def test_rows_added_together_travel_together_and_their_start_says_so() -> None:
    start, encoded = filled(3, 4).since(5)
    assert (start, json.loads(encoded)) == (3, numbers(3, 7))


@pytest.mark.parametrize("sizes", [(25,), (4, 4, 4, 4), (10, 1), (1,) * 30])
def test_the_newest_max_rows_rows_are_kept(sizes: tuple[int, ...]) -> None:
    rows = filled(*sizes)
    total = sum(sizes)
    assert rows.end == total
    assert rows.newest() == numbers(total - 10, total)
    assert total - 10 - max(sizes) < rows.start <= total - 10
    start, encoded = rows.since(0)
    assert (start, json.loads(encoded)[0]) == (rows.start, {"x": rows.start})


def test_a_dataset_without_rows_is_announced_with_an_empty_list() -> None:
    content, buffers = live_chart_message([("samples", filled(0), 0)])
    assert content["datasets"] == [{"name": "samples", "generation": 3, "start": 0, "whole": True}]
    assert buffers == [b"[]"]


def test_numpy_numbers_and_times_become_what_vega_draws() -> None:
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    row = {"rank": np.int64(1), "seconds": np.float32(0.5), "at": at, "day": pd.Timestamp(at), "ok": np.bool_(True)}
    milliseconds = 1704067200000.0
    assert json.loads(encode([row])) == {
        "rank": 1,
        "seconds": 0.5,
        "at": milliseconds,
        "day": milliseconds,
        "ok": True,
    }


@pytest.mark.parametrize("nothing", [float("nan"), float("inf"), np.float64("nan"), None, pd.NaT])
def test_what_is_not_a_number_becomes_null(nothing: object) -> None:
    assert encode([{"low_s": nothing}, {"low_s": 1}]) == '{"low_s":null},{"low_s":1}'


def test_a_frame_is_taken_row_by_row() -> None:
    frame = pd.DataFrame({"scheme": ["fused", "sequential"], "time_s": [0.5, float("nan")]})
    assert encode(records(frame)) == '{"scheme":"fused","time_s":0.5},{"scheme":"sequential","time_s":null}'


def test_markup_in_a_name_stays_text() -> None:
    name = "<img src=x onerror=alert(1)>"
    assert json.loads(encode([{"name": name}])) == {"name": name}


def test_one_row_instead_of_rows_is_refused_with_what_would_be_accepted() -> None:
    with pytest.raises(ValueError, match=r"Accepted: a list, \[row\]"):
        records({"x": 1})


def test_something_that_is_no_row_is_refused_by_its_type() -> None:
    with pytest.raises(ValueError, match=r"^A row is 3, a int\. Accepted: mappings from column to value\.$"):
        records([{"x": 1}, 3])


def test_a_value_that_cannot_be_drawn_is_refused_when_it_is_appended() -> None:
    with pytest.raises(ValueError, match=r"a row holds \{1\}, a set; a live chart draws numbers"):
        filled().add([{"x": {1}}])


# A chart becomes Vega-Lite without a theme, with the names of its datasets and a label that can be read aloud.

SAMPLES = alt.NamedData("samples")


def live_spec_points(**properties: object) -> alt.Chart:
    return alt.Chart(SAMPLES, **properties).mark_point().encode(x="x:Q", y="y:Q")


def test_an_enabled_theme_stays_out_because_the_browser_adds_its_mode() -> None:
    before = alt.theme.active
    theme.enable(theme.Mode.DARK)
    try:
        assert "config" not in live_spec(live_spec_points()).spec
    finally:
        alt.theme.enable(before)


def test_a_configuration_of_the_charts_own_is_kept() -> None:
    assert live_spec(live_spec_points().configure_axis(grid=False)).spec["config"] == {"axis": {"grid": False}}


@pytest.mark.slow
def test_charts_of_ours_are_read_once_and_need_no_check() -> None:
    for live in (*(live for _, live, _, _ in CHARTS.values()), scale_out.live):
        assert ready(live) == live_spec(live())
        assert ready(live) is ready(live)


def test_a_chart_of_somebody_else_is_checked() -> None:
    wrong = live_spec_points()
    wrong.mark = {"type": "no mark"}
    with pytest.raises(alt.utils.schemapi.SchemaValidationError):
        live_spec(wrong)


def test_named_datasets_are_found_in_every_layer_and_lookup() -> None:
    looked_up = live_spec_points().transform_lookup("x", alt.LookupData(alt.NamedData("bounds"), "x", ["low"]))
    chart = alt.layer(looked_up, alt.Chart(alt.NamedData("floor")).mark_rule().encode(y="y:Q"))
    assert set(live_spec(chart).datasets) == {"samples", "bounds", "floor"}


def test_a_dataset_that_brings_its_rows_is_not_waited_for() -> None:
    still = alt.Chart(pd.DataFrame({"y": [1.0]})).mark_rule().encode(y="y:Q")
    read = live_spec(live_spec_points() + still)
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
    assert live_spec(live_spec_points(**properties)).label == label


def test_a_single_chart_takes_the_width_of_its_cell() -> None:
    read = live_spec(live_spec_points())
    assert (read.stretch, read.spec["width"]) == ("whole", FIRST_WIDTH)


def test_the_title_is_left_to_the_page_where_it_wraps_and_takes_no_width_from_the_plot() -> None:
    read = live_spec(live_spec_points(title=alt.Title("Time", subtitle=["2 ranks", "by pieces"])))
    assert "title" not in read.spec
    assert (read.title, read.subtitle) == (("Time",), ("2 ranks", "by pieces"))
    assert read.to_json()["subtitle"] == ["2 ranks", "by pieces"]


def test_charts_one_under_the_other_and_rows_of_facets_take_it_as_children() -> None:
    column = live_spec(alt.vconcat(live_spec_points(), live_spec_points() + live_spec_points()))
    assert column.stretch == "children"
    assert [child["width"] for child in column.spec["vconcat"]] == [FIRST_WIDTH, FIRST_WIDTH]
    rows = live_spec(live_spec_points().encode(row="rank:N"))
    assert (rows.stretch, rows.spec["width"]) == ("children", FIRST_WIDTH)
    facets = live_spec((live_spec_points() + live_spec_points()).facet(row="rank:N"))
    assert (facets.stretch, facets.spec["spec"]["width"]) == ("children", FIRST_WIDTH)


@pytest.mark.parametrize(
    "chart",
    [
        live_spec_points(width=300),
        live_spec_points() | live_spec_points(),
        live_spec_points().encode(column="rank:N"),
        alt.vconcat(live_spec_points(width=9), live_spec_points()),
    ],
)
def test_a_width_that_was_chosen_or_shared_is_left_alone(chart: alt.TopLevelMixin) -> None:
    assert live_spec(chart).stretch == "none"
    assert live_spec(chart).spec.get("width") in {None, 300}


# Vega is bundled once per machine and sent once per kernel.


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The snippets that were bundled; bundling itself takes a second and is not what is tested."""
    made: list[str] = []

    def javascript_bundle(snippet: str, vl_version: str) -> str:
        made.append(snippet)
        return f"/* Vega-Lite {vl_version} */ {snippet}"

    monkeypatch.setattr("vl_convert.javascript_bundle", javascript_bundle)
    return made


@pytest.fixture
def nothing_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(live_chart, "_sent", None)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    yield
    if live_chart._sent is not None:
        live_chart._sent.close()


def test_a_bundle_is_made_once_and_read_from_disk_afterwards(bundled: list[str], tmp_path: Path) -> None:
    first = live_chart.bundle(tmp_path / "cache")
    assert live_chart.bundle(tmp_path / "cache") == first
    assert len(bundled) == 1
    assert b"export { vegaEmbed }" in gzip.decompress(first)


def test_a_cache_that_cannot_be_written_costs_time_but_not_the_chart(bundled: list[str], tmp_path: Path) -> None:
    occupied = tmp_path / "a file where the folder should be"
    occupied.touch()
    assert live_chart.bundle(occupied) == live_chart.bundle(occupied)
    assert len(bundled) == 2


@pytest.mark.usefixtures("bundled", "nothing_sent")
def test_a_second_chart_sends_nothing_and_a_page_that_asks_gets_it_again() -> None:
    live_chart.send_once()
    sent = live_chart._sent
    live_chart.send_once()
    assert live_chart._sent is sent
    live_chart.send_again()
    assert live_chart._sent is not sent
    assert live_chart._sent is not None
    assert live_chart._sent.comm is not None
