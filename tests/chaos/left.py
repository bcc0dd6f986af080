"""The processes of this run and of nobody else, and that nothing is left behind: no process, memory or file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from tests.chaos.disk import SHARED

# The processes of this run and of nobody else: all that descend from it, orphans included.

_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of <sys/prctl.h>."""
END_S = 20.0


def adopt_orphans() -> None:
    """Whoever loses their parent becomes a child of this process, and not of the host's first."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def descendants() -> list[psutil.Process]:
    """All that live, the oldest first."""
    living = [process for process in psutil.Process().children(recursive=True) if lives(process)]
    return sorted(living, key=lambda process: (process.create_time(), process.pid))


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command(process: psutil.Process) -> str:
    """Its command line; nothing where it has gone."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def ranks() -> list[psutil.Process]:
    return [process for process in descendants() if " cluster.rank " in command(process)]


def keepers() -> list[psutil.Process]:
    """The processes that hold a scheduler."""
    return [process for process in descendants() if " cluster.launch " in command(process)]


def workers() -> list[psutil.Process]:
    """Dask's workers, which a keeper has started."""
    holders = {process.pid for process in keepers()}
    return [each for each in descendants() if "spawn_main" in command(each) and _parent(each) in holders]


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def reap_orphans(known: set[int]) -> None:
    """Take away adopted children that have ended; *known* ones are waited for by who started them."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.pid not in known and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


def listening() -> set[int]:
    """Ports on which descendants take connections."""
    ports: set[int] = set()
    for process in descendants():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            sockets = process.net_connections(kind="tcp")
            ports |= {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    return ports


def end_all() -> list[str]:
    """Kill every descendant; the answer is who had to be killed."""
    named: list[str] = []
    give_up_at = time.monotonic() + END_S
    while (living := descendants()) and time.monotonic() < give_up_at:
        for process in living:
            named.append(f"{process.pid} {command(process)[:100]}")
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(living, timeout=2)
        reap_orphans(set())
    return sorted(set(named))


# Nothing is left behind: no process, no shared memory, no semaphore, no temporary file, no socket that listens.

OWNER = re.compile(r"overlap-.*-(\d+)$")
"""A segment's name ends with the process that made it."""
GONE_S = 90.0
"""Workers without a scheduler look for it a minute long."""
TICK_S = 0.2
DASKS = re.compile(r"dask-scratch-space(/(global|purge)\.lock)?")
"""What Dask keeps in a temporary folder for as long as that is there: two empty files."""
LOG = re.compile(r"overlap-workbench(/(scheduler-[^/]+|dask)\.log(\.1)?)?")
"""What the last cluster and Dask said stays for who wants to read it."""


def in_memory(is_own: bool, before: Iterable[str]) -> list[str]:
    """What lies in /dev/shm that was not there *before*; where others use it too, segments of dead ranks only."""
    names = {path.name for path in SHARED.iterdir()} - set(before)
    return sorted(name for name in names if is_own or ((owner := OWNER.search(name)) and not _lives(int(owner[1]))))


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def segments() -> list[str]:
    """Of ranks: they are unlinked as soon as all have mapped them."""
    return sorted(path.name for path in SHARED.glob("*overlap-*"))


def files(folder: Path, kept: re.Pattern[str]) -> list[str]:
    """What lies under *folder* beyond what may be kept."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
    return sorted(name for name in names if not kept.fullmatch(name))


def open_ports(ports: Iterable[int]) -> list[int]:
    """Which of *ports* still take connections on loopback."""
    still = []
    for port in ports:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            still.append(port)
    return still


def until_nothing(what: Callable[[], list[str]], within_s: float = GONE_S) -> list[str]:
    """Ask until nothing is left; the answer is what is left after that time."""
    give_up_at = time.monotonic() + within_s
    while (left := what()) and time.monotonic() < give_up_at:
        reap_orphans(set())
        time.sleep(TICK_S)
    return left


def processes() -> list[str]:
    """Of this run, as people read them."""
    return [f"{process.pid} {command(process)[:120]}" for process in descendants()]
