"""The schedule of a step's tasks, and its exposed communication by layer, pass and level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from workbench.simulator.scaling.graph import COMPUTE, RankSubset, Task

# Times of tasks: for one rank that represents all, and in the same order for every rank if some are slow.

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TaskTimes:
    """Start and finish of each task on the rank that represents all."""

    start: Floats
    finish: Floats
    order: tuple[int, ...]
    """Numbers of the tasks in issue order, which is their order on each resource."""

    @property
    def time_s(self) -> float:
        return float(self.finish.max(initial=0.0))


def timed(tasks: Sequence[Task]) -> TaskTimes:
    """Schedule *tasks*: each resource serves one task at a time, without preemption, in an order fixed in advance.

    The order is that of a network that takes no time, since programs are written before its speed is known.
    Therefore a faster link never makes a step slower.
    """
    start, finish = np.zeros(len(tasks)), np.zeros(len(tasks))
    free: dict[str, float] = {}
    order = issued(tasks)
    for number in order:
        task = tasks[number]
        begin = max([0.0, *(finish[each] for each in task.after),
                     *(free.get(resource, 0.0) - offset for resource, (offset, _) in task.holds.items())])  # fmt: skip
        start[number], finish[number] = begin, begin + task.seconds
        free.update({resource: begin + until for resource, (_, until) in task.holds.items()})
    return TaskTimes(start, finish, tuple(order))


def issued(tasks: Sequence[Task]) -> list[int]:
    """Issue order of *tasks*: the task that could begin first is next, as if sending took no time."""
    missing = [len(task.after) for task in tasks]
    behind: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        assert all(each < number for each in task.after), f"{task.name} waits for a later task"
        for each in task.after:
            behind[each].append(number)
    ready = {number: 0.0 for number, count in enumerate(missing) if not count}
    end, free, order = [0.0] * len(tasks), 0.0, []
    while ready:
        begin, number = min((max(since, free) if tasks[each].compute_s else since, each)
                            for each, since in ready.items())  # fmt: skip
        del ready[number]
        order.append(number)
        end[number] = begin + tasks[number].compute_s
        free = max(free, end[number]) if tasks[number].compute_s else free
        for each in behind[number]:
            missing[each] -= 1
            if not missing[each]:
                ready[each] = max(end[other] for other in tasks[each].after)
    return order


def on_all_ranks(tasks: Sequence[Task], order: Sequence[int], slow: Floats, load: Floats | None = None) -> Floats:
    """The end of a step on each rank, where the computation of rank r takes slow[r] times as long.

    The computation of uneven tasks takes slow[r] * load[r] times as long.

    Every rank keeps *order*, as streams do. A collective begins when the last rank of its group has arrived. An
    overlapped task begins when it can, and ends when the last rank of its group has computed.
    """
    world = len(slow)
    finish: dict[int, Floats] = {}
    free: dict[str, Floats] = {}
    zeros = np.zeros(world)
    for number in order:
        task = tasks[number]
        begin = zeros
        for each in task.after:
            begin = np.maximum(begin, finish[each])
        for resource, (offset, _) in task.holds.items():
            if resource in free:
                begin = np.maximum(begin, free[resource] - offset)
        extra_seconds = task.compute_s * (slow * (load if task.uneven and load is not None else 1.0) - 1.0)
        if task.group is not None and not task.overlaps:
            begin = _last(begin, task.group)
        end = begin + task.seconds + extra_seconds
        if task.overlaps and task.group is not None:
            end = _last(end, task.group)
        finish[number] = end
        for resource, (_, until) in task.holds.items():
            free[resource] = end - (task.seconds - until)
    return np.maximum.reduce(list(finish.values()), initial=0.0) if finish else zeros


def _last(times: Floats, group: RankSubset) -> Floats:
    """For each rank, the latest time in its group."""
    blocks = times.reshape(-1, group.size)
    latest = blocks.max(axis=1, keepdims=True) if group.neighbours else blocks.max(axis=0, keepdims=True)
    return np.broadcast_to(latest, blocks.shape).reshape(-1)


# Exposed time by layer, pass and level.

Place = tuple[str, str]
"""Layer and pass."""


@dataclass(frozen=True, slots=True)
class ExposedTime:
    """Seconds of a step in which the rank computes, and in which it only communicates."""

    compute_s: float
    total_s: float
    """Time of the step minus the computation."""
    by_place: Mapping[Place, float]
    by_level: tuple[float, ...]
    """Exposed seconds of each level of the network, the innermost first."""


def exposed(tasks: Sequence[Task], when: TaskTimes, levels: int) -> ExposedTime:
    """Assign each moment without computation to the communication that is then waited for; the sums are exact."""
    by_place: dict[Place, float] = defaultdict(float)
    by_level = [0.0] * levels
    for task, seconds in _parts(tasks, when):
        by_place[task.layer, task.passes] += seconds
        whole = sum(task.by_level)
        for level, busy in enumerate(task.by_level):
            by_level[level] += seconds * busy / whole
    compute = sum(task.compute_s for task in tasks)
    return ExposedTime(compute, max(0.0, when.time_s - compute), dict(by_place), tuple(by_level))


def _parts(tasks: Sequence[Task], when: TaskTimes) -> Iterator[tuple[Task, float]]:
    """Communicating tasks and the time that they leave the processor idle: overlapped tasks, then gaps."""
    for task in tasks:
        held = task.holds.get(COMPUTE)
        if held is not None and task.group is not None and held[1] > task.compute_s:
            yield task, held[1] - task.compute_s
    moving = [number for number in when.order if tasks[number].by_level and sum(tasks[number].by_level) > 0]
    for begin, end, waiting in _gaps(tasks, when):
        here = [each for each in moving if when.finish[each] > begin and when.start[each] < end]
        yield from _of_gap(tasks, when, here, (begin, end, waiting))


def _gaps(tasks: Sequence[Task], when: TaskTimes) -> Iterator[tuple[float, float, int | None]]:
    """Intervals in which the processor is idle, and the task that ends each; the last interval has none."""
    free = 0.0
    for number in when.order:
        if COMPUTE in tasks[number].holds:
            begin, end = (float(when.start[number]) + at for at in tasks[number].holds[COMPUTE])
            if begin > free:
                yield free, begin, number
            free = max(free, end)
    if when.time_s > free:
        yield free, when.time_s, None


def _of_gap(
    tasks: Sequence[Task], when: TaskTimes, moving: Sequence[int], gap: tuple[float, float, int | None]
) -> Iterator[tuple[Task, float]]:
    """Split a gap among the tasks in flight; a task that the next computation waits for takes precedence."""
    begin, end, waiting = gap
    awaited = set(tasks[waiting].after) if waiting is not None else set()
    cuts = sorted({begin, end, *(float(t) for each in moving for t in (when.start[each], when.finish[each])
                                 if begin < t < end)})  # fmt: skip
    for low, high in pairwise(cuts):
        under_way = [each for each in moving if when.start[each] <= low and when.finish[each] >= high]
        if under_way:
            first = min(under_way, key=lambda each: (each not in awaited, when.start[each], each))
            yield tasks[first], high - low
