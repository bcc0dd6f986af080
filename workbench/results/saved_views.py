"""Views of the page that a person saved by name: JSON in the store, and no save that another page made is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workbench.results import database
from workbench.results.database import Database
from workbench.results.decode import MOMENT, TABLE, TEXT, WHOLE, checked, json_from_column, reads

NAME_MOST, BYTES_MOST = 60, 256 * 1024


@dataclass(frozen=True, slots=True)
class SavedView:
    """A view as it was saved."""

    name: str
    view: Mapping[str, Any]
    revision: int
    """It grows with each save, and none comes twice, even after a deletion."""
    at: float


class SavedViews:
    """The saved views in a store's database, for all its pages."""

    def __init__(self, of_store: Database) -> None:
        self._database = of_store

    @reads
    def names(self) -> list[str]:
        """The names of all views, in order."""
        entries = self._database.read("SELECT name FROM views ORDER BY name COLLATE NOCASE, name")
        return [checked(dict(entry), {"name": TEXT}, "a view")["name"] for entry in entries]

    @reads
    def load(self, name: str) -> SavedView:
        """The view called *name*; ValueError lists the others."""
        entries = self._database.read("SELECT name, view, revision, at FROM views WHERE name = ?", (name,))
        if not entries:
            raise ValueError(f"There is no view {name!r}. Accepted: {', '.join(self.names()) or 'none is saved yet'}.")
        entry = {**dict(entries[0]), "view": json_from_column(entries[0]["view"])}
        checked(entry, {"name": TEXT, "view": TABLE, "revision": WHOLE, "at": MOMENT}, "a view")
        return SavedView(**entry)

    def save(self, name: str, view: Mapping[str, Any], seen: int = 0) -> tuple[int, str]:
        """Save *view* under *name*: its new revision, and what became of another page's save; empty if there is none.

        *seen* is the revision that this page saved or loaded, 0 where it had none. A view that another page saved since
        then stays under another name.
        """
        name = " ".join(name.split())
        text = json.dumps(view)
        if not name or len(name) > NAME_MOST:
            raise ValueError(f"A view cannot be called {name:.80}: {len(name)} letters are not 1 to {NAME_MOST}. "
                             "Accepted: a short name.")  # fmt: skip
        if len(text) > BYTES_MOST:
            raise ValueError(f"View {name} cannot be saved: {len(text):,} > {BYTES_MOST:,} bytes. Accepted: fewer "
                             "filters.")  # fmt: skip
        self._database.refuse_absence()
        with self._database.write() as connection:
            older = connection.execute("SELECT view, revision, at FROM views WHERE name = ?", (name,)).fetchone()
            revision, notice = _unused_revision(connection), ""
            if older is not None and older["revision"] != seen and older["view"] != text:
                kept = _unused_name(connection, name, older["at"])
                values = (kept, older["view"], older["revision"], older["at"])
                connection.execute("INSERT INTO views VALUES (?, ?, ?, ?)", values)
                notice = f"Another page had changed {name} meanwhile: that view is kept as {kept}."
            connection.execute(
                "INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?)", (name, text, revision, database.moment())
            )
        return revision, notice

    def delete(self, name: str, seen: int) -> None:
        """Delete the view called *name*; ValueError lists the others.

        ValueError too where another page saved it since the revision *seen*; 0 where this page saved or loaded none,
        for which any is deleted.
        """
        saved = self.load(name)
        self._database.refuse_absence()
        with self._database.write() as connection:
            gone = connection.execute(
                "DELETE FROM views WHERE name = ? AND revision = ?", (name, seen or saved.revision)
            )
            if not gone.rowcount:
                raise ValueError(f"Another page has changed {name} meanwhile: it is not deleted. Accepted: Open it, "
                                 "then Delete.")  # fmt: skip


def _unused_revision(connection: sqlite3.Connection) -> int:
    """A revision that no view has or had: microseconds since 1970, or one more than the highest where a clock is late.

    Deleted views leave no trace, so that a count would begin anew.
    """
    (highest,) = connection.execute("SELECT coalesce(max(revision), 0) FROM views").fetchone()
    return max(int(database.moment() * 1e6), highest + 1)


def _unused_name(connection: sqlite3.Connection, name: str, at: float) -> str:
    """A name for the copy of the view *name* that was saved *at*."""
    first = kept = f"{name}, saved {datetime.fromtimestamp(at).strftime('%Y-%m-%d %H:%M:%S')}"
    number = 1
    while connection.execute("SELECT 1 FROM views WHERE name = ?", (kept,)).fetchone():
        number += 1
        kept = f"{first}, {number}"
    return kept
