"""The operators on CPU tensors: CPU ranks execute each call's Plan over shared memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kernels.backends.base import heap_bytes
from kernels.backends.cpu import pooling
from kernels.backends.cpu.heap import SegmentHeap
from kernels.backends.cpu.layout import Memory
from kernels.backends.cpu.link import Egress
from kernels.backends.cpu.program import PlanProgram
from kernels.backends.cpu.refusals import refusal
from kernels.operators import OPERATORS
from kernels.ops.arguments import GroupRanks, cpu_machine, trial
from kernels.problem import Problem
from kernels.reference import torch_dtype
from kernels.schedule import Refusal
from kernels.schemes import expand
from kernels.schemes.base import above
from kernels.trial import Trial

FEWEST_SIGNALS = 1024


class CpuCalls:
    """The calls of one group's CPU ranks. All ranks make the same calls in the same order."""

    def __init__(self, ranks: GroupRanks) -> None:
        self.ranks = ranks
        self._machine = cpu_machine()
        self._trials: dict[tuple[Problem, str], Trial] = {}
        self._heap: SegmentHeap | None = None
        self._generation = self._epoch = 0

    def call(self, problem: Problem, schedule: str, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The result of this rank, and whether it has memory to itself; if not, it is valid until the next call.

        Ranks meet before they begin, so that no rank stores into a result that is still read. Raises Hang where a rank
        does not come.
        """
        checked = self._trial(problem, schedule)
        plan, rank = expand(problem, checked.schedule), self.ranks.seat.rank
        heap = self._heap_for(heap_bytes(problem, checked.schedule), len(plan))
        contiguous = {name: tensor.detach().contiguous() for name, tensor in operands.items()}
        extent = OPERATORS[problem.operator].extent(problem)
        local_MN = torch.empty(extent.rows, extent.columns, dtype=torch_dtype(problem))
        memory = Memory(plan, rank, heap, contiguous, local_MN)
        program = PlanProgram(plan, [memory], heap, Egress(checked.fabric, rank, problem.world), None)
        self._epoch += 1
        program.run(heap.barrier(), self._epoch)
        return memory.result(), memory.receives

    def check(self) -> None:
        """Does nothing: calls of CPU ranks raise their errors themselves."""

    def forget(self) -> None:
        """Frees the memory; the next call allocates some under another name, and counts from 1."""
        self.ranks = GroupRanks.begin(self.ranks.nccl, torch.device("cpu"))
        self._heap, self._generation, self._epoch = None, 0, 0

    def _trial(self, problem: Problem, schedule: str) -> Trial:
        """The trial of *schedule*, checked at its first call."""
        if (problem, schedule) not in self._trials:
            checked = trial(problem, schedule, self._machine)
            if (reason := refusal(checked, shares_heap=True)) is not None:
                raise Refusal(reason)
            if OPERATORS[problem.operator].work == "gather":
                pooling.warm()
            self._trials[problem, schedule] = checked
        return self._trials[problem, schedule]

    def _heap_for(self, num_bytes: int, steps: int) -> SegmentHeap:
        """The heap, or a larger one that all ranks make together, since all come to the same sizes."""
        signals = max(FEWEST_SIGNALS, above(steps))
        if self._heap is None or self._heap.capacity < num_bytes or self._heap.signals < signals:
            self._generation += 1
            self._heap = SegmentHeap(self.ranks.seat, self._generation, above(num_bytes), signals)
        return self._heap
