"""A simulated step for other tools: its tasks as a Chakra execution trace, its timeline for Perfetto.

Chakra (MLCommons) is the graph that ASTRA-sim and others read: one file for each rank, a metadata message and one
message for each node, each behind its length. Its schema (et_def.proto, 0.0.4) is a few numbered fields, so that they
are written here without a protobuf library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from workbench.file_kinds import CHAKRA, EXPORTS, MADE
from workbench.simulator.step.configurations import Step
from workbench.simulator.step.tasks import COMPUTE, Task

VERSION = "0.0.4"
COMP_NODE, COMM_COLL_NODE = 4, 7
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}
"""CollectiveCommType of the schema."""
INT64, BOOL, STRING = 9, 27, 29
"""Fields of an attribute's value, by type."""
VARINT, BYTES = 0, 2
"""Wire types of protobuf."""


def chakra(step: Step, title: str) -> bytes:
    """The tasks of *step* as one rank's `.et` file; the rank stands for all. The format has no place for *title*.

    Durations are whole microseconds in the schema, so `duration_nanos` has them exactly. A task that computes and
    communicates at once becomes two nodes, which wait for the same and are waited for together: there is no third kind.
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
    """Seven bits a byte, the lowest first; the high bit says that more follow."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def perfetto(step: Step, title: str) -> bytes:
    """When the tasks of *step* hold the processor and the links of each level, in the Trace Event Format."""
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
    trace = {"otherData": {"made": MADE, "source": "estimated"}, "displayTimeUnit": "ns", "traceEvents": events}
    return json.dumps(trace).encode()


def _meta(name: str, thread: int, value: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 1, "tid": thread, "args": {"name": value}}


KINDS = {"chakra": CHAKRA, "perfetto": EXPORTS["perfetto"]}
WAYS = {"chakra": chakra, "perfetto": perfetto}
"""What a step can be written as; both are given the step's title."""
