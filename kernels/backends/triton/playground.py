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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from kernels.backends.base import Hang, Seat
from kernels.backends.triton import own_gpu
from kernels.schedule import Refusal

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
) -> Iterator[Gang]:  # fmt: skip
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
    gang = Gang(world, found < world if interpreted is None else interpreted, limit_s, deadline_s)
    try:
        gang.start(heap_bytes)
        yield gang
    finally:
        gang.close()


class Gang:
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
        from kernels.backends.triton.heap import meeting_place

        self._store = meeting_place()
        return "127.0.0.1", int(self._store.port)

    def _environment(self, rank: int) -> dict[str, str]:
        """A compiled rank sees its own GPU first. Triton reads when it is imported whether it interprets."""
        own = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        own["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        if self.interpreted:
            return own | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        return own | own_gpu.environment(rank, self.world)

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
        from kernels.backends.triton.rank import Place

        made.append(Place(seat, heap_bytes))

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
