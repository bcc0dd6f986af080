"""One rank of a gang whose kernels are interpreted: calls each trial several times and says how wrong it was.

`python -m tests.kernels.backends.triton.interpreted_main RANK WORLD SESSION` reads lines of
[trial, calls, programs, stamped, way, architecture]; a way is IN_ORDER, WRAPS or ONE_MORE.
"""

import json
import sys
import time
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels.backends.base import VALUES, Seat, aligned
from kernels.backends.cpu.heap import SegmentHeap
from kernels.backends.triton.gin.context import NetworkContext, SharedMemoryLink, network_trial_bytes
from kernels.backends.triton.gin.gang import NetworkBarrier
from kernels.backends.triton.gin.table import SliceTable
from kernels.backends.triton.kernels.sync import WORDS
from kernels.backends.triton.memory import Context, private_bytes, shared_bytes
from kernels.backends.triton.schemes import fused, runner
from kernels.plan import Plan
from kernels.reference import SEED, Operands, expected, operands, partial, verdict
from kernels.schemes import expand
from kernels.schemes.axis_rules import puts_between_hosts, relays
from kernels.schemes.concurrent import problems
from kernels.schemes.spanning import pushers
from kernels.trial import Trial
from tests.gpu.wrapping import CALLS, amounts, starts
from tests.kernels.backends.triton.quick_interpreter import quicken
from tests.kernels.backends.triton.side_by_side import shared, side_by_side

SIGNALS, LIMIT_S = 1024, 60.0
IN_ORDER, WRAPS, ONE_MORE = "in order", "wraps", "one more"
"""All ranks together; around each number at which a counter wraps; rank 0 once more than its peers."""
LATE_S, BRIEF_S = 0.02, 2.0
"""How much later every second rank begins a call where numbers wrap, and how long rank 0 waits where it is alone."""


class Calls:
    """The calls of one trial on one rank."""

    def __init__(self, trial: Trial, heap: SegmentHeap, context: Context, programs: int, stamped: bool) -> None:
        self._trial, self._heap, self._context = trial, heap, context
        self._micro_batches = problems(trial.schedule)
        rank = context.rank
        self._sets = [operands(trial.problem, rank, SEED, values=each) for each in range(VALUES * self._micro_batches)]
        self._results: Sequence[Tensor]
        self.stamps, self.worst = torch.zeros(0), 0.0
        if trial.schedule.scheme == "fused" and not puts_between_hosts(trial.schedule):
            made = [fused.kernel(context, values) for values in self._sets]
            self.stamps = shared(torch.zeros(made[0].records, WORDS.value, dtype=torch.int64))
            kernels = [one.stamped(self.stamps) if stamped else one for one in made]
            if relays(trial.problem, trial.schedule) or pushers(trial.problem, trial.schedule):
                self.launches = [side_by_side(one.launcher(), programs) for one in kernels]
            else:
                self.launches = [one.launcher(programs) for one in kernels]
            self._results = [context.result()]
        else:
            calls = runner(trial).calls(context, self._sets, trial.part, None)
            self.launches, self._results = list(calls.each), calls.results

    def verified(self, values: int, late_s: float = 0.0) -> str | None:
        """One call on poisoned outputs, *late_s* later than others; what a wait says that has expired."""
        for result in self._results:
            result.fill_(float("nan"))
        self.stamps.zero_()
        self._heap.barrier()
        time.sleep(late_s)
        self.launches[values]()
        if sentence := self._context.failure():
            return sentence
        for micro_batch, result in enumerate(self._results):
            own = VALUES * micro_batch + values
            truth = _truth(self._trial, self._context.rank, self._sets[own], own)
            judged = verdict(self._trial.problem, result, truth, self._trial.world)
            self.worst = max(self.worst, judged.error / judged.bound) if judged.error == judged.error else float("nan")
        self._heap.barrier()  # the next call poisons
        return None

    def around_wraps(self) -> dict[str, Any]:
        """A first call, then some before and after each wrap of each counter; by how much they rise in a call."""
        said = {"rises": [], "epochs": []}
        if sentence := self.verified(0):
            return {"failure": sentence}
        said["rises"] = amounts(self._context)
        for _ in starts(self._context, self._heap.exchange):
            for number in range(CALLS):
                late = LATE_S * ((number + self._context.rank) % 2)
                if sentence := self.verified(number % VALUES, late):
                    return {"failure": sentence}
            said["epochs"].append(int(self._context.epoch))
        return said

    def one_more(self, count: int) -> dict[str, Any]:
        """*count* calls of all, then one of rank 0 alone: what that says, and after how long."""
        for _ in range(count):
            if sentence := self.verified(0):
                return {"failure": sentence}
        begin, sentence = time.monotonic(), None
        if self._context.rank == 0:
            self.launches[0]()
            sentence = self._context.failure()
        return {"alone": sentence, "seconds": time.monotonic() - begin, "epoch": int(self._context.epoch)}


def call(
    trial: Trial, count: int, programs: int, stamped: bool, way: str, architecture: int, *, rank: int, session: str,
    generation: int,
) -> dict[str, Any]:  # fmt: skip
    """Every call is verified on poisoned outputs, the last one with other values than those before.

    The worst error is told, and the last one's stamps.
    """
    plan = expand(trial.problem, trial.schedule)
    seat = Seat(rank=rank, world=trial.world, session=session, shares_heap=True, deadline_s=LIMIT_S)
    limit_s = BRIEF_S if way == ONE_MORE else LIMIT_S
    heap, context = _memory(seat, generation, plan, limit_s)
    context.architecture = architecture
    calls = Calls(trial, heap, context, programs, stamped)
    if way == ONE_MORE:
        return calls.one_more(count)
    if way == WRAPS:
        return {**calls.around_wraps(), "error_of_bound": calls.worst}
    for number in range(count):
        # the last with others, so that nothing that is left of two calls before passes
        if sentence := calls.verified(int(number == count - 1)):
            return {"failure": sentence}
    told = {"stamps": calls.stamps.tolist()} if stamped else {}
    bits = context.result().view(torch.uint8).numpy().tobytes()
    return {"error_of_bound": calls.worst, "epoch": int(context.epoch), "bits": zlib.crc32(bits), **told}


def _memory(seat: Seat, generation: int, plan: Plan, limit_s: float) -> tuple[SegmentHeap, Context]:
    """Heap and context of one trial; behind its data lie the signals of a twin of GIN, where it has one."""
    start, cpu = shared_bytes(plan), torch.device("cpu")
    end = start + private_bytes(plan, seat.rank)
    if not puts_between_hosts(plan.schedule):
        heap = SegmentHeap(seat, generation, end, SIGNALS)
        context = Context(heap, plan, seat.rank, cpu, start=start, limit_s=limit_s)
        shared(context.epoch)
        if pushers(plan.problem, plan.schedule):
            shared(context.local)  # the programs of a rank are processes
        return heap, context
    table, signals_at = SliceTable.of_plan(plan), aligned(start + network_trial_bytes(plan))
    heap = SegmentHeap(seat, generation, signals_at + SharedMemoryLink.num_bytes(table), SIGNALS)
    context = NetworkContext(heap, plan, seat.rank, cpu, start=start, limit_s=limit_s)
    context.link = SharedMemoryLink(heap, seat.rank, table, signals_at)
    heap.barrier()  # signals are 0 before any rank's first call
    NetworkBarrier(context)()
    return heap, context


def _truth(trial: Trial, rank: int, own: Operands, values: int) -> Tensor:
    """What a call comes to; of the computation alone, before anything is sent."""
    alone = trial.part == "compute"
    return partial(trial.problem, own, slice(None)) if alone else expected(trial.problem, rank, SEED, values=values)


def main() -> None:
    rank, session = int(sys.argv[1]), sys.argv[3]
    torch.set_num_threads(1)
    quicken()
    for generation, line in enumerate(sys.stdin, 1):
        entry, *how = json.loads(line)
        told = call(Trial.from_json(entry), *how, rank=rank, session=session, generation=generation)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
