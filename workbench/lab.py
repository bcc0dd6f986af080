"""The lab: JupyterLab with the explorer as its first page, whose kernel starts before the page is opened."""

from __future__ import annotations

import hashlib
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

# The JupyterLab server, on loopback.

EXPLORER = "explore.ipynb"
LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """A starting or running JupyterLab."""

    process: subprocess.Popen[bytes]
    token: str
    doorstep: Path
    """The file that a browser opens and that redirects it to the page; deleted with the server."""

    def address(self) -> str:
        """The address of the server, as soon as it listens; ValueError where it does not."""
        return _url(self.process)

    def explorer(self, address: str) -> str:
        """The address of the explorer's page, with the token that opens it."""
        return f"{address}lab/tree/{quote(EXPLORER)}?{urlencode({'token': self.token})}"

    def lead(self, url: str) -> str:
        """The address of a page that redirects to *url*; only this user can read it.

        As in Jupyter: every user of this host can read the command line of a browser, and *url* contains the token. The
        page is next to the runs: a browser installed as a snap sees no hidden folder and no temporary folder.
        """
        redirect = f'<meta http-equiv="refresh" content="0; url={escape(url)}">'
        self.doorstep.parent.mkdir(parents=True, exist_ok=True)
        files.write(self.doorstep, f"<!doctype html><title>Overlap Workbench</title>{redirect}\n", mode=0o600)
        return self.doorstep.absolute().as_uri()


@contextmanager
def jupyter(port: int | None = None) -> Iterator[Server]:
    """Starts JupyterLab, and ends it with the `with`; ValueError where it has no port or no folder of its own."""
    _check_place(port)
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
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the kernels in order
        )
        try:
            yield Server(process, token, doorstep)
        finally:
            _end(process)
            doorstep.unlink(missing_ok=True)


def _check_place(port: int | None) -> None:
    """Raise ValueError or Failed before a server starts that would end at once without saying why."""
    runtime = Path(jupyter_runtime_dir())
    try:
        runtime.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=runtime).close()
    except OSError as error:
        raise Failed(f"The lab cannot start: Jupyter keeps its files in {runtime}, which cannot be written "
                     f"({error.strerror}). Accepted: a HOME whose folders you may write.") from error  # fmt: skip
    if port is not None:
        try:
            socket.create_server((LOOPBACK, port)).close()
        except OSError as error:
            raise ValueError(f"The lab cannot listen on port {port} of {LOOPBACK} ({files.reason(error)}). Accepted: "
                             "another port, or no --port: then it is the first that is free.") from error  # fmt: skip


def _command(folder: Path, layouts: Path, port: int | None) -> list[str]:
    """The command of JupyterLab; *layouts* is an empty folder, so that each lab begins with the explorer alone."""
    options = {
        "ServerApp.ip": LOOPBACK,
        "ServerApp.root_dir": str(folder),
        "ServerApp.open_browser": "False",
        "LabApp.workspaces_dir": str(layouts),
        "LabApp.extra_labextensions_path": str(resources.labextensions_directory()),
        **({} if port is None else {"ServerApp.port": str(port), "ServerApp.port_retries": "0"}),
        **({"ServerApp.allow_root": "True"} if hasattr(os, "geteuid") and os.geteuid() == 0 else {}),
    }
    # SIGTERM, so that it ends its kernels if this process is killed
    start = f"import signal; from cluster.process import die_with; die_with({os.getpid()}, signal.SIGTERM); "
    start += "from workbench.charts.quick_start import import_jsonschema; import_jsonschema(); "
    start += "from jupyterlab.labapp import main; main()"
    return [sys.executable, "-c", start, *(f"--{name}={value}" for name, value in options.items())]


SHIPPED_AS = ".shipped.json"
"""In the folder of copies: by name, the digest of the notebook that each copy was made of."""


def notebooks() -> Path:
    """The folder of a person's own copies of the shipped notebooks, so that running them changes no shipped file.

    In a checkout it is among the runs, which git ignores. A copy that its owner has not changed stays up to date.
    """
    shipped = resources.notebooks_directory()
    if not (shipped / EXPLORER).is_file():
        raise ValueError(f"The lab cannot start: {shipped / EXPLORER} is missing. Install the workbench again.")
    runs = resources.runs_directory()
    in_wheel = shipped.parent == Path(resources.__file__).parent
    copies = (runs.parent if in_wheel else runs) / "notebooks"
    try:
        if not copies.exists():
            _copy_folder(shipped, copies)
        _follow(shipped, copies)
    except OSError as error:
        raise Failed(f"The lab's notebooks cannot be copied to {copies}: {error.strerror or error}. Accepted: room "
                     "in a folder that you may write.") from error  # fmt: skip
    return copies


def _copy_folder(shipped: Path, target: Path) -> None:
    """Copies the whole folder or nothing: half a copy would be used as if it were whole."""
    unfinished = target.with_name(f".{uuid4().hex}.unfinished")
    try:
        shutil.copytree(shipped, unfinished, ignore=shutil.ignore_patterns(".*"))
        _note_digests(unfinished, {path.name: _digest(path) for path in shipped.glob("*.ipynb")})
        unfinished.rename(target)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not target.exists():  # and no other lab has made it in the meantime
            raise


def _follow(shipped: Path, copies: Path) -> None:
    """Replaces copies that are as they were made by today's notebooks, and adds those that are missing."""
    try:
        before = dict(files.parsed((copies / SHIPPED_AS).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        before = {}  # an older workbench made the copies, and all that differ stay
    digests = dict(before)
    for path in shipped.glob("*.ipynb"):
        copied, digest = copies / path.name, _digest(path)
        is_as_made = not copied.exists() or _digest(copied) in (before.get(path.name), digest)
        if is_as_made:
            if not copied.exists() or _digest(copied) != digest:
                files.write(copied, path.read_bytes())
            digests[path.name] = digest
    if digests != before:
        _note_digests(copies, digests)


def _note_digests(copies: Path, digests: dict[str, str]) -> None:
    files.write(copies / SHIPPED_AS, json.dumps(digests, indent=1))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _url(process: subprocess.Popen[bytes]) -> str:
    """The address of the server of *process*, from the file that it writes for its own tools.

    jupyter_server can read it, too, but takes seconds to import.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    file = Path(jupyter_runtime_dir()) / f"jpserver-{process.pid}.json"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failed(f"JupyterLab ended at once with exit code {process.returncode}. "
                             f"`{sys.executable} -m jupyterlab` says why.")  # fmt: skip
        # not yet there, half written, or written before the server listens
        with suppress(FileNotFoundError, json.JSONDecodeError, ConnectionRefusedError):
            server = json.loads(file.read_text())
            socket.create_connection((LOOPBACK, server["port"]), timeout=START_SECONDS).close()
            return str(server["url"])
        time.sleep(0.05)
    raise Failed(f"JupyterLab started, but did not listen within {START_SECONDS:.0f} s. `{sys.executable} -m "
                     "jupyterlab` says why.")  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the server and its kernels; kills it with all its processes if it does not end in time."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_SECONDS)


# The first page: its kernel starts before the page is opened, and the page reports when the explorer is drawn.

ANSWER_SECONDS = 30.0
"""The longest wait for the server to start a kernel."""
LOOK_SECONDS = 0.5
"""The interval at which a wait checks whether it is still wanted."""
WARM = "from workbench.widgets import explorer\nfrom workbench.widgets.explorers import prepare\nprepare()"
"""Code that the kernel runs before the explorer's cell does."""
SHOWN = "# The page shows the explorer."
"""Code that the page lets its kernel run, as a signal, once the timeline is drawn (remoteEntry.js)."""
CLOSED = {"data": {"layout-restorer:data": {}}, "metadata": {"id": "default"}}
"""The layout of JupyterLab without the file browser, which a new page would open."""


class FirstPage:
    """The explorer's page of a starting server; calls `show` with its address as soon as it can be opened."""

    def __init__(self, server: Server, show: Callable[[str], Any]) -> None:
        self._server, self._show = server, show
        self._kernel: BlockingKernelClient | None = None
        self._error: ValueError | None = None
        self._shown = False
        self._thread = threading.Thread(target=self._open, name="workbench first page", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Waits for the address; raises ValueError where the server failed."""
        self._thread.join(START_SECONDS + ANSWER_SECONDS)
        if self._error is not None:
            raise self._error

    def wait_shown(self, seconds: float, unwanted: threading.Event | None = None) -> bool:
        """Waits up to *seconds*, or until *unwanted* is set, for the explorer; whether it is drawn."""
        until, stop = time.monotonic() + seconds, unwanted or threading.Event()
        while not self._shown and not stop.is_set() and time.monotonic() < until:
            if self._thread.is_alive() or self._kernel is None:
                stop.wait(LOOK_SECONDS)
                continue
            with suppress(queue.Empty):
                message = self._kernel.get_iopub_msg(timeout=LOOK_SECONDS)
                self._shown = message["msg_type"] == "execute_input" and message["content"]["code"] == SHOWN
        return self._shown

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.stop_channels()

    def _open(self) -> None:
        try:
            address = self._server.address()
        except ValueError as error:
            self._error = error
            return
        # without these the page starts its kernel itself, which takes longer, and opens its file browser: the page can
        # be opened whatever fails in them (the server, a socket, a file of the kernel)
        with suppress(Exception):
            _send(urljoin(address, "lab/api/workspaces/default"), self._server.token, CLOSED, "PUT")
            self._kernel = _start_kernel(address, self._server.token)
        self._show(self._server.explorer(address))


@contextmanager
def opened(server: Server, show: Callable[[str], Any]) -> Iterator[FirstPage]:
    """Opens the first page of *server* in the background."""
    page = FirstPage(server, show)
    try:
        yield page
    finally:
        page.close()


def _start_kernel(address: str, token: str) -> BlockingKernelClient:
    """Starts the kernel of the explorer's notebook, which prepares the explorer; the page then uses this kernel."""
    wanted = {"path": EXPLORER, "name": EXPLORER, "type": "notebook", "kernel": {"name": "python3"}}
    session = json.loads(_send(urljoin(address, "api/sessions"), token, wanted))
    file = Path(jupyter_runtime_dir()) / f"kernel-{session['kernel']['id']}.json"
    kernel = BlockingKernelClient(connection_file=str(file))
    kernel.load_connection_file()
    kernel.start_channels(stdin=False, hb=False, control=False)
    kernel.execute(WARM, silent=True, store_history=False)
    return kernel


def _send(url: str, token: str, content: dict[str, Any], method: str = "POST") -> bytes:
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(url, json.dumps(content).encode(), headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this host's loopback
    with opener.open(request, timeout=ANSWER_SECONDS) as answer:
        return bytes(answer.read())
