"""What is expected of each probe before it is measured: the datasheet's numbers times what was reached before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernels.machine import Machine

Facts = Mapping[str, Any]

PUT_SHARE = {"registers": 0.76, "tma": 0.80, "copy_engine": 0.86}
"""Of the link's bandwidth: 386 of 450 GB/s by copy engines in a ring of 4 H200s; stores reached 310 under a GEMM."""
PROGRAM_BYTES_PER_SECOND = {"registers": 8e9, "tma": 2.5e10}
"""What one block puts: 16 KiB a load's latency of 0.7 µs, or four such under way, twice that to be stored."""
CALL_S = {"registers": 5e-6, "tma": 6e-6, "copy_engine": 1.2e-5}
"""Of a put of next to nothing: a node of a graph, two flights and a fence; copies: two meetings and a launch."""
NCCL_S = {"all_reduce": 1.0e-5, "all_gather": 1.2e-5, "reduce_scatter": 1.2e-5, "all_to_all": 1.4e-5}
NCCL_SHARE = {"all_reduce": 0.72, "all_gather": 0.75, "reduce_scatter": 0.75, "all_to_all": 0.58}
"""4 H200s, NCCL 2.28.9 without multicast: all-to-all of 64 MB at 262 GB/s, all-reduce of 8 KB in 10.5 µs."""
READ_SHARE, COPY_SHARE, GATHER_SHARE = 0.92, 0.88, 0.7
"""Of the HBM's peak; rows of 256 bytes at random reached 2.6 TB/s with our lookup."""
GEMM_SHARE = {"ours": 0.71, "library": 0.74}
GEMV_SHARE = 0.8
"""737 and 750 TFLOP/s on 8192 x 8192 x 8192; a GEMV of 33 MB took 10.9 µs with 2.5 µs fixed."""
NODE_S, SHORT_S = 1.5e-6, 2.5e-6
SIMPLE_S = {
    "graph_node": NODE_S, "eager_launch": 2e-5, "meeting": 4e-6, "signal": 1.2e-6, "packets": 0.9e-6,
    "clock_step": 3.2e-8,
}  # fmt: skip
"""Launches from a host in a virtual machine are slow; one way of a signal is a fence, 0.6 µs of link, and a poll."""


def expected_seconds(name: str, facts: Facts, machine: Machine) -> float:
    """Seconds of one call of probe *name*."""
    if name in SIMPLE_S:
        return SIMPLE_S[name]
    return _FORMULAS[name](facts, machine)


def _link(facts: Facts, machine: Machine) -> float:
    way = facts["way"]
    speed = PUT_SHARE[way] * machine.dimensions[0].bandwidth_bytes_per_second
    if way in PROGRAM_BYTES_PER_SECOND:
        speed = min(speed, facts["programs"] * PROGRAM_BYTES_PER_SECOND[way])
    return CALL_S[way] + float(facts["bytes"] / speed)


def _nccl(facts: Facts, machine: Machine) -> float:
    name = facts["collective"]
    speed = NCCL_SHARE[name] * machine.dimensions[0].bandwidth_bytes_per_second
    return NCCL_S[name] + float(facts["wire_bytes"] / speed)


def _memory(share: float) -> Callable[[Facts, Machine], float]:
    return lambda facts, machine: SHORT_S + float(facts["bytes"] / (share * machine.device.memory_bytes_per_second))


def _gemm(facts: Facts, machine: Machine) -> float:
    peak = machine.device.matrix_flops_per_second["bfloat16"]
    return 2 * SHORT_S + float(facts["flops"] / (GEMM_SHARE[facts["by"]] * peak))


_FORMULAS: dict[str, Callable[[Facts, Machine], float]] = {
    "put": _link,
    "nccl": _nccl,
    "read": _memory(READ_SHARE),
    "copy": _memory(COPY_SHARE),
    "gather": _memory(GATHER_SHARE),
    "gemv": _memory(GEMV_SHARE),
    "gemm": _gemm,
}
