"""What a schedule takes but time: SMs that do not compute, bytes that leave at once, memory that peers write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kernels.backends.base import aligned, heap_bytes
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.plan import EVERYTHING, Kind, Plan, Pool
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, axis_rules, expand, library, problems
from kernels.schemes.concurrent import MICRO_BATCHES
from workbench.naming import TILE_SIDES
from workbench.results.columns import Frame, Places
from workbench.results.rows import Row, current_problem_and_schedule
from workbench.simulator.price import shared

SMS, IN_FLIGHT, MEMORY = "comm_sms_taken", "bytes_in_flight", "symmetric_bytes"
RESOURCES: Mapping[str, str] = {
    IN_FLIGHT: "Bytes that leave a rank at once",
    SMS: "SMs taken by communication",
    MEMORY: "Symmetric memory of a rank",
}
"""The columns of `with_resource` and their titles."""


def resources_of(problem: Problem, schedule: Schedule, machine: Machine | None) -> dict[str, int | None]:
    """What *schedule* takes of one rank, by RESOURCES; None where it is not known, or there is no such thing.

    - SMs: those that communication holds while others compute: the share of a put that SMs move, or the blocks of a
      kernel of its own (the library's call, a collective of ours), all SMs where it may have so many. 0 where copy
      engines or the SMs that compute send, and for schedules that compute first. Without a *machine* the blocks of a
      kernel are not known; a CPU rank has no SMs.
    - Bytes in flight: the most that one step of the Plan hands over: its largest put to each peer, all of them
      together, or the largest call of the library. They lie ready, or are on their way, at the same time.
    - Memory: the tensors that peers write or read (operands, staging buffers, contributions, results), as all backends
      lay them out, for all problems of a call.
    """
    return {resource: _resource(resource, problem, schedule, machine) for resource in RESOURCES}


def _resource(resource: str, problem: Problem, schedule: Schedule, machine: Machine | None) -> int | None:
    if resource == MEMORY:
        return problems(schedule) * aligned(heap_bytes(problem, schedule))
    plan = expand(problem, schedule)
    return _sms(plan, machine) if resource == SMS else _in_flight(plan)


def _sms(plan: Plan, machine: Machine | None) -> int | None:
    if machine is not None and machine.device.kind != "gpu":
        return None
    if plan.schedule.scheme == BASELINE:
        return 0
    moves = np.isin(plan.kind, (Kind.PUT, Kind.COLLECTIVE))
    if np.isin(plan.pool[moves], (Pool.LIBRARY, Pool.LINK)).any():  # a kernel of its own
        called, limit = OPERATORS[plan.problem.operator].collective, int(plan.schedule.get("comm_sms") or 0)
        by = plan.schedule.get("collective", library.CALLS[0])
        return None if machine is None else int(shared.sending(machine, called, by, limit))
    by_sms = moves & (plan.pool == Pool.COMPUTE) & (plan.share != EVERYTHING)
    return int(plan.share[by_sms].max(initial=0))


def _in_flight(plan: Plan) -> int:
    """The most bytes that one step of the Plan hands over, on the rank that hands over most."""
    world = plan.problem.world
    puts = plan.kind == Kind.PUT
    largest = np.zeros(world * world, dtype=np.int64)
    np.maximum.at(largest, plan.rank[puts] * world + plan.peer[puts], plan.num_bytes[puts])
    called = plan.num_bytes[plan.kind == Kind.COLLECTIVE].max(initial=0)
    return int(max(largest.reshape(world, world).sum(axis=1).max(initial=0), called))


# Many rows: a resource depends on few axes, and schedules that agree in these share one Plan's number.

READ: Mapping[str, tuple[str, ...]] = {
    SMS: ("engine", "collective", "comm_sms"),
    IN_FLIGHT: ("tile", "tile_order", "slice_tiles", "pieces", "split", "engine", "collective", axis_rules.SHOTS),
    MEMORY: ("collective", MICRO_BATCHES),
}
"""By resource, the axes on which it depends."""


def with_resource(
    rows: Iterable[Row], resource: str, machine_of: Callable[[str], Machine | None]
) -> list[dict[str, Any]]:
    """*rows* with the column *resource*; *machine_of* gives the description of a machine by name, if there is one.

    Rows without a time, whose schedule may be illegal, get None.
    """
    known: dict[Any, int | None] = {}
    machines: dict[str, Machine | None] = {}
    complete = []
    for row in rows:
        if not row.get("time_s"):
            complete.append({**row, resource: None})
            continue
        key = _key(row, READ[resource])
        if key not in known:
            name = str(row.get("machine"))
            if name not in machines:
                machines[name] = machine_of(name)
            known[key] = _resource(resource, *current_problem_and_schedule(row), machines[name])
        complete.append({**row, resource: known[key]})
    return complete


def fastest_of_each(frame: Frame, places: Places, resource: str) -> Places:
    """Of *places*, the fastest first, those that no earlier one equals in the axes on which *resource* depends.

    All others take as much as one of these, in more time: the front of all is among them.
    """
    read = [side for name in READ[resource] for side in ((*TILE_SIDES, name) if name == "tile" else (name,))]
    codes = np.zeros(len(places), dtype=np.int64)
    for name in ("scheme", *(each for each in read if each in frame.columns)):
        _, which = np.unique(frame.as_texts(name).codes[places], return_inverse=True)
        _, codes = np.unique(codes * (which.max(initial=0) + 1) + which, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    return places[np.sort(first)]


def _key(row: Row, read: Sequence[str]) -> Any:
    """What a resource of *row* depends on, if it depends on the axes *read*."""
    question = row["operator"], tuple(row["shape"].items()), row["dtype"], row["world"], row["machine"]
    axes = row["axes"]
    return row["scheme"], tuple(axes.get(name) for name in read), question
