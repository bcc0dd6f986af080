"""Every tab's plot keeps its width and its marks, whoever answers: when data came, after a resize, behind a tab."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.explorer_lab import PATIENCE_MS, ExplorerPage, opened_explorer
from tests.browser.lab import Lab
from workbench.widgets.panels import ALONG, BEST, LANDSCAPE, LOSSES, SAMPLES, TRIALS

pytestmark = [pytest.mark.browser, pytest.mark.alone]

WIDTHS = (1366, 1024, 1920)
HIGH = 768
TABS = (TRIALS, ALONG, LANDSCAPE, LOSSES, SAMPLES, BEST)
PLOT_SHARE = 0.6
"""Of its panel's width a plot has at least this much; its axis and its labels take the rest."""
_SEEN = """(mark) => {
  const figure = document.querySelector(`${mark} .workbench-live-chart`);
  const drawing = figure?.querySelector("svg.marks");
  if (!drawing || figure.clientWidth === 0) return null;
  const frames = [...drawing.querySelectorAll(".role-frame > g > path.background")];
  const hasSize = ({ width, height }) => width + height > 0;
  const marks = [...drawing.querySelectorAll(".role-mark path")].filter((mark) => hasSize(mark.getBBox()));
  return {
    panel: figure.clientWidth,
    spills: figure.scrollWidth - figure.clientWidth,
    drawing: drawing.getBoundingClientRect().width,
    plot: Math.max(...frames.map((frame) => frame.getBoundingClientRect().width)),
    high: drawing.getBoundingClientRect().height,
    marks: marks.length,
  };
}"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What of a chart is on the page, in pixels."""

    panel: float
    spills: float
    drawing: float
    plot: float
    high: float
    marks: int

    def complaint(self) -> str:
        """Why this is no chart that one can read; empty when it is."""
        if self.plot < PLOT_SHARE * self.panel:
            return f"the plot is {self.plot:.0f} px wide in a panel of {self.panel:.0f}"
        if self.spills > 0 or abs(self.drawing - self.panel) > 2:
            return f"the drawing is {self.drawing:.0f} px wide in a panel of {self.panel:.0f}"
        return "" if self.marks else "nothing is drawn"


def tab_mark(name: str) -> str:
    """The panel of a tab; a chart is its own panel or lies in it."""
    return f".wb-tab-{name.lower().replace(' ', '-')}"


def seen(explorer: ExplorerPage, mark: str) -> Seen | None:
    """The chart at *mark*; None while it is not drawn."""
    pixels = explorer.page.evaluate(_SEEN, mark)
    return None if pixels is None else Seen(**pixels)


def settled(explorer: ExplorerPage, mark: str) -> Seen:
    """The chart at *mark* once it is readable and two looks at it are the same; AssertionError says what it was."""
    before, complaint = None, "it was never drawn"
    until = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < until:
        explorer.page.wait_for_timeout(80)
        now = seen(explorer, mark)
        complaint = complaint if now is None else now.complaint()
        if now is not None and now == before and not complaint:
            return now
        before = now
    raise AssertionError(f"{mark}: {complaint or 'it never came to rest'}")


def resize(explorer: ExplorerPage, width: int) -> None:
    """Another width of the window; once the timeline has it, tabs stay where one clicks."""
    explorer.page.set_viewport_size({"width": width, "height": HIGH})
    explorer.page.wait_for_timeout(100)
    settled(explorer, ".wb-timeline")


Look = Callable[[ExplorerPage, str], None]


def every_tab(explorer: ExplorerPage, names: Sequence[str] = TABS, look: Look | None = None) -> dict[str, Seen]:
    """Tabs opened in turn, and the timeline. A tab whose chart is hidden says in words why there is none.

    While a chart is open, *look* says more of it.
    """
    charts = {}
    for name in names:
        explorer.open_tab(name)
        explorer.page.wait_for_selector(f"{tab_mark(name)} >> visible=true")
        if not explorer.page.locator(f"{tab_mark(name)} .workbench-live-chart").is_visible():
            assert explorer.page.locator(f"{tab_mark(name)} .wb-note").first.is_visible(), f"{name} is empty"
            continue
        charts[name] = settled(explorer, tab_mark(name))
        if look is not None:
            look(explorer, name)
    return {**charts, "timeline": settled(explorer, ".wb-timeline")}


def sweep(explorer: ExplorerPage) -> None:
    """A dozen schedules of a tiny problem."""
    explorer.take_sizes(m=256, n=256, k=64)
    explorer.press("wb-scheme", "fused")
    explorer.sweep("slice_tiles")
    explorer.wait_words("wb-plan", "fused schedules")


def measure(explorer: ExplorerPage) -> None:
    explorer.press("wb-source", "This computer")
    explorer.wait_words("wb-cluster", "2 ranks")
    sweep(explorer)
    box = explorer.page.locator(".wb-timeline-box")
    chart, place = settled(explorer, ".wb-timeline").high, box.bounding_box()
    explorer.run()
    explorer.wait_words("wb-headline", "measured")
    # rows of the measured timeline come with it: empty ones had hidden the simulated one. Their box stays, and scrolls.
    assert settled(explorer, ".wb-timeline").high >= chart
    assert box.bounding_box() == place, "the measured timeline moved the page"


def simulate(explorer: ExplorerPage) -> None:
    explorer.press("wb-source", "A machine I do not have")
    explorer.choose("wb-machine", "This computer: CPU ranks on shared memory")
    sweep(explorer)
    explorer.run()


def replay(explorer: ExplorerPage) -> None:
    """A recording of several shapes."""
    explorer.press("wb-source", "Recorded GPUs")
    explorer.choose("wb-recording", "h200_nvl2_gemm (34 whole schedules)")
    explorer.choose("wb-replay-speed", "at once")
    explorer.run()
    explorer.wait_words("wb-headline", "recorded")


SOURCES: dict[str, Callable[[ExplorerPage], None]] = {"measure": measure, "simulate": simulate, "replay": replay}


@pytest.fixture(scope="module")
def opened(explorer_site: tuple[Lab, Path]) -> Iterator[ExplorerPage]:
    """One explorer on a cluster of two ranks, for all tests of this file."""
    with opened_explorer(*explorer_site, wide=WIDTHS[0], high=HIGH) as explorer:
        yield explorer


@pytest.fixture(scope="module", params=SOURCES)
def explorer(opened: ExplorerPage, request: pytest.FixtureRequest) -> Iterator[ExplorerPage]:
    """After a run of one source, whose charts have their data."""
    opened.page.bring_to_front()  # a page behind another one draws no frames
    opened.page.set_viewport_size({"width": WIDTHS[0], "height": HIGH})
    SOURCES[request.param](opened)
    for name in TABS:  # what is made when somebody looks has been made
        opened.open_tab(name)
        opened.page.wait_for_timeout(150)
    opened.notebook.wait_idle()
    yield opened
    assert opened.notebook.complaints == []


@pytest.fixture
def source(request: pytest.FixtureRequest) -> str:
    """Which of SOURCES the explorer of this test has run."""
    return str(request.node.callspec.params["explorer"])


_IN_SIGHT = """(mark) => {
  const { top, bottom, height } = document.querySelector(mark).getBoundingClientRect();
  const frame = document.querySelector(".jp-WindowedPanel-outer, .jp-Notebook").getBoundingClientRect();
  return height > 0 && top >= frame.top - 1 && bottom <= Math.min(frame.bottom, innerHeight) + 1;
}"""
CONTROLS = (".wb-run", ".wb-stop", ".wb-source")
SLICES = ".wb-axis-slice_tiles"
"""Of the form of a fused schedule; a replay's form follows its first schedule, a baseline."""


def in_sight(explorer: ExplorerPage, *marks: str) -> list[str]:
    """Those of *marks* that are not wholly on the screen."""
    return [mark for mark in marks if not explorer.page.evaluate(_IN_SIGHT, mark)]


def form_and_plot_are_in_sight(explorer: ExplorerPage, name: str) -> None:
    """On a small screen, without scrolling the page; Samples and Along an axis have a choice above the plot."""
    if name in (SAMPLES, ALONG):
        return
    explorer.at("wb-taller").click()
    explorer.at("wb-panels").evaluate("(tabs) => tabs.scrollIntoView()")
    explorer.page.wait_for_timeout(300)
    assert in_sight(explorer, *CONTROLS, f"{tab_mark(name)} .role-frame path.background") == [], name
    explorer.at("wb-taller").click()
    explorer.page.wait_for_timeout(100)


@pytest.mark.slow(keeps=1)
def test_every_plot_keeps_its_width_and_its_marks_beside_the_form(explorer: ExplorerPage, source: str) -> None:
    explorer.at("wb-explorer").evaluate("(explorer) => explorer.scrollIntoView()")
    controls = CONTROLS if source == "replay" else (*CONTROLS, SLICES)
    assert in_sight(explorer, *controls, ".wb-timeline-box", ".wb-panels .lm-TabBar") == []
    first = every_tab(explorer, look=form_and_plot_are_in_sight)
    assert set(first) == {*TABS, "timeline"} - ({SAMPLES} if source == "simulate" else set()), "nothing was sampled"

    resize(explorer, WIDTHS[1])  # the last tab is open, all others are hidden
    assert marks(every_tab(explorer)) == marks(first)
    resize(explorer, WIDTHS[2])
    wide = every_tab(explorer, TABS if source == "measure" else (BEST,))
    assert marks(wide) == marks({name: first[name] for name in wide})

    resize(explorer, WIDTHS[0])  # for most sources these tabs were hidden while the page was widened, too
    for name, chart in every_tab(explorer, (TRIALS, LOSSES)).items():
        assert (chart.marks, chart.panel) == (first[name].marks, first[name].panel), name
        assert abs(chart.plot - first[name].plot) <= 2, f"{name}: {first[name].plot} became {chart.plot}"


def marks(charts: dict[str, Seen]) -> dict[str, int]:
    return {name: chart.marks for name, chart in charts.items()}


_LAST_HEADING = """(box) => {
  box.scrollLeft = box.scrollWidth;
  const [heading, frame] = [box.querySelector("th:last-child"), box].map((each) => each.getBoundingClientRect());
  return heading.right <= frame.right + 1 && heading.left >= frame.left - 1;
}"""


@pytest.mark.slow(keeps=1)
def test_every_column_of_the_table_is_reached_and_sorts_by_mouse_and_keyboard(explorer: ExplorerPage) -> None:
    explorer.open_tab("Outcomes")
    table = explorer.page.locator(".wb-outcomes .wb-part").first
    for width in (WIDTHS[1], WIDTHS[0]):
        resize(explorer, width)
        box = table.locator(".wb-scroll")
        assert box.evaluate(_LAST_HEADING), "the last column stays outside its box"
        widths = [each.evaluate("(each) => each.clientWidth") for each in (box, explorer.at("wb-right"))]
        assert widths[0] <= widths[1], "the box is wider than its column"
        is_cut = box.evaluate("(box) => box.scrollWidth > box.clientWidth + 1")
        beyond = table.locator(".wb-beyond").text_content() or ""
        last = table.locator("th").last.inner_text().strip()
        assert (last in beyond) is is_cut, "what is out of sight is named above the table"
    box.evaluate("(box) => { box.scrollLeft = 0; box.focus(); }")
    assert box.evaluate("(box) => document.activeElement === box")

    headings = table.locator("th")
    speed_up = next(n for n, words in enumerate(headings.all_inner_texts()) if words.startswith("Speed-up over"))

    def column() -> list[float]:
        texts = table.locator(f"tbody td:nth-child({speed_up + 1})").all_inner_texts()
        return [float(text.partition("x")[0]) for text in texts if text != "\N{EN DASH}"]

    headings.nth(speed_up).locator("button").click()
    assert headings.nth(speed_up).get_attribute("aria-sort") == "descending"
    assert column() == sorted(column(), reverse=True)
    explorer.page.keyboard.press("Enter")  # the heading has the focus still
    assert headings.nth(speed_up).get_attribute("aria-sort") == "ascending"
    assert column() == sorted(column())
    assert len(column()) >= 2


@pytest.mark.slow(keeps=1)
def test_problems_of_a_replay_are_chosen_from_and_never_drawn_together(explorer: ExplorerPage, source: str) -> None:
    if source != "replay":  # one problem was asked
        assert not explorer.at("wb-problem").is_visible()
        return
    problems = explorer.at("wb-problem").locator("option")
    explorer.open_tab(TRIALS)
    titles = [title.replace("\N{NO-BREAK SPACE}", " ") for title in problems.all_inner_texts()]
    assert len(set(titles)) == len(titles) == 5
    explorer.open_tab("Outcomes")
    assert explorer.page.locator(".wb-part-title").all_inner_texts() == titles, "a part of the table for each"
    explorer.open_tab(TRIALS)
    trials = set()
    for title in titles[::2]:
        explorer.choose("wb-problem", title)
        heading = f".wb-tab-trials .workbench-live-chart-subtitle:has-text('{title}')"
        explorer.page.wait_for_selector(heading)
        settled(explorer, tab_mark(TRIALS))
        assert "x faster than the best sequential schedule" in explorer.words("wb-problem-note")
        trials |= {explorer.page.locator(".wb-tab-trials .times_marks path").count()}
    assert max(trials) < 34, f"trials of several problems stand on one axis: {trials}"
