"""A gang of ranks for your own kernel: `with ranks(2) as gang: gang.run(module.function, ...)`.

*function(rank, ...)* runs in one process per rank, with a `Rank` as first argument: compiled on symmetric memory if
every rank has a GPU, or if all share one; interpreted on shared memory where there is none. Every wait
ends: inside a kernel after *limit_s*, of a run after *deadline_s*. A rank that raises or dies ends the gang with a
message.
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
from kernels.backends.cpu.heap import SegmentHeap
from kernels.backends.triton.device import INTERPRETED
from kernels.backends.triton.launch import Call, LaunchableKernel
from kernels.backends.triton.memory import DeviceHeap, RankEndpoint, RankProcessGroup, SymmetricHeap
from kernels.backends.triton.timing import GraphReplay
from kernels.fabric import FEWEST_SHARING, MOST_SHARING, least_wait_s
from kernels.schedule import Refusal
from kernels.units import bytes_text

# One GPU for each process of a gang that starts without a cluster: the rank's place in the host's list of GPUs.

VISIBLE = "CUDA_VISIBLE_DEVICES"


def environment(rank: int, world: int, *, share_gpu: bool = False) -> dict[str, str]:
    """The environment variable with which *rank* sees its GPU first, then those of the other ranks of *world*.

    Each rank takes its place in the list of GPUs that this process may see; *share_gpu*: all take the first one.
    """
    if share_gpu:
        return {VISIBLE: os.environ.get(VISIBLE, "0").partition(",")[0].strip()}
    listed = os.environ.get(VISIBLE)
    names = [str(number) for number in range(world)] if listed is None else [name.strip() for name in listed.split(",")]
    return {VISIBLE: ",".join([names[rank], *(names[other] for other in range(world) if other != rank)])}


def take(rank: int, world: int, *, share_gpu: bool = False) -> None:
    """Makes this process *rank* of *world*, which sees its own GPU first; call it before CUDA is initialized."""
    os.environ.update(environment(rank, world, share_gpu=share_gpu))


# One rank of a playground: symmetric tensors, common arguments of calls, launching, checking and timing.

INTERPRETED_PROGRAMS = 2
"""Interpreted programs, which run one after another: two are enough to test that they share the work."""


class HostBarrier(Protocol):
    """Barrier of all ranks on the host: the heap of CPU ranks, or the process group of GPU ranks."""

    def barrier(self) -> Any:
        """Waits for all ranks."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank; all ranks pass equally many."""


@dataclass(frozen=True, slots=True)
class Symmetric:
    """A tensor that every rank has, of the same shape."""

    on: tuple[Tensor, ...]
    """The tensor of each rank, by rank, as this process maps it."""
    mine: Tensor
    """The tensor of this rank."""
    addresses: Tensor
    """int64 [W]: addresses by rank, which a kernel passes to `device.peer`."""


class Rank(RankEndpoint):
    """One rank of one `RankGang.run`. All ranks create the same tensors, which start at 0, in the same order."""

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
        """A tensor of zeros on every rank; Refusal if the heap is full."""
        name = f"tensor {len(self.places)}"
        self._place(name, shape, dtype)
        on = tuple(self.of(rank, name) for rank in range(self.world))
        return Symmetric(on, on[self.rank], self.addresses(name))

    def signals(self, count: int) -> Symmetric:
        """*count* signals: int32 counters that only rise."""
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
        """Arguments of every call: credits_at, done_at, epoch_at, arrived, error, limit_ns, rank."""
        counters = (self.addresses("credits"), self.addresses("done"))
        return *counters, self.epoch, self.arrived, self.error, self.limit_ns, self.rank

    def launcher(
        self, function: Any, *arguments: Any, items: int = 1, num_warps: int = 4, num_stages: int = 3, **constants: Any
    ) -> Call:
        """Compiles *function* and returns its launch of as many programs as are resident, at most *items*.

        All ranks have compiled when it returns, so that none waits in its first call for another rank's compiler.
        """
        kernel = LaunchableKernel(function=function, arguments=arguments, constants=constants, items=items,
                        num_warps=num_warps, num_stages=num_stages)  # fmt: skip
        launch = kernel.launcher(min(items, INTERPRETED_PROGRAMS))
        self.barrier()
        return launch

    def barrier(self) -> None:
        """Waits on the host until all ranks are here and their GPUs are idle."""
        if not self.interpreted:
            torch.cuda.synchronize(self.device)
        self._meets.barrier()

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank; all ranks pass equally many."""
        return self._meets.exchange(values)

    def check(self) -> None:
        """Waits for the stream; raises Hang with a message if a wait inside a kernel has expired."""
        if message := self.failure():
            raise Hang(message)

    def seconds(self, call: Call, calls: int = 20, repeats: int = 9) -> float:
        """Seconds of one of *calls* *call*s in a CUDA graph that all ranks start together: the slowest rank's median.

        Measured with the GPU's clock. Refusal if kernels are interpreted.
        """
        if self.stream is None:
            raise Refusal(
                "An interpreted kernel cannot be timed: its time says nothing about a GPU. Accepted: ranks with a "
                "GPU each."
            )
        call()  # compiles, and lets libraries connect, before the capture
        self.check()
        replay, samples = GraphReplay(self, [call] * calls, self.stream, captured=True), []
        for _ in range(repeats):
            self.barrier()
            samples.append(replay.seconds())
        self.check()
        return max(slowest for (slowest,) in self.exchange([median(samples)]))


class SingleRank:
    """The only rank of world 1 on a GPU: it waits for no other."""

    def barrier(self) -> None:
        """Returns at once."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        return [list(values)]


class RankPlace:
    """What a rank keeps from run to run: device, heap and host barrier. Creating one is collective."""

    def __init__(self, seat: Seat, heap_bytes: int) -> None:
        self._seat = seat
        self._heap: SymmetricHeap
        self._meets: HostBarrier
        if INTERPRETED.value:
            torch.set_num_threads(1)
            self._device = torch.device("cpu")
            self._heap = self._meets = SegmentHeap(seat, 1, heap_bytes, 1)
            return
        self._device = torch.device("cuda", 0)  # the only one that this process sees
        torch.cuda.set_device(self._device)
        group = RankProcessGroup(seat, self._device) if seat.world > 1 else None
        self._heap, self._meets = DeviceHeap(group, self._device, heap_bytes), group or SingleRank()

    def run(self, function: Callable[..., Any], arguments: Sequence[Any], limit_s: float) -> Any:
        """The result of *function*, called with a new Rank and *arguments*; all that it launched has ended."""
        rank = Rank(self._seat, self._heap, self._device, self._meets, limit_s)
        if rank.stream is None:
            return function(rank, *arguments)
        with torch.cuda.stream(rank.stream):
            result = function(rank, *arguments)
        torch.cuda.synchronize(self._device)
        return result


# The gang: its processes, and what runs in each of them.

HEAP_BYTES = 1 << 26
LIMIT_S, DEADLINE_S = 5.0, 120.0
START_S = 120.0
"""Longest start, until all ranks have imported torch and Triton and share memory."""
END_S = 5.0
"""Longest wait for the exit code of a process that has ended."""
_SERVE = "from kernels.backends.triton.playground import serve; serve({})"


class RankFailure(RuntimeError):
    """A rank raised, died or was late: the message says which and why; its traceback is a note."""


@contextmanager
def ranks(
    world: int, *, interpreted: bool | None = None, share_gpu: bool | None = None, heap_bytes: int = HEAP_BYTES,
    limit_s: float = LIMIT_S, deadline_s: float = DEADLINE_S,
) -> Iterator[RankGang]:  # fmt: skip
    """A gang of *world* ranks, each with *heap_bytes* of symmetric memory; Refusal if there are too few GPUs.

    *share_gpu*: None shares the first GPU among the ranks if there are fewer GPUs than ranks: order and results are
    real then, times are not. *interpreted*: None interprets where there is no GPU to have or to share. *limit_s* bounds
    each wait inside a kernel and at a barrier, *deadline_s* a whole run.
    """
    gpu_count = _gpus()
    if world < 1:
        raise Refusal(f"world = {world} is too small: {world} < 1. Accepted: 1 rank or more.")
    shares = interpreted is not True and _shares(world, gpu_count, share_gpu)
    if interpreted is False and gpu_count < world and not shares:
        raise Refusal(
            f"world = {world} is too large. Each rank of a compiled kernel needs a GPU, and torch finds {gpu_count} "
            f"here: {world} > {gpu_count}. Accepted: up to {gpu_count}, or interpreted=None."
        )
    interprets = gpu_count < world and not shares if interpreted is None else interpreted
    limit_s = max(limit_s, least_wait_s(world) if shares else 0.0)
    gang = RankGang(world, interprets, limit_s, deadline_s, shares_gpu=shares)
    try:
        gang.start(heap_bytes)
        yield gang
    finally:
        gang.close()


def _shares(world: int, gpu_count: int, share_gpu: bool | None) -> bool:
    """Whether *world* ranks share one of *gpu_count* GPUs; Refusal where they are to, and cannot or need not."""
    possible = 0 < gpu_count < world and FEWEST_SHARING <= world <= MOST_SHARING
    if share_gpu and not possible:
        raise Refusal(
            f"share_gpu=True does not fit world = {world}: {FEWEST_SHARING} to {MOST_SHARING} ranks share a GPU where "
            f"there are fewer GPUs than ranks, and torch finds {gpu_count} here. Accepted: share_gpu=None."
        )
    return possible and share_gpu is not False


class RankGang:
    """Processes that run the same functions; made by `ranks`."""

    def __init__(
        self, world: int, interpreted: bool, limit_s: float, deadline_s: float, *, shares_gpu: bool = False
    ) -> None:
        self.world, self.interpreted, self.shares_gpu = world, interpreted, shares_gpu
        self._limit_s, self._deadline_s = limit_s, deadline_s
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        self._store: Any = None

    def start(self, heap_bytes: int) -> None:
        """Starts all ranks with a shared heap; RankFailure says why one did not start."""
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
                        deadline_s=START_S, ranks_on_gpu=self.world if self.shares_gpu else 1)  # fmt: skip
            ours.send((seat, heap_bytes, self._limit_s))
        self._answers(START_S, "to begin")

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The results of *function(rank, *arguments)*, by rank; RankFailure ends the gang.

        *function* must belong to a module that can be imported, and its results are pickled.
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
        """Kills all ranks."""
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
        """Environment of a rank: it sees its own GPU first, and Triton reads TRITON_INTERPRET on import."""
        inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        inherited["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        if self.interpreted:
            return inherited | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        return inherited | environment(rank, self.world, share_gpu=self.shares_gpu)

    def _answers(self, limit_s: float, what: str) -> list[Any]:
        """One answer of each rank, by rank; the first failure ends the gang."""
        until, by_rank = time.monotonic() + limit_s, dict[int, Any]()
        while absent := [pipe for rank, pipe in enumerate(self._pipes) if rank not in by_rank]:
            ready = wait(absent, max(0.0, until - time.monotonic()))
            if not ready:
                late = ", ".join(str(self._pipes.index(pipe)) for pipe in absent)
                self._fail(
                    f"Waited {limit_s:g} s {what}: rank {late} did not answer; {len(by_rank)} of {self.world} did."
                )
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = self._pipes.index(pipe)
                try:
                    message, trace, by_rank[rank] = pipe.recv()
                except (EOFError, OSError):
                    message, trace = self._death(rank), ""
                if message:
                    self._fail(message, trace)
        return [by_rank[rank] for rank in range(self.world)]

    def _death(self, rank: int) -> str:
        try:
            code = f"exit code {self._processes[rank].wait(END_S)}"
        except subprocess.TimeoutExpired:
            code = "no exit code yet"
        return f"The process of rank {rank} died ({code}; a negative code is a signal)."

    def _fail(self, message: str, trace: str = "") -> None:
        self.close()
        failure = RankFailure(message)
        if trace:
            failure.add_note(trace)
        raise failure


def _gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def serve(handle: int) -> None:
    """Runs one rank: executes tasks from the pipe *handle* until its other end is closed."""
    pipe = Connection(handle)
    seat, heap_bytes, limit_s = pipe.recv()
    places: list[RankPlace] = []

    def begin() -> None:
        places.append(RankPlace(seat, heap_bytes))

    _answer(pipe, seat.rank, begin)
    while True:
        try:
            folders, task = pipe.recv()
        except EOFError:
            os._exit(0)  # destroying a process group may hang when a rank has ended
        sys.path[:] = folders

        def run(task: bytes = task) -> Any:
            function, arguments = pickle.loads(task)
            return places[0].run(function, arguments, limit_s)

        _answer(pipe, seat.rank, run)


def _answer(pipe: Connection, rank: int, work: Callable[[], Any]) -> None:
    """Sends the result of *work*, or the reason for its failure."""
    try:
        answer = pickle.dumps(("", "", work()))
    except (Hang, Refusal) as error:
        answer = pickle.dumps((str(error), traceback.format_exc(), None))
    except Exception as error:
        message = f"Rank {rank} raised {type(error).__name__}: {error}"
        answer = pickle.dumps((message, traceback.format_exc(), None))
    pipe.send_bytes(answer)
