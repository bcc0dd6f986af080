"""Trace files: Parquet with one row for each access, written and read row group by row group.

Columns: `kernel` (int32, never falls), `address` (int64, in bytes; the line is address // 128), `unit`, `instruction`
(uint16), `structure`, `sectors` (uint8, bit s is bytes 32 s to 32 s + 31 of the line), `flags` (uint8: 1 store, 2 L1 is
not asked, 4 a peer's store). The schema's metadata has `overlap_workbench_trace`, JSON: {"version": 1, "name", "units",
"structures": [{"name", "role"}], "instructions": [names]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from kernels.schedule import Refusal
from workbench.simulator.cache.trace import (
    ACCESS,
    ALL_SECTORS,
    CHUNK,
    DIRECT,
    LINE_BYTES,
    PEER,
    ROLES,
    WRITE,
    Accesses,
    Chunk,
    Structure,
    Trace,
)

MARK, VERSION = b"overlap_workbench_trace", 1
COLUMNS = {"kernel": pa.int32(), "address": pa.int64(), "unit": pa.uint16(), "instruction": pa.uint16(),
           "structure": pa.uint8(), "sectors": pa.uint8(), "flags": pa.uint8()}  # fmt: skip
ACCEPTED = "Accepted: a Parquet file as docs/caches.md says."


def write(trace: Trace, path: Path) -> int:
    """Writes *trace* to *path*, and returns how many accesses it has."""
    told = {"version": VERSION, "name": trace.name, "units": trace.units, "instructions": list(trace.instructions),
            "structures": [{"name": each.name, "role": each.role} for each in trace.structures]}  # fmt: skip
    schema = pa.schema(list(COLUMNS.items()), metadata={MARK: json.dumps(told).encode()})
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as file:
        for chunk in trace.chunks():
            file.write_table(_table(chunk, schema))
            count += len(chunk.accesses)
    return count


def _table(chunk: Chunk, schema: pa.Schema) -> pa.Table:
    columns: dict[str, Any] = {name: chunk.accesses[name] for name in COLUMNS if name in (ACCESS.names or ())}
    columns["kernel"] = np.full(len(chunk.accesses), chunk.kernel, np.int32)
    columns["address"] = chunk.accesses["line"] * LINE_BYTES
    return pa.table([pa.array(columns[name], kind) for name, kind in COLUMNS.items()], schema=schema)


def read(path: Path) -> Trace:
    """The trace in file *path*, read CHUNK accesses at a time; Refusal says what is wrong with it."""
    if not path.exists():
        raise Refusal(f"There is no trace file {path}. {ACCEPTED}")
    if not path.is_file():
        raise _unreadable(path, "it is a folder" if path.is_dir() else "it is no file")
    try:
        with parquet.ParquetFile(path) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, f"it is no whole Parquet file ({_first_line(error)})") from None
    for name, kind in COLUMNS.items():
        if name not in schema.names or schema.field(name).type != kind:
            raise _unreadable(path, f"it has no column {name} of {kind}")
    return replace(_described(path, (schema.metadata or {}).get(MARK, b"")), counted=lambda: count)


def _described(path: Path, mark: bytes) -> Trace:
    """The Trace that the metadata *mark* tells of."""
    try:
        told = json.loads(mark)
        version, units = int(told["version"]), int(told["units"])
        structures = tuple(Structure(str(each["name"]), str(each["role"])) for each in told["structures"])
        name, instructions = str(told["name"]), tuple(map(str, told["instructions"]))
    except (ValueError, KeyError, TypeError):
        raise _unreadable(path, f"its metadata {MARK.decode()} does not say name, units and structures") from None
    if version != VERSION:
        raise _unreadable(path, f"it is of version {version}, and this is version {VERSION}")
    if strange := [each.role for each in structures if each.role not in ROLES]:
        raise _unreadable(path, f"the role {strange[0]!r} is none of {', '.join(ROLES)}")
    return Trace(name, structures, instructions, units, lambda: _chunks(path))


def _chunks(path: Path) -> Iterator[Chunk]:
    last = 0
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(CHUNK, columns=list(COLUMNS)):
                kernels, rows = batch["kernel"].to_numpy(), _accesses(batch)
                if len(rows) and (kernels[0] < last or (np.diff(kernels) < 0).any()):
                    raise _unreadable(path, "its kernels do not follow each other: a number falls")
                if (rows["flags"] > (WRITE | DIRECT | PEER)).any() or (rows["sectors"] > ALL_SECTORS).any():
                    raise _unreadable(path, "it has flags above 7 or sectors above 15")
                if (rows["sectors"] == 0).any():
                    raise _unreadable(path, "it has an access of no sector")
                cuts = [0, *(np.flatnonzero(np.diff(kernels)) + 1).tolist(), len(rows)]
                for start, stop in pairwise(cuts):
                    if stop > start:
                        yield Chunk(int(kernels[start]), rows[start:stop])
                last = int(kernels[-1]) if len(rows) else last
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, f"it is damaged ({_first_line(error)})") from None


def _accesses(batch: pa.RecordBatch) -> Accesses:
    rows = np.zeros(batch.num_rows, ACCESS)
    for name in COLUMNS:
        if name in (ACCESS.names or ()):
            rows[name] = batch[name].to_numpy()
    rows["line"] = batch["address"].to_numpy() // LINE_BYTES
    return rows


def _unreadable(path: Path, reason: str) -> Refusal:
    return Refusal(f"{path} cannot be read as a trace: {reason}. {ACCEPTED}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0].rstrip(".")[:120]
