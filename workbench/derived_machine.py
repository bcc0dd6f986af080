"""A machine that no file describes, made from what its workers tell; what they do not tell is assumed, and says so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from cluster.specification import Specification
from kernels.hardware import NVLINK, PCIE, Hardware
from kernels.machine import Device, Machine
from workbench.fitting import ONE_THREAD, model
from workbench.machines import TOLD

FLOP_PER_CLOCK = {(8, 0): (2048, 128), (8, 6): (1024, 256), (8, 9): (1024, 256), (9, 0): (4096, 256),
                  (10, 0): (8192, 256)}  # fmt: skip
"""Dense FLOP of one SM per clock by compute capability: half precision on tensor cores, and float32 without them.
NVIDIA's whitepapers of A100, GA102, Ada and H100; of 10.0 as twice 9.0."""
USUAL_CAPABILITY = (8, 0)
"""Whose numbers stand in where the capability is none of these: the fewest FLOP per clock in float32."""
USUAL_CLOCK_HZ = 1.5e9
NVLINK_BYTES_PER_SECOND = {10: 5e10}
"""One link and direction by the first number of the capability; of all before 25 GB/s (NVLink 2 to 4)."""
USUAL_NVLINK = 2.5e10
PCIE_LANE_BYTES_PER_SECOND = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One lane and direction by generation, after coding (PCI-SIG)."""
USUAL_PCIE = (4, 16)
OF_LINK = {NVLINK: "h100_nvl8"}
USUAL_COSTS = "a40_pcie4"
"""The machines whose fixed costs are assumed, by link."""


def of_gpus(ranks: Hardware, count: int, gpu: Specification, costs_of: Machine) -> Machine:
    """The machine of *count* GPUs of one host. Its fixed costs are those of *costs_of*."""
    like = f"assumed: as of {costs_of.name}"
    device, sources = _device(ranks, gpu, costs_of)
    link, how = _link(ranks, gpu)
    name = gpu_name(ranks, count)
    reason = f"{TOLD} ({ranks})"
    provenance = {
        "device": reason, **sources, "costs": like, "dimension.0": like, "dimension.0.link": reason,
        "dimension.0.count": "assumed: as many as a host of the cluster has",
        "dimension.0.topology": "assumed: each reaches each at full speed",
        "dimension.0.bandwidth_bytes_per_second": f"assumed: {how}",
    }  # fmt: skip
    dimension = replace(costs_of.dimensions[0], count=count, topology="switch", link=_kind(ranks),
                        bandwidth_bytes_per_second=link)  # fmt: skip
    return Machine(
        name=name, title=f"{count} x {ranks.model}, {_kind(ranks)} (assumed from what its workers tell)",
        backend="triton", device=device, costs=costs_of.costs, dimensions=(dimension,), provenance=provenance,
    )  # fmt: skip


def of_processor(ranks: Hardware, count: int, plain: Machine) -> Machine:
    """The machine of CPU ranks on the processors of another computer: *plain*, which is of any, under its own name."""
    device = replace(plain.device, name=f"{ONE_THREAD}{ranks.model}")
    first = plain.dimensions[0]
    return replace(
        plain, name=processor_name(ranks), title=f"CPU ranks on {ranks.model}", device=device, digest="",
        dimensions=(replace(first, count=max(first.count, count)), *plain.dimensions[1:]),
        provenance={**plain.provenance, "device.name": f"{TOLD} ({ranks})"},
    )  # fmt: skip


def costs_like(ranks: Hardware) -> str:
    """The name of the machine whose fixed costs are assumed of GPUs that are linked like *ranks*."""
    return OF_LINK.get(_kind(ranks), USUAL_COSTS)


def gpu_name(ranks: Hardware, count: int) -> str:
    """Such as l40s_pcie4 and b200_nvl8."""
    short = _short(re.sub(r"^(nvidia|amd|tesla)\s+", "", ranks.model, flags=re.IGNORECASE))
    link = "nvl" if _kind(ranks) == NVLINK else "pcie"
    return f"{short}{'' if short.endswith(f'_{link}') else f'_{link}'}{count}"


def processor_name(ranks: Hardware) -> str:
    """Such as amd_epyc_9654_cpu."""
    plain = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|\d+-core|@.*", " ", ranks.model, flags=re.IGNORECASE)
    return f"{_short(plain)}_cpu"


def _short(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "unknown"


def _kind(ranks: Hardware) -> str:
    """Where nobody tells, boards that are made for NVLink have it; others reach each other over PCI Express."""
    if ranks.link in (NVLINK, PCIE):
        return ranks.link
    return NVLINK if model(ranks.model).form == "sxm" else PCIE


def _device(ranks: Hardware, gpu: Specification, like: Machine) -> tuple[Device, dict[str, str]]:
    """The device, and where each value is from that is not simply told."""
    usual = like.device
    sources = {f"device.{key}": f"assumed: as of {like.name}" for key in ("copy_engines", "resident_blocks", "limits")}
    given = {
        "slots": gpu.slots, "memory_bytes": ranks.memory_bytes or gpu.memory_bytes, "l2_bytes": gpu.l2_bytes,
        "shared_memory_per_slot_bytes": gpu.shared_memory_per_slot_bytes,
        "memory_bytes_per_second": gpu.memory_bytes_per_second,
    }  # fmt: skip
    sources |= {f"device.{key}": f"assumed: not told; as of {like.name}" for key, value in given.items() if not value}
    known: dict[str, Any] = {key: value or getattr(usual, key) for key, value in given.items()}
    if gpu.memory_bytes_per_second:
        sources["device.memory_bytes_per_second"] = "assumed: twice the memory's clock times its width, as torch tells"
    capability = gpu.capability if gpu.capability in FLOP_PER_CLOCK else USUAL_CAPABILITY
    clock = gpu.clock_hz or USUAL_CLOCK_HZ
    half, single = (each * clock * known["slots"] for each in FLOP_PER_CLOCK[capability])
    as_of = ".".join(map(str, capability))
    told_clock = "the clock that torch tells" if gpu.clock_hz else "no clock was told; at"
    sources["device.matrix_flops_per_second"] = (
        f"assumed: {known['slots']} SMs x {FLOP_PER_CLOCK[capability][0]} FLOP of compute capability {as_of} x "
        f"{told_clock} {clock / 1e9:.3g} GHz"
    )
    device = Device(
        kind="gpu", name=ranks.model, copy_engines=usual.copy_engines, resident_blocks=usual.resident_blocks,
        limits=_limits(usual, int(known["shared_memory_per_slot_bytes"])),
        matrix_flops_per_second={"bfloat16": half, "float16": half, "float32": single}, **known,
    )  # fmt: skip
    return device, sources


def _limits(usual: Device, shared_bytes: int) -> dict[str, float]:
    """Those of *usual*, but for what follows from an SM's *shared_bytes*: a block may have all that is not reserved."""
    limits = dict(usual.limits)
    if shared_bytes != usual.shared_memory_per_slot_bytes and limits:
        limits["shared_memory_per_block_bytes"] = shared_bytes - limits.get("reserved_bytes_per_block", 0)
    return limits


def _link(ranks: Hardware, gpu: Specification) -> tuple[float, str]:
    """Bytes per second of one direction, and why."""
    if _kind(ranks) == NVLINK and gpu.nvlinks:
        major = (gpu.capability or USUAL_CAPABILITY)[0]
        each = NVLINK_BYTES_PER_SECOND.get(major, USUAL_NVLINK)
        return gpu.nvlinks * each, f"{gpu.nvlinks} NVLinks are up, at {each / 1e9:g} GB/s each way"
    if _kind(ranks) == NVLINK:
        return 12 * USUAL_NVLINK, "nobody told how many NVLinks are up; as 12 of 25 GB/s each way"
    generation, lanes = gpu.pcie or USUAL_PCIE
    lane = PCIE_LANE_BYTES_PER_SECOND.get(generation, PCIE_LANE_BYTES_PER_SECOND[USUAL_PCIE[0]])
    said = "as the driver tells" if gpu.pcie else "nobody told"
    return lanes * lane, f"{lanes} lanes of PCI Express {generation}, {said}; all GPUs under one switch"
