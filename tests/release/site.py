"""Where the checks run: a cluster of their own, started, looked at and ended by commands; ready again after a fault."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from cluster import launch
from kernels.fabric import SHARED_GPU
from tests.release.commands import STATE, Commands, Miss, require
from tests.release.questions import QUESTIONS, SHARED, SpaceFile

UP_S = 90.0
READY_S = 90.0
"""Ranks import torch and, where one was killed, say hello again."""
DOWN_S = 40.0
GONE_S = 15.0
"""So long after `cluster down` a process may still be ending."""
LOOK_S = 0.25
"""So long before each look: whoever asks takes a core from ranks that start."""
IDLE = "idle"
Figures = dict[str, Any]


class Site:
    """The commands, the cluster of *world* ranks of *backend*, on one GPU if they share it, and what is asked."""

    def __init__(self, commands: Commands, backend: str, world: int, *, share_gpu: bool = False) -> None:
        self.commands, self.backend, self.world, self.share_gpu = commands, backend, world, share_gpu
        self.questions = QUESTIONS[SHARED if share_gpu else backend]
        self.pids: set[int] = set()
        """Of every rank process that was seen."""
        os.environ[STATE] = commands.environment[STATE]  # this process finds that cluster, too

    @property
    def on_gpus(self) -> bool:
        return self.backend == "triton"

    def up(self) -> Figures:
        """Start the cluster; how long that takes, and how long until its ranks are ready."""
        gpus = "share_gpu=yes" if self.share_gpu else f"gpus={self.world if self.on_gpus else 0}"
        words = ("--set", f"num_ranks={self.world}", "--set", gpus)
        answer = self.commands.ask("cluster", "up", *words, "--json", within_s=UP_S)
        began_at = time.monotonic()
        self.wait_idle(READY_S)
        return {"up_s": answer.seconds, "ranks_ready_s": time.monotonic() - began_at}

    def down(self) -> None:
        self.commands.ask("cluster", "down", "--json", within_s=DOWN_S)

    def ready(self) -> str | None:
        """All ranks idle, if need be in another cluster: then why, in a sentence. Miss where that does not help."""
        if launch.running() is None:
            self.up()
            return None
        try:
            self.wait_idle(READY_S)
        except Miss as trouble:
            with suppress(Miss):
                self.down()
            self.end_processes()
            self.up()
            return f"The cluster was started anew before this: {trouble}"
        return None

    def ranks(self) -> list[dict[str, Any]]:
        """A row per worker, as `workbench cluster status` has it."""
        rows = launch.status()
        self.pids |= {row["rank_pid"] for row in rows if row.get("rank_pid")}
        return rows

    def wait_idle(self, within_s: float) -> float:
        """Seconds until every rank is idle."""
        began_at = time.monotonic()
        states: list[str] = []

        def all_idle() -> bool:
            time.sleep(LOOK_S)
            try:
                states[:] = [row["state"] for row in self.ranks()]
            except (ValueError, OSError, RuntimeError) as error:  # a cluster that does not answer may answer yet
                states[:] = [str(error) or type(error).__name__]
            return states == [IDLE] * self.world

        try:
            self.commands.wait(f"all {self.world} ranks being idle", within_s, all_idle)
        except Miss as missed:
            raise Miss(f"{missed} They are: {', '.join(states) or 'not there'}.") from None
        return time.monotonic() - began_at

    def store(self, name: str) -> Path:
        """Of one check: what another one measured is not known there."""
        return self.commands.folder / f"{name}.sqlite"

    def space(self, name: str, space: SpaceFile, world: int | None = None) -> Path:
        """*space* as a file."""
        path = self.commands.folder / f"{name}.toml"
        fabric = SHARED_GPU if self.share_gpu else None
        path.write_text(space.toml(self.world if world is None else world, self.backend, fabric))
        return path

    def sizes(self, operator: str) -> list[str]:
        """The options of a command that state sizes and backend of *operator*'s problem."""
        pairs = [word for size in self.questions.shapes[operator].split() for word in ("--shape", size)]
        return [*pairs, "--backend", self.backend, *(["--share-gpu"] if self.share_gpu else [])]

    def left_behind(self) -> list[str]:
        """What outlives the cluster by more than a few seconds: processes, and shared memory of ours."""
        with suppress(Miss):
            self.commands.wait("every process having ended", GONE_S, lambda: not self.commands.processes())
        processes = [f"process {_role(each)}" for each in self.commands.processes()]
        shared = Path("/dev/shm")
        segments = [path.name for path in shared.glob("*overlap-*")] if shared.is_dir() else []
        return processes + [f"segment {name}" for name in segments if int(name.rpartition("-")[2]) in self.pids]

    def end_processes(self) -> None:
        """Kill all that lives in our folder, the stopped ones too."""
        self.commands.kill_all(GONE_S)

    def close(self) -> None:
        """Take the cluster down, and end what did not end with it."""
        try:
            if launch.running() is not None:
                self.commands.gives_up_at = max(self.commands.gives_up_at, time.monotonic() + DOWN_S)
                self.down()
        finally:
            self.end_processes()


def _role(process: psutil.Process) -> str:
    """Its module, such as cluster.rank; no path."""
    with suppress(psutil.Error):
        words = process.cmdline()
        return words[words.index("-m") + 1] if "-m" in words[:-1] else process.name()
    return str(process.pid)


def require_sound(rows: list[dict[str, Any]]) -> None:
    """Every measurement of *rows* was verified and has a time."""
    for row in rows:
        if row["outcome"] == "measurement":
            name = f"{row['scheme']} of {row['operator']} ({row['part']})" if row.get("part") else row["scheme"]
            require(row["correct"] is not False, f"The result of {name} is wrong.")
            require(row["time_s"] and row["time_s"] > 0, f"{name} has the time {row['time_s']}.")
