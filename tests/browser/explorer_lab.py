"""The explorer in a real JupyterLab with a cluster and runs of its own: nothing of this person is touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page

from cluster import launch
from tests.browser.lab import REPOSITORY, Lab, Notebook, running_server

PACKAGES = ("workbench", "kernels", "cluster", "notebooks")
SHIPPED = ("machines", "problems", "recordings")
NOTEBOOK = "explore.ipynb"
PATIENCE_MS = 20_000
"""For one reaction of the page, on a machine that does other things, too."""


def working_copy(folder: Path) -> Path:
    """The checkout once more, by links, but with runs of its own: runs lie beside the package that makes them."""
    copy = folder / "checkout"
    (copy / "data").mkdir(parents=True)
    for name in PACKAGES:
        (copy / name).symlink_to(REPOSITORY / name)
    for name in SHIPPED:
        if (REPOSITORY / "data" / name).exists():
            (copy / "data" / name).symlink_to(REPOSITORY / "data" / name)
    return copy


@contextmanager
def own_state(folder: Path) -> Iterator[None]:
    """Clusters are left and found here, and this person's own lab is not."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


@contextmanager
def cluster_of(num_ranks: int) -> Iterator[None]:
    """A cluster in a process of its own, as the lab has it; none of 0 ranks."""
    if num_ranks:
        launch.up("local", num_ranks=num_ranks)
    try:
        yield
    finally:
        if num_ranks:
            launch.down()


_WATCH_RUN = """() => {
  window.wbHasBegun = false;
  const run = document.querySelector(".wb-run");
  const watch = new MutationObserver(() => {
    if (!run.disabled) return;
    window.wbHasBegun = true;
    watch.disconnect();
  });
  watch.observe(run, { attributes: true });
}"""


@dataclass
class ExplorerPage:
    """The explorer as a person's hands and eyes have it."""

    notebook: Notebook
    path: Path
    """The notebook's file."""
    runs: Path
    """Where this explorer's store and reports lie."""

    @property
    def page(self) -> Page:
        return self.notebook.page

    def at(self, mark: str) -> Locator:
        """What has the class *mark*."""
        return self.page.locator(f".{mark}").first

    def words(self, mark: str) -> str:
        return self.at(mark).inner_text()

    def choose(self, mark: str, label: str) -> None:
        """An entry of a list, by its words."""
        self.at(mark).locator("select").select_option(label=label)

    def take_sizes(self, **sizes: int) -> None:
        """Sizes of one's own instead of a preset's."""
        self.choose("wb-preset", "own sizes")
        for name, size in sizes.items():
            field = self.at(f"wb-size-{name}").locator("input")
            field.fill(str(size))
            field.press("Tab")

    def press(self, mark: str, label: str) -> None:
        """One of several buttons."""
        self.at(mark).locator(f'button:text-is("{label}")').click()

    def open_advanced(self) -> None:
        """Unfolds what is not needed at first."""
        if not self.at("wb-world").is_visible():
            self.at("wb-more").click()
            self.at("wb-world").wait_for()

    def open_tab(self, name: str) -> None:
        self.page.locator(f'.wb-panels .lm-TabBar-tab:has-text("{name}")').click()

    def wait_words(self, mark: str, text: str, deadline_s: float = 60.0) -> None:
        """Until *text* stands at *mark*."""
        self.page.wait_for_selector(f'.{mark} :text("{text}")', timeout=deadline_s * 1000)

    def run(self, deadline_s: float = 60.0) -> None:
        """Presses Run and waits for the end."""
        self.begin()
        self.wait_end(deadline_s)

    def begin(self) -> None:
        """Presses Run and waits until something goes on, or has been; a tiny run is over before one looks twice."""
        self.page.evaluate(_WATCH_RUN)
        self.at("wb-run").click()
        self.page.wait_for_function("() => window.wbHasBegun")

    def wait_end(self, deadline_s: float = 60.0) -> None:
        self.page.wait_for_selector(".wb-run:not([disabled])", timeout=deadline_s * 1000)

    def marks(self, mark: str) -> int:
        """Points that a chart shows."""
        return self.page.locator(f".{mark} .mark-symbol.role-mark path").count()


@contextmanager
def explorer_server(folder: Path, browser: Browser, *, num_ranks: int = 2) -> Iterator[tuple[Lab, Path]]:
    """A server that imports a working copy of its own, and the folder of its runs."""
    copy = working_copy(folder)
    with own_state(folder), cluster_of(num_ranks), running_server(folder, packages=copy) as server:
        yield Lab(server, browser), copy / "data" / "runs"


@contextmanager
def opened_explorer(lab: Lab, runs: Path, *, wide: int = 1500, high: int = 1250) -> Iterator[ExplorerPage]:
    """The explorer notebook as we ship it, run, with the whole width of the window."""
    notebook = lab.server.folder / NOTEBOOK
    shutil.copy(REPOSITORY / "notebooks" / NOTEBOOK, notebook)
    with lab.opened(notebook) as tab:
        tab.page.set_default_timeout(PATIENCE_MS)
        tab.page.set_viewport_size({"width": wide, "height": high})
        tab.command("application:toggle-left-area")
        tab.run_all()
        tab.page.wait_for_selector(".wb-timeline svg.marks")
        yield ExplorerPage(tab, notebook, runs)
