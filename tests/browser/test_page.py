"""The page fits a laptop's screen: a strip that stays, a question beside its chart, labels that never overlap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.explorer_lab import ExplorerPage, opened_explorer
from tests.browser.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.alone]

SIZES = ((1366, 768), (1920, 1080), (1024, 768))
NARROW = 1024
"""At this width the controls fold above the views."""
STRIP_MOST, COLUMN = 150, 300
SCROLL_BARS = 30
"""Scroll bars of notebook and view together, which a headless browser has not."""
_BOXES = """() => Object.fromEntries(
  [".jp-WindowedPanel-outer", ".wb-explorer", ".wb-strip", ".wb-card", ".wb-stage", ".wb-timeline-box", ".wb-fold"].map(
    (mark) => {
      const box = document.querySelector(mark);
      const { left, top, right, bottom, width, height } = box.getBoundingClientRect();
      const [wider, longer] = [box.scrollWidth - box.clientWidth, box.scrollHeight - box.clientHeight];
      return [mark.slice(1), { left, top, right, bottom, width, height, wider, longer }];
    },
  ),
)"""
_OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".wb-ruler-label")].map((each) => each.getBoundingClientRect());
  const lap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return [boxes.length, boxes.filter((a, n) => boxes.some((b, m) => m > n && lap(a, b))).length];
}"""
_REACHED = """() => {
  const control = document.activeElement;
  const [page, names] = [control.closest(".wb-explorer"), []];
  for (let at = control; page && at !== page; at = at.parentElement)
    names.push(...[...at.classList].filter((name) => name.startsWith("wb-")));
  return [names, !page || getComputedStyle(control).outlineStyle !== "none"];
}"""
_COVERED = """() => {
  const { left, top, bottom } = document.querySelector(".wb-explorer").getBoundingClientRect();
  const over = [];
  for (let x = left + 2; x < left + 90; x += 8)
    for (let y = top + 4; y < Math.min(bottom, innerHeight) - 30; y += 24) {
      const hit = document.elementFromPoint(x, y);
      const isPage = hit.closest(".wb-explorer") || hit.querySelector(".wb-explorer");
      if (!isPage) over.push(`${hit.className}`);
    }
  return [...new Set(over)];
}"""
_CUT_TITLES = """() => [...document.querySelectorAll(".wb-panels .lm-TabBar-tabLabel, .wb-head button")]
  .filter((label) => label.scrollWidth > label.clientWidth + 1 || label.clientHeight > 32)
  .map((label) => label.innerText)"""
_OUTSIDE = """() => {
  const { left, right } = document.querySelector(".wb-right").getBoundingClientRect();
  return [...document.querySelectorAll(".wb-panels .lm-TabBar-tab, .wb-head button, .wb-head input, .wb-report-link")]
    .filter((part) => part.offsetWidth && !part.closest("[popover]"))
    .filter((part) => part.getBoundingClientRect().left < left || part.getBoundingClientRect().right > right)
    .map((part) => part.innerText || part.className);
}"""
_SEEN = """(mark) => {
  const part = document.querySelector(mark);
  const { left, right, top, bottom } = part.getBoundingClientRect();
  const inside = (x, y) => part.contains(document.elementFromPoint(x, y));
  return [left + 5, right - 5].flatMap((x) => [inside(x, top + 5), inside(x, bottom - 5)]);
}"""
_IS_LONGER = """() => {
  const { scrollHeight, clientHeight } = document.querySelector(".wb-stage");
  return scrollHeight > clientHeight + 50;
}"""
REACHED = {"wb-source", "wb-answer-why", "wb-use-answer", "wb-guess", "wb-run", "wb-operator", "wb-preset",
           "wb-machine", "wb-ratio", "wb-scheme", "wb-axis-slice_tiles", "wb-sweep-slice_tiles", "wb-sweep-schemes",
           "wb-search", "wb-budget", "wb-more", "wb-pin", "wb-taller", "wb-report"}  # fmt: skip
"""Controls of the first page that the Tab key has to reach."""


@pytest.fixture(scope="module")
def explorer(explorer_site: tuple[Lab, Path]) -> Iterator[ExplorerPage]:
    """One explorer on a cluster of two ranks, for all tests of this file."""
    with opened_explorer(*explorer_site, wide=SIZES[0][0], high=SIZES[0][1]) as opened:
        opened.wait_words("wb-cluster", "2 ranks")
        opened.at("wb-guess").locator("input").fill("100 ms")
        opened.page.wait_for_selector('.wb-ruler-name:text("your guess")')
        yield opened
        assert opened.notebook.complaints == []


def boxes(explorer: ExplorerPage, size: tuple[int, int]) -> dict[str, dict[str, float]]:
    """Where everything is in a window of *size*, in pixels."""
    explorer.page.set_viewport_size({"width": size[0], "height": size[1]})
    explorer.page.wait_for_timeout(700)
    drawn: dict[str, dict[str, float]] = explorer.page.evaluate(_BOXES)
    return drawn


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_everything_is_on_the_screen_without_scrolling_the_page(explorer: ExplorerPage, size: tuple[int, int]) -> None:
    at = boxes(explorer, size)
    screen, page, strip = at["jp-WindowedPanel-outer"], at["wb-explorer"], at["wb-strip"]
    assert screen["top"] <= page["top"]
    assert page["bottom"] <= screen["bottom"] + 1
    assert page["right"] <= screen["right"]
    assert strip["height"] <= STRIP_MOST
    for name in ("jp-WindowedPanel-outer", "wb-explorer", "wb-strip", "wb-card", "wb-timeline-box"):
        assert at[name]["wider"] <= 0, f"{name} is wider than its place"
    assert at["wb-timeline-box"]["bottom"] <= page["bottom"] + 1
    assert 155 <= at["wb-timeline-box"]["height"] <= 330, "it scrolls, so that the chart above it is whole"
    assert at["wb-stage"]["height"] >= 200
    assert explorer.page.evaluate(_OVERLAPS) == [3, 0], "labels of guess, estimate and best sequential"
    assert explorer.page.evaluate(_CUT_TITLES) == [], "titles of views and of buttons that are cut"
    if size[0] == NARROW:
        assert at["wb-card"]["height"] == 0
    else:
        assert at["wb-fold"]["height"] == 0
        assert at["wb-card"]["width"] == COLUMN
        assert at["wb-card"]["longer"] <= 0, "with Advanced closed nothing on the left needs to be scrolled"


def test_tabs_and_buttons_are_inside_the_page_whatever_their_words(explorer: ExplorerPage) -> None:
    width = "(pin, words) => { if (words) pin.lastChild.textContent = words; return pin.offsetWidth; }"
    boxes(explorer, (NARROW - SCROLL_BARS, 768))
    pin = explorer.at("wb-pin-baseline")
    words = pin.inner_text().strip()
    before = pin.evaluate(width)
    assert pin.evaluate(width, "Unpin baseline") == before, "what is beside it stays where it is"
    assert explorer.page.evaluate(_OUTSIDE) == []
    pin.evaluate(width, words)


@pytest.mark.slow
def test_why_opens_whole_over_the_page_and_closes(explorer: ExplorerPage) -> None:
    why, opened = explorer.at("wb-answer-why").locator("summary"), ".wb-answer-why details > div"
    for size, close in zip(SIZES, ("Escape", "a click", "Escape"), strict=True):
        boxes(explorer, size)
        why.click()
        explorer.page.wait_for_selector(opened)
        assert explorer.page.evaluate(_SEEN, opened) == [True] * 4, f"its corners at {size}"
        if close == "Escape":
            explorer.page.keyboard.press(close)
        else:
            explorer.at("wb-title").click()
        explorer.page.wait_for_selector(opened, state="hidden")


@pytest.mark.slow
def test_a_report_says_where_it_is_on_a_line_of_its_own(explorer: ExplorerPage) -> None:
    boxes(explorer, SIZES[0])
    assert explorer.at("wb-report-link").is_hidden()
    explorer.at("wb-report").click()
    explorer.wait_words("wb-report-link", "There is no run yet")
    assert explorer.page.evaluate(_SEEN, ".wb-report-link .wb-note") == [True] * 4
    assert explorer.page.evaluate(_OUTSIDE) == []


def test_the_tab_key_enters_the_views_at_the_current_one(explorer: ExplorerPage) -> None:
    explorer.open_tab("Compare")
    index = "(tabs) => tabs.filter((tab) => tab.tabIndex === 0).map((tab) => tab.innerText.trim())"
    tabs = explorer.page.locator(".wb-panels > .lm-TabBar .lm-TabBar-tab")
    assert tabs.evaluate_all(index) == ["Compare"]
    tabs.evaluate_all("(tabs) => tabs.forEach((tab, place) => { tab.tabIndex = place ? -1 : 0; })")
    explorer.at("wb-source").locator("button").first.focus()
    explorer.page.keyboard.press("Tab")
    assert tabs.evaluate_all(index) == ["Compare"], "whoever opened it, and whatever Lumino has left"
    explorer.open_tab("Landscape")


@pytest.mark.slow
def test_the_tooltip_of_a_tick_is_its_words(explorer: ExplorerPage) -> None:
    label = explorer.at("wb-sweep-slice_tiles").locator("label").last
    label.hover()
    titles = label.locator("[title]").evaluate_all("(parts) => parts.map((part) => part.title)")
    assert set(titles) == {label.evaluate("(shown) => shown.textContent")}
    assert "<" not in titles[0]


@pytest.mark.slow
def test_what_a_place_cuts_has_all_of_its_text_as_a_tooltip(explorer: ExplorerPage) -> None:
    boxes(explorer, (NARROW, 768))
    heading = explorer.page.locator(".wb-stage .workbench-live-chart-heading").first
    assert heading.get_attribute("title") is None
    heading.hover()
    explorer.page.wait_for_function("at => at.title", arg=heading.element_handle())
    assert str(heading.get_attribute("title")).split() == " ".join(heading.locator("div").all_text_contents()).split()
    boxes(explorer, (1920, 1080))
    explorer.at("wb-run").hover()
    heading.hover()
    explorer.page.wait_for_function("at => !at.title", arg=heading.element_handle())


def test_nothing_lies_over_the_left_edge_of_the_page(explorer: ExplorerPage) -> None:
    boxes(explorer, SIZES[0])
    covered = explorer.page.evaluate(_COVERED)
    assert covered == [], "JupyterLab's own parts of a cell take no click from the page"


def test_the_strip_stays_while_a_view_is_scrolled(explorer: ExplorerPage) -> None:
    explorer.open_tab("Why")  # which is longer than its place
    explorer.page.wait_for_function("() => document.querySelectorAll('.wb-why .role-axis-label text').length > 8")
    before = boxes(explorer, SIZES[0])["wb-strip"]
    explorer.page.wait_for_function(_IS_LONGER)
    explorer.at("wb-stage").hover()
    explorer.page.mouse.wheel(0, 400)
    explorer.page.wait_for_timeout(300)
    assert explorer.at("wb-stage").evaluate("(stage) => stage.scrollTop") > 0
    assert explorer.page.evaluate(_BOXES)["wb-strip"] == before
    explorer.at("wb-stage").evaluate("(stage) => { stage.scrollTop = 0; }")
    explorer.open_tab("Landscape")


@pytest.mark.slow
def test_folded_controls_open_above_the_views_by_the_keyboard(explorer: ExplorerPage) -> None:
    boxes(explorer, SIZES[2])
    assert "GEMM -> all-to-all" in explorer.words("wb-fold")
    explorer.at("wb-fold").focus()
    explorer.page.keyboard.press("Enter")
    explorer.page.wait_for_selector(".wb-operator select")
    at = boxes(explorer, SIZES[2])
    assert at["wb-card"]["height"] > 200
    assert at["wb-card"]["bottom"] <= at["wb-stage"]["top"], "above a view, not over it"
    assert at["wb-stage"]["height"] >= 120, "a view stays in sight"
    explorer.page.keyboard.press("Enter")
    explorer.page.wait_for_selector(".wb-operator select", state="hidden")


def test_the_view_takes_the_room_of_the_timeline_and_gives_it_back(explorer: ExplorerPage) -> None:
    before = boxes(explorer, SIZES[0])
    explorer.at("wb-taller").click()
    explorer.page.wait_for_selector(".wb-timeline-box", state="hidden")
    taller = boxes(explorer, SIZES[0])
    assert taller["wb-stage"]["height"] >= before["wb-stage"]["height"] + 150
    explorer.at("wb-taller").click()
    explorer.page.wait_for_selector(".wb-timeline-box")
    assert boxes(explorer, SIZES[0])["wb-stage"] == before["wb-stage"]


def test_the_tab_key_reaches_every_control_and_shows_where_it_is(explorer: ExplorerPage) -> None:
    boxes(explorer, SIZES[0])
    explorer.page.wait_for_selector(".wb-use-answer:not([disabled])")
    explorer.page.wait_for_selector(".wb-run:not([disabled])")
    explorer.at("wb-source").locator("button").first.focus()
    reached: set[str] = set()
    unseen: list[Any] = []
    for _ in range(90):
        names, is_shown = explorer.page.evaluate(_REACHED)
        reached |= set(names)
        unseen += [] if is_shown else [names]
        explorer.page.keyboard.press("Tab")
    assert REACHED - reached == set()
    assert unseen == [], "one has to see where the focus is"


def test_the_times_are_text_for_screen_readers_too(explorer: ExplorerPage) -> None:
    assert explorer.page.locator(".wb-ruler svg").get_attribute("aria-hidden") == "true"
    tree = explorer.at("wb-strip").aria_snapshot()
    for words in ("100 ms", "your guess", "estimated", "over the best sequential"):
        assert words in tree


_SLIDER = """() => {
  const row = document.querySelector(".wb-axis-slice_tiles").closest(".wb-axis-row");
  const [readout, range] = [row.querySelector(".widget-readout"), row.querySelector(".wb-aloud").nextSibling];
  const before = [readout.textContent, range.data];
  [readout.textContent, range.data] = ["131072", "16\u2013131072"];
  const sizes = [readout.scrollWidth - readout.clientWidth, row.querySelector(".slider-container").clientWidth];
  [readout.textContent, range.data] = before;
  return sizes;
}"""
TRACK_LEAST = 25


def test_a_slider_of_six_digits_shows_them_all_and_keeps_its_track(explorer: ExplorerPage) -> None:
    """An embedding's 16384 tiles per slice read 1638, and the track was as short as the handle."""
    boxes(explorer, SIZES[0])
    cut, track = explorer.page.evaluate(_SLIDER)
    assert cut <= 0
    assert track >= TRACK_LEAST


_CHART = """() => {
  const stage = document.querySelector(".wb-stage");
  const drawn = stage.querySelector(".wb-tab-landscape svg.marks");
  const [at, around] = [drawn.getBoundingClientRect(), stage.getBoundingClientRect()];
  return { below: around.bottom - at.bottom, height: at.height, longer: stage.scrollHeight - stage.clientHeight };
}"""


@pytest.mark.slow
def test_a_chart_takes_the_height_that_the_window_gives_to_its_view(explorer: ExplorerPage) -> None:
    explorer.open_tab("Landscape")
    for size in SIZES[:2]:  # on a narrow page a strip of more lines may leave less room: then the view scrolls
        boxes(explorer, size)
        assert explorer.page.evaluate(_CHART)["longer"] <= 0, f"the chart is cut at {size}"
    boxes(explorer, (1920, 1080))
    chart = explorer.page.evaluate(_CHART)
    assert 0 <= chart["below"] <= 60, "the room below its tab's frame is not left empty"
    assert chart["longer"] <= 0
    low = chart["height"]
    explorer.at("wb-taller").click()
    boxes(explorer, (1920, 1080))
    taller = explorer.page.evaluate(_CHART)
    assert taller["height"] >= low + 200
    assert taller["longer"] <= 0
    explorer.at("wb-taller").click()
    boxes(explorer, (1920, 1080))
    assert explorer.page.evaluate(_CHART) == chart
