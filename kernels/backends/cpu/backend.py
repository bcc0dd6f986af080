"""The cpu backend: one rank of a gang over shared memory, or across hosts with the library alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernels.backends.base import VALUES, Ahead, Compiling, Seat, agreed_seed, report_nothing
from kernels.backends.cpu import layout, pooling
from kernels.backends.cpu.gloo import Library
from kernels.backends.cpu.heap import SegmentHeap, clock
from kernels.backends.cpu.link import Egress, longest_wire_seconds
from kernels.backends.cpu.program import PlanProgram
from kernels.backends.cpu.refusals import refusal
from kernels.operators import OPERATORS
from kernels.outcome import Span
from kernels.plan import Kind, Plan
from kernels.problem import Problem
from kernels.reference import Operands, alternated, alternative, operands, roundings, torch_dtype
from kernels.schemes import expand
from kernels.schemes.concurrent import problems
from kernels.trial import Trial
from kernels.units import seconds_text


def _unresolved(trial: Trial) -> str | None:
    """Why the trial's link has no bandwidth yet, or None: it is resolved before a rank gets the trial."""
    if trial.fabric.resolved:
        return None
    return (
        f"fabric = {trial.fabric} has no bandwidth yet. The bandwidth follows from the time of the computation "
        "alone. Accepted: the fabric after Fabric.resolve, or bandwidth_bytes_per_second = a number."
    )


class CpuBackend:
    """One rank. Its heap and process group stay warm from trial to trial and from gang to gang."""

    device = "cpu"

    def __init__(self, seat: Seat) -> None:
        torch.set_num_threads(1)
        pooling.warm()
        self._heap: SegmentHeap | None = None
        self._generation = 0
        self._library: Library | None = None
        self.seat = seat
        self._epoch = 0
        self.seed = 0
        """Seed of the operands that were prepared last."""
        self._operands: list[Operands] = []
        """Operands by micro-batch; all but the one that alternates are the same tensors, as weights are."""
        self._problem: Problem | None = None
        """The problem of these operands."""
        self._first: Operands = {}
        """Operands of the first micro-batch in values 0."""
        self._values = 0
        """Which of its two sets of values each micro-batch has now."""

    @property
    def seat(self) -> Seat:
        """This rank's place, with a session that is a valid file name."""
        return self._seat

    @seat.setter
    def seat(self, seat: Seat) -> None:
        self._seat = replace(seat, session=re.sub(r"\W", "_", seat.session))
        self._alone = replace(self._seat, rank=0, world=1, session=f"{self._seat.session}_{seat.rank}")
        if self._heap is not None:
            self._heap.seat = self._heap_seat
        if self._library is not None:
            self._library.wait_at_most(seat.deadline_s)

    @property
    def _heap_seat(self) -> Seat:
        """The place in the heap's gang: each rank of several hosts has a heap to itself."""
        return self._seat if self._seat.shares_heap else self._alone

    def refusal(self, trial: Trial) -> str | None:
        """Why *trial* cannot run in this gang, or None: the same on every rank."""
        return refusal(trial, self.seat.shares_heap) or _unresolved(trial) or self._too_slow(trial)

    def _too_slow(self, trial: Trial) -> str | None:
        """Why the link is too slow, or None: a wait beyond the deadline counts as a hang."""
        plan, fabric = expand(trial.problem, trial.schedule), trial.fabric
        wire_s = longest_wire_seconds(plan, fabric)
        if wire_s <= self.seat.deadline_s / 2:
            return None
        return (
            f"{fabric} is too slow. One iteration takes {seconds_text(wire_s)} on it, and a rank waits at most "
            f"{seconds_text(self.seat.deadline_s)}. Accepted: a link that takes half of that."
        )

    def prepare(self, trials: Sequence[Trial], compiling: Compiling = report_nothing) -> list[CpuTrial]:
        """Compiles *trials*, all of one problem and none of them refused; Refusal where memory does not suffice."""
        plans = [expand(trial.problem, trial.schedule).part(trial.part) for trial in trials]
        needs_library = any((plan.kind == Kind.COLLECTIVE).any() for plan in plans) or not self.seat.shares_heap
        if needs_library and self._library is None and self.seat.world > 1:
            self._library = Library(self.seat)
        heap, problem = self._heap_for(trials, plans), trials[0].problem
        count, extent = max(problems(trial.schedule) for trial in trials), OPERATORS[problem.operator].extent(problem)
        sets, shape = self._draw(problem, count), (extent.rows, extent.columns)
        # shared by all trials of this run, and written once: pages that were never touched are read too fast
        local_MN = [torch.zeros(shape, dtype=torch_dtype(problem)).fill_(1) for _ in range(count)]
        prepared = []
        for number, (trial, plan) in enumerate(zip(trials, plans, strict=True)):
            compiling(trial, number)
            memories = [
                layout.Memory(plan, self.seat.rank, heap, sets[at], local_MN[at], at * _heap_bytes(trial))
                for at in range(problems(trial.schedule))
            ]
            egress = Egress(trial.fabric, self.seat.rank, trial.world)
            prepared.append(CpuTrial(self, trial, PlanProgram(plan, memories, heap, egress, self._library)))
        return prepared

    def _draw(self, problem: Problem, count: int) -> list[Operands]:
        """Operands of *count* micro-batches from one seed on all ranks, drawn again for each problem.

        Later lists of the same problem keep them, and so the reference, which takes as long as many iterations.
        """
        if not self._is_drawn(problem):
            self._draw_again(problem)
        name = alternated(problem)
        for number in range(len(self._operands), count):
            self._operands.append(self._operands[0] | {name: self._value(problem, number).clone()})
        return self._operands

    def _is_drawn(self, problem: Problem) -> bool:
        """Whether all ranks hold the same operands of *problem*."""
        seed = float(self.seed) if self._problem == problem else -1.0
        seeds = {of_rank for (of_rank,) in self.exchange([seed])}
        return seeds == {seed} and seed >= 0

    def _draw_again(self, problem: Problem) -> None:
        self._operands, self._first = [], {}  # the old ones are freed before the new ones are drawn
        self.seed, self._values, self._problem = agreed_seed(self.exchange), 0, problem
        drawn, name = operands(problem, self.seat.rank, self.seed), alternated(problem)
        self._operands, self._first = [drawn], drawn | {name: drawn[name].clone()}

    def _value(self, problem: Problem, number: int) -> Tensor:
        """The alternating operand of micro-batch *number* in its present values."""
        values = VALUES * number + self._values
        of_seed = (problem, self.seat.rank, self.seed, self._first)
        return alternative(*of_seed, values) if values else self._first[alternated(problem)]

    def alternate(self, problem: Problem) -> int:
        """Gives the operands of every micro-batch the other values, in place; returns which of the two these are."""
        self._values = 1 - self._values
        for number, operands_of in enumerate(self._operands):
            operands_of[alternated(problem)].copy_(self._value(problem, number))
        return self._values

    def _heap_for(self, trials: Sequence[Trial], plans: Sequence[Plan]) -> SegmentHeap:
        """A heap that is large enough: the old one, or a new generation that all ranks make together."""
        num_bytes = max(problems(trial.schedule) * _heap_bytes(trial) for trial in trials)
        return self._heap_for_bytes(num_bytes, 1 << max(max(len(plan) for plan in plans) - 1, 1023).bit_length())

    def _heap_for_bytes(self, num_bytes: int, signals: int) -> SegmentHeap:
        if self._heap is None or self._heap.capacity < num_bytes or self._heap.signals < signals:
            self._heap = None  # unmapped before the larger one is made
            self._generation += 1
            self._heap = SegmentHeap(self._heap_seat, self._generation, num_bytes, signals)
        assert self._heap is not None
        return self._heap

    def barrier(self) -> float:
        """Waits until all ranks are here; returns the common moment of leaving (across hosts: this rank's)."""
        if self.seat.shares_heap or self.seat.world == 1:
            assert self._heap is not None
            return self._heap.barrier()
        assert self._library is not None
        self._library.barrier()
        return clock()

    def next_epoch(self) -> int:
        """The number of the next call. It only rises, so that no earlier call's signal passes for a new one."""
        self._epoch += 1
        return self._epoch

    def condition(self) -> dict[str, Any]:
        """An empty reading: clocks of CPU ranks' cores are not read."""
        return {}

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """All ranks' *values*, by rank."""
        if self.seat.shares_heap or self.seat.world == 1:
            assert self._heap is not None
            return self._heap.exchange(values)
        assert self._library is not None
        return self._library.exchange(values)

    def close(self) -> None:
        """Unmaps the heap and leaves the process group."""
        self._heap = self._library = self._problem = None
        self._operands, self._first = [], {}


def _heap_bytes(trial: Trial) -> int:
    """Bytes of heap from one of the trial's problems to the next."""
    return layout.num_bytes(trial.problem, trial.schedule)


@dataclass
class CpuTrial:
    """One trial on one CPU rank."""

    backend: CpuBackend
    trial: Trial
    program: PlanProgram
    _shown: int = 0
    """The micro-batch whose result is compared."""
    _starts: list[float] | None = None

    @property
    def roundings(self) -> int:
        """How often a value is rounded to the problem's dtype on its way to the output."""
        return roundings(self.program.plan)

    def run_ahead(self, count: int) -> Ahead:
        """One iteration after the other: a CPU rank has no queue, and does not run under steady load."""
        return Ahead([self.run() for _ in range(count)], None)

    def run(self) -> float:
        """Runs one iteration on all ranks together; returns the seconds of each of its problems."""
        epoch, start = self.backend.next_epoch(), self.backend.barrier()
        self._starts = [*(self._starts or []), start]
        return self.program.run(start, epoch) / len(self.program.memories)

    @property
    def seed(self) -> int:
        """Seed of its operands."""
        return self.backend.seed

    def facts(self) -> dict[str, Any]:
        """An empty description: each micro-batch has one set of operands, and every call reads the same ones."""
        return {}

    def rehearse(self) -> Iterator[int]:
        """Runs one iteration on poisoned buffers, then one on the operands' other values, whose result is compared.

        What the second one does not write is poison or belongs to the first one's values, and is wrong either way.
        """
        for memory in self.program.memories:
            memory.poison()  # all ranks have poisoned before one runs, since they meet first
        self.run()
        values = self.backend.alternate(self.trial.problem)
        for memory in self.program.memories:
            memory.place()
        self.run()
        for number in range(len(self.program.memories)):
            self._shown = number
            yield VALUES * number + values

    def result(self) -> Tensor:
        """This rank's result of the micro-batch that `rehearse` has reached."""
        return self.program.memories[self._shown].result()

    def spans(self, iteration: int) -> list[Span]:
        assert self._starts is not None
        return self.program.spans(iteration, self._starts[iteration])

    def forget(self) -> None:
        self.program.records.clear()
        self._starts = None
