"""Imports: a recording or a table that the workbench wrote becomes a stored run, and is never called measured.

A file is read whole before anything of it is stored.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels import files
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.outcome import ROW_KEYS
from kernels.trial import PROTOCOLS, Protocol, Trial
from kernels.units import bytes_text, num_text
from workbench.results import decode, metrics, recordings
from workbench.results.provenance import shared_provenance
from workbench.results.rows import current_problem_and_schedule
from workbench.results.store import IMPORTED, IMPORTED_DIGEST, NewOutcome, Store

BYTES_MOST, ROWS_MOST = 256 * 2**20, 200_000
"""Limits of a file: the page stays quick with 100,000 rows."""
NEEDED = ("outcome", "source", "operator", "shape", "dtype", "world", "scheme", "axes", "backend", "machine", "fabric",
          "protocol", "part", "time_s")  # fmt: skip
"""Columns without which a table makes no run."""
KEPT = (*ROW_KEYS, *metrics.EXTRA_KEYS, "disturbed_rounds")
"""Columns that are stored; all others are derived again, or are sizes and axes, which `shape` and `axes` have."""
TEXTS = frozenset({"outcome", "source", "key", "operator", "dtype", "scheme", "backend", "machine", "fabric",
                   "protocol", "regime", "part", "others", "stage", "message", "block", "source_print",
                   "versions_print", "predictor", "machine_digest", "put_rate_from"})  # fmt: skip
COUNTS = frozenset({"world", "samples"})
ACCEPTED = "a table or a recording that `workbench export` wrote: .csv, .parquet or .jsonl"
DIGEST = re.compile(r"[0-9a-f]{0,128}")
"""What the digest of a machine's description looks like; reports and scripts show it. It may be empty."""
SOURCE_OF = {"measured": "recorded"}
"""What becomes of a source that another computer's file says."""
PARQUET_START, SEVERAL = b"PAR1", 4

MachineOf = Callable[[str], Machine | None]
"""The machine of a name, None where it is not known here."""
Report = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """The run that a file became."""

    id: str
    is_new: bool
    """Not where the same file was imported before: then the run of that time."""


def import_run(store: Store, name: str, content: bytes, machine_of: MachineOf = lambda name: None,
               report: Report = lambda text: None) -> ImportedRun:  # fmt: skip
    """Store the *content* of the file called *name* as a run, once.

    Measurements become `recorded`; estimates stay `estimated`. *report* gets a sentence about how far it is.
    ValueError in one sentence where the content is anything else; then nothing is stored.
    """
    short, digest = Path(name).name[-120:] or "the file", hashlib.sha256(content).hexdigest()
    if (earlier := store.imported_run(digest)) is not None:
        return ImportedRun(earlier, is_new=False)
    imported = _imported(short, content, machine_of, report)
    report(f"{short}: {num_text(len(imported.outcomes), 'row')} are stored …")
    provenance = {**imported.provenance, IMPORTED: short, IMPORTED_DIGEST: digest}
    return ImportedRun(store.add_run(f"imported from {short}", provenance, imported.outcomes), is_new=True)


def content(path: Path) -> bytes:
    """The content of the file *path* for `import_run`; ValueError where it is none, or too large."""
    try:
        if not path.is_file():  # reading a pipe would wait
            raise _refused(str(path), "it is no file" if path.exists() else "there is no such file")
        if (size := path.stat().st_size) > BYTES_MOST:
            raise too_large(path.name, size)
        return path.read_bytes()
    except OSError as error:
        raise _refused(str(path), files.reason(error)) from None


@dataclass(frozen=True, slots=True)
class _Imported:
    """All that a file says."""

    outcomes: Sequence[NewOutcome]
    provenance: Mapping[str, Any]
    """The first run in the file has it; a table has none."""


def _imported(name: str, content: bytes, machine_of: MachineOf, report: Report) -> _Imported:
    """The outcomes in *content*, by what it begins with."""
    if len(content) > BYTES_MOST:
        raise too_large(name, len(content))
    if content.startswith(PARQUET_START):
        return _Imported(_outcomes(name, _parquet_rows(name, content), report), {})
    text = _text(name, content)
    lines = text.count("\n")
    report(f"{name}: {num_text(lines, 'line')} are read …")
    if text.lstrip()[:1] == "{":
        _refuse_many(name, lines)
        return _recording(name, text, machine_of)
    return _Imported(_outcomes(name, _csv_rows(name, text), report), {})


def _refused(name: str, fault: str, accepted: str = ACCEPTED) -> ValueError:
    return ValueError(f"{name} cannot be imported: {fault.rstrip('.')}. Nothing was stored. Accepted: {accepted}.")


def too_large(name: str, size: int) -> ValueError:
    """The error that says that *size* bytes are more than are read."""
    fault = f"it has {bytes_text(size)}, and at most {bytes_text(BYTES_MOST)} are read"
    return _refused(name, fault, "fewer rows: an export of one run")


def _refuse_many(name: str, count: int) -> None:
    if count > ROWS_MOST:
        raise _refused(name, f"it has {count:,} rows: {count:,} > {ROWS_MOST:,}", "fewer rows: an export of one run")


def _text(name: str, content: bytes) -> str:
    """*content* as text; spreadsheets begin theirs with a mark of its encoding."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(name, f"byte {error.start:,} of it is no UTF-8", f"{ACCEPTED}, in UTF-8") from None
    if not text.strip():
        raise _refused(name, "it is empty")
    return text


# Recordings.


def _recording(name: str, text: str, machine_of: MachineOf) -> _Imported:
    try:
        entries = recordings.parsed(text, Path(name))
    except ValueError as error:
        raise ValueError(f"{error} Nothing was stored.") from None
    outcomes = []
    for entry in entries:
        measured = entry.measurement
        row = metrics.row_of(measured, None, machine_of(measured.trial.machine))
        outcomes.append(NewOutcome.of(measured, row, entry.samples))
    first = entries[0].provenance
    try:
        _refuse_digest(first.get("machine_digest"))
    except ValueError as error:
        raise _refused(name, str(error)) from None
    return _Imported(outcomes, shared_provenance(first, login=False))


def _refuse_digest(digest: Any) -> None:
    """Raise ValueError where *digest* is neither one nor None."""
    if digest is not None and not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
        raise ValueError(f"its machine_digest is {decode.shown(digest)}, which is no hexadecimal number")


# Tables: cells become the values that the export wrote, and each row has to be an outcome.


def _csv_rows(name: str, text: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a CSV as values by column; ValueError for other tables, and for too many rows."""
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        columns = next(lines)
        _refuse_columns(name, columns)
        _refuse_many(name, sum(1 for _ in lines) if text.count("\n") > ROWS_MOST else 0)
        reader = csv.DictReader(io.StringIO(text, newline=""), restkey="")
        for row in reader:
            yield {column: _value(column, row[column]) for column in KEPT if column in row}
    except csv.Error as error:
        raise _refused(name, f"it is no CSV ({error})") from None


def _parquet_rows(name: str, content: bytes) -> Iterator[Mapping[str, Any]]:
    """The rows of a Parquet file as values by column."""
    try:
        from pyarrow import ArrowException, BufferReader
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise _refused(name, "Parquet needs pyarrow, which is not installed",
                       "pip install pyarrow, or a CSV") from error  # fmt: skip
    try:
        file = ParquetFile(BufferReader(content))
        columns = file.schema_arrow.names
        _refuse_columns(name, columns)
        _refuse_many(name, file.metadata.num_rows)
        for batch in file.iter_batches(columns=[column for column in KEPT if column in columns]):
            for row in batch.to_pylist():
                yield {column: _value(column, value) for column, value in row.items()}
    except (ArrowException, OSError) as error:
        raise _refused(name, f"it is no Parquet file ({' '.join(str(error).split()):.120})") from None


def _refuse_columns(name: str, columns: Sequence[str]) -> None:
    """Raise ValueError where a table with *columns* is something else, or lacks some that are needed."""
    missing = [column for column in NEEDED if column not in columns]
    if not missing:
        return
    listed = ", ".join(missing[:SEVERAL]) + (" and so on" if len(missing) > SEVERAL else "")
    seen = ", ".join(f"{column:.20}" for column in columns[:SEVERAL])
    other = len(missing) > len(NEEDED) / 2
    kind = f"it is another table, with columns such as {seen}" if other else "columns are missing"
    raise _refused(name, f"{kind}; it lacks {listed}: {len(missing)} of the {len(NEEDED)} columns that a run needs")


def _value(column: str, cell: Any) -> Any:
    """The value of a *cell* of a table: CSV has texts alone, and both have texts for lists and tables."""
    if cell is None or cell == "" or cell != cell:
        return None
    if column not in TEXTS and isinstance(cell, str):
        cell = _plain(cell)
    return int(cell) if column in COUNTS and isinstance(cell, float) and cell.is_integer() else cell


def _plain(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        return files.parsed(text) if text[0] in "[{" else float(text) if {".", "e"} & {*text} else int(text)
    except ValueError:
        return text


def _outcomes(name: str, rows: Iterable[Mapping[str, Any]], report: Report) -> list[NewOutcome]:
    """The *rows* as outcomes; ValueError names the first that is none."""
    outcomes: list[NewOutcome] = []
    known: dict[str, Trial] = {}
    for number, row in enumerate(rows, 1):
        try:
            outcomes.append(_outcome(row, known))
        except ValueError as error:
            raise _refused(name, f"row {number:,} is no outcome: {error}") from None
        if number % 10_000 == 0:
            report(f"{name}: {number:,} rows are read …")
    if not outcomes:
        raise _refused(name, "it has 0 rows")
    return outcomes


def _outcome(cells: Mapping[str, Any], known: dict[str, Trial]) -> NewOutcome:
    """One row as an outcome. *known* has the trials of earlier rows by what makes them."""
    row = decode.row_from_json({**cells, "key": "", "run": None})
    _refuse_digest(row.get("machine_digest"))
    made_of = json.dumps([row[column] for column in (*NEEDED[2:-1], "samples")])
    if made_of not in known:
        known[made_of] = _trial(row)
    trial = known[made_of]
    source = "estimated" if row["outcome"] == "estimate" else SOURCE_OF.get(row["source"], row["source"])
    hardware = decode.hardware_from_json(row["hardware"])
    execution = (row["source_print"], row["versions_print"], None if hardware is None else hardware.text)
    return NewOutcome(trial, {**row, "key": trial.key, "source": source}, execution=execution)


def _trial(row: Mapping[str, Any]) -> Trial:
    """The trial of *row*, as far as a table says it: a bandwidth has six digits, and a protocol its name and repeats.

    So its key may be another one than where it was timed.
    """
    decode.check_question(
        {name: row[name] for name in ("operator", "shape", "dtype", "world")},
        {"scheme": row["scheme"], "axes": row["axes"] or {}},
    )
    problem, schedule = current_problem_and_schedule(row)
    repeats = max(1, (row["samples"] or 0) // problem.world)
    protocol = PROTOCOLS.get(row["protocol"]) or Protocol(name=row["protocol"], warmups=0, repeats=repeats)
    trial = Trial(problem=problem, schedule=schedule, backend=row["backend"], machine=row["machine"],
                  fabric=parse(row["fabric"]), protocol=protocol, part=row["part"])  # fmt: skip
    return decode.trial_from_json(trial.to_json())
