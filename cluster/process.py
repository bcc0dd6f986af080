"""Identifies a process by its number and the moment of its start, because numbers are used again; removes what killed
ones left.

That moment does not depend on the clock, which people and time servers set: it is counted in ticks since the host
booted, with the name that the kernel gave to this boot.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import psutil

SEMAPHORES = Path("/dev/shm")
_LEFT_S = 60.0
"""Age below which a semaphore may belong to a process that is just starting, s."""
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


def remove_left_semaphores(folder: Path = SEMAPHORES, older_than_s: float = _LEFT_S) -> int:
    """Removes this user's semaphores of Python's multiprocessing that no process maps; returns their number.

    A lab whose whole process group was killed leaves hundreds: the process that removes them was in the group. Where a
    Python process of this user does not show what it maps, none is removed.
    """
    before = time.time() - older_than_s
    ours = {}
    for path in folder.glob("sem.mp-*"):
        try:
            facts = path.stat()
        except OSError:  # somebody else removed it
            continue
        if facts.st_uid == os.getuid() and facts.st_mtime < before:
            ours[facts.st_ino] = path
    if not ours or (mapped := _mapped_inodes(folder)) is None:
        return 0
    left = [path for inode, path in ours.items() if inode not in mapped]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def _mapped_inodes(folder: Path) -> set[int] | None:
    """Inodes of the files of *folder* that processes map; None where a Python process of this user keeps them secret.

    By inode: the name in the table is that from before a semaphore got its own.
    """
    inodes = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()  # the names of files may be any bytes
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            if _is_python(maps.parent):
                return None
            continue
        inodes |= {int(line.split()[4]) for line in lines if f" {folder}/" in line}
    return inodes


def _is_python(process: Path) -> bool:
    """Whether *process*, a folder of /proc, is one of this user's that runs Python."""
    try:
        return process.stat().st_uid == os.getuid() and b"python" in (process / "cmdline").read_bytes()
    except OSError:
        return False
