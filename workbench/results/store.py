"""The store as everybody meets it: write a run down as it happens, ask what is known, read rows since a cursor."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.hardware import Execution, Hardware
from kernels.outcome import Estimate, Measurement, Outcome, Sample, Span, span_values, timed_how
from kernels.problem import Problem
from kernels.schemes import BASELINE
from kernels.trial import Trial
from workbench import resources
from workbench.results import database, decode, metrics
from workbench.results.database import Database
from workbench.results.decode import FINISHED, RUNNING, reads
from workbench.results.rows import PLACE

# What makes a trial known, as columns of the store: who ran it, with which libraries, on what.

CONDITION = "source_print IN (SELECT value FROM json_each(?)) AND versions_print = ? AND hardware = ?"
SAME_SOURCES: Mapping[str, tuple[str, ...]] = {}
"""By source print, older ones of the same kernels under other names and in other files: what they timed is known."""


def same_source(source_print: str) -> tuple[str, ...]:
    """*source_print* and the older ones that are equal to it."""
    return source_print, *SAME_SOURCES.get(source_print, ())


def values(ran: Execution) -> tuple[str, str, str]:
    """What CONDITION compares with."""
    return json.dumps(same_source(ran.source_print)), ran.versions_print, ran.hardware.text


def columns(outcome: Outcome) -> tuple[str | None, str | None, str | None]:
    """The same of *outcome*, to be written down; None where nobody said, and of what did not run."""
    if not isinstance(outcome, Measurement):
        return None, None, None
    hardware = None if outcome.hardware is None else outcome.hardware.text
    return outcome.source_print, outcome.versions_print, hardware


# The store as everybody meets it: write a run down as it happens, ask what is known, read rows since a cursor.

if TYPE_CHECKING:
    import sqlite3

    import pandas as pd

STORE_FILE = "store.sqlite"


def place(path: Path | None = None) -> Path:
    """*path*, or where the store of this person's runs lies."""
    return path or resources.runs_directory() / STORE_FILE


class Store:
    """Opens the store at *path* (default: the one of this person's runs), and begins it where there is none.

    A Store may be used by several threads, and a file by several processes at once.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = place(path)
        self._database = Database(self.path)
        self._known: dict[tuple[Problem, Execution], tuple[int | None, tuple[Trial, ...]]] = {}

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs

    def begin_run(self, experiment: Mapping[str, Any], provenance: Mapping[str, Any], title: str = "") -> str:
        """A new run's id, which sorts by time."""
        facts = {**provenance, "process": database.process_here()}
        with self._database.write() as connection:
            run = database.unused_id(connection)
            connection.execute(
                "INSERT INTO runs (id, started_at, status, title, experiment, provenance) VALUES (?, ?, ?, ?, ?, ?)",
                (run, time.time(), RUNNING, title, json.dumps(experiment), json.dumps(facts)),
            )
        return run

    def end_run(self, run: str, status: str = FINISHED) -> None:
        with self._database.write() as connection:
            connection.execute("UPDATE runs SET ended_at = ?, status = ? WHERE id = ?", (time.time(), status, run))
        self.settle()

    def settle(self) -> None:
        """What was stored until now outlives a power cut; takes about 10 ms of a disk."""
        self._database.settle()

    def add_facts(self, run: str, facts: Mapping[str, Any]) -> None:
        """What became known of the circumstances of *run* after it began."""
        with self._database.write() as connection:
            connection.execute("UPDATE runs SET provenance = json_patch(provenance, ?) WHERE id = ?",
                               (json.dumps(facts), run))  # fmt: skip

    @reads
    def runs(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest runs first."""
        entries = self._database.read("SELECT * FROM runs ORDER BY started_at DESC, id DESC LIMIT ?", (limit,))
        return [decode.run(entry) for entry in entries]

    @reads
    def measured_runs(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest runs in which something was timed: what can be replayed."""
        entries = self._database.read(
            "SELECT * FROM runs WHERE id IN (SELECT run FROM outcomes WHERE source = 'measured' AND "
            "outcome = 'measurement') ORDER BY started_at DESC, id DESC LIMIT ?", (limit,)
        )  # fmt: skip
        return [decode.run(entry) for entry in entries]

    @reads
    def bests(self, runs: Sequence[str]) -> list[dict[str, Any]]:
        """Of each problem, place and outcome of *runs*: how many schedules have a time, and the fastest of them."""
        # beside its one min(), SQLite takes the other columns from the row that has it
        place = ", ".join(f"json_extract(o.row, '$.{column}') AS {column}" for column in PLACE)
        entries = self._database.read(
            f"SELECT o.run, json_extract(t.trial, '$.problem') AS problem, {place}, o.outcome, o.source, "
            "count(DISTINCT o.key) AS schedules, min(json_extract(o.row, '$.time_s')) AS best_s, "
            "json_extract(t.trial, '$.schedule') AS schedule FROM outcomes o JOIN trials t ON t.key = o.key "
            f"WHERE o.run IN ({', '.join('?' * len(runs))}) AND o.outcome != 'failure' "
            f"AND json_extract(t.trial, '$.part') = 'whole' GROUP BY o.run, problem, {', '.join(PLACE)}, o.outcome "
            "ORDER BY o.id", tuple(runs)
        )  # fmt: skip
        return [decode.best(entry) for entry in map(dict, entries)]

    @reads
    def run(self, name: str = "last") -> dict[str, Any]:
        """The run called *name*: its id, the beginning of one, or `last`; ValueError lists what there is.

        `last` is the newest one in which something was timed or estimated.
        """
        which, pattern = ("id LIKE ?", f"{name}%") if name != "last" else (
            "EXISTS (SELECT 1 FROM outcomes WHERE run = runs.id AND outcome != ?)", "failure")  # fmt: skip
        entries = self._database.read(
            f"SELECT * FROM runs WHERE {which} ORDER BY started_at DESC, id DESC LIMIT 2", (pattern,)
        )
        if not entries or not name or (len(entries) > 1 and name not in ("last", entries[0]["id"])):
            known = ", ".join(run["id"] for run in self.runs(5)) or "none yet: workbench run makes the first"
            said = f"{name!r} begins the names of several runs" if entries and name else f"There is no run {name!r}"
            said = "No run has a time yet" if name == "last" else said
            raise ValueError(f"{said}. Accepted: last, or one of {known}.")
        return decode.run(entries[0])

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
        origin: str | None = None,
        samples: Sequence[Sample] = (),
    ) -> int:
        """An outcome with the samples not yet written, in one transaction; the answer is its cursor."""
        trial, spans = outcome.trial, getattr(outcome, "spans", ())
        how = timed_how(outcome)
        with self._database.write() as connection:
            _insert_samples(connection, run, samples)
            connection.execute(
                "INSERT INTO trials (key, trial) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (trial.key, json.dumps(trial.to_json())),
            )
            entry = (run, trial.key, time.time(), row["outcome"], row["source"], origin, row["block"])
            cursor = connection.execute(
                "INSERT INTO outcomes (run, key, at, outcome, source, origin, block, source_print, versions_print, "
                "hardware, row, spans, fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')",
                (
                    *entry,
                    *columns(outcome),
                    json.dumps({**row, **how}),
                    json.dumps([span_values(span) for span in spans]),
                ),
            )
            return int(cursor.lastrowid or 0)

    # What is known

    @reads
    def known(self, key: str, ran: Execution) -> tuple[Measurement, str] | None:
        """The newest measurement of this trial by these kernels and libraries on this hardware, and its run.

        It is recorded. Failures are not known: what was lost or hung may work now.
        """
        entries = self._database.read(
            f"SELECT run, id FROM outcomes WHERE key = ? AND {CONDITION} AND outcome = 'measurement' "
            "AND source = 'measured' ORDER BY id DESC LIMIT 1", (key, *values(ran))
        )  # fmt: skip
        return (self.measurement(entries[0]["id"]), entries[0]["run"]) if entries else None

    @reads
    def known_trials(self, problem: Problem, ran: Execution) -> tuple[Trial, ...]:
        """All trials of *problem* of which `known` has an answer. Looked up again when something was added."""
        newest = self._database.read("SELECT max(id) FROM outcomes")[0][0]
        kept_at, kept = self._known.get((problem, ran), (None, ()))
        if kept_at == newest:
            return kept
        entries = self._database.read(
            "SELECT trial FROM trials WHERE json_extract(trial, '$.problem') = ? AND EXISTS (SELECT 1 FROM outcomes "
            f"WHERE key = trials.key AND {CONDITION} AND outcome = 'measurement' AND source = 'measured')",
            (json.dumps(problem.to_json(), separators=(",", ":")), *values(ran)),
        )
        trials = tuple(decode.trial(entry["trial"]) for entry in entries)
        self._known[problem, ran] = newest, trials
        return trials

    @reads
    def beside(self, block: str) -> list[tuple[Measurement, str]]:
        """What the schedules of *block* were compared with, as recorded, and the run that it is from."""
        entries = self._database.read(
            "SELECT o.id, o.run FROM outcomes o JOIN trials t ON t.key = o.key WHERE o.block = ? "
            "AND o.outcome = 'measurement' AND o.source = 'measured' AND (json_extract(t.trial, '$.part') != 'whole' "
            "OR json_extract(t.trial, '$.schedule.scheme') = ?) ORDER BY o.id", (block, BASELINE)
        )  # fmt: skip
        return [(self.measurement(entry["id"]), entry["run"]) for entry in entries]

    @reads
    def right_wholes(self, operator: str) -> list[dict[str, Any]]:
        """Whenever a whole trial of *operator* was measured and right: its outcome, run, block, time, circumstances."""
        entries = self._database.read(
            "SELECT o.id, o.run, o.at, o.block, coalesce(o.source_print, nullif(o.fingerprint, '')) AS source_print, "
            "o.hardware, json_extract(o.row, '$.time_s') AS time_s, t.trial, r.provenance "
            "FROM outcomes o JOIN trials t ON t.key = o.key JOIN runs r ON r.id = o.run "
            "WHERE o.outcome = 'measurement' AND o.source = 'measured' AND json_extract(o.row, '$.correct') "
            "AND json_extract(t.trial, '$.part') = 'whole' AND json_extract(t.trial, '$.problem.operator') = ? "
            "ORDER BY o.id", (operator,)
        )  # fmt: skip
        return [decode.whole(entry) for entry in entries]

    @reads
    def measurement(self, outcome: int) -> Measurement:
        """Outcome number *outcome* with its samples; its source is `recorded` from now on."""
        entry = self._database.read(
            "SELECT o.run, o.key, o.origin, o.block, o.source_print, o.versions_print, o.hardware, o.row, o.spans, "
            "t.trial FROM outcomes o JOIN trials t ON t.key = o.key WHERE o.id = ?",
            (outcome,),
        )[0]
        row, trial = decode.decoded_row(decode.value(entry["row"])), decode.ran(entry["trial"])
        samples = self._samples(entry["origin"] or entry["run"], entry["key"], entry["block"])
        by_rank = decode.by_rank([(each.rank, each.seconds) for each in samples], trial.world)
        return Measurement(
            trial=trial,
            samples=by_rank,
            source="recorded",
            correct=row["correct"],
            max_relative_error=row["max_relative_error"],
            spans=decode.spans(entry["spans"]),
            unseen=row["message"],
            conditions=tuple(row.get("conditions", ())),
            facts=row.get("facts", {}),
            block=entry["block"],
            **decode.known_by(entry),
        )

    def _samples(self, run: str, key: str, block: str | None) -> list[Sample]:
        entries = self._database.read(
            "SELECT key, rank, number, seconds, at, block FROM samples WHERE run = ? AND key = ? AND block IS ? "
            "ORDER BY at, id", (run, key, block)
        )  # fmt: skip
        return [decode.sample(entry) for entry in entries]

    def compute_seconds(self, machine: str, problem: Problem, hardware: Hardware | None) -> float | None:
        """The time of the computation alone that the emulated fabrics of *problem* on *machine* are resolved with.

        As measured on *hardware*; None of hardware that nobody knows.
        """
        entries = hardware and self._database.read(
            "SELECT compute_s FROM fabrics WHERE machine = ? AND hardware = ? AND problem = ?",
            (machine, hardware.text, _text(problem)),
        )
        return float(entries[0][0]) if entries else None

    def keep_compute_seconds(
        self, machine: str, problem: Problem, hardware: Hardware | None, seconds: float, run: str, *,
        again: bool = False,
    ) -> float:  # fmt: skip
        """Remember it once, unless it is to be replaced; the answer is what holds: another process may be first."""
        if hardware is None:
            return seconds
        kept = "DO UPDATE SET compute_s = excluded.compute_s, run = excluded.run, at = excluded.at"
        with self._database.write() as connection:
            connection.execute(
                f"INSERT INTO fabrics VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT {kept if again else 'DO NOTHING'}",
                (machine, hardware.text, _text(problem), seconds, run, time.time()),
            )
        return self.compute_seconds(machine, problem, hardware) or seconds

    # Reading

    @reads
    def rows_since(self, cursor: int, run: str | None = None) -> tuple[list[dict[str, Any]], int]:
        """The rows after *cursor* (of one run) and the next cursor; metrics.Joins fills their joined numbers."""
        return self._since("SELECT id, at, run, origin, block, row FROM outcomes", decode.row, cursor, run)

    @reads
    def samples_since(self, cursor: int, run: str | None = None) -> tuple[list[dict[str, Any]], int]:
        """The samples after *cursor* (of one run) and the next cursor."""
        names = 'id, run, key, rank, number AS "index", seconds, at, block'
        return self._since(f"SELECT {names} FROM samples", decode.sample_row, cursor, run)

    @reads
    def unfinished_samples(self, run: str) -> list[dict[str, Any]]:
        """The samples of *run* that no outcome tells of: their trials were stopped, or broke."""
        entries = self._database.read(
            'SELECT id, run, key, rank, number AS "index", seconds, at, block FROM samples WHERE run = ? '
            "AND NOT EXISTS (SELECT 1 FROM outcomes WHERE run = samples.run AND key = samples.key "
            "AND block IS samples.block AND outcome = 'measurement') ORDER BY id", (run,)
        )  # fmt: skip
        return [decode.sample_row(entry) for entry in entries]

    def _since(self, select: str, shape: Any, cursor: int, run: str | None) -> tuple[list[dict[str, Any]], int]:
        # few rows come after a cursor, whosever they are: the plus keeps SQLite from reading the whole run for them
        of_run, values = ("", (cursor,)) if run is None else (f" AND {'+' * (cursor > 0)}run = ?", (cursor, run))
        entries = self._database.read(f"{select} WHERE id > ?{of_run} ORDER BY id", values)
        return [shape(entry) for entry in entries], entries[-1]["id"] if entries else cursor

    @reads
    def rows(self, run: str) -> list[dict[str, Any]]:
        """All rows of *run* with floor_s, compute_s, comm_s and sequential_s."""
        return metrics.fill(self.rows_since(0, run)[0])

    @reads
    def timed_how(self, run: str) -> list[dict[str, Any]]:
        """Under which conditions and how each measurement of *run* was timed, where its ranks said so."""
        entries = self._database.read(
            "SELECT row FROM outcomes WHERE run = ? AND outcome = 'measurement' ORDER BY id", (run,)
        )
        return [facts for entry in entries if (facts := decode.timed_how(entry["row"]))]

    @reads
    def spans(self, run: str, key: str, source: str | None = None, block: str | None = None) -> tuple[Span, ...]:
        """The newest spans of one trial of *run*, of any source and block or of one: a baseline is in every block."""
        entries = self._database.read(
            "SELECT spans FROM outcomes WHERE run = ? AND key = ? AND source = coalesce(?, source) "
            "AND (? IS NULL OR block = ?) AND spans != '[]' ORDER BY id DESC LIMIT 1",
            (run, key, source, block, block),
        )
        return decode.spans(entries[0]["spans"]) if entries else ()

    @reads
    def estimate(self, run: str, key: str) -> Estimate | None:
        """What was estimated of one trial in *run*, before it was measured there."""
        entries = self._database.read(
            "SELECT o.row, o.spans, t.trial FROM outcomes o JOIN trials t ON t.key = o.key WHERE o.run = ? "
            "AND o.key = ? AND o.outcome = 'estimate' ORDER BY o.id LIMIT 1",
            (run, key),
        )
        if not entries:
            return None
        row = decode.decoded_row(decode.value(entries[0]["row"]))
        return Estimate(
            trial=decode.ran(entries[0]["trial"]), spans=decode.spans(entries[0]["spans"]),
            digest=row["machine_digest"], **{name: row[name] for name in
                                             ("time_s", "low_s", "high_s", "calibrated", "predictor")},
        )  # fmt: skip

    @reads
    def trials(self, run: str) -> dict[str, Trial]:
        """The trials of *run* by key."""
        entries = self._database.read(
            "SELECT key, trial FROM trials WHERE key IN (SELECT key FROM outcomes WHERE run = ?)", (run,)
        )
        return {entry["key"]: decode.trial(entry["trial"]) for entry in entries}

    @reads
    def recorded(self, run: str) -> list[tuple[Measurement, list[Sample]]]:
        """The measurements of *run*, each with its samples in the order in which they came: what a replay plays."""
        entries = self._database.read(
            "SELECT id, run, key, origin, block FROM outcomes WHERE run = ? AND outcome = 'measurement' ORDER BY id",
            (run,),
        )
        return [(self.measurement(e["id"]), self._samples(e["origin"] or e["run"], e["key"], e["block"]))
                for e in entries]  # fmt: skip

    def frame(self, run: str) -> pd.DataFrame:
        """The rows of *run*, shape keys and axes as columns of their own beside `shape` and `axes`."""
        from workbench.results.frames import frame

        return frame(self.rows(run))

    def sample_frame(self, run: str) -> pd.DataFrame:
        """Every raw sample of *run*."""
        import pandas as pd

        columns = ["id", "run", "key", "rank", "index", "seconds", "at", "block"]
        return pd.DataFrame(self.samples_since(0, run)[0], columns=columns)


def _insert_samples(connection: sqlite3.Connection, run: str, samples: Sequence[Sample]) -> None:
    connection.executemany(
        "INSERT INTO samples (run, key, rank, number, seconds, at, block) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(run, s.key, s.rank, s.index, s.seconds, s.at, s.block) for s in samples],
    )


def _text(problem: Problem) -> str:
    return json.dumps(problem.to_json(), sort_keys=True)


# Samples on their way into the store: written together, but none waits longer than an eye notices.

FLUSH_SECONDS = 0.05
"""A sample is in the file this long after it came, whether or not another follows."""
SETTLE_SECONDS = 1.0
"""What a run has stored outlives a power cut this long after, and at once when the run ends."""


class SampleBuffer:
    """Collects the samples of one run; a thread of its own writes them, one transaction per FLUSH_SECONDS."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._pending: list[Sample] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._error: ValueError | None = None
        self._thread = threading.Thread(target=self._write, name="samples", daemon=True)
        self._thread.start()

    def add(self, sample: Sample) -> None:
        """Raises the store's ValueError if earlier samples could not be written."""
        if self._error is not None:
            raise self._error
        with self._lock:
            self._pending.append(sample)
        self._wake.set()

    def take(self) -> list[Sample]:
        """What is not written yet, for who writes it together with an outcome."""
        with self._lock:
            taken, self._pending = self._pending, []
        return taken

    def _write(self) -> None:
        settle_at = time.monotonic() + SETTLE_SECONDS
        while not self._closed.is_set():
            self._wake.wait(SETTLE_SECONDS)
            self._closed.wait(FLUSH_SECONDS)
            self._wake.clear()
            try:
                self._flush()
                if time.monotonic() >= settle_at:
                    self._store.settle()
                    settle_at = time.monotonic() + SETTLE_SECONDS
            except ValueError as error:
                self._error = error
                return

    def _flush(self) -> None:
        # the lock is held while writing: an outcome must not overtake its own samples
        with self._lock:
            if self._pending:
                self._store.add_samples(self._run, self._pending)
                self._pending = []

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._closed.set()
        self._wake.set()
        self._thread.join(timeout=60)
        if self._error is None:
            self._flush()
