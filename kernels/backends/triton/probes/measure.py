"""One rank of a calibration: all probes in order while there is time; rank 0 tells each result as it comes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from math import isnan, nan
from statistics import median
from typing import Any, TypeVar

import torch

from kernels.backends.base import Hang
from kernels.backends.triton.probes.ground import BLOCKS, Ground
from kernels.backends.triton.probes.suite import Probe, suite
from kernels.machine import Machine
from kernels.prints import source_print

Emit = Callable[[dict[str, Any]], None]
FORMAT = 1
"""Of the raw results; rises when a reader has to know."""
SENTENCE_MOST = 400
T = TypeVar("T")


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
    begin, about = time.monotonic(), {"probe": probe.name, **probe.facts, "expected_s": probe.expected_s}
    timed, refused = _told(lambda: probe.prepare(ground))
    if _any(ground, timed is None):
        return {**about, "refused": refused or "another rank refused it"}
    assert timed is not None
    mine, refused = _told(timed)
    failed = [bool(value) for (value,) in ground.exchange([float(mine is None)])]
    if all(failed):  # the same way on all, as a compiler does: nobody waits
        return {**about, "refused": refused}
    if any(failed):
        raise Hang(f"{probe.name} {probe.facts}: {refused or 'another rank failed'}")
    return {**about, **_statistics(ground, [seconds * probe.share for seconds in mine or ()]), **_state(ground.device),
            "wall_s": round(time.monotonic() - begin, 3)}  # fmt: skip


def _told(do: Callable[[], T]) -> tuple[T | None, str | None]:
    """What *do* returns, or what it raised as a sentence; `Hang` goes through, since signals are then out of step."""
    try:
        return do(), None
    except Hang:
        raise
    except Exception as error:  # libraries and compilers raise what they like; the other probes go on
        return None, f"{type(error).__name__}: {error}"[:SENTENCE_MOST]


def _statistics(ground: Ground, mine: Sequence[float]) -> dict[str, Any]:
    """The slowest rank of each block; the block in the middle, and the extremes."""
    everyone = ground.exchange([*mine, *[nan] * (BLOCKS - len(mine))])
    blocks = [[seconds for seconds in one if not isnan(seconds)] for one in everyone]
    slowest = [max(each) for each in zip(*blocks, strict=True)]
    return {"seconds": median(slowest), "low_s": min(slowest), "high_s": max(slowest), "blocks": blocks}


def _state(device: torch.device) -> dict[str, float]:
    """Clock and power right after the last replay, where the driver tells them."""
    found, _ = _told(lambda: (torch.cuda.clock_rate(device) * 1e6, torch.cuda.power_draw(device) / 1e3))
    return dict(zip(("clock_hz", "power_w"), found, strict=True)) if found else {}


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
        "source_print": source_print("triton"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }
