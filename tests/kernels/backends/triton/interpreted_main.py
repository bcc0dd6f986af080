"""One rank of a gang whose kernels are interpreted: calls each trial several times and says how wrong it was.

`python -m tests.kernels.backends.triton.interpreted_main RANK WORLD SESSION` reads lines of
[trial, calls, programs, stamped].
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels.backends.base import VALUES, Seat
from kernels.backends.cpu.heap import SegmentHeap
from kernels.backends.triton.kernels.sync import WORDS
from kernels.backends.triton.memory import Context, private_bytes, shared_bytes
from kernels.backends.triton.schemes import fused, runner
from kernels.reference import SEED, Operands, expected, operands, partial, verdict
from kernels.schemes import expand
from kernels.schemes.concurrent import problems
from kernels.trial import Trial

SIGNALS, LIMIT_S = 1024, 60.0


def call(
    trial: Trial, count: int, programs: int, stamped: bool, *, rank: int, session: str, generation: int
) -> dict[str, Any]:
    """Every call is verified on poisoned outputs, the last one with other values than those before.

    The worst error is told, and the last one's stamps.
    """
    plan = expand(trial.problem, trial.schedule)
    seat = Seat(rank=rank, world=trial.world, session=session, shares_heap=True, deadline_s=LIMIT_S)
    start = shared_bytes(plan)
    heap = SegmentHeap(seat, generation, start + private_bytes(trial.problem, len(plan.tiles[rank])), SIGNALS)
    context = Context(heap, plan, rank, torch.device("cpu"), start=start, limit_s=LIMIT_S)
    micro_batches = problems(trial.schedule)
    sets = [operands(trial.problem, rank, SEED, values=values) for values in range(VALUES * micro_batches)]
    if trial.schedule.scheme == "fused":
        made = [fused.kernel(context, values) for values in sets]
        stamps = torch.zeros(made[0].records, WORDS.value, dtype=torch.int64)
        launches = [(one.stamped(stamps) if stamped else one).launcher(programs) for one in made]
        results: Sequence[Tensor] = [context.result()]
    else:
        stamps, calls = torch.zeros(0), runner(trial).calls(context, sets, trial.part, None)
        launches, results = list(calls.each), calls.results
    worst = 0.0
    for number in range(count):
        for result in results:
            result.fill_(float("nan"))
        stamps.zero_()
        heap.barrier()
        values = int(number == count - 1)  # so that nothing that is left of two calls before passes
        launches[values]()
        if sentence := context.failure():
            return {"failure": sentence}
        for micro_batch, result in enumerate(results):
            own = VALUES * micro_batch + values
            judged = verdict(trial.problem, result, _truth(trial, rank, sets[own], own), trial.world)
            worst = max(worst, judged.error / judged.bound) if judged.error == judged.error else float("nan")
        heap.barrier()  # the next call poisons
    told = {"stamps": stamps.tolist()} if stamped else {}
    return {"error_of_bound": worst, "epoch": int(context.epoch), **told}


def _truth(trial: Trial, rank: int, own: Operands, values: int) -> Tensor:
    """What a call comes to; of the computation alone, before anything is sent."""
    alone = trial.part == "compute"
    return partial(trial.problem, own, slice(None)) if alone else expected(trial.problem, rank, SEED, values=values)


def main() -> None:
    rank, session = int(sys.argv[1]), sys.argv[3]
    torch.set_num_threads(1)
    for generation, line in enumerate(sys.stdin, 1):
        entry, *how = json.loads(line)
        told = call(Trial.from_json(entry), *how, rank=rank, session=session, generation=generation)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
