"""One rank of a calibration: all probes in order while there is time; rank 0 tells each result as it comes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib import metadata
from math import isnan, nan
from statistics import median
from typing import Any

import torch

from kernels.backends.base import Hang
from kernels.backends.triton.probes.ground import BLOCKS, Ground
from kernels.backends.triton.probes.suite import Probe, suite
from kernels.machine import Machine
from kernels.schedule import Refusal
from kernels.trial import fingerprint

Emit = Callable[[dict[str, Any]], None]
FORMAT = 1
"""Of the raw results; rises when a reader has to know."""


def measure(ground: Ground, machine: Machine, limit_s: float, emit: Emit) -> None:
    """Runs the suite for about *limit_s* seconds; *emit* gets a dictionary per probe, on rank 0 only.

    A probe that cannot be prepared is told with its sentence and left out. `Hang` ends all: what was signalled until
    then is not known.
    """
    until = time.monotonic() + limit_s
    for probe in suite(ground.seat.world, ground.processors, machine):
        if _any(ground, time.monotonic() > until):
            return
        row = _measured(ground, probe)
        if ground.seat.rank == 0:
            emit(row)


def _any(ground: Ground, mine: bool) -> bool:
    return any(value for (value,) in ground.exchange([float(mine)]))


def _measured(ground: Ground, probe: Probe) -> dict[str, Any]:
    begin, refused = time.monotonic(), None
    try:
        timed = probe.prepare(ground)
    except (Refusal, ValueError, torch.OutOfMemoryError) as error:
        refused = str(error)
    about = {"probe": probe.name, **probe.facts, "expected_s": probe.expected_s}
    if _any(ground, refused is not None):
        return {**about, "refused": refused or "another rank refused it"}
    hang, mine = None, [nan]
    try:
        mine = [seconds * probe.share for seconds in timed()]
    except Hang as error:
        hang = str(error)
    everyone = ground.exchange([*mine, *[nan] * (BLOCKS - len(mine))])
    if _any(ground, hang is not None):
        raise Hang(hang or "a peer waited in vain")
    blocks = [[seconds for seconds in one if not isnan(seconds)] for one in everyone]
    slowest = [max(each) for each in zip(*blocks, strict=True)]
    return {
        **about, "seconds": median(slowest), "low_s": min(slowest), "high_s": max(slowest), "blocks": blocks,
        **_state(ground.device), "wall_s": round(time.monotonic() - begin, 3),
    }  # fmt: skip


def _state(device: torch.device) -> dict[str, float]:
    """Clock and power right after the last replay, where the driver tells them."""
    try:
        return {"clock_hz": torch.cuda.clock_rate(device) * 1e6, "power_w": torch.cuda.power_draw(device) / 1e3}
    except (ModuleNotFoundError, RuntimeError, AttributeError):
        return {}


def provenance(machine: Machine) -> dict[str, Any]:
    """What is measured, with what, and when."""
    return {
        "format": FORMAT,
        "world": torch.cuda.device_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "machine": machine.name,
        "machine_digest": machine.digest,
        "system": platform.platform(),
        "host": platform.node(),
        "versions": {
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else None,
            **{name: metadata.version(name) for name in ("torch", "triton", "numpy")},
        },
        "kernel_fingerprint": fingerprint(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }
