"""Is it still the same process? Numbers are used again, so that the moment of its start belongs to a process."""

from __future__ import annotations

import os

import psutil

_SAME_START_S = 60.0
"""Clocks are set; two processes with the same number are further apart than this."""


def started_at() -> float:
    """When this process started, in Unix seconds."""
    return psutil.Process(os.getpid()).create_time()


def is_alive(pid: int, started_at: float) -> bool:
    """Whether the process of this host that started then lives; a later one of the same number does not count."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started_at) < _SAME_START_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
