"""The triton backend: one rank of a gang of GPUs of one host, over torch's symmetric memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor

from kernels.backends.base import VALUES, Compiling, Hang, Seat, agreed_seed, report_nothing
from kernels.backends.triton import launch, nccl, refusals, timeline
from kernels.backends.triton.memory import Context, DeviceHeap, RankProcessGroup, private_bytes, shared_bytes
from kernels.backends.triton.schemes import OperandCalls, runner
from kernels.backends.triton.timing import GraphReplay, Meter, turns
from kernels.outcome import Span
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import SEED, Operands, alternated, alternative, operands, roundings
from kernels.schedule import Refusal
from kernels.schemes import expand
from kernels.schemes.concurrent import problems
from kernels.trial import Trial

# Operands that calls take in turns: so many sets that none finds its own in the L2, every fourth with other values.

COLD, SETS_MOST = 3, 64
"""Times the L2 that operands fill together, and most sets of them."""
TURN = 4
"""Sets come in multiples of it, the last of each with values 1. So what is left of any of the three calls before shows,
also where two places take turns, as those of packets do."""


def values_of(number: int) -> int:
    """Which values of the seed set *number* has."""
    return int(number % TURN == TURN - 1)


def copies_of(num_bytes: int, l2_bytes: int) -> int:
    """How many copies of *num_bytes*: three times the L2 together, or 64; from three on as many as there are sets."""
    count = min(SETS_MOST, ceil(COLD * l2_bytes / num_bytes))
    return count if count < TURN - 1 else count + -count % TURN


def operand_sets(
    of: Problem, rank: int, device: torch.device, *, seed: int = SEED, cold: bool = True
) -> list[Operands]:
    """Random operands of *rank*, by set, with the values that `values_of` says.

    Where they are to be *cold* sets are copies. Of operands so large that one or two copies do, sets share them, but
    for what differs between the values.
    """
    first = operands(of, rank, seed, str(device))
    changed = {alternated(of): alternative(of, rank, seed, first)}
    size = sum(tensor.nbytes for tensor in first.values())
    count = copies_of(size, l2_bytes(device)) if cold else 1
    copies = [first, *({name: tensor.clone() for name, tensor in first.items()} for _ in range(count - 1))]
    sets = [copies[number % count] for number in range(max(TURN, count))]
    return [own | _own(changed, number) if values_of(number) else own for number, own in enumerate(sets)]


def of_micro_batches(
    first: list[Operands], count: int, of: Problem, rank: int, device: torch.device, *, seed: int = SEED
) -> list[list[Operands]]:
    """For each of *count* micro-batches as many sets as *first*, which are those of the first micro-batch.

    Micro-batch i has the values 2 i and 2 i + 1 of *seed*. What does not differ is a copy, unless it fills the L2 by
    itself: so one micro-batch does not find there what another one has read.
    """
    made, name, most = [first], alternated(of), COLD * l2_bytes(device)
    for number in range(1, count):
        values = [alternative(of, rank, seed, first[0], VALUES * number + each) for each in range(VALUES)]
        copies: dict[int, Tensor] = {}
        for at, one in enumerate(first):
            for key, tensor in one.items():
                if tensor.data_ptr() not in copies:
                    source = values[values_of(at)] if key == name else tensor
                    copies[tensor.data_ptr()] = source if source is tensor and tensor.nbytes >= most else source.clone()
        made.append([{key: copies[tensor.data_ptr()] for key, tensor in one.items()} for one in first])
    return made


def _own(changed: Operands, number: int) -> Operands:
    """*changed* for set *number*: the first that has it takes it as it is, the others a copy."""
    return changed if number < TURN else {name: tensor.clone() for name, tensor in changed.items()}


def l2_bytes(device: torch.device) -> int:
    """Of this GPU."""
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def times_l2(sets: list[Operands], device: torch.device) -> float:
    """How many times *sets* fill the L2 together; what they share counts once."""
    sizes = {tensor.data_ptr(): tensor.nbytes for operands_of in sets for tensor in operands_of.values()}
    return sum(sizes.values()) / l2_bytes(device)


# The triton backend: one rank of a gang of GPUs of one host, over torch's symmetric memory.

Call = Callable[[], None]

LEAST_HEAP = 1 << 28


class TritonBackend:
    """The one GPU that this process sees. Group, heap and compiled kernels stay warm from trial to trial."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self._device = torch.device("cuda", 0)
        self.device = str(self._device)
        torch.cuda.set_device(self._device)
        self._group = RankProcessGroup(seat, self._device) if seat.world > 1 else None
        self._heap: DeviceHeap | None = None
        self._held: list[list[Operands]] | None = None
        """By micro-batch, then by set."""
        self.seed = 0
        """Of the operands of what was prepared last."""
        self.stream = torch.cuda.Stream(self._device)
        gpu = torch.cuda.get_device_properties(self._device)
        self._meter = Meter(str(gpu.uuid), gpu.name)

    def refusal(self, trial: Trial) -> str | None:
        """Why *trial* cannot run in this gang, or None: the same on every rank."""
        return refusals.refusal(trial, self.seat.shares_heap)

    def prepare(self, trials: Sequence[Trial], compiling: Compiling = report_nothing) -> list[TritonTrial]:
        """Compiles *trials*, all of one problem and none of them refused; Refusal where memory does not suffice."""
        nccl.forget(self._nccl)
        launch.forget_oldest()
        plans = [expand(trial.problem, trial.schedule) for trial in trials]
        shared = max(shared_bytes(plan) for plan in plans)
        private = [
            private_bytes(plan.problem, len(plan.tiles[self.seat.rank])) for plan in plans
        ]  # one after the other: trials take turns on the same data, but never on the same signals
        heap, sets = self._heap_for(shared + sum(private)), self._operands(trials)
        self._compile(trials, lambda number: self._context(heap, plans[number], shared), sets[0][0], compiling)
        prepared, start = [], shared
        for trial, plan, num_bytes in zip(trials, plans, private, strict=True):
            context = self._context(heap, plan, start)
            operands = [each for of_one in sets[: problems(trial.schedule)] for each in of_one]
            calls = runner(trial).calls(context, operands, trial.part, self._nccl)
            prepared.append(TritonTrial(self, trial, calls, context))
            start += num_bytes
        torch.cuda.synchronize(self._device)
        self.barrier()  # signals are 0 on all ranks before anybody's first call
        return prepared

    def _context(self, heap: DeviceHeap, plan: Plan, start: int) -> Context:
        return Context(heap, plan, self.seat.rank, self._device, start=start, limit_s=self.seat.deadline_s / 2)

    def _compile(
        self, trials: Sequence[Trial], context: Callable[[int], Context], operands: Operands, compiling: Compiling
    ) -> None:
        """The kernels of all *trials*; each rank begins elsewhere, and reads from Triton's files what others compiled.

        All meet after each, so that nobody waits for more than one compilation. *context* makes one of a trial for
        this alone: where its own buffers lie is decided when its calls are made.
        """
        count = len(trials)
        first = self.seat.rank * count // self.seat.world
        for number in range(count):
            at = (first + number) % count
            compiling(trials[at], number)
            with suppress(Refusal):  # said when its calls are made, by all ranks alike
                for kernel in runner(trials[at]).kernels(context(at), operands, trials[at].part):
                    kernel.compiled()
            if self._group is not None:
                self._group.barrier()

    @property
    def _nccl(self) -> object:
        return None if self._group is None else self._group.nccl

    def _operands(self, trials: Sequence[Trial]) -> list[list[Operands]]:
        """By micro-batch, sets that calls take in turns, so that the L2 is cold.

        They are drawn anew each time, from one seed on all ranks.
        """
        self._held = None  # the old ones go before the new ones come
        self.seed = agreed_seed(self.exchange)
        problem, rank, most = trials[0].problem, self.seat.rank, max(problems(trial.schedule) for trial in trials)
        first = operand_sets(problem, rank, self._device, seed=self.seed, cold=trials[0].protocol.cold_l2)
        self._held = of_micro_batches(first, most, problem, rank, self._device, seed=self.seed)
        return self._held

    def facts(self) -> dict[str, Any]:
        """How all trials that were prepared last are timed, for who reads their times."""
        assert self._held is not None
        return {
            "operand_sets": len(self._held[0]),
            "operand_times_l2": round(times_l2(self._held[0], self._device), 2),
            "nccl": nccl.settings(os.environ) if self._group is not None else {},
        }

    def _heap_for(self, num_bytes: int) -> DeviceHeap:
        if self._heap is None or self._heap.capacity < num_bytes:
            self._heap = None  # unmapped before the larger one is made
            size = max(LEAST_HEAP, 1 << (num_bytes - 1).bit_length())
            self._heap = DeviceHeap(self._group, self._device, size)
        return self._heap

    def barrier(self) -> float:
        """All ranks meet on the host, their GPUs idle."""
        torch.cuda.synchronize(self._device)
        if self._group is not None:
            self._group.barrier()
        return 0.0

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank."""
        return [list(values)] if self._group is None else self._group.exchange(values)

    def condition(self) -> dict[str, Any]:
        """Which GPU this is, and its clocks, power and temperature now."""
        return self._meter.read()

    def close(self) -> None:
        """Gives memory back and leaves the process group."""
        self._heap = self._held = None
        if self._group is not None:
            self._group.close()


@dataclass
class TritonTrial:
    """One trial on one GPU."""

    backend: TritonBackend
    trial: Trial
    calls: OperandCalls
    context: Context
    _replays: list[GraphReplay] = field(default_factory=list, init=False)
    """Taken in turns: a graph of few calls has few sets of operands."""
    _calls: int = field(default=0, init=False)
    """Of one graph."""
    _last: int = field(default=0, init=False)
    """The set of operands that the last call of the last graph takes."""
    _shown: int = field(default=0, init=False)
    """The micro-batch whose result is asked for."""
    _captured: dict[str, Any] = field(default_factory=dict, init=False)
    """What the graphs hold, where calls want it told."""

    @property
    def roundings(self) -> int:
        """How often a value is rounded to the problem's dtype on its way to the output."""
        return roundings(self.context.plan)

    @property
    def seed(self) -> int:
        """Of its operands."""
        return self.backend.seed

    def facts(self) -> dict[str, Any]:
        """How it is timed, beside its protocol."""
        calls = {"calls_per_graph": self._calls} if self.trial.protocol.cuda_graph else {}
        return {**self.backend.facts(), **calls, **self.calls.facts, **self._captured}

    def rehearse(self) -> Iterator[int]:
        """The first call, on operands of values 0; then all graphs, as they will be timed: the last call's are 1.

        The result is poisoned before either, so that each of them has to write it. torch's overlapped operators give
        the result other memory while they are captured: that is poisoned, and the eager call's was verified before.
        """
        self.poison()
        typical_s = self._eager()[1]
        yield from self._shown_in_turn(0)
        self._capture(typical_s)
        if self.trial.protocol.cuda_graph:  # what is verified is what is timed
            self.poison()
            self.backend.barrier()
            for replay in self._replays:  # all, since the result may be that of one set of operands
                replay.seconds()
            self._check()
            yield from self._shown_in_turn(values_of(self._last))

    def _shown_in_turn(self, values: int) -> Iterator[int]:
        """The values of each micro-batch of a call that took *values* of each; `result` is meanwhile its."""
        for number in range(len(self.calls.results)):
            self._shown = number
            yield VALUES * number + values

    def run(self) -> float:
        """One sample: the mean of the calls of one graph, all ranks having met before the first, for each problem."""
        each = len(self.calls.results)
        if not self._replays:
            seconds, typical_s = self._eager()
            self._capture(typical_s)
            return seconds / each
        self.backend.barrier()
        self._replays.append(self._replays.pop(0))
        seconds = self._replays[-1].seconds()
        self._check()
        return seconds / each

    def _eager(self) -> tuple[float, float]:
        """Seconds of the first call, which compiles, and of a typical one of all ranks; the result is set 0's."""
        self.backend.barrier()
        one = GraphReplay(self.context, [self.calls.each[0]], self.backend.stream, captured=False)
        seconds = one.seconds()
        self._check()
        self.backend.barrier()
        typical = max(min(one.seconds() for _ in range(3)), 1e-6)
        (typical,) = map(max, zip(*self.backend.exchange([typical]), strict=True))
        return seconds, typical

    def _capture(self, typical_s: float) -> None:
        """The graphs that are timed; nothing runs, and the result may be memory that only a replay writes."""
        protocol = self.trial.protocol
        for numbers in turns(protocol, len(self.calls.each), typical_s):
            calls = [self.calls.each[number] for number in numbers]
            self._replays.append(GraphReplay(
                self.context, calls, self.backend.stream, captured=protocol.cuda_graph, kept=self.calls.read is not None
            ))  # fmt: skip
            self._calls, self._last = len(numbers), numbers[-1]
        if protocol.cuda_graph and self.calls.read is not None:
            try:
                self._captured = dict(self.calls.read(self._replays[-1].kernels()))
            except Exception as error:  # what was captured can be timed all the same
                self._captured = {"controls": {"unread": f"{type(error).__name__}: {error}"}}

    def _check(self) -> None:
        if sentence := self.context.failure():
            raise Hang(sentence)

    def poison(self) -> None:
        """NaN in all results, which every call has to write; all ranks must have poisoned before one runs."""
        for result in self.calls.results:
            result.fill_(float("nan"))

    def result(self) -> Tensor:
        torch.cuda.synchronize(self.context.device)
        return self.calls.results[self._shown]

    def spans(self, iteration: int) -> list[Span]:
        """Of one call more, which was not timed: its kernels write down what they do. None of a part."""
        watched = runner(self.trial).watched
        if self.trial.part != "whole" or watched is None:
            return []
        make = partial(watched, self.context, self.calls)
        captured = self.trial.protocol.cuda_graph
        return timeline.spans(self.backend, self.context, make, self._replays[-1].enqueue, captured=captured)

    def forget(self) -> None:
        """Nothing is kept of an iteration."""
