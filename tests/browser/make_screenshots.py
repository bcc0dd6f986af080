"""The screenshots of docs/screenshots, taken anew from real runs: `python -m tests.browser.make_screenshots [FOLDER]`.

Takes two minutes on a quiet machine. Look at every one of them before it is committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.explorer_lab import ExplorerPage, explorer_server, opened_explorer
from tests.browser.lab import REPOSITORY, chromium

SETTLED_MS = 900
"""Style sheets, charts and the splash screen follow a change of theme."""
WIDE, HIGH = 1500, 1250


def workbench(copy: Path, *words: str) -> None:
    """A command of the working copy *copy*."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    subprocess.run([sys.executable, "-m", "workbench.cli", *words], cwd=copy, env=environment, check=True, timeout=300)


def sweep(explorer: ExplorerPage) -> None:
    """All schemes and all slice sizes of the laptop's preset, with a guess."""
    explorer.wait_words("wb-cluster", "2 ranks")
    explorer.at("wb-guess").locator("input").fill("60")
    for mark in ("wb-sweep-schemes", "wb-sweep-slice_tiles"):
        explorer.at(mark).click()
    explorer.run(deadline_s=180)


def shooter(explorer: ExplorerPage, folder: Path) -> Callable[[str, str], None]:
    """`shoot(name, mode)` takes the page as it is, in that theme."""

    def shoot(name: str, mode: str) -> None:
        explorer.notebook.set_mode(mode)
        explorer.page.wait_for_timeout(SETTLED_MS)
        explorer.page.screenshot(path=folder / f"{name}-{mode}.png")

    return shoot


def shoot_sweep(explorer: ExplorerPage, folder: Path) -> None:
    shoot = shooter(explorer, folder)
    sweep(explorer)
    for mode in ("light", "dark"):
        shoot("explorer-sweep", mode)
    explorer.open_tab("Landscape")
    shoot("landscape", "light")
    explorer.open_tab("Samples")
    explorer.at("wb-pin").click()
    explorer.press("wb-scheme", "sequential")
    explorer.page.wait_for_selector('.wb-timeline text:text("A, fused")', state="attached")
    shoot("timeline-measured", "dark")
    explorer.at("wb-pin").click()
    explorer.press("wb-scheme", "fused")


def shoot_report(explorer: ExplorerPage, browser: Browser, folder: Path) -> None:
    written = explorer.runs / "report.html"
    workbench(explorer.runs.parents[1], "report", "last", "-o", str(written))
    page = browser.new_page(viewport={"width": 1100, "height": HIGH}, color_scheme="light")
    page.goto(written.as_uri())
    page.wait_for_selector("svg.marks")
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=folder / "report-light.png")
    page.close()


def shoot_alone(explorer: ExplorerPage, folder: Path) -> None:
    """The schedule of the form, with its computation timed alone, too: what a sweep has no time for."""
    for mark in ("wb-sweep-schemes", "wb-sweep-slice_tiles"):
        explorer.at(mark).click()
    explorer.run(deadline_s=60)
    explorer.open_tab("Where time goes")
    shooter(explorer, folder)("waterfall", "dark")


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    path = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium was found")
    with (
        tempfile.TemporaryDirectory() as work,
        chromium(path) as browser,
        explorer_server(Path(work), browser) as (lab, runs),
    ):
        workbench(runs.parents[1], "calibrate")  # so that estimates are of the machine that is measured
        with opened_explorer(lab, runs, wide=WIDE, high=HIGH) as explorer:
            shoot_sweep(explorer, folder)
            shoot_report(explorer, browser, folder)
            shoot_alone(explorer, folder)
            for complaint in explorer.notebook.complaints:
                print("the page complained:", complaint, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
