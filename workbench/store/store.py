"""The store as everybody meets it: write a run down as it happens, ask what is known, read rows since a cursor."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.process import is_alive, started_at
from kernels.outcome import Measurement, Outcome, Sample, Span, span, span_values
from kernels.problem import Problem
from kernels.trial import Trial
from workbench import metrics, resources
from workbench.store.database import Database

if TYPE_CHECKING:
    import sqlite3

    import pandas as pd

STORE_FILE = "store.sqlite"

RUNNING, FINISHED, CANCELLED = "running", "finished", "cancelled"
LOST = "lost"
"""Never written: what a run is called that says it is running, and whose process is gone."""


class Store:
    """Opens the store at *path* (default: the one of this person's runs), and begins it where there is none.

    A Store may be used by several threads, and a file by several processes at once.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or resources.runs_directory() / STORE_FILE
        self._database = Database(self.path)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs

    def begin_run(self, experiment: Mapping[str, Any], provenance: Mapping[str, Any], title: str = "") -> str:
        """A new run's id, which sorts by time."""
        process = {"host": socket.gethostname(), "pid": os.getpid(), "started_at": started_at()}
        facts = {**provenance, "process": process}
        run = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO runs (id, started_at, status, title, experiment, provenance) VALUES (?, ?, ?, ?, ?, ?)",
                (run, time.time(), RUNNING, title, json.dumps(experiment), json.dumps(facts)),
            )
        return run

    def end_run(self, run: str, status: str = FINISHED) -> None:
        with self._database.write() as connection:
            connection.execute("UPDATE runs SET ended_at = ?, status = ? WHERE id = ?", (time.time(), status, run))

    def runs(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest runs first."""
        found = self._database.read("SELECT * FROM runs ORDER BY started_at DESC, id DESC LIMIT ?", (limit,))
        return [_run(entry) for entry in found]

    def measured_runs(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest runs in which something was timed: what can be replayed."""
        found = self._database.read(
            "SELECT * FROM runs WHERE id IN (SELECT run FROM outcomes WHERE source = 'measured' AND "
            "outcome = 'measurement') ORDER BY started_at DESC, id DESC LIMIT ?", (limit,)
        )  # fmt: skip
        return [_run(entry) for entry in found]

    def run(self, name: str = "last") -> dict[str, Any]:
        """The run called *name*: its id, the beginning of one, or `last`; ValueError lists what there is.

        `last` is the newest one in which something was timed or estimated.
        """
        which, pattern = ("id LIKE ?", f"{name}%") if name != "last" else (
            "EXISTS (SELECT 1 FROM outcomes WHERE run = runs.id AND outcome != ?)", "failure")  # fmt: skip
        found = self._database.read(
            f"SELECT * FROM runs WHERE {which} ORDER BY started_at DESC, id DESC LIMIT 2", (pattern,)
        )
        if not found or not name or (len(found) > 1 and name not in ("last", found[0]["id"])):
            known = ", ".join(run["id"] for run in self.runs(5)) or "none yet: workbench run makes the first"
            said = "which begins the name of several" if found and name else "which is not in the store"
            said = "but in none was anything timed or estimated" if name == "last" else said
            raise ValueError(f"Run {name!r} was asked for, {said}. Accepted: last, or one of {known}.")
        return _run(found[0])

    # Writing

    def add_samples(self, run: str, samples: Sequence[Sample]) -> None:
        """All *samples* in one transaction."""
        with self._database.write() as connection:
            _insert_samples(connection, run, samples)

    def add_outcome(
        self,
        run: str,
        outcome: Outcome,
        row: Mapping[str, Any],
        *,
        fingerprint: str,
        origin: str | None = None,
        samples: Sequence[Sample] = (),
    ) -> int:
        """An outcome with the samples not yet written, in one transaction; the answer is its cursor."""
        trial, spans = outcome.trial, getattr(outcome, "spans", ())
        conditions = {"conditions": list(seen)} if (seen := getattr(outcome, "conditions", ())) else {}
        with self._database.write() as connection:
            _insert_samples(connection, run, samples)
            connection.execute(
                "INSERT INTO trials (key, trial) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (trial.key, json.dumps(trial.to_json())),
            )
            entry = (run, trial.key, fingerprint, time.time(), row["outcome"], row["source"], origin)
            cursor = connection.execute(
                "INSERT INTO outcomes (run, key, fingerprint, at, outcome, source, origin, row, spans) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*entry, json.dumps({**row, **conditions}), json.dumps([span_values(span) for span in spans])),
            )
            return int(cursor.lastrowid or 0)

    # What is known

    def known(self, key: str, fingerprint: str) -> tuple[Measurement, str] | None:
        """The newest measurement of this trial by these kernels, as recorded, and the run it is from.

        Failures are not known: what was lost or hung may work now.
        """
        found = self._database.read(
            "SELECT run, id FROM outcomes WHERE key = ? AND fingerprint = ? AND outcome = 'measurement' "
            "AND source = 'measured' ORDER BY id DESC LIMIT 1",
            (key, fingerprint),
        )
        return (self.measurement(found[0]["id"]), found[0]["run"]) if found else None

    def knows(self, key: str, fingerprint: str) -> bool:
        """Whether `known` has an answer."""
        return bool(self._database.read(
            "SELECT 1 FROM outcomes WHERE key = ? AND fingerprint = ? AND outcome = 'measurement' "
            "AND source = 'measured' LIMIT 1", (key, fingerprint)
        ))  # fmt: skip

    def right_wholes(self, operator: str) -> list[dict[str, Any]]:
        """Whenever a whole trial of *operator* was measured and right: its outcome's id, run, time, circumstances."""
        found = self._database.read(
            "SELECT o.id, o.run, o.at, o.fingerprint, json_extract(o.row, '$.time_s') AS time_s, t.trial, r.provenance "
            "FROM outcomes o JOIN trials t ON t.key = o.key JOIN runs r ON r.id = o.run "
            "WHERE o.outcome = 'measurement' AND o.source = 'measured' AND json_extract(o.row, '$.correct') "
            "AND json_extract(t.trial, '$.part') = 'whole' AND json_extract(t.trial, '$.problem.operator') = ? "
            "ORDER BY o.id", (operator,)
        )  # fmt: skip
        return [{**dict(each), **{key: json.loads(each[key]) for key in ("trial", "provenance")}} for each in found]

    def measurement(self, outcome: int) -> Measurement:
        """Outcome number *outcome* with its samples; its source is `recorded` from now on."""
        entry = self._database.read(
            "SELECT o.run, o.key, o.origin, o.row, o.spans, t.trial FROM outcomes o JOIN trials t ON t.key = o.key "
            "WHERE o.id = ?",
            (outcome,),
        )[0]
        row, trial = json.loads(entry["row"]), Trial.from_json(json.loads(entry["trial"]))
        by_rank: dict[int, list[float]] = {rank: [] for rank in range(trial.world)}
        for sample in self._samples(entry["origin"] or entry["run"], entry["key"]):
            by_rank[sample.rank].append(sample.seconds)
        return Measurement(
            trial=trial,
            samples=tuple(tuple(mine) for mine in by_rank.values()),
            source="recorded",
            correct=row["correct"],
            max_relative_error=row["max_relative_error"],
            spans=_spans(entry["spans"]),
            unseen=row["message"],
            conditions=tuple(row.get("conditions", ())),
        )

    def _samples(self, run: str, key: str) -> list[Sample]:
        found = self._database.read(
            "SELECT key, rank, number, seconds, at FROM samples WHERE run = ? AND key = ? ORDER BY at, id", (run, key)
        )
        return [Sample(*entry) for entry in found]

    def compute_seconds(self, machine: str, problem: Problem) -> float | None:
        """The time of the computation alone that the emulated fabrics of *problem* on *machine* are resolved with."""
        found = self._database.read(
            "SELECT compute_s FROM fabrics WHERE machine = ? AND problem = ?", (machine, _text(problem))
        )
        return float(found[0][0]) if found else None

    def keep_compute_seconds(
        self, machine: str, problem: Problem, seconds: float, run: str, *, again: bool = False
    ) -> float:
        """Remember it once, unless it is to be replaced; the answer is what holds: another process may be first."""
        kept = "DO UPDATE SET compute_s = excluded.compute_s, run = excluded.run, at = excluded.at"
        with self._database.write() as connection:
            connection.execute(
                f"INSERT INTO fabrics VALUES (?, ?, ?, ?, ?) ON CONFLICT {kept if again else 'DO NOTHING'}",
                (machine, _text(problem), seconds, run, time.time()),
            )
        return self.compute_seconds(machine, problem) or seconds

    # Reading

    def rows_since(self, cursor: int, run: str | None = None) -> tuple[list[dict[str, Any]], int]:
        """The rows after *cursor* (of one run) and the next cursor; metrics.Joins fills their joined numbers."""
        return self._since("SELECT id, at, run, origin, row FROM outcomes", _row, cursor, run)

    def samples_since(self, cursor: int, run: str | None = None) -> tuple[list[dict[str, Any]], int]:
        """The samples after *cursor* (of one run) and the next cursor."""
        return self._since('SELECT id, run, key, rank, number AS "index", seconds, at FROM samples', dict, cursor, run)

    def _since(self, select: str, shape: Any, cursor: int, run: str | None) -> tuple[list[dict[str, Any]], int]:
        # few rows come after a cursor, whosever they are: the plus keeps SQLite from reading the whole run for them
        of_run, values = ("", (cursor,)) if run is None else (f" AND {'+' * (cursor > 0)}run = ?", (cursor, run))
        found = self._database.read(f"{select} WHERE id > ?{of_run} ORDER BY id", values)
        return [shape(entry) for entry in found], found[-1]["id"] if found else cursor

    def rows(self, run: str) -> list[dict[str, Any]]:
        """All rows of *run* with floor_s, compute_s, comm_s and sequential_s."""
        return metrics.fill(self.rows_since(0, run)[0])

    def spans(self, run: str, key: str, source: str | None = None) -> tuple[Span, ...]:
        """The newest spans of one trial of *run*, of any source or of one."""
        found = self._database.read(
            "SELECT spans FROM outcomes WHERE run = ? AND key = ? AND source = coalesce(?, source) "
            "AND spans != '[]' ORDER BY id DESC LIMIT 1",
            (run, key, source),
        )
        return _spans(found[0]["spans"]) if found else ()

    def trials(self, run: str) -> dict[str, Trial]:
        """The trials of *run* by key."""
        found = self._database.read(
            "SELECT key, trial FROM trials WHERE key IN (SELECT key FROM outcomes WHERE run = ?)", (run,)
        )
        return {entry["key"]: Trial.from_json(json.loads(entry["trial"])) for entry in found}

    def recorded(self, run: str) -> list[tuple[Measurement, list[Sample]]]:
        """The measurements of *run*, each with its samples in the order in which they came: what a replay plays."""
        found = self._database.read(
            "SELECT id, run, key, origin FROM outcomes WHERE run = ? AND outcome = 'measurement' ORDER BY id", (run,)
        )
        return [(self.measurement(e["id"]), self._samples(e["origin"] or e["run"], e["key"])) for e in found]

    def frame(self, run: str) -> pd.DataFrame:
        """The rows of *run*, shape keys and axes as columns of their own beside `shape` and `axes`."""
        from workbench.store.frames import frame

        return frame(self.rows(run))

    def sample_frame(self, run: str) -> pd.DataFrame:
        """Every raw sample of *run*."""
        import pandas as pd

        columns = ["id", "run", "key", "rank", "index", "seconds", "at"]
        return pd.DataFrame(self.samples_since(0, run)[0], columns=columns)


def _insert_samples(connection: sqlite3.Connection, run: str, samples: Sequence[Sample]) -> None:
    connection.executemany(
        "INSERT INTO samples (run, key, rank, number, seconds, at) VALUES (?, ?, ?, ?, ?, ?)",
        [(run, s.key, s.rank, s.index, s.seconds, s.at) for s in samples],
    )


def _text(problem: Problem) -> str:
    return json.dumps(problem.to_json(), sort_keys=True)


def _run(entry: sqlite3.Row) -> dict[str, Any]:
    facts = json.loads(entry["provenance"])
    process, status = facts.pop("process", None), entry["status"]
    if status == RUNNING and process is not None and process["host"] == socket.gethostname():
        status = RUNNING if is_alive(process["pid"], process["started_at"]) else LOST
    return {**dict(entry), "status": status, "experiment": json.loads(entry["experiment"]), "provenance": facts}


def _row(entry: sqlite3.Row) -> dict[str, Any]:
    """A row as it was given, under the run that it is of now."""
    told = {name: value for name, value in json.loads(entry["row"]).items() if name != "conditions"}
    return {**told, **{key: entry[key] for key in ("run", "origin", "id", "at")}}


def _spans(text: str) -> tuple[Span, ...]:
    return tuple(span(entry) for entry in json.loads(text))
