"""The lab: a local cluster and JupyterLab on the explorer, both on loopback, both ended together."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from workbench import resources

EXPLORER = "explore.ipynb"
LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """A JupyterLab that is starting or running."""

    process: subprocess.Popen[bytes]
    token: str

    def explorer(self) -> str:
        """The address of the explorer's page, once the server listens."""
        return f"{_url(self.process)}lab/tree/{quote(EXPLORER)}?{urlencode({'token': self.token})}"


@contextmanager
def jupyter(port: int | None = None) -> Iterator[Server]:
    """JupyterLab, ended when the `with` ends."""
    token = secrets.token_urlsafe(24)
    process = subprocess.Popen(
        _command(notebooks(), port),
        # not on the command line, which every user of this host can read
        env={**os.environ, "JUPYTER_TOKEN": token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us: kernels are then ended in good order
    )
    try:
        yield Server(process, token)
    finally:
        _end(process)


def _command(folder: Path, port: int | None) -> list[str]:
    options = {
        "ServerApp.ip": LOOPBACK,
        "ServerApp.root_dir": str(folder),
        "ServerApp.open_browser": "False",
        "LabApp.news_url": "",
        **({} if port is None else {"ServerApp.port": str(port), "ServerApp.port_retries": "0"}),
        **({"ServerApp.allow_root": "True"} if hasattr(os, "geteuid") and os.geteuid() == 0 else {}),
    }
    return [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]


def notebooks() -> Path:
    """The folder of notebooks that a person may write: ours, or a copy where ours came in a wheel."""
    shipped = resources.notebooks_directory()
    if not (shipped / EXPLORER).is_file():
        raise ValueError(f"The lab was asked for, but {shipped / EXPLORER} is missing. Install the workbench again.")
    if shipped.parent == Path(resources.__file__).parent:
        own = resources.runs_directory().parent / "notebooks"
        if not own.exists():
            shutil.copytree(shipped, own)
        return own
    return shipped


def _url(process: subprocess.Popen[bytes]) -> str:
    """Where the server of *process* listens, from the file that it leaves for its own tools.

    jupyter_server reads it, too, but takes seconds to import.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    left = Path(jupyter_runtime_dir()) / f"jpserver-{process.pid}.json"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ValueError(f"JupyterLab ended at once with exit code {process.returncode}. "
                             f"`{sys.executable} -m jupyterlab` says why.")  # fmt: skip
        # not yet there, half written, or written before the server listens
        with suppress(FileNotFoundError, json.JSONDecodeError, ConnectionRefusedError):
            found = json.loads(left.read_text())
            socket.create_connection((LOOPBACK, found["port"]), timeout=START_SECONDS).close()
            return str(found["url"])
        time.sleep(0.05)
    raise ValueError(f"JupyterLab was started, but did not listen within {START_SECONDS:.0f} s. "
                     f"`{sys.executable} -m jupyterlab` says why.")  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server ends its kernels; what does not end in time is killed with all that it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_SECONDS)
