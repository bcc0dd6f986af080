"""A page in a browser: charts draw and answer, day and night and paper differ, no request leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from workbench.reports.export import executed, export
from workbench.reports.pictures import bundle
from workbench.reports.render import browser

pytestmark = pytest.mark.browser
SETTLED = ".wb-drawn svg.marks, .wb-note:not(:empty)"
TITLE = ".wb-drawn svg.marks .role-title-text text"
WAIT_S = 60.0


@dataclass
class Visit:
    """What a reader sees and what the browser asks for."""

    requests: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    charts: int = 0
    drawn: int = 0
    tooltip: str = ""
    notes: list[str] = field(default_factory=list)
    title_colours: list[str] = field(default_factory=list)
    pictures_on_paper: int = 0
    live_on_paper: int = 0
    paper: str = ""
    pictures_without_script: int = 0


def visit(path: Path) -> Visit:
    """Open *path* by day, then at night, then for the printer, then without JavaScript."""
    # The lab's browser tests may hold Playwright's loop of this thread, so a visit has a thread of its own.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_visit, path).result(timeout=250)


def _visit(path: Path) -> Visit:
    from playwright.sync_api import sync_playwright

    seen = Visit()
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"]) as chromium,
    ):
        view: Any = chromium.new_page(color_scheme="light")
        view.on("request", lambda request: seen.requests.append(request.url))
        view.on("pageerror", lambda error: seen.troubles.append(str(error)))
        view.on("dialog", lambda dialog: seen.troubles.append(f"dialog {dialog.message}"))
        view.on("console", lambda message: message.type == "error" and seen.troubles.append(message.text))
        view.goto(path.as_uri())
        drawn = view.locator(".wb-drawn svg.marks")
        seen.charts = view.locator(".wb-chart").count()
        assert eventually(lambda: view.locator(SETTLED).count() == seen.charts, view)
        seen.drawn, seen.notes = drawn.count(), [note for note in view.locator(".wb-note").all_inner_texts() if note]
        view.locator(".wb-drawn svg.marks .mark-rect path").first.hover()
        view.locator("#vg-tooltip-element.visible").wait_for(timeout=60_000)
        seen.tooltip = view.locator("#vg-tooltip-element").inner_text()
        for scheme in ("light", "dark"):
            view.emulate_media(color_scheme=scheme)
            before = tuple(seen.title_colours)
            assert eventually(lambda: titles_colour(view) not in (None, *before), view)  # noqa: B023 - asked here only
            seen.title_colours.append(titles_colour(view))
        view.emulate_media(media="print", color_scheme="dark")
        seen.pictures_on_paper = view.locator(".wb-still:visible").count()
        seen.live_on_paper = view.locator(".wb-live:visible").count()
        seen.paper = view.evaluate("getComputedStyle(document.body).backgroundColor")
        still: Any = chromium.new_context(java_script_enabled=False).new_page()
        still.goto(path.as_uri())
        seen.pictures_without_script = still.locator(".wb-still:visible").count()
    return seen


def eventually(true: Callable[[], bool], view: Any) -> bool:
    """Asked from outside: the page's policy lets nobody evaluate texts inside."""
    give_up_at = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > give_up_at:
            return False
        view.wait_for_timeout(20)
    return True


def titles_colour(view: Any) -> str | None:
    """Of the first chart that has a title; None while it is drawn."""
    return next((title.get_attribute("fill") for title in view.locator(TITLE).element_handles()), None)


@pytest.fixture
def seen(report: NotebookNode, chart: alt.Chart, markup: str, tmp_path: Path) -> Visit:
    frame = pd.DataFrame({"address": ["https://example.org/i.png"], "v": [1.0]})
    image = alt.Chart(frame).mark_image(width=9, height=9).encode(x="v", url="address")
    added = [bundle(chart.encode(tooltip=["host", "ms"])), bundle(image), {"text/html": f"<b>{markup}</b>"}]
    report.cells[1:1] = [new_code_cell(outputs=[new_output("display_data", data)]) for data in added]
    written = export(report, tmp_path / "report.html", kind="html")
    written.write_text(with_its_last_chart_broken(written.read_text()))
    return visit(written)


def with_its_last_chart_broken(html: str) -> str:
    """*html* after an editor cut its last specification short."""
    before, opening, rest = html.rpartition('<script type="application/json">')
    return before + opening + "{" + rest[rest.index("</script>") :]


@pytest.mark.slow
def test_a_page_draws_its_charts_and_asks_nothing_of_the_network(seen: Visit, markup: str) -> None:
    assert [url for url in seen.requests if not url.startswith(("file:", "data:"))] == []
    assert seen.troubles == []
    assert (seen.charts, seen.drawn) == (5, 4)
    assert len(seen.notes) == 1
    assert seen.notes[0].startswith("Shown as a picture: ")
    assert markup in seen.tooltip


@pytest.mark.slow
def test_a_page_follows_day_and_night_and_is_pictures_on_paper(seen: Visit) -> None:
    day, night = seen.title_colours
    assert day != night
    assert (seen.pictures_on_paper, seen.live_on_paper, seen.paper) == (5, 0, "rgb(255, 255, 255)")
    assert seen.pictures_without_script == 5


LIVE = """
import altair as alt
from workbench.widgets.live_chart import LiveChart
bars = alt.Chart(alt.NamedData("times"), title="How long does each take?").mark_bar()
chart = LiveChart(bars.encode(x="ms:Q", y="scheme:N", tooltip="scheme:N"))
chart
"""


@pytest.mark.slow
def test_a_live_chart_of_a_notebook_is_alive_in_its_report_with_rows_that_came_later(tmp_path: Path) -> None:
    later = """chart.append("times", [{"scheme": "fused", "ms": 3.5}, {"scheme": "sequential", "ms": 5.0}])"""
    notebook = new_notebook(cells=[new_code_cell(LIVE), new_code_cell(later)])
    written = export(executed(notebook, Path.cwd(), deadline_s=300), tmp_path / "lesson.html", kind="html")
    seen = visit(written)
    assert (seen.charts, seen.drawn, seen.notes, seen.troubles) == (1, 1, [], [])
    assert seen.tooltip.strip()
    assert [address for address in seen.requests if not address.startswith(("file:", "data:"))] == []
    text = written.read_text()
    assert '"scheme": "sequential"' in text
    assert "cannot be part of it" not in text
