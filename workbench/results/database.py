"""The store's SQLite file: its tables and versions, safe writes by several processes, and readable errors."""

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

# Identity of a run: an id that no other run of the store has, and the process that made it.


def unused_id(connection: sqlite3.Connection) -> str:
    """A new run id, drawn inside a transaction: two runs of one second may draw the same letters. Ids sort by time."""
    while True:
        drawn = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        if not connection.execute("SELECT 1 FROM runs WHERE id = ?", (drawn,)).fetchone():
            return drawn


def moment() -> float:
    """Now in Unix seconds; 0 where the clock says that it is before 1970, which no reader accepts."""
    return max(0.0, time.time())


def moment_of_begin() -> float:
    """`moment` at the begin of a run; Failed where the clock is wrong: everything in the run would have that date."""
    if (now := time.time()) < 0:
        raise Failed(f"The clock of this computer says {now:,.0f} s, which is before 1970: {now:,.0f} < 0. No reader "
                     "would accept the run. Accepted: a clock that is set.")  # fmt: skip
    return moment()


def process_here() -> dict[str, Any]:
    """This process as a table of host, number and start time, which the store keeps."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": process_start()}


def is_gone(process: Mapping[str, Any] | None) -> bool:
    """Whether *process* ran on this host and has ended; False for other hosts, whose processes are not visible."""
    if process is None or process["host"] != socket.gethostname():
        return False
    return not is_alive(process["pid"], process.get("began"))


# Tables of the store, and the statements that bring older versions up to date.

VERSION = 5
"""Version of the tables, kept in the file as `user_version`. A new version needs statements in MIGRATIONS."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        # one run: what was requested, and its provenance
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
        # a recorded outcome belongs to the run that measured it; blocks are named as in recordings.older_block
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
    # older outcomes lack these columns and had `fingerprint` instead: they are shown, but do not count as known
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
    # what people say about a run after it ended (annotations.py), and views of the page by name (saved_views.py)
    5: (
        "ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN deleted_at REAL",  # hidden since then, and removed later
        "CREATE INDEX deleted_runs ON runs (id) WHERE deleted_at IS NOT NULL",
        """CREATE TABLE tags (
            run TEXT NOT NULL REFERENCES runs (id),
            tag TEXT NOT NULL,
            PRIMARY KEY (run, tag)
        ) WITHOUT ROWID""",
        """CREATE TABLE views (
            name TEXT PRIMARY KEY,
            view TEXT NOT NULL,         -- JSON
            revision INTEGER NOT NULL,  -- grows with each save of this name
            at REAL NOT NULL
        ) WITHOUT ROWID""",
    ),
}


# Owner of a database file, read from its first bytes: another program's database is never touched.

APPLICATION_ID = int.from_bytes(b"OvWb")
"""The `application_id` of a store: "Overlap Workbench" in four letters. Other programs have another one, or 0."""
FIRST_TABLES = frozenset({"runs", "trials", "outcomes", "samples", "fabrics"})
"""All tables of a store from the time when its application_id was still 0."""
COMPANIONS = ("-wal", "-shm", "-journal")
"""Endings that SQLite appends to a database's name for its companion files."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_VERSION_AT, _APPLICATION_AT = slice(60, 64), slice(68, 72)


@dataclass(frozen=True, slots=True)
class DatabaseLabel:
    """Application, version and tables that a database file reports."""

    application: int
    version: int
    tables: frozenset[str]

    @property
    def is_ours(self) -> bool:
        """Whether it is a store, by its application_id, or an older one, by its version and tables."""
        return self.application == APPLICATION_ID or (
            self.application == 0 and self.version > 0 and self.tables == FIRST_TABLES
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been written into it yet."""
        return not (self.application or self.version or self.tables)


def refuse_foreign(path: Path) -> None:
    """Raise ValueError if *path* is another program's database; neither it nor a companion file is written."""
    header = _header(path)
    if not header.startswith(_MAGIC) or int.from_bytes(header[_APPLICATION_AT]) == APPLICATION_ID:
        return  # new, ours, or no database at all, which SQLite reports itself
    label = _label(path)
    if not label.is_ours and _companion(path, "-wal"):
        label = _label_with_wal(path)
    if not (label.is_ours or label.is_empty):
        raise ValueError(
            f"{path} is the database of another program: {_description(label)}. Nothing was changed in it. Accepted: a "
            "store that `workbench run --store PATH` wrote, or the name of a new file."
        )


def version_in(path: Path) -> int:
    """The version in the first bytes of *path*, or 0 without any; its WAL may hold a later one."""
    header = _header(path)
    return int.from_bytes(header[_VERSION_AT], signed=True) if header.startswith(_MAGIC) else 0


def label_of(connection: sqlite3.Connection) -> DatabaseLabel:
    """The label of the database behind *connection*."""
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
    """The label in the file *path* alone: content of its WAL is not seen."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        return label_of(connection)


def _label_with_wal(path: Path) -> DatabaseLabel:
    """The label of a copy with its WAL, because reading a WAL writes companion files."""
    with tempfile.TemporaryDirectory(prefix="workbench-store-") as folder:
        copy = Path(folder) / "copy"
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        with closing(sqlite3.connect(copy)) as connection:
            return label_of(connection)


def _companion(path: Path, ending: str) -> bool:
    """Whether the companion file with *ending* exists and is not empty."""
    companion = path.with_name(f"{path.name}{ending}")
    return companion.is_file() and companion.stat().st_size > 0


def _description(label: DatabaseLabel) -> str:
    names = sorted(label.tables)
    first_names = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    held = f"its tables are {first_names}" if names else "it has no tables"
    return f"its application_id is {label.application}, a store's is {APPLICATION_ID}, and {held}"


# Connection to the file: transactions, migrations, durability and errors.

BUSY_SECONDS = 30.0
"""How long a writer waits for another process's transaction."""

FAILURES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""SQLite errors after which a retry may work."""

NETWORK_FILE_SYSTEMS = ("nfs", "lustre", "cifs", "smb", "gpfs", "beegfs", "ceph", "afs", "9p", "panfs", "pvfs",
                        "orangefs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3", "wekafs")  # fmt: skip
"""How the names of network file systems begin. Hosts cannot share there the memory that writers of a WAL need."""


class Database:
    """One connection that the threads of a process share; other processes have their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._unsettled = False
        """Whether a power cut could still lose something that was stored."""
        self._can_write = not path.is_file() or writable(path)
        with self._readable_errors():
            _refuse_special_file(path)
            refuse_foreign(path)
            self._refuse_version(version_in(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                _create_private(path)
            self._connection = sqlite3.connect(
                self._address(), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        facts = path.stat()
        self._file = facts.st_dev, facts.st_ino
        try:
            with self._readable_errors():
                self._set_up()
        except BaseException:
            self._connection.close()
            raise

    def refuse_absence(self) -> None:
        """Raise Failed where the file was deleted or replaced meanwhile: SQLite would go on without a name."""
        try:
            facts = self.path.stat()
        except OSError:
            facts = None
        if facts is None or (facts.st_dev, facts.st_ino) != self._file:
            what = "is not there any more" if facts is None else "was replaced by another file"
            raise Failed(f"The store {self.path} {what} while it was open. Nothing was changed in it. Accepted: the "
                         "file put back, and the page or the command started again.")  # fmt: skip

    def _address(self) -> str:
        """The URI to open: a file that cannot be written is read with its WAL, or as immutable if it has none."""
        address = self.path.absolute().as_uri()
        if self._can_write:
            return address
        return address + ("?mode=ro" if _companion(self.path, "-wal") else "?immutable=1")

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
        """Write the application_id of a new store before it has a WAL, so that the first bytes of the file show it."""
        if label_of(self._connection).application != APPLICATION_ID:
            with self.write() as connection:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _set_journal(self, mode: str) -> None:
        """Set the journal mode; it needs exclusive access, for which SQLite itself does not wait."""
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
        """Read an older store that cannot be written from a migrated copy, a temporary file."""
        copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.backup(copy)
        self._connection.close()
        self._connection, copy.row_factory = copy, sqlite3.Row
        self._migrate()
        copy.execute("PRAGMA query_only = ON")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is stored, or nothing."""
        with self._lock, self._readable_errors():
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
        """Make what was stored survive a power cut, and not only the end of this process.

        A commit only hands the data to the operating system (synchronous = NORMAL), since each wait for the disk takes
        milliseconds. This call waits, and blocks no other writer. With a rollback journal the commit itself waited.
        """
        if self._unsettled:
            self._unsettled = False
            with (
                self._readable_errors(),
                suppress(FileNotFoundError),
            ):  # no WAL: SQLite has merged it into the store, and waited
                _reach_the_disk(self.path.with_name(f"{self.path.name}-wal"))
            with suppress(OSError):  # the file's entry in its folder; not every file system can wait for that
                _reach_the_disk(self.path.parent)

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of one query."""
        with self._lock, self._readable_errors():
            return self._connection.execute(statement, values).fetchall()

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Iterable[sqlite3.Row]:
        """The rows of one query in portions, for results that do not fit into memory."""
        with self._readable_errors():
            cursor = self._connection.execute(statement, values)
            while rows := cursor.fetchmany(10_000):
                yield from rows

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise _error_type(error)(error_message(error, self.path)) from error
        except UnicodeDecodeError as error:  # a name or a text of the file
            raise ValueError(_damaged(error, self.path)) from error


def _create_private(path: Path) -> None:
    """Create the file for its owner alone: it names login and host. Companion files get the same permissions."""
    with suppress(FileExistsError):  # another process was quicker
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _reach_the_disk(place: Path) -> None:
    # never the store itself: closing any handle of a file drops the process's locks, and SQLite has locks on it
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_special_file(path: Path) -> None:
    """Raise ValueError unless *path* is a file or free: SQLite would read a device, and wait for a pipe."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe and no file"
        raise ValueError(f"The store {path} cannot be opened: it is {what}. Accepted: a store that `workbench run "
                         "--store PATH` wrote, or the name of a new file.")  # fmt: skip


def _error_type(error: sqlite3.Error | OSError) -> type[ValueError]:
    """Failed for errors after which a retry may work, such as a full disk; else ValueError."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return Failed if code in FAILURES or getattr(error, "errno", None) in NO_ROOM else ValueError


def error_message(error: sqlite3.Error | OSError, path: Path) -> str:
    """What is wrong with the store at *path*, and what is accepted."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_FULL:
            return (f"The store {path} cannot grow: its disk or quota is full, {_free(path)} free. What was stored "
                    "is safe. Make room and run again.")  # fmt: skip
        case sqlite3.SQLITE_READONLY:
            return (f"The store {path} is read-only, but a run must be stored. Accepted: a file in a folder that "
                    "you may write, such as --store PATH.")  # fmt: skip
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return _damaged(error, path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (f"Another process locked the store {path} for more than {BUSY_SECONDS:.0f} s. Nothing was "
                    "changed in it. End that process, or use another file with --store PATH.")  # fmt: skip
    reason = getattr(error, "strerror", None) or str(error)
    return (f"The store {path} cannot be opened or written: {reason}. "
            "Accepted: a file in a folder that you may write, such as --store PATH.")  # fmt: skip


def _damaged(error: Exception, path: Path) -> str:
    fault = " ".join(str(error).split())  # it may quote a table of many lines
    return (f"The store {path} is damaged: {fault:.200}. Nothing was changed in it. Move it away, and the next run "
            "begins a new store. sqlite3's .recover may save its rows.")  # fmt: skip


def _free(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free / 1e6:.0f} MB"
    except OSError:
        return "an unknown number of bytes"


def writable(path: Path) -> bool:
    """Whether a transaction can be written: SQLite needs to write the file and, for its journal, the folder."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def on_network(path: Path) -> bool:
    """Whether *path* lies on a file system that several hosts share."""
    import psutil

    folder = Path(os.path.realpath(path.parent))
    mounts = [disk for disk in psutil.disk_partitions(all=True) if folder.is_relative_to(disk.mountpoint)]
    nearest = max(mounts, key=lambda disk: len(disk.mountpoint), default=None)
    return nearest is not None and nearest.fstype.startswith(NETWORK_FILE_SYSTEMS)
