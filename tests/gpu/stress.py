"""One GPU rank under stress, calls back to back with other operands; and what a rank compiles of two lists."""

from __future__ import annotations

import random
from typing import Any

import torch
from triton import knobs

from kernels.backends.base import VALUES, Seat
from kernels.backends.triton.backend import TritonBackend, values_of
from kernels.bench import Bench
from kernels.reference import bound, expected
from kernels.trial import Trial

# One GPU rank under stress: calls back to back without synchronisation, slow ranks, noise, other operands each time.
#
# Every call's result is compared on the GPU by the next kernel of the stream, as a consumer would read it: a peer that
# begins the next call too early, a signal that overtakes its data, or a buffer of the call before shows as a wrong
# count.

NOISE_MOST_CYCLES = 400_000
"""About 0.2 ms: some dozens of calls of a peer."""


def stress(seat: Seat, entry: dict[str, Any], calls: int) -> dict[str, Any]:
    """*calls* calls of one trial; how many values were wrong in all, and the error word's sentence."""
    trial = Trial.from_json(entry)
    backend = TritonBackend(seat)
    (prepared,) = backend.prepare([trial])
    truths = [
        expected(trial.problem, seat.rank, prepared.seed, backend.device, values)
        for values in range(VALUES * len(prepared.calls.results))
    ]  # those of the call before are wrong, and those of other micro-batches
    limits = [bound(trial.problem, prepared.roundings) * truth.square().mean().sqrt() for truth in truths]
    chance, wrong = random.Random(seat.rank), torch.zeros((), dtype=torch.int64, device=backend.device)
    noise = torch.randn(2048, 2048, device=backend.device)
    backend.barrier()
    with torch.cuda.stream(backend.stream):
        for number in range(calls):
            if chance.random() < 0.1:
                torch.cuda._sleep(chance.randrange(NOISE_MOST_CYCLES))
            which = number % len(prepared.calls.each)
            prepared.calls.each[which]()
            if chance.random() < 0.1:
                noise = noise @ noise * 1e-3
            for micro_batch, result in enumerate(prepared.calls.results):
                values = VALUES * micro_batch + values_of(which)
                wrong += ((result.double() - truths[values]).abs() > limits[values]).sum()
    backend.barrier()
    return {
        "calls": calls,
        "wrong": int(wrong),
        "sets": len(prepared.calls.each),
        "failure": prepared.context.failure(),
    }


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
