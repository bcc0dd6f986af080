"""The processes of this run and of nobody else: all that descend from it, orphans included."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

import psutil

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
