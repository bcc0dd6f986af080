"""The lecturer's page draws what people guessed, live, before and after the reveal; what they wrote is text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Scheduler, SpecCluster
from playwright.sync_api import Browser, Page, expect

from cluster.broker import dask_settings
from cluster.workshop import hosting
from cluster.workshop.client import ClassBoard
from cluster.workshop.hosting import Plan, Workshop
from workbench.reports.class_page import class_page

pytestmark = [pytest.mark.browser, pytest.mark.alone]

MARKUP = "<img onerror=alert(1)>"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """One on a scheduler without workers: the page needs none."""
    folder = tmp_path_factory.mktemp("workshop")
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        with dask.config.set(dask_settings()), SpecCluster(workers={}, scheduler=scheduler) as cluster:
            plan = Plan(students=2, cluster=cluster.scheduler_address, port=0)
            opened, _ = hosting.open_workshop(plan, class_page, folder)
            yield opened
            hosting.close_workshop()


@pytest.fixture
def board(workshop: Workshop) -> Iterator[ClassBoard]:
    with ClassBoard.connect(workshop.target) as connected:
        yield connected


@pytest.fixture
def page(browser: Browser, workshop: Workshop) -> Iterator[Page]:
    """The page as `up` prints its address; a dialog or an error on it fails the test."""
    opened = browser.new_page()
    troubles: list[str] = []
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("dialog", lambda dialog: troubles.append(dialog.message))
    opened.goto(workshop.page)
    yield opened
    opened.close()
    assert not troubles


def guess(alias: str, question: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"lesson": 1, "question": question, "alias": alias, "guess": value, "unit": "ms", "estimate": 2.5,
            "measured": 2.75, "source": "measured"} | more  # fmt: skip


def marks(page: Page, look: str) -> Any:
    """Drawn marks of one kind, by what they say aloud."""
    return page.locator(f'svg [aria-label*=": {look} "]')


def test_guesses_are_drawn_as_they_come_and_answers_after_the_reveal(page: Page, board: ClassBoard) -> None:
    board.submit(guess("heron", "total time", 3.0))
    expect(marks(page, "guess")).to_have_count(1)
    board.submit(guess(MARKUP, "total time", 1.5))  # a second name of the same person
    expect(marks(page, "guess")).to_have_count(2)
    expect(marks(page, "measured")).to_have_count(0)
    page.get_by_role("button", name="Reveal the answer").click()
    expect(marks(page, "measured")).to_have_count(2)
    expect(marks(page, "estimated")).to_have_count(2)
    assert {each["measured"] for each in board.guesses()} == {2.75}
    page.get_by_role("button", name="Hide the answer").click()
    expect(marks(page, "measured")).to_have_count(0)


def test_a_reveal_that_fails_says_so_until_the_next_one(page: Page, board: ClassBoard) -> None:
    board.submit(guess("heron", "total time", 3.0))
    page.route("**/workshop/reveal", lambda route: route.fulfill(status=500))
    page.get_by_role("button", name="Reveal the answer").first.click()
    trouble = page.locator("#trouble")
    expect(trouble).to_have_text("The answer is not revealed: status 500. Press the button again.")
    page.wait_for_timeout(1500)  # the page looks once a second, and that goes well
    expect(trouble).to_contain_text("is not revealed")
    page.unroute("**/workshop/reveal")
    page.get_by_role("button", name="Reveal the answer").first.click()
    expect(trouble).to_have_text("")
    page.get_by_role("button", name="Hide the answer").first.click()
    expect(page.get_by_role("button", name="Hide the answer")).to_have_count(0)


def test_names_with_markup_are_text(page: Page, board: ClassBoard) -> None:
    board.submit(guess(MARKUP, "<b>bold</b> question", "<i>fused</i>", unit="", estimate="fused", measured="fused"))
    heading = page.get_by_role("heading", name="Lesson 1: <b>bold</b> question")
    expect(heading).to_be_visible()
    expect(page.locator("svg text", has_text=MARKUP).first).to_be_visible()
    assert page.locator("main img, main b, main i").count() == 0


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_it_is_legible_in_light_and_dark(page: Page, board: ClassBoard, mode: Any) -> None:
    board.submit(guess("heron", "total time", 3.0))
    page.emulate_media(color_scheme=mode)
    expect(page.locator("svg").first).to_be_visible()
    style = "getComputedStyle(document.body)"
    colours = [page.evaluate(f"{style}.{name}") for name in ("color", "backgroundColor")]
    light = [sum(map(int, each.removeprefix("rgb(").rstrip(")").split(","))) for each in colours]
    assert abs(light[0] - light[1]) > 450
    assert (light[0] > light[1]) == (mode == "dark")


def test_without_its_key_the_page_shows_nothing(browser: Browser, workshop: Workshop, board: ClassBoard) -> None:
    board.submit(guess("heron", "total time", 3.0))
    opened = browser.new_page()
    opened.goto(workshop.page.partition("#")[0])
    expect(opened.get_by_role("alert")).to_contain_text("this address has no key")
    assert opened.locator("svg").count() == 0
    state = opened.request.get(f"{workshop.page.partition('#')[0]}/state")
    assert (state.status, workshop.page_key in state.text()) == (403, False)
    opened.close()


def test_the_page_fetches_nothing_from_elsewhere(browser: Browser, workshop: Workshop) -> None:
    opened = browser.new_page()
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(workshop.page)
    expect(opened.get_by_role("status")).to_contain_text("0 of 2 links used")
    assert {Path(url.partition("#")[0]).name for url in asked} <= {"workshop", "page.js", "state"}
    assert not [url for url in asked if not url.startswith("http://127.0.0.1:")]
    opened.close()
