"""Small file systems of one's own: never the host's. Where nothing can be mounted, a limit stands in."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

DISK_BYTES = 32 * 2**20
MEMORY_BYTES = 512 * 2**20
"""A heap of the tiny problems takes kilobytes; the ranks' own libraries want some megabytes."""
LIMIT_BYTES = 128 * 2**10
"""The stand-in: no file grows beyond it. A document fits, what a store writes for one sweep does not."""
SHARED = Path("/dev/shm")
_CHUNK = bytes(2**16)
_FILLER = "filler"


def own_mounts() -> list[str] | None:
    """The command before a command that gives it mounts of its own; None where this user may not have any."""
    for words in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        with contextlib.suppress(OSError):
            probe = [*words, "mount", "-t", "tmpfs", "tmpfs", str(SHARED)]
            if subprocess.run(probe, capture_output=True, timeout=20).returncode == 0:
                return words
    return None


class Full(Protocol):
    """A folder that can be full for a while."""

    folder: Path

    def fill(self, users: Iterable[int]) -> None:
        """From now on nothing can be written by *users*: pids of all that do."""

    def joins(self, user: int) -> None:
        """One more writes here from now on."""

    def lift(self, users: Iterable[int]) -> None:
        """There is room again."""

    def close(self) -> None:
        """Nobody uses it any more."""


class Mounted:
    """A tmpfs that this process and its children alone see: whoever writes there notices by himself."""

    def __init__(self, folder: Path, num_bytes: int) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        how = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes},mode=1777", "tmpfs", str(folder)]
        subprocess.run(how, check=True, capture_output=True, timeout=20)

    def fill(self, users: Iterable[int]) -> None:
        with (self.folder / _FILLER).open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(_CHUNK)

    def joins(self, user: int) -> None:
        pass

    def lift(self, users: Iterable[int]) -> None:
        (self.folder / _FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True, timeout=20)


class Limited:
    """The stand-in for a small disk: while it is full, no file of the processes that use it grows beyond a limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._is_full = False

    def fill(self, users: Iterable[int]) -> None:
        self._is_full = True
        _limit(users, LIMIT_BYTES)

    def joins(self, user: int) -> None:
        if self._is_full:
            _limit([user], LIMIT_BYTES)

    def lift(self, users: Iterable[int]) -> None:
        self._is_full = False
        _limit(users, None)

    def close(self) -> None:
        pass


def _limit(pids: Iterable[int], num_bytes: int | None) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if num_bytes is None else num_bytes, hard))


def again_with_own_mounts(arguments: list[str]) -> None:
    """Become this program with mounts of its own, where that may be; returns where it may not."""
    words = own_mounts()
    if words is not None:
        os.execvp(words[0], [*words, sys.executable, "-m", "tests.chaos", *arguments])
