"""The triton backend: one rank of a gang of GPUs, of one host over symmetric memory, or of several by puts of NCCL."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor

from kernels.backends.base import VALUES, Ahead, Compiling, Hang, MissingSpans, Seat, agreed_seed, report_nothing
from kernels.backends.triton import launch, nccl, refusals, timeline
from kernels.backends.triton.gin.context import NetworkContext, WindowHeap, network_trial_bytes
from kernels.backends.triton.gin.gang import NetworkBarrier, NetworkGang, WithoutGin, count_hosts, one_rank_a_host
from kernels.backends.triton.launch import Call
from kernels.backends.triton.memory import (
    Context,
    DeviceHeap,
    RankProcessGroup,
    architecture_of,
    forget_workspaces,
    private_bytes,
    shared_bytes,
)
from kernels.backends.triton.schemes import OperandCalls, runner
from kernels.backends.triton.timing import AHEAD_MOST, GraphReplay, LibraryBarrier, replayed_ahead, turns
from kernels.fabric import least_wait_s, sharing_mismatch
from kernels.nvml import Meter
from kernels.outcome import Span
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import SEED, Operands, alternated, alternative, operands, roundings
from kernels.schedule import Refusal
from kernels.schemes import expand
from kernels.schemes.axis_rules import puts_between_hosts
from kernels.schemes.concurrent import problems
from kernels.trial import Trial

# Operand sets that the calls rotate through: so many that no set is still in the L2, every fourth with other values.

COLD, SETS_MOST = 3, 64
"""How many times the operand sets together fill the L2, and the largest number of sets."""
TURN = 4
"""Sets come in multiples of this number, and the last set of each multiple has values 1. A result left over from any of
the three calls before is therefore visible, also where two places alternate, as those of packets do."""


def values_of(number: int) -> int:
    """Which values of the seed operand set *number* has: 0 or 1."""
    return int(number % TURN == TURN - 1)


def copies_of(num_bytes: int, l2_bytes: int) -> int:
    """Number of copies of *num_bytes* that fill the L2 three times, at most 64; from three on a multiple of TURN."""
    count = min(SETS_MOST, ceil(COLD * l2_bytes / num_bytes))
    return count if count < TURN - 1 else count + -count % TURN


def operand_sets(
    of: Problem, rank: int, device: torch.device, *, seed: int = SEED, cold: bool = True
) -> list[Operands]:
    """Random operands of *rank*, by set, with the values that `values_of` gives.

    With *cold* the sets are copies that together overflow the L2. Sets of large operands, for which one or two copies
    suffice, share them, except for the operand that differs between the values.
    """
    first = operands(of, rank, seed, str(device))
    changed = {alternated(of): alternative(of, rank, seed, first)}
    size = sum(tensor.nbytes for tensor in first.values())
    count = copies_of(size, l2_bytes(device)) if cold else 1
    copies = [first, *({name: tensor.clone() for name, tensor in first.items()} for _ in range(count - 1))]
    sets = [copies[number % count] for number in range(max(TURN, count))]
    return [
        each | _changed_operands(changed, number) if values_of(number) else each for number, each in enumerate(sets)
    ]


def of_micro_batches(
    first: list[Operands], count: int, of: Problem, rank: int, device: torch.device, *, seed: int = SEED
) -> list[list[Operands]]:
    """Operand sets of *count* micro-batches; *first* are those of the first one, and the others have as many.

    Micro-batch i has the values 2 i and 2 i + 1 of *seed*. An operand that does not differ is copied, unless it fills
    the L2 by itself: a micro-batch never hits in the L2 what another one has read.
    """
    by_batch, name, most = [first], alternated(of), COLD * l2_bytes(device)
    for number in range(1, count):
        values = [alternative(of, rank, seed, first[0], VALUES * number + each) for each in range(VALUES)]
        copies: dict[int, Tensor] = {}
        for at, operand_set in enumerate(first):
            for key, tensor in operand_set.items():
                if tensor.data_ptr() not in copies:
                    source = values[values_of(at)] if key == name else tensor
                    copies[tensor.data_ptr()] = source if source is tensor and tensor.nbytes >= most else source.clone()
        by_batch.append([{key: copies[tensor.data_ptr()] for key, tensor in each.items()} for each in first])
    return by_batch


def _changed_operands(changed: Operands, number: int) -> Operands:
    """*changed* for set *number*: the first set that needs it takes it as it is, the others take a copy."""
    return changed if number < TURN else {name: tensor.clone() for name, tensor in changed.items()}


def l2_bytes(device: torch.device) -> int:
    """Size of the L2 of this GPU in bytes."""
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def times_l2(sets: list[Operands], device: torch.device) -> float:
    """How many times *sets* together fill the L2; a tensor that several sets share counts once."""
    sizes = {tensor.data_ptr(): tensor.nbytes for operands_of in sets for tensor in operands_of.values()}
    return sum(sizes.values()) / l2_bytes(device)


# The backend object, and one prepared trial of it.

LEAST_HEAP = 1 << 28
"""Bytes of the smallest heap."""


class TritonBackend:
    """Runs trials on the one GPU that this process sees. Group, heap and compiled kernels stay warm between trials."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self._device = torch.device("cuda", 0)
        self.device = str(self._device)
        torch.cuda.set_device(self._device)
        self._group = RankProcessGroup(seat, self._device) if seat.world > 1 else None
        self._heap: DeviceHeap | None = None
        self._network: NetworkGang | None = None
        """The communicator of ranks on several hosts; None before the first trial, or on one host."""
        self._without_gin: str | None = None
        """Why the hosts of this gang have no communicator that puts; None before the first trial, or if they have."""
        self._hosts = count_hosts(self._group, os.environ) if self._group is not None and self._across else 1
        self._operand_sets: list[list[Operands]] | None = None
        """Operands by micro-batch, then by set."""
        self.seed = 0
        """Seed of the operands of the trials that were prepared last."""
        self.stream = torch.cuda.Stream(self._device)
        gpu = torch.cuda.get_device_properties(self._device)
        self._meter = Meter(str(gpu.uuid), gpu.name)

    def refusal(self, trial: Trial) -> str | None:
        """Why *trial* cannot run in this gang, or None; every rank gives the same answer."""
        return (
            sharing_mismatch(trial.fabric, trial.backend, self.seat.ranks_on_gpu)
            or (one_rank_a_host(self.seat, self._hosts) if trial.fabric.across else None)
            or refusals.of_gpu(trial, architecture_of(self._device))
            or refusals.refusal(trial, self.seat.shares_heap)
        )

    def prepare(self, trials: Sequence[Trial], compiling: Compiling = report_nothing) -> list[TritonTrial]:
        """Compiles *trials*, all of one problem and none of them refused; Refusal if memory does not suffice."""
        nccl.forget(self._nccl)
        if self._network is not None:
            self._network.forget()
        launch.forget_oldest()
        plans = [expand(trial.problem, trial.schedule) for trial in trials]
        shared, puts = max(shared_bytes(plan) for plan in plans), any(puts_between_hosts(t.schedule) for t in trials)
        private = [
            network_trial_bytes(plan) if puts else private_bytes(plan, self.seat.rank) for plan in plans
        ]  # one after another: trials reuse the same data buffers, but never the same signals
        heap, sets = self._heap_for(shared + sum(private), puts), self._operands(trials)
        self._compile(trials, lambda number: self._context(heap, plans[number], shared), sets[0][0], compiling)
        prepared, start = [], shared
        for trial, plan, num_bytes in zip(trials, plans, private, strict=True):
            context = self._context(heap, plan, start, linked=True)
            operands = [each for batch in sets[: problems(trial.schedule)] for each in batch]
            calls = runner(trial).calls(context, operands, trial.part, self._nccl)
            prepared.append(TritonTrial(self, trial, calls, context))
            start += num_bytes
        torch.cuda.synchronize(self._device)
        self.barrier()  # signals are 0 on all ranks before any rank's first call
        for each in prepared if self._across else ():
            each.load()
        return prepared

    @property
    def _across(self) -> bool:
        """Whether the ranks are on several hosts."""
        return self.seat.world > 1 and not self.seat.shares_heap

    def _context(self, heap: DeviceHeap | WindowHeap, plan: Plan, start: int, *, linked: bool = False) -> Context:
        """Memory of one trial; *linked*: with signals between hosts, which all ranks make together."""
        limit_s = max(self.seat.deadline_s / 2, least_wait_s(self.seat.ranks_on_gpu))
        if isinstance(heap, WindowHeap):
            assert self._network is not None
            return self._network.context(heap, plan, start, limit_s, linked=linked)
        return Context(heap, plan, self.seat.rank, self._device, start=start, limit_s=limit_s)

    def _compile(
        self, trials: Sequence[Trial], context: Callable[[int], Context], operands: Operands, compiling: Compiling
    ) -> None:
        """Compiles all *trials*; each rank starts at another one and loads from Triton's cache what others compiled.

        All ranks meet after each trial, so none waits for more than one compilation. *context* makes a temporary
        context of a trial: where its buffers lie is decided when its calls are made.
        """
        count = len(trials)
        first = self.seat.rank * count // self.seat.world
        for number in range(count):
            at = (first + number) % count
            compiling(trials[at], number)
            with suppress(Refusal):  # raised again when its calls are made, on all ranks alike
                for kernel in runner(trials[at]).kernels(context(at), operands, trials[at].part):
                    kernel.compiled()
            if self._group is not None:
                self._group.barrier()

    @property
    def _nccl(self) -> object:
        return None if self._group is None else self._group.nccl

    def _operands(self, trials: Sequence[Trial]) -> list[list[Operands]]:
        """Operand sets by micro-batch, which calls rotate through so that the L2 is cold.

        They are drawn anew each time, from one seed on all ranks.
        """
        self._operand_sets = None  # freed before the new ones are allocated
        self.seed = agreed_seed(self.exchange)
        problem, rank, most = trials[0].problem, self.seat.rank, max(problems(trial.schedule) for trial in trials)
        first = operand_sets(problem, rank, self._device, seed=self.seed, cold=trials[0].protocol.cold_l2)
        self._operand_sets = of_micro_batches(first, most, problem, rank, self._device, seed=self.seed)
        return self._operand_sets

    def facts(self) -> dict[str, Any]:
        """How the trials that were prepared last are timed: recorded with every measurement."""
        assert self._operand_sets is not None
        return {
            "operand_sets": len(self._operand_sets[0]),
            "operand_times_l2": round(times_l2(self._operand_sets[0], self._device), 2),
            "nccl": nccl.settings(os.environ) if self._group is not None else {},
        }

    def _heap_for(self, num_bytes: int, puts: bool) -> DeviceHeap | WindowHeap:
        """Memory of the trials: a window where some of them put between hosts."""
        if puts:
            return self._network_gang().heap(max(LEAST_HEAP, num_bytes))
        if self._heap is None or self._heap.capacity < num_bytes:
            self._heap = None  # unmapped before the larger one is allocated
            size = max(LEAST_HEAP, 1 << (num_bytes - 1).bit_length())
            self._heap = DeviceHeap(self._group, self._device, size, shared=not self._across)
        return self._heap

    def _network_gang(self) -> NetworkGang:
        """The communicator of this gang's hosts; Refusal if they have no GIN, from then on at once."""
        if self._without_gin is not None:
            raise Refusal(self._without_gin)
        if self._network is None:
            assert self._group is not None
            try:
                self._network = NetworkGang(self._group, self._device)
            except WithoutGin as refused:
                self._without_gin = str(refused)
                raise
        return self._network

    def barrier(self) -> float:
        """All ranks meet on the host, their GPUs idle."""
        torch.cuda.synchronize(self._device)
        if self._group is not None:
            self._group.barrier()
        return 0.0

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank."""
        return [list(values)] if self._group is None else self._group.exchange(values)

    def condition(self) -> dict[str, Any]:
        """Identity, clocks, power, temperature and limits of this GPU at this moment."""
        return self._meter.read() | self._meter.limits()

    def give_up(self) -> None:
        """Ends puts between hosts after a failure, so that no kernel of this rank spins; the rank is then replaced."""
        if self._network is not None:
            self._network.abort()

    def close(self) -> None:
        """Frees the memory. The next gang, or the end of the process, leaves the process group."""
        self._heap = self._operand_sets = None
        forget_workspaces()
        gc.collect()  # NCCL ends no communicator whose calls a graph still holds
        if self._network is not None:
            self._network.close()


@dataclass
class TritonTrial:
    """One prepared trial on one GPU."""

    backend: TritonBackend
    trial: Trial
    calls: OperandCalls
    context: Context
    _replays: list[GraphReplay] = field(default_factory=list, init=False)
    """Graphs that samples rotate through: a graph of few calls covers few sets of operands."""
    _calls: int = field(default=0, init=False)
    """Number of calls of one graph."""
    _last: int = field(default=0, init=False)
    """Number of the operand set that the last call of the last graph takes."""
    _shown: int = field(default=0, init=False)
    """Number of the micro-batch whose result `result` returns."""
    _captured: dict[str, Any] = field(default_factory=dict, init=False)
    """Facts of the kernels in the captured graphs, if the calls define any."""

    @property
    def roundings(self) -> int:
        """How often a value is rounded to the problem's dtype on its way to the output."""
        return roundings(self.context.plan)

    @property
    def seed(self) -> int:
        """Seed of its operands."""
        return self.backend.seed

    def facts(self) -> dict[str, Any]:
        """How it is timed, in addition to its protocol."""
        calls = {"calls_per_graph": self._calls} if self.trial.protocol.cuda_graph else {}
        return {**self.backend.facts(), **calls, **self.calls.facts, **self._captured}

    def load(self) -> None:
        """Makes one call without a meeting before it; all ranks do, one trial after the other.

        What a call launches for the first time is loaded, and NCCL connects. Behind a meeting that would wait for a
        kernel that spins, and so would the thread that copies messages where it calls the driver.
        """
        with torch.cuda.stream(self.backend.stream):
            self.calls.each[0]()
        torch.cuda.synchronize(self.context.device)
        self._check()
        self.backend.barrier()  # trials share their data

    def rehearse(self) -> Iterator[int]:
        """Runs the first call, on values 0, then all graphs as they will be timed; yields the values to verify.

        The result is poisoned before each of the two, so that each has to write it. torch's overlapped operators give
        the result other memory during capture: that memory is poisoned, and the eager result was verified before.
        """
        self.poison()
        typical_s = self._eager()[1]
        yield from self._by_micro_batch(0)
        self._capture(typical_s)
        if self.trial.protocol.cuda_graph:  # the graphs that are verified are those that are timed
            self.poison()
            self.backend.barrier()
            for replay in self._replays:  # all of them, since the result may belong to one set of operands only
                replay.seconds()
            self._check()
            yield from self._by_micro_batch(values_of(self._last))

    def _by_micro_batch(self, values: int) -> Iterator[int]:
        """Yields the values of each micro-batch of a call that took *values*; `result` returns that micro-batch's."""
        for number in range(len(self.calls.results)):
            self._shown = number
            yield VALUES * number + values

    def run(self) -> float:
        """Seconds per problem of one sample: the mean over the calls of one graph, which all ranks start together."""
        problem_count = len(self.calls.results)
        if not self._replays:
            seconds, typical_s = self._eager()
            self._capture(typical_s)
            return seconds / problem_count
        self.backend.barrier()
        self._replays.append(self._replays.pop(0))
        seconds = self._replays[-1].seconds()
        self._check()
        return seconds / problem_count

    def run_ahead(self, count: int) -> Ahead:
        """Replays that follow each other on the GPU; between hosts one by one: queues of the network are short."""
        if not self._replays or self._barrier is not None:
            return Ahead([self.run() for _ in range(count)], None)
        seconds: list[float] = []
        shares: list[float] = []
        problem_count = len(self.calls.results)
        stamps = torch.zeros(AHEAD_MOST, 2, dtype=torch.int64, device=self.context.device)
        while len(seconds) < count:
            self.backend.barrier()
            some = [self._replays[number % len(self._replays)]
                    for number in range(len(seconds), min(count, len(seconds) + AHEAD_MOST))]  # fmt: skip
            ahead = replayed_ahead(some, self.backend.stream, stamps[: len(some)])
            self._check()
            seconds += [each / problem_count for each in ahead.seconds]
            shares.append(ahead.busy_share or 0.0)
        return Ahead(seconds, sum(shares) / len(shares))

    def _eager(self) -> tuple[float, float]:
        """Seconds of the first call, which compiles, and of a typical one of all ranks; the result is of set 0."""
        eager = GraphReplay(self.context, [self.calls.each[0]], self.backend.stream, captured=False,
                            barrier=self._barrier)  # fmt: skip
        self.backend.barrier()
        seconds = eager.seconds()
        self._check()
        self.backend.barrier()
        typical = max(min(eager.seconds() for _ in range(3)), 1e-6)
        (typical,) = map(max, zip(*self.backend.exchange([typical]), strict=True))
        return seconds, typical

    def _capture(self, typical_s: float) -> None:
        """Captures the graphs that are timed; nothing runs, and the result may be memory that only a replay writes."""
        protocol = self.trial.protocol
        for numbers in turns(protocol, len(self.calls.each), typical_s):
            calls = [self.calls.each[number] for number in numbers]
            self._replays.append(GraphReplay(
                self.context, calls, self.backend.stream, captured=protocol.cuda_graph,
                keeps_nodes=self.calls.graph_facts is not None, barrier=self._barrier,
            ))  # fmt: skip
            self._calls, self._last = len(numbers), numbers[-1]
        if protocol.cuda_graph and self.calls.graph_facts is not None:
            try:
                self._captured = dict(self.calls.graph_facts(self._replays[-1].kernels()))
            except Exception as error:  # the captured graph can be timed all the same
                self._captured = {"controls": {"unread": f"{type(error).__name__}: {error}"}}

    def _check(self) -> None:
        if message := self.context.failure():
            self.backend.give_up()
            raise Hang(message)

    @property
    def _barrier(self) -> Callable[[Tensor], Call] | None:
        """Makes the barrier at the start of a sample; None: that of ranks of one host."""
        if isinstance(self.context, NetworkContext):
            return partial(NetworkBarrier, self.context)
        return partial(LibraryBarrier, self.backend._nccl) if self.trial.fabric.across else None

    def poison(self) -> None:
        """Fills all results with NaN, which every call has to overwrite; all ranks must poison before any runs."""
        for result in self.calls.results:
            result.fill_(float("nan"))

    def result(self) -> Tensor:
        torch.cuda.synchronize(self.context.device)
        return self.calls.results[self._shown]

    def spans(self, iteration: int) -> list[Span]:
        """Spans of one further, untimed call whose kernels record stamps; none if only a part of the trial runs."""
        watched = runner(self.trial).watched
        if self.trial.part != "whole" or watched is None:
            return []
        if (reason := refusals.unseen(self.trial, self.context.plan)) is not None:
            raise MissingSpans(reason)
        make = partial(watched, self.context, self.calls)
        captured = self.trial.protocol.cuda_graph
        return timeline.spans(self.backend, self.context, make, self._replays[-1].enqueue, captured=captured)

    def forget(self) -> None:
        """Nothing is kept per iteration."""
