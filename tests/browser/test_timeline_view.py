"""The timeline in a real JupyterLab: drag, Enter, Escape, zoom, the difference, and a file for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator

from tests.browser.lab import Lab, Notebook

pytestmark = [pytest.mark.browser, pytest.mark.alone]

PATIENCE_MS = 60_000
BARS = '.wb-timeline .mark-rect path[aria-label*="waited for"]'
SETUP = """
import tempfile
from dataclasses import replace
from pathlib import Path
import ipywidgets
from IPython.display import display
from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.schemes import schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.machines import shipped_machine
from workbench.results import metrics
from workbench.results.store import Store
from workbench.simulator.predict import predict
from workbench.widgets.controls import STYLE
from workbench.widgets.timeline_view import TimelineView

machine, fabric = shipped_machine("laptop_cpu"), parse("emulated:bandwidth_bytes_per_second=1e9")
asked = problem("gemm_all_to_all", {"m": 1024, "n": 512, "k": 256}, world=2, dtype="float32")
trial = Trial(problem=asked, schedule=schedule(asked, "decomposed", {"pieces": 4}, machine, fabric), backend="cpu",
              machine=machine.name, fabric=fabric, protocol=PROTOCOLS["quick"])
estimate = predict(trial, machine)
# not measured: the simulated spans, a quarter slower from the second step of rank 1 on
late = tuple(span._replace(start_s=1.25 * span.start_s, stop_s=1.25 * span.stop_s) for span in estimate.spans)
store = Store(Path(tempfile.mkdtemp()) / "store.sqlite")
run = store.begin_run({}, {})
timed = Measurement(trial=trial, samples=((1.25 * estimate.time_s,) * 5,) * 2, correct=True, spans=late)
store.add_outcome(run, timed, metrics.row_of(timed, run))
view = TimelineView(store)
view.estimate, view.row = estimate, next(row for row in store.rows(run) if row["source"] == "measured")
view.draw()
box = ipywidgets.VBox([ipywidgets.HTML(STYLE), view.view])
box.add_class("wb-explorer")
display(box)
"""


@pytest.fixture(scope="module")
def notebook(lab: Lab) -> Iterator[Notebook]:
    """One notebook whose only cell shows a measured and a simulated timeline."""
    with lab.opened([SETUP]) as opened:
        opened.page.set_viewport_size({"width": 1366, "height": 768})
        opened.command("application:toggle-left-area")
        opened.run_all()
        opened.page.set_default_timeout(PATIENCE_MS)
        opened.page.locator(BARS).first.wait_for()
        opened.page.locator(".wb-timeline").scroll_into_view_if_needed()
        yield opened


@pytest.fixture(autouse=True)
def nothing_from_outside_and_no_complaint(notebook: Notebook) -> Iterator[None]:
    notebook.page.bring_to_front()  # a page behind another one draws no frames
    yield
    notebook.page.keyboard.press("Escape")
    assert notebook.outside == []
    assert notebook.complaints == []


def words(notebook: Notebook) -> str:
    return notebook.page.locator(".wb-timeline-words").inner_text()


def wait_words(notebook: Notebook, text: str) -> None:
    notebook.page.wait_for_selector(f'.wb-timeline-words :text("{text}")')


def bars(notebook: Notebook) -> Locator:
    """Bars of steps: marks that say what their step waited for."""
    return notebook.page.locator(BARS)


def plot(notebook: Notebook) -> dict[str, float]:
    """The box around all bars."""
    boxes = [box for index in range(bars(notebook).count()) if (box := bars(notebook).nth(index).bounding_box())]
    left, top = min(box["x"] for box in boxes), min(box["y"] for box in boxes)
    return {"left": left, "right": max(box["x"] + box["width"] for box in boxes), "top": top}


def drag(notebook: Notebook, start: float, stop: float, steps: int = 12) -> None:
    """From one share of the width of the plot to another one, with the mouse down."""
    box, mouse = plot(notebook), notebook.page.mouse
    at = [box["left"] + share * (box["right"] - box["left"]) for share in (start, stop)]
    mouse.move(at[0], box["top"] + 4)
    mouse.down()
    mouse.move(at[1], box["top"] + 6, steps=steps)
    mouse.up()


def measured_ms(notebook: Notebook) -> list[float]:
    return list(json.loads(notebook.python("import json; print(json.dumps([1e3 * each for each in view.range_s]))")))


def expected_ms(notebook: Notebook, *shares: float) -> object:
    """The times at *shares* of the width of the plot, to a hundredth of it: it begins with the first bar."""
    span = "min(span.start_s for span in estimate.spans), max(span.stop_s for span in late)"
    first_s, last_s = map(float, notebook.python(f"print(*({span}))").split())
    return pytest.approx(
        [1e3 * (first_s + share * (last_s - first_s)) for share in shares], abs=10 * (last_s - first_s)
    )


def test_the_paths_of_both_timelines_and_busy_times_are_there(notebook: Notebook) -> None:
    said = words(notebook)
    assert "Critical path" in said
    assert "measured: " in said
    assert "simulated: " in said
    assert "compute" in said
    assert notebook.page.locator('.wb-timeline text:text-matches("ms, [0-9]+ %")').count() >= 8, "text and its halo"
    assert notebook.page.locator(".wb-timeline .mark-line path").count() == 2
    notebook.page.locator(".wb-timeline-path input").uncheck()
    notebook.page.wait_for_function("() => !document.querySelector('.wb-timeline .mark-line path')")
    assert "Critical path" not in words(notebook)
    notebook.page.locator(".wb-timeline-path input").check()
    wait_words(notebook, "Critical path")


def test_a_dragged_range_is_measured_stays_when_the_mouse_is_up_and_escape_ends_it(notebook: Notebook) -> None:
    drag(notebook, 0.25, 0.75)
    wait_words(notebook, "From ")
    notebook.page.wait_for_timeout(200)
    assert measured_ms(notebook) == expected_ms(notebook, 0.25, 0.75)
    said = words(notebook)
    assert "rank 0 computes" in said
    assert "simulated, busy" in said
    notebook.page.wait_for_selector('.wb-timeline [aria-label^="Measured range"]', state="attached")
    bars(notebook).first.hover()
    notebook.page.wait_for_selector("#vg-tooltip-element.visible", state="attached")  # nothing lies over the bars
    notebook.page.keyboard.press("Escape")
    wait_words(notebook, "Critical path")
    notebook.page.wait_for_selector('.wb-timeline [aria-label^="Measured range"]', state="detached")


@pytest.mark.slow
def test_a_quick_drag_is_measured_as_far_as_it_went(notebook: Notebook) -> None:
    """The mouse is up again before the first message would have left."""
    drag(notebook, 0.2, 0.6, steps=2)
    wait_words(notebook, "From ")
    notebook.page.wait_for_timeout(200)
    assert measured_ms(notebook) == expected_ms(notebook, 0.2, 0.6)
    notebook.page.keyboard.press("Escape")
    wait_words(notebook, "Critical path")


def test_with_the_keyboard_enter_measures_a_bar_and_shift_goes_on_to_another(notebook: Notebook) -> None:
    notebook.page.locator(".wb-timeline .workbench-live-chart").focus()
    status = notebook.page.locator(".wb-timeline [role=status]")
    notebook.page.keyboard.press("ArrowRight")
    while "waited for" not in status.inner_text():
        notebook.page.keyboard.press("ArrowRight")
    notebook.page.keyboard.press("Enter")
    wait_words(notebook, "From ")
    one = measured_ms(notebook)
    notebook.page.keyboard.press("ArrowRight")
    notebook.page.keyboard.press("Shift+Enter")
    notebook.page.wait_for_timeout(500)
    more = measured_ms(notebook)
    assert more[1] - more[0] > one[1] - one[0]
    notebook.page.keyboard.press("Escape")
    wait_words(notebook, "Critical path")


def ticks_after(notebook: Notebook, before: list[str]) -> list[str]:
    """The labels of the time axis once they are others than *before*."""
    selector = ".wb-timeline .role-axis-label text"
    notebook.page.wait_for_function(
        "([selector, before]) => [...document.querySelectorAll(selector)].map((t) => t.textContent).join() !== before",
        arg=[selector, ",".join(before)],
    )
    notebook.page.wait_for_timeout(300)
    return notebook.page.locator(selector).all_text_contents()


@pytest.mark.slow
def test_shift_and_drag_moves_a_zoomed_timeline_and_measures_nothing(notebook: Notebook) -> None:
    page, box = notebook.page, plot(notebook)
    whole, middle = ticks_after(notebook, []), (box["left"] + box["right"]) / 2
    page.mouse.move(middle, box["top"] + 4)
    page.keyboard.down("Alt")
    page.mouse.wheel(0, -600)
    page.keyboard.up("Alt")
    zoomed = ticks_after(notebook, whole)
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(middle - 150, box["top"] + 4, steps=8)
    page.mouse.up()
    page.keyboard.up("Shift")
    moved = ticks_after(notebook, zoomed)
    assert notebook.python("print(view.range_s)").strip() == "None"
    page.mouse.dblclick(middle, box["top"] - 8)  # on no bar, which would be measured
    assert sorted(ticks_after(notebook, moved)) == sorted(whole)


def test_the_difference_is_a_view_of_its_own_with_the_first_step_that_parts(notebook: Notebook) -> None:
    notebook.page.locator('.wb-timeline-look button:text-is("Difference")').click()
    notebook.page.locator(".wb-difference .mark-symbol path").first.wait_for()
    assert not notebook.page.locator(".wb-timeline").is_visible()
    assert "The first step that parts: " in words(notebook)
    assert "later than simulated" in words(notebook)
    notebook.page.locator('.wb-timeline-look button:text-is("Timeline")').click()
    bars(notebook).first.wait_for()
    wait_words(notebook, "Critical path")


@pytest.mark.slow
def test_one_click_downloads_both_timelines_for_perfetto(notebook: Notebook, tmp_path: Path) -> None:
    with notebook.page.expect_download() as started:
        notebook.page.locator(".wb-perfetto button").click()
    assert started.value.suggested_filename.startswith("decomposed-tile-")
    assert started.value.suggested_filename.endswith(".perfetto.json")
    started.value.save_as(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    processes = [event["args"]["name"].partition(":")[0] for event in events if event["name"] == "process_name"]
    assert processes == ["measured", "simulated"]
    notebook.page.wait_for_selector(".wb-perfetto button:not([disabled])")
    notebook.python("view._panels = {}")
    notebook.page.locator(".wb-perfetto button").click()
    notebook.page.wait_for_selector('.wb-perfetto [role=status]:has-text("cannot become a trace")')
    notebook.python("view.draw()")
