"""`workbench lab` opens on the running explorer: nothing is pressed, nothing else run, a reload joins what goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.explorer_lab import NOTEBOOK, ExplorerPage, StartedLab, started_lab
from tests.browser.lab import REPOSITORY
from tests.browser.measure_explorer import ask_for_a_thousand
from workbench.lab import SHOWN
from workbench.results.store import STORE_FILE, Store

pytestmark = [pytest.mark.browser, pytest.mark.alone]

DEADLINE_MS = 200_000
"""For the explorer to be drawn, on a machine that does other things, too."""
STRANGER = "open('was_run', 'w').close()"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedLab]:
    """One lab of two ranks for all tests of this file."""
    with started_lab(tmp_path_factory.mktemp("first_page"), "--ranks", "2", "--no-calibration") as started:
        yield started


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One person's browser at a laptop's size."""
    made = browser.new_context(viewport={"width": 1366, "height": 768})
    yield made
    made.close()


@pytest.fixture(scope="module")
def explorer(lab: StartedLab, context: BrowserContext) -> ExplorerPage:
    """The printed address, opened; nothing was pressed."""
    with lab.kernel() as kernel:
        opened = lab.open(context)
        wait_drawn(opened)
        said: list[str] = []
        while SHOWN not in said:  # queue.Empty where the page never says so
            message = kernel.get_iopub_msg(timeout=120)
            said += [message["content"]["code"]] if message["msg_type"] == "execute_input" else []
    return opened


def wait_drawn(explorer: ExplorerPage) -> None:
    explorer.page.wait_for_selector(".wb-timeline svg.marks", timeout=DEADLINE_MS)


def explorers_of_the_kernel(lab: StartedLab) -> str:
    """How many explorers there are, and threads of a run."""
    count = "import gc, threading; from workbench.widgets.explorer_page import Explorer; "
    count += "len([1 for found in gc.get_objects() if isinstance(found, Explorer)]), "
    count += "len([1 for thread in threading.enumerate() if thread.name == 'workbench run'])"
    with lab.kernel() as kernel:
        asked = kernel.execute(count, store_history=False)
        while True:
            message = kernel.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") == asked and message["msg_type"] == "execute_result":
                return str(message["content"]["data"]["text/plain"])


def test_it_opens_on_the_running_explorer_and_on_nothing_else(explorer: ExplorerPage) -> None:
    page = explorer.page
    before = explorer.words("wb-headline")
    handle = explorer.at("wb-ratio").locator(".noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('.wb-headline').innerText !== before", arg=before)
    assert not page.locator("#jp-left-stack").is_visible(), "the file browser is open"
    assert page.locator(".jp-Dialog, .Toastify__toast").count() == 0, "something asks or tells"
    assert page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab").count() == 1
    assert page.locator(".wb-explorer").count() == 1
    assert explorer.notebook.outside == []
    assert explorer.notebook.complaints == []


@pytest.mark.slow
def test_what_is_not_the_shipped_explorer_is_opened_and_not_run(
    lab: StartedLab, explorer: ExplorerPage, context: BrowserContext
) -> None:
    folder = lab.notebook.parent
    shipped = json.loads(lab.notebook.read_text())
    edited = json.loads(lab.notebook.read_text())
    edited["cells"][0]["source"] += ["\n", STRANGER]
    (folder / "edited.ipynb").write_text(json.dumps(edited))
    longer = {**shipped, "cells": [*shipped["cells"], {**shipped["cells"][0], "id": "more", "source": STRANGER}]}
    (folder / "longer.ipynb").write_text(json.dumps(longer))
    # a module of the explorer's name beside the very same cells
    (folder / "sent" / "workbench" / "widgets").mkdir(parents=True)
    (folder / "sent" / "workbench" / "__init__.py").write_text(STRANGER)
    shutil.copy(lab.notebook, folder / "sent")
    for name in ("edited.ipynb", "longer.ipynb", "sent/explore.ipynb"):
        opened = lab.open(context, name)
        opened.page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        opened.notebook.wait_idle()
        opened.page.wait_for_timeout(1500)  # the shipped one is run within milliseconds from here
        assert opened.page.locator(".wb-explorer").count() == 0, name
        prompts = opened.page.locator(".jp-CodeCell .jp-InputPrompt").all_inner_texts()
        assert not any(letter.isdigit() or letter == "*" for letter in "".join(prompts)), name
        opened.page.close()
    assert not list(folder.rglob("was_run"))


@pytest.mark.slow
def test_a_reload_and_a_second_tab_join_the_run_that_goes_on(
    lab: StartedLab, explorer: ExplorerPage, context: BrowserContext
) -> None:
    asked: list[str] = []
    explorer.page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    explorer.page.bring_to_front()
    explorer.wait_words("wb-cluster", "2 ranks")
    ask_for_a_thousand(explorer)
    explorer.begin()
    mark = ".wb-tab-along-an-axis .mark-symbol.role-mark path"
    explorer.page.wait_for_selector(mark, state="attached", timeout=DEADLINE_MS)
    before = explorer.page.locator(mark).count()
    explorer.page.reload()
    wait_drawn(explorer)
    assert explorer.at("wb-stop").is_enabled(), "the run is not joined"
    more = f"before => document.querySelectorAll('{mark}').length >= before"
    explorer.page.wait_for_function(more, arg=before)
    second = lab.open(context)
    wait_drawn(second)
    second.page.wait_for_function(more, arg=before)
    assert explorers_of_the_kernel(lab) == "(1, 1)"
    second.at("wb-stop").click()
    second.wait_end()
    second.page.close()
    explorer.page.bring_to_front()
    explorer.wait_end()
    explorer.wait_words("wb-progress", "stopped")
    assert explorer.page.locator(".wb-explorer").count() == 1
    assert asked == [], "JupyterLab asks whether to leave"
    with Store(lab.runs / STORE_FILE) as store:
        assert len(store.runs()) == 1


@pytest.mark.slow
def test_a_restarted_kernel_shows_the_last_run(lab: StartedLab, explorer: ExplorerPage) -> None:
    with Store(lab.runs / STORE_FILE) as store:
        (last,) = store.runs()
    ticks = ".wb-group-schedule input[type=checkbox], .wb-group-sweep input[type=checkbox]"
    ticked = explorer.page.locator(ticks).evaluate_all("(all) => all.map((each) => each.checked)")
    title = explorer.words("wb-title")
    assert any(ticked), "a thousand schedules were swept"
    explorer.page.locator('[data-command="notebook:restart-kernel"], [title^="Restart the kernel"]').first.click()
    explorer.page.locator(".jp-Dialog .jp-mod-accept").click()
    explorer.page.wait_for_selector(f'.wb-progress :text("{last["id"]}")', timeout=DEADLINE_MS)
    wait_drawn(explorer)
    assert explorer.page.locator(".wb-explorer").count() == 1
    assert explorers_of_the_kernel(lab) == "(1, 0)"
    assert explorer.page.locator(ticks).evaluate_all("(all) => all.map((each) => each.checked)") == ticked
    assert explorer.words("wb-title") == title, "the problem and its schedule are those of before"


@pytest.mark.slow
def test_the_notebook_has_nothing_to_save_until_a_person_edits_it(lab: StartedLab, explorer: ExplorerPage) -> None:
    unsaved = explorer.page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab.jp-mod-dirty")
    assert unsaved.count() == 0
    explorer.page.locator(".jp-MarkdownCell").first.dblclick()
    explorer.page.keyboard.type("my notes ")
    unsaved.wait_for()
    explorer.page.reload()
    wait_drawn(explorer)
    assert lab.notebook.read_bytes() == (REPOSITORY / "notebooks" / NOTEBOOK).read_bytes()
