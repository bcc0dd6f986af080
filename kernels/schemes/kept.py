"""The Plans that were used last, kept for whoever asks again: as many as fit into so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Schedule

BYTES_MOST = 256 * 2**20
"""Of all Plans that a process keeps. One of 30,720 steps takes 5 MB, the largest that are legal some 50."""


class Kept:
    """Plans by problem and schedule, for any thread. What was used longest ago leaves first."""

    def __init__(self, bytes_most: int = BYTES_MOST) -> None:
        self.bytes_most, self.num_bytes = bytes_most, 0
        self._plans: OrderedDict[tuple[Problem, Schedule], Plan] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def plan(self, problem: Problem, schedule: Schedule, make: Callable[[Problem, Schedule], Plan]) -> Plan:
        """The Plan that is kept, or the one that *make* makes; a Plan larger than all bytes together is not kept."""
        key = (problem, schedule)
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
        made = make(problem, schedule)
        num_bytes = made.memory_bytes
        with self._lock:
            if key not in self._plans and num_bytes <= self.bytes_most:
                self._plans[key] = made
                self.num_bytes += num_bytes
            while self.num_bytes > self.bytes_most:
                self.num_bytes -= self._plans.popitem(last=False)[1].memory_bytes
        return made

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._plans.clear()
            self.num_bytes = 0
