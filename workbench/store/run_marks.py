"""What a run has of its own: an id that no other run of the store has, and the process that made it."""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from cluster.process import began, is_alive


def unused_id(connection: sqlite3.Connection) -> str:
    """An id inside a transaction: it sorts by time, and has few letters, which two of the same second may both draw."""
    while True:
        drawn = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        if not connection.execute("SELECT 1 FROM runs WHERE id = ?", (drawn,)).fetchone():
            return drawn


def process_here() -> dict[str, Any]:
    """This process, as it is stored."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": began()}


def is_gone(process: Mapping[str, Any] | None) -> bool:
    """Whether that process was one of this host and has ended; of other hosts nobody knows."""
    if process is None or process["host"] != socket.gethostname():
        return False
    return not is_alive(process["pid"], process.get("began"))
