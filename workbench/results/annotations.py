"""What people say about a stored run afterwards: a note, tags, and that it is deleted until they want it back."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from workbench.results import database
from workbench.results.database import Database
from workbench.results.decode import MOMENT, RUNNING, TEXT, checked, reads

NOTE_MOST, TAG_MOST, TAGS_MOST = 2_000, 40, 20
"""The most letters of a note and of a tag, and the most tags of a run."""
KEPT_DAYS = 30
"""A deleted run can be brought back for so many days; then the next run that begins removes it."""


class Annotations:
    """Notes, tags and deletion of the runs in a store's database.

    Two processes that annotate one run: the later note stays, and the tags of both. ValueError for a run that is not
    there, Failed where the store's file has gone meanwhile.
    """

    def __init__(self, of_store: Database) -> None:
        self._database = of_store

    def note(self, run: str, text: str) -> None:
        """Replace the note of *run* by *text*, in one line; empty: no note."""
        line = " ".join(text.split())
        if len(line) > NOTE_MOST:
            raise ValueError(f"The note of run {run} is too long: {len(line):,} > {NOTE_MOST:,} letters. Accepted: a "
                             f"shorter one.")  # fmt: skip
        with self._changing(run) as connection:
            connection.execute("UPDATE runs SET note = ? WHERE id = ?", (line, run))

    def tag(self, run: str, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        """Add tags to *run* and remove others; those that another process added meanwhile stay."""
        new = [checked_tag(run, tag) for tag in added]
        with self._changing(run) as connection:
            connection.executemany("DELETE FROM tags WHERE run = ? AND tag = ?", [(run, tag) for tag in removed])
            connection.executemany("INSERT INTO tags VALUES (?, ?) ON CONFLICT DO NOTHING", [(run, tag) for tag in new])
            count = connection.execute("SELECT count(*) FROM tags WHERE run = ?", (run,)).fetchone()[0]
            if count > TAGS_MOST:
                raise ValueError(f"Run {run} would have too many tags: {count} > {TAGS_MOST}. Accepted: fewer.")

    # Deletion.

    def delete(self, run: str) -> None:
        """Hide *run* everywhere: its times are not known any more. `undo` brings it back until it is purged.

        ValueError while it runs.
        """
        with self._changing(run) as connection:
            if _runs_here(connection, run):
                raise ValueError(f"Run {run} cannot be deleted: it is still running. Accepted: stop it first.")
            connection.execute("UPDATE runs SET deleted_at = ? WHERE id = ?", (database.moment(), run))

    def undo(self, run: str) -> None:
        """Bring the deleted *run* back as it was; ValueError lists those that can be."""
        if run not in (deleted := self.deleted()):
            raise ValueError(f"Run {run!r} cannot be brought back: it is not one of {len(deleted)} deleted runs. "
                             f"Accepted: {', '.join(list(deleted)[:5]) or 'nothing: none is deleted'}.")  # fmt: skip
        with self._changing(run) as connection:
            connection.execute("UPDATE runs SET deleted_at = NULL WHERE id = ?", (run,))

    @reads
    def deleted(self) -> dict[str, str]:
        """The deleted runs that can be brought back, the newest deletion first, and the day of each."""
        entries = self._database.read(
            "SELECT id, deleted_at FROM runs WHERE deleted_at IS NOT NULL ORDER BY deleted_at DESC, id DESC"
        )
        for entry in entries:
            checked(dict(entry), {"id": TEXT, "deleted_at": MOMENT}, "a deleted run")
        return {entry["id"]: datetime.fromtimestamp(entry["deleted_at"]).date().isoformat() for entry in entries}

    def purge(self, days: float = 0.0) -> list[str]:
        """Remove runs that were deleted *days* ago or earlier, for good; their ids.

        Samples stay that a kept run shows as recorded. The file keeps its size: later runs use the room.
        """
        until = time.time() - days * 86_400
        if not self._database.read("SELECT 1 FROM runs WHERE deleted_at <= ? LIMIT 1", (until,)):
            return []
        with self._database.write() as connection:
            doomed = [row[0] for row in connection.execute("SELECT id FROM runs WHERE deleted_at <= ?", (until,))]
            _remove(connection, doomed)
        return doomed

    def purge_old(self) -> None:
        """Remove the runs that were deleted KEPT_DAYS ago."""
        self.purge(KEPT_DAYS)

    @contextmanager
    def _changing(self, run: str) -> Iterator[sqlite3.Connection]:
        """A transaction that changes *run*, which must be there, in a file that must be there."""
        self._database.refuse_absence()
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone() is None:
                raise ValueError(f"There is no run {run!r} to change. Accepted: the id of a stored run.")
            yield connection


def checked_tag(run: str, text: str) -> str:
    """*text* as a tag of *run*, in one line without #; ValueError where it cannot be one."""
    tag = " ".join(text.split()).lstrip("#")
    if not tag or len(tag) > TAG_MOST or "," in tag:
        fault = "it is empty" if not tag else "it has a comma" if "," in tag else f"{len(tag)} > {TAG_MOST} letters"
        raise ValueError(f"Run {run} cannot have the tag {text:.60}: {fault}. Accepted: 1 to {TAG_MOST} letters "
                         "without a comma.")  # fmt: skip
    return tag


def _runs_here(connection: sqlite3.Connection, run: str) -> bool:
    """Whether *run* goes on in a process of this host; of other hosts nothing is known."""
    status, text = connection.execute(
        "SELECT status, json_extract(provenance, '$.process') FROM runs WHERE id = ?", (run,)
    ).fetchone()
    process = json.loads(text) if text else {}
    return status == RUNNING and process.get("host") == socket.gethostname() and not database.is_gone(process)


def _remove(connection: sqlite3.Connection, doomed: Sequence[str]) -> None:
    """Delete the runs *doomed* with all that belongs to no other run."""
    names = json.dumps(doomed)
    gone = "(SELECT value FROM json_each(?1))"
    connection.execute(
        f"DELETE FROM samples WHERE run IN {gone} AND NOT EXISTS (SELECT 1 FROM outcomes o "
        "WHERE o.origin = samples.run AND o.key = samples.key AND o.block IS samples.block "
        f"AND o.run NOT IN {gone})", (names,)
    )  # fmt: skip
    connection.execute(f"DELETE FROM outcomes WHERE run IN {gone}", (names,))
    connection.execute(f"DELETE FROM tags WHERE run IN {gone}", (names,))
    connection.execute(f"DELETE FROM runs WHERE id IN {gone}", (names,))
    connection.execute("DELETE FROM trials WHERE key NOT IN (SELECT key FROM outcomes)")
