"""A run's spans in the Trace Event Format, which Perfetto and Chrome's tracing page open; on GPUs tiles, too, by SM."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels.outcome import Span, TileTimes
from workbench import targets
from workbench.charts.bars import Engine, has_one_stream
from workbench.file_kinds import EXPORTS, MADE
from workbench.naming import engine_title
from workbench.store import Store
from workbench.targets import Target

FIRST_SM = 1000
"""Numbers of threads from here on are SMs, BLOCKS_MOST of them each: blocks that run on it side by side."""
BLOCKS_MOST = 64

Event = dict[str, Any]


def write(store: Store, run: str, target: Target | Path) -> Path:
    """One process per trial and rank, one thread per stream, engine and SM.

    ValueError when no outcome of *run* has spans.
    """
    events: list[Event] = []
    for row in store.rows(run):
        events += _events(store, row, first_process=len({event["pid"] for event in events}) + 1)
    if not events:
        raise ValueError(
            f"Run {run} cannot become a trace: 0 of its outcomes have spans. Accepted: a run with a measurement."
        )
    trace = {"otherData": {"made": MADE}, "displayTimeUnit": "ns", "traceEvents": events}
    return targets.of(target, store.path).write(EXPORTS["perfetto"], json.dumps(trace).encode())


def _events(store: Store, row: dict[str, Any], first_process: int) -> list[Event]:
    spans = store.spans(row["run"], row["key"], row["source"], row["block"])
    one_stream = has_one_stream({Engine.of(span) for span in spans})
    axes = ", ".join(f"{name}={value}" for name, value in row["axes"].items())
    events: list[Event] = []
    for rank in sorted({span.rank for span in spans}):
        process, of_rank = first_process + rank, [span for span in spans if span.rank == rank]
        threads = {engine: number for number, engine in enumerate(sorted({Engine.of(span) for span in of_rank}))}
        name = f"{row['scheme']}({axes}) {row['part']}, {row['source']}, rank {rank}"
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}})
        events += [_thread(process, number, engine_title(engine.pool, engine.stream, one_stream=one_stream))
                   for engine, number in threads.items()]  # fmt: skip
        events += [
            {"ph": "X", "name": span.step, "cat": span.kind, "pid": process, "tid": threads[Engine.of(span)],
             "ts": 1e6 * span.start_s, "dur": 1e6 * (span.stop_s - span.start_s),
             "args": {"waited_for": span.waited_for, **_problem(span), **_tick(span)}}
            for span in of_rank
        ]  # fmt: skip
        events += _of_sms(process, of_rank)
    return events


def _thread(process: int, number: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": name}}


def _problem(span: Span) -> dict[str, int]:
    """Which of several problems it works on."""
    return {} if span.micro_batch is None else {"micro_batch": span.micro_batch}


def _tick(span: Span) -> dict[str, float]:
    """How exact its moments are, where that is known."""
    return {"clock_tick_us": 1e6 * span.tick_s} if span.tick_s else {}


def _of_sms(process: int, spans: Sequence[Span]) -> Iterator[Event]:
    """The tiles of all steps, on one thread per SM and block that runs there beside others."""
    by_sm: dict[int, list[tuple[TileTimes, Span]]] = defaultdict(list)
    for span in spans:
        for tile in span.tiles:
            by_sm[tile.processor].append((tile, span))
    for processor, tiles in sorted(by_sm.items()):
        busy_until: list[float] = []
        for tile, span in sorted(tiles, key=lambda each: (each[0].start_s, each[0].sent_s)):
            free = (block for block, until in enumerate(busy_until) if until <= tile.start_s)
            block = min(next(free, len(busy_until)), BLOCKS_MOST - 1)
            thread = FIRST_SM + processor * BLOCKS_MOST + block
            if block == len(busy_until):
                busy_until.append(0.0)
                yield _thread(process, thread, f"SM {processor}" + (f", block {block + 1}" if block else ""))
            busy_until[block] = tile.sent_s
            yield from _of_tile(process, thread, tile, span)


def _of_tile(process: int, thread: int, tile: TileTimes, span: Span) -> Iterator[Event]:
    """Its wait, its computation under the step's own name, and its sending; what took no time is left out."""
    of_put = span.kind == "put"
    phases = (
        ("wait", "wait", tile.start_s, tile.waited_s),
        (span.step, span.kind, tile.waited_s, tile.sent_s if of_put else tile.computed_s),
        ("send", "put", tile.sent_s if of_put else tile.computed_s, tile.sent_s),
    )
    for name, kind, start_s, stop_s in phases:
        if stop_s > start_s or name == span.step:
            yield {"ph": "X", "name": name, "cat": kind, "pid": process, "tid": thread, "ts": 1e6 * start_s,
                   "dur": 1e6 * (stop_s - start_s),
                   "args": {"step": span.step, "program" if of_put else "tile": tile.number}}  # fmt: skip
