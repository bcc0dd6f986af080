"""JupyterLab as a person meets it: a real server, a real kernel, a headless Chromium, one notebook at a time."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from playwright.sync_api import Browser, Page, WebSocket, sync_playwright

REPOSITORY = Path(__file__).parents[2]
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    # a tab that is not looked at would draw no animation frames
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    # nothing outside this machine has an address: a page that needs the network fails here as it would in a plane
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
_THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_ADD_CELL = """async (source) => {
  const { content } = window.jupyterapp.shell.currentWidget;
  content.activeCellIndex = content.widgets.length - 1;
  await window.jupyterapp.commands.execute("notebook:insert-cell-below");
  content.activeCell.model.sharedModel.setSource(source);
  window.jupyterapp.commands.execute("notebook:run-cell");
}"""
_RUN_BESIDE = """async (code) => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const said = { printed: "", error: null };
  const asked = kernel.requestExecute({ code, store_history: false });
  asked.onIOPub = ({ header, content }) => {
    if (header.msg_type === "stream") said.printed += content.text;
    if (header.msg_type === "error") said.error = `${content.ename}: ${content.evalue}`;
  };
  await asked.done;
  return said;
}"""
_number = count()


@dataclass(frozen=True)
class Server:
    """A JupyterLab server of its own on a free loopback port, whose notebooks live in *folder*."""

    address: str
    token: str
    folder: Path


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def running_server(folder: Path, deadline_s: float = 200.0, *, packages: Path = REPOSITORY) -> Iterator[Server]:
    """Start JupyterLab, wait until it answers, end it afterwards. Kernels import what lies in *packages*."""
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    _ask_nothing(folder / "jupyter_config_dir")
    token = secrets.token_hex(16)
    log = (folder / "server.log").open("w")
    environment = environment_of(folder, packages)
    process = subprocess.Popen(_command(notebooks, token), env=environment, stdout=log, stderr=log)
    try:
        yield Server(_address(folder, process, deadline_s), token, notebooks)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=60)
        log.close()


def _ask_nothing(config: Path) -> None:
    """A new user's JupyterLab asks about news, which would stand on every screenshot."""
    page = config / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True)
    page.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))


def _command(notebooks: Path, token: str) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--LabApp.expose_app_in_browser=True"),
        *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--IdentityProvider.token={token}"),
        *(f"--ServerApp.root_dir={notebooks}", "--ServerApp.allow_root=True"),
    ]


def environment_of(folder: Path, packages: Path) -> dict[str, str]:
    """Nothing of this person's Jupyter is read or changed."""
    own = {name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    own |= {name: str(folder / name.lower()) for name in ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")}
    own |= {"JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **own, "PYTHONPATH": path, "JUPYTER_PREFER_ENV_PATH": "1"}


def _address(folder: Path, process: subprocess.Popen[bytes], deadline_s: float) -> str:
    """Where the server listens: it chose the port and wrote it down."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        for file in (folder / "runtime").glob("jpserver-*.json"):
            try:
                return f"http://127.0.0.1:{json.loads(file.read_text())['port']}"
            except (json.JSONDecodeError, KeyError):
                continue  # being written
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"JupyterLab did not start within {deadline_s:.0f} s:\n{(folder / 'server.log').read_text()}")


@dataclass
class Notebook:
    """A notebook open in a browser tab."""

    page: Page
    outside: list[str] = field(default_factory=list)
    """Addresses asked for that are not on this machine."""
    complaints: list[str] = field(default_factory=list)
    """Exceptions in the page, and what was logged there as an error."""
    received: dict[str, int] = field(default_factory=lambda: {"bytes": 0, "messages": 0})
    """What came through websockets."""

    def watch(self) -> None:
        """Listen to the page from now on."""
        self.page.on("request", lambda request: self._note_address(request.url))
        self.page.on("websocket", self._weigh_all)
        self.page.on("pageerror", lambda error: self.complaints.append(error.stack or str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))

    def _note_address(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname != "127.0.0.1":
            self.outside.append(address)

    def _weigh_all(self, socket: WebSocket) -> None:
        self._note_address(socket.url)
        socket.on("framereceived", self._weigh)

    def _weigh(self, frame: str | bytes) -> None:
        self.received["bytes"] += len(frame)
        self.received["messages"] += 1

    def command(self, name: str, **arguments: object) -> None:
        """Run one of JupyterLab's commands without waiting for what it starts."""
        self.page.evaluate("([name, given]) => { window.jupyterapp.commands.execute(name, given); }", [name, arguments])

    def run_all(self, deadline_s: float = 200.0) -> None:
        """Run every cell and wait until the kernel is idle."""
        self.command("notebook:run-all-cells")
        # every cell has been given a number, and the last one is done
        self.page.wait_for_function(
            """() => window.jupyterapp.shell.currentWidget.content.widgets.every(({ model }) =>
                 model.type !== "code" || model.executionCount)""",
            timeout=deadline_s * 1000,
        )
        self.wait_idle(deadline_s)

    def add_cell_and_go_on(self, source: str) -> None:
        """Write a new cell at the end of the notebook and run it."""
        self.page.evaluate(_ADD_CELL, source)

    def add_cell(self, source: str, deadline_s: float = 120.0) -> None:
        """Write a new cell at the end of the notebook, run it and wait until it is done."""
        self.add_cell_and_go_on(source)
        last = '.jp-Notebook .jp-CodeCell >> nth=-1 >> .jp-InputPrompt:text-matches("[0-9]")'
        self.page.wait_for_selector(last, timeout=deadline_s * 1000)
        self.wait_idle(deadline_s)

    def python(self, source: str) -> str:
        """Run *source* in the notebook's kernel beside its cells and return what it printed."""
        said = self.page.evaluate(_RUN_BESIDE, source)
        if said["error"]:
            raise RuntimeError(f"{said['error']}\nin\n{source}")
        return str(said["printed"])

    def wait_idle(self, deadline_s: float = 120.0) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.wait_for_selector(
            ".jp-Notebook-ExecutionIndicator[data-status=idle]", state="attached", timeout=deadline_s * 1000
        )

    def is_busy(self) -> bool:
        """The kernel is running something."""
        return self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=busy]").count() > 0

    def wait_open(self, deadline_s: float = 200.0) -> None:
        """Wait until the notebook is drawn and its kernel ready."""
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=deadline_s * 1000)
        self.page.wait_for_selector('.jp-KernelName:has-text("Python 3")', timeout=deadline_s * 1000)
        self.wait_idle(deadline_s)

    def save(self, deadline_s: float = 120.0) -> None:
        """Save the notebook with its outputs."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        dirty = "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
        self.page.wait_for_function(dirty, timeout=deadline_s * 1000)

    def wait_output(self, text: str, deadline_s: float = 120.0) -> None:
        """Wait until a cell has printed *text*; the source of a cell does not count."""
        self.page.wait_for_selector(f'css=.jp-OutputArea-output pre:has-text("{text}")', timeout=deadline_s * 1000)

    def printed(self) -> str:
        """All that the cells have printed."""
        return "\n".join(self.page.locator(".jp-OutputArea-output pre").all_inner_texts())

    def set_mode(self, mode: str) -> None:
        """Change JupyterLab's theme to `light` or `dark`."""
        self.command("apputils:change-theme", theme=_THEMES[mode])
        body = f'body[data-jp-theme-light="{str(mode == "light").lower()}"]'
        self.page.wait_for_selector(body, state="attached", timeout=60_000)
        # two themes within the 200 ms in which JupyterLab's splash fades make it take that away twice, and complain
        self.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=60_000)

    def screenshots(self, folder: Path, name: str) -> list[Path]:
        """The page as it is, in light and in dark."""
        paths = []
        for mode in _THEMES:
            self.set_mode(mode)
            self.page.wait_for_timeout(500)  # style sheets and charts follow the theme
            paths.append(folder / f"{name}-{mode}.png")
            self.page.screenshot(path=paths[-1])
        return paths


@dataclass(frozen=True)
class Lab:
    """Opens notebooks in a server with a browser."""

    server: Server
    browser: Browser

    @contextmanager
    def opened(self, notebook: Path | list[str], *, deadline_s: float = 200.0) -> Iterator[Notebook]:
        """A notebook file of the server's folder, or one made from the sources of its cells, with its kernel ready."""
        path = notebook if isinstance(notebook, Path) else self._written(notebook)
        context = self.browser.new_context(viewport={"width": 1400, "height": 1000})
        tab = Notebook(context.new_page())
        tab.page.set_default_timeout(deadline_s * 1000)
        tab.watch()
        try:
            where = path.relative_to(self.server.folder).as_posix()
            # a workspace of its own, or the page would open what the one before had open
            workspace = f"{self.server.address}/lab/workspaces/test{next(_number)}/tree/{where}"
            tab.page.goto(f"{workspace}?token={self.server.token}")
            tab.wait_open(deadline_s)
            yield tab
        finally:
            self._shut_down_kernel(tab, path)
            context.close()

    def _written(self, sources: list[str]) -> Path:
        path = self.server.folder / f"notebook{next(_number)}.ipynb"
        # without a kernelspec JupyterLab would ask which kernel to take
        metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
        return path

    def _shut_down_kernel(self, tab: Notebook, path: Path) -> None:
        own = {"Authorization": f"token {self.server.token}"}
        sessions = f"{self.server.address}/api/sessions"
        for session in tab.page.request.get(sessions, headers=own).json():
            # other tests' notebooks may be open, too
            if session["path"] == path.relative_to(self.server.folder).as_posix():
                tab.page.request.delete(f"{sessions}/{session['id']}", headers=own)
