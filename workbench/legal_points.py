"""The legal points of a space as numbers: their estimates, and which of them share their compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernels.axes import Value
from kernels.backends.offers import Runner
from kernels.backends.triton.compilations import AXES
from kernels.schedule import Schedule
from kernels.schemes.concurrent import MICRO_BATCHES
from kernels.schemes.reads import DECIDED_BY
from workbench.durations import Durations
from workbench.simulator import grid
from workbench.simulator.points import Floats
from workbench.space import Choice, columns, once, values


@dataclass(frozen=True, slots=True)
class Legal:
    """The legal points of one choice."""

    scheme: str
    lists: Mapping[str, tuple[Value, ...]]
    seconds: Floats
    """Of one problem."""
    problems: np.ndarray
    """In one call."""
    tiles: list[Any]
    places: np.ndarray
    """Of every combination: its number among the legal ones, or -1."""

    def _indices(self) -> tuple[np.ndarray, ...]:
        """Of every legal point: by axis, the number of its value."""
        return np.unravel_index(np.flatnonzero(self.places >= 0), [len(some) for some in self.lists.values()])

    def forms(self) -> np.ndarray:
        """Of every legal point: a number that those share whose kernels are compiled alike."""
        form = np.zeros(len(self.seconds), dtype=np.int64)
        if not len(form):
            return form
        for (name, some), index in zip(self.lists.items(), self._indices(), strict=True):
            form = form * len(some) + index if name in AXES else form
        return form

    def schedule(self, place: int) -> Schedule:
        """The legal point number *place*."""
        indices = self._indices()
        named = zip(self.lists.items(), indices, strict=True)
        return Schedule(self.scheme, tuple((name, some[int(index[place])]) for (name, some), index in named))

    def place(self, schedule: Schedule) -> int | None:
        """The number of *schedule* among the legal points, or None."""
        if schedule.scheme != self.scheme or not all(self.lists.values()):
            return None
        named = {name: value for name in self.lists if (value := schedule.get(name)) is not None}
        if dict(schedule.axes).keys() - self.lists.keys() or self.lists.keys() - named.keys() - DECIDED_BY.keys():
            return None
        values = {name: some[0] for name, some in self.lists.items()} | named  # of what is not read: any
        if any(values[name] not in some for name, some in self.lists.items()):
            return None
        where = [some.index(values[name]) for name, some in self.lists.items()]
        number = int(np.ravel_multi_index(where, [len(some) for some in self.lists.values()])) if where else 0
        return place if (place := int(self.places[number])) >= 0 else None


@lru_cache(maxsize=32)
def legal(durations: Durations, choice: Choice, most: int, by_ranks: bool) -> Legal:
    """The points of *choice* that are legal, or that ranks run; Refusal of more points than *most*."""
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    lists = values(choice, problem, machine, fabric, most, Runner(machine, fabric) if by_ranks else None)
    if not all(lists.values()):
        return Legal(choice.scheme, lists, np.zeros(0), np.zeros(0), [], np.zeros(0, dtype=int))
    crossed = columns(lists)
    seconds = grid.times(problem, choice.scheme, crossed, machine, fabric)
    is_legal = np.isfinite(seconds) & once(problem, choice.scheme, crossed, machine)
    places = np.where(is_legal, np.cumsum(is_legal) - 1, -1)
    count = crossed.get(MICRO_BATCHES, np.ones(len(seconds), dtype=int))[is_legal]
    return Legal(choice.scheme, lists, seconds[is_legal], count, crossed["tile"][is_legal].tolist(), places)


def all_forms(choices: Sequence[Legal]) -> np.ndarray:
    """Of all legal points, choice by choice: a number that those share whose kernels are compiled alike."""
    each = [one.forms() for one in choices]
    ends = np.cumsum([0, *(int(some.max()) + 1 if len(some) else 0 for some in each)])
    return np.concatenate([some + start for some, start in zip(each, ends, strict=False)])
