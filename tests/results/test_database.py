"""A store's file of an older workbench is read or brought to this version; whose it is is told, or it is refused."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.hardware import Execution, Hardware
from kernels.outcome import Measurement, Sample
from kernels.trial import Trial
from workbench.experiment.winners import known
from workbench.results import database, metrics
from workbench.results.database import APPLICATION_ID
from workbench.results.recordings import older_block
from workbench.results.store import Store

# A file that an older workbench wrote is brought to this version, or read from a copy where it cannot be written.

AS_IT_WAS = """
    DROP TABLE views; DROP TABLE tags; DROP INDEX deleted_runs;
    ALTER TABLE runs DROP COLUMN note; ALTER TABLE runs DROP COLUMN deleted_at;
    DROP INDEX outcomes_of_key; CREATE INDEX outcomes_of_key ON outcomes (key, fingerprint);
    ALTER TABLE outcomes DROP COLUMN source_print; ALTER TABLE outcomes DROP COLUMN versions_print;
    ALTER TABLE outcomes DROP COLUMN hardware; UPDATE outcomes SET fingerprint = '55646f76b103';
    DROP TABLE fabrics; CREATE TABLE fabrics (machine TEXT NOT NULL, problem TEXT NOT NULL, compute_s REAL NOT NULL,
        run TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (machine, problem)) WITHOUT ROWID;
    PRAGMA user_version = 2;
"""
"""Makes of a file of today one of version 2: there was one fingerprint, no hardware, no notes and tags."""
BEFORE_BLOCKS = (
    AS_IT_WAS
    + """
    DROP INDEX outcomes_of_block; ALTER TABLE outcomes DROP COLUMN block; ALTER TABLE samples DROP COLUMN block;
    PRAGMA user_version = 1;
"""
)
"""Makes of it one of version 1."""


def keep(store: Store, run: str, measured: Measurement) -> None:
    samples = [Sample(measured.trial.key, rank, index, seconds, 1e9 + index, measured.block)
               for rank, of_rank in enumerate(measured.samples) for index, seconds in enumerate(of_rank)]  # fmt: skip
    row = metrics.row_of(measured, run)
    store.add_outcome(run, measured, row, samples=samples)


@pytest.mark.parametrize("can_write", [True, False])
def test_a_store_from_before_there_were_blocks_is_still_shown(
    tmp_path: Path,
    make_trial: Callable[..., Trial],
    measure: Callable[..., Measurement],
    monkeypatch: pytest.MonkeyPatch,
    can_write: bool,
) -> None:
    path, measured = tmp_path / "store.sqlite", measure(make_trial())
    with Store(path) as store:
        run = store.begin_run({}, {})
        keep(store, run, measured)
    older = sqlite3.connect(path)
    older.executescript(BEFORE_BLOCKS)
    older.close()
    monkeypatch.setattr(database, "writable", lambda path: can_write)
    opened: list[str] = []
    monkeypatch.setattr(
        sqlite3,
        "connect",
        lambda file, connect=sqlite3.connect, **more: (opened.append(file), connect(file, **more))[1],
    )
    with Store(path) as store:
        assert ":memory:" not in opened, "a store may be larger than the memory"
        (row,) = store.rows(run)
        assert (row["block"], row["time_s"]) == (older_block(run, 1), measured.time_s)
        assert store.measurement(row["id"]).samples == measured.samples
        assert {sample["block"] for sample in store.samples_since(0)[0]} == {row["block"]}
        assert not store.unfinished_samples(run)
        if can_write:
            keep(store, run, replace(measured, block="a block"))
            assert [row["block"] for row in store.rows(run)] == [older_block(run, 1), "a block"]
        else:
            with pytest.raises(ValueError, match="read-only"):
                store.begin_run({}, {})


def test_a_store_from_before_there_was_hardware_is_shown_and_recommended_but_not_known(
    tmp_path: Path, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]
) -> None:
    path, measured = tmp_path / "store.sqlite", measure(make_trial())
    problem = measured.trial.problem
    ran = Execution("source", "versions", Hardware(model="a processor", link="shared memory", cores=1.0))
    with Store(path) as store:
        run = store.begin_run({}, {"cpu": "a processor", "cores": 2, "kernel_fingerprint": "55646f76b103"})
        keep(store, run, measured)
    older = sqlite3.connect(path)
    older.executescript(
        f"{AS_IT_WAS} INSERT INTO fabrics VALUES ('test', '{json.dumps(problem.to_json())}', 1, '', 0);"
    )
    older.close()
    with Store(path) as store:
        (row,) = store.rows(run)
        assert (row["time_s"], row["hardware"], row["source_print"]) == (measured.time_s, None, None)
        again = store.measurement(row["id"])
        assert (again.samples, again.hardware) == (measured.samples, None)
        (winner,) = known(problem.operator, store)[-1:]
        assert (winner.run, winner.facts["source_print"]) == (run, "55646f76b103")
        assert store.known(measured.trial.key, ran) is None
        assert store.compute_seconds("test", problem, ran.hardware) is None
        keep(store, run, replace(measured, source_print="source", versions_print="versions", hardware=ran.hardware))
        assert store.known(measured.trial.key, ran) is not None, "measured again, and known from now on"


# A store says whose it is; older ones are adopted, and another program's database is refused and not touched.

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
