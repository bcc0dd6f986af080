"""Which schedule a call means: the default one, or the one that its text states."""

from __future__ import annotations

import re

import torch

from kernels.fabric import Fabric
from kernels.machine import Costs, Device, Dimension, Machine
from kernels.problem import Problem
from kernels.protocol import protocol
from kernels.schedule import Refusal, Schedule
from kernels.schemes import SCHEMES, axes, schedule
from kernels.trial import Trial

CALLED = tuple(name for name, scheme in SCHEMES.items() if scheme.is_operator)
"""The schemes that a call may mean, the usual one first."""
CPU_RANKS_MOST, GPU_RANKS_MOST = 64, 8
"""GPU kernels take one descriptor per rank."""
SLOTS, SHARED_BYTES, L2_BYTES = 132, 233_472, 52_428_800
"""Of an H200: what is assumed where GPU kernels are interpreted and there is no GPU to ask."""

NOTHING = Costs(
    launch_seconds=0, step_seconds=0, tile_seconds=0, signal_seconds=0, barrier_seconds=0, copy_engine_seconds=0,
    library_seconds=0, library_share=1, send_blocks=0,
)  # fmt: skip
"""Costs estimate times; what is legal does not depend on them."""


def trial(problem: Problem, text: str, machine: Machine) -> Trial:
    """What a backend is to run for *problem*; Refusal where *text* states no schedule that is legal on *machine*.

    '' is the default schedule. Else `fused axis=value ...`, such as `fused tile=128x256x64 store=tma`, or the text of a
    `Schedule`; axes that are not stated take their default.
    """
    fabric = Fabric(kind="nvlink" if machine.backend == "triton" else "shared_memory")
    name, *words = [word for word in re.split(r"[\s(),]+", text) if word] or CALLED
    if name not in CALLED:
        raise Refusal(
            f"schedule = {text!r} does not run here: its scheme {name!r} is not an operator. Accepted: '' for the "
            f"default, or {' or '.join(CALLED)} and its axes, such as '{CALLED[0]} slice_tiles=4'."
        )
    known = {axis.name: axis for axis in axes(problem, name, machine, fabric)}
    values = {}
    for word in words:
        axis, equals, value = word.partition("=")
        if not (axis and equals and value):
            raise Refusal(
                f"schedule = {text!r} does not have the form axis=value at {word!r}. Accepted axes: {', '.join(known)}."
            )
        values[axis] = known[axis].parse(value) if axis in known else value
    chosen: Schedule = schedule(problem, name, values, machine, fabric)
    return Trial(problem=problem, schedule=chosen, backend=machine.backend, machine=machine.name, fabric=fabric,
                 protocol=protocol("default"))  # fmt: skip


def cpu_machine() -> Machine:
    """CPU ranks of one host."""
    device = Device(
        kind="cpu", name="CPU", slots=1, matrix_flops_per_second={}, memory_bytes_per_second=1,
        memory_bytes=float("inf"), l2_bytes=0, copy_engines=0, shared_memory_per_slot_bytes=0,
    )  # fmt: skip
    return _machine("cpu", device, CPU_RANKS_MOST)


def gpu_machine(device: torch.device) -> Machine:
    """GPUs of one host like *device*; an H200's numbers where it is none, since kernels are interpreted."""
    slots, memory, shared, l2, name = SLOTS, float("inf"), SHARED_BYTES, L2_BYTES, "interpreted"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        slots, memory, name = properties.multi_processor_count, float(properties.total_memory), properties.name
        shared, l2 = properties.shared_memory_per_multiprocessor, properties.L2_cache_size
    gpu = Device(
        kind="gpu", name=name, slots=slots, matrix_flops_per_second={}, memory_bytes_per_second=1,
        memory_bytes=memory, l2_bytes=l2, copy_engines=1, shared_memory_per_slot_bytes=shared,
    )  # fmt: skip
    return _machine("triton", gpu, GPU_RANKS_MOST)


def _machine(backend: str, device: Device, ranks_most: int) -> Machine:
    one_host = Dimension(
        topology="fully_connected", count=ranks_most, bandwidth_bytes_per_second=1, latency_seconds=0
    )  # fmt: skip
    return Machine(
        name=f"this host's {device.name}", title=device.name, backend=backend, device=device, costs=NOTHING,
        dimensions=(one_host,), provenance={"device": "assumed: the workbench reads only legality from it"},
    )  # fmt: skip
