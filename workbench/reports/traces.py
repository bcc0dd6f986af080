"""Exports for other tools: spans of a run or a schedule for Perfetto, a simulated step for Perfetto and for Chakra.

Chakra (MLCommons) is the graph that ASTRA-sim and others read: one file for each rank, a metadata message and one
message for each node, each behind its length. Its schema (et_def.proto, 0.0.4) has few numbered fields, which are
written here without a protobuf library.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from kernels.outcome import Span, TileTimes
from workbench.naming import engine_title
from workbench.results import files
from workbench.results.files import CHAKRA, EXPORTS, SIGNATURE, FileTarget
from workbench.results.store import Store
from workbench.results.timelines import Engine, has_one_stream
from workbench.simulator.scaling.graph import COMPUTE, Task
from workbench.simulator.scaling.step import StepTime

# A run's spans in the Trace Event Format, which Perfetto and Chrome's tracing page open; on GPUs also tiles by SM.

FIRST_SM = 1000
"""First thread number of SMs; each SM has BLOCKS_MOST threads, one for each of its resident blocks."""
BLOCKS_MOST = 64
THREADS_OF_RANK = 100_000
"""Numbers of threads between the SMs of two ranks of one process."""

Event = dict[str, Any]


def write(store: Store, run: str, target: FileTarget | Path) -> Path:
    """Writes the spans of *run*: one process per trial and rank, one thread per stream, engine and SM.

    ValueError when no outcome of *run* has spans.
    """
    events: list[Event] = []
    for row in store.rows(run):
        events += _events(store, row, first_process=len({event["pid"] for event in events}) + 1)
    if not events:
        raise ValueError(
            f"Run {run} cannot become a trace: 0 of its outcomes have spans. Accepted: a run with a measurement."
        )
    return files.file_target(target, store.path).write(EXPORTS["perfetto"], _trace(events))


def _events(store: Store, row: dict[str, Any], first_process: int) -> list[Event]:
    spans = store.spans(row["run"], row["key"], row["source"], row["block"])
    one_stream = has_one_stream({Engine.of(span) for span in spans})
    axes = ", ".join(f"{name}={value}" for name, value in row["axes"].items())
    events: list[Event] = []
    for rank in sorted({span.rank for span in spans}):
        process, of_rank = first_process + rank, [span for span in spans if span.rank == rank]
        name = f"{row['scheme']}({axes}) {row['part']}, {row['source']}, rank {rank}"
        events.append(_process(process, name))
        for number, (lane, place, of_track) in enumerate(_tracks(of_rank)):
            title = engine_title(lane.pool, lane.stream, one_stream=one_stream)
            events += _track_events((process, number), _numbered(title, place), of_track)
        events += _sm_events(process, of_rank)
    return events


def timelines(schedule: str, panels: Mapping[str, Sequence[Span]]) -> bytes:
    """Timelines of one *schedule* as a trace: one process for each of *panels* (measured, simulated), by its title.

    Its threads are the lanes of all ranks, and on GPUs the SMs. ValueError when no panel has spans.
    """
    events: list[Event] = []
    for process, (title, spans) in enumerate(panels.items(), start=1):
        events += _panel_events(process, f"{title}: {schedule}", spans) if spans else []
    if not events:
        raise ValueError(
            f"{schedule} cannot become a trace: 0 of {len(panels)} timelines of it were kept. "
            "Accepted: a schedule with a timeline."
        )
    return _trace(events)


def _panel_events(process: int, title: str, spans: Sequence[Span]) -> Iterator[Event]:
    yield _process(process, title)
    one_stream = has_one_stream({Engine.of(span) for span in spans})
    for number, (lane, place, of_track) in enumerate(_tracks(spans)):
        yield from _track_events((process, number), _numbered(lane.title(one_stream), place), of_track)
    for rank in sorted({span.rank for span in spans}):
        of_rank = [span for span in spans if span.rank == rank]
        yield from _sm_events(process, of_rank, FIRST_SM + THREADS_OF_RANK * rank, f"rank {rank} ")


def _trace(events: Sequence[Event]) -> bytes:
    trace = {"otherData": {"made": SIGNATURE}, "displayTimeUnit": "ns", "traceEvents": events}
    return json.dumps(trace).encode()


def _process(number: int, name: str) -> Event:
    return {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}


def _tracks(spans: Sequence[Span]) -> Iterator[tuple[Engine, int, list[Span]]]:
    """The lanes of *spans*, each as many times as it has spans at once: its number from 0 on, and spans that do not
    overlap."""
    by_lane: dict[Engine, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda each: (each.start_s, each.stop_s)):
        by_lane[Engine.of(span)].append(span)
    for lane in sorted(by_lane):
        tracks: list[list[Span]] = []
        free: list[tuple[float, int]] = []
        for span in by_lane[lane]:
            if free and free[0][0] <= span.start_s:
                _, number = heappop(free)
            else:
                number = len(tracks)
                tracks.append([])
            tracks[number].append(span)
            heappush(free, (span.stop_s, number))
        for number, track in enumerate(tracks):
            yield lane, number, track


def _numbered(title: str, place: int) -> str:
    return f"{title}, {place + 1}" if place else title


def _track_events(where: tuple[int, int], title: str, spans: Sequence[Span]) -> Iterator[Event]:
    """The name of a thread, given with its process, and its steps."""
    process, thread = where
    yield _thread(process, thread, title)
    for span in spans:
        yield {"ph": "X", "name": span.step, "cat": span.kind, "pid": process, "tid": thread,
               "ts": 1e6 * span.start_s, "dur": 1e6 * (span.stop_s - span.start_s),
               "args": {"waited_for": span.waited_for, **_problem(span), **_tick(span)}}  # fmt: skip


def _thread(process: int, number: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": name}}


def _problem(span: Span) -> dict[str, int]:
    """The micro-batch of *span*, if its call has several."""
    return {} if span.micro_batch is None else {"micro_batch": span.micro_batch}


def _tick(span: Span) -> dict[str, float]:
    """The clock's tick, if it is known."""
    return {"clock_tick_us": 1e6 * span.tick_s} if span.tick_s else {}


def _sm_events(process: int, spans: Sequence[Span], first_thread: int = FIRST_SM, of_rank: str = "") -> Iterator[Event]:
    """Events of the tiles of all steps, on one thread per SM and resident block; names begin with *of_rank*."""
    by_sm: dict[int, list[tuple[TileTimes, Span]]] = defaultdict(list)
    for span in spans:
        for tile in span.tiles:
            by_sm[tile.processor].append((tile, span))
    for processor, tiles in sorted(by_sm.items()):
        busy_until: list[float] = []
        for tile, span in sorted(tiles, key=lambda each: (each[0].start_s, each[0].sent_s)):
            free = (block for block, until in enumerate(busy_until) if until <= tile.start_s)
            block = min(next(free, len(busy_until)), BLOCKS_MOST - 1)
            thread = first_thread + processor * BLOCKS_MOST + block
            if block == len(busy_until):
                busy_until.append(0.0)
                yield _thread(process, thread, f"{of_rank}SM {processor}" + (f", block {block + 1}" if block else ""))
            busy_until[block] = tile.sent_s
            yield from _tile_events(process, thread, tile, span)


def _tile_events(process: int, thread: int, tile: TileTimes, span: Span) -> Iterator[Event]:
    """Events of a tile's wait, computation under the step's name, and sending; those without duration are omitted."""
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


# A simulated step: its tasks as a Chakra execution trace, its timeline for Perfetto.

VERSION = "0.0.4"
COMP_NODE, COMM_COLL_NODE = 4, 7
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}
"""Numbers of CollectiveCommType in the schema."""
INT64, BOOL, STRING = 9, 27, 29
"""Field numbers of an attribute's value, by type."""
VARINT, BYTES = 0, 2
"""Wire types of protobuf."""


def chakra(step: StepTime, title: str) -> bytes:
    """The tasks of *step* as the `.et` file of one rank, which represents all. The format has no field for *title*.

    Durations are whole microseconds in the schema, so the attribute `duration_nanos` has them exactly. A task that
    computes and communicates at once becomes two nodes with the same dependencies, since there is no third kind.
    """
    nodes: dict[int, list[int]] = {}
    messages = [_text(1, VERSION)]
    number = 0
    for at, task in enumerate(step.tasks):
        after = [node for other in task.after for node in nodes[other]]
        nodes[at] = []
        for kind, seconds, attributes in _kinds(task):
            number += 1
            nodes[at].append(number)
            start_s = float(step.timed.start[at])
            messages.append(_node((number, task.name, kind), after, (start_s, seconds), attributes))
    return b"".join(_varint(len(message)) + message for message in messages)


def _kinds(task: Task) -> Iterator[tuple[int, float, list[bytes]]]:
    """The nodes of one task: kind, seconds, attributes."""
    common = [_attribute("is_cpu_op", BOOL, False), _attribute("layer", STRING, task.layer),
              _attribute("pass", STRING, task.passes)]  # fmt: skip
    if task.group is None or task.compute_s > 0:
        yield COMP_NODE, task.compute_s or task.seconds, common
    if task.group is not None:
        seconds = task.seconds if task.overlaps else task.seconds - task.compute_s
        yield COMM_COLL_NODE, seconds, [
            *common, _attribute("comm_type", INT64, COLLECTIVES[task.collective]),
            _attribute("comm_size", INT64, round(task.num_bytes)), _attribute("group_size", INT64, task.group.size),
        ]  # fmt: skip


def _node(
    named: tuple[int, str, int], after: Sequence[int], when: tuple[float, float], attributes: Sequence[bytes]
) -> bytes:
    number, name, kind = named
    start_s, seconds = when
    waits = b"".join(map(_varint, after))
    return b"".join([
        _number(1, number), _text(2, name), _number(3, kind), _bytes(5, waits) if waits else b"",
        _number(6, round(start_s * 1e6)), _number(7, round(seconds * 1e6)),
        *(_bytes(10, each) for each in [*attributes, _attribute("duration_nanos", INT64, round(seconds * 1e9))]),
    ])  # fmt: skip


def _attribute(name: str, kind: int, value: bool | int | str) -> bytes:
    return _text(1, name) + (_text(kind, value) if isinstance(value, str) else _number(kind, int(value)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """*value* with seven bits per byte, the lowest first; the high bit means that more bytes follow."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def perfetto(step: StepTime, title: str) -> bytes:
    """The times at which tasks of *step* hold the processor and the links of each level, in the Trace Event Format."""
    resources = [COMPUTE, *sorted({resource for task in step.tasks for resource in task.holds} - {COMPUTE})]
    events: list[dict[str, Any]] = [_meta("process_name", 0, title)]
    events += [_meta("thread_name", thread, resource) for thread, resource in enumerate(resources)]
    for at, task in enumerate(step.tasks):
        start_s = float(step.timed.start[at])
        events += [
            {"ph": "X", "name": task.name, "cat": task.collective or COMPUTE, "pid": 1,
             "tid": resources.index(resource), "ts": 1e6 * (start_s + begin_s), "dur": 1e6 * (end_s - begin_s),
             "args": {"layer": task.layer, "pass": task.passes, "bytes": task.num_bytes}}
            for resource, (begin_s, end_s) in task.holds.items()
        ]  # fmt: skip
    trace = {"otherData": {"made": SIGNATURE, "source": "estimated"}, "displayTimeUnit": "ns", "traceEvents": events}
    return json.dumps(trace).encode()


def _meta(name: str, thread: int, value: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 1, "tid": thread, "args": {"name": value}}


KINDS = {"chakra": CHAKRA, "perfetto": EXPORTS["perfetto"]}
WAYS = {"chakra": chakra, "perfetto": perfetto}
"""Functions that write a step in each format, given its title."""
