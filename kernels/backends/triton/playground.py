"""A gang of ranks for a kernel of one's own: `with ranks(2) as gang: gang.run(module.function, ...)`.

*function(rank, ...)* runs in one process per rank, with a `Rank` (rank.py) first: interpreted on shared memory where
there are too few GPUs, compiled on symmetric memory where every rank has one. Nothing waits for ever: a wait inside a
kernel ends after *limit_s*, a run after *deadline_s*, and a rank that raises or dies ends the gang with its sentence.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from multiprocessing.connection import Connection, Pipe, wait
from statistics import median
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.backends.base import Hang, Region, Seat, aligned
from kernels.backends.cpu import heap as shared_memory
from kernels.backends.triton.device import INTERPRETED
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import DeviceHeap, RankEndpoint, RankProcessGroup, SymmetricHeap
from kernels.backends.triton.timing import GraphReplay
from kernels.schedule import Refusal
from kernels.units import bytes_text

# One GPU for each process of a gang that nobody deals GPUs to: the rank's place in the list that the host shows.

VISIBLE = "CUDA_VISIBLE_DEVICES"


def environment(rank: int, world: int) -> dict[str, str]:
    """The variable with which *rank* sees its GPU first, then those of the other ranks of *world*.

    Each has its place in the list of GPUs that this process may see.
    """
    listed = os.environ.get(VISIBLE)
    names = [str(number) for number in range(world)] if listed is None else [one.strip() for one in listed.split(",")]
    return {VISIBLE: ",".join([names[rank], *(names[other] for other in range(world) if other != rank)])}


def take(rank: int, world: int) -> None:
    """This process is *rank* of *world*, and sees its own GPU first; to be called before CUDA begins in it."""
    os.environ.update(environment(rank, world))


# One rank of a playground: symmetric tensors, what every call takes, launching, checking and timing.

Call = Callable[[], None]

INTERPRETED_PROGRAMS = 2
"""One after the other: enough to see that programs share the work and count themselves in."""


class HostBarrier(Protocol):
    """Who lets all ranks meet on the host: the heap of CPU ranks, the process group of GPUs."""

    def barrier(self) -> Any:
        """All ranks meet."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""


@dataclass(frozen=True, slots=True)
class Symmetric:
    """A tensor that every rank has, of the same shape."""

    on: tuple[Tensor, ...]
    """By rank, as this process maps it."""
    mine: Tensor
    addresses: Tensor
    """int64 [W]: what a kernel gives to `device.peer`."""


class Rank(RankEndpoint):
    """One rank of one `RankGang.run`. All ranks make the same tensors and meet in the same order; all begins at 0."""

    def __init__(
        self, seat: Seat, heap: SymmetricHeap, device: torch.device, meets: HostBarrier, limit_s: float
    ) -> None:
        super().__init__(heap, seat.rank, seat.world, device, limit_s=limit_s)
        self._meets, self._end = meets, 0
        self.stream = None if INTERPRETED.value else torch.cuda.Stream(device)
        heap.tensor(seat.rank, 0, (heap.capacity,), torch.uint8).zero_()
        for name in ("credits", "done", "meet"):
            self._place(name, (seat.world,), torch.int32)
        self.barrier()

    @property
    def interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter, on CPU tensors."""
        return bool(INTERPRETED.value)

    def tensor(self, *shape: int, dtype: torch.dtype = torch.float32) -> Symmetric:
        """Zeros on every rank; Refusal where the heap is full."""
        name = f"tensor {len(self.places)}"
        self._place(name, shape, dtype)
        on = tuple(self.of(rank, name) for rank in range(self.world))
        return Symmetric(on, on[self.rank], self.addresses(name))

    def signals(self, count: int) -> Symmetric:
        """*count* counters that only rise."""
        return self.tensor(count, dtype=torch.int32)

    def _place(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        end = aligned(self._end + prod(shape) * dtype.itemsize)
        if end > self.heap.capacity:
            raise Refusal(
                f"Symmetric tensors of {bytes_text(end)} do not fit: each rank's heap has "
                f"{bytes_text(self.heap.capacity)}. Accepted: smaller ones, or ranks(..., heap_bytes={end})."
            )
        self.places[name] = (Region(self._end, shape), dtype)
        self._end = end

    @property
    def call(self) -> tuple[Any, ...]:
        """What every call takes: credits_at, done_at, epoch_at, arrived, error, limit_ns, rank."""
        counters = (self.addresses("credits"), self.addresses("done"))
        return *counters, self.epoch, self.arrived, self.error, self.limit_ns, self.rank

    def launcher(
        self, function: Any, *arguments: Any, items: int = 1, num_warps: int = 4, num_stages: int = 3, **constants: Any
    ) -> Call:
        """Compiles *function*; what launches it, as many programs as are resident, but no more than *items*.

        All ranks have compiled when it returns, so that none waits in its first call for another's compiler.
        """
        kernel = LaunchableKernel(function=function, arguments=arguments, constants=constants, items=items,
                        num_warps=num_warps, num_stages=num_stages)  # fmt: skip
        launch = kernel.launcher(min(items, INTERPRETED_PROGRAMS))
        self.barrier()
        return launch

    def barrier(self) -> None:
        """All ranks meet on the host, their GPUs idle."""
        if not self.interpreted:
            torch.cuda.synchronize(self.device)
        self._meets.barrier()

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""
        return self._meets.exchange(values)

    def check(self) -> None:
        """Raises Hang, with a sentence, when a wait has expired; waits for the stream."""
        if sentence := self.failure():
            raise Hang(sentence)

    def seconds(self, call: Call, calls: int = 20, repeats: int = 9) -> float:
        """One *call* of *calls* in a CUDA graph that all ranks begin together: the slowest rank's median.

        The clock is the GPU's own. Refusal where kernels are interpreted.
        """
        if self.stream is None:
            raise Refusal(
                "An interpreted kernel cannot be timed: its time says nothing about a GPU. Accepted: ranks with a "
                "GPU each."
            )
        call()  # compiles, and lets libraries make their connections, before it is captured
        self.check()
        replay, mine = GraphReplay(self, [call] * calls, self.stream, captured=True), []
        for _ in range(repeats):
            self.barrier()
            mine.append(replay.seconds())
        self.check()
        return max(slowest for (slowest,) in self.exchange([median(mine)]))


class SingleRank:
    """World 1 on a GPU: there is nobody to meet."""

    def barrier(self) -> None:
        """Nobody is waited for."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        return [list(values)]


class RankPlace:
    """What a rank keeps from run to run: its device, its heap, its way to the others. Making one is collective."""

    def __init__(self, seat: Seat, heap_bytes: int) -> None:
        self._seat = seat
        self._heap: SymmetricHeap
        self._meets: HostBarrier
        if INTERPRETED.value:
            torch.set_num_threads(1)
            self._device = torch.device("cpu")
            self._heap = self._meets = shared_memory.SegmentHeap(seat, 1, heap_bytes, 1)
            return
        self._device = torch.device("cuda", 0)  # the only one that this process sees
        torch.cuda.set_device(self._device)
        group = RankProcessGroup(seat, self._device) if seat.world > 1 else None
        self._heap, self._meets = DeviceHeap(group, self._device, heap_bytes), group or SingleRank()

    def run(self, function: Callable[..., Any], arguments: Sequence[Any], limit_s: float) -> Any:
        """The answer of *function*, called with a new Rank and *arguments*; all that it launched has ended."""
        rank = Rank(self._seat, self._heap, self._device, self._meets, limit_s)
        if rank.stream is None:
            return function(rank, *arguments)
        with torch.cuda.stream(rank.stream):
            answer = function(rank, *arguments)
        torch.cuda.synchronize(self._device)
        return answer


# A gang of ranks for a kernel of one's own: `with ranks(2) as gang: gang.run(module.function, ...)`.

HEAP_BYTES = 1 << 26
LIMIT_S, DEADLINE_S = 5.0, 120.0
START_S = 120.0
"""Until all ranks have imported torch and Triton and share memory."""
END_S = 5.0
"""Until a process that has gone says how."""
_SERVE = "from kernels.backends.triton.playground import serve; serve({})"


class RankFailure(RuntimeError):
    """A rank raised, died or was late: the sentence says which and why; its traceback is a note."""


@contextmanager
def ranks(
    world: int, *, interpreted: bool | None = None, heap_bytes: int = HEAP_BYTES, limit_s: float = LIMIT_S,
    deadline_s: float = DEADLINE_S,
) -> Iterator[RankGang]:  # fmt: skip
    """A gang of *world* ranks, each with *heap_bytes* of symmetric memory; Refusal where they cannot be had.

    *interpreted*: None interprets where this host has fewer than *world* GPUs. *limit_s* bounds each wait inside a
    kernel and at a barrier, *deadline_s* a whole run.
    """
    found = _gpus()
    if world < 1:
        raise Refusal(f"world = {world} is too small: {world} < 1. Accepted: 1 rank or more.")
    if interpreted is False and found < world:
        raise Refusal(
            f"world = {world} is too large. Each rank of a compiled kernel needs a GPU, and torch finds {found} "
            f"here: {world} > {found}. Accepted: up to {found}, or interpreted=None."
        )
    gang = RankGang(world, found < world if interpreted is None else interpreted, limit_s, deadline_s)
    try:
        gang.start(heap_bytes)
        yield gang
    finally:
        gang.close()


class RankGang:
    """Processes that run the same functions; made by `ranks`."""

    def __init__(self, world: int, interpreted: bool, limit_s: float, deadline_s: float) -> None:
        self.world, self.interpreted = world, interpreted
        self._limit_s, self._deadline_s = limit_s, deadline_s
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        self._store: Any = None

    def start(self, heap_bytes: int) -> None:
        """All ranks share a heap when it returns; RankFailure says why one does not."""
        rendezvous = None if self.interpreted or self.world == 1 else self._rendezvous()
        session = uuid.uuid4().hex[:8]
        for rank in range(self.world):
            ours, theirs = Pipe()
            self._pipes.append(ours)
            command = [sys.executable, "-c", _SERVE.format(theirs.fileno())]
            self._processes.append(
                subprocess.Popen(
                    command, env=self._environment(rank), pass_fds=[theirs.fileno()], start_new_session=True,
                )
            )  # fmt: skip
            theirs.close()
            seat = Seat(rank=rank, world=self.world, session=session, shares_heap=True, rendezvous=rendezvous,
                        deadline_s=START_S)  # fmt: skip
            ours.send((seat, heap_bytes, self._limit_s))
        self._answers(START_S, "to begin")

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What *function(rank, *arguments)* returns on every rank, by rank; RankFailure ends the gang.

        *function* belongs to a module that can be imported, and what it returns is pickled.
        """
        if not self._pipes:
            raise Refusal("This gang has ended and runs nothing more. Accepted: a new one, `with ranks(...) as gang`.")
        if function.__module__ == "__main__":
            raise Refusal(
                f"Rank processes cannot import {function.__name__}: it lives in a notebook's cell or a script. "
                "Accepted: a function of a module, such as a file that %%writefile wrote."
            )
        task = pickle.dumps((function, arguments))
        for rank, pipe in enumerate(self._pipes):
            try:
                pipe.send((sys.path, task))
            except OSError:
                self._fail(self._death(rank))
        return self._answers(self._deadline_s, f"for {function.__name__}")

    def close(self) -> None:
        """Ends all ranks, whatever they do."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(END_S)
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes, self._store = [], [], None

    def _rendezvous(self) -> tuple[str, int]:
        from kernels.backends.triton.memory import meeting_place

        self._store = meeting_place()
        return "127.0.0.1", int(self._store.port)

    def _environment(self, rank: int) -> dict[str, str]:
        """A compiled rank sees its own GPU first. Triton reads when it is imported whether it interprets."""
        own = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        own["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        if self.interpreted:
            return own | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        return own | environment(rank, self.world)

    def _answers(self, limit_s: float, what: str) -> list[Any]:
        """One answer of each rank; the first failure ends the gang."""
        until, found = time.monotonic() + limit_s, dict[int, Any]()
        while absent := [pipe for rank, pipe in enumerate(self._pipes) if rank not in found]:
            ready = wait(absent, max(0.0, until - time.monotonic()))
            if not ready:
                late = ", ".join(str(self._pipes.index(pipe)) for pipe in absent)
                self._fail(
                    f"Waited {limit_s:g} s {what}: rank {late} did not answer; {len(found)} of {self.world} did."
                )
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = self._pipes.index(pipe)
                try:
                    sentence, where, found[rank] = pipe.recv()
                except (EOFError, OSError):
                    sentence, where = self._death(rank), ""
                if sentence:
                    self._fail(sentence, where)
        return [found[rank] for rank in range(self.world)]

    def _death(self, rank: int) -> str:
        try:
            code = f"exit code {self._processes[rank].wait(END_S)}"
        except subprocess.TimeoutExpired:
            code = "no exit code yet"
        return f"The process of rank {rank} died ({code}; a negative code is a signal)."

    def _fail(self, sentence: str, where: str = "") -> None:
        self.close()
        failure = RankFailure(sentence)
        if where:
            failure.add_note(where)
        raise failure


def _gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def serve(handle: int) -> None:
    """The life of one rank: tasks come through the pipe *handle* until nobody holds its other end."""
    pipe = Connection(handle)
    seat, heap_bytes, limit_s = pipe.recv()
    made: list[Any] = []

    def begin() -> None:
        pass

        made.append(RankPlace(seat, heap_bytes))

    _answer(pipe, seat.rank, begin)
    while True:
        try:
            folders, task = pipe.recv()
        except EOFError:
            os._exit(0)  # process groups may hang when one rank has gone
        sys.path[:] = folders

        def run(task: bytes = task) -> Any:
            function, arguments = pickle.loads(task)
            return made[0].run(function, arguments, limit_s)

        _answer(pipe, seat.rank, run)


def _answer(pipe: Connection, rank: int, work: Callable[[], Any]) -> None:
    """Sends what *work* returns, or why it does not."""
    try:
        answer = pickle.dumps(("", "", work()))
    except (Hang, Refusal) as error:
        answer = pickle.dumps((str(error), traceback.format_exc(), None))
    except Exception as error:
        told = f"Rank {rank} raised {type(error).__name__}: {error}"
        answer = pickle.dumps((told, traceback.format_exc(), None))
    pipe.send_bytes(answer)
