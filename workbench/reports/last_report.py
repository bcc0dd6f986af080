"""What changed since the last report of the same problem: a small record near the store, and a report's section."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from kernels import files
from kernels.units import seconds_text
from workbench.naming import TIMED
from workbench.reports.cases import Case, schedule_phrase
from workbench.reports.tables import NOTHING, Cell, ReportColumn, Table, delta_cell, markdown_text, schedule_text
from workbench.results import comparison
from workbench.results.decode import SECONDS
from workbench.results.deltas import Delta, Difference, Pinned, differences
from workbench.results.files import FileKind, FileTarget
from workbench.results.rows import QUESTION, Row, problem_of
from workbench.results.verdict import FASTER, SLOWER

# The record: for each problem, what the last reports said.

FORMAT = 1
ROWS_MOST, PROBLEMS_MOST = 60, 200
"""The most schedules that are remembered of a problem, the fastest ones, and the most problems, the newest ones."""
_KEPT = ("run", "key", "block", "source", *QUESTION, "backend", "machine", "fabric", "protocol", "part", "scheme",
         "axes", "time_s", "low_s", "high_s", "sequential_s")  # fmt: skip
TEXT = files.TextKind("record of reports", "a record of reports", "a JSON file", most_bytes=2**26)


def _is_record(path: Path) -> bool:
    known = files.parsed(files.text(path, TEXT))
    return isinstance(known, dict) and {"format", "reports"} <= set(known)


RECORD = FileKind("record of reports", "a record of reports", _is_record)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the last report of one problem said."""

    run: str
    at: float
    """Unix time of the report."""
    versions: Mapping[str, Any]
    rows: Sequence[Row]
    """Its timed schedules, the best first, without their rounds."""


class LastReports:
    """The record of the last reports of a store: for each problem those of the two newest runs that were reported."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(f"{store.stem}.reports.json")

    def before(self, run: str, case: Case) -> Remembered | None:
        """The last report of the problem of *case* on another run; None if there was none."""
        entries = self._read().get(_key(case), [])
        return next((Remembered(**entry) for entry in entries if entry["run"] != run), None)

    def keep(self, run: str, versions: Mapping[str, Any], cases: Sequence[Case]) -> None:
        """Remembers a report of *run* that was written now. ValueError if the record cannot be written."""
        known = self._read()
        for case in cases:
            timed = [row for row in comparison.once(case.leading) if row.get("source") in TIMED]
            if timed:
                rows = [{key: row.get(key) for key in _KEPT} for row in timed[:ROWS_MOST]]
                entry = {"run": run, "at": time.time(), "versions": dict(versions), "rows": rows}
                older = [each for each in known.pop(_key(case), []) if each["run"] != run]
                known[_key(case)] = [entry, *older[:1]]
        newest = dict(list(known.items())[-PROBLEMS_MOST:])
        content = json.dumps({"format": FORMAT, "reports": newest}).encode()
        FileTarget(self.path, renews=True).write(RECORD, content)

    def _read(self) -> dict[str, list[dict[str, Any]]]:
        """The entries by problem; none where the record is missing, damaged, or of another version."""
        try:
            known = files.parsed(files.text(self.path, TEXT))
            entries: dict[str, list[dict[str, Any]]] = known["reports"] if known["format"] == FORMAT else {}
            return {problem: [each for each in listed if _is_whole(each)] for problem, listed in entries.items()}
        except (ValueError, OSError, KeyError, TypeError, AttributeError):
            return {}


def _is_whole(entry: Mapping[str, Any]) -> bool:
    """Whether *entry* has rows, and each of them all that is compared; TypeError for anything else than an entry."""
    rows = Remembered(**entry).rows
    return bool(rows) and all(set(_KEPT) <= set(row) and SECONDS.holds(row["time_s"]) for row in rows)


def _key(case: Case) -> str:
    return json.dumps(problem_of(case.whole[0]) if case.whole else None)


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between a case and the last report of its problem."""

    before: Remembered
    timed_again: Sequence[tuple[Row, Row, Delta]]
    """Row of the last report, row now, and their difference, of what is another measurement; the largest first."""
    new: Sequence[Row]
    gone: Sequence[Row]
    versions: Sequence[Difference]


def changes(before: Remembered, case: Case, versions: Mapping[str, Any]) -> Changes:
    """What is new, faster, slower and gone in *case*."""
    now = [row for row in comparison.once(case.leading) if row.get("source") in TIMED]
    then = {_schedule(row): row for row in before.rows}
    pairs = [(then[_schedule(row)], row) for row in now if _schedule(row) in then]
    every = [*before.rows, *case.whole]
    again = [(old, row, Pinned.of(old, every).delta(row)) for old, row in pairs if not _is_one_measurement(old, row)]
    names = set(map(_schedule, now))
    return Changes(
        before, sorted(again, key=lambda each: -abs(each[2].share or 0.0)),
        [row for row in now if _schedule(row) not in then],
        [row for row in before.rows if _schedule(row) not in names],
        differences({}, {}, ({"versions": before.versions}, {"versions": versions})),
    )  # fmt: skip


def _schedule(row: Row) -> str:
    return json.dumps([row.get("scheme"), row.get("axes")], sort_keys=True)


def _is_one_measurement(row: Row, other: Row) -> bool:
    return all(row.get(key) == other.get(key) for key in ("key", "block", "time_s"))


def changed_cells(title: str, case: Case, changed: Changes | None, mark: str) -> list[NotebookNode]:
    """Cells that say what changed in *case* since the last report; none where there was no other report."""
    if changed is None:
        return []
    heading = "What changed since the last report" + (f": {title}" if title else "")
    cells = [new_markdown_cell(f"{mark} {markdown_text(heading)}\n\n{markdown_text(_summary(changed, case))}")]
    table = changed_table(changed, case)
    return [*cells, table.to_cell()] if table.rows else cells


def _summary(changed: Changes, case: Case) -> str:
    before, rows = changed.before, [*case.whole, *changed.before.rows]
    words = [delta.word for _, _, delta in changed.timed_again]
    counts = [f"{len(some)} {what}" for some, what in ((changed.new, "new"), (changed.gone, "gone")) if some]
    counts += [f"{words.count(word)} {word}" for word in (FASTER, SLOWER) if words.count(word)]
    if undecided := [delta for _, _, delta in changed.timed_again if delta.word not in (FASTER, SLOWER)]:
        less = sum((delta.share or 0.0) < 0 for delta in undecided)
        counts.append(f"{len(undecided)} timed again, {less} of them with less time")
    at = datetime.fromtimestamp(before.at).astimezone().strftime("%Y-%m-%d %H:%M")
    best = before.rows[0]
    time = seconds_text(best["time_s"])
    sentences = [
        f"Since the report of {at} (run {before.run}): {', '.join(counts) or 'no schedule changed'}.",
        f"Its best was {schedule_phrase(best, rows)}, {time}{_now(best, case, rows)}.",
        "Two runs take no turns, so that no difference between them says which is faster." if undecided else "",
    ]
    if changed.versions:
        differ = [f"{each.name} {each.first or NOTHING} to {each.second or NOTHING}" for each in changed.versions]
        sentences.append(f"Versions: {', '.join(differ)}.")
    return " ".join(filter(None, sentences))


def _now(best: Row, case: Case, rows: Sequence[Row]) -> str:
    """What is the best now, in the same sentence."""
    now = case.fastest
    if now is None:
        return "; nothing was timed now"
    if _is_one_measurement(best, now):
        return ", and still is"
    which = "the same" if _schedule(best) == _schedule(now) else schedule_phrase(now, rows)
    return f"; now it is {which}, {seconds_text(now['time_s'])}"


def changed_table(changed: Changes, case: Case) -> Table:
    """A table of what is new, was timed again, and is gone: both times, and the difference where there is one."""
    rows = [*case.whole, *changed.before.rows]
    lines = [(_name(row, rows), _time(None), _time(row), Cell("new")) for row in changed.new]
    lines += [(_name(now, rows), _time(old), _time(now), delta_cell(delta)) for old, now, delta in changed.timed_again]
    lines += [(_name(row, rows), _time(row), _time(None), Cell("gone")) for row in changed.gone]
    headings = ("Schedule", "Last report", "Now", "Difference")
    columns = tuple(ReportColumn(heading=heading, figure=heading != "Schedule") for heading in headings)
    return Table(columns=columns, rows=tuple(lines), shown=20)


def _name(row: Row, rows: Sequence[Row]) -> Cell:
    scheme, _, axes = schedule_text(row, rows).partition(", ")
    return Cell(scheme, axes)


def _time(row: Row | None) -> Cell:
    return Cell(NOTHING) if row is None else Cell(seconds_text(row["time_s"]))
