"""A researcher's two minutes: which schedule for one shape, and would it change for fewer tokens, by recordings alone.

Brushes, pins, compares, copies and reloads on the page that `workbench lab` opens. docs/explorer.md has the clicks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.explorer_lab import ExplorerPage, started_lab
from tests.browser.table_lab import GRID, SETTLED_MS, TablePage

pytestmark = [pytest.mark.browser, pytest.mark.alone]

RECORDING = "h200_nvl2_spaces (251 whole schedules)"
WANTED = "recorded gemm_all_to_all 8192"
"""Words of the rows that the question is about: recorded ones of one problem."""
PATIENCE_S = 120


@pytest.fixture(scope="module")
def explorer(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplorerPage]:
    """A laptop's window on a lab without a GPU."""
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    with started_lab(tmp_path_factory.mktemp("researcher"), "--ranks", "2", "--no-calibration") as lab:
        opened = lab.open(context)
        opened.page.wait_for_selector(".wb-timeline svg.marks", timeout=PATIENCE_S * 1000)
        yield opened
        assert (opened.notebook.outside, opened.notebook.complaints) == ([], [])
    context.close()


WHOLE_ROW = """row => {
  const grid = document.querySelector("GRID");
  const titles = [...(grid?.querySelectorAll(".dt-scroll-head th") ?? [])].map(each => each.innerText);
  const texts = [...(grid?.querySelectorAll("tbody tr[data-row]")[row]?.querySelectorAll("td") ?? [])]
    .map(each => each.innerText.replaceAll("\\u00a0", " "));
  return titles.length && titles.length === texts.length ? titles.map((title, n) => [title, texts[n]]) : null;
}""".replace("GRID", GRID)
"""The cells of a row by title, read in one go: between two calls the table may be drawn with other columns."""


def cells(page: Page, row: int) -> dict[str, str]:
    """One row of the table, by title."""
    return dict(page.wait_for_function(WHOLE_ROW, arg=row).json_value())


def cells_once(page: Page, row: int, wanted: Mapping[str, str]) -> dict[str, str]:
    """`cells`, as soon as they have the texts *wanted*: counts are there before the last rows are sorted in."""
    give_up_at = time.monotonic() + SETTLED_MS / 1e3
    while not wanted.items() <= (shown := cells(page, row)).items() and time.monotonic() < give_up_at:
        page.wait_for_timeout(50)
    assert {title: shown.get(title) for title in wanted} == wanted
    return shown


def num_shown(table: TablePage) -> int:
    """How many rows the filters leave."""
    match = re.match(r"([\d,]+) of", table.counts())
    assert match is not None, table.counts()
    return int(match[1].replace(",", ""))


def test_which_schedule_for_this_shape_and_would_it_change_for_fewer_tokens(explorer: ExplorerPage) -> None:
    page, table, began = explorer.page, TablePage(explorer.notebook), time.monotonic()
    explorer.press("wb-source", "Recorded GPUs")
    explorer.choose("wb-recording", RECORDING)
    explorer.choose("wb-replay-speed", "at once")
    explorer.run()
    explorer.open_tab("Table")
    page.locator(".wb-search input").fill(WANTED)
    table.wait_counts("115 recorded")
    expect(page.locator(f"{GRID} tbody tr[data-row]").nth(1)).to_be_in_viewport()
    wanted = {"Source": "\N{BLACK SQUARE} recorded", "m": "8192", "Scheme": "decomposed"}
    fastest = cells_once(page, 0, wanted)
    assert float(fastest["Time, µs"]) < 180
    size = explorer.at("wb-size-m").locator("input")
    size.fill("1024")
    size.press("Tab")
    answer = "() => document.querySelector('.wb-answer-line')?.innerText"
    page.wait_for_function(f"() => /Take decomposed.* by estimate/.test(({answer})())")
    explorer.at("wb-answer-why").click()
    expect(explorer.at("wb-answer-why")).to_contain_text("The nearest shape that was measured is m=2048")
    assert time.monotonic() - began < PATIENCE_S
    size.fill("8192")
    size.press("Tab")


@pytest.mark.slow
def test_what_was_brushed_pinned_and_compared_is_there_after_a_reload_and_behind_a_link(
    explorer: ExplorerPage,
) -> None:
    page, table, pin = explorer.page, TablePage(explorer.notebook), explorer.at("wb-pin-baseline")
    explorer.at("wb-taller").click()  # gives the lines room
    page.wait_for_timeout(1500)  # they are drawn in it
    before = num_shown(table)
    table.press(0.97)
    page.mouse.move(*table.time_axis(0.65), steps=4)
    page.mouse.up()
    page.locator(".wb-chip").wait_for()
    page.wait_for_timeout(1000)  # the last movement is drawn
    brushed = num_shown(table)
    assert 0 < brushed < before
    rows = page.locator(f"{GRID} tbody tr[data-row]")
    first, second = (rows.nth(number).get_attribute("data-row") for number in (0, 1))
    rows.nth(0).click()
    page.wait_for_selector(f'{GRID} tr.workbench-selected[data-row="{first}"]')
    pin.click()
    expect(pin).to_have_text("Unpin baseline")
    rows.nth(1).click()
    page.wait_for_selector(f'{GRID} tr.workbench-selected[data-row="{second}"]')
    explorer.open_tab("Compare")
    compared = explorer.at("wb-compare-sentence")
    expect(compared).to_contain_text("decomposed")
    sentences = compared.inner_text()
    page.get_by_role("button", name="Copy as").click()
    page.locator(".wb-copy-item", has_text="Link").click()
    expect(page.locator(".wb-copy-status")).to_have_text("Link copied.")
    link = str(page.evaluate("() => navigator.clipboard.readText()"))
    page.keyboard.press("Escape")
    page.reload()
    expect(pin).to_have_text("Unpin baseline", timeout=PATIENCE_S * 1000)
    expect(compared).to_have_text(sentences.strip())
    pin.click()
    expect(pin).to_have_text("Pin baseline")
    page.get_by_role("button", name="Copy as").click()
    page.get_by_label("Paste a link, and press Enter").fill(link)
    page.keyboard.press("Enter")
    expect(pin).to_have_text("Unpin baseline")
    page.keyboard.press("Escape")
    explorer.open_tab("Table")
    table.wait_counts(f"{brushed:,} of")
    page.wait_for_selector(f'{GRID} tr.workbench-selected[data-row="{second}"]')
