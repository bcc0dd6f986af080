"""The cpu backend: one rank of a gang on shared memory, or across hosts with the library alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.backends.base import Seat
from kernels.backends.cpu import layout, pooling
from kernels.backends.cpu.gloo import Library
from kernels.backends.cpu.heap import Heap
from kernels.backends.cpu.link import Egress
from kernels.backends.cpu.program import Program
from kernels.backends.cpu.wait import clock
from kernels.outcome import Span
from kernels.plan import Kind, Plan
from kernels.problem import Problem
from kernels.reference import Operands, operands
from kernels.schedule import Refusal
from kernels.schemes import expand, needs_peer_memory
from kernels.trial import Trial

DTYPES = ("float32", "bfloat16")


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why this backend cannot run *trial*, or None."""
    if trial.problem.dtype not in DTYPES:
        return (
            f"dtype = {trial.problem.dtype} was asked for on backend = cpu, whose kernels know {len(DTYPES)} dtypes. "
            f"Accepted: {', '.join(DTYPES)}."
        )
    if trial.fabric.kind not in ("emulated", "shared_memory", "network"):
        return (
            f"fabric = {trial.fabric.kind} was asked for on backend = cpu, whose ranks have no such link. "
            "Accepted: emulated, shared_memory, network."
        )
    if not shares_heap and needs_peer_memory(trial.schedule):
        return (
            f"{trial.schedule} was asked for across hosts, where ranks share 0 bytes of memory and it stores into "
            "its peers'. Accepted: sequential with collective = library, decomposed with engine = library."
        )
    return None


class CpuBackend:
    """One rank. Its heap and process group stay warm from trial to trial and from gang to gang."""

    def __init__(self, seat: Seat) -> None:
        torch.set_num_threads(1)
        pooling.warm()
        self.seat = replace(seat, session=re.sub(r"\W", "_", seat.session))
        self._alone = replace(self.seat, rank=0, world=1, session=f"{self.seat.session}_{seat.rank}")
        self._heap: Heap | None = None
        self._generation = 0
        self._library: Library | None = None
        self._epoch = 0
        self._held: tuple[Problem, int, Operands] | None = None

    def prepare(self, trials: Sequence[Trial], seed: int = 0) -> list[CpuTrial]:
        """Compiles *trials*, all of one problem; raises Refusal where one cannot run here."""
        for trial in trials:
            if (sentence := refusal(trial, self.seat.shares_heap)) is not None:
                raise Refusal(sentence)
        plans = [expand(trial.problem, trial.schedule).part(trial.part) for trial in trials]
        needs_library = any((plan.kind == Kind.COLLECTIVE).any() for plan in plans) or not self.seat.shares_heap
        if needs_library and self._library is None and self.seat.world > 1:
            self._library = Library(self.seat)
        heap = self._heap_for(trials, plans)
        own = self._operands(trials[0].problem, seed)
        return [self._prepared(trial, plan, heap, own) for trial, plan in zip(trials, plans, strict=True)]

    def _prepared(self, trial: Trial, plan: Plan, heap: Heap, own: Operands) -> CpuTrial:
        memory = layout.Memory(plan, heap, own)
        return CpuTrial(self, trial, Program(plan, memory, heap, Egress(trial.fabric), self._library))

    def _operands(self, problem: Problem, seed: int) -> Operands:
        if self._held is None or self._held[:2] != (problem, seed):
            self._held = (problem, seed, operands(problem, self.seat.rank, seed))
        return self._held[2]

    def _heap_for(self, trials: Sequence[Trial], plans: Sequence[Plan]) -> Heap:
        """A heap that is large enough: the old one, or a new generation that all ranks make together."""
        num_bytes = max(layout.heap_bytes(trial.problem, trial.schedule) for trial in trials)
        signals = 1 << max(max(len(plan) for plan in plans) - 1, 1023).bit_length()
        heap = self._heap
        if heap is None or heap.capacity < num_bytes or heap.signals < signals:
            self._heap = None
            self._generation += 1
            seat = self.seat if self.seat.shares_heap else self._alone
            self._heap = Heap(seat, self._generation, num_bytes, signals)
        assert self._heap is not None
        return self._heap

    def barrier(self) -> float:
        """All ranks meet; the common moment of leaving (across hosts: this rank's)."""
        if self.seat.shares_heap or self.seat.world == 1:
            assert self._heap is not None
            return self._heap.barrier()
        assert self._library is not None
        self._library.barrier()
        return clock()

    def next_epoch(self) -> int:
        """Epochs only rise, over all trials: a signal that an earlier call left cannot be taken for a new one."""
        self._epoch += 1
        return self._epoch

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank."""
        if self.seat.shares_heap or self.seat.world == 1:
            assert self._heap is not None
            return self._heap.exchange(values)
        assert self._library is not None
        return self._library.exchange(values)

    def close(self) -> None:
        """Unmaps the heap and leaves the process group."""
        self._heap = self._library = self._held = None


@dataclass
class CpuTrial:
    """One trial on one CPU rank."""

    backend: CpuBackend
    trial: Trial
    program: Program
    _starts: list[float] | None = None

    @property
    def roundings(self) -> int:
        """How often a value is rounded to the problem's dtype on its way to the output."""
        plan = self.program.plan
        pieces = len(set(plan.k_start[plan.kind == Kind.COMPUTE].tolist()))
        return self.trial.world + pieces

    def run(self) -> float:
        """One iteration of all ranks together, in seconds."""
        epoch, start = self.backend.next_epoch(), self.backend.barrier()
        self._starts = [*(self._starts or []), start]
        return self.program.run(start, epoch)

    def poison(self) -> None:
        """NaN in every buffer that a run has to write; all ranks must have poisoned before one runs."""
        self.program.memory.poison()

    def result(self) -> Tensor:
        return self.program.memory.result()

    def spans(self, iteration: int) -> list[Span]:
        assert self._starts is not None
        return self.program.spans(iteration, self._starts[iteration])

    def forget(self) -> None:
        self.program.records.clear()
        self._starts = None
