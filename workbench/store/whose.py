"""Whose database a file is: read from its first bytes, so that what is another program's is never touched."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

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
class Label:
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


def label_of(connection: sqlite3.Connection) -> Label:
    """What the database behind *connection* says of itself."""
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0]
                            for name in ("application_id", "user_version"))  # fmt: skip
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return Label(application, version, frozenset(name for name in names if not name.startswith("sqlite_")))


def _header(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)


def _label(path: Path) -> Label:
    """Read without SQLite's own files beside it: what stands in a WAL is not seen."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        return label_of(connection)


def _label_with_wal(path: Path) -> Label:
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


def _told(label: Label) -> str:
    names = sorted(label.tables)
    some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    held = f"its tables are {some}" if names else "it has no tables"
    return f"its application_id is {label.application}, a store's is {APPLICATION_ID}, and {held}"
