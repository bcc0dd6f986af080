"""A kernel whose answers are seen within a second, also where the wake-up of one was lost.

A widget's message leaves by the socket on which the answer of its cell is awaited. jupyter_client sends past the
asynchronous socket, and ZeroMQ wakes a reader once only: sending takes the wake-up, and the answer lies there unread
until the wait for it ends. That was the deadline of the whole notebook.
"""

from __future__ import annotations

import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.manager import AsyncKernelManager
from traitlets import Type

LOOKS_EACH_S = 1.0
"""How long an answer can lie unread; each wait looks once more at its end."""


class ShellChannel(AsyncZMQSocketChannel):
    """Waits in short turns."""

    async def get_msg(  # type: ignore[override]  # as its base, which is asynchronous where the base's is not
        self, timeout: float | None = None
    ) -> dict[str, Any]:
        """The next message; Empty after *timeout* seconds, never where it is None."""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            left = LOOKS_EACH_S if ends is None else max(0.0, ends - time.monotonic())
            try:
                return await super().get_msg(timeout=min(left, LOOKS_EACH_S))
            except Empty:
                if ends is not None and time.monotonic() >= ends:
                    raise


class KernelClient(AsyncKernelClient):
    """Jupyter's, listening so on the channel of answers."""

    shell_channel_class = Type(ShellChannel)


class KernelManager(AsyncKernelManager):
    """Starts kernels that are listened to so."""

    client_factory = Type(klass=KernelClient)
