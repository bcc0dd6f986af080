"""Facts about hosts and workers: what answers, which GPUs the driver tells, and what the doctor says of them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from distributed.comm import CommClosedError
from fake_cluster import HOSTS
from loops import apart

from cluster import hosts
from cluster.client import Cluster
from cluster.hosts import Gpu, select_visible
from kernels import nvml

# Facts about this host and about workers, also about one that does not answer.


def test_the_facts_of_this_host_are_what_the_system_says() -> None:
    facts = hosts.host_facts()
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert 0 < facts["memory_bytes"] <= psutil.virtual_memory().total
    assert facts["cpu"]
    assert facts["torch"].startswith("2.")
    assert json.loads(json.dumps(facts)) == facts, "they travel as JSON"


def test_what_is_not_installed_is_none() -> None:
    assert hosts.package_version("no-such-distribution") is None


@pytest.mark.slow
def test_torch_is_asked_without_being_imported_here() -> None:
    facts = hosts.host_facts_with_torch()
    assert facts["gloo"] is True
    assert facts["gpus"]
    assert facts["gpu_clock"].startswith("none" if facts["gpus"] == "none" else "ticks every ")
    assert "trouble" not in facts


def test_a_torch_that_cannot_be_used_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "TORCH_FACTS_SCRIPT", "raise ImportError('libcudart.so is missing')")
    facts = hosts.host_facts_with_torch()
    assert facts["trouble"] == "torch cannot be used: ImportError: libcudart.so is missing"
    assert facts["cores"] >= 1, "the other facts are still there"


@pytest.mark.slow
def test_the_doctor_has_a_row_for_this_host_and_one_for_each_worker(cluster: Cluster) -> None:
    here, *workers = hosts.doctor_rows(cluster.client)
    assert here["place"] == "here"
    assert sorted(row["place"] for row in workers) == sorted(HOSTS)
    assert {row["gloo"] for row in workers} == {True}
    assert {row["distributed"] for row in workers} == {here["distributed"]}


@pytest.mark.slow
def test_a_worker_that_does_not_answer_is_in_trouble_and_the_others_are_told_in_time(cluster: Cluster) -> None:
    pids = cluster.client.run(os.getpid)
    stopped, *others = pids
    os.kill(pids[stopped], signal.SIGSTOP)
    try:
        began = time.monotonic()
        answers = hosts.ask_workers(cluster.client, list(pids), _pid, deadline_s=5.0)
        assert time.monotonic() - began < 60.0
    finally:
        os.kill(pids[stopped], signal.SIGCONT)
    assert answers[stopped] == {"trouble": "no answer within 5 s"}
    assert {other: answers[other]["pid"] for other in others} == {other: pids[other] for other in others}


def test_what_goes_wrong_in_a_worker_is_its_trouble(cluster: Cluster) -> None:
    (worker, *_) = cluster.client.scheduler_info(n_workers=-1)["workers"]
    assert hosts.ask_workers(cluster.client, [worker], _fails) == {
        worker: {"trouble": "ZeroDivisionError: division by zero"}
    }


def _pid(worker: Any) -> dict[str, Any]:
    return {"pid": os.getpid()}


def _fails(worker: Any) -> dict[str, Any]:
    return {"never": 1 / 0}


def test_a_worker_that_dies_while_it_is_asked_is_silent_and_not_strange() -> None:
    """A chaos run: its closed connection was reported as another version of the workbench."""

    async def closed(*_: Any, **__: Any) -> Any:
        raise CommClosedError("in <TCP (closed) Scheduler Broadcast>: Stream is closed")

    client: Any = SimpleNamespace(run=closed, sync=lambda ask, callback_timeout: apart(ask()))
    answers = hosts.ask_workers(client, ["tcp://there"], lambda worker: {})
    assert hosts.is_no_answer(answers["tcp://there"])
    assert "Stream is closed" in answers["tcp://there"]["trouble"]


# GPUs are found by what the driver says, and hidden as CUDA hides them.

HostWithGpus = Callable[..., None]
FOUR = [Gpu(number=number, name="NVIDIA H200", uuid=f"GPU-{letter}") for number, letter in enumerate("abcd")]


@pytest.mark.parametrize(
    ("variable", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2", [2]),
        ("3, 1", [3, 1]),
        ("1,9,2", [1]),
        ("1,1", [1]),
        ("GPU-c,GPU-a", [2, 0]),
        ("GPU-", []),
        ("MIG-1", []),
    ],
)
def test_what_cuda_would_see(variable: str | None, numbers: list[int]) -> None:
    assert [gpu.number for gpu in select_visible(FOUR, variable)] == numbers


def test_the_variable_of_this_process_counts(host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    host_with_gpus(4)
    monkeypatch.setenv(hosts.VISIBLE, "3")
    assert [gpu.number for gpu in hosts.visible_gpus()] == [3]


def test_a_process_has_its_own_gpu_first_and_the_linked_ones_behind_it() -> None:
    assert hosts.environment(FOUR[2], ("GPU-a", "GPU-d"))[hosts.VISIBLE] == "GPU-c,GPU-a,GPU-d"
    assert hosts.environment(FOUR[2])[hosts.VISIBLE] == "GPU-c"
    assert hosts.environment(None, ("GPU-a",))[hosts.VISIBLE] == "", "a CPU rank sees none"


@pytest.mark.parametrize(("count", "triton", "backend"), [(0, True, "cpu"), (2, True, "triton"), (2, False, "cpu")])
def test_triton_needs_a_gpu_and_itself(
    count: int, triton: bool, backend: str, host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with_gpus(count)
    monkeypatch.setattr(hosts.util, "find_spec", lambda name: object() if triton else None)
    assert {hosts.fastest_backend(gpu) for gpu in hosts.visible_gpus() or [None]} == {backend}


def test_the_drivers_files_tell_what_the_missing_library_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bus, letter in (("0000:20:00.0", "b"), ("0000:10:00.0", "a"), ("0000:30:00.0", "????????-????")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t\t NVIDIA H200\nIRQ:   5\nGPU UUID: \t GPU-{letter}\n")
    monkeypatch.setattr(hosts, "DRIVER", tmp_path)
    monkeypatch.setattr(hosts.util, "find_spec", lambda name: None)
    monkeypatch.delenv(hosts.VISIBLE, raising=False)
    assert hosts.visible_gpus() == (
        Gpu(number=0, name="NVIDIA H200", uuid="GPU-a"),
        Gpu(number=1, name="NVIDIA H200", uuid="GPU-b"),
        Gpu(number=2, name="NVIDIA H200", uuid=""),
    )


class NVMLError(Exception):
    """As the library's own."""


class Library:
    """The functions of nvidia-ml-py that are used."""

    NVMLError = NVMLError

    def __init__(self, *, driver: bool = True, broken: bool = False) -> None:
        self.driver, self.broken, self.ended = driver, broken, 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError

    def nvmlShutdown(self) -> None:
        self.ended += 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        if self.broken:
            raise NVMLError
        return number

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:
        return b"NVIDIA H100" if handle == 0 else "NVIDIA H100"  # versions of the library differ

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 << 30)


@pytest.mark.parametrize(
    ("library", "count", "ended"),
    [(Library(), 2, 1), (Library(driver=False), 0, 0), (Library(broken=True), 0, 1)],
    ids=["well", "no driver", "a lost GPU"],
)
def test_the_library_is_ended_again_whatever_it_says(
    library: Library, count: int, ended: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hosts.util, "find_spec", lambda name: object())
    monkeypatch.setattr(nvml, "import_module", lambda name: library)
    monkeypatch.setattr(hosts, "DRIVER", tmp_path / "none")
    monkeypatch.delenv(hosts.VISIBLE, raising=False)
    assert [(gpu.name, gpu.uuid, gpu.memory_bytes) for gpu in hosts.visible_gpus()] == [
        ("NVIDIA H100", f"GPU-{number}", 80 << 30) for number in range(count)
    ]
    assert library.ended == ended


# What the doctor says of GPUs, from what the driver's library would answer.


class DriverLibrary:
    """GPUs with four links each, of which three are up; numbers 0 to 2 are linked with each other."""

    NVMLError = NVMLError
    NVML_NVLINK_MAX_LINKS = 6
    NVML_FEATURE_ENABLED = 1
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        if number > 3:
            raise NVMLError("GPU is lost")
        return number

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 4:
            raise NVMLError("Invalid Argument")
        return int(link < 3)

    def nvmlDeviceGetP2PStatus(self, first: int, second: int, index: int) -> int:
        return 0 if max(first, second) < 3 else 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def found() -> Iterator[Any]:
        yield DriverLibrary()

    monkeypatch.setattr(hosts, "nvml_library", found)
    for name in hosts.MULTICAST_OFF:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("count", "named", "links"),
    [
        (0, "none", "none"),
        (1, "1 x NVIDIA H200", "1 x 3 links"),
        (3, "3 x NVIDIA H200", "3 x 3 links, 3 of 3 pairs"),
        (4, "4 x NVIDIA H200", "4 x 3 links, 3 of 6 pairs"),
        (5, "5 x NVIDIA H200", "unknown: GPU is lost"),
    ],
)
def test_gpus_and_their_links_are_counted(count: int, named: str, links: str, host_with_gpus: HostWithGpus) -> None:
    host_with_gpus(count)
    facts = hosts.gpu_facts()
    assert (facts["gpus"], facts["nvlink"]) == (named, links)
    assert facts["gpu_driver"] == {0: "none", 5: "unknown: GPU is lost"}.get(count, "580.1")


@pytest.mark.usefixtures("library")
def test_a_worker_tells_of_the_gpu_that_it_sees(host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    host_with_gpus(4)
    monkeypatch.setenv(hosts.VISIBLE, "2")
    assert (hosts.gpu_facts()["gpus"], hosts.gpu_facts()["nvlink"]) == ("1 x NVIDIA H200", "1 x 3 links")


@pytest.mark.usefixtures("library")
def test_multicast_is_off_where_every_library_is_told_so(
    host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with_gpus(2)
    assert hosts.gpu_facts()["multicast"] == "not turned off"
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    assert hosts.gpu_facts()["multicast"] == "off by NCCL_NVLS_ENABLE"
    monkeypatch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    monkeypatch.setenv("NVSHMEM_DISABLE_NVLS", "1")
    assert hosts.gpu_facts()["multicast"] == "off"


def test_without_the_library_it_says_what_is_missing(
    host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with_gpus(2)
    monkeypatch.setattr(hosts.util, "find_spec", lambda name: None)
    assert hosts.gpu_facts()["gpu_driver"] == "unknown: nvidia-ml-py is not installed or finds no driver"
