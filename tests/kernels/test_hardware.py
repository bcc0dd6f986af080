"""What a gang is, made of what its workers found: the same for the same gang, another wherever times would be."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernels.hardware import Hardware, WorkerDevice, hardware_of

CPU = WorkerDevice(kind="cpu", model="a processor", processor="a processor", cores=(0, 1))
GPUS = [
    WorkerDevice(kind="gpu", model="NVIDIA H200", processor="a processor", cores=(0, 1), memory_bytes=141 << 30,
           uuid=f"GPU-{number}", links=tuple(f"GPU-{other}" for other in range(4) if other != number))
    for number in range(4)
]  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "hosts", "words"),
    [
        ([CPU], "a", "a processor, 2 cores per rank, one rank"),
        ([CPU, CPU], "aa", "a processor, 1 core per rank, shared memory"),
        ([CPU] * 4, "aaaa", "a processor, 0.5 cores per rank, shared memory"),
        ([CPU] * 3, "aab", "a processor, 1 core per rank, network"),
        ([CPU, replace(CPU, cores=(2, 3))], "aa", "a processor, 2 cores per rank, shared memory"),
        ([CPU, replace(CPU, processor="another")], "ab",
         "1 x a processor and 1 x another, 2 cores per rank, network"),
        (GPUS[:2], "aa", "a processor, 1 core per rank, shared memory"),
    ],
)  # fmt: skip
def test_cpu_ranks_are_their_processor_their_cores_and_their_link(
    devices: list[WorkerDevice], hosts: str, words: str
) -> None:
    assert str(hardware_of("cpu", devices, hosts)) == words


@pytest.mark.parametrize(
    ("devices", "hosts", "words"),
    [
        (GPUS[:1], "a", "NVIDIA H200, 141 GiB, one rank"),
        (GPUS, "aaaa", "NVIDIA H200, 141 GiB, nvlink"),
        (GPUS[:2], "ab", "NVIDIA H200, 141 GiB, network"),
        ([GPUS[0], replace(GPUS[1], links=())], "aa", "NVIDIA H200, 141 GiB, pcie"),
        ([GPUS[0], replace(GPUS[1], links=None)], "aa", "NVIDIA H200, 141 GiB, unknown link"),
        ([GPUS[0], replace(GPUS[1], model="NVIDIA H100", memory_bytes=80 << 30)], "aa",
         "1 x NVIDIA H100 and 1 x NVIDIA H200, 80 GiB, nvlink"),
    ],
)  # fmt: skip
def test_gpu_ranks_are_their_gpus_and_how_these_are_linked(devices: list[WorkerDevice], hosts: str, words: str) -> None:
    assert str(hardware_of("triton", devices, hosts)) == words


def test_ranks_without_a_gpu_are_no_gang_of_triton() -> None:
    assert hardware_of("triton", [GPUS[0], CPU], "aa") is None
    assert hardware_of("cpu", [], "") is None


def test_the_order_of_ranks_and_the_numbers_of_cores_and_gpus_change_nothing() -> None:
    assert hardware_of("triton", GPUS[:2], "aa") == hardware_of("triton", GPUS[:1:-1], "bb")
    assert hardware_of("cpu", [CPU], "a") == hardware_of("cpu", [replace(CPU, cores=(6, 7))], "b")


def test_what_is_sent_and_stored_is_the_same_again() -> None:
    for device in (CPU, *GPUS):
        assert WorkerDevice.from_json(json.loads(json.dumps(device.to_json()))) == device
    known = hardware_of("triton", GPUS, "aaaa")
    assert known is not None
    assert Hardware.from_json(json.loads(known.text)) == known
    assert known.text != replace(known, link="pcie").text
