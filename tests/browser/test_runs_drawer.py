"""The drawer of runs in a real browser: filtered, edited with the keyboard, compared, emptied, and fed with files.

One page serves all of it, since a JupyterLab and its kernel take seconds to start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import JSHandle, Page, expect

from tests.browser.lab import Lab, Notebook
from workbench import resources
from workbench.results import frames
from workbench.results.imports import import_run
from workbench.results.store import Store

pytestmark = [pytest.mark.browser, pytest.mark.alone]

SHOWN = """
import ipywidgets
from workbench.results.store import Store
from workbench.widgets.controls import STYLE
from workbench.widgets.runs_drawer import DrawerActions, RunsDrawer
heard = []
drawer = RunsDrawer(Store(Path({path!r})), DrawerActions(
    show=lambda ids: heard.append(["show", *ids]), compare=lambda *ids: heard.append(["compare", *ids]),
    report=lambda ids: heard.append(["report", *ids])))
page = ipywidgets.VBox([ipywidgets.HTML(STYLE), drawer.widget], layout=ipywidgets.Layout(height="420px"))
page.add_class("wb-explorer")
display(page)
"""
LAPTOP, TWO_HOSTS = "laptop_overlap_2_ranks.jsonl", "laptop_two_hosts.jsonl"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A store with two imported recordings, and their runs by file name."""
    path = tmp_path_factory.mktemp("drawer") / "store.sqlite"
    folder = resources.data_directory() / "recordings"
    with Store(path) as store:
        made = {name: import_run(store, name, (folder / name).read_bytes()).id for name in (LAPTOP, TWO_HOSTS)}
        frames.export(frames.frame(store.rows(made[TWO_HOSTS])), "csv", path.with_name("rows.csv"))
    return path, made


@pytest.fixture(scope="module")
def notebook(lab: Lab, runs: tuple[Path, dict[str, str]]) -> Iterator[Notebook]:
    with lab.opened(["from pathlib import Path\n" + SHOWN.format(path=str(runs[0]))]) as opened:
        opened.run_all()
        expect(opened.page.locator(".wb-runs-line")).to_have_count(2)
        yield opened
        assert (opened.outside, opened.complaints) == ([], [])


def dropped(page: Page, name: str, content: str) -> JSHandle:
    """A file as a person drags it."""
    return page.evaluate_handle(
        """([name, content]) => {
             const data = new DataTransfer();
             data.items.add(new File([content], name));
             return data;
           }""",
        [name, content],
    )


def test_the_list_is_filtered_and_ticked_runs_are_compared(
    notebook: Notebook, runs: tuple[Path, dict[str, str]]
) -> None:
    page, rows = notebook.page, notebook.page.locator(".wb-runs-line")
    page.get_by_label("Filter the runs").fill("two_hosts recorded")
    expect(page.locator(".wb-runs-line:visible")).to_have_count(1)
    expect(page.locator(".wb-runs-count")).to_have_text("1 of 2 runs")
    page.get_by_label("Filter the runs").fill("")
    compare = page.get_by_role("button", name="Compare the two ticked runs")
    for number in range(2):
        expect(compare).to_be_disabled()
        rows.nth(number).get_by_role("checkbox").check()
    compare.click()
    page.get_by_role("button", name="One report of the ticked runs").click()
    assert notebook.python("print(heard)").strip() == str(
        [["compare", *runs[1].values()], ["report", *runs[1].values()]]
    )


def test_a_note_and_tags_are_typed_with_the_keyboard_alone(notebook: Notebook) -> None:
    page, newest = notebook.page, notebook.page.locator(".wb-runs-line").first
    for column, text, shown in (
        ("note", "with a cooled room", "with a cooled room"),
        ("tags", "night, #paper", "night, paper"),
    ):
        cell = newest.locator(f".wb-runs-{column}")
        cell.get_by_role("button").press("Enter")
        expect(cell.get_by_role("textbox")).to_be_focused()
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        expect(cell.get_by_role("button")).to_have_text(shown)
    cell.get_by_role("button").press("Enter")
    page.keyboard.type("nothing of this")
    page.keyboard.press("Escape")
    expect(cell.get_by_role("button")).to_have_text("night, paper")


@pytest.mark.slow
def test_a_run_is_deleted_and_brought_back(notebook: Notebook, runs: tuple[Path, dict[str, str]]) -> None:
    page = notebook.page
    page.locator(".wb-runs-line").first.get_by_role("checkbox").uncheck()
    page.get_by_role("button", name="Delete the ticked runs").click()
    expect(page.locator(".wb-runs-line")).to_have_count(1)
    page.get_by_role("button", name=f"Bring run {runs[1][LAPTOP]} back").click()
    expect(page.locator(".wb-runs-line")).to_have_count(2)
    expect(page.locator(".wb-runs-deleted")).to_be_hidden()


@pytest.mark.slow
def test_a_file_dropped_on_the_page_becomes_a_run_or_one_sentence(
    notebook: Notebook, runs: tuple[Path, dict[str, str]]
) -> None:
    page, place = notebook.page, ".wb-explorer .wb-runs-bar"
    content = runs[0].with_name("rows.csv").read_text()
    page.dispatch_event(place, "dragover", {"dataTransfer": dropped(page, "rows.csv", content)})
    expect(page.locator(".wb-runs-drop")).to_have_count(1)
    page.dispatch_event(place, "drop", {"dataTransfer": dropped(page, "rows.csv", content)})
    expect(page.locator(".wb-runs-message")).to_contain_text("which is ticked")
    expect(page.locator(".wb-runs-line")).to_have_count(3)
    page.dispatch_event(place, "drop", {"dataTransfer": dropped(page, "other.csv", "name,age\nada,36\n")})
    expect(page.get_by_role("alert").first).to_contain_text("other.csv cannot be imported: it is another table")
    large = "x" * (5 << 20)  # more than one message of the server may hold
    page.dispatch_event(place, "drop", {"dataTransfer": dropped(page, "large.csv", large)})
    expect(page.get_by_role("alert").first).to_contain_text("large.csv cannot be imported", timeout=60_000)
