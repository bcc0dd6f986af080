"""Several ranks in one process on one GPU: a heap, a stream and a share of the SMs each.

Their kernels truly run side by side, where processes that share a GPU take turns of some milliseconds.

For tests only: `python -m tests.gpu.one_process` tries every fused operator with halves and quarters, a line each.
`million OUT` makes a million calls of each from captured graphs: two ranks for each operator, six operators at a time,
with pauses and another stream's products as noise. The numbers of calls pass 2^31 in the middle. `meetings OUT`
times what two ranks take to meet inside a kernel. `bits OUT` counts, of 1,000 calls of each schedule of
`tests/gpu/same_bits.py` on the same operands, those with other bits than the first. OUT gets a JSON line for each.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device
from kernels.backends.triton.backend import operand_sets, values_of
from kernels.backends.triton.launch import Call
from kernels.backends.triton.memory import Context, private_bytes, shared_bytes
from kernels.backends.triton.schemes import fused
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.reference import bound, expected, operands, roundings
from kernels.schemes import expand
from kernels.trial import Trial
from tests.gpu import same_bits, wrapping
from tests.gpu.compiling import by_processes
from tests.gpu.recording import provenance
from tests.gpu.wrapping import FEW, GEMM, LARGE, SHAPES

WORLDS = (2, 4)
CALLS = 200
SEED, LIMIT_S = 20261126, 5.0
COMPARED, COMPARING_PROGRAMS = 1024, 64
"""Values of a program at a time, and programs of a comparison, at most."""
PAUSES, PAUSE_MOST_CYCLES = 0.1, 200_000
"""Part of the calls that begin after a pause, of up to 0.1 ms: several calls of the others, were they not to wait."""


@cache
def sms() -> int:
    """SMs of the GPU."""
    return torch.cuda.get_device_properties(0).multi_processor_count


class CommonHeap:
    """One rank's view of the memory of all ranks of this process."""

    def __init__(self, by_rank: Sequence[Tensor]) -> None:
        self.capacity, self._by_rank = by_rank[0].nbytes, by_rank

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset*."""
        return self._by_rank[rank][offset : offset + prod(shape) * dtype.itemsize].view(dtype).view(*shape)


class RankOfOneProcess:
    """One rank: its stream, a call for each set of operands on its share of the SMs, and what was wrong so far."""

    def __init__(self, by_rank: Sequence[Tensor], plan: Plan, rank: int, start: int, grid: int) -> None:
        of, device = plan.problem, torch.device("cuda", 0)
        self.context = Context(CommonHeap(by_rank), plan, rank, device, start=start, limit_s=LIMIT_S)
        self.stream, self._chance = torch.cuda.Stream(), random.Random(rank)
        sets = operand_sets(of, rank, device, seed=SEED, cold=False)
        kernels = [replace(fused.kernel(self.context, each), grid=grid) for each in sets]
        self._calls: list[Call] = fused.launches(kernels)
        self._truths = [expected(of, rank, SEED, str(device), values_of(number)) for number in range(len(sets))]
        rounded = bound(of, roundings(plan))
        self._limits = [rounded * float(truth.square().mean().sqrt()) for truth in self._truths]
        self._wrong = torch.zeros((), dtype=torch.int64, device=device)

    def call(self, number: int) -> None:
        """Enqueues call *number* on poisoned results, and the comparison of what it leaves; sometimes a pause, too."""
        which = number % len(self._calls)
        with torch.cuda.stream(self.stream):
            if self._chance.random() < PAUSES:
                torch.cuda._sleep(self._chance.randrange(PAUSE_MOST_CYCLES))
            self._calls[which]()
            self._compare(which)

    def call_alone(self) -> None:
        """Enqueues call 0, and nothing after it."""
        with torch.cuda.stream(self.stream):
            self._calls[0]()

    def warm_up(self) -> None:
        """Poisons the result, and loads what a call enqueues: what is loaded while a kernel waits never starts."""
        torch.cuda._sleep(1)
        self._compare(0)
        self._wrong.zero_()

    def _compare(self, which: int) -> None:
        """Counts what is wrong and poisons the result: no peer writes here before the next call has granted it."""
        result = self.context.result()
        programs = min(COMPARING_PROGRAMS, triton.cdiv(result.numel(), COMPARED))
        compare[(programs,)](result, self._truths[which], self._limits[which], self._wrong, result.numel(),
                             BLOCK=COMPARED)  # fmt: skip

    def captured(self, numbers: Sequence[int]) -> torch.cuda.CUDAGraph:
        """A graph of calls *numbers*."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for number in numbers:
                self.call(number)
        return graph

    def trouble(self) -> str:
        """What was wrong so far, or ''."""
        if sentence := self.context.failure():
            return sentence
        wrong = int(self._wrong)
        return f"{wrong} values of rank {self.context.rank} are wrong" if wrong else ""


def memory_of(plan: Plan) -> tuple[list[Tensor], int]:
    """By rank the memory of one trial, and where what is private to it begins."""
    start, world = shared_bytes(plan), plan.problem.world
    size = start + max(private_bytes(plan, rank) for rank in range(world))
    return [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(world)], start


def ranks_of(
    trial: Trial, trials_at_once: int = 1, seated: Callable[..., RankOfOneProcess] = RankOfOneProcess
) -> list[Any]:
    """The ranks of *trial*, none of which has made a call, where *trials_at_once* share the GPU; *seated* makes one."""
    plan = expand(trial.problem, trial.schedule)
    by_rank, start = memory_of(plan)
    # all programs of all ranks are resident at once: a rank whose programs queue would be waited for in vain
    grid = sms() // (trial.world * trials_at_once)
    ranks = [seated(by_rank, plan, rank, start, grid) for rank in range(trial.world)]
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
    return troubles(ranks)


def troubles(ranks: Sequence[RankOfOneProcess]) -> str:
    """What was wrong on any of *ranks*, or ''."""
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


@triton.jit(do_not_specialize=["count"])
def compare(result, truth, limit, wrong, count, BLOCK: tl.constexpr):
    """Adds to *wrong* how many of *count* values of *result* are no numbers or further than *limit* from *truth*.

    Then the result is poisoned.
    """
    total = tl.zeros((BLOCK,), tl.int64)
    for begin in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        at = begin + tl.arange(0, BLOCK)
        error = tl.load(result + at, mask=at < count, other=0.0).to(tl.float64)
        error = tl.abs(error - tl.load(truth + at, mask=at < count, other=0.0))
        total += ((at < count) & ~(error <= limit)).to(tl.int64)
        tl.store(result + at, float("nan"), mask=at < count)
    tl.atomic_add(wrong, tl.sum(total))


# A million calls of each, and the time of a meeting.

MANY, IN_GRAPH, AHEAD = 1_000_000, 100, 20
"""Calls, calls of one graph, and graphs that are enqueued before the host waits."""
AT_ONCE = 6
"""Operators that make calls at the same time, each the others' noise."""
STREAMS = "32"
"""Queues of the device: by default eight, and a stream that shares a queue with one that waits for it never starts."""
PASSED = 1 << 31
"""The number of calls that is passed in the middle: counters are signed there."""
SMALL: dict[str, dict[str, Any]] = {
    "gemv_all_reduce": {"n": 520, "k": 504, "tokens": 3},
    "embedding_all_to_all": {"tables_per_rank": 3, "rows": 1000, "dim": 64, "batch": 200, "pooling": 7},
}
SMALL_GEMM = {"m": 400, "n": 376, "k": 136}
"""Sizes that no tile divides, of calls of some microseconds."""


def million(chosen: Sequence[Trial], calls: int = MANY) -> Iterator[dict[str, Any]]:
    """How *calls* calls of each of *chosen* went, all at the same time: what was wrong, or ''."""
    everyone = [ranks_of(trial, len(chosen)) for trial in chosen]
    wrong = [in_turns(ranks, [0]) for ranks in everyone]
    ranks = list(chain.from_iterable(everyone))
    for rank in ranks:
        rank.context.go_on_after(PASSED - calls // 2)
    torch.cuda.synchronize()
    graphs = [rank.captured(range(IN_GRAPH)) for rank in ranks]
    noise, stream = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16), torch.cuda.Stream()
    made, began = 0, time.monotonic()
    while made < calls and not any(wrong):
        for turn in range(AHEAD):
            for number in range(len(ranks)):
                rank = (number + turn) % len(ranks)
                with torch.cuda.stream(ranks[rank].stream):
                    graphs[rank].replay()
            with torch.cuda.stream(stream):
                torch.mm(noise, noise)
        torch.cuda.synchronize()
        made += AHEAD * IN_GRAPH
        wrong = [troubles(each) for each in everyone]
    seconds = round(time.monotonic() - began, 1)
    for trial, sentence in zip(chosen, wrong, strict=True):
        yield {"operator": trial.problem.operator, "shape": dict(trial.problem.shape), "world": trial.world,
               "axes": dict(trial.schedule.axes), "operators_at_once": len(chosen), "calls": made,
               "first_call": PASSED - calls // 2, "seconds": seconds, "wrong": sentence}  # fmt: skip


@triton.jit(do_not_specialize=["rank", "rounds"])
def meetings(
    credits_at, done_at, epoch_at, arrived, error, limit_ns, rank, rounds, WORLD: tl.constexpr, ENDS: tl.constexpr
):  # fmt: skip
    """*rounds* meetings of all ranks' programs: as at the end of a call (ENDS), or as before the first put."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    deadline, before = device.deadline_after(limit_ns), tl.load(epoch_at)
    for number in range(rounds):
        epoch = before + number + 1
        if ENDS:
            device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)
            device.wait(epoch_at, epoch, deadline, error, rank, device.DONE, rank)  # programs of a call end instead
        else:
            device.grant(credits_at, rank, WORLD, program)
            device.granted(credits_at, epoch, deadline, error, rank, WORLD)
    if not ENDS:
        device.leave(device.count_in(arrived), epoch_at, arrived, before + rounds, programs)


ROUNDS = 1000
"""Meetings of one launch; the same launch without any is taken off."""


def meeting_us(world: int, programs: int, *, ends: bool, samples: int = 9) -> dict[str, Any]:
    """Median time of one meeting of *world* ranks with *programs* each, and what is wrong, or ''."""
    ranks = ranks_of(trials(world)[0])

    def seconds(rounds: int) -> float:
        """Time of one launch on every rank."""
        begins, stops = ([torch.cuda.Event(enable_timing=True) for _ in ranks] for _ in range(2))
        torch.cuda.synchronize()
        for rank, begin, stop in zip(ranks, begins, stops, strict=True):
            context = rank.context
            with torch.cuda.stream(rank.stream):
                torch.cuda._sleep(200_000)  # so that all are enqueued before one begins
                begin.record()
                meetings[(programs,)](context.addresses("credits"), context.addresses("done"), context.epoch,
                                      context.arrived, context.error, context.limit_ns, context.rank, rounds,
                                      WORLD=world, ENDS=ends)  # fmt: skip
                stop.record()
        torch.cuda.synchronize()
        return max(begin.elapsed_time(stop) for begin, stop in zip(begins, stops, strict=True)) / 1e3

    seconds(0), seconds(1)  # compiled, and loaded
    each = [(seconds(ROUNDS) - seconds(0)) / ROUNDS * 1e6 for _ in range(samples)]
    return {"kind": "end" if ends else "credit", "world": world, "programs": programs, "rounds": ROUNDS,
            "us": round(median(each), 3), "low": round(min(each), 3), "high": round(max(each), 3),
            "wrong": troubles(ranks)}  # fmt: skip


# The same bits in a thousand calls.


@triton.jit(do_not_specialize=["count", "calls"])
def note_other_bits(result, first, epoch_at, others, count, calls, BLOCK: tl.constexpr, POISON: tl.constexpr):
    """Notes in *others* [calls] that *count* integers of *result* are not those of *first*; then they are POISON.

    Which call it was says the epoch, which a call raises at its end: the first one is not compared.
    """
    other = tl.zeros((BLOCK,), tl.int32)
    for begin in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        at = begin + tl.arange(0, BLOCK)
        there = at < count
        other |= (tl.load(result + at, mask=there, other=0) != tl.load(first + at, mask=there, other=0)).to(tl.int32)
        tl.store(result + at, POISON, mask=there)
    number = tl.load(epoch_at) - 2
    tl.store(others + number, 1, mask=(tl.max(other) > 0) & (number >= 0) & (number < calls))


AS_INTEGERS = {2: torch.int16, 4: torch.int32}
"""By bytes of a value, what its bits are compared as; the largest one is no number as a value."""


class RankThatRepeats(RankOfOneProcess):
    """A rank that makes call 0 again and again, and notes in *others*, which all ranks share, where its bits differ."""

    def __init__(self, others: Tensor, *place: Any) -> None:
        super().__init__(*place)
        self._others = others
        bits = self.context.result().view(AS_INTEGERS[self.context.dtype.itemsize])
        self._bits, self._first = bits, torch.empty_like(bits)

    def call(self, number: int) -> None:
        """Enqueues call 0 and the comparison of its bits."""
        super().call(0)

    def keep(self) -> None:
        """Keeps what the first call has left, and compares it with float64."""
        self._first.copy_(self._bits)
        super()._compare(0)

    def _compare(self, which: int) -> None:
        """Notes other bits and poisons the result."""
        programs = min(COMPARING_PROGRAMS, triton.cdiv(self._bits.numel(), COMPARED))
        note_other_bits[(programs,)](self._bits, self._first, self.context.epoch, self._others, self._bits.numel(),
                                     len(self._others), BLOCK=COMPARED,
                                     POISON=torch.iinfo(self._bits.dtype).max)  # fmt: skip


NOISE_SIDE, NOISE_PRODUCTS = 1024, 20
"""Of another stream's products, and how many there are for each graph of calls."""


@cache
def noise() -> tuple[Tensor, torch.cuda.Stream]:
    """A factor of products that take SMs from the ranks, and their stream. The first product loads the library."""
    side = torch.randn(NOISE_SIDE, NOISE_SIDE, device="cuda", dtype=torch.bfloat16)
    torch.mm(side, side)
    torch.cuda.synchronize()
    return side, torch.cuda.Stream()


def with_same_bits(trial: Trial, calls: int = same_bits.CALLS) -> dict[str, Any]:
    """The row of `same_bits.judged` of *calls* calls after a first one, from graphs that each rank replays."""
    began, others = time.monotonic(), torch.zeros(calls, dtype=torch.int32, device="cuda")
    (side, stream), made = noise(), [0]
    ranks: list[RankThatRepeats] = ranks_of(trial, seated=partial(RankThatRepeats, others))
    for rank in ranks:
        rank.call_alone()
    torch.cuda.synchronize()
    for rank in ranks:
        rank.keep()
    torch.cuda.synchronize()
    if not (wrong := troubles(ranks)):
        graphs = [rank.captured(range(IN_GRAPH)) for rank in ranks]
        for turn in range(calls // IN_GRAPH):
            for number in range(len(ranks)):
                at = (number + turn) % len(ranks)  # each turn begins with another rank
                with torch.cuda.stream(ranks[at].stream):
                    graphs[at].replay()
            with torch.cuda.stream(stream):
                for _ in range(NOISE_PRODUCTS):
                    torch.mm(side, side)
        torch.cuda.synchronize()
        wrong, made = troubles(ranks), [int(rank.context.epoch) - 1 for rank in ranks]
    if not wrong and set(made) != {calls}:
        wrong = f"the ranks made {made} calls instead of {calls}"
    return same_bits.judged(trial, {"programs": sms() // trial.world, "calls": min(made), "other": int(others.sum()),
                                    "seconds": round(time.monotonic() - began, 2), "wrong": wrong})  # fmt: skip


BITS_WORLDS = (2, 4, 8)
COMPILE_MOST_S, BEGIN_MOST_S, ALL_MOST_S = 100.0, 215.0, 280.0
"""Seconds of compilation in advance, after which no schedule begins, and after which the process ends whatever waits.

A schedule takes about a second, and LIMIT_S more for each rank that waits in vain.
"""


def all_bits(worlds: Sequence[int] = BITS_WORLDS) -> Iterator[dict[str, Any]]:
    """The rows of all schedules of `same_bits.trials`, one that cannot be measured or has no time left, too."""
    faulthandler.dump_traceback_later(ALL_MOST_S, exit=True)
    began, chosen = time.monotonic(), [trial for world in worlds for trial in same_bits.trials(world)]
    try:
        by_processes(compile_ranks, chosen, COMPILE_MOST_S)
        for trial in chosen:
            yield _row_of(trial, time.monotonic() - began)
            torch.cuda.empty_cache()
    finally:  # who reads no further goes on
        faulthandler.cancel_dump_traceback_later()


def _row_of(trial: Trial, late: float) -> dict[str, Any]:
    """The row of *trial*, *late* seconds after the first one could begin."""
    none = {"programs": 0, "calls": 0, "other": 0, "seconds": 0.0}
    if late > BEGIN_MOST_S:
        return same_bits.judged(trial, none | {"wrong": f"not begun after {late:.0f} s: {BEGIN_MOST_S:.0f} is most"})
    try:
        return with_same_bits(trial)
    except (RuntimeError, ValueError) as error:  # of the device, or a refusal
        return same_bits.judged(trial, none | {"wrong": f"{type(error).__name__}: {error}"})


def compile_ranks(chosen: Sequence[Trial]) -> None:
    """Compiles the kernels of *chosen*, which are the same on all ranks."""
    for trial in chosen:
        plan, here = expand(trial.problem, trial.schedule), torch.device("cuda", 0)
        by_rank, start = memory_of(plan)
        try:
            context = Context(CommonHeap(by_rank), plan, 0, here, start=start, limit_s=LIMIT_S)
            fused.kernel(context, operands(trial.problem, 0, SEED, str(here))).compiled()
        except Exception as error:  # met again when it is called, and named there
            print("not compiled:", trial.problem, str(error)[-200:], flush=True)


# What each mode yields.


def rows(what: str) -> Iterator[dict[str, Any]]:
    """The rows of `bits`, of `million` or of `meetings`."""
    if what == "bits":
        yield from all_bits()
        return
    if what == "million":
        chosen = [*trials(WORLDS[0], SMALL_GEMM, SMALL, tile_order="rotated"), in_ring(WORLDS[0], SMALL_GEMM),
                  *relayed(WORLDS[0], SMALL_GEMM)]  # fmt: skip
        for first in range(0, len(chosen), AT_ONCE):
            yield from million(chosen[first : first + AT_ONCE])
        return
    for world in WORLDS:
        for ends in (False, True):
            yield from (meeting_us(world, programs, ends=ends) for programs in (1, sms() // world))


def trials(
    world: int, gemm: dict[str, Any] = GEMM, others: dict[str, dict[str, Any]] = SHAPES, **axes: Any
) -> list[Trial]:
    """Every operator, fused, of sizes that no tile divides; GEMMs of few rows as well, whose tiles span ranks.

    *axes* are those of the first GEMMs.
    """
    gemms = [name for name, each in OPERATORS.items() if each.work == "gemm"]
    chosen = [(name, shape, {}) for name, shape in others.items()]
    chosen += [(name, gemm, axes) for name in gemms] + [(name, FEW, {"tile_order": "spanning"}) for name in gemms]
    return [fused_trial(name, shape, world, **axes) for name, shape, axes in chosen]


def fused_trial(name: str, shape: dict[str, Any], world: int, **axes: Any) -> Trial:
    """A trial of H200s."""
    from tests.kernels.backends.triton.conftest import gpu_trial  # it needs pytest, and `bits` does not

    return gpu_trial(name, shape, world=world, dtype="bfloat16", **axes)


def in_ring(world: int, shape: dict[str, Any]) -> Trial:
    """A reduce-scatter whose sums go from rank to rank."""
    return fused_trial("gemm_reduce_scatter", shape, world, tile_order="ring")


def relayed(world: int, shape: dict[str, Any]) -> list[Trial]:
    """Of each operator that has them, tiles that leave by SMs that only send."""
    return [fused_trial(name, shape, world, **wrapping.RELAYED) for name in wrapping.relaying(world)]


def lines() -> Iterator[tuple[str, str]]:
    """Every check by name, with what was wrong."""
    for world in WORLDS:
        for trial in [*trials(world), in_ring(world, LARGE), *relayed(world, LARGE)]:
            for check in (partial(back_to_back, trial), partial(where_numbers_wrap, trial)):
                yield f"{world} ranks, {trial.problem.operator}, {check.func.__name__}", check()


def main(what: str = "", out: str = "") -> int:
    """A line for each check, or for each row of *what*, which also go to *out*; how many found something."""
    failed, seen = 0, list[dict[str, Any]]()
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = STREAMS
    if what:
        with Path(out).open("w") as file:
            print(
                json.dumps(
                    {"provenance": provenance("h200_nvl2") | {"launched_by": "tests/gpu/one_process.py"}, "seed": SEED}
                ),
                file=file,
                flush=True,
            )
            for row in rows(what):
                failed += bool(row["wrong"])
                seen.append(row)
                print(json.dumps(row), file=file, flush=True)
                print(same_bits.line(row) if what == "bits" else json.dumps(row), flush=True)
        if what == "bits":
            print(same_bits.summary(seen), flush=True)
        return failed
    for name, wrong in lines():
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok':6} {name} {wrong}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
