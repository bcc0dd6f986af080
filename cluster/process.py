"""Identifies a process by its number and the moment of its start, because numbers are used again.

That moment does not depend on the clock, which people and time servers set: it is counted in ticks since the host
booted, with the name that the kernel gave to this boot.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import psutil

_STARTED = 19
"""Index of the start time in /proc/PID/stat after the process's name: field 22 of proc(5)."""
_SAME_START_S = 60.0
"""Seconds by which a start may differ because a clock was set; processes of one number start further apart."""
_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of <sys/prctl.h>."""


def die_with(parent: int, by: signal.Signals) -> None:
    """Let the kernel (Linux only) send this process the signal *by* when its *parent* ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, by)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


def process_start(pid: int | None = None) -> str:
    """Text that identifies when the process started on this host; ProcessLookupError when there is no such process."""
    pid = os.getpid() if pid is None else pid
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STARTED]
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{ticks}"
    except OSError:  # no such process, or no Linux
        try:
            return str(psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            raise ProcessLookupError(f"there is no process {pid}") from None


def is_alive(pid: int, then: str | None) -> bool:
    """Whether process *pid* of this host lives and started at *then*; a later one of the same number does not count."""
    try:
        return process_start(pid) == then and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def is_alive_by_clock(pid: int, then_s: float) -> bool:
    """As `is_alive`, for a record of an older workbench, which noted the start in Unix seconds."""
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - then_s) < _SAME_START_S
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):
        return False
