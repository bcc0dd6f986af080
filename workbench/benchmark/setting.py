"""What the benchmarks share: how much effort is spent, the cluster they run on, and small trials to send to it."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kernels.axes import Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.machine_file import load
from kernels.operators import problem
from kernels.protocol import Protocol
from kernels.schemes import schedule
from kernels.trial import Trial
from workbench import machines, resources
from workbench.answer import FromCluster
from workbench.calibration import is_calibrated_here
from workbench.simulator.calibrate import FULL_SECONDS, calibrate

if TYPE_CHECKING:
    from cluster.dispatch import Cluster

WORLD = 2
RANKS = 4
"""Of a private cluster: enough for world 4, and for two gangs of world 2 at once."""
DEADLINE_S = 30.0
ONCE = Protocol(name="once", warmups=0, repeats=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long the benchmarks take. The targets are meant for `Effort()`; tests ask for less."""

    gangs: int = 20
    """Lists that are sent one after the other to a warm gang."""
    trials: int = 100
    """In the list that the overhead is found with."""
    samples: int = 300
    """That are sent from a worker to here."""
    sweep_s: float = 30.0
    """How long all clients sweep at the same time."""
    lists_s: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    """How long one list of each client takes: who asks for more at once must not get more in the end."""
    plays: int = 200
    points: int = 10_800_000
    """Of the closed form."""
    outcomes: int = 1_000
    appends: int = 100
    preset: str = "laptop_overlap"
    protocol: str = "default"
    calibration_s: float = FULL_SECONDS
    """Spent on fitting the machine of CPU ranks where it was not yet fitted to this computer."""
    pieces: tuple[int, ...] = (2, 4, 8, 16, 32)
    folder: Path | None = None
    """Where stores are written; None: beside this person's runs, on the disk that their runs are written to."""


@dataclass(slots=True)
class Setting:
    """Use it in a `with`: a private cluster is started when the first benchmark needs one, and ended with it."""

    effort: Effort
    given: Cluster | None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _private: Cluster | None = None
    _fitted: Machine | None = None

    def __enter__(self) -> Setting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._stack.close()

    @property
    def cluster(self) -> Cluster:
        """The one that was given, or a private one on this host."""
        if self.given is not None:
            return self.given
        if self._private is None:
            from cluster import launch
            from cluster.dispatch import Cluster

            record = self._stack.enter_context(launch.local(RANKS, published=False))
            self._private = self._stack.enter_context(Cluster.connect(record.address))
        return self._private

    @property
    def machine(self) -> Machine:
        """CPU ranks, as calibrated on this computer if they were."""
        return machines.machine(machines.LAPTOP)

    def fitted(self) -> Machine:
        """The same, calibrated: as it was on this host, or else now, for these benchmarks alone."""
        if self._fitted is None:
            self._fitted = self.machine if is_calibrated_here() else self._fit()
        return self._fitted

    def _fit(self) -> Machine:
        home, never = FromCluster(self.cluster), threading.Event()
        fitted = calibrate(
            lambda trials: home.answer(trials, never),
            machines.shipped_machine(machines.LAPTOP),
            self.effort.calibration_s,
        )
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder) / f"{machines.LAPTOP}.toml"
            path.write_text(fitted.text)
            return load(path)

    @property
    def folder(self) -> Path:
        folder = self.effort.folder or resources.runs_directory()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def await_ranks(self) -> None:
        """Returns when as many rank processes are up and free as a gang of WORLD needs: starting one takes seconds."""
        give_up_at = time.monotonic() + DEADLINE_S
        while self._free_ranks() < WORLD:
            if time.monotonic() > give_up_at:
                raise ValueError(f"{WORLD} free ranks did not come within {DEADLINE_S:g} s at "
                                 f"{self.cluster.address}. Accepted: a cluster that nobody else uses.")  # fmt: skip
            time.sleep(0.05)

    def _free_ranks(self) -> int:
        workers = self.cluster.describe()["workers"]
        return sum(worker["ready"] and not worker["busy"] for worker in workers)


def small(machine: Machine, protocol: Protocol = ONCE, iteration_s: float | None = None, scheme: str = "fused",
          **values: Value) -> Trial:  # fmt: skip
    """A trial of next to no work for two ranks; with *iteration_s* its wire, which costs no core, takes so long."""
    usual = problem("gemm_all_to_all", {"m": 64, "n": 64, "k": 64}, world=WORLD)
    fast = Fabric(bandwidth_bytes_per_second=1e9)
    sent = 64 // WORLD * 64 * usual.itemsize
    fabric = replace(fast, bandwidth_bytes_per_second=sent / iteration_s) if iteration_s else fast
    return Trial(problem=usual, schedule=schedule(usual, scheme, values, machine, fabric), backend="cpu",
                 machine=machine.name, fabric=fabric, protocol=protocol)  # fmt: skip
