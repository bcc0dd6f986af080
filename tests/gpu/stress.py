"""One GPU rank under stress, calls back to back with other operands; and what a rank compiles of two lists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from triton import knobs

from kernels.backends.base import VALUES, Seat
from kernels.backends.triton.backend import TritonBackend, values_of
from kernels.bench import Bench
from kernels.reference import bound, expected
from kernels.trial import Trial
from tests.gpu import wrapping

# One GPU rank under stress: calls back to back without synchronisation, slow ranks, noise, other operands each time.
#
# Every call's result is compared on the GPU by the next kernel of the stream, as a consumer would read it: a peer that
# begins the next call too early, a signal that overtakes its data, or a buffer of the call before shows as a wrong
# count.

NOISE_MOST_CYCLES = 400_000
"""About 0.2 ms: some dozens of calls of a peer."""


class Stressed:
    """Calls of one trial on one rank, with what they come to."""

    def __init__(self, seat: Seat, entry: dict[str, Any]) -> None:
        trial = Trial.from_json(entry)
        self.backend = TritonBackend(seat)
        (self.prepared,) = self.backend.prepare([trial])
        device, problem = self.backend.device, trial.problem
        self._truths = [
            expected(problem, seat.rank, self.prepared.seed, device, values)
            for values in range(VALUES * len(self.prepared.calls.results))
        ]  # those of the call before are wrong, and those of other micro-batches
        rounded = bound(problem, self.prepared.roundings)
        self._limits = [rounded * truth.square().mean().sqrt() for truth in self._truths]
        self._chance, self._wrong = random.Random(seat.rank), torch.zeros((), dtype=torch.int64, device=device)
        self._noise = torch.randn(2048, 2048, device=device)

    def call(self, which: int) -> None:
        """Enqueues one call on operands *which*, and the comparison of its results; sometimes a pause or noise, too."""
        if self._chance.random() < 0.1:
            torch.cuda._sleep(self._chance.randrange(NOISE_MOST_CYCLES))
        self.prepared.calls.each[which]()
        if self._chance.random() < 0.1:
            self._noise = self._noise @ self._noise * 1e-3
        for micro_batch, result in enumerate(self.prepared.calls.results):
            values = VALUES * micro_batch + values_of(which)
            self._wrong += (~((result.double() - self._truths[values]).abs() <= self._limits[values])).sum()

    def told(self, calls: int) -> dict[str, Any]:
        """How many values of *calls* calls were wrong, and what a wait says that has expired."""
        sets, failure = len(self.prepared.calls.each), self.prepared.context.failure()
        return {"calls": calls, "wrong": int(self._wrong), "sets": sets, "failure": failure}


def stress(seat: Seat, entry: dict[str, Any], calls: int) -> dict[str, Any]:
    """*calls* calls of one trial; how many values were wrong in all, and the error word's sentence."""
    stressed = Stressed(seat, entry)
    stressed.backend.barrier()
    with torch.cuda.stream(stressed.backend.stream):
        for number in range(calls):
            stressed.call(number % len(stressed.prepared.calls.each))
    stressed.backend.barrier()
    return stressed.told(calls)


def _met(backend: TritonBackend, values: Sequence[float]) -> list[list[float]]:
    """All ranks' *values* once their GPUs are idle: a peer that begins earlier signals into words that still change."""
    backend.barrier()
    return backend.exchange(values)


def wrapped(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """A first call, then calls around each number at which one of its counters wraps, on other values each time."""
    stressed, calls = Stressed(seat, entry), 1
    backend, context = stressed.backend, stressed.prepared.context
    other = next(which for which in range(len(stressed.prepared.calls.each)) if values_of(which))
    backend.barrier()
    with torch.cuda.stream(backend.stream):
        stressed.call(0)
        backend.barrier()
        rises = wrapping.amounts(context)
        for _ in wrapping.starts(context, partial(_met, backend)):
            for number in range(wrapping.CALLS):
                stressed.call(0 if number % VALUES else other)
            calls += wrapping.CALLS
            backend.barrier()
    return {**stressed.told(calls), "rises": rises}


# What a rank compiles of a trial in two lists, the second with another deadline: counted by Triton's own listener.


def twice(seat: Seat, entry: dict[str, Any]) -> dict[str, Any]:
    """By list: kernels that were compiled or read from files, the reports of compilation, and results."""
    kernels: list[bool] = []
    events: list[dict[str, Any]] = []
    knobs.compilation.listener = lambda **facts: kernels.append(facts["cache_hit"])
    bench, lists = Bench(seat, events.append), []
    for deadline_s in (20.0, 13.000000001):
        kernels.clear()
        events.clear()
        bench.wait_at_most(deadline_s)
        bench.run([Trial.from_json(entry)])
        reports = [(one["number"], one["of"]) for one in events if one.get("stage") == "compile"]
        lists.append({"kernels": len(kernels), "reports": reports,
                      "results": sum(one["kind"] == "result" for one in events)})  # fmt: skip
    bench.close()
    return {"lists": lists}


# Several kinds of work in one start of the ranks.


def several(seat: Seat, entry: dict[str, Any], *, calls: int) -> dict[str, Any]:
    """What entry["work"] says of the trial: calls back to back, numbers that wrap, or a second list."""
    match entry["work"]:
        case "stress":
            return stress(seat, entry["trial"], calls)
        case "epochs":
            return wrapped(seat, entry["trial"])
    return twice(seat, entry["trial"])
