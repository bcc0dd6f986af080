"""The lab's first page: its kernel begins before the page is opened, and the page says when the explorer is there."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_core.paths import jupyter_runtime_dir

from workbench.lab import EXPLORER, START_SECONDS, Server

ANSWER_SECONDS = 30.0
"""The server starts a kernel within this time."""
LOOK_SECONDS = 0.5
"""How often a wait looks whether it is still wanted."""
WARM = "from workbench.widgets import explorer\nfrom workbench.widgets.explorers import prepare\nprepare()"
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
