"""The screenshots of docs/screenshots, taken anew from real runs: `python -m tests.browser.make_screenshots [FOLDER]`.

A laptop's window, light and dark: the first page, tabs of a sweep, its report, and a replay.
Takes a few minutes on a quiet machine. Look at every one of them before it is committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.explorer_lab import ExplorerPage, started_lab
from tests.browser.lab import REPOSITORY, chromium

SETTLED_MS = 900
"""Style sheets, charts and the splash screen follow a change of theme."""
SIZE = {"width": 1366, "height": 768}
MODES = ("light", "dark")
TABS = ("Table", "Landscape", "What matters", "Why", "Compare")
SWEPT = ("wb-sweep-schemes", "wb-sweep-slice_tiles")
RECORDING = "h200_nvl2_gemm (34 whole schedules)"
COMPARED_TAB = "Compare"
"""From there on the selected row is the baseline."""


@dataclass(frozen=True)
class Camera:
    """Takes one page into one folder."""

    explorer: ExplorerPage
    folder: Path

    def shoot(self, name: str, modes: Sequence[str] = MODES) -> None:
        """The page as it is, in each of *modes*."""
        page = self.explorer.page
        for mode in modes:
            self.explorer.notebook.set_mode(mode)
            page.mouse.move(SIZE["width"] - 2, SIZE["height"] - 2)  # nothing is pointed at
            page.wait_for_timeout(SETTLED_MS)
            page.screenshot(path=self.folder / f"{name}-{mode}.png")


def show_application(folder: Path) -> None:
    """The lab of *folder* lets its page be asked for another theme."""
    settings = folder / "jupyter_config_dir"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "jupyter_lab_config.py").write_text("c.LabApp.expose_app_in_browser = True\n")


def workbench(copy: Path, *words: str) -> None:
    """A command of the working copy *copy*."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    subprocess.run([sys.executable, "-m", "workbench.cli", *words], cwd=copy, env=environment, check=True, timeout=300)


def show_tabs(explorer: ExplorerPage) -> None:
    """The tabs begin at the top of the page; the form stays in sight beside them."""
    explorer.at("wb-panels").evaluate("at => at.scrollIntoView({ block: 'start' })")


def shoot_sweep(camera: Camera) -> None:
    """All schemes and all slice sizes of the laptop's preset, with a guess; then each tab."""
    explorer = camera.explorer
    explorer.at("wb-guess").locator("input").fill("60 ms")
    for mark in SWEPT:
        explorer.at(mark).locator("input").check()
    explorer.run()
    for tab in TABS:
        if tab == COMPARED_TAB:
            explorer.at("wb-pin-baseline").click()
        explorer.open_tab(tab)
        show_tabs(explorer)
        camera.shoot(tab.lower().replace(" ", "-"))


def shoot_replay(camera: Camera) -> None:
    """Two H200s' recording, played on a laptop."""
    explorer = camera.explorer
    for mark in SWEPT:
        explorer.at(mark).locator("input").uncheck()
    explorer.press("wb-source", "Recorded GPUs")
    explorer.choose("wb-recording", RECORDING)
    explorer.choose("wb-replay-speed", "at once")
    explorer.run()
    camera.shoot("replay")


def shoot_report(copy: Path, browser: Browser, folder: Path) -> None:
    """What `workbench report last` writes of the sweep."""
    written = copy / "report.html"
    workbench(copy, "report", "last", "-o", str(written))
    for mode in MODES:
        page = browser.new_page(viewport=SIZE, color_scheme=mode)
        page.goto(written.as_uri())
        page.wait_for_selector("svg.marks")
        page.wait_for_timeout(SETTLED_MS)
        page.screenshot(path=folder / f"report-{mode}.png")
        page.close()


def take(work: Path, browser: Browser, folder: Path) -> None:
    """All of them, of a lab that lives in *work*."""
    with started_lab(work, "--ranks", "2", "--no-calibration") as lab:
        explorer = lab.open(browser.new_context(viewport=SIZE))
        camera = Camera(explorer, folder)
        explorer.page.wait_for_selector(".wb-timeline svg.marks", timeout=60_000)
        explorer.wait_words("wb-cluster", "2 ranks")
        camera.shoot("first-page")
        workbench(lab.copy, "calibrate")  # so that estimates are of the machine that is measured
        shoot_sweep(camera)
        shoot_report(lab.copy, browser, folder)
        shoot_replay(camera)
        for complaint in explorer.notebook.complaints:
            print("the page complained:", complaint, file=sys.stderr)


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    path = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium was found")
    with tempfile.TemporaryDirectory() as work, chromium(path) as browser:
        show_application(Path(work))
        take(Path(work), browser, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
