"""The operators on CUDA tensors, over symmetric memory of the caller's process group: fused calls launch one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from kernels.backends.base import Hang
from kernels.backends.triton import refusals
from kernels.backends.triton.memory import DeviceHeap, SymmetricHeap
from kernels.backends.triton.repeated import (
    CallContext,
    ErrorWords,
    HeapArena,
    Repeated,
    StandInContext,
    heap_bytes,
    ready,
)  # fmt: skip
from kernels.machine import Machine
from kernels.ops import auto, gpu_sequential
from kernels.ops.arguments import GroupRanks, OtherGroups, gpu_machine, trial
from kernels.ops.sequential import LibraryCall, PreparedCall, is_of_library
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import BASELINE, expand
from kernels.schemes.auto import STORES

OFFERED = ("library", STORES, "one_shot", "overlapped", "fused")
"""The candidates of calls without a schedule."""
_LAST: dict[int, torch.cuda.Stream] = {}
"""The stream of the last call on each device, by its index, whatever its group."""


class CapturedOperands:
    """Where operands of captured calls lay: a graph reads there again, wherever its tensors lie by then."""

    def __init__(self) -> None:
        self._kept: list[tuple[ReferenceType[Tensor], int, str]] = []

    def keep(self, problem: Problem, operands: Mapping[str, Tensor]) -> None:
        """Remembers *operands* of a call that is being captured, as long as they live; of each its last capture."""
        fresh = {id(tensor) for tensor in operands.values()}
        self._kept = [entry for entry in self._kept
                      if (tensor := entry[0]()) is not None and id(tensor) not in fresh]  # fmt: skip
        for name, tensor in operands.items():
            self._kept.append((ref(tensor), tensor.data_ptr(), f"Operand {name} of {problem.operator}"))

    def check(self) -> None:
        """Raises Refusal where an operand lies elsewhere now, so that replays read what it no longer holds."""
        for reference, address, name in self._kept:
            if (tensor := reference()) is not None and tensor.data_ptr() != address:
                raise Refusal(
                    f"{name} lies at {tensor.data_ptr():#x}, and a CUDA graph that captured its call reads "
                    f"{address:#x}. Accepted: new values copied into the captured tensor (copy_), or a new capture."
                )


class GpuCalls:
    """The calls of one group's GPU ranks. All ranks make the same calls in the same order."""

    def __init__(
        self, ranks: GroupRanks, device: torch.device, make_heap: Callable[[int], SymmetricHeap] | None = None
    ) -> None:
        self.ranks, self.device = ranks, device
        self._machine: Machine = gpu_machine(device)
        makers = ranks if ranks.seat.world > 1 else None
        self._arena = HeapArena(make_heap or (lambda num_bytes: DeviceHeap(makers, device, num_bytes)))
        self._prepared: dict[tuple[Problem, str], PreparedCall] = {}
        self._errors = ErrorWords(device)
        self._captured = CapturedOperands()
        self._index = -1 if device.type != "cuda" else device.index or 0
        self._others = OtherGroups()
        """Those that existed at the last first call."""
        self.choices = auto.GroupChoices(ranks, self._machine, OFFERED)

    def call(self, problem: Problem, schedule: str, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The result of this rank, and whether it has memory to itself; if not, it is valid until the next call.

        Only launches, on the current stream; the first call of a problem and schedule is collective, and allocates and
        compiles. Raises Hang where a wait of an earlier call has expired.
        """
        if self._index != (torch.cuda.current_device() if self._index >= 0 else -1):
            with torch.cuda.device(self.device):
                return self.call(problem, schedule, operands)
        contiguous = {name: ready(tensor) for name, tensor in operands.items()}
        prepared = self._prepared.get((problem, schedule)) or self._begin(problem, schedule, contiguous)
        self._raise_failures()
        if self._index >= 0 and torch.cuda.is_current_stream_capturing():
            self._captured.keep(problem, operands)  # the replay of its graph orders it
        else:
            self._follow()
        return prepared(contiguous), prepared.fresh

    def follow(self) -> None:
        """As `_follow`; a captured call is ordered by the replay of its graph."""
        if self._index >= 0 and not torch.cuda.is_current_stream_capturing():
            with torch.cuda.device(self.device):
                self._follow()

    def check(self) -> None:
        """Waits for all calls; raises Hang where a wait inside one has expired.

        Refusal where an operand has moved since a graph captured its call.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._raise_failures()
        self._captured.check()

    def forget(self) -> None:
        """Makes the next calls first calls again, in the same memory."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.ranks.barrier()  # so that no rank writes into what a peer still reads
        self._prepared.clear()
        self._captured = CapturedOperands()
        self._errors = ErrorWords(self.device)
        self._arena.clear()

    def _raise_failures(self) -> None:
        if not self._errors.raised():
            return
        for prepared in self._prepared.values():
            if (message := prepared.failure()) is not None:
                raise Hang(message + self._others.sentence())

    @torch.inference_mode(False)
    def _begin(self, problem: Problem, schedule: str, operands: dict[str, Tensor]) -> PreparedCall:
        """Prepares the first call, on all ranks together: symmetric memory, tables, the compiled kernel."""
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise Refusal(
                f"{problem.operator} cannot make its first call of these sizes inside a CUDA graph, because it "
                "allocates symmetric memory and compiles. Accepted: one call before the capture."
            )
        if schedule:
            self._legal(problem, schedule)
        self._agree(problem, schedule)
        self._others = OtherGroups.agreed(self.ranks.everyone(OtherGroups.of(self.ranks.nccl, self.device)))
        chosen = schedule or self.choices.schedule(problem, lambda texts: self.measure(problem, texts, operands))
        prepared = self._prepared[problem, schedule] = self._kept(problem, chosen, operands)
        return prepared

    def _legal(self, problem: Problem, text: str) -> Schedule:
        """The schedule of *text*; Refusal where it does not run here."""
        requested = trial(problem, text, self._machine)
        if (reason := refusals.refusal(requested, True)) is not None:
            raise Refusal(reason)
        return requested.schedule

    def _kept(self, problem: Problem, text: str, operands: dict[str, Tensor]) -> PreparedCall:
        """The call of the schedule *text*, made once; the search for failures sees it from then on."""
        if (prepared := self._prepared.get((problem, text))) is None:
            prepared = self._prepared[problem, text] = self._prepare(problem, text, operands)
        return prepared

    def _prepare(self, problem: Problem, text: str, operands: dict[str, Tensor]) -> PreparedCall:
        """The call of the schedule *text*; collective, and Refusal on all ranks where one of them has a reason."""
        try:
            prepared, reason = self._made(problem, self._legal(problem, text), operands), ""
        except Refusal as refused:
            reason = str(refused)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # signals are 0 here, and after the exchange on all ranks
        if reasons := [each for each in self.ranks.everyone(reason) if each]:
            raise Refusal(reasons[0])
        return prepared

    def measure(self, problem: Problem, texts: Sequence[str], operands: dict[str, Tensor]) -> dict[str, float]:
        """Seconds of a call of each schedule, all ranks together; those that cannot be made are left out."""
        calls: dict[str, Callable[[], Tensor]] = {}
        for text in texts:
            with suppress(Refusal):  # on all ranks alike
                calls[text] = partial(self._kept(problem, text, operands), operands)
                calls[text]()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._raise_failures()
        seconds = auto.in_turns(calls, self.device, self.ranks)
        self._raise_failures()
        return seconds

    def _made(self, problem: Problem, schedule: Schedule, operands: dict[str, Tensor]) -> PreparedCall:
        """The call of *schedule*, in a piece of symmetric memory of its own; all ranks together."""
        if is_of_library(problem, schedule):
            return LibraryCall(problem, self.ranks.nccl)
        plan, seat = expand(problem, schedule), self.ranks.seat
        piece = self._arena.piece(heap_bytes(plan, seat.rank))
        limit_s = self._others.limit_s(seat.deadline_s)
        programs_most = partial(self._others.programs, self._machine.device.slots)
        if schedule.scheme == BASELINE:
            places = CallContext(piece, plan, seat.rank, self.device, limit_s=limit_s, errors=self._errors)
            return gpu_sequential.prepared(places, operands, self.ranks.nccl, programs_most)
        stand_ins = StandInContext(piece, plan, seat.rank, self.device, limit_s=limit_s, errors=self._errors)
        return Repeated(stand_ins, operands, programs_most())

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
        """Orders the calls of one device, whatever their streams, since all programs of a call are resident at once."""
        if self._index < 0:
            return
        last = _LAST.get(self._index)
        if last is None or last.cuda_stream != torch._C._cuda_getCurrentRawStream(self._index):
            stream = torch.cuda.current_stream(self.device)
            if last is not None:
                stream.wait_stream(last)
            _LAST[self._index] = stream
