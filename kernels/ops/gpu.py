"""The operators on CUDA tensors: each call launches one kernel over symmetric memory of the caller's process group."""

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
"""The stream of the last call on each device, whatever its group."""


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
        """The result of this rank, and whether it has memory to itself; if not, it is valid until the next call.

        Only launches, on the current stream; the first call of a problem and schedule is collective, and allocates and
        compiles. Raises Hang where a wait of an earlier call has expired.
        """
        with torch.cuda.device(self.device if self.device.type == "cuda" else -1):
            prepared = {name: ready(tensor) for name, tensor in operands.items()}
            repeated = self._repeated.get((problem, schedule)) or self._begin(problem, schedule, prepared)
            self._raise_failures()
            self._follow()
            return repeated(prepared), repeated.fresh

    def check(self) -> None:
        """Waits for all calls; raises Hang where a wait inside one has expired."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._raise_failures()

    def forget(self) -> None:
        """Makes the next calls first calls again, in the same memory."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.ranks.barrier()  # so that no rank writes into what a peer still reads
        self._repeated.clear()
        self._arena.clear()

    def _raise_failures(self) -> None:
        for repeated in self._repeated.values():
            if (message := repeated.failure()) is not None:
                raise Hang(message)

    def _begin(self, problem: Problem, schedule: str, operands: dict[str, Tensor]) -> Repeated:
        """Prepares the first call, on all ranks together: symmetric memory, tables, the compiled kernel."""
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise Refusal(
                f"{problem.operator} cannot make its first call of these sizes inside a CUDA graph, because it "
                "allocates symmetric memory and compiles. Accepted: one call before the capture."
            )
        requested = trial(problem, schedule, self._machine)
        if (reason := refusals.refusal(requested, True)) is not None:
            raise Refusal(reason)
        self._agree(problem, schedule)
        plan, seat = expand(problem, requested.schedule), self.ranks.seat
        piece = self._arena.piece(heap_bytes(plan, seat.rank))
        places = StandInContext(piece, plan, seat.rank, self.device, limit_s=seat.deadline_s)
        try:
            repeated, reason = Repeated(places, operands), ""
        except Refusal as refused:
            reason = str(refused)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # signals are 0 here, and after the exchange on all ranks
        if reasons := [each for each in self.ranks.everyone(reason) if each]:
            raise Refusal(reasons[0])
        self._repeated[problem, schedule] = repeated
        return repeated

    def _agree(self, problem: Problem, schedule: str) -> None:
        """Raises Refusal where the ranks' calls differ, which would wait for each other in vain."""
        calls = self.ranks.everyone(f"{problem.operator} {dict(problem.shape)} {problem.dtype} {schedule}".strip())
        if len(set(calls)) > 1:
            listed = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
            raise Refusal(
                f"The {len(calls)} ranks of one group called {problem.operator} in {len(set(calls))} ways "
                f"({listed}). Accepted: the same sizes, dtype and schedule on all ranks."
            )

    def _follow(self) -> None:
        """Orders the calls of one device, whatever their streams, since all programs of a call are resident at once.

        A captured call is ordered by the replay of its graph.
        """
        if self.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return
        stream, last = torch.cuda.current_stream(self.device), _LAST.get(self.device)
        if last is not None and last != stream:
            stream.wait_stream(last)
        _LAST[self.device] = stream
