"""The rank process alone, over its pipes; and its parts without a process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import fake_bench
import psutil
import pytest
from fake_bench import FakeTrial
from fake_cluster import eventually

from cluster.rank import EntryPoint, RankServer, open_store
from kernels.backends.base import Hang


class Pipes:
    """Starts a rank process as a keeper does."""

    def __init__(self, entry: EntryPoint) -> None:
        start = {"incarnation": "i1", "parent": os.getpid(), "entry": asdict(entry)}
        command = [sys.executable, "-m", "cluster.rank", json.dumps(start)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, text=True, start_new_session=True
        )

    def order(self, order: dict[str, Any]) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(order) + "\n")
        self.popen.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        return json.loads(self.popen.stdout.readline())

    def until(self, kind: str) -> list[dict[str, Any]]:
        answers = [self.answer()]
        while answers[-1]["kind"] != kind:
            answers.append(self.answer())
        return answers

    def end(self) -> str:
        """Kill it, once; what it wrote to standard error."""
        if self.popen.stderr.closed:  # type: ignore[union-attr]
            return ""
        self.popen.kill()
        with self.popen.stderr as errors, self.popen.stdout, contextlib.suppress(OSError):  # type: ignore[union-attr]
            self.popen.stdin.close()  # type: ignore[union-attr]
            text = errors.read()
        self.popen.wait(timeout=60)
        return text


SAID = {
    "source_prints": {"cpu": "fake", "triton": "fake"},
    "versions": {"torch": "2.13.0", "triton": "absent"},
}


def seat(session: str = "s-1") -> dict[str, Any]:
    facts = {"session": session, "shares_heap": True, "rendezvous": None, "addresses": ["127.0.0.1"]}
    return {"rank": 0, "world": 1, "deadline_s": 5.0, **facts}


def run_order(*trials: FakeTrial, session: str = "s-1") -> dict[str, Any]:
    return {"order": "run", "seat": seat(session), "trials": [trial.to_json() for trial in trials]}


@pytest.fixture
def pipes(folder: Path) -> Iterator[Pipes]:
    pipes = Pipes(fake_bench.ENTRY)
    yield pipes
    pipes.end()


def test_it_says_hello_with_what_it_loads_and_runs_orders(pipes: Pipes) -> None:
    assert pipes.answer() == {"kind": "hello", "incarnation": "i1", "hello": SAID}
    pipes.order(run_order(FakeTrial(key="a"), FakeTrial(key="b")))
    kinds = [(answer["kind"], answer.get("trial")) for answer in pipes.until("done")]
    per_trial = ["stage", "stage", "sample", "sample", "result"]
    assert kinds == [("opened", None), *((k, "a") for k in per_trial), *((k, "b") for k in per_trial), ("done", None)]


def test_the_bench_stays_open_while_the_session_stays(pipes: Pipes) -> None:
    opened = []
    for session in ("s-1", "s-1", "s-2"):
        pipes.order(run_order(FakeTrial(key="a"), session=session))
        opened.append(pipes.until("done")[-2]["facts"]["opened_at"])
    assert opened[0] == opened[1] < opened[2]


def test_what_a_kernel_prints_does_not_reach_the_protocol(pipes: Pipes) -> None:
    pipes.order(run_order(FakeTrial(key="a", does="print")))
    assert pipes.until("done")[-1] == {"kind": "done"}
    errors = pipes.end()
    assert "not a line of the protocol" in errors
    assert "nor is this one" in errors


def test_it_ends_when_its_worker_closes_the_pipe_even_while_a_kernel_spins(pipes: Pipes) -> None:
    pipes.order(run_order(FakeTrial(key="a", does="spin")))
    pipes.until("stage")
    assert pipes.popen.stdin is not None
    pipes.popen.stdin.close()
    assert pipes.popen.wait(timeout=60) == 0


def test_it_dies_with_its_worker_even_when_stopped(folder: Path) -> None:
    lines = ["import test_rank, time", "pipes = test_rank.Pipes(test_rank.fake_bench.ENTRY)", "pipes.answer()"]
    script = "; ".join([*lines, "print(pipes.popen.pid, flush=True)", "time.sleep(60)"])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=env)
    assert worker.stdout is not None
    rank = psutil.Process(int(worker.stdout.readline()))
    rank.send_signal(signal.SIGSTOP)
    worker.kill()
    worker.communicate(timeout=60)
    assert eventually(lambda: not rank.is_running() or rank.status() == psutil.STATUS_ZOMBIE, 5.0)


def test_a_bench_that_cannot_be_imported_is_reported(folder: Path) -> None:
    pipes = Pipes(replace(fake_bench.ENTRY, bench="no_such_module:Bench"))
    message = "ModuleNotFoundError: No module named 'no_such_module'"
    assert pipes.answer() == {"kind": "failed", "message": message}
    assert pipes.popen.wait(timeout=60) == 1
    pipes.end()


class Raises:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, trials: list[Any]) -> None:
        raise self.error

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "stage", "witness"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:123"), "launch", True),
        (ConnectionResetError("Connection reset by peer"), "launch", True),
        (TimeoutError("rank 0 waited 5 s for slice 3 of rank 1"), "hang", True),
        (Hang("Rank 0 waited for rank 1 at barrier 9. Waited 2.4 s."), "hang", True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "launch", False),
        (MemoryError("the heap needs 4 GiB, /dev/shm has 1 GiB free"), "launch", False),
    ],
)  # fmt: skip
def test_an_exception_is_a_cause_or_only_a_witness_of_a_peers_end(error: Exception, stage: str, witness: bool) -> None:
    emitted: list[dict[str, Any]] = []
    rank = RankServer(
        {"trial": FakeTrial, "seat": fake_bench.Seat, "bench": lambda seat, emit: Raises(error)}, emitted.append
    )
    rank.obey({"order": "run", "seat": seat(), "trials": []})
    assert (emitted[-1]["kind"], emitted[-1]["stage"], emitted[-1]["witness"]) == ("broken", stage, witness)
    assert str(error) in emitted[-1]["message"]


class Left:
    """A bench whose peers leave, or do not."""

    peers_leave: ClassVar[bool | Exception] = False
    happened: ClassVar[list[str]] = []

    def __init__(self, seat: fake_bench.Seat, emit: Any) -> None:
        pass

    def run(self, trials: list[Any]) -> None:
        pass

    @classmethod
    def is_left(cls) -> bool:
        if isinstance(cls.peers_leave, Exception):
            raise cls.peers_leave
        return cls.peers_leave

    @classmethod
    def leave(cls) -> None:
        cls.happened.append("left")

    def close(self) -> None:
        self.happened.append("closed")


def test_an_idle_rank_leaves_a_gang_that_peers_leave_and_opens_the_next_one_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = RankServer({"trial": FakeTrial, "seat": fake_bench.Seat, "bench": Left}, lambda event: None)
    rank.obey({"order": "run", "seat": seat(), "trials": []})
    first = rank.bench
    rank.idle()
    rank.obey({"order": "run", "seat": seat(), "trials": []})
    assert rank.bench is first, "a gang that nobody leaves stays open"
    assert not Left.happened
    monkeypatch.setattr(Left, "peers_leave", True)
    rank.idle()
    assert Left.happened == ["closed", "left"], "graphs go first"
    rank.idle()
    assert Left.happened == ["closed", "left", "left"], "until all peers leave, and without a bench, too"
    rank.obey({"order": "run", "seat": seat(), "trials": []})
    assert rank.bench not in (None, first)

    class Exited(BaseException):
        pass

    def exits(status: int) -> None:
        assert status == 1
        raise Exited

    monkeypatch.setattr(os, "_exit", exits)
    monkeypatch.setattr(Left, "peers_leave", RuntimeError("a group that does not end"))
    with pytest.raises(Exited):
        rank.idle()


def test_the_store_of_a_rendezvous_listens_on_the_ranks_own_address_only() -> None:
    from torch.distributed import TCPStore

    store, port = open_store("127.0.0.2")
    TCPStore("127.0.0.2", port, is_master=False).set("key", "value")
    assert store.get("key") == b"value"
    listening = {c.laddr.ip for c in psutil.Process().net_connections() if c.laddr.port == port and not c.raddr}
    assert listening == {"127.0.0.2"}


def test_a_rendezvous_is_opened_once_per_session() -> None:
    emitted: list[dict[str, Any]] = []
    ports = iter([1, 2])
    rank = RankServer({"store": lambda host: (object(), next(ports))}, emitted.append)
    for session in ("s-1", "s-1", "s-2"):
        rank.obey({"order": "rendezvous", "session": session, "host": "127.0.0.1", "guarded": False})
    assert [(answer["port"], answer["secret"]) for answer in emitted] == [(1, None), (1, None), (2, None)]
