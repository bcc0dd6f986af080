"""Copy as in a real browser: the clipboard gets the text, and the address of a link opens its view."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, Notebook

pytestmark = [pytest.mark.browser, pytest.mark.alone]

CELL = """
from dataclasses import replace
from workbench.experiment.form import FormQuestion
from workbench.widgets.copy_as import CopyAs, PageState
from workbench.widgets.exploration import Exploration
question = FormQuestion(
    operator="gemm_all_to_all", shape=(("m", 64), ("n", 64), ("k", 64)), dtype="float32", world=2, scheme="fused",
    fabric="emulated:wire_to_compute=0.5", protocol="quick")
state = PageState(exploration=Exploration(view="what matters"), question=question, machine="laptop_cpu", preset="tiny")
shown = []
menu = CopyAs(lambda: state, lambda: True, shown.append)
menu.widget
"""


@pytest.fixture(scope="module")
def notebook(lab: Lab) -> Iterator[Notebook]:
    with lab.opened([CELL]) as opened:
        opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        opened.run_all()
        yield opened
        assert opened.outside == []


def clipboard(notebook: Notebook) -> str:
    return str(notebook.page.evaluate("() => navigator.clipboard.readText()"))


def wait_shown(notebook: Notebook, count: int) -> None:
    """Waits until the kernel has shown the state so often, and nothing else."""
    until = time.monotonic() + 20
    while (seen := notebook.python("print(len(shown), shown == [state] * len(shown))").strip()) != f"{count} True":
        assert time.monotonic() < until, seen
        time.sleep(0.05)


def test_each_kind_is_copied_and_a_pasted_link_opens_its_view(notebook: Notebook) -> None:
    page = notebook.page
    page.get_by_role("button", name="Copy as").press("Enter")
    copied = {}
    for kind in ("Command", "TOML", "Python", "Link"):
        page.locator(".wb-copy-item", has_text=kind).click()
        expect(page.locator(".wb-copy-status")).to_have_text(f"{kind} copied.")
        copied[kind] = clipboard(notebook)
    assert copied["Command"].startswith("workbench run gemm_all_to_all --shape m=64")
    assert 'operator = "gemm_all_to_all"' in copied["TOML"]
    assert "Experiment.from_json" in copied["Python"]
    assert "#view=" in copied["Link"]
    assert "token" not in copied["Link"], "the token of the address is nobody else's"
    page.get_by_label("Paste a link, and press Enter").fill("no link")
    page.keyboard.press("Enter")
    expect(page.locator(".wb-copy-refused")).to_contain_text("This is no link to a view")
    page.get_by_label("Paste a link, and press Enter").fill(copied["Link"])
    page.keyboard.press("Enter")
    expect(page.locator(".wb-copy-status")).to_have_text("This is the view of the link.")
    wait_shown(notebook, 1)
    page.keyboard.press("Escape")
    expect(page.locator(".wb-copy-panel")).to_be_hidden()


def test_arrows_go_through_the_entries_of_the_menu(notebook: Notebook) -> None:
    page = notebook.page
    page.get_by_role("button", name="Copy as").press("Enter")
    for key, kind in (("ArrowDown", "Command"), ("ArrowDown", "TOML"), ("ArrowUp", "Command"), ("ArrowUp", "Link"),
                      ("ArrowDown", "Command")):  # fmt: skip
        page.keyboard.press(key)
        expect(page.locator(".wb-copy-item", has_text=kind)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".wb-copy-panel")).to_be_hidden()


@pytest.mark.slow
def test_where_the_page_may_not_copy_the_text_is_selected(notebook: Notebook) -> None:
    page = notebook.page
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.get_by_role("button", name="Copy as").click()
    page.locator(".wb-copy-item", has_text="TOML").click()
    expect(page.locator(".wb-copy-status")).to_contain_text("press Ctrl+C")
    expect(page.locator(".wb-copy-text")).to_be_focused()
    assert page.evaluate("() => document.activeElement.value.length === document.activeElement.selectionEnd")
    page.keyboard.press("Escape")


@pytest.mark.slow
def test_the_address_of_a_link_reaches_the_kernel_when_the_page_is_opened_with_it(notebook: Notebook, lab: Lab) -> None:
    page = notebook.page
    notebook.python("menu.refresh()")
    code = json.loads(notebook.python("import json; print(json.dumps(menu.widget.texts['code']))"))
    address = page.url.partition("#")[0]
    for query in ("", f"?token={lab.server.token}"):
        page.goto("about:blank")  # a change of the fragment alone would load nothing
        page.goto(f"{address}{query}#view={code}")
        notebook.wait_open()
        notebook.run_all()  # as the lab does with the explorer's notebook
        wait_shown(notebook, 1)
        assert not page.evaluate("() => location.hash"), "a reload keeps what is changed later"
    page.evaluate("(code) => { location.hash = `view=${code}`; }", code)
    wait_shown(notebook, 2)
