"""A kernel that is reached by files of its own, and whose answers are seen within a second.

A TCP port is chosen before the kernel starts and can be taken by somebody else until it binds it: the kernel died then,
before its first answer. So a kernel of ours listens on Unix sockets in a new folder, where there are such.

A widget's message leaves by the socket on which the answer of its cell is awaited. jupyter_client sends past the
asynchronous socket, and ZeroMQ wakes a reader once only: sending takes the wake-up, and the answer lies there unread
until the wait for it ends. That was the deadline of the whole notebook.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.manager import AsyncKernelManager
from traitlets import CaselessStrEnum, Type

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
    """Starts kernels that are reached and listened to so."""

    client_factory = Type(klass=KernelClient)
    transport = CaselessStrEnum(["tcp", "ipc"], default_value="ipc" if os.name == "posix" else "tcp")

    def _ip_default(self) -> str:
        """The beginning of the sockets' paths; short, since a Unix socket's path has at most 107 characters."""
        if self.transport != "ipc":
            return str(super()._ip_default())
        return str(Path(tempfile.mkdtemp(prefix="kernel-")) / "to")

    def cleanup_ipc_files(self) -> None:
        """Removes the sockets and their folder."""
        super().cleanup_ipc_files()
        if self.transport == "ipc":
            with contextlib.suppress(OSError):
                Path(self.ip).parent.rmdir()
