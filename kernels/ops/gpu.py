"""The operators on CUDA tensors: one resident kernel a call, over symmetric memory of the caller's process group."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kernels.backends.base import Hang
from kernels.backends.triton import refusals
from kernels.backends.triton.memory import DeviceHeap, SymmetricHeap
from kernels.backends.triton.repeated import HeapArena, Repeated, StandInContext, heap_bytes, ready
from kernels.machine import Machine
from kernels.ops.arguments import GroupRanks, gpu_machine, trial
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import expand

_LAST: dict[torch.device, torch.cuda.Stream] = {}
"""By device, the stream of the last call, whatever its group."""


class GpuCalls:
    """The calls of one group's GPU ranks. All ranks make the same calls in the same order."""

    def __init__(
        self, ranks: GroupRanks, device: torch.device, make_heap: Callable[[int], SymmetricHeap] | None = None
    ) -> None:
        self.ranks, self.device = ranks, device
        self._machine: Machine = gpu_machine(device)
        makers = ranks if ranks.seat.world > 1 else None
        self._arena = HeapArena(make_heap or (lambda num_bytes: DeviceHeap(makers, device, num_bytes)))
        self._repeated: dict[tuple[Problem, str], Repeated] = {}

    def call(self, problem: Problem, schedule: str, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The result of this rank, and whether its memory is its own; if not, it is valid until the next call.

        Only launches, on the current stream; the first call of a problem and schedule is collective, and allocates and
        compiles. Raises Hang, with the sentence, when a wait of a call before has expired.
        """
        with torch.cuda.device(self.device if self.device.type == "cuda" else -1):
            own = {name: ready(tensor) for name, tensor in operands.items()}
            repeated = self._repeated.get((problem, schedule)) or self._begin(problem, schedule, own)
            self._raise_failures()
            self._follow()
            return repeated(own), repeated.fresh

    def check(self) -> None:
        """Raises Hang when a wait of a call has expired; waits for all of them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._raise_failures()

    def forget(self) -> None:
        """All calls are first ones again, in the same memory."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.ranks.barrier()  # nobody writes into what a peer still reads
        self._repeated.clear()
        self._arena.clear()

    def _raise_failures(self) -> None:
        for repeated in self._repeated.values():
            if (sentence := repeated.failure()) is not None:
                raise Hang(sentence)

    def _begin(self, problem: Problem, schedule: str, own: dict[str, Tensor]) -> Repeated:
        """All ranks together: symmetric memory, tables, the compiled kernel."""
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise Refusal(
                f"{problem.operator} cannot make its first call of these sizes inside a CUDA graph, because it "
                "allocates symmetric memory and compiles. Accepted: one call before the capture."
            )
        asked = trial(problem, schedule, self._machine)
        if (sentence := refusals.refusal(asked, True)) is not None:
            raise Refusal(sentence)
        self._agree(problem, schedule)
        plan, seat = expand(problem, asked.schedule), self.ranks.seat
        piece = self._arena.piece(heap_bytes(plan, seat.rank))
        places = StandInContext(piece, plan, seat.rank, self.device, limit_s=seat.deadline_s)
        try:
            made, wrong = Repeated(places, own), ""
        except Refusal as refused:
            wrong = str(refused)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # signals are 0, on all ranks when they have told each other so
        if sentences := [told for told in self.ranks.everyone(wrong) if told]:
            raise Refusal(sentences[0])
        self._repeated[problem, schedule] = made
        return made

    def _agree(self, problem: Problem, schedule: str) -> None:
        """All ranks must mean the same, or they would wait for each other in vain."""
        told = self.ranks.everyone(f"{problem.operator} {dict(problem.shape)} {problem.dtype} {schedule}".strip())
        if len(set(told)) > 1:
            listed = "; ".join(f"rank {rank}: {what}" for rank, what in enumerate(told))
            raise Refusal(
                f"The {len(told)} ranks of one group called {problem.operator} in {len(set(told))} ways "
                f"({listed}). Accepted: the same sizes, dtype and schedule on all ranks."
            )

    def _follow(self) -> None:
        """Calls of one device come one after the other, whatever their streams: all programs of each are resident.

        A captured call follows what its graph is replayed after.
        """
        if self.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return
        stream, last = torch.cuda.current_stream(self.device), _LAST.get(self.device)
        if last is not None and last != stream:
            stream.wait_stream(last)
        _LAST[self.device] = stream
