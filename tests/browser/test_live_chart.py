"""A live chart in a real JupyterLab: it grows without being replaced, follows the theme, and answers clicks."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ElementHandle, Locator

from tests.browser.lab import Lab, Notebook
from workbench.widgets import live_chart

pytestmark = [pytest.mark.browser, pytest.mark.alone]

SETUP = """
import json, threading, time
import altair as alt
from workbench.charts import theme
from workbench.widgets.live_chart import LiveChart

samples = alt.NamedData("samples")
points = alt.Chart(samples, height=120).mark_point(size=150, filled=True).encode(x="x:Q", y="y:Q")

def rows(start, stop):
    return [{"x": x, "y": x % 5, "scheme": "fused"} for x in range(start, stop)]
"""


@pytest.fixture(scope="module")
def notebook(lab: Lab) -> Iterator[Notebook]:
    """One notebook for the tests of this file; each draws its own chart in a new cell."""
    with lab.opened([SETUP]) as opened:
        opened.run_all()
        yield opened


@pytest.fixture(autouse=True)
def nothing_from_outside_and_no_complaint(notebook: Notebook) -> Iterator[None]:
    notebook.page.bring_to_front()  # a page behind another one draws no frames
    yield
    assert notebook.outside == []
    assert notebook.complaints == []


def shown(notebook: Notebook, source: str) -> Locator:
    """The live chart that a new cell with *source* shows."""
    before = notebook.page.locator(".workbench-live-chart").count()
    notebook.add_cell(source)
    figure = notebook.page.locator(".workbench-live-chart").nth(before)
    figure.locator("svg.marks").wait_for(state="attached")
    figure.scroll_into_view_if_needed()
    return figure


def wait_marks(figure: Locator, count: int, kind: str = "symbol") -> Locator:
    """The marks for data, once there are *count* of them."""
    marks = figure.locator(f".mark-{kind}.role-mark path")
    figure.page.wait_for_function(
        "([figure, selector, count]) => figure.querySelectorAll(selector).length === count",
        arg=[figure.element_handle(), f".mark-{kind}.role-mark path", count],
    )
    return marks


def drawing(figure: Locator) -> ElementHandle:
    return figure.locator("svg.marks").element_handle()


def same(figure: Locator, before: ElementHandle) -> bool:
    """The figure's drawing is the very node it was before."""
    return bool(figure.evaluate("(figure, before) => figure.querySelector('svg.marks') === before", before))


def test_rows_appended_from_a_thread_are_all_drawn_in_the_same_node(notebook: Notebook) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart")
    before = drawing(figure)
    notebook.python("""
def work():
    for start in range(0, 200, 4):
        chart.append("samples", rows(start, start + 4))
        time.sleep(0.01)
threading.Thread(target=work).start()""")
    wait_marks(figure, 200)
    assert same(figure, before)


def test_rows_are_drawn_while_their_cell_is_still_running(notebook: Notebook, tmp_path: Path) -> None:
    """It runs until they are seen."""
    seen = tmp_path / "seen"
    source = f"""
from pathlib import Path
busy = LiveChart(points)
display(busy)
for x in range(30):
    busy.append("samples", rows(x, x + 1))
    time.sleep(0.01)
until = time.monotonic() + 200
while not Path({str(seen)!r}).exists() and time.monotonic() < until:
    time.sleep(0.05)
"""
    before = notebook.page.locator(".workbench-live-chart").count()
    notebook.add_cell_and_go_on(source)
    figure = notebook.page.locator(".workbench-live-chart").nth(before)
    figure.locator(".mark-symbol.role-mark path").first.wait_for(state="attached")
    wait_marks(figure, 30)
    assert notebook.is_busy()
    seen.touch()
    notebook.wait_idle()


@pytest.mark.slow
def test_replaced_rows_take_the_place_of_the_old_ones_in_the_same_node(notebook: Notebook) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart.append('samples', rows(0, 50)); chart")
    wait_marks(figure, 50)
    before = drawing(figure)
    notebook.python("chart.replace('samples', rows(0, 7))")
    wait_marks(figure, 7)
    notebook.python("chart.replace('samples', [])")
    wait_marks(figure, 0)
    assert same(figure, before)


@pytest.mark.slow
def test_only_the_newest_max_rows_are_drawn(notebook: Notebook) -> None:
    figure = shown(notebook, "chart = LiveChart(points, max_rows=20); chart")
    notebook.python("for start in range(0, 70, 7): chart.append('samples', rows(start, start + 7))")
    wait_marks(figure, 20)
    assert figure.locator(".role-axis-label text").all_text_contents()[0] == "0"
    notebook.python("chart.append('samples', rows(70, 75))")
    figure.locator('.mark-symbol path[aria-label^="x: 74"]').wait_for(state="attached")
    assert figure.locator(".mark-symbol.role-mark path").count() == 20
    assert figure.locator('.mark-symbol path[aria-label^="x: 54"]').count() == 0
    assert figure.locator('.mark-symbol path[aria-label^="x: 55"]').count() == 1


def test_a_lost_message_is_noticed_and_its_rows_are_asked_for(notebook: Notebook) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart.append('samples', rows(0, 5)); chart")
    wait_marks(figure, 5)
    notebook.python("""
chart.send = lambda *_: None
chart.append("samples", rows(5, 10))
time.sleep(0.1)
del chart.send
chart.append("samples", rows(10, 15))""")
    wait_marks(figure, 15)


@pytest.mark.slow
def test_a_chart_shown_late_or_twice_shows_everything(notebook: Notebook) -> None:
    notebook.add_cell("late = LiveChart(points)\nfor x in range(40): late.append('samples', rows(x, x + 1))")
    first = shown(notebook, "late")
    wait_marks(first, 40)
    second = shown(notebook, "late")
    wait_marks(second, 40)
    notebook.python("late.append('samples', rows(40, 45))")
    wait_marks(first, 45)
    wait_marks(second, 45)


@pytest.mark.slow
def test_another_chart_in_the_same_place_keeps_the_rows(notebook: Notebook) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart.append('samples', rows(0, 9)); chart")
    wait_marks(figure, 9)
    notebook.python("chart.show(alt.Chart(samples, title='Bars').mark_bar().encode(x='x:O', y='y:Q'))")
    wait_marks(figure, 9, "rect")
    assert figure.get_attribute("aria-label") == "Bars"


def test_the_theme_is_followed_and_rows_and_selections_survive_it(notebook: Notebook) -> None:
    figure = shown(
        notebook,
        """
told = []
pin = alt.selection_point(name="pin", fields=["x"])
chart = LiveChart(points.add_params(pin).encode(opacity=alt.when(pin).then(alt.value(1)).otherwise(alt.value(0.2))))
chart.on_selection(told.append)
chart.append("samples", rows(0, 8))
chart""",
    )
    wait_marks(figure, 8).nth(3).click()
    faint = figure.locator('.mark-symbol.role-mark path[opacity="0.2"]')
    faint.nth(6).wait_for(state="attached")
    ink = "(figure) => figure.querySelector('.role-axis-label text').getAttribute('fill')"
    try:
        for mode in ("dark", "light"):
            notebook.set_mode(mode)
            figure.and_(notebook.page.locator(f'[data-mode="{mode}"]')).wait_for()
            wait_marks(figure, 8)
            faint.nth(6).wait_for(state="attached")
            assert faint.count() == 7
            assert figure.evaluate(ink) == {"dark": "#e6e9ed", "light": "#1f2328"}[mode]
        notebook.python("chart.append('samples', rows(8, 10))")
        wait_marks(figure, 10)
    finally:
        notebook.set_mode("light")
    assert notebook.python("print(told[0].name, told[0].value, told[-1].value)").strip() == "pin [{'x': 3}] [{'x': 3}]"


@pytest.mark.slow
def test_outside_jupyterlab_the_browsers_preference_decides(notebook: Notebook) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart.append('samples', rows(0, 3)); chart")
    dark = figure.and_(notebook.page.locator('[data-mode="dark"]'))
    light = figure.and_(notebook.page.locator('[data-mode="light"]'))
    light.wait_for()
    notebook.page.emulate_media(color_scheme="dark")
    try:
        notebook.page.evaluate("() => { delete document.body.dataset.jpThemeLight; }")
        dark.wait_for()
        notebook.page.emulate_media(color_scheme="light")
        light.wait_for()
    finally:
        notebook.page.evaluate("() => { document.body.dataset.jpThemeLight = 'true'; }")
        notebook.page.emulate_media(color_scheme="null")
    wait_marks(figure, 3)


def test_a_click_on_a_mark_reaches_python_with_its_row(notebook: Notebook) -> None:
    figure = shown(
        notebook,
        """
clicks = []
chart = LiveChart(points.properties(name="trials"))
chart.on_click(clicks.append)
chart.append("samples", rows(0, 5))
chart""",
    )
    wait_marks(figure, 5).nth(2).click(modifiers=["Shift"])
    figure.locator(".role-axis-label text").first.click(force=True)  # an axis is not a datum
    wait_python(notebook, "clicks")
    told = notebook.python("print(json.dumps([[dict(click.datum), click.layer, click.shift] for click in clicks]))")
    assert json.loads(told) == [[{"x": 2, "y": 2, "scheme": "fused"}, "trials", True]]


def test_the_keyboard_walks_from_mark_to_mark_and_enter_clicks(notebook: Notebook) -> None:
    figure = shown(
        notebook,
        """
clicks = []
chart = LiveChart(points.properties(title="By keyboard"))
chart.on_click(clicks.append)
chart.append("samples", rows(0, 5))
chart""",
    )
    wait_marks(figure, 5)
    assert figure.get_attribute("aria-label") == "By keyboard"
    figure.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"):
        notebook.page.keyboard.press(key)
    assert figure.get_by_role("status").inner_text() == "5 of 5: x: 4; y: 4"
    assert figure.locator(".workbench-live-chart-cursor").is_visible()
    notebook.page.keyboard.press("Enter")
    wait_python(notebook, "clicks")
    assert notebook.python("print(clicks[0].datum['x'])").strip() == "4"
    notebook.page.keyboard.press("Escape")
    assert figure.locator(".workbench-live-chart-cursor").count() == 0


@pytest.mark.slow
def test_a_selection_without_fields_brings_the_selected_rows(notebook: Notebook) -> None:
    figure = shown(
        notebook,
        """
told = []
chart = LiveChart(points.add_params(alt.selection_point(name="pick")))
chart.on_selection(told.append)
chart.append("samples", rows(0, 5))
chart""",
    )
    marks = wait_marks(figure, 5)
    marks.nth(1).click()
    wait_python(notebook, "told")
    marks.nth(4).click(modifiers=["Shift"])
    wait_python(notebook, "len(told) > 1")
    told = notebook.python("print([[row['x'] for row in selection.value] for selection in told])")
    assert told.strip() == "[[1], [1, 4]]"


def test_a_chart_takes_the_width_of_its_cell_alone_and_one_under_the_other(notebook: Notebook) -> None:
    figures = [
        shown(notebook, "alone = LiveChart(points); alone.append('samples', rows(0, 3)); alone"),
        shown(notebook, "pair = LiveChart(points & points); pair.append('samples', rows(0, 3)); pair"),
    ]
    try:
        for width in (1000, 1400):
            notebook.page.set_viewport_size({"width": width, "height": 1000})
            for figure in figures:
                notebook.page.wait_for_function(
                    """(figure) => Math.abs(figure.querySelector("svg").clientWidth - figure.clientWidth) <= 2""",
                    arg=figure.element_handle(),
                )
    finally:
        notebook.page.set_viewport_size({"width": 1400, "height": 1000})


@pytest.mark.slow
def test_a_chart_that_vega_refuses_says_so_in_its_place_and_another_can_follow(notebook: Notebook) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart.append('samples', rows(0, 3)); chart")
    notebook.python("chart.show(points.transform_calculate(z='this is no expression'))")
    figure.get_by_role("alert").wait_for()
    assert "could not be drawn" in figure.get_by_role("alert").inner_text()
    notebook.complaints.clear()
    notebook.python("chart.show(points)")
    wait_marks(figure, 3)


def test_markup_in_a_row_shows_as_text(notebook: Notebook) -> None:
    figure = shown(
        notebook,
        """
name = "<img src=x onerror='document.body.dataset.hacked=1'>"
chart = LiveChart(points.encode(tooltip="name:N", color="name:N"))
chart.append("samples", [{"x": 1, "y": 1, "name": name}])
chart""",
    )
    wait_marks(figure, 1).first.hover()
    tooltip = notebook.page.locator("#vg-tooltip-element")
    tooltip.wait_for()
    assert "<img src=x" in tooltip.inner_text()
    assert tooltip.locator("img").count() == 0
    assert notebook.page.evaluate("document.body.dataset.hacked") is None


def test_the_newest_row_is_drawn_soon(notebook: Notebook, record_property: pytest.RecordProperty) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart")
    figure.evaluate("""(figure) => {
      window.drawn = [];
      // a frame later, what was drawn is on the screen
      figure.addEventListener("drawn", ({ detail }) =>
        requestAnimationFrame(() => window.drawn.push([detail.samples, Date.now() / 1000])));
    }""")
    appended = json.loads(
        notebook.python("""
appended = []
for start in range(0, 250, 5):
    appended.append([start + 5, time.time()])
    chart.append("samples", rows(start, start + 5))
    time.sleep(0.1)
print(json.dumps(appended))""")
    )
    wait_marks(figure, 250)
    figure.page.wait_for_function("() => window.drawn.at(-1)?.[0] === 250")
    drawn = figure.page.evaluate("() => window.drawn")
    ages = [next(at for end, at in drawn if end >= rows) - since for rows, since in appended]
    p95 = statistics.quantiles(ages, n=20)[-1]
    record_property("median_s", statistics.median(ages))
    record_property("p95_s", p95)
    print(f"newest row: median {statistics.median(ages) * 1e3:.0f} ms, p95 {p95 * 1e3:.0f} ms, {len(drawn)} redraws")
    assert len(ages) == 50


@pytest.mark.slow
def test_six_charts_share_one_vega(lab: Lab) -> None:
    cells = [SETUP, *["shown = LiveChart(points); shown.append('samples', rows(0, 3)); shown"] * 6]
    with lab.opened(cells) as notebook:
        notebook.page.set_viewport_size({"width": 1400, "height": 2400})
        notebook.run_all()
        figures = notebook.page.locator(".workbench-live-chart")
        figures.nth(5).locator("svg.marks").wait_for()
        for chart in range(6):
            wait_marks(figures.nth(chart), 3)
        bundle = len(live_chart.bundle())
        assert bundle < notebook.received["bytes"] < 1.8 * bundle
        assert (notebook.outside, notebook.complaints) == ([], [])


@pytest.mark.slow
def test_a_page_that_is_loaded_again_shows_everything(lab: Lab) -> None:
    with lab.opened([SETUP, "chart = LiveChart(points); chart.append('samples', rows(0, 25)); chart"]) as notebook:
        notebook.run_all()
        wait_marks(notebook.page.locator(".workbench-live-chart"), 25)
        notebook.save()
        notebook.page.reload()
        notebook.wait_open()
        figure = notebook.page.locator(".workbench-live-chart")
        figure.locator("svg.marks").wait_for()
        wait_marks(figure, 25)
        notebook.python("chart.append('samples', rows(25, 30))")
        wait_marks(figure, 30)
        assert (notebook.outside, notebook.complaints) == ([], [])


@pytest.mark.slow
def test_screenshots_in_light_and_dark_differ(notebook: Notebook, tmp_path: Path) -> None:
    figure = shown(notebook, "chart = LiveChart(points); chart.append('samples', rows(0, 3)); chart")
    wait_marks(figure, 3)
    try:
        light, dark = notebook.screenshots(tmp_path, "chart")
    finally:
        notebook.set_mode("light")
    assert (light.name, dark.name) == ("chart-light.png", "chart-dark.png")
    assert light.read_bytes() != dark.read_bytes()


def wait_python(notebook: Notebook, condition: str) -> None:
    """Wait until an expression is true in the kernel."""
    notebook.python(f"""
import asyncio
deadline = time.monotonic() + 90
while not ({condition}):
    assert time.monotonic() < deadline, {condition!r} + " did not become true within 90 s"
    await asyncio.sleep(0.02)""")


@pytest.mark.slow
def test_a_parameter_that_python_sets_moves_its_mark_in_the_same_node(notebook: Notebook) -> None:
    figure = shown(
        notebook,
        """
ring = points.transform_filter("datum.x === chosen").mark_point(size=300)
chart = LiveChart(alt.layer(points, ring).add_params(alt.param(name="chosen", value=-1)))
chart.append("samples", rows(0, 5))
chart""",
    )
    wait_marks(figure, 5)
    node = drawing(figure)
    notebook.python("chart.set('chosen', 3)")
    wait_marks(figure, 6)
    notebook.python("chart.set('unknown', 3); chart.set('chosen', -1)")
    wait_marks(figure, 5)
    assert same(figure, node)
    notebook.python("chart.set('chosen', 2)")
    for mode in ("dark", "light"):
        notebook.set_mode(mode)
        wait_marks(figure, 6)
