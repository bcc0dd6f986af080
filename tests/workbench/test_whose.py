"""A store says whose it is; older ones are adopted, and another program's database is refused and not touched."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from workbench.results import database
from workbench.results.database import APPLICATION_ID
from workbench.results.store import Store

POLLUTED = [statement for version in (1, 2) for statement in database.MIGRATIONS[version]]
"""What an older workbench wrote into any database that it was given."""


def executed(path: Path, *statements: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    return connection


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


FOREIGN: dict[str, tuple[str, ...]] = {
    "with tables": ("CREATE TABLE moz_places (url TEXT)",),
    "with a version only": ("PRAGMA user_version = 2",),
    "with its own application_id": ("PRAGMA application_id = 252006674", "CREATE TABLE features (x)"),
    "with an application_id and our tables": ("PRAGMA application_id = 7", *POLLUTED, "PRAGMA user_version = 2"),
    "with tables of the same names as some of ours": (
        "CREATE TABLE runs (a)", "CREATE TABLE trials (a)", "PRAGMA user_version = 1",
    ),
    "into which an older workbench wrote": ("CREATE TABLE notes (x)", *POLLUTED, "PRAGMA user_version = 2"),
    "in WAL mode": ("PRAGMA journal_mode = WAL", "CREATE TABLE notes (x)"),
}  # fmt: skip


@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("is_open", [False, True])
def test_the_database_of_another_program_is_refused_and_not_touched(
    statements: tuple[str, ...], is_open: bool, tmp_path: Path
) -> None:
    """Whether that program has it open, with a WAL beside it, or not."""
    path = tmp_path / "theirs.db"
    theirs = executed(path, *statements)
    if not is_open:
        theirs.close()
    before = files(tmp_path)
    with pytest.raises(
        ValueError, match=r"theirs\.db is the database of another program: .* Nothing was changed in it"
    ):
        Store(path)
    assert files(tmp_path) == before
    theirs.close()


def test_a_new_store_says_whose_it_is_in_its_first_bytes(tmp_path: Path) -> None:
    for name in ("new.sqlite", "empty.sqlite", "without tables.sqlite"):
        path = tmp_path / name
        if name.startswith("empty"):
            path.touch()
        if name.startswith("without"):
            executed(path, "CREATE TABLE x (y)", "DROP TABLE x").close()
        with Store(path) as store:
            assert int.from_bytes(path.read_bytes()[68:72]) == APPLICATION_ID, "while its tables may stand in the WAL"
            assert store.runs() == []


def test_the_application_id_is_overlap_workbench_in_four_letters() -> None:
    assert APPLICATION_ID.to_bytes(4) == b"OvWb"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_open", [False, True])
def test_an_older_store_of_ours_is_adopted(version: int, is_open: bool, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    statements = [statement for older in range(1, version + 1) for statement in database.MIGRATIONS[older]]
    insert = "INSERT INTO runs VALUES ('20260101-000000-abcd', 0, 1, 'finished', 'A title', '{}', '{}')"
    older = executed(path, "PRAGMA journal_mode = WAL", *statements, f"PRAGMA user_version = {version}", insert)
    if not is_open:
        older.close()
    for _ in range(2):
        with Store(path) as store:
            assert [run["title"] for run in store.runs()] == ["A title"]
    older.close()
    with closing(sqlite3.connect(path)) as seen:
        assert seen.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_a_store_of_a_newer_workbench_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    executed(path, "PRAGMA user_version = 99").close()
    before = files(tmp_path)
    with pytest.raises(ValueError, match="has version 99"):
        Store(path)
    assert files(tmp_path) == before


@pytest.mark.parametrize("can_write", [True, False])
def test_who_may_only_read_refuses_the_same(can_write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.results.database.writable", lambda path: can_write)
    path = tmp_path / "theirs.db"
    executed(path, "CREATE TABLE notes (x)").close()
    with pytest.raises(ValueError, match="its tables are notes"):
        Store(path)
