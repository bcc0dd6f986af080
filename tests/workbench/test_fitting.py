"""Machines are told apart by what drivers tell: model, board, memory and link; the one that fits is the default."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.hardware import NVLINK, PCIE, SHARED_MEMORY, Hardware
from kernels.machine import Machine
from tests.workbench.test_machines import SHIPPED
from workbench.machines import shipped_machine
from workbench.machines.matching import GpuModel, best_fitting, gpu_model, misfit
from workbench.machines.matching import misfit_message as refusal

MIB = 2**20
NAMES = {
    "NVIDIA H200": (GpuModel("H200", "sxm"), 143_771),
    "NVIDIA H200 NVL": (GpuModel("H200", "nvl"), 143_771),
    "NVIDIA H100 80GB HBM3": (GpuModel("H100", "sxm", 8e10), 81_559),
    "NVIDIA H100 PCIe": (GpuModel("H100", "pcie"), 81_559),
    "NVIDIA H100 NVL": (GpuModel("H100", "nvl"), 95_830),
    "NVIDIA H100": (GpuModel("H100"), 97_871),
    "NVIDIA A100-SXM4-80GB": (GpuModel("A100", "sxm", 8e10), 81_920),
    "NVIDIA A100-SXM4-40GB": (GpuModel("A100", "sxm", 4e10), 40_960),
    "NVIDIA A100 80GB PCIe": (GpuModel("A100", "pcie", 8e10), 81_920),
    "NVIDIA A100-PCIE-40GB": (GpuModel("A100", "pcie", 4e10), 40_960),
    "NVIDIA A40": (GpuModel("A40"), 46_068),
    "NVIDIA A40-48Q": (GpuModel("A40 48Q"), 49_152),
    "NVIDIA L40S": (GpuModel("L40S"), 46_068),
    "NVIDIA B200": (GpuModel("B200", "sxm"), 183_359),
    "NVIDIA GeForce RTX 4090": (GpuModel("GEFORCE RTX 4090"), 24_564),
    "AMD Instinct MI300X": (GpuModel("MI300X"), 196_592),
    "AMD Instinct MI300X VF": (GpuModel("MI300X"), 196_592),
    "AMD Instinct MI210": (GpuModel("MI210"), 65_520),
}
"""By name as drivers tell it: what it says, and MiB of memory as they tell it."""
LINKED = {"NVIDIA H200": NVLINK, "NVIDIA H100 80GB HBM3": NVLINK, "NVIDIA A100-SXM4-80GB": NVLINK, "NVIDIA A40": PCIE}
"""Those that a shipped machine is of, and how they are linked there."""


def ranks(name: str, link: str = "unknown link") -> Hardware:
    return Hardware(model=name, link=link, memory_bytes=NAMES[name][1] * MIB)


def chosen(hardware: Hardware, count: int) -> str | None:
    found = best_fitting(map(shipped_machine, SHIPPED), hardware, count, None)
    return found and found.name


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_taken_apart(name: str) -> None:
    assert gpu_model(name) == NAMES[name][0]


@pytest.mark.parametrize(
    ("name", "link", "count", "expected"),
    [
        ("NVIDIA H200", NVLINK, 2, "h200_nvl2"),
        ("NVIDIA H200", NVLINK, 3, "h200_nvl4"),
        ("NVIDIA H200", "unknown link", 4, "h200_nvl4"),
        ("NVIDIA H200", NVLINK, 8, "h200_nvl8"),
        ("NVIDIA H200", NVLINK, 16, None),
        ("NVIDIA H200", PCIE, 2, None),
        ("NVIDIA H200 NVL", PCIE, 2, None),
        ("NVIDIA H100 80GB HBM3", NVLINK, 4, "h100_nvl8"),
        ("NVIDIA H100 PCIe", PCIE, 4, None),
        ("NVIDIA H100 NVL", PCIE, 2, None),
        ("NVIDIA H100", NVLINK, 8, None),
        ("NVIDIA A100-SXM4-80GB", NVLINK, 8, "a100_nvl8"),
        ("NVIDIA A100-SXM4-40GB", NVLINK, 8, None),
        ("NVIDIA A100 80GB PCIe", PCIE, 8, None),
        ("NVIDIA A40", PCIE, 4, "a40_pcie4"),
        ("NVIDIA A40", NVLINK, 2, None),
        ("NVIDIA A40-48Q", PCIE, 4, None),
        ("NVIDIA L40S", PCIE, 4, None),
        ("NVIDIA B200", NVLINK, 8, None),
        ("NVIDIA GeForce RTX 4090", PCIE, 1, None),
        ("AMD Instinct MI300X", "unknown link", 8, "mi300x_mesh8"),
        ("AMD Instinct MI210", "unknown link", 4, "mi210_mesh4"),
    ],
)
def test_the_machine_of_a_cluster_is_the_one_that_fits(name: str, link: str, count: int, expected: str | None) -> None:
    assert chosen(ranks(name, link), count) == expected


@pytest.mark.parametrize("wrong", ["mi300x_mesh8", "a40_pcie4", "h100_nvl8", "a100_nvl8"])
def test_four_h200s_pass_as_nothing_else(wrong: str) -> None:
    h200 = ranks("NVIDIA H200", NVLINK)
    right, stated = shipped_machine("h200_nvl4"), shipped_machine(wrong)
    assert refusal(right, h200, None, right) is None
    assert refusal(stated, h200, None, right) == (
        f"Machine {wrong} is not what these ranks are. Its GPU is {stated.device.name}, but theirs is NVIDIA H200. "
        "Accepted: --machine h200_nvl4, or none."
    )


def test_memory_and_link_tell_boards_of_one_name_apart() -> None:
    less = replace(ranks("NVIDIA A100-SXM4-40GB", NVLINK), model="NVIDIA A100")
    assert misfit(shipped_machine("a100_nvl8"), less, None) == (
        "Its GPU has 80 GB of memory, but theirs (NVIDIA A100) has 43 GB"
    )
    assert misfit(shipped_machine("h200_nvl2"), ranks("NVIDIA H200", PCIE), None) == (
        "Its GPUs are linked by nvlink, but theirs (NVIDIA H200) by pcie"
    )
    silent = Hardware(model="NVIDIA A100-SXM4-40GB", link=NVLINK)
    assert "has 40 GB" in str(misfit(shipped_machine("a100_nvl8"), silent, None))


def of_processor(name: str) -> Machine:
    plain = shipped_machine("laptop_cpu")
    return replace(plain, device=replace(plain.device, name=name))


def test_a_calibration_of_one_processor_is_not_another_s() -> None:
    epyc = Hardware(model="AMD EPYC 9654", link=SHARED_MEMORY, cores=4)
    assert misfit(of_processor("one thread of AMD EPYC 9654"), epyc, "Intel Core i7") is None
    assert misfit(of_processor("one thread of this CPU"), epyc, "AMD EPYC 9654") is None
    assert misfit(of_processor("one thread of this CPU"), epyc, "Intel Core i7") == (
        "Its ranks are threads of Intel Core i7, but theirs are of AMD EPYC 9654"
    )
    assert misfit(of_processor("one thread of Intel Core i7"), epyc, None) is not None
    assert misfit(of_processor("one thread of this CPU"), epyc, None) is None
    assert misfit(of_processor("one thread of this CPU"), epyc, "AMD EPYC") is not None  # a virtual one's short name
    both = replace(epyc, model="1 x AMD EPYC 9654 and 2 x Intel Core i7")
    assert misfit(of_processor("one thread of AMD EPYC 9654"), both, None) is None


def test_several_kinds_of_gpus_are_no_machine() -> None:
    mixed = Hardware(model="2 x NVIDIA A40 and 2 x NVIDIA H200", link=PCIE)
    assert chosen(mixed, 4) is None
