"""The table in a real JupyterLab: a hand brushes, sorts, searches, scrolls and selects among 100,000 rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.lab import Lab
from tests.browser.table_lab import GRID, TablePage, opened_table

pytestmark = [pytest.mark.browser, pytest.mark.alone]


@pytest.fixture(scope="module")
def table(lab: Lab) -> Iterator[TablePage]:
    with opened_table(lab) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_from_outside_and_no_complaint(table: TablePage) -> Iterator[None]:
    table.page.bring_to_front()
    yield
    assert table.notebook.outside == []
    assert table.notebook.complaints == []
    table.notebook.python("explored.dispatch(Restore(Exploration(runs=('r',))))")
    table.wait_counts("100,200 rows")


def test_a_brush_of_the_time_leaves_the_rows_of_its_range(table: TablePage) -> None:
    table.press(0.9)
    for share in (0.8, 0.7, 0.6):
        table.drag(share)
    table.page.mouse.up()
    low, high = map(float, table.notebook.python("print(*explored.state.filters.ranges['time_s'])").split())
    assert 0 < low < high
    expected = table.notebook.python(
        "frame = table._whole[2].columns['time_s']\n"
        "low, high = explored.state.filters.ranges['time_s']\nprint(int(((frame >= low) & (frame <= high)).sum()))"
    ).strip()
    table.wait_counts(f"{int(expected):,} of 100,200 rows")
    assert low * 1e6 <= float(table.first_row()[1].replace(",", "")) <= high * 1e6 + 1
    table.page.locator(".wb-chip").click()
    table.wait_counts("100,200 rows:")


def test_a_title_sorts_all_rows_and_text_searches_them(table: TablePage) -> None:
    fastest = float(table.first_row()[1].replace(",", ""))
    table.page.locator(f"{GRID} .dt-scroll-head th", has_text="Time").click()
    table.page.wait_for_function(
        f"before => +document.querySelector('{GRID} tbody tr[data-row] td:nth-child(2)').innerText.replace(',', '')"
        " > before", arg=fastest,
    )  # fmt: skip
    assert table.page.locator(f"{GRID} th[aria-sort=descending]").count() > 0
    table.page.locator(".wb-search input").fill("measured 16")
    table.wait_counts("● 200 measured.")
    table.page.locator(".wb-search input").fill("")


def test_a_row_is_selected_by_hand_by_arrows_and_from_elsewhere(table: TablePage) -> None:
    row = table.page.locator(f"{GRID} tbody tr[data-row]").nth(2)
    name = row.get_attribute("data-row")
    row.click()
    table.page.wait_for_selector(f"{GRID} tr.workbench-selected[aria-selected=true]")
    assert table.notebook.python("print(explored.state.selected)").strip() == name
    table.page.locator(f"{GRID} .dt-scroll-body").focus()
    table.page.keyboard.press("ArrowDown")
    below = table.page.locator(f"{GRID} tbody tr[data-row]").nth(3).get_attribute("data-row")
    table.page.wait_for_function(
        f"name => document.querySelector('{GRID} tr.workbench-selected')?.dataset.row === name", arg=below
    )
    table.notebook.python("explored.dispatch(Select('r/k150/b/measured'))")
    table.page.wait_for_selector(f'{GRID} tr.workbench-selected[data-row="r/k150/b/measured"]')


@pytest.mark.slow
def test_rows_that_come_leave_sort_scroll_and_filter(table: TablePage) -> None:
    table.page.locator(".wb-search input").fill("tma")
    table.wait_counts("200 measured")
    table.notebook.python("explored.dispatch(SortBy('time_s', True))")
    at = table.scroll(4000)
    before = table.first_row()
    table.notebook.python("rows.append(measured(200, 1e-6)); draw()")
    table.wait_counts("201 measured")
    assert table.scroll() == at
    assert table.first_row() == before
    table.notebook.python("rows.pop(); draw()")
    table.page.locator(".wb-search input").fill("")


@pytest.mark.slow
def test_titles_stand_over_their_columns_at_any_scroll(table: TablePage) -> None:
    lefts = (
        "sides => [...document.querySelectorAll(sides)].map((cell) => Math.round(cell.getBoundingClientRect().left))"
    )
    for left in (0, 200):
        table.page.evaluate(f"left => {{ document.querySelector('{GRID} .dt-scroll-body').scrollLeft = left; }}", left)
        table.page.wait_for_timeout(300)
        heads = table.page.evaluate(lefts, f"{GRID} .dt-scroll-head th")
        assert heads == table.page.evaluate(lefts, f"{GRID} .dt-scroll-body tbody tr:first-child td")
