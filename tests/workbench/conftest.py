"""A small machine, trials of it and their outcomes, made without measuring anything."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.cpu_use import HostUse
from cluster.hosts import local_ranks
from cluster.seating import Ranks
from cluster.watchdog import Deadlines
from kernels import events
from kernels.events import ExecutionFields, FailureEvent, ProgressEvent
from kernels.fabric import parse
from kernels.hardware import versions_print
from kernels.machine import Costs, Device, Dimension, Machine
from kernels.operators import problem
from kernels.outcome import Measurement, Span, TileTimes
from kernels.schemes import schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.experiment.experiment import Experiment
from workbench.experiment.run import Run, run
from workbench.experiment.sources import FromCluster
from workbench.experiment.space import Choice, Space
from workbench.results.store import Store

DEVICE = Device(kind="cpu", name="test", slots=1, matrix_flops_per_second={"float32": 1e11, "bfloat16": 1e11},
                memory_bytes_per_second=1e10, memory_bytes=8e9, l2_bytes=2e6, copy_engines=0,
                shared_memory_per_slot_bytes=0)  # fmt: skip
COSTS = Costs(launch_seconds=0, step_seconds=1e-4, tile_seconds=1e-5, signal_seconds=1e-5, barrier_seconds=1e-5,
              copy_engine_seconds=0, library_seconds=1e-4, library_share=0.9, send_blocks=0)  # fmt: skip
THREE = Space((Choice("sequential"), Choice("decomposed"), Choice("fused")))
MakeExperiment = Callable[..., Experiment]


@pytest.fixture
def machine() -> Machine:
    dimension = Dimension(topology="switch", count=8, bandwidth_bytes_per_second=1e9, latency_seconds=1e-4)
    return Machine(name="test", title="A test machine", backend="cpu", device=DEVICE, costs=COSTS,
                   dimensions=(dimension,), provenance={}, digest="0123456789ab")  # fmt: skip


@pytest.fixture
def make_trial(machine: Machine) -> Callable[..., Trial]:
    """make_trial(scheme, part="whole", operator=..., fabric=..., world=..., **axes)"""

    def make(scheme: str = "sequential", part: str = "whole", *, operator: str = "gemm_all_to_all",
             fabric: str = "emulated:bandwidth_bytes_per_second=1e9", world: int = 2,
             **axes: int | str) -> Trial:  # fmt: skip
        asked = problem(operator, {"m": 256, "n": 128, "k": 64}, world=world)
        linked = parse(fabric)
        return Trial(problem=asked, schedule=schedule(asked, scheme, axes, machine, linked), backend="cpu",
                     machine=machine.name, fabric=linked, protocol=PROTOCOLS["quick"], part=part)  # fmt: skip

    return make


@pytest.fixture
def measure() -> Callable[..., Measurement]:
    """measure(trial, seconds): five samples on every rank around *seconds*; the last rank is the slowest."""

    def make(trial: Trial, seconds: float = 1e-3) -> Measurement:
        samples = tuple(
            tuple(seconds * (1 + 0.01 * (rank - trial.world + 1)) for _ in range(5)) for rank in range(trial.world)
        )
        return Measurement(trial=trial, samples=samples, correct=True, max_relative_error=1e-6,
                           spans=(Span("0/compute/-1/0", 0, "compute", "compute", 0.0, seconds, None, 32e-9,
                                       (TileTimes(3, 17, 0.0, seconds / 4, seconds / 2, seconds),)),))  # fmt: skip

    return make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


class FakeCluster:
    """Answers like cluster.client.Cluster, from a table: no process, no clock."""

    def __init__(self) -> None:
        self.lists: list[list[Trial]] = []
        """Every list that was streamed."""
        self.shared: list[bool] = []
        """Whether ranks that share memory were asked for, of each of them."""
        self.source_prints: list[str | None] = []
        """The kernels that each of them was asked with."""
        self.gang: Callable[[int, str], Ranks | None] = local_ranks
        """What so many ranks of a backend run on; None while that cannot be told."""
        self.across: list[bool] = []
        """Whether ranks on several hosts were asked about, each time."""
        self.uses: tuple[HostUse, ...] = (HostUse("here", 2.0, 0.0),)
        """Who uses the cores of its hosts."""
        self.others = 0
        """So often it says that others want ranks."""
        self.limits: list[Deadlines] = []
        """Of each of them."""
        self.kernels: str | None = None
        """Source print that the ranks report with their results; None: that of the client."""
        self.seconds: Callable[[Trial], float] = lambda trial: 1e-3
        self.failures: dict[str, tuple[str, int | None]] = {}
        """Scheme -> the stage at which its trials fail, and the rank."""
        self.facts: dict[int, dict[str, Any]] = {}
        """What each rank says beside its result."""
        self.before: Callable[[Trial], None] = lambda trial: None
        """Called before a trial is answered."""
        self.dies: Callable[[int, list[Trial]], Trial | None] = lambda number, trials: None
        """The trial at which a rank dies, of the list of that number, counted from 1."""

    def wanted_by_others(self) -> bool:
        self.others -= 1
        return self.others >= 0

    def core_use(self) -> tuple[HostUse, ...]:
        return self.uses

    def ranks(self, world: int, backend: str, cancelled: threading.Event | None = None,
              across: bool = False, report: Callable[[str], object] = print) -> Ranks | None:  # fmt: skip
        self.across.append(across)
        return self.gang(world, backend)

    def stream(self, trials: Sequence[Trial], *, world: int, shares_heap: bool, deadline_s: float | Deadlines,
               cancelled: threading.Event | None = None,
               source_print: str | None = None) -> Iterator[ProgressEvent]:  # fmt: skip
        assert isinstance(deadline_s, Deadlines)
        self.source_prints.append(source_print)
        self.limits.append(deadline_s)
        self.lists.append(list(trials))
        self.shared.append(shares_heap)
        if (fatal := self.dies(len(self.lists), list(trials))) is not None:
            yield from self._broken_off(trials, fatal)
            return
        for trial in trials:
            self.before(trial)
            if cancelled is not None and cancelled.is_set():
                yield failure(trial, "cancelled", None)
            elif trial.schedule.scheme in self.failures:
                yield failure(trial, *self.failures[trial.schedule.scheme])
                yield failure(trial, "hang", 1)
            else:
                yield from self._measured(trial, world)

    def _measured(self, trial: Trial, world: int) -> Iterator[ProgressEvent]:
        for rank in range(world):
            yield events.StageEvent(kind="stage", trial=trial.key, rank=rank, stage="time")
        for index in range(trial.protocol.repeats):
            for rank in range(world):
                yield events.SampleEvent(
                    kind="sample", trial=trial.key, rank=rank, index=index, seconds=self.seconds(trial), at=1e9 + index
                )
        for rank in range(world):
            span = [f"{rank}/compute/-1/0", rank, "compute", "compute", 0.0, self.seconds(trial), None]
            result = events.ResultEvent(
                kind="result",
                trial=trial.key,
                rank=rank,
                spans=[span],
                facts=self.facts.get(rank, {}),
                max_relative_error=1e-6,
                correct=True if trial.part == "whole" else None,
            )
            yield {**result, **self._ran(trial)}

    def _broken_off(self, trials: Sequence[Trial], fatal: Trial) -> Iterator[ProgressEvent]:
        for trial in trials:
            for rank in range(trial.world):
                yield events.SampleEvent(kind="sample", trial=trial.key, rank=rank, index=0, seconds=1.0, at=1e9)
        for trial in trials:
            yield failure(trial, "lost" if trial is fatal else "cancelled", 1)

    def _ran(self, trial: Trial) -> ExecutionFields:
        """What dispatch says of the ranks."""
        ranks = self.gang(trial.world, trial.backend)
        if ranks is None:
            return {}
        return {"source_print": self.kernels or self.source_prints[-1],
                "versions_print": versions_print(ranks.versions), "hardware": ranks.hardware.to_json()}  # fmt: skip


def failure(trial: Trial, stage: str, rank: int | None) -> FailureEvent:
    return events.FailureEvent(kind="failure", trial=trial.key, rank=rank, stage=stage, message=f"because of {stage}")


@pytest.fixture
def make_experiment(machine: Machine) -> MakeExperiment:
    def make(space: Space = THREE, *, world: int = 2, **fields: Any) -> Experiment:
        asked = problem("gemm_all_to_all", {"m": 256, "n": 128, "k": 64}, world=world)
        stated = {"fabric": parse("emulated:bandwidth_bytes_per_second=1e9"), "protocol": PROTOCOLS["quick"], **fields}
        return Experiment(problems=(asked,), space=space, backend="cpu", machine=machine.name, **stated)

    return make


@pytest.fixture
def measure_it(store: Store, fake_cluster: Any, machine: Machine) -> Callable[[Experiment], Run]:
    """Runs an experiment on the fake cluster to its end."""

    def make(experiment: Experiment) -> Run:
        sitting = run(experiment, store, FromCluster(fake_cluster), machine)
        for _ in sitting:
            pass
        return sitting

    return make


@pytest.fixture
def fake_cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def connected_fake(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the fake cluster, whatever address they are given."""

    @contextmanager
    def connected(
        address: str | None, num_ranks: int, backend: str, *, share_gpu: bool = False
    ) -> Iterator[FakeCluster]:
        yield fake_cluster

    monkeypatch.setattr("workbench.cli.measuring.connected", connected)


QUIET, BUSY = 0.02, 1.2
"""Cores of two that others have."""


@pytest.fixture
def others_had(fake_cluster: Any) -> Callable[..., None]:
    """others_had(BUSY, QUIET): cores that others have during each list of trials; the last one stays."""

    def had(*cores: float) -> None:
        lists = len(fake_cluster.lists)

        def read(trial: Trial) -> None:
            now = cores[min(len(fake_cluster.lists) - lists, len(cores)) - 1]
            use = {"windows": [[1e9 - 1, 1e9 + 100, now]], "cores": 2.0, "whom": {"other programs": now}}
            fake_cluster.facts = {rank: {"core_use": use} for rank in range(trial.world)}

        fake_cluster.before = read

    return had


@pytest.fixture(autouse=True)
def uncalibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines and presets as shipped, whatever was calibrated or added on this computer."""
    for module in ("machines", "machines.presets"):
        monkeypatch.setattr(f"workbench.{module}.runs_directory", lambda: tmp_path / "runs")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No lab of this user is found."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
