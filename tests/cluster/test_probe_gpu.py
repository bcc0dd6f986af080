"""What the doctor says of GPUs, from what the driver's library would answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cluster import hosts

HostWithGpus = Callable[..., None]


class NVMLError(Exception):
    """As the library's own."""


class Library:
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
        yield Library()

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
