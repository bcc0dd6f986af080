"""The explorer in a real JupyterLab, as a student meets it: look, change, run, stop, compare, load, report."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ElementHandle

from kernels.trial import PROTOCOLS
from tests.browser.explorer_lab import ExplorerPage, opened_explorer
from tests.browser.lab import Lab
from workbench.results.store import STORE_FILE, Store

pytestmark = [pytest.mark.browser, pytest.mark.alone]

STOPPING_S = 60.0
"""Much less than the sweep that is stopped would take; two seconds are the aim where nothing else runs."""
_WATCH_STOPPED = """() => {
  const [run, stop] = [".wb-run", ".wb-stop"].map((mark) => document.querySelector(mark));
  window.wbStoppedAfter = null;
  stop.addEventListener("click", () => {
    const pressed = performance.now();
    const watch = new MutationObserver(() => {
      if (run.disabled) return;
      window.wbStoppedAfter = (performance.now() - pressed) / 1000;
      watch.disconnect();
    });
    watch.observe(run, { attributes: true });
  }, { once: true, capture: true });
}"""


@pytest.fixture(scope="module")
def explorer(explorer_site: tuple[Lab, Path]) -> Iterator[ExplorerPage]:
    """One explorer on a cluster of two ranks, for all tests of this file."""
    with opened_explorer(*explorer_site) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_from_outside_and_no_complaint(explorer: ExplorerPage) -> Iterator[None]:
    explorer.page.bring_to_front()  # a page behind another one draws no frames
    yield
    assert explorer.notebook.outside == []
    assert explorer.notebook.complaints == []


def timeline(explorer: ExplorerPage) -> str:
    """All words of the timeline."""
    return explorer.at("wb-timeline").inner_text()


def wait_timeline(explorer: ExplorerPage, text: str) -> None:
    explorer.page.wait_for_selector(f'.wb-timeline text:text("{text}")', state="attached")


def headline_after(explorer: ExplorerPage, before: str) -> str:
    """What stands above the timeline once it is something else."""
    explorer.page.wait_for_function("before => document.querySelector('.wb-headline').innerText !== before", arg=before)
    return explorer.words("wb-headline")


def drawing(explorer: ExplorerPage, mark: str) -> ElementHandle:
    found = explorer.page.query_selector(f".{mark} svg.marks")
    assert found is not None
    return found


def same(explorer: ExplorerPage, mark: str, before: ElementHandle) -> bool:
    """The chart is the very node that it was before."""
    return bool(explorer.at(mark).evaluate("(at, before) => at.querySelector('svg.marks') === before", before))


def take_protocol(explorer: ExplorerPage, name: str) -> None:
    explorer.at("wb-protocol").locator("select").select_option(index=list(PROTOCOLS).index(name))


def ask_for_a_sweep(explorer: ExplorerPage) -> None:
    """Some dozens of schedules, with so many samples that nobody sees the end."""
    explorer.take_sizes(m=256, n=256, k=64)
    explorer.press("wb-scheme", "decomposed")
    explorer.open_advanced()
    take_protocol(explorer, "thorough")
    explorer.sweep("pieces", "tile")
    explorer.wait_words("wb-plan", "decomposed schedules")


def test_it_opens_with_a_simulated_timeline_and_an_estimated_landscape_before_anything_runs(
    explorer: ExplorerPage,
) -> None:
    wait_timeline(explorer, "simulated")
    assert "estimated" in explorer.words("wb-headline")
    assert explorer.page.locator(".wb-tab-landscape .mark-rect.role-mark path").count() > 10
    explorer.wait_words("wb-cluster", "2 ranks")
    with Store(explorer.runs / STORE_FILE) as store:
        assert store.runs() == []


@pytest.mark.slow
def test_another_operator_has_other_sizes_and_another_timeline(explorer: ExplorerPage) -> None:
    before = explorer.words("wb-headline"), explorer.words("wb-sizes-shown")
    explorer.choose("wb-operator", "GEMM -> all-reduce")
    headline_after(explorer, before[0])
    wait_timeline(explorer, "reduce")
    assert explorer.words("wb-sizes-shown") != before[1]
    before = (explorer.words("wb-headline"), "")
    explorer.choose("wb-operator", "GEMM -> all-to-all")
    headline_after(explorer, before[0])


def test_a_slider_moved_with_the_keyboard_redraws_the_timeline(explorer: ExplorerPage) -> None:
    node, before = drawing(explorer, "wb-timeline"), explorer.words("wb-headline")
    handle = explorer.at("wb-ratio").locator(".noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    assert headline_after(explorer, before) != before
    assert explorer.at("wb-ratio").locator(".widget-readout").inner_text() == "1.5"
    handle.press("ArrowLeft")
    explorer.page.wait_for_function("before => document.querySelector('.wb-headline').innerText === before", arg=before)
    assert same(explorer, "wb-timeline", node)


def test_guess_estimate_and_measurement_are_drawn_together(explorer: ExplorerPage) -> None:
    before = explorer.words("wb-headline")
    explorer.choose("wb-preset", "tiny")
    headline_after(explorer, before)  # a guess that comes before the sizes do is one about the sizes of before
    explorer.at("wb-guess").locator("input").fill("2")
    explorer.run()
    wait_timeline(explorer, "measured")
    for word in ("your guess", "estimated", "measured", "floor"):
        explorer.wait_words("wb-headline", word)
    explorer.page.wait_for_selector('.wb-tab-trials [aria-label*="Your guess"]', state="attached")
    assert "1 of 1 schedule" in explorer.words("wb-progress")


@pytest.mark.slow
def test_points_of_a_sweep_are_drawn_before_it_ends_in_the_node_that_was_there(explorer: ExplorerPage) -> None:
    ask_for_a_sweep(explorer)
    explorer.begin()
    # long before the first of a block has its outcome
    explorer.page.wait_for_selector(".wb-tab-along-an-axis .running_marks path", state="attached")
    explorer.wait_words("wb-progress", "block ")
    explorer.page.wait_for_selector(".wb-tab-along-an-axis .mark-symbol.role-mark path", state="attached")
    node, early = drawing(explorer, "wb-tab-along-an-axis"), explorer.marks("wb-tab-along-an-axis")
    assert explorer.at("wb-stop").is_enabled(), "the sweep had ended before its first point was seen"
    explorer.page.wait_for_function(
        "early => document.querySelectorAll('.wb-tab-along-an-axis .mark-symbol.role-mark path').length > early",
        arg=early,
    )
    assert explorer.at("wb-stop").is_enabled(), "the sweep had ended before a second point was seen"
    assert "left" in explorer.words("wb-progress") or "running" in explorer.words("wb-progress")
    assert same(explorer, "wb-tab-along-an-axis", node)


@pytest.mark.slow
def test_a_sweep_is_stopped_soon_and_the_cluster_stays_usable(explorer: ExplorerPage) -> None:
    if not explorer.at("wb-stop").is_enabled():
        explorer.at("wb-fresh").locator("input").click()
        explorer.begin()
    explorer.page.evaluate(_WATCH_STOPPED)
    explorer.at("wb-stop").click()
    explorer.page.wait_for_function("() => window.wbStoppedAfter !== null")
    assert explorer.at("wb-run").is_enabled()
    assert explorer.page.evaluate("() => window.wbStoppedAfter") <= STOPPING_S
    explorer.wait_words("wb-progress", "stopped")
    take_protocol(explorer, "quick")
    explorer.choose("wb-preset", "tiny")
    explorer.press("wb-scheme", "fused")
    before = explorer.words("wb-headline")
    explorer.choose("wb-axis-write", "staged")  # which was not measured before
    headline_after(explorer, before)
    explorer.run()
    explorer.wait_words("wb-headline", "measured")


def test_a_cell_of_the_landscape_loads_its_schedule(explorer: ExplorerPage) -> None:
    explorer.press("wb-scheme", "decomposed")
    explorer.open_tab("Landscape")
    cell = explorer.page.locator('.wb-tab-landscape .cells_marks path[aria-label^="16 and "]').first
    cell.wait_for(state="attached")
    cell.click(force=True)  # a number lies on it
    explorer.page.wait_for_function(
        "() => document.querySelector('.wb-axis-pieces .widget-readout').innerText === '16'"
    )


@pytest.mark.slow
def test_a_pinned_timeline_is_compared_with_the_next_ones(explorer: ExplorerPage) -> None:
    explorer.at("wb-pin").click()
    wait_timeline(explorer, "A, decomposed, pieces 16")
    explorer.press("wb-scheme", "fused")
    explorer.page.wait_for_function(
        """() => [...document.querySelectorAll('.wb-timeline text')].filter((text) =>
             /^(A, decomposed|simulated)/.test(text.textContent)).length === 2"""
    )
    explorer.at("wb-pin").click()


def test_what_is_refused_says_why_and_what_would_be_accepted(explorer: ExplorerPage) -> None:
    explorer.open_advanced()
    float16 = explorer.at("wb-dtype").locator("option[value=float16]")
    explorer.page.wait_for_function("() => document.querySelector('.wb-dtype option[disabled]')")
    assert "Accepted: float32, bfloat16" in str(float16.get_attribute("title"))
    explorer.take_sizes(m=1023, n=256, k=64)
    explorer.wait_words("wb-refusal", "1023")
    assert explorer.at("wb-run").is_disabled()
    explorer.take_sizes(m=256, n=256, k=64)
    explorer.wait_words("wb-headline", "estimated")
    explorer.page.wait_for_selector(".wb-run:not([disabled])")


@pytest.mark.slow
def test_the_report_is_a_page_that_opens_offline(explorer: ExplorerPage, browser: Browser) -> None:
    explorer.at("wb-report").click()
    explorer.wait_words("wb-report-link", "Download the report")
    (written,) = (explorer.runs / "reports").glob("*.html")
    with explorer.page.expect_download() as download:
        explorer.page.locator(".wb-report-link a").click()
    assert Path(download.value.path()).read_bytes() == written.read_bytes()
    with explorer.page.expect_download() as files:
        explorer.at("wb-report-files").get_by_role("button").click()
    with zipfile.ZipFile(files.value.path()) as packed:
        assert packed.namelist()[0] == "report.html"
        assert packed.testzip() is None
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(written.as_uri())
        page.wait_for_selector("svg.marks")
        assert {address.partition(":")[0] for address in asked} <= {"file", "data", "blob"}
    finally:
        page.close()


@pytest.mark.slow
def test_the_dark_theme_reaches_every_chart_that_is_seen(explorer: ExplorerPage) -> None:
    for mode in ("dark", "light"):
        explorer.notebook.set_mode(mode)
        explorer.page.wait_for_function(
            """(mode) => [...document.querySelectorAll(".workbench-live-chart")].filter((chart) =>
                 chart.clientWidth > 0).every((chart) => chart.dataset.mode === mode)""",
            arg=mode,
        )


@pytest.mark.slow
def test_the_last_run_stays_in_the_notebook(explorer: ExplorerPage) -> None:
    explorer.page.wait_for_selector('summary:has-text("Kept in this notebook: run")')
    explorer.notebook.save()
    saved = explorer.path.read_text()
    assert "image/svg+xml" in saved
