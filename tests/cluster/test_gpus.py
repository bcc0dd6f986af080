"""GPUs are found by what the driver says, and hidden as CUDA hides them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster import hosts
from cluster.hosts import Gpu, select_visible

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
    monkeypatch.setattr(hosts, "import_module", lambda name: library)
    monkeypatch.setattr(hosts, "DRIVER", tmp_path / "none")
    monkeypatch.delenv(hosts.VISIBLE, raising=False)
    assert [(gpu.name, gpu.uuid, gpu.memory_bytes) for gpu in hosts.visible_gpus()] == [
        ("NVIDIA H100", f"GPU-{number}", 80 << 30) for number in range(count)
    ]
    assert library.ended == ended
