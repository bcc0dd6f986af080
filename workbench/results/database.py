"""One SQLite file, opened so that several processes may write it, and whose every error is one sentence."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.process import is_alive, process_start
from kernels.files import NO_ROOM, Failed

# What a run has of its own: an id that no other run of the store has, and the process that made it.


def unused_id(connection: sqlite3.Connection) -> str:
    """An id inside a transaction: it sorts by time, and has few letters, which two of the same second may both draw."""
    while True:
        drawn = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        if not connection.execute("SELECT 1 FROM runs WHERE id = ?", (drawn,)).fetchone():
            return drawn


def process_here() -> dict[str, Any]:
    """This process, as it is stored."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": process_start()}


def is_gone(process: Mapping[str, Any] | None) -> bool:
    """Whether that process was one of this host and has ended; of other hosts nobody knows."""
    if process is None or process["host"] != socket.gethostname():
        return False
    return not is_alive(process["pid"], process.get("began"))


# What the store's file holds: its tables, and the history of their version.

VERSION = 4
"""Kept in the file as `user_version`. A new one comes with a line above and statements that bring an old file to it."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        # one sitting: what was asked and under which circumstances
        """CREATE TABLE runs (
            id TEXT PRIMARY KEY,
            started_at REAL NOT NULL,
            ended_at REAL,
            status TEXT NOT NULL,       -- running, finished, cancelled, or the sentence that stopped it
            title TEXT NOT NULL,
            experiment TEXT NOT NULL,   -- JSON
            provenance TEXT NOT NULL    -- JSON
        )""",
        "CREATE TABLE trials (key TEXT PRIMARY KEY, trial TEXT NOT NULL) WITHOUT ROWID",
        # the id is the cursor of live charts: ids only grow, in the order of commits
        """CREATE TABLE outcomes (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs (id),
            key TEXT NOT NULL REFERENCES trials (key),
            fingerprint TEXT NOT NULL,
            at REAL NOT NULL,
            outcome TEXT NOT NULL,
            source TEXT NOT NULL,
            origin TEXT,                -- the run whose samples a recorded outcome shows
            row TEXT NOT NULL,          -- JSON: what was known by itself; joined numbers are computed when asked
            spans TEXT NOT NULL         -- JSON
        )""",
        "CREATE INDEX outcomes_of_run ON outcomes (run, id)",
        "CREATE INDEX outcomes_of_key ON outcomes (key, fingerprint)",
        """CREATE TABLE samples (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL,
            key TEXT NOT NULL,
            rank INTEGER NOT NULL,
            number INTEGER NOT NULL,
            seconds REAL NOT NULL,
            at REAL NOT NULL
        )""",
        "CREATE INDEX samples_of_trial ON samples (run, key)",
        # what wire_to_compute is resolved with: Fabric.resolve makes the bandwidth of it
        """CREATE TABLE fabrics (
            machine TEXT NOT NULL,
            problem TEXT NOT NULL,      -- JSON
            compute_s REAL NOT NULL,    -- the sequential schedule's computation alone
            run TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (machine, problem)
        ) WITHOUT ROWID""",
    ),
    2: (
        "ALTER TABLE outcomes ADD COLUMN block TEXT",
        "ALTER TABLE samples ADD COLUMN block TEXT",
        "CREATE INDEX outcomes_of_block ON outcomes (block) WHERE block IS NOT NULL",
    ),
    3: (
        # a recorded outcome is of the run that measured it; names are those of recordings.older_block
        """CREATE TEMP TABLE older AS
            SELECT coalesce(o.origin, o.run) AS sitting, json_extract(t.trial, '$.problem') AS problem,
                coalesce(o.origin, o.run) || '.p' || row_number() OVER (
                    PARTITION BY coalesce(o.origin, o.run) ORDER BY min(o.id)) AS block
            FROM outcomes o JOIN trials t ON t.key = o.key
            WHERE o.block IS NULL AND o.outcome = 'measurement' GROUP BY 1, 2""",
        """UPDATE outcomes SET block = (SELECT older.block FROM older JOIN trials t ON t.key = outcomes.key
                WHERE older.sitting = coalesce(outcomes.origin, outcomes.run)
                AND older.problem = json_extract(t.trial, '$.problem'))
            WHERE block IS NULL AND outcome = 'measurement'""",
        """UPDATE samples SET block = (SELECT o.block FROM outcomes o WHERE o.key = samples.key AND o.run = samples.run
                AND o.origin IS NULL AND o.block IN (SELECT block FROM older))
            WHERE block IS NULL""",
        "DROP TABLE older",
    ),
    # what was measured before has none of them, and so is shown, but not known; `fingerprint` is what it had instead
    4: (
        "ALTER TABLE outcomes ADD COLUMN source_print TEXT",
        "ALTER TABLE outcomes ADD COLUMN versions_print TEXT",
        "ALTER TABLE outcomes ADD COLUMN hardware TEXT",  # JSON: kernels.hardware.Hardware.text
        "DROP INDEX outcomes_of_key",
        "CREATE INDEX outcomes_of_key ON outcomes (key, source_print)",
        "ALTER TABLE fabrics RENAME TO older_fabrics",
        """CREATE TABLE fabrics (
            machine TEXT NOT NULL,
            hardware TEXT NOT NULL,     -- as in outcomes; nothing where it was not written down
            problem TEXT NOT NULL,
            compute_s REAL NOT NULL,
            run TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (machine, hardware, problem)
        ) WITHOUT ROWID""",
        "INSERT INTO fabrics SELECT machine, '', problem, compute_s, run, at FROM older_fabrics",
        "DROP TABLE older_fabrics",
    ),
}


# Whose database a file is: read from its first bytes, so that what is another program's is never touched.

APPLICATION_ID = int.from_bytes(b"OvWb")
"""Kept in the file as `application_id`: "Overlap Workbench" in four letters. Other programs have another one, or 0."""
FIRST_TABLES = frozenset({"runs", "trials", "outcomes", "samples", "fabrics"})
"""What a store held while its application_id was still 0: all of these, and no other."""
COMPANIONS = ("-wal", "-shm", "-journal")
"""What SQLite appends to the name of a file for the files that it needs beside it."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_VERSION_AT, _APPLICATION_AT = slice(60, 64), slice(68, 72)


@dataclass(frozen=True, slots=True)
class DatabaseLabel:
    """What a database says of itself."""

    application: int
    version: int
    tables: frozenset[str]

    @property
    def is_ours(self) -> bool:
        """Told by its application_id; older ones by their version and tables."""
        return self.application == APPLICATION_ID or (
            self.application == 0 and self.version > 0 and self.tables == FIRST_TABLES
        )

    @property
    def is_empty(self) -> bool:
        """A database that nobody has written anything into yet."""
        return not (self.application or self.version or self.tables)


def refuse_foreign(path: Path) -> None:
    """ValueError where *path* is another program's database. Nothing is written, beside it neither."""
    header = _header(path)
    if not header.startswith(_MAGIC) or int.from_bytes(header[_APPLICATION_AT]) == APPLICATION_ID:
        return  # new, ours, or no database at all, which SQLite says itself
    label = _label(path)
    if not label.is_ours and _companion(path, "-wal"):
        label = _label_with_wal(path)
    if not (label.is_ours or label.is_empty):
        raise ValueError(
            f"{path} is the database of another program: {_told(label)}. Nothing was changed in it. Accepted: a store "
            "that `workbench run --store PATH` wrote, or the name of a new file."
        )


def version_in(path: Path) -> int:
    """The version in the first bytes of *path*, 0 where there are none: a later one may stand in its WAL."""
    header = _header(path)
    return int.from_bytes(header[_VERSION_AT], signed=True) if header.startswith(_MAGIC) else 0


def label_of(connection: sqlite3.Connection) -> DatabaseLabel:
    """What the database behind *connection* says of itself."""
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0]
                            for name in ("application_id", "user_version"))  # fmt: skip
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return DatabaseLabel(application, version, frozenset(name for name in names if not name.startswith("sqlite_")))


def _header(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)


def _label(path: Path) -> DatabaseLabel:
    """Read without SQLite's own files beside it: what stands in a WAL is not seen."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        return label_of(connection)


def _label_with_wal(path: Path) -> DatabaseLabel:
    """Of a copy, as reading a WAL writes beside the file."""
    with tempfile.TemporaryDirectory(prefix="workbench-store-") as folder:
        copy = Path(folder) / "copy"
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        with closing(sqlite3.connect(copy)) as connection:
            return label_of(connection)


def _companion(path: Path, ending: str) -> bool:
    """Whether there is one with something in it."""
    beside = path.with_name(f"{path.name}{ending}")
    return beside.is_file() and beside.stat().st_size > 0


def _told(label: DatabaseLabel) -> str:
    names = sorted(label.tables)
    some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    held = f"its tables are {some}" if names else "it has no tables"
    return f"its application_id is {label.application}, a store's is {APPLICATION_ID}, and {held}"


# One SQLite file, opened so that several processes may write it, and whose every error is one sentence.

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
