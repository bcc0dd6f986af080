"""A file that an older workbench wrote is brought to this version, or read from a copy where it cannot be written."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.hardware import Execution, Hardware
from kernels.outcome import Measurement, Sample
from kernels.trial import Trial
from workbench.analysis.winners import known
from workbench.results import database, metrics
from workbench.results.recordings import older_block
from workbench.results.store import Store

AS_IT_WAS = """
    DROP INDEX outcomes_of_key; CREATE INDEX outcomes_of_key ON outcomes (key, fingerprint);
    ALTER TABLE outcomes DROP COLUMN source_print; ALTER TABLE outcomes DROP COLUMN versions_print;
    ALTER TABLE outcomes DROP COLUMN hardware; UPDATE outcomes SET fingerprint = '55646f76b103';
    DROP TABLE fabrics; CREATE TABLE fabrics (machine TEXT NOT NULL, problem TEXT NOT NULL, compute_s REAL NOT NULL,
        run TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (machine, problem)) WITHOUT ROWID;
    PRAGMA user_version = 2;
"""
"""Makes of a file of today one of version 2: there was one fingerprint, and no hardware."""
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
