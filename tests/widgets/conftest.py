"""A store and a cluster of one's own for every test of the widgets: nothing of this person's is read or changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from cluster.cpu_use import HostUse
from cluster.hosts import worker_device
from kernels.hardware import versions
from tests.workbench.conftest import FakeCluster
from workbench import resources
from workbench.charts import timeline
from workbench.experiment.estimated_space import SpaceQuestion
from workbench.experiment.form import FormQuestion
from workbench.machines import shipped_machine
from workbench.results.store import Store
from workbench.simulator.predict import resolved
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.panels import Row


class FakeLab(FakeCluster):
    """A fake cluster with what a finder looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.address = "tcp://127.0.0.1:1"
        self.client = SimpleNamespace(status="running")
        self.count = 4
        self.processor = worker_device(None).processor
        self.others_cores, self.party = 0.0, "other programs"

    def core_use(self) -> tuple[HostUse, ...]:
        return (HostUse("here", 4, self.others_cores, {self.party: self.others_cores}),)

    def describe(self) -> dict[str, Any]:
        said = {
            "versions": versions(),
            "device": replace(worker_device(None), processor=self.processor).to_json(),
            "backend": "cpu",
        }
        return {"workers": [{"name": f"rank{n}", "host": "here", "trouble": None, **said} for n in range(self.count)]}


@pytest.fixture(autouse=True)
def no_cluster_of_this_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    resources.begin()  # a file that an earlier test left unreadable is no notice of this page


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs" / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def lab() -> FakeLab:
    return FakeLab()


@pytest.fixture
def make_explorer(store: Store, lab: FakeLab) -> Iterator[Callable[..., Explorer]]:
    """make_explorer(**arguments): an explorer of a tiny problem, closed afterwards."""
    made: list[Explorer] = []

    def make(**more: Any) -> Explorer:
        explorer = Explorer(**{"store": store, "cluster": lab, **more})
        made.append(explorer)
        return explorer

    yield make
    for explorer in made:
        explorer.close()
        assert explorer.session.wait(100)
        assert eventually(lambda explorer=explorer: not explorer.frozen.busy)


@pytest.fixture
def explorer(make_explorer: Callable[..., Explorer]) -> Explorer:
    made = make_explorer()
    made.form.problem.preset.value = "tiny"
    return made


def eventually(condition: Callable[[], Any], seconds: float = 100.0) -> bool:
    """Whether *condition* becomes true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


def run(explorer: Explorer) -> None:
    """Presses Run and waits for the end."""
    explorer.page.run.click()
    assert explorer.session.wait(100)


def headings(explorer: Explorer) -> list[str]:
    """What the timeline shows, from top to bottom; not what it keeps a place for."""
    drawn = [record["heading"] for record in explorer.page.timeline.rows(timeline.DATASET) if record["heading"]]
    return [heading.partition(":")[0] for heading in drawn if not heading.endswith(": not yet")]


def row(**changes: Any) -> Row:
    """A row as the store gives it, of one measured trial."""
    return {
        "outcome": "measurement", "source": "measured", "key": "a", "run": "r", "operator": "gemm_all_to_all",
        "shape": {"m": 64, "n": 64, "k": 64}, "dtype": "float32", "world": 2, "scheme": "fused",
        "axes": {"tile": "32x64x64", "slice_tiles": 1}, "backend": "cpu", "machine": "laptop_cpu",
        "fabric": "emulated:wire_to_compute=1,bandwidth_bytes_per_second=1e+09", "protocol": "quick", "part": "whole",
        "time_s": 2e-3, "low_s": 1e-3, "high_s": 3e-3, "calibrated": None, "floor_s": 1e-3, "compute_s": 1e-3,
        "comm_s": 1e-3, "sequential_s": 3e-3, "wire_bytes_per_rank": 8192, "correct": True, "max_relative_error": 1e-6,
        "samples": 10, "skew_s": 1e-4, "stage": None, "message": None, "origin": None, "id": 1, "at": 1e9, **changes,
    }  # fmt: skip


def space_of(scheme: str = "decomposed", shape: Mapping[str, int] = MappingProxyType({"m": 2048, "n": 512, "k": 1024}),
             **values: Any) -> SpaceQuestion:  # fmt: skip
    """The space of a form whose scheme has these *values*, on the shipped laptop."""
    machine = shipped_machine("laptop_cpu")
    question = FormQuestion(
        operator="gemm_all_to_all", shape=tuple(shape.items()), dtype="float32", world=2, scheme=scheme,
        fabric="emulated:wire_to_compute=1", protocol="quick", values=((scheme, tuple(values.items())),),
    )  # fmt: skip
    return SpaceQuestion(question, machine, resolved(question.link(), question.problem(), machine))


@pytest.fixture(autouse=True)
def _no_shipped_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shipped changes; a test replays what it has recorded itself."""
    monkeypatch.setattr("workbench.results.recordings.paths", dict)
