"""Is it still the same process? Numbers are used again, so that the moment of its start belongs to a process.

That moment is told without the clock, which people and time servers set: in ticks since the host started, and by the
name that the kernel gave to this start of it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import psutil

_STARTED = 19
"""Place of the start in /proc/PID/stat behind the process's name, which may hold anything: field 22 of proc(5)."""


_SAME_START_S = 60.0
"""Clocks are set; two processes of one number began further apart than this."""
_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of <sys/prctl.h>."""


def die_with(parent: int, by: signal.Signals) -> None:
    """On Linux the kernel sends this process *by* when its *parent* ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, by)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


def began(pid: int | None = None) -> str:
    """What only this process has of all that ever had its number, here; ProcessLookupError when there is none."""
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
    """Whether the process of this host lives that `began` *then*; a later one of the same number does not count."""
    try:
        return began(pid) == then and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def is_alive_by_clock(pid: int, then_s: float) -> bool:
    """The same of a process whose start an older workbench told in Unix seconds."""
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - then_s) < _SAME_START_S
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):
        return False
