"""What a report shows on screen and on paper is read back: no column is cut, no row is missing, no title is clipped."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode

from tests.reports.conftest import joined, row
from workbench.charts import trials
from workbench.reports import render
from workbench.reports.export import export
from workbench.reports.render import browser
from workbench.reports.run_report import CaseDrawing, run_report
from workbench.reports.side_by_side import RUNS_MOST, RunSummary, side_by_side
from workbench.results.deltas import Pinned

pytestmark = pytest.mark.browser
PAPER_PIXELS, SIDEWAYS_PIXELS = 680, 1009
"""A4 between its margins, as a browser counts, upright and on its side."""
NUMBER = re.compile(r"\d[\d.]*")
LONG = "How long does each of the many trials of this sweep take, and why is this title longer than any plot is wide?"

_CUT = """() => [...document.querySelectorAll("td, th")].filter((cell) => {
  const box = cell.getBoundingClientRect(), text = document.createRange();
  text.selectNodeContents(cell);
  const said = text.getBoundingClientRect();
  const frame = cell.closest(".jp-RenderedHTML").getBoundingClientRect();
  return said.width > 0 && (box.right > frame.right + 1 || said.right > box.right + 1);
}).map((cell) => cell.innerText)"""
"""Cells that end behind the edge of their page, or whose words end behind their own."""

_HIDDEN = """() => [...document.querySelectorAll(".jp-RenderedHTML")].filter((frame) =>
  frame.scrollWidth > frame.clientWidth + 1 && !["auto", "scroll"].includes(getComputedStyle(frame).overflowX)
).map((frame) => frame.innerText)"""
"""Frames that are wider than their page and cannot be scrolled."""

_CLIPPED = """() => [...document.querySelectorAll(".wb-still")].flatMap((image) => {
  const place = document.createElement("div");
  place.innerHTML = new TextDecoder().decode(Uint8Array.from(atob(image.src.split(",")[1]), (c) => c.charCodeAt(0)));
  document.body.append(place);
  const svg = place.querySelector("svg"), edge = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width > 0 && (box.left < edge.left - 1 || box.right > edge.right + 1);
  }).map((text) => text.textContent);
})"""
"""Words of a chart's picture that reach over its edge."""


@cache
def sweep() -> NotebookNode:
    """Many schedules with long axes, several figures that differ, failures, and a chart with a long title."""
    rows = []
    for count in range(60):
        seconds = 0.0401 + 0.001 * count
        axes = {"tile": "128x256x3072", "slice_tiles": count, "tile_order": "remote_first", "write": "zero_copy"}
        measured = row("fused", seconds, axes={**axes, "grid": count % 7, "store": "registers" if count % 2 else "tma"},
                       low_s=0.97 * seconds, high_s=1.04 * seconds, skew_s=1e-5 * (count + 1), samples=30 + count,
                       floor_s=0.0352, max_relative_error=1e-7 * (count + 1))  # fmt: skip
        guessed = {"low_s": 0.6 * seconds, "high_s": 3.1 * seconds, "calibrated": False}
        rows += [measured, {**measured, "source": "estimated", "outcome": "estimate", **guessed}]
    why = "scheme = concurrent was asked for. Accepted: " + ", ".join(f"schedule_number_{n}" for n in range(40))
    rows.append(row("concurrent", None, stage="refused", message=why))
    frame = pd.DataFrame({"n": [1, 2], "ms": [1.0, 2.0]})
    chart = alt.Chart(frame, title=alt.TitleParams(LONG, subtitle=[LONG, LONG])).mark_point().encode(x="n", y="ms")
    return run_report({"title": "A sweep of many schedules"}, rows, [CaseDrawing([("", chart)])])


@cache
def beside() -> NotebookNode:
    """As many runs as fit side by side."""
    runs = [
        RunSummary({"run": f"2026-{run}", "machine": f"machine_{run}"},
             [row(scheme, 0.0501 + 0.00137 * (run + 3 * place), low_s=0.0412 + 0.001 * run, high_s=0.0803 + 0.001 * run)
              for place, scheme in enumerate(("sequential", "decomposed", "fused"))])
        for run in range(RUNS_MOST)
    ]  # fmt: skip
    return side_by_side(runs)


Exported = Callable[[Callable[[], NotebookNode], str], Path]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """exported(make, kind): the file of a notebook, which is written once for all tests."""
    folder = tmp_path_factory.mktemp("rendered")

    @cache
    def of(make: Callable[[], NotebookNode], kind: str) -> Path:
        return export(make(), folder / f"{make.__name__}.{kind}", kind=kind)

    return of


reports = pytest.mark.parametrize("make", [sweep, beside])


def numbers(notebook: NotebookNode) -> Counter[str]:
    """How often each number stands in the tables."""
    tables = [output.data.get("text/html", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    cells = [cell for html in tables for cell in BeautifulSoup(html, "html.parser").find_all("td")]
    return Counter(number for cell in cells for number in NUMBER.findall(cell.get_text(" ")))


def visits(path: Path, views: dict[int, str]) -> list[dict[str, Any]]:
    """What is seen of the report at *path* in windows of so many pixels, on screen or in print."""
    with ThreadPoolExecutor(1) as thread:  # the lab's browser tests may hold Playwright's loop of this thread
        return thread.submit(_visits, path, views).result(timeout=250)


def _visits(path: Path, views: dict[int, str]) -> list[dict[str, Any]]:
    from playwright.sync_api import sync_playwright

    seen = []
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"]) as chromium,
    ):
        for width, media in views.items():
            view: Any = chromium.new_page(viewport={"width": width, "height": 900})
            view.goto(path.as_uri())
            view.emulate_media(media=media)
            if media == "screen":
                view.evaluate("document.querySelectorAll('details').forEach((more) => { more.open = true; })")
            found = {"cut": view.evaluate(_CUT), "hidden": view.evaluate(_HIDDEN), "text": view.inner_text("main")}
            seen.append({"media": media, **found, "clipped": view.evaluate(_CLIPPED)})
    return seen


@pytest.mark.slow(keeps=1)
@reports
def test_every_number_of_the_tables_can_be_read(make: Callable[[], NotebookNode], exported: Exported) -> None:
    notebook, path = make(), exported(make, "html")
    is_wide = 'class="wb-wide wb-many"' in path.read_text()
    for seen in visits(path, {1366: "screen", 600: "screen", SIDEWAYS_PIXELS if is_wide else PAPER_PIXELS: "print"}):
        assert not numbers(notebook) - Counter(NUMBER.findall(seen["text"]))
        assert seen["hidden"] == seen["clipped"] == []
        assert seen["cut"] == [] or seen["media"] == "screen", "a screen scrolls, paper does not"


@pytest.mark.slow(keeps=1)
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext (poppler-utils) is not installed")
@reports
def test_every_number_of_the_tables_is_on_paper(make: Callable[[], NotebookNode], exported: Exported) -> None:
    notebook, printed = make(), exported(make, "pdf")
    boxes = BeautifulSoup(
        subprocess.run(["pdftotext", "-bbox", str(printed), "-"], capture_output=True, text=True, timeout=200).stdout,
        "html.parser",
    )
    found: Counter[str] = Counter()
    for page in boxes.find_all("page"):
        width = float(page["width"])
        words = page.find_all("word")
        outside = [word.get_text() for word in words if float(word["xmin"]) < 20 or float(word["xmax"]) > width - 20]
        assert outside == []
        found.update(number for word in words for number in NUMBER.findall(word.get_text()))
    assert not numbers(notebook) - found


LEAST_FILLED = 0.25
"""A page is filled to this share of its height at least: none is three quarters empty, not even the last one."""


def of_several_problems() -> NotebookNode:
    """Problems with many figures each, compared with a baseline, and the circumstances that end a stored report."""
    rows, drawings = [], []
    for m in (64, 128, 256):
        axes = [{"tile": "128x256x3072", "slice_tiles": count, "tile_order": "remote_first"} for count in range(6)]
        same = joined(
            row(scheme, 0.05 + m * 1e-4 + 0.003 * number, shape={"m": m, "n": 64, "k": 64}, floor_s=0.03,
                block=f"r.{m}",
                axes=axes[number], key=f"{m} {number}", skew_s=1e-5 * (number + 1), samples=30 + number,
                low_s=0.049, high_s=0.09, max_relative_error=1e-7 * (number + 1), run="2026-a")
            for number, scheme in enumerate(("sequential", *["fused"] * 5))
        )  # fmt: skip
        rows += [*same, *({**each, "source": "estimated", "outcome": "estimate"} for each in same)]
        drawings.append(CaseDrawing([("", trials.chart(same))], baseline=Pinned.of(same[0], same)))
    facts = {"title": "Several problems", "provenance": {f"fact_{number}": "a value" for number in range(14)}}
    return run_report(facts, rows, drawings)


@pytest.mark.slow(keeps=1)
@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="pdftoppm (poppler-utils) is not installed")
@pytest.mark.parametrize("make", [sweep, beside, of_several_problems])
def test_no_page_of_paper_is_three_quarters_empty(
    make: Callable[[], NotebookNode], exported: Exported, tmp_path: Path
) -> None:
    printed = exported(make, "pdf")
    subprocess.run(["pdftoppm", "-r", "30", "-gray", str(printed), str(tmp_path / "page")], check=True, timeout=200)
    filled = [filled_share(each) for each in sorted(tmp_path.glob("page-*.pgm"))]
    assert len(filled) > 1
    assert min(filled) >= LEAST_FILLED, filled


def filled_share(picture: Path) -> float:
    """The share of *picture* (PGM) above its last row that is not white, without the number of the page."""
    _, size, _, pixels = picture.read_bytes().split(b"\n", 3)
    width, height = map(int, size.split())
    lines = [pixels[start : start + width * 4 // 5] for start in range(0, width * height, width)]
    return max(number for number, line in enumerate(lines) if min(line) < 200) / height


def test_a_table_with_many_columns_is_cut_into_upright_ones_on_paper_alone() -> None:
    notebook = beside()
    paper, screen = (render.page(notebook, interactive=interactive) for interactive in (False, True))
    assert 'class="wb-wide wb-many"' in screen
    assert 'class="wb-wide wb-many"' not in paper
    assert paper.count("<table") > screen.count("<table")
