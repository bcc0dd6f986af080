"""A run's id sorts by time, is short enough to be typed, and no two runs of a store have the same."""

from __future__ import annotations

import secrets
import sqlite3
import time


def unused(connection: sqlite3.Connection) -> str:
    """One that no run has, inside a transaction: those that begin in the same second draw few letters."""
    while True:
        drawn = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        if not connection.execute("SELECT 1 FROM runs WHERE id = ?", (drawn,)).fetchone():
            return drawn
