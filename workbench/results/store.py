"""The store: it keeps a run as it happens, finds known measurements, and reads rows since a cursor."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernels.hardware import Execution, Hardware
from kernels.outcome import Estimate, Measurement, Outcome, Sample, Span, span_values, timed_how
from kernels.problem import Problem
from kernels.schemes import BASELINE
from kernels.trial import Trial
from workbench import resources
from workbench.results import database, decode, metrics
from workbench.results.annotations import Annotations
from workbench.results.database import Database
from workbench.results.decode import FINISHED, REFUSED, RUNNING, reads
from workbench.results.quiet import BUSY_SHARE
from workbench.results.rows import PLACE
from workbench.results.saved_views import SavedViews

# Columns that make a measurement known: source, libraries, hardware, a computer that was quiet, a run that is kept.

QUIET_CONDITION = f"coalesce(json_extract(row, '$.others_share'), 0) <= {BUSY_SHARE}"
NOT_DELETED = "run NOT IN (SELECT id FROM runs WHERE deleted_at IS NOT NULL)"
"""Holds for outcomes of runs that people still see: the times of deleted runs are not known any more."""
KNOWN_CONDITION = (
    "source_print IN (SELECT value FROM json_each(?)) AND versions_print = ? AND hardware = ? "
    f"AND {QUIET_CONDITION} AND {NOT_DELETED}"
)
SAME_SOURCES: Mapping[str, tuple[str, ...]] = {
    "3557ba2a6945": (
        "61bc6796a72a",
        "9ef28c8ae747",
        "d1574febb402",
        "2bddd41bbbf1",
        "9c07bc88ff99",
        "3da11dceb887",
        "931479a00407",
        "d703abcb39fb",
        "294ae7548271",
        "1ffb4d36fd3b",
        "150cccf5616c",
        "182760dbf1b9",
        "015d5be399ce",
        "c9b2733e7da2",
        "0ed046b6b41a",
    ),
}
"""By source fingerprint of CPU ranks, older ones of the same kernels: their times are known.

Names, files, the reading of core use, and what only GPUs have were changed, which their fingerprint covers, but nothing
that CPU ranks are timed on: their Plans, keys and estimates have the same digest. Delete an entry when its kernels
change.
"""


def same_source(source_print: str) -> tuple[str, ...]:
    """*source_print* and the older ones of the same kernels."""
    return source_print, *SAME_SOURCES.get(source_print, ())


def condition_values(ran: Execution) -> tuple[str, str, str]:
    """The values for KNOWN_CONDITION of *ran*."""
    return json.dumps(same_source(ran.source_print)), ran.versions_print, ran.hardware.text


def execution_columns(outcome: Outcome) -> tuple[str | None, str | None, str | None]:
    """Source, libraries and hardware of *outcome* as columns; None if unknown, or if it did not run."""
    if not isinstance(outcome, Measurement):
        return None, None, None
    hardware = None if outcome.hardware is None else outcome.hardware.text
    return outcome.source_print, outcome.versions_print, hardware


# The store itself.

if TYPE_CHECKING:
    import sqlite3

    import pandas as pd

STORE_FILE = "store.sqlite"
IMPORTED = "imported_from"
"""In the provenance of a run that came from a file: the file's name."""
IMPORTED_DIGEST = "imported_sha256"
"""Beside it: the digest of the file's content, by which the same file is known again."""
RUN_COLUMNS = "runs.*, (SELECT json_group_array(tag) FROM tags WHERE run = runs.id) AS tags"


def store_path(path: Path | None = None) -> Path:
    """*path*, or the store of this person's runs."""
    return path or resources.runs_directory() / STORE_FILE


class Store:
    """A store at *path* (default: the one of this person's runs), created if it does not exist.

    Several threads may use a Store, and several processes its file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = store_path(path)
        self._database = Database(self.path)
        self.annotations = Annotations(self._database)
        """Notes, tags and deletion of its runs."""
        self.views = SavedViews(self._database)
        """Views of the page by name."""
        self._known: dict[tuple[Problem, Execution], tuple[tuple[Any, ...], tuple[Trial, ...]]] = {}

    def close(self) -> None:
        self._database.close()

    def refuse_absence(self) -> None:
        """Raise Failed where the file was deleted or replaced while it was open."""
        self._database.refuse_absence()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs

    def begin_run(self, experiment: Mapping[str, Any], provenance: Mapping[str, Any], title: str = "") -> str:
        """Add a run; the result is its id, and ids sort by time."""
        facts = {**provenance, "process": database.process_here()}
        self.annotations.purge_old()
        with self._database.write() as connection:
            run = database.unused_id(connection)
            connection.execute(
                "INSERT INTO runs (id, started_at, status, title, experiment, provenance) VALUES (?, ?, ?, ?, ?, ?)",
                (run, database.moment_of_begin(), RUNNING, title, json.dumps(experiment), json.dumps(facts)),
            )
        return run

    def end_run(self, run: str, status: str = FINISHED) -> None:
        with self._database.write() as connection:
            connection.execute(
                "UPDATE runs SET ended_at = ?, status = ? WHERE id = ?", (database.moment(), status, run)
            )
        self.settle()

    def settle(self) -> None:
        """Make everything stored so far survive a power cut; this takes a disk about 10 ms."""
        self._database.settle()

    def add_facts(self, run: str, facts: Mapping[str, Any]) -> None:
        """Add *facts* to the provenance of *run* after it began."""
        with self._database.write() as connection:
            connection.execute("UPDATE runs SET provenance = json_patch(provenance, ?) WHERE id = ?",
                               (json.dumps(facts), run))  # fmt: skip

    @reads
    def runs(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest runs first; one whose request was refused is none, nor is a deleted one."""
        entries = self._database.read(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE status IS NOT ? AND deleted_at IS NULL "
            "ORDER BY started_at DESC, id DESC LIMIT ?", (REFUSED, limit)
        )  # fmt: skip
        return [decode.run_from_entry(entry) for entry in entries]

    @reads
    def num_runs(self) -> int:
        """The number of runs, without refused and deleted ones."""
        counted = "SELECT COUNT(*) FROM runs WHERE status IS NOT ? AND deleted_at IS NULL"
        return int(self._database.read(counted, (REFUSED,))[0][0])

    @reads
    def measured_runs(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest runs with measurements, which can be replayed."""
        entries = self._database.read(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE id IN (SELECT run FROM outcomes WHERE source = 'measured' AND "
            "outcome = 'measurement') AND deleted_at IS NULL ORDER BY started_at DESC, id DESC LIMIT ?", (limit,)
        )  # fmt: skip
        return [decode.run_from_entry(entry) for entry in entries]

    @reads
    def bests(self, runs: Sequence[str]) -> list[dict[str, Any]]:
        """The number of timed schedules and the fastest one, with what others had of the cores meanwhile.

        For each problem, place (columns PLACE) and outcome.
        """
        # with a single min(), SQLite takes the other columns from its row
        columns = ("o.outcome, count(DISTINCT o.key) AS schedules, min(json_extract(o.row, '$.time_s')) AS best_s, "
                   "count(DISTINCT o.block) AS blocks")  # fmt: skip
        return self._times(runs, columns, "o.outcome != 'failure'", f"o.run, problem, {', '.join(PLACE)}, o.outcome")

    @reads
    def timings(self, runs: Sequence[str]) -> list[dict[str, Any]]:
        """Each time of each measured whole schedule of *runs*: its problem and place, block, schedule and `best_s`."""
        columns = "o.key, o.block, json_extract(o.row, '$.time_s') AS best_s"
        return self._times(runs, columns, "o.outcome = 'measurement'")

    def _times(self, runs: Sequence[str], columns: str, condition: str, groups: str = "") -> list[dict[str, Any]]:
        """*columns* of outcomes of whole schedules of *runs* with their problem, place and schedule, in *groups*."""
        place = ", ".join(f"json_extract(o.row, '$.{column}') AS {column}" for column in PLACE)
        entries = self._database.read(
            f"SELECT o.run, o.source, json_extract(t.trial, '$.problem') AS problem, {place}, {columns}, "
            "json_extract(o.row, '$.others_share') AS others_share, json_extract(t.trial, '$.schedule') AS schedule "
            "FROM outcomes o JOIN trials t ON t.key = o.key "
            f"WHERE o.run IN ({', '.join('?' * len(runs))}) AND {condition} "
            f"AND json_extract(t.trial, '$.part') = 'whole' {f'GROUP BY {groups}' if groups else ''} ORDER BY o.id",
            tuple(runs)
        )  # fmt: skip
        return [decode.best_from_entry(entry) for entry in map(dict, entries)]

    @reads
    def run(self, name: str = "last") -> dict[str, Any]:
        """The run called *name*: an id, the beginning of one, or `last`; ValueError lists the newest.

        `last` is the newest run with a measurement or an estimate, whose request was not refused.
        """
        which, pattern = ("id LIKE ?", f"{name}%") if name != "last" else (
            f"status IS NOT '{REFUSED}' AND EXISTS (SELECT 1 FROM outcomes WHERE run = runs.id AND outcome != ?)",
            "failure")  # fmt: skip
        entries = self._database.read(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE {which} AND deleted_at IS NULL "
            "ORDER BY started_at DESC, id DESC LIMIT 2", (pattern,)
        )  # fmt: skip
        if not entries and name in (deleted := self.annotations.deleted()):
            raise ValueError(f"Run {name} was deleted on {deleted[name]}. Accepted: `workbench runs --undo "
                             f"{name}`, which brings it back, or another run.")  # fmt: skip
        if not entries or not name or (len(entries) > 1 and name not in ("last", entries[0]["id"])):
            known = ", ".join(run["id"] for run in self.runs(5)) or "none yet: workbench run makes the first"
            fault = f"{name!r} begins the names of several runs" if entries and name else f"There is no run {name!r}"
            fault = "No run has a time yet" if name == "last" else fault
            raise ValueError(f"{fault}. Accepted: last, or one of {known}.")
        return decode.run_from_entry(entries[0])

    def started_at(self, run: str) -> float | None:
        """When *run* began, even where it was deleted; None where it is not there any more."""
        entries = self._database.read("SELECT started_at FROM runs WHERE id = ?", (run,))
        return float(entries[0][0]) if entries else None

    @reads
    def imported_run(self, digest: str) -> str | None:
        """The id of the run that came from a file with this digest; None where there is none, or it was deleted."""
        entries = self._database.read(
            f"SELECT id FROM runs WHERE json_extract(provenance, '$.{IMPORTED_DIGEST}') = ? AND deleted_at IS NULL "
            "ORDER BY started_at DESC LIMIT 1", (digest,)
        )  # fmt: skip
        return str(entries[0][0]) if entries else None

    # Writing

    def has_run(self, run: str) -> bool:
        """Whether there is a run with this id, which is not deleted."""
        try:
            return str(self.run(run)["id"]) == run
        except ValueError:
            return False

    def add_samples(self, run: str, samples: Sequence[Sample]) -> None:
        """Add *samples* in one transaction."""
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
        """Add an outcome and its unwritten *samples* in one transaction; the result is its cursor."""
        with self._database.write() as connection:
            return _insert_outcome(connection, run, NewOutcome.of(outcome, row, samples), origin)

    def add_run(self, title: str, provenance: Mapping[str, Any], outcomes: Iterable[NewOutcome]) -> str:
        """Add a whole run that was made elsewhere, in one transaction; the result is its id."""
        self._database.refuse_absence()
        with self._database.write() as connection:
            run, now = database.unused_id(connection), database.moment_of_begin()
            connection.execute(
                "INSERT INTO runs (id, started_at, ended_at, status, title, experiment, provenance) "
                "VALUES (?, ?, ?, ?, ?, '{}', ?)", (run, now, now, FINISHED, title, json.dumps(provenance))
            )  # fmt: skip
            for outcome in outcomes:
                _insert_outcome(connection, run, outcome)
        self.settle()
        return run

    # Known measurements

    @reads
    def known(self, key: str, ran: Execution) -> tuple[Measurement, str] | None:
        """The newest measurement of trial *key* by the kernels, libraries and hardware of *ran*, and its run.

        Its source is `recorded`. Failures are never known: a trial that was lost or hung may work now.
        """
        entries = self._database.read(
            f"SELECT run, id FROM outcomes WHERE key = ? AND {KNOWN_CONDITION} AND outcome = 'measurement' "
            "AND source = 'measured' ORDER BY id DESC LIMIT 1", (key, *condition_values(ran))
        )  # fmt: skip
        return (self.measurement(entries[0]["id"]), entries[0]["run"]) if entries else None

    @reads
    def known_trials(self, problem: Problem, ran: Execution) -> tuple[Trial, ...]:
        """All trials of *problem* with a `known` measurement, cached until an outcome is added or a run deleted."""
        newest = tuple(self._database.read(
            "SELECT (SELECT max(id) FROM outcomes), (SELECT group_concat(id) FROM runs WHERE deleted_at IS NOT NULL)"
        )[0])  # fmt: skip
        kept_at, kept = self._known.get((problem, ran), ((), ()))
        if kept_at == newest:
            return kept
        entries = self._database.read(
            "SELECT trial FROM trials WHERE json_extract(trial, '$.problem') = ? AND EXISTS (SELECT 1 FROM outcomes "
            f"WHERE key = trials.key AND {KNOWN_CONDITION} AND outcome = 'measurement' AND source = 'measured')",
            (json.dumps(problem.to_json(), separators=(",", ":")), *condition_values(ran)),
        )
        trials = tuple(decode.trial_from_column(entry["trial"]) for entry in entries)
        self._known[problem, ran] = newest, trials
        return trials

    @reads
    def references_of_block(self, block: str) -> list[tuple[Measurement, str]]:
        """Baselines and parts that were measured in *block*, as recorded, each with its run."""
        entries = self._database.read(
            "SELECT o.id, o.run FROM outcomes o JOIN trials t ON t.key = o.key WHERE o.block = ? "
            "AND o.outcome = 'measurement' AND o.source = 'measured' AND (json_extract(t.trial, '$.part') != 'whole' "
            f"OR json_extract(t.trial, '$.schedule.scheme') = ?) AND {NOT_DELETED} ORDER BY o.id", (block, BASELINE)
        )  # fmt: skip
        return [(self.measurement(entry["id"]), entry["run"]) for entry in entries]

    @reads
    def right_wholes(self, operator: str, *, quiet: bool = True) -> list[dict[str, Any]]:
        """All correct measurements of whole trials of *operator* on quiet computers, with run, block, time and
        provenance; *quiet*=False: those that others disturbed instead."""
        entries = self._database.read(
            "SELECT o.id, o.run, o.at, o.block, coalesce(o.source_print, nullif(o.fingerprint, '')) AS source_print, "
            "o.hardware, json_extract(o.row, '$.time_s') AS time_s, t.trial, r.provenance "
            "FROM outcomes o JOIN trials t ON t.key = o.key JOIN runs r ON r.id = o.run "
            "WHERE o.outcome = 'measurement' AND o.source = 'measured' AND json_extract(o.row, '$.correct') "
            "AND json_extract(t.trial, '$.part') = 'whole' AND json_extract(t.trial, '$.problem.operator') = ? "
            f"AND ({QUIET_CONDITION}) = ? AND r.deleted_at IS NULL ORDER BY o.id", (operator, quiet)
        )  # fmt: skip
        return [decode.right_whole_from_entry(entry) for entry in entries]

    @reads
    def measurement(self, outcome: int) -> Measurement:
        """The measurement of outcome number *outcome* with its samples; its source becomes `recorded`."""
        entries = self._database.read(
            "SELECT o.run, o.key, o.origin, o.block, o.source_print, o.versions_print, o.hardware, o.row, o.spans, "
            "t.trial FROM outcomes o JOIN trials t ON t.key = o.key WHERE o.id = ?",
            (outcome,),
        )
        if not entries:  # the file is damaged: each outcome is written with its trial
            raise decode.WrongForm(f"outcome {outcome} has no trial")
        (entry,) = entries
        row = decode.row_from_json(decode.json_from_column(entry["row"]))
        trial = decode.executed_trial_from_column(entry["trial"])
        samples = self._samples(entry["origin"] or entry["run"], entry["key"], entry["block"])
        by_rank = decode.seconds_by_rank([(each.rank, each.seconds) for each in samples], trial.world)
        return Measurement(
            trial=trial,
            samples=by_rank,
            source="recorded",
            correct=row["correct"],
            max_relative_error=row["max_relative_error"],
            spans=decode.spans_from_column(entry["spans"]),
            unseen=row["message"],
            conditions=tuple(row.get("conditions", ())),
            facts=row.get("facts", {}),
            block=entry["block"],
            **decode.execution_from_entry(entry),
        )

    def _samples(self, run: str, key: str, block: str | None) -> list[Sample]:
        entries = self._database.read(
            "SELECT key, rank, number, seconds, at, block FROM samples WHERE run = ? AND key = ? AND block IS ? "
            "ORDER BY at, id", (run, key, block)
        )  # fmt: skip
        return [decode.sample_from_entry(entry) for entry in entries]

    def compute_seconds(self, machine: str, problem: Problem, hardware: Hardware | None) -> float | None:
        """Seconds of the computation alone, with which emulated fabrics of *problem* on *machine* are resolved.

        They were measured on *hardware*; None if it is unknown, or if none were stored.
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
        """Store the time once, or replace it if *again*; returns the stored one, maybe of another process."""
        if hardware is None:
            return seconds
        update = "DO UPDATE SET compute_s = excluded.compute_s, run = excluded.run, at = excluded.at"
        with self._database.write() as connection:
            connection.execute(
                f"INSERT INTO fabrics VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT {update if again else 'DO NOTHING'}",
                (machine, hardware.text, _text(problem), seconds, run, database.moment()),
            )
        return self.compute_seconds(machine, problem, hardware) or seconds

    # Reading

    @reads
    def rows_since(self, cursor: int, run: str | None = None) -> tuple[list[dict[str, Any]], int]:
        """The rows after *cursor* (of one run) and the next cursor; Joins in metrics fills their joined numbers."""
        select = "SELECT id, at, run, origin, block, row FROM outcomes"
        rows, cursor = self._since(select, decode.row_from_entry, cursor, run)
        return [row if metrics.ROUNDS in row else self._with_rounds(row) for row in rows], cursor

    def _with_rounds(self, row: dict[str, Any]) -> dict[str, Any]:
        """A *row* that is older than its column of rounds, with those of its samples; None where there are none."""
        samples: dict[int, list[float]] = {}
        if row["outcome"] == "measurement":
            for each in self._samples(row["origin"] or row["run"], row["key"], row["block"]):
                samples.setdefault(each.rank, []).append(each.seconds)
        return {**row, metrics.ROUNDS: metrics.rounds_of([*samples.values()])}

    @reads
    def samples_since(self, cursor: int, run: str | None = None) -> tuple[list[dict[str, Any]], int]:
        """The samples after *cursor* (of one run) and the next cursor."""
        names = 'id, run, key, rank, number AS "index", seconds, at, block'
        return self._since(f"SELECT {names} FROM samples", decode.sample_row_from_entry, cursor, run)

    @reads
    def unfinished_samples(self, run: str) -> list[dict[str, Any]]:
        """The samples of *run* without an outcome: their trials were stopped, or failed."""
        entries = self._database.read(
            'SELECT id, run, key, rank, number AS "index", seconds, at, block FROM samples WHERE run = ? '
            "AND NOT EXISTS (SELECT 1 FROM outcomes WHERE run = samples.run AND key = samples.key "
            "AND block IS samples.block AND outcome = 'measurement') ORDER BY id", (run,)
        )  # fmt: skip
        return [decode.sample_row_from_entry(entry) for entry in entries]

    def _since(self, select: str, shape: Any, cursor: int, run: str | None) -> tuple[list[dict[str, Any]], int]:
        # the plus keeps SQLite from the index of runs: it would read the whole run for the few rows after a cursor
        of_run, values = ("", (cursor,)) if run is None else (f" AND {'+' * (cursor > 0)}run = ?", (cursor, run))
        entries = self._database.read(f"{select} WHERE id > ?{of_run} ORDER BY id", values)
        return [shape(entry) for entry in entries], entries[-1]["id"] if entries else cursor

    @reads
    def rows(self, run: str) -> list[dict[str, Any]]:
        """All rows of *run* with their joined numbers."""
        return metrics.fill(self.rows_since(0, run)[0])

    @reads
    def timed_how(self, run: str) -> list[dict[str, Any]]:
        """Conditions and method of the timing of each measurement of *run*, as far as its ranks reported them."""
        entries = self._database.read(
            "SELECT row FROM outcomes WHERE run = ? AND outcome = 'measurement' ORDER BY id", (run,)
        )
        return [facts for entry in entries if (facts := decode.timed_how_from_column(entry["row"]))]

    @reads
    def spans(self, run: str, key: str, source: str | None = None, block: str | None = None) -> tuple[Span, ...]:
        """The newest spans of one trial of *run*, if given of one source and block: a baseline is in every block."""
        entries = self._database.read(
            "SELECT spans FROM outcomes WHERE run = ? AND key = ? AND source = coalesce(?, source) "
            "AND (? IS NULL OR block = ?) AND spans != '[]' ORDER BY id DESC LIMIT 1",
            (run, key, source, block, block),
        )
        return decode.spans_from_column(entries[0]["spans"]) if entries else ()

    @reads
    def estimate(self, run: str, key: str) -> Estimate | None:
        """The estimate of one trial in *run*, from before it was measured there."""
        entries = self._database.read(
            "SELECT o.row, o.spans, t.trial FROM outcomes o JOIN trials t ON t.key = o.key WHERE o.run = ? "
            "AND o.key = ? AND o.outcome = 'estimate' ORDER BY o.id LIMIT 1",
            (run, key),
        )
        if not entries:
            return None
        row = decode.row_from_json(decode.json_from_column(entries[0]["row"]))
        return Estimate(
            trial=decode.executed_trial_from_column(entries[0]["trial"]),
            spans=decode.spans_from_column(entries[0]["spans"]),
            digest=row["machine_digest"],
            **{name: row[name] for name in ("time_s", "low_s", "high_s", "calibrated", "predictor")},
        )

    @reads
    def trials(self, run: str) -> dict[str, Trial]:
        """The trials of *run* by key."""
        entries = self._database.read(
            "SELECT key, trial FROM trials WHERE key IN (SELECT key FROM outcomes WHERE run = ?)", (run,)
        )
        return {entry["key"]: decode.trial_from_column(entry["trial"]) for entry in entries}

    @reads
    def recorded(self, run: str) -> list[tuple[Measurement, list[Sample]]]:
        """The measurements of *run*, each with its samples in order of arrival, for a replay.

        Those that were imported from a table have none, and are left out.
        """
        entries = self._database.read(
            "SELECT id, run, key, origin, block FROM outcomes WHERE run = ?1 AND outcome = 'measurement' AND ("
            f"(SELECT json_extract(provenance, '$.{IMPORTED}') IS NULL FROM runs WHERE id = ?1) OR EXISTS "
            "(SELECT 1 FROM samples WHERE run = ?1 AND key = outcomes.key AND block IS outcomes.block)) ORDER BY id",
            (run,),
        )
        return [(self.measurement(e["id"]), self._samples(e["origin"] or e["run"], e["key"], e["block"]))
                for e in entries]  # fmt: skip

    def frame(self, run: str) -> pd.DataFrame:
        """The rows of *run*; shape keys and axes are columns in addition to `shape` and `axes`."""
        from workbench.results.frames import frame

        return frame(self.rows(run))

    def sample_frame(self, run: str) -> pd.DataFrame:
        """Every raw sample of *run*, and whether others used too much of the cores meanwhile; None: nobody read it."""
        import pandas as pd

        columns = ["id", "run", "key", "rank", "index", "seconds", "at", "block", "disturbed"]
        marked = {(row["key"], row["block"]): row.get("disturbed_rounds") for row in self.rows_since(0, run)[0]}
        samples = [{**sample, "disturbed": None if rounds is None else sample["index"] in rounds}
                   for sample in self.samples_since(0, run)[0]
                   for rounds in [marked.get((sample["key"], sample["block"]))]]  # fmt: skip
        return pd.DataFrame(samples, columns=columns)


class NewOutcome(NamedTuple):
    """An outcome as it is stored: its trial, row, spans, samples, and what ran it."""

    trial: Trial
    row: Mapping[str, Any]
    samples: Sequence[Sample] = ()
    spans: Sequence[Span] = ()
    execution: tuple[str | None, str | None, str | None] = (None, None, None)
    """Source, libraries and hardware."""

    @classmethod
    def of(cls, outcome: Outcome, row: Mapping[str, Any], samples: Sequence[Sample] = ()) -> NewOutcome:
        spans = getattr(outcome, "spans", ())
        return cls(outcome.trial, {**row, **timed_how(outcome)}, samples, spans, execution_columns(outcome))


def _insert_outcome(connection: sqlite3.Connection, run: str, new: NewOutcome, origin: str | None = None) -> int:
    """Insert an outcome, its trial and its samples; the result is its cursor."""
    _insert_samples(connection, run, new.samples)
    trial, row = new.trial, new.row
    connection.execute(
        "INSERT INTO trials (key, trial) VALUES (?, ?) ON CONFLICT DO NOTHING", (trial.key, json.dumps(trial.to_json()))
    )
    entry = (run, trial.key, database.moment(), row["outcome"], row["source"], origin, row["block"], *new.execution)
    cursor = connection.execute(
        "INSERT INTO outcomes (run, key, at, outcome, source, origin, block, source_print, versions_print, "
        "hardware, row, spans, fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')",
        (*entry, json.dumps(row), json.dumps([span_values(span) for span in new.spans])),
    )
    return int(cursor.lastrowid or 0)


def _insert_samples(connection: sqlite3.Connection, run: str, samples: Sequence[Sample]) -> None:
    connection.executemany(
        "INSERT INTO samples (run, key, rank, number, seconds, at, block) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(run, s.key, s.rank, s.index, s.seconds, s.at, s.block) for s in samples],
    )


def _text(problem: Problem) -> str:
    return json.dumps(problem.to_json(), sort_keys=True)


# Buffer of samples, which are written together within a twentieth of a second.

FLUSH_SECONDS = 0.05
"""A sample is written within this time, whether or not another follows."""
SETTLE_SECONDS = 1.0
"""Stored data survives a power cut after this time, and at once when the run ends."""


class SampleBuffer:
    """Buffer of the samples of one run, which a thread writes in one transaction per FLUSH_SECONDS."""

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
        """Add *sample*; raises the store's ValueError if earlier ones could not be written."""
        if self._error is not None:
            raise self._error
        with self._lock:
            self._pending.append(sample)
        self._wake.set()

    def take(self) -> list[Sample]:
        """Remove and return the unwritten samples, to be written together with an outcome."""
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
        """Write the remaining samples and end the thread."""
        self._closed.set()
        self._wake.set()
        self._thread.join(timeout=60)
        if self._error is None:
            self._flush()
