"""A bench that needs no torch: each trial says what it does, on which rank, and how it goes wrong."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cluster.rank import EntryPoint
from kernels import events
from kernels.events import TrialEvent

FOLDER = "FAKE_BENCH_FOLDER"
"""Environment variable: where ranks meet, and where files may lie that say what ranks load."""
ENTRY = EntryPoint(
    bench="fake_bench:FakeBench",
    seat="fake_bench:Seat",
    trial="fake_bench:FakeTrial",
    source="fake_bench:source_prints",
    versions="fake_bench:versions",
    store="fake_bench:open_store",
)


@dataclass(frozen=True, slots=True)
class Seat:
    rank: int
    world: int
    session: str
    shares_heap: bool
    rendezvous: tuple[str, int] | None
    addresses: tuple[str, ...]
    deadline_s: float
    ranks_on_gpu: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTrial:
    """`does` happens on rank `on`, in stage `time`; the other ranks wait for it."""

    key: str
    backend: str = "cpu"
    across: bool = False
    does: str = "nothing"
    on: int = 0
    num_samples: int = 2
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FakeTrial:
        return cls(**data)


def source_prints() -> dict[str, str]:
    """`fake`, unless a test wrote something else into the file `source`; `own`: every process has its own; `slow`: a
    process that never says hello."""
    known = _written("source") or "fake"
    if known == "slow":
        time.sleep(3600)
    if known == "unknown":
        raise ModuleNotFoundError("No module named 'torch'")
    return dict.fromkeys(("cpu", "triton"), str(os.getpid()) if known == "own" else known)


def versions() -> dict[str, str]:
    """Versions of this host: torch 2.13.0, unless a test wrote something else into the file `torch`."""
    return {"torch": _written("torch") or "2.13.0", "triton": "absent"}


def _written(name: str) -> str | None:
    """What a test wrote into the file *name* for all, or with a worker's number behind it for that one."""
    # asked in the worker, or in its rank process
    files = [Path(os.environ[FOLDER]) / each for each in (f"{name}-{os.getpid()}", f"{name}-{os.getppid()}", name)]
    return next((file.read_text() for file in files if file.exists()), None)


def open_store(host: str) -> tuple[Any, int]:
    return object(), 4711


def best_found(numbers: Any) -> tuple[int, float]:
    """The least of *numbers*, which takes as many hundredths of a second, as a lesson's check finds the best."""
    if not isinstance(numbers, list):
        raise ValueError(f"{numbers} is no list of schedules.")
    return min(numbers), min(numbers) / 100


class FakeBench:
    """Ranks meet by files, and wait for each other no longer than their seat allows."""

    def __init__(self, seat: Seat, emit: Callable[[TrialEvent], None]) -> None:
        self.seat = seat
        self.emit = emit
        if (Path(os.environ[FOLDER]) / "full").exists():
            raise MemoryError("no room for the heap")
        self.folder = Path(os.environ[FOLDER]) / seat.session
        self.folder.mkdir(exist_ok=True)
        self.epochs = itertools.count()
        self.opened_at = time.time()

    def run(self, trials: list[FakeTrial]) -> None:
        for trial in trials:
            for stage in ("compile", "time"):
                self.emit(events.StageEvent(kind="stage", trial=trial.key, rank=self.seat.rank, stage=stage))
            for index in range(trial.num_samples):
                time.sleep(trial.seconds)
                if trial.on == self.seat.rank and index == trial.num_samples - 1:
                    getattr(self, f"_{trial.does}")()
                self._meet()
                self.emit(
                    events.SampleEvent(
                        kind="sample",
                        trial=trial.key,
                        rank=self.seat.rank,
                        index=index,
                        seconds=trial.seconds,
                        at=time.time(),
                    )
                )
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            facts = {"pid": os.getpid(), "opened_at": self.opened_at, "seat": asdict(self.seat), "visible": visible}
            self.emit(
                events.ResultEvent(
                    kind="result",
                    trial=trial.key,
                    rank=self.seat.rank,
                    correct=True,
                    max_relative_error=0.0,
                    spans=[],
                    facts=facts,
                )
            )

    def wait_at_most(self, deadline_s: float) -> None:
        self.seat = replace(self.seat, deadline_s=deadline_s)

    @staticmethod
    def is_left() -> bool:
        return False

    @staticmethod
    def leave() -> None:
        pass

    def close(self) -> None:
        pass

    def _meet(self) -> None:
        epoch = next(self.epochs)
        (self.folder / f"{epoch}-{self.seat.rank}").touch()
        give_up_at = time.monotonic() + self.seat.deadline_s
        for peer in range(self.seat.world):
            here = self.folder / f"{epoch}-{peer}"
            while not here.exists():
                # it may have come, gone on, and died since it was looked for
                if (self.folder / "dead").exists() and not here.exists():
                    raise ConnectionResetError("Connection reset by peer")
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"waited {self.seat.deadline_s:.1f} s for rank {peer}, epoch {epoch}")
                time.sleep(0.0005)

    # what a trial may do

    def _nothing(self) -> None:
        pass

    def _hang(self) -> None:
        time.sleep(3600)

    def _spin(self) -> None:
        while True:
            pass

    def _crash(self) -> None:
        (self.folder / "dead").touch()
        time.sleep(0.02)  # the peer notices first, as over a network
        os._exit(7)

    def _throw(self) -> None:
        (self.folder / "dead").touch()
        time.sleep(0.02)
        raise RuntimeError("no kernel image is available")

    def _spoil(self) -> None:
        (self.folder / "dead").touch()
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def _spoil_unseen(self) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def _print(self) -> None:
        print("not a line of the protocol", flush=True)
        os.write(1, b"nor is this one\n")
