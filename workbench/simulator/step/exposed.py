"""Where a step's time goes: what is computed, and what communication exposes, by layer, pass and level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.simulator.step.schedule import Timed
from workbench.simulator.step.tasks import COMPUTE, Task

Place = tuple[str, str]
"""Layer and pass."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """Seconds of a step in which its rank computes, and in which it does not."""

    compute_s: float
    total_s: float
    """The step less what is computed."""
    by_place: Mapping[Place, float]
    by_level: tuple[float, ...]
    """By level of the network, from the inside out."""


def exposed(tasks: Sequence[Task], when: Timed, levels: int) -> Exposed:
    """Each moment without computation belongs to the communication that is waited for then; the sums are exact."""
    by_place: dict[Place, float] = defaultdict(float)
    by_level = [0.0] * levels
    for task, seconds in _parts(tasks, when):
        by_place[task.layer, task.passes] += seconds
        whole = sum(task.by_level)
        for level, busy in enumerate(task.by_level):
            by_level[level] += seconds * busy / whole
    compute = sum(task.compute_s for task in tasks)
    return Exposed(compute, max(0.0, when.time_s - compute), dict(by_place), tuple(by_level))


def _parts(tasks: Sequence[Task], when: Timed) -> Iterator[tuple[Task, float]]:
    """Communication, and how long it keeps the processor idle: tasks that do both, then gaps between computations."""
    for task in tasks:
        held = task.holds.get(COMPUTE)
        if held is not None and task.group is not None and held[1] > task.compute_s:
            yield task, held[1] - task.compute_s
    moving = [number for number in when.order if tasks[number].by_level and sum(tasks[number].by_level) > 0]
    for begin, end, waiting in _gaps(tasks, when):
        here = [each for each in moving if when.finish[each] > begin and when.start[each] < end]
        yield from _of_gap(tasks, when, here, (begin, end, waiting))


def _gaps(tasks: Sequence[Task], when: Timed) -> Iterator[tuple[float, float, int | None]]:
    """From when to when nothing has the processor, and the task that takes it then; the last gap has none."""
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
    tasks: Sequence[Task], when: Timed, moving: Sequence[int], gap: tuple[float, float, int | None]
) -> Iterator[tuple[Task, float]]:
    """Of several that are under way in a gap, who ends it counts first: what the next computation waits for."""
    begin, end, waiting = gap
    awaited = set(tasks[waiting].after) if waiting is not None else set()
    cuts = sorted({begin, end, *(float(t) for each in moving for t in (when.start[each], when.finish[each])
                                 if begin < t < end)})  # fmt: skip
    for low, high in pairwise(cuts):
        under_way = [each for each in moving if when.start[each] <= low and when.finish[each] >= high]
        if under_way:
            first = min(under_way, key=lambda each: (each not in awaited, when.start[each], each))
            yield tasks[first], high - low
