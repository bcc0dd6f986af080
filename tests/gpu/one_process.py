"""Several ranks in one process on one GPU: a heap, a stream and a share of the SMs each.

Their kernels truly run side by side, where processes that share a GPU take turns of some milliseconds.

For tests only: `python -m tests.gpu.one_process` tries every fused operator with halves and quarters, a line each.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import torch
from torch import Tensor

from kernels.backends.triton.backend import operand_sets, values_of
from kernels.backends.triton.launch import Call
from kernels.backends.triton.memory import Context, private_bytes, shared_bytes
from kernels.backends.triton.schemes import fused
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.reference import bound, expected, roundings
from kernels.schemes import expand
from kernels.trial import Trial
from tests.gpu import wrapping
from tests.gpu.wrapping import FEW, GEMM, SHAPES
from tests.kernels.backends.triton.conftest import gpu_trial

WORLDS = (2, 4)
CALLS = 200
SEED, LIMIT_S = 20261126, 5.0
PAUSE_MOST_CYCLES = 200_000
"""About 0.1 ms: several calls of the other ranks, were they not to wait."""


class CommonHeap:
    """One rank's view of the memory of all ranks of this process."""

    def __init__(self, by_rank: Sequence[Tensor]) -> None:
        self.capacity, self._by_rank = by_rank[0].nbytes, by_rank

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset*."""
        return self._by_rank[rank][offset : offset + prod(shape) * dtype.itemsize].view(dtype).view(*shape)


class RankOfOneProcess:
    """One rank: its stream, a call for each set of operands on its share of the SMs, and what was wrong so far."""

    def __init__(self, by_rank: Sequence[Tensor], plan: Plan, rank: int, start: int) -> None:
        of, device = plan.problem, torch.device("cuda", 0)
        self.context = Context(CommonHeap(by_rank), plan, rank, device, start=start, limit_s=LIMIT_S)
        self.stream, self._chance = torch.cuda.Stream(), random.Random(rank)
        sets = operand_sets(of, rank, device, seed=SEED, cold=False)
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        # all programs of all ranks are resident at once: a rank whose programs queue would be waited for in vain
        kernels = [replace(fused.kernel(self.context, each), grid=sms // of.world) for each in sets]
        self._calls: list[Call] = fused.launches(kernels)
        self._truths = [expected(of, rank, SEED, str(device), values_of(number)) for number in range(len(sets))]
        rounded = bound(of, roundings(plan))
        self._limits = [rounded * float(truth.square().mean().sqrt()) for truth in self._truths]
        self._wrong = torch.zeros((), dtype=torch.int64, device=device)

    def call(self, number: int) -> None:
        """Enqueues call *number* on poisoned results, and the comparison of what it leaves; sometimes a pause, too."""
        which = number % len(self._calls)
        with torch.cuda.stream(self.stream):
            if self._chance.random() < 0.2:
                torch.cuda._sleep(self._chance.randrange(PAUSE_MOST_CYCLES))
            self.context.result().fill_(float("nan"))  # no peer writes here before this call has granted it
            self._calls[which]()
            self._compare(which)

    def warm_up(self) -> None:
        """Loads torch's kernels that a call enqueues: one that is loaded while another waits for it never starts."""
        torch.cuda._sleep(1)
        self.context.result().fill_(float("nan"))
        self._compare(0)
        self._wrong.zero_()

    def _compare(self, which: int) -> None:
        result = self.context.result()
        error = (result.double() - self._truths[which].view(result.shape)).abs()
        self._wrong += (~(error <= self._limits[which])).sum()

    def trouble(self) -> str:
        """What was wrong so far, or ''."""
        if sentence := self.context.failure():
            return sentence
        wrong = int(self._wrong)
        return f"{wrong} values of rank {self.context.rank} are wrong" if wrong else ""


def ranks_of(trial: Trial) -> list[RankOfOneProcess]:
    """The ranks of *trial*, none of which has made a call."""
    plan = expand(trial.problem, trial.schedule)
    start = shared_bytes(plan)
    size = start + max(private_bytes(plan, rank) for rank in range(trial.world))
    by_rank = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(trial.problem.world)]
    ranks = [RankOfOneProcess(by_rank, plan, rank, start) for rank in range(trial.problem.world)]
    for each in ranks:
        each.warm_up()
    torch.cuda.synchronize()
    return ranks


def in_turns(ranks: Sequence[RankOfOneProcess], numbers: Sequence[int]) -> str:
    """What was wrong in calls *numbers*, enqueued without waiting, by another rank first each time; '' if nothing."""
    for number in numbers:
        first = number % len(ranks)
        for rank in [*ranks[first:], *ranks[:first]]:
            rank.call(number)
    torch.cuda.synchronize()
    return " ".join(filter(None, (rank.trouble() for rank in ranks)))


def back_to_back(trial: Trial, calls: int = CALLS) -> str:
    """What was wrong in *calls* calls back to back after a first one, which fills torch's pool of memory."""
    ranks = ranks_of(trial)
    return in_turns(ranks, [0]) or in_turns(ranks, range(1, calls))


def where_numbers_wrap(trial: Trial) -> str:
    """What was wrong in calls around each number at which a counter of *trial* passes 2^31 or 2^32."""
    ranks = ranks_of(trial)
    wrong = in_turns(ranks, [0])
    rises = [wrapping.amounts(rank.context) for rank in ranks]
    rows = [[*map(float, of_rank), *[1.0] * (wrapping.KINDS_MOST - len(of_rank))] for of_rank in rises]
    everyone = [wrapping.starts(rank.context, lambda _: rows) for rank in ranks]
    while not wrong and all(next(each, 0) for each in everyone):
        torch.cuda.synchronize()
        wrong = in_turns(ranks, range(wrapping.CALLS))
    return wrong


def trials(world: int) -> list[Trial]:
    """Every operator, fused, of sizes that no tile divides; GEMMs of few rows as well, whose tiles span ranks."""
    shapes = [(name, SHAPES.get(name, GEMM), {}) for name in OPERATORS]
    shapes += [(name, FEW, {"tile_order": "spanning"}) for name, each in OPERATORS.items() if each.work == "gemm"]
    return [gpu_trial(name, shape, world=world, dtype="bfloat16", **axes) for name, shape, axes in shapes]


def lines() -> Iterator[tuple[str, str]]:
    """Every check by name, with what was wrong."""
    for world in WORLDS:
        for trial in trials(world):
            for check in (partial(back_to_back, trial), partial(where_numbers_wrap, trial)):
                yield f"{world} ranks, {trial.problem.operator}, {check.func.__name__}", check()


def main() -> int:
    """A line for each check; how many found something."""
    failed = 0
    for name, wrong in lines():
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok':6} {name} {wrong}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
