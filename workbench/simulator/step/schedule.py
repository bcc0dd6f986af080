"""Tasks in time: for one rank that stands for all, and, in the same order, for every rank where some are slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.simulator.step.tasks import Group, Task

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """When each task runs on the rank that stands for all."""

    start: Floats
    finish: Floats
    order: tuple[int, ...]
    """The tasks as they are issued, which is their order on each resource."""

    @property
    def time_s(self) -> float:
        return float(self.finish.max(initial=0.0))


def timed(tasks: Sequence[Task]) -> Timed:
    """Each resource serves one task at a time, in an order that no bandwidth changes; nothing that runs is interrupted.

    The order is that of a network that takes no time, as programs are written before anybody knows how fast it is.
    With it, a faster link never makes a step slower.
    """
    start, finish = np.zeros(len(tasks)), np.zeros(len(tasks))
    free: dict[str, float] = {}
    order = issued(tasks)
    for number in order:
        task = tasks[number]
        begin = max([0.0, *(finish[each] for each in task.after),
                     *(free.get(resource, 0.0) - after for resource, (after, _) in task.holds.items())])  # fmt: skip
        start[number], finish[number] = begin, begin + task.seconds
        free.update({resource: begin + until for resource, (_, until) in task.holds.items()})
    return Timed(start, finish, tuple(order))


def issued(tasks: Sequence[Task]) -> list[int]:
    """The order in which programs issue *tasks*: whichever could begin first does, as if sending took no time."""
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
    """By rank, the end of a step in which the computation of rank r takes slow[r] times as long.

    Of uneven tasks it takes load[r] times as long as that.

    Every rank keeps *order*, as streams do. A collective begins when the last of its group is there; who overlaps
    begins when it can, and ends when the last of its group has computed.
    """
    world = len(slow)
    finish: dict[int, Floats] = {}
    free: dict[str, Floats] = {}
    nobody = np.zeros(world)
    for number in order:
        task = tasks[number]
        begin = nobody
        for each in task.after:
            begin = np.maximum(begin, finish[each])
        for resource, (after, _) in task.holds.items():
            if resource in free:
                begin = np.maximum(begin, free[resource] - after)
        late = task.compute_s * (slow * (load if task.uneven and load is not None else 1.0) - 1.0)
        if task.group is not None and not task.overlaps:
            begin = _last(begin, task.group)
        end = begin + task.seconds + late
        if task.overlaps and task.group is not None:
            end = _last(end, task.group)
        finish[number] = end
        for resource, (_, until) in task.holds.items():
            free[resource] = end - (task.seconds - until)
    return np.maximum.reduce(list(finish.values()), initial=0.0) if finish else nobody


def _last(times: Floats, group: Group) -> Floats:
    """By rank, the latest of its group."""
    blocks = times.reshape(-1, group.size)
    latest = blocks.max(axis=1, keepdims=True) if group.neighbours else blocks.max(axis=0, keepdims=True)
    return np.broadcast_to(latest, blocks.shape).reshape(-1)
