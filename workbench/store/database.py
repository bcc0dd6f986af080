"""One SQLite file, opened so that several processes may write it, and whose every error is one sentence."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kernels.failed import Failed
from kernels.files import NO_ROOM
from workbench.store.schema import MIGRATIONS, VERSION
from workbench.store.whose import APPLICATION_ID, label_of, refuse_foreign, version_in

BUSY_SECONDS = 30.0
"""How long a writer waits for another process's transaction."""

FAILURES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""What SQLite says when the same may work another time."""

NETWORK_FILE_SYSTEMS = ("nfs", "lustre", "cifs", "smb", "gpfs", "beegfs", "ceph", "afs", "9p", "panfs", "pvfs",
                        "orangefs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3", "wekafs")  # fmt: skip
"""Beginnings of their names. A WAL needs memory that all writers share, which these do not give between hosts."""


class Database:
    """One connection that the threads of a process share; other processes have their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._unsettled = False
        """Whether something was stored that a power cut could take."""
        self._can_write = not path.is_file() or writable(path)
        with self._sentences():
            _refuse_no_file(path)
            refuse_foreign(path)
            self._refuse_version(version_in(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                _begin(path)
            self._connection = sqlite3.connect(
                self._address(), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._sentences():
                self._set_up()
        except BaseException:
            self._connection.close()
            raise

    def _address(self) -> str:
        """Where nothing can be written, a WAL that is left over is read, and one that is not cannot be begun."""
        address = self.path.absolute().as_uri()
        if self._can_write:
            return address
        left_over = self.path.with_name(f"{self.path.name}-wal")
        return address + ("?mode=ro" if left_over.exists() and left_over.stat().st_size else "?immutable=1")

    def _set_up(self) -> None:
        self._connection.row_factory = sqlite3.Row
        version = self._version()
        self._refuse_version(version)
        if not self._can_write:
            if version < VERSION:
                self._bring_a_copy_up_to_date()
            return
        self._claim()
        self._set_journal("DELETE" if on_network(self.path) else "WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        if version < VERSION:
            self._migrate()

    def _refuse_version(self, version: int) -> None:
        if version > VERSION:
            raise ValueError(
                f"The store {self.path} has version {version}, but this workbench reads versions up to {VERSION}. "
                "Accepted: a newer workbench. Or move the file away, and the next run begins a new store."
            )
        if version < 0:
            raise ValueError(
                f"The store {self.path} has version {version}, which no workbench writes: {version} < 0. Nothing was "
                f"changed in it. Accepted: versions 0 to {VERSION}. Or move the file away, and the next run begins a "
                "new store."
            )

    def _claim(self) -> None:
        """A new store says whose it is before it has a WAL, where who looks at its first bytes would not see it."""
        if label_of(self._connection).application != APPLICATION_ID:
            with self.write() as connection:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _set_journal(self, mode: str) -> None:
        """Changing the mode needs the file alone, and SQLite does not wait for that by itself."""
        deadline = time.monotonic() + BUSY_SECONDS
        while self._connection.execute("PRAGMA journal_mode").fetchone()[0].upper() != mode:
            try:
                self._connection.execute(f"PRAGMA journal_mode = {mode}")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        with self.write() as connection:
            for version in range(self._version() + 1, VERSION + 1):
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def _bring_a_copy_up_to_date(self) -> None:
        """What an older workbench wrote where nothing can be written is read from a copy, a temporary file."""
        copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.backup(copy)
        self._connection.close()
        self._connection, copy.row_factory = copy, sqlite3.Row
        self._migrate()
        copy.execute("PRAGMA query_only = ON")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is stored, or nothing."""
        with self._lock, self._sentences():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
                self._unsettled = True
            except BaseException:
                # a full disk has rolled back by itself
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def settle(self) -> None:
        """What was stored outlives a power cut from now on, not only the end of this process.

        A commit leaves it with the system (synchronous = NORMAL): waiting for the disk in each would take milliseconds.
        Nobody waits for this one, but who calls it. A rollback journal has waited already.
        """
        if self._unsettled:
            self._unsettled = False
            with self._sentences(), suppress(FileNotFoundError):  # SQLite has taken it into the store, and waited
                _reach_the_disk(self.path.with_name(f"{self.path.name}-wal"))
            with suppress(OSError):  # its name; not every file system lets one wait for that
                _reach_the_disk(self.path.parent)

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of one query."""
        with self._lock, self._sentences():
            return self._connection.execute(statement, values).fetchall()

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Iterable[sqlite3.Row]:
        """The rows of one query in portions, for what is too much at once."""
        with self._sentences():
            cursor = self._connection.execute(statement, values)
            while rows := cursor.fetchmany(10_000):
                yield from rows

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise _kind(error)(sentence(error, self.path)) from error


def _begin(path: Path) -> None:
    """For its owner's eyes: it names login and host. SQLite gives what lies beside it the same permissions."""
    with suppress(FileExistsError):  # another process was quicker
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _reach_the_disk(place: Path) -> None:
    # never the store itself: closing a file of a process gives its locks away, and SQLite has locks on that one
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_no_file(path: Path) -> None:
    """SQLite would read a device, and wait for a pipe."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe and no file"
        raise ValueError(f"The store {path} cannot be opened: it is {what}. Accepted: a store that `workbench run "
                         "--store PATH` wrote, or the name of a new file.")  # fmt: skip


def _kind(error: sqlite3.Error | OSError) -> type[ValueError]:
    """Failed where the file may be opened and written, and still it did not work."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return Failed if code in FAILURES or getattr(error, "errno", None) in NO_ROOM else ValueError


def sentence(error: sqlite3.Error | OSError, path: Path) -> str:
    """What is wrong with the store at *path*, and what would be accepted."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_FULL:
            return (f"The store {path} cannot grow: its disk or quota is full, {_free(path)} free. What was stored "
                    "is safe. Make room and run again.")  # fmt: skip
        case sqlite3.SQLITE_READONLY:
            return (f"The store {path} is read-only, but a run must be stored. Accepted: a file in a folder that "
                    "you may write, such as --store PATH.")  # fmt: skip
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (f"The store {path} is damaged: {error}. Nothing was changed in it. Move it away, and the next "
                    "run begins a new store. sqlite3's .recover may save its rows.")  # fmt: skip
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (f"Another process locked the store {path} for more than {BUSY_SECONDS:.0f} s. Nothing was "
                    "changed in it. End that process, or use another file with --store PATH.")  # fmt: skip
    reason = getattr(error, "strerror", None) or str(error)
    return (f"The store {path} cannot be opened or written: {reason}. "
            "Accepted: a file in a folder that you may write, such as --store PATH.")  # fmt: skip


def _free(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free / 1e6:.0f} MB"
    except OSError:
        return "an unknown number of bytes"


def writable(path: Path) -> bool:
    """Whether a transaction can be written: SQLite needs the file and, for its journal, the folder."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def on_network(path: Path) -> bool:
    """Whether *path* lies on a file system that several hosts share."""
    import psutil

    folder = Path(os.path.realpath(path.parent))
    mounts = [disk for disk in psutil.disk_partitions(all=True) if folder.is_relative_to(disk.mountpoint)]
    nearest = max(mounts, key=lambda disk: len(disk.mountpoint), default=None)
    return nearest is not None and nearest.fstype.startswith(NETWORK_FILE_SYSTEMS)
