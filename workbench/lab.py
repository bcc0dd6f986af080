"""The lab's first page: its kernel begins before the page is opened, and the page says when the explorer is there."""

from __future__ import annotations

import json
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urljoin
from uuid import uuid4

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_core.paths import jupyter_runtime_dir

from kernels import files
from kernels.files import Failed
from workbench import resources

# The lab: a local cluster and JupyterLab on the explorer, both on loopback, both ended together.

EXPLORER = "explore.ipynb"
LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """A JupyterLab that is starting or running."""

    process: subprocess.Popen[bytes]
    token: str
    doorstep: Path
    """What a browser is told to open: a file that leads it to the page. It goes with the server."""

    def address(self) -> str:
        """Where it listens, as soon as it does; ValueError where it does not."""
        return _url(self.process)

    def explorer(self, address: str) -> str:
        """The address of the explorer's page, with the token that opens it."""
        return f"{address}lab/tree/{quote(EXPLORER)}?{urlencode({'token': self.token})}"

    def lead(self, url: str) -> str:
        """The address of a page that leads to *url*; this user alone can read it.

        As Jupyter does: every user of this host can read the command line of a browser, and *url* has the token. It
        lies beside the runs: a browser that comes as a snap sees no hidden folder and no folder for temporary files.
        """
        leads = f'<meta http-equiv="refresh" content="0; url={escape(url)}">'
        self.doorstep.parent.mkdir(parents=True, exist_ok=True)
        files.write(self.doorstep, f"<!doctype html><title>Overlap Workbench</title>{leads}\n", mode=0o600)
        return self.doorstep.absolute().as_uri()


@contextmanager
def jupyter(port: int | None = None) -> Iterator[Server]:
    """JupyterLab, ended when the `with` ends."""
    token = secrets.token_urlsafe(24)
    doorstep = resources.runs_directory() / f"lab-{os.getpid()}.html"
    with tempfile.TemporaryDirectory(prefix="overlap-workbench-") as layouts:
        process = subprocess.Popen(
            _command(notebooks(), Path(layouts), port),
            # not on the command line, which every user of this host can read
            env={**os.environ, "JUPYTER_TOKEN": token},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us: kernels are then ended in good order
        )
        try:
            yield Server(process, token, doorstep)
        finally:
            _end(process)
            doorstep.unlink(missing_ok=True)


def _command(folder: Path, layouts: Path, port: int | None) -> list[str]:
    """*layouts* is empty: each lab begins with the explorer alone, and a page that is loaded anew stays as it was."""
    options = {
        "ServerApp.ip": LOOPBACK,
        "ServerApp.root_dir": str(folder),
        "ServerApp.open_browser": "False",
        "LabApp.workspaces_dir": str(layouts),
        "LabApp.extra_labextensions_path": str(resources.labextensions_directory()),
        **({} if port is None else {"ServerApp.port": str(port), "ServerApp.port_retries": "0"}),
        **({"ServerApp.allow_root": "True"} if hasattr(os, "geteuid") and os.geteuid() == 0 else {}),
    }
    # SIGTERM: it ends its kernels. Whoever kills the lab leaves it no time to
    start = f"import signal; from cluster.process import die_with; die_with({os.getpid()}, signal.SIGTERM); "
    start += "from workbench.quick_start import import_jsonschema; import_jsonschema(); "
    start += "from jupyterlab.labapp import main; main()"
    return [sys.executable, "-c", start, *(f"--{name}={value}" for name, value in options.items())]


def notebooks() -> Path:
    """The folder of notebooks that a person may write: ours, or a copy where ours came in a wheel."""
    shipped = resources.notebooks_directory()
    if not (shipped / EXPLORER).is_file():
        raise ValueError(f"The lab cannot start: {shipped / EXPLORER} is missing. Install the workbench again.")
    if shipped.parent == Path(resources.__file__).parent:
        copy = resources.runs_directory().parent / "notebooks"
        if not copy.exists():
            _copied(shipped, copy)
        return copy
    return shipped


def _copied(shipped: Path, target: Path) -> None:
    """All of the folder or nothing: half a copy would be taken for the whole one for ever."""
    unfinished = target.with_name(f".{uuid4().hex}.unfinished")
    try:
        shutil.copytree(shipped, unfinished)
        unfinished.rename(target)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not target.exists():  # nor has another lab made it meanwhile
            raise Failed(f"The lab's notebooks cannot be copied to {target}: {error.strerror or error}. Accepted: room "
                         "in a folder that you may write.") from error  # fmt: skip


def _url(process: subprocess.Popen[bytes]) -> str:
    """Where the server of *process* listens, from the file that it leaves for its own tools.

    jupyter_server reads it, too, but takes seconds to import.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    left = Path(jupyter_runtime_dir()) / f"jpserver-{process.pid}.json"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failed(f"JupyterLab ended at once with exit code {process.returncode}. "
                             f"`{sys.executable} -m jupyterlab` says why.")  # fmt: skip
        # not yet there, half written, or written before the server listens
        with suppress(FileNotFoundError, json.JSONDecodeError, ConnectionRefusedError):
            server = json.loads(left.read_text())
            socket.create_connection((LOOPBACK, server["port"]), timeout=START_SECONDS).close()
            return str(server["url"])
        time.sleep(0.05)
    raise Failed(f"JupyterLab started, but did not listen within {START_SECONDS:.0f} s. `{sys.executable} -m "
                     "jupyterlab` says why.")  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server ends its kernels; what does not end in time is killed with all that it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_SECONDS)


# The lab's first page: its kernel begins before the page is opened, and the page says when the explorer is there.

ANSWER_SECONDS = 30.0
"""The server starts a kernel within this time."""
LOOK_SECONDS = 0.5
"""How often a wait looks whether it is still wanted."""
WARM = "from workbench.widgets import explorer\nfrom workbench.widgets.explorer_page import prepare\nprepare()"
"""What the explorer's own cell will find done."""
SHOWN = "# The page shows the explorer."
"""What the page has its kernel run, for others to hear, once the timeline is drawn (remoteEntry.js)."""
CLOSED = {"data": {"layout-restorer:data": {}}, "metadata": {"id": "default"}}
"""What JupyterLab remembers of a page that nobody has seen: without it the file browser opens."""


class FirstPage:
    """The explorer of a server that starts; `show` is called with its address as soon as it can be opened."""

    def __init__(self, server: Server, show: Callable[[str], Any]) -> None:
        self._server, self._show = server, show
        self._kernel: BlockingKernelClient | None = None
        self._trouble: ValueError | None = None
        self._shown = False
        self._thread = threading.Thread(target=self._open, name="workbench first page", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Waits for the address; ValueError where there will be none."""
        self._thread.join(START_SECONDS + ANSWER_SECONDS)
        if self._trouble is not None:
            raise self._trouble

    def wait_shown(self, seconds: float, unwanted: threading.Event | None = None) -> bool:
        """Whether the explorer was drawn within *seconds*; as soon as the answer is *unwanted* it is as it is then."""
        until, stop = time.monotonic() + seconds, unwanted or threading.Event()
        while not self._shown and not stop.is_set() and time.monotonic() < until:
            if self._thread.is_alive() or self._kernel is None:
                stop.wait(LOOK_SECONDS)
                continue
            with suppress(queue.Empty):
                heard = self._kernel.get_iopub_msg(timeout=LOOK_SECONDS)
                self._shown = heard["msg_type"] == "execute_input" and heard["content"]["code"] == SHOWN
        return self._shown

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.stop_channels()

    def _open(self) -> None:
        try:
            address = self._server.address()
        except ValueError as error:
            self._trouble = error
            return
        # without these the page begins its kernel itself, which takes longer, and opens its file browser: whatever
        # fails in them (the server, a socket, a file of the kernel's), the page can be opened
        with suppress(Exception):
            _ask(urljoin(address, "lab/api/workspaces/default"), self._server.token, CLOSED, "PUT")
            self._kernel = _begun(address, self._server.token)
        self._show(self._server.explorer(address))


@contextmanager
def opened(server: Server, show: Callable[[str], Any]) -> Iterator[FirstPage]:
    """The first page of *server*, in the background."""
    page = FirstPage(server, show)
    try:
        yield page
    finally:
        page.close()


def _begun(address: str, token: str) -> BlockingKernelClient:
    """The kernel of the explorer's notebook, which prepares the explorer; the page that opens the notebook joins it."""
    wanted = {"path": EXPLORER, "name": EXPLORER, "type": "notebook", "kernel": {"name": "python3"}}
    session = json.loads(_ask(urljoin(address, "api/sessions"), token, wanted))
    file = Path(jupyter_runtime_dir()) / f"kernel-{session['kernel']['id']}.json"
    kernel = BlockingKernelClient(connection_file=str(file))
    kernel.load_connection_file()
    kernel.start_channels(stdin=False, hb=False, control=False)
    kernel.execute(WARM, silent=True, store_history=False)
    return kernel


def _ask(url: str, token: str, content: dict[str, Any], method: str = "POST") -> bytes:
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(url, json.dumps(content).encode(), headers, method=method)
    nearby = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this host's loopback
    with nearby.open(request, timeout=ANSWER_SECONDS) as answer:
        return bytes(answer.read())
