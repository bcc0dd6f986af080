"""A large Plan laid out for the compiled loop: the same columns that `play` reads, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.plan import Plan
from workbench.simulator import compiled, waits
from workbench.simulator.pools import Shares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Ended(NamedTuple):
    """When everything happened: columns by step."""

    start: Floats
    issued: Floats
    left: Floats
    finish: Floats
    waited_for: Ints


def played(plan: Plan, held: Shares, costs: Sequence[Floats], links: Ints, begin: float) -> tuple[Ended, int]:
    """*plan* played by compiled code from *begin*, and how many steps never finish.

    *costs*: issue, transit, ahead and delay of StepCosts; *links*: its numbers of egress links.
    """
    at, numbers, seconds = laid_out(plan, held, costs, links)
    finished = int(compiled.run(at, numbers, seconds, len(held.capacity), begin))
    rows = seconds[: len(plan) * compiled.SECONDS].reshape(len(plan), compiled.SECONDS)
    start, issued, left, finish = (rows[:, column].copy() for column in range(compiled.START, compiled.SECONDS))
    waited_for = numbers[at.waited_for : at.waited_for + len(plan)]
    return Ended(start, issued, left, finish, waited_for), len(plan) - finished


def laid_out(plan: Plan, held: Shares, costs: Sequence[Floats], links: Ints) -> tuple[compiled.Places, Ints, Floats]:
    """*plan* as it stands before its first event: where its columns begin, its numbers and its seconds."""
    count, num_launches, num_queues = len(plan), len(plan.launches), len(held.capacity)
    order, place = waits.order(plan)
    gate, _ = waits.gates(plan)
    launches = plan.next_launches()
    missing = waits.missing(plan, gate, launches)
    link = np.where(links >= 0, plan.rank * (int(links.max(initial=0)) + 1) + links, -1)
    ready, waiting = _first_ready(held, missing[gate] == 0, place)
    of_launch, nobody = _rows(plan.launch, num_launches), np.zeros(num_launches, dtype=np.int64)
    numbers = _Numbers()
    crews = np.where(held.crew >= 0, held.crew, num_launches)
    places = {
        "steps": numbers.add(np.stack([held.queue, held.units, held.crew, link, plan.launch, place], axis=1)),
        "order": numbers.add(order), "followers": numbers.rows(*waits.followers(plan, gate)),
        "opens": numbers.rows(*_rows(gate, count)), "behind": numbers.add(_behind(launches, num_launches)),
        "gates": numbers.rows(of_launch[0], gate[of_launch[1]]), "ready": numbers.rows(*ready),
        "aside": numbers.rows(*_rows(crews, num_launches + 1)), "missing": numbers.add(missing),
        "unissued": numbers.add(np.bincount(plan.launch, minlength=num_launches)), "free": numbers.add(held.capacity),
        "waiting": numbers.add(waiting), "standing": numbers.add(nobody), "busy": numbers.add(nobody),
        "touched": numbers.add(np.arange(num_queues)), "is_touched": numbers.add(np.ones(num_queues, dtype=np.int64)),
        "events": numbers.add(np.zeros(count + 1, dtype=np.int64)), "waited_for": numbers.add(np.full(count, -1)),
    }  # fmt: skip
    free_at, num_links = count * compiled.SECONDS, int(link.max(initial=-1)) + 1
    seconds = np.zeros(free_at + num_links + count + 1)
    rows = seconds[:free_at].reshape(count, compiled.SECONDS)
    for column, values in enumerate(costs):
        rows[:, column] = values
    return compiled.Places(**places, seconds=0, free_at=free_at, times=free_at + num_links), numbers.laid(), seconds


class _Numbers:
    """Columns of whole numbers, end to end."""

    def __init__(self) -> None:
        self._columns: list[Ints] = []
        self._length = 0

    def add(self, column: Ints) -> int:
        """Where *column* begins."""
        begin = self._length
        self._columns.append(column.ravel())
        self._length += column.size
        return begin

    def rows(self, bounds: Ints, flat: Ints) -> int:
        """Where the bounds of the rows of *flat* begin; they count from the beginning of all."""
        return self.add(bounds + self.add(flat))

    def laid(self) -> Ints:
        return np.concatenate(self._columns).astype(np.int64, copy=False)


def _first_ready(held: Shares, is_ready: NDArray[np.bool_], place: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """By queue, the places of what is ready at the start before room for the others, and how many they are.

    Numbers in order are a heap.
    """
    by_queue = np.lexsort((place, ~is_ready, held.queue))
    bounds = _bounds(held.queue, len(held.capacity))
    waiting = np.bincount(held.queue[is_ready], minlength=len(held.capacity))
    return (bounds, place[by_queue]), waiting


def _rows(key: Ints, count: int) -> tuple[Ints, Ints]:
    """Bounds by *key*, of which there are *count*, and the steps that have each, in order."""
    return _bounds(key, count), np.argsort(key, kind="stable")


def _bounds(key: Ints, count: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(key, minlength=count))]).astype(np.int64)


def _behind(launches: Mapping[int, int], num_launches: int) -> Ints:
    behind = np.full(num_launches, -1)
    behind[list(launches)] = list(launches.values())
    return behind
