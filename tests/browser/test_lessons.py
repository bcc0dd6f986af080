"""A student types a guess, presses Reveal, and sees marks drawn and the box locked, in a real JupyterLab."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("playwright")

from tests.browser.explorer_lab import PATIENCE_MS, REPOSITORY, explorer_server
from workbench.charts import theme

pytestmark = [pytest.mark.browser, pytest.mark.alone, pytest.mark.slow]
LESSON = "01_read_a_timeline.ipynb"


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A lab without a cluster, with runs of its own."""
    with explorer_server(tmp_path_factory.mktemp("lessons"), browser, num_ranks=0) as (lab, runs):
        yield lab, runs


COUNT = """async ([encoded, wanted]) => {
  const image = new Image();
  image.src = "data:image/png;base64," + encoded;
  await image.decode();
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const { data } = pen.getImageData(0, 0, image.width, image.height);
  const near = (at) => wanted.every((level, channel) => Math.abs(data[at + channel] - level) <= 8);
  return Array.from({ length: data.length / 4 }, (_, pixel) => near(4 * pixel)).filter(Boolean).length;
}"""


def shows(picture: Any, colour: str) -> int:
    """How many pixels of *picture*, as it is on the screen, have that colour."""
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return int(picture.page.evaluate(COUNT, [base64.b64encode(picture.screenshot()).decode(), wanted]))


def test_a_guess_is_typed_revealed_drawn_locked_and_kept(site: tuple[Any, Path]) -> None:
    lab, runs = site
    notebook = lab.server.folder / LESSON
    shutil.copy(REPOSITORY / "notebooks" / LESSON, notebook)
    with lab.opened(notebook) as tab:
        tab.page.set_default_timeout(PATIENCE_MS)
        tab.command("notebook:run-all-cells")
        box = tab.page.locator(".wb-guess-box").first
        box.locator("input[type=text]").wait_for()
        tab.page.locator("text=Guess first: the box about 'total time' is not locked").first.wait_for()
        assert tab.page.locator(".jp-OutputArea-output img[src*=svg]").count() == 0, "no answer before the guess"

        box.locator("input[type=text]").fill("a lot")
        box.locator("button").click()
        tab.page.locator(".wb-guess-message", has_text="'a lot' is no number above 0").wait_for()
        assert not (runs / "guesses.jsonl").exists(), "what is no guess is not kept"

        box.locator("input[type=text]").fill("150")
        box.locator("button").click()
        picture = tab.page.locator(".jp-CodeCell", has=box).locator("img[src*=svg]")
        picture.wait_for()
        assert box.locator("input[type=text]").is_disabled()
        assert box.locator("button").is_disabled()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 300"), "it is drawn"
        drawn = unquote(str(picture.get_attribute("src")))
        for mark in ("your guess, guess: 150 ms", "estimate, estimated: 177 ms", "recorded, recorded: 143 ms"):
            assert f'aria-label="{mark}"' in drawn

        for mode in ("dark", "light"):
            tab.set_mode(mode)
            ink = theme.INKS[theme.Mode(mode)].text
            assert shows(picture, ink) > 50, f"words and axes have the ink of a {mode} page"

        (entry,) = [json.loads(line) for line in (runs / "guesses.jsonl").read_text().splitlines()]
        assert (entry["lesson"], entry["question"], entry["guess"], entry["default"]) == (1, "total_time", 150.0, False)
        assert not tab.outside
