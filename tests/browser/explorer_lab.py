"""The explorer in a real JupyterLab with a cluster and runs of its own: nothing of this person is touched."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient
from playwright.sync_api import Browser, BrowserContext, Locator, Page, TimeoutError

from cluster import launch
from tests.browser.lab import REPOSITORY, Lab, Notebook, environment_of, running_server

PACKAGES = ("workbench", "kernels", "cluster", "notebooks")
OWN_DATA = "runs"
NOTEBOOK = "explore.ipynb"
_number = count()
PATIENCE_MS = 90_000
"""For one reaction of the page, on a machine that does other things, too."""


def working_copy(folder: Path) -> Path:
    """The checkout once more, by links, but with runs of its own: runs lie beside the package that makes them."""
    copy = folder / "checkout"
    (copy / "data").mkdir(parents=True)
    for name in PACKAGES:
        (copy / name).symlink_to(REPOSITORY / name)
    for shipped in (REPOSITORY / "data").iterdir():
        if shipped.name != OWN_DATA:
            (copy / "data" / shipped.name).symlink_to(shipped)
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
def cluster_of(num_ranks: int, folder: Path) -> Iterator[None]:
    """A cluster in a process of its own, as the lab has it, whose state lies in *folder*; none of 0 ranks."""
    if num_ranks:
        with own_state(folder):
            launch.up("local", num_ranks=num_ranks)
    try:
        yield
    finally:
        if num_ranks:
            with own_state(folder):
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
        """Unfolds what is not needed at first: the button may move while the mouse is down, and then it is not hit.

        A second click folds again: it comes when the kernel, which may be busy, cannot have missed the first one.
        """
        for patience_ms in (20_000, 30_000, PATIENCE_MS):
            if self.at("wb-world").is_visible():
                return
            self.at("wb-more").click()
            with suppress(TimeoutError):
                self.at("wb-world").wait_for(timeout=patience_ms)
        assert self.at("wb-world").is_visible(), "the advanced fields stayed folded"

    def open_tab(self, name: str) -> None:
        """Clicks a tab until it is the open one: JupyterLab may scroll while the mouse is down, and then it is not."""
        tab = self.page.locator(f'.wb-panels .lm-TabBar-tab:has-text("{name}")')
        for pause_ms in (200, 400, 800, 1600, 3200):
            tab.click()
            if "lm-mod-current" in (tab.get_attribute("class") or ""):
                return
            self.page.wait_for_timeout(pause_ms)
        raise AssertionError(f"five clicks on the tab {name} did not open it")

    def wait_words(self, mark: str, text: str, deadline_s: float = 200.0) -> None:
        """Until *text* stands at *mark*."""
        self.page.wait_for_selector(f'.{mark} :text("{text}")', timeout=deadline_s * 1000)

    def sweep(self, *axes: str, ticked: bool = True) -> None:
        """Ticks *sweep* beside each of *axes*, or unticks it; `schemes` is one, too."""
        for axis in axes:
            self.at(f"wb-sweep-{axis}").locator("input").set_checked(ticked)

    def run(self, deadline_s: float = 200.0) -> None:
        """Presses Run and waits for the end."""
        self.begin()
        self.wait_end(deadline_s)

    def begin(self) -> None:
        """Presses Run and waits until something goes on, or has been; a tiny run is over before one looks twice."""
        self.page.evaluate(_WATCH_RUN)
        try:
            self.page.wait_for_selector(".wb-run:not([disabled])")
        except TimeoutError as late:
            texts = {mark: self.words(mark) for mark in ("wb-cluster", "wb-refusal", "wb-plan", "wb-progress")}
            raise AssertionError(f"Run stays disabled: {texts}") from late
        self.at("wb-run").click()
        self.page.wait_for_function("() => window.wbHasBegun")

    def wait_end(self, deadline_s: float = 200.0) -> None:
        self.page.wait_for_selector(".wb-run:not([disabled])", timeout=deadline_s * 1000)

    def marks(self, mark: str) -> int:
        """Points that a chart shows."""
        return self.page.locator(f".{mark} .mark-symbol.role-mark path").count()


@contextmanager
def explorer_server(folder: Path, browser: Browser, *, num_ranks: int = 2) -> Iterator[tuple[Lab, Path]]:
    """A server that imports a working copy of its own, and the folder of its runs."""
    copy = working_copy(folder)
    with cluster_of(num_ranks, folder), ExitStack() as server_ends:
        with own_state(folder):
            server = server_ends.enter_context(running_server(folder, packages=copy))
        yield Lab(server, browser), copy / "data" / "runs"


@contextmanager
def opened_explorer(lab: Lab, runs: Path, *, wide: int = 1500, high: int = 1250) -> Iterator[ExplorerPage]:
    """The explorer notebook as we ship it, run where nothing was run yet, with the whole width of the window."""
    shutil.rmtree(runs, ignore_errors=True)
    notebook = lab.server.folder / NOTEBOOK
    shutil.copy(REPOSITORY / "notebooks" / NOTEBOOK, notebook)
    with lab.opened(notebook) as tab:
        tab.page.set_default_timeout(PATIENCE_MS)
        tab.page.set_viewport_size({"width": wide, "height": high})
        tab.command("application:toggle-left-area")
        tab.run_all()
        tab.page.wait_for_selector(".wb-timeline svg.marks")
        yield ExplorerPage(tab, notebook, runs)


@dataclass(frozen=True)
class StartedLab:
    """`workbench lab` as a person starts it, and what it printed."""

    address: str
    copy: Path
    """Its checkout, in whose runs the lab keeps a person's copies of the notebooks."""
    started: float
    """`time.monotonic()` when the command was given, and when the address was printed."""
    printed: float

    @property
    def runs(self) -> Path:
        return self.copy / "data" / "runs"

    @property
    def notebook(self) -> Path:
        return self.runs / "notebooks" / NOTEBOOK

    @contextmanager
    def kernel(self) -> Iterator[BlockingKernelClient]:
        """A listener on the explorer's kernel, beside its page."""
        sessions = self.address.replace(f"lab/tree/{NOTEBOOK}", "api/sessions")
        with urllib.request.urlopen(sessions, timeout=PATIENCE_MS / 1000) as answer:
            (number,) = [each["kernel"]["id"] for each in json.load(answer) if each["path"] == NOTEBOOK]
        file = self.copy.parent / "runtime" / f"kernel-{number}.json"
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels(stdin=False, hb=False, control=False)
        try:
            yield client
        finally:
            client.stop_channels()

    def open(self, context: BrowserContext, notebook: str | None = None) -> ExplorerPage:
        """A new tab at the printed address, or at that of another notebook alone; nothing is pressed."""
        tab = Notebook(context.new_page())
        tab.page.set_default_timeout(PATIENCE_MS)
        tab.watch()
        alone = f"workspaces/{next(_number)}/tree/{notebook}"
        tab.page.goto(self.address if notebook is None else self.address.replace(f"tree/{NOTEBOOK}", alone))
        return ExplorerPage(tab, self.notebook, self.runs)


@contextmanager
def started_lab(folder: Path, *options: str, deadline_s: float = 200.0) -> Iterator[StartedLab]:
    """`workbench lab --no-browser` with *options*, in a checkout and with a Jupyter of its own; ended as by Ctrl-C."""
    copy = working_copy(folder)
    (copy / "notebooks").unlink()
    shutil.copytree(REPOSITORY / "notebooks", copy / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    environment = environment_of(folder, copy) | {"XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "workbench.cli", "lab", "--no-browser", *options]
    started = time.monotonic()
    with (folder / "lab.log").open("w") as log:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], deadline_s)
            address = process.stdout.readline().strip() if ready else ""
            if not address:
                raise RuntimeError(f"no address within {deadline_s:.0f} s:\n{(folder / 'lab.log').read_text()}")
            yield StartedLab(address, copy, started, time.monotonic())
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)
            if process.stdout is not None:
                process.stdout.close()
            complaints = (folder / "lab.log").read_text()
            assert (process.returncode, "Traceback" in complaints) == (0, False), complaints
