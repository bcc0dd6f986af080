"""A live chart keeps its rows, tells the browser what is new in few messages, and hands clicks to Python."""

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
import pytest
from altair.utils.selection import IntervalSelection, PointSelection

from workbench.widgets import live_chart
from workbench.widgets.live_chart import Click, LiveChart

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
    shown, result = notebook.cells[0].outputs
    assert "application/vnd.jupyter.widget-view+json" in shown["data"]
    assert result["data"]["text/plain"] == "100"
