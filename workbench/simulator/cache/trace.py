"""Traces, the input of a replay: accesses in order, in chunks, made in memory or read from Parquet.

A trace file has one row for each access. Columns: `kernel` (int32, never falls), `address` (int64, in bytes; the line
is address // 128), `unit`, `instruction` (uint16), `structure`, `sectors` (uint8, bit s is bytes 32 s to 32 s + 31 of
the line), `flags` (uint8: 1 store, 2 bypasses L1, 4 a peer's store). The schema's metadata has
`overlap_workbench_trace`, JSON: {"version": 1, "name", "units",
"structures": [{"name", "role"}], "instructions": [names]}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from kernels.schedule import Refusal
from workbench.simulator.cache.hierarchy import LINE_BYTES

# Jobs in threads that stop at their next chunk once their caller has given up.

T = TypeVar("T")
THREADS = 2
"""Replays that run at a time; compiled code releases the interpreter's lock."""


class ReplayStopped(Exception):
    """Exception that ends a replay whose caller has given up."""


_cancelled: ContextVar[Event | None] = ContextVar("cancelled", default=None)
"""Event that is set when the caller of the outermost jobs has given up; nested jobs share it."""


def heeded(chunks: Iterable[T]) -> Iterator[T]:
    """Yield *chunks* until the caller of the jobs has given up; then raise ReplayStopped."""
    for chunk in chunks:
        event = _cancelled.get()
        if event is not None and event.is_set():
            raise ReplayStopped
        yield chunk


def together(
    jobs: Sequence[Callable[[], Any]], progress: Callable[[int, int], None] = lambda count, at: None
) -> list[Any]:
    """The results of *jobs*, which run two at a time; *progress* gets how many have finished and the last one's index.

    An interrupted caller waits for one chunk of the running jobs, and not for the other jobs.
    """
    outer = _cancelled.get()
    event = outer or Event()
    with ThreadPoolExecutor(THREADS) as threads:
        futures = {threads.submit(copy_context().run, _run, job, event): at for at, job in enumerate(jobs)}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                future.result()
                progress(count, futures[future])
        except BaseException:
            if outer is None:  # else another job than the first to fail would be reported
                event.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _run(job: Callable[[], Any], event: Event) -> Any:
    _cancelled.set(event)
    return job()


# Traces: accesses in order, in chunks, kernel after kernel.

ALL_SECTORS = 0b1111
"""Mask of all sectors of a line; bit s covers bytes 32 s .. 32 s + 31."""
WRITE, DIRECT, PEER = 1, 2, 4
"""Flags. DIRECT: the access bypasses L1, as bulk copies (TMA) do. PEER: a peer's store arrives over the link."""
CHUNK = 1 << 20
"""Most accesses of a chunk: 16 MiB are in memory at a time, whatever the length of the trace."""

ACCESS = np.dtype(
    [("line", "i8"), ("unit", "u2"), ("instruction", "u2"), ("structure", "u1"), ("sectors", "u1"), ("flags", "u1"),
     ("padding", "u1")]
)  # fmt: skip
"""Record of one request: line (byte address // 128), unit, load or store instruction, structure, sectors, flags."""

ROLES = ("weights", "activations", "indices", "output", "peer buffer")
"""Roles of a structure in its kernel; policies give hints by role."""

Accesses = NDArray[Any]


class Chunk(NamedTuple):
    """Accesses of one kernel, in order. A new *kernel* number means that the previous kernel has ended."""

    kernel: int
    accesses: Accesses


@dataclass(frozen=True, slots=True)
class Structure:
    """One array of a kernel."""

    name: str
    role: str
    """One of ROLES."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The accesses to replay. Each call of `chunks` begins anew and yields the same accesses."""

    name: str
    structures: tuple[Structure, ...]
    instructions: tuple[str, ...]
    units: int
    """Number of SMs (CUs); units of accesses are 0 .. units - 1."""
    chunks: Callable[[], Iterator[Chunk]]

    counted: Callable[[], int] | None = None
    """Function that gives the number of accesses without making them, if it is known."""

    def count(self) -> int:
        """Number of accesses; the whole trace is made if the number is not known."""
        return self.counted() if self.counted else sum(len(chunk.accesses) for chunk in heeded(self.chunks()))


def accesses(lines: NDArray[np.int64], **columns: object) -> Accesses:
    """Accesses of *lines*; each other column is an array or one value for all. By default all sectors are loaded."""
    records = np.zeros(lines.size, ACCESS)
    records["line"] = lines.ravel()
    records["sectors"] = ALL_SECTORS
    for name, value in columns.items():
        records[name] = value
    return records


def in_memory(name: str, kernels: list[Accesses], structures: tuple[Structure, ...], units: int) -> Trace:
    """The trace of given arrays, one for each kernel, cut into chunks."""
    most = max((int(each["instruction"].max()) for each in kernels if len(each)), default=0)

    def chunks() -> Iterator[Chunk]:
        for number, each in enumerate(kernels):
            for start in range(0, len(each), CHUNK):
                yield Chunk(number, each[start : start + CHUNK])

    return Trace(name, structures, tuple(f"instruction {i}" for i in range(most + 1)), units, chunks)


# Trace files, written and read row group by row group.

MARK, VERSION = b"overlap_workbench_trace", 1
COLUMNS = {"kernel": pa.int32(), "address": pa.int64(), "unit": pa.uint16(), "instruction": pa.uint16(),
           "structure": pa.uint8(), "sectors": pa.uint8(), "flags": pa.uint8()}  # fmt: skip
ACCEPTED = "Accepted: a Parquet file as docs/caches.md says."


def write(trace: Trace, path: Path) -> int:
    """Write *trace* to *path*, and return the number of its accesses."""
    description = {"version": VERSION, "name": trace.name, "units": trace.units,
                   "instructions": list(trace.instructions),
                   "structures": [{"name": each.name, "role": each.role} for each in trace.structures]}  # fmt: skip
    schema = pa.schema(list(COLUMNS.items()), metadata={MARK: json.dumps(description).encode()})
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
    """The trace in file *path*, read CHUNK accesses at a time; Refusal says what is wrong with the file."""
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
    """The Trace that the metadata *mark* describes."""
    try:
        description = json.loads(mark)
        version, units = int(description["version"]), int(description["units"])
        structures = tuple(Structure(str(each["name"]), str(each["role"])) for each in description["structures"])
        name, instructions = str(description["name"]), tuple(map(str, description["instructions"]))
    except (ValueError, KeyError, TypeError):
        raise _unreadable(path, f"its metadata {MARK.decode()} does not say name, units and structures") from None
    if version != VERSION:
        raise _unreadable(path, f"it is of version {version}, and this is version {VERSION}")
    if unknown := [each.role for each in structures if each.role not in ROLES]:
        raise _unreadable(path, f"the role {unknown[0]!r} is none of {', '.join(ROLES)}")
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
