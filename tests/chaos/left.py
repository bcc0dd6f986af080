"""Nothing is left behind: no process, no shared memory, no semaphore, no temporary file, no socket that listens."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.chaos import family
from tests.chaos.disk import SHARED

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
        family.reap_orphans(set())
        time.sleep(TICK_S)
    return left


def processes() -> list[str]:
    """Of this run, as people read them."""
    return [f"{process.pid} {family.command(process)[:120]}" for process in family.descendants()]
