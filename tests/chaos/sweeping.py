"""Clients: command line processes that sweep small problems, one after the other, each in a store on the small disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.chaos.disk import Full
from workbench import machines
from workbench.experiment import question

SPACES = (
    (("gemm_all_to_all", "gemv_all_reduce"), 2),
    (("embedding_all_to_all", "all_gather_gemm"), 2),
    (("gemm_reduce_scatter", "gemm_all_reduce"), 2),
    (("all_to_all_gemm", "gemm_all_to_all"), 1),
)
"""Operators and worlds of the sweeps, which clients take in turns."""
LINK = "emulated:wire_to_compute=1"
AXES = "[scheme.sequential]\n[scheme.decomposed]\npieces = [1, 2, 4]\n[scheme.fused]\nslice_tiles = [1, 2]\n"
HANGS_S = 150.0
"""Beyond the longest fault, the longest wait for ranks and the clients before."""
PAUSE_S = 0.5
"""Between the starts of two clients of one place: a full disk or a dead scheduler ends them at once."""
STORE_BYTES = 2**21
"""A store of this size is looked through and put away."""

Schedule = tuple[str, str]
"""Operator, and schedule as JSON."""


@dataclass(frozen=True)
class Space:
    """A file that says what a sweep asks for."""

    file: Path

    @cached_property
    def schedules(self) -> frozenset[Schedule]:
        """What a sweep of it measures when nothing is in its way."""
        experiment = question.load(self.file)
        machine = machines.machine(experiment.machine)
        return frozenset(
            (problem.operator, json.dumps(schedule.to_json(), sort_keys=True))
            for problem in experiment.problems
            for schedule in experiment.points(problem, machine, measured=True).schedules
        )


@dataclass
class Client:
    """One process; when it has ended, what came of it."""

    place: int
    space: Space
    store: Path
    process: subprocess.Popen[bytes]
    output: Path
    began_at: float
    ended_at: float = 0.0
    faults: list[str] = field(default_factory=list)
    """The names of what was done to it."""
    signals: list[int] = field(default_factory=list)
    hung: bool = False

    @property
    def status(self) -> int:
        return int(self.process.returncode)

    @property
    def printed(self) -> str:
        return self.output.with_suffix(".json").read_text(errors="replace")

    @property
    def said(self) -> str:
        return self.output.with_suffix(".err").read_text(errors="replace")

    def send(self, number: signal.Signals, fault: str) -> None:
        """A signal of a fault; Ctrl-C of a terminal reaches the whole group."""
        self.faults.append(fault)
        self.signals.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def __str__(self) -> str:
        struck = f", struck by {', '.join(self.faults)}" if self.faults else ""
        return f"client {self.output.name} (store {self.store.name}, {self.space.file.name}{struck})"


class Clients:
    """So many places, in each of which one client follows the other."""

    def __init__(self, folder: Path, disk: Full, num_places: int, hangs_s: float = HANGS_S) -> None:
        self._folder, self._disk, self._hangs_s = folder, disk, hangs_s
        self._num_places = num_places
        self.running: dict[int, Client] = {}
        self.ended: list[Client] = []
        """Those that nobody has looked at yet."""
        self.resting = False
        """Nobody new begins."""
        self.num_begun = 0
        self._stores: dict[int, Path] = {}
        self._begun_at: dict[int, float] = {}
        self.spaces = [_space(folder, number) for number in range(len(SPACES))]

    def tick(self, address: str | None) -> None:
        """See who has ended; begin the next, if there is a cluster."""
        now = time.monotonic()
        for place, client in list(self.running.items()):
            if client.process.poll() is not None:
                client.ended_at = now
                self.ended.append(self.running.pop(place))
            elif now - client.began_at > self._hangs_s and not client.hung:
                client.hung = True
                client.process.kill()
        if address is None or self.resting:
            return
        for place in range(self._num_places):
            if place not in self.running and now - self._begun_at.get(place, 0.0) > PAUSE_S:
                self._begun_at[place] = now
                self.running[place] = self._begin(place, address)

    def num_outcomes(self) -> int:
        """How many outcomes the stores in use hold, as far as they can be read now."""
        return sum(_highest(store) for store in self._stores.values())

    def pids(self) -> set[int]:
        """Of those that run."""
        return {client.process.pid for client in self.running.values()}

    def put_away(self) -> None:
        """From now on every place has a new store."""
        self._stores.clear()

    def _begin(self, place: int, address: str) -> Client:
        self.num_begun += 1
        number = self.num_begun
        store = self._stores.setdefault(place, self._disk.folder / f"store{place}-{number}.sqlite")
        space = self.spaces[(number + place) % len(self.spaces)]
        output = self._folder / f"client{number}"
        words = ["sweep", str(space.file), "--cluster", address, "--store", str(store), "--fresh", "--json"]
        with output.with_suffix(".json").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen([sys.executable, "-m", "workbench.cli", *words], stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=err, start_new_session=True)  # fmt: skip
        self._disk.joins(process.pid)
        return Client(place, space, store, process, output, time.monotonic())


def _space(folder: Path, number: int) -> Space:
    operators, world = SPACES[number]
    file = folder / f"space{number}.toml"
    file.write_text(f'operator = {json.dumps(operators)}\npreset = "tiny"\nworld = [{world}]\nprotocol = "quick"\n'
                    f'machine = "laptop_cpu"\nfabric = "{LINK}"\n{AXES}')  # fmt: skip
    return Space(file)


def _highest(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True, timeout=0)) as connection:
            return int(connection.execute("SELECT max(id) FROM outcomes").fetchone()[0] or 0)
    except (sqlite3.Error, OSError):
        return 0
