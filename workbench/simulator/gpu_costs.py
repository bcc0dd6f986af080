"""What is special about GPUs' costs where they were measured: cuBLAS instead of our tiles, puts by the way they go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from workbench.simulator.rates import has_curve, work_seconds

Floats = NDArray[np.float64]


def library_seconds(problem: Problem, sizes: Problem, machine: Machine, kernel: object) -> Floats | None:
    """The computation of a sequential trial as the library's one call does it; None where that was not measured.

    *sizes* are *problem*'s, or columns of such; *kernel*: who computes, None where nobody else than we could.
    """
    stated = operator(problem.operator)
    work = f"library_{stated.work}"
    if machine.device.kind == "cpu" or kernel != "library" or not has_curve(machine, work, problem.dtype):
        return None
    extent = stated.extent(sizes)
    width = extent.rows if stated.work == "gemm" else extent.columns
    computed = work_seconds(machine, work, problem.dtype, stated.flops(sizes), width)
    return np.maximum(computed, stated.memory_bytes(sizes) / machine.device.memory_bytes_per_second)


def memory_bounds(machine: Machine, work: str, dtype: str) -> bool:
    """Whether tiles may be done before memory has given their operands: where no curve was measured, and on GPUs.

    A GPU's curve is of a few shapes, and flat beyond them. That of a lookup holds rows that the L2 keeps.
    """
    return not has_curve(machine, work, dtype) or (machine.device.kind == "gpu" and work != "gather")


def unpacks(problem: Problem, machine: Machine, scheme: str) -> bool:
    """Whether what a library delivers has to be moved once more.

    NCCL writes whole chunks of rows where they belong; only pooled vectors come by source rank and not by sample.
    """
    return machine.device.kind == "cpu" or scheme != "sequential" or operator(problem.operator).work == "gather"


def way(axes: Mapping[str, Any]) -> str:
    """How bytes leave for peers by a schedule's *axes*, as in the machine's rates of puts."""
    if "copy_engine" in (axes.get("engine"), axes.get("collective")):
        return "put_copy_engine"
    return "put_tma" if axes.get("store") == "tma" else "put_registers"


def put_byte_seconds(sizes: Problem, machine: Machine, fabric: Fabric, axes: Mapping[str, Any]) -> Floats | None:
    """Per byte of a put, when as many bytes leave each rank as *sizes* ask for; None where that was not measured.

    Of *axes* the SMs that send may be a column.
    """
    name = way(axes)
    if fabric.kind != "nvlink" or len(machine.dimensions) > 1 or not has_curve(machine, name, "any"):
        return None
    asked = np.asarray(axes.get("comm_sms", 0))
    processors = np.where(asked > 0, asked, machine.device.slots)
    num_bytes = np.maximum(1.0, np.asarray(operator(sizes.operator).wire_bytes(sizes), dtype=np.float64))
    num_bytes, processors = np.broadcast_arrays(num_bytes, processors)
    return work_seconds(machine, name, "any", num_bytes, processors) / num_bytes
