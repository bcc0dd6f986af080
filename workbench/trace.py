"""A run's spans in the Trace Event Format, which Perfetto and Chrome's tracing page open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.store import Store

LANES = ("compute", "copy_engine", "link", "library")
"""One thread of the trace each, in this order; others follow."""


def write(store: Store, run: str, path: Path) -> Path:
    """One process per trial and rank, one thread per lane; ValueError when no outcome of *run* has spans."""
    events: list[dict[str, Any]] = []
    for row in store.rows(run):
        events += _events(store, row, first_process=len({event["pid"] for event in events}) + 1)
    if not events:
        raise ValueError(
            f"A trace of run {run} was asked for, but 0 of its outcomes have spans. Accepted: a run with a measurement."
        )
    try:
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    except OSError as error:
        raise ValueError(f"The trace cannot be written to {path}: {error.strerror}.") from error
    return path


def _events(store: Store, row: dict[str, Any], first_process: int) -> list[dict[str, Any]]:
    spans = store.spans(row["run"], row["key"], row["source"])
    lanes = [*LANES, *sorted({span.lane for span in spans} - set(LANES))]
    axes = ", ".join(f"{name}={value}" for name, value in row["axes"].items())
    events: list[dict[str, Any]] = []
    for rank in sorted({span.rank for span in spans}):
        process, mine = first_process + rank, [span for span in spans if span.rank == rank]
        name = f"{row['scheme']}({axes}) {row['part']}, {row['source']}, rank {rank}"
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}})
        events += [{"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": lane}}
                   for number, lane in enumerate(lanes) if any(span.lane == lane for span in mine)]  # fmt: skip
        events += [
            {"ph": "X", "name": span.step, "cat": span.kind, "pid": process, "tid": lanes.index(span.lane),
             "ts": 1e6 * span.start_s, "dur": 1e6 * (span.stop_s - span.start_s),
             "args": {"waited_for": span.waited_for}}
            for span in mine
        ]  # fmt: skip
    return events
