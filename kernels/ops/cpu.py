"""The operators on CPU tensors: CPU ranks execute each call's Plan over shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor

from kernels.backends.cpu import pooling
from kernels.backends.cpu.heap import SegmentHeap
from kernels.backends.cpu.layout import Memory, num_bytes
from kernels.backends.cpu.link import Egress
from kernels.backends.cpu.program import PlanProgram
from kernels.backends.cpu.refusals import refusal
from kernels.operators import OPERATORS
from kernels.ops import auto
from kernels.ops.arguments import GroupRanks, cpu_machine, trial
from kernels.ops.sequential import LibraryCall, is_of_library
from kernels.problem import Problem
from kernels.reference import torch_dtype
from kernels.schedule import Refusal
from kernels.schemes import expand
from kernels.schemes.auto import STORES
from kernels.schemes.base import above
from kernels.trial import Trial

FEWEST_SIGNALS = 1024
OFFERED = ("library", STORES, "one_shot", "fused")
"""The candidates of calls without a schedule."""


class CpuCalls:
    """The calls of one group's CPU ranks. All ranks make the same calls in the same order."""

    def __init__(self, ranks: GroupRanks) -> None:
        self.ranks = ranks
        self._machine = cpu_machine()
        self._trials: dict[tuple[Problem, str], Trial] = {}
        self._chosen: dict[Problem, str] = {}
        self.choices = auto.GroupChoices(ranks, self._machine, OFFERED)
        self._heap: SegmentHeap | None = None
        self._generation = self._epoch = 0

    def call(self, problem: Problem, schedule: str, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The result of this rank, and whether it has memory to itself; if not, it is valid until the next call.

        Ranks meet before they begin, so that no rank stores into a result that is still read. Raises Hang where a rank
        does not come.
        """
        return self._run(problem, self._trial(problem, schedule or self._choice(problem, operands)), operands)

    def _run(self, problem: Problem, checked: Trial, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        if problem.world > 1 and is_of_library(problem, checked.schedule):
            return LibraryCall(problem, self.ranks.nccl)(operands), True
        plan, rank = expand(problem, checked.schedule), self.ranks.seat.rank
        heap = self._heap_for(num_bytes(problem, checked.schedule), len(plan))
        contiguous = {name: tensor.detach().contiguous() for name, tensor in operands.items()}
        extent = OPERATORS[problem.operator].extent(problem)
        local_MN = torch.empty(extent.rows, extent.columns, dtype=torch_dtype(problem))
        memory = Memory(plan, rank, heap, contiguous, local_MN)
        program = PlanProgram(plan, [memory], heap, Egress(checked.fabric, rank, problem.world), None)
        self._epoch += 1
        program.run(heap.barrier(), self._epoch)
        return memory.result(), memory.receives

    def _choice(self, problem: Problem, operands: Mapping[str, Tensor]) -> str:
        """The schedule of calls that name none; all ranks choose it together at the first one."""
        if problem not in self._chosen:
            self._chosen[problem] = self.choices.schedule(problem, partial(self._measure, problem, operands))
        return self._chosen[problem]

    def _measure(self, problem: Problem, operands: Mapping[str, Tensor], texts: Sequence[str]) -> dict[str, float]:
        """Seconds of a call of each schedule, all ranks together; those that do not run here are left out."""
        calls: dict[str, Callable[[], object]] = {}
        for text in texts:
            with suppress(Refusal):  # on all ranks alike
                calls[text] = partial(self._run, problem, self._trial(problem, text), operands)
                calls[text]()
        return auto.in_turns(calls, torch.device("cpu"), self.ranks)

    def follow(self) -> None:
        """Does nothing: each call ends before the next one begins."""

    def check(self) -> None:
        """Does nothing: calls of CPU ranks raise their errors themselves."""

    def forget(self) -> None:
        """Frees the memory; the next call allocates some under another name, and counts from 1."""
        self.ranks = GroupRanks.begin(self.ranks.nccl, torch.device("cpu"))
        self.choices = auto.GroupChoices(self.ranks, self._machine, OFFERED)
        self._heap, self._generation, self._epoch = None, 0, 0
        self._chosen.clear()

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
