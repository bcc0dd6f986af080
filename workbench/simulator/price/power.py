"""Prices work under steady load: over a call, the power cap has to pay for its FLOP, its bytes, and every second.

A file of `data/power/` describes a card, each value with its source, as `data/caches/` does: a card is in several
machines. What is not known stays out: a trial that needs it has no estimate under steady load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from kernels import files
from kernels.machine import PROVENANCES, Machine
from kernels.operators import OPERATORS
from kernels.schedule import Schedule
from kernels.schemes import BASELINE
from kernels.trial import Trial
from workbench.resources import data_directory, toml

KIND = files.TextKind("power file", "a power model", "a TOML file")
SLOWEST = 0.2
"""Least clock that is considered, as a share of the highest one."""
HALVINGS = 40
"""Steps of the search for a clock: more than a float has digits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """What a card's work takes of its power cap."""

    name: str
    title: str
    devices: tuple[str, ...]
    """`device.name` of the machines that have this card."""
    cap_watts: float
    """The card's own power limit."""
    held_watts: float
    """What it draws at its cap, in the mean."""
    highest_clock_hertz: float
    """The SM clock of bursts."""
    idle_watts: float
    """What it draws at the highest clock without work: part of every second."""
    waiting_watts: tuple[float, float]
    """What it draws in seconds that do not compute, without their bytes: idle, and SMs that spin on a signal."""
    joules_per_flop: Mapping[str, float]
    """By dtype, of a GEMM at the highest clock on standard normal operands, without its bytes."""
    joules_per_byte: float
    """What a byte takes that the memory reads or writes."""
    link_joules_per_byte: tuple[float, float]
    """What a byte that is sent over a link takes besides the memory of both ends, least and most."""
    clock_exponent: float
    """A computation takes (highest clock / clock) to this power times its burst, by the clocks that NVML reports."""
    energy_exponent: float
    """The energy of a FLOP rises with the reported SM clock to this power."""
    timed: tuple[Mapping[str, float], ...] = ()
    """GEMMs under steady load: m, n, k, burst_s, steady_s, clock_hertz, watts."""
    paused: tuple[Mapping[str, Any], ...] = ()
    """GEMMs with rests between replays, which nothing is fitted to: m, n, k, pause_s, seconds, calls of a replay."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """By key, "datasheet|calibrated|assumed: where from"."""

    def draws(self) -> list[Draw]:
        """The middle of what is not known exactly of seconds and links, then every corner."""
        ranges = (self.waiting_watts, self.link_joules_per_byte)
        return [Draw(*map(fmean, ranges)), *(Draw(*values) for values in product(*ranges))]

    def seconds(self, work: Work, draw: Draw | None = None) -> float:
        """Seconds of one of many calls of *work*, at the highest clock whose mean power is no more than the cap.

        A burst's seconds where that is the highest clock; *draw*: the middle of `draws` where it is None.
        """
        return work.seconds((1.0 / self.clock(work, draw)) ** self.clock_exponent)

    def clock(self, work: Work, draw: Draw | None = None) -> float:
        """The clock of many calls of *work*, as a share of the highest one."""
        drawn = self.draws()[0] if draw is None else draw
        if self._watts(work, drawn, 1.0) <= self.held_watts:
            return 1.0
        low, high = SLOWEST, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self._watts(work, drawn, middle) <= self.held_watts:
                low = middle
            else:
                high = middle
        return low

    def _watts(self, work: Work, draw: Draw, clock: float) -> float:
        """Mean power of *work* at *clock*."""
        stretch = clock**-self.clock_exponent
        compute_s, seconds = work.compute_s * stretch, work.seconds(stretch)
        joules = (
            self.idle_watts * compute_s + draw.waiting_watts * (seconds - compute_s)
            + work.flop_joules * clock**self.energy_exponent
            + self.joules_per_byte * work.memory_bytes + draw.link_joules_per_byte * work.link_bytes
        )  # fmt: skip
        return joules / seconds


@dataclass(frozen=True, slots=True)
class Draw:
    """What is known as a range only: the power of seconds that do not compute, and the energy of a link's byte."""

    waiting_watts: float
    link_joules_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One call: its seconds in a burst, and what it takes energy for."""

    burst_s: float
    compute_s: float
    """Seconds that its computation alone takes in a burst, at most *burst_s*."""
    hidden_s: float = 0.0
    """Seconds of communication that run while it computes, and do not follow the clock."""
    flop_joules: float
    """Energy of its FLOP at the highest clock."""
    memory_bytes: float
    """Bytes that the memory reads and writes, those of communication included."""
    link_bytes: float = 0.0

    def seconds(self, stretch: float) -> float:
        """Seconds of the call where its computation takes *stretch* times as long as in a burst."""
        exposed_s = self.burst_s - max(self.compute_s, self.hidden_s)
        return exposed_s + max(self.compute_s * stretch, self.hidden_s)

    def at(self, energy: float) -> Work:
        """The same work with *energy* times as much energy a FLOP."""
        return replace(self, flop_joules=energy * self.flop_joules)


def work(trial: Trial, model: PowerModel, burst_s: float, compute_s: float, communicate_s: float) -> Work:
    """The work of *trial*, with the seconds of a burst, of its computation alone and of its communication alone.

    Each byte that is sent is read at one end and written at the other: a rank sends as much as it receives. FLOP that
    are not of a GEMM take no energy here.
    """
    problem, kind = trial.problem, OPERATORS[trial.problem.operator]
    joules_per_flop = model.joules_per_flop.get(problem.dtype, 0.0) if kind.work == "gemm" else 0.0
    computes, sends = trial.part != "communication", trial.part != "compute"
    link_bytes = float(kind.wire_bytes(problem)) if sends else 0.0
    compute_s = min(compute_s, burst_s) if computes else 0.0
    return Work(
        burst_s=burst_s, compute_s=compute_s,
        hidden_s=0.0 if in_order(trial) else min(communicate_s, burst_s),
        flop_joules=kind.flops(problem) * joules_per_flop if computes else 0.0,
        memory_bytes=(kind.memory_bytes(problem) if computes else 0) + 2 * link_bytes, link_bytes=link_bytes,
    )  # fmt: skip


def in_order(trial: Trial) -> bool:
    """Whether *trial* computes and communicates one after the other."""
    return trial.part != "whole" or (trial.schedule.scheme == BASELINE and not overlaps_by_itself(trial.schedule))


def overlaps_by_itself(schedule: Schedule) -> bool:
    """Whether a sequential *schedule* is an operator of torch that overlaps."""
    return schedule.get("collective") == "overlapped"


def unknown(trial: Trial, machine: Machine) -> str | None:
    """Why nothing is known of *trial* under steady load on *machine*, as a clause; None where something is."""
    model, problem = of_device(machine.device.name), trial.problem
    if model is None:
        return f"no file of data/power describes {machine.device.name}, and estimates are of bursts"
    if OPERATORS[problem.operator].work == "gemm" and problem.dtype not in model.joules_per_flop:
        return f"the energy of {problem.dtype} is not known, that of {', '.join(model.joules_per_flop)} alone"
    return None


# The files.


@lru_cache(maxsize=64)
def of_device(name: str) -> PowerModel | None:
    """The power model of the device named *name*, or None if no file lists it; read once per process."""
    models = (load(path) for path in sorted((data_directory() / "power").glob("*.toml")))
    return next((each for each in models if name in each.devices), None)


def load(path: Path) -> PowerModel:
    """The power model in the TOML file *path*; ValueError names the file and the wrong key."""
    data = toml(path, KIND)
    known = [each.name for each in fields(PowerModel)]
    if unheard := sorted(set(data) - set(known)):
        raise ValueError(f"{path.name} has the unknown key {unheard[0]!r}. Accepted: {', '.join(known)}.")
    for key, value in data.items():
        if (accepted := _wrong(key, value)) is not None:
            raise ValueError(f"{path.name}: {key} = {value!r} does not fit. Accepted: {accepted}.")
    sources = data.get("provenance", {})
    for key in sorted(set(data) - {"name", "title", "timed", "paused", "provenance"}):
        if str(sources.get(key, "")).split(":")[0] not in PROVENANCES:
            raise ValueError(
                f"{path.name}: {key} has no source. Accepted: one of {', '.join(PROVENANCES)}: where from."
            )
    try:
        model = PowerModel(**{**data, **{name: tuple(data[name]) for name in _TUPLES if name in data}})
    except TypeError as error:
        raise ValueError(f"{path.name}: {error}. Accepted: all of {', '.join(known)}.") from None
    if model.held_watts <= max(model.idle_watts, *model.waiting_watts):
        waiting = max(model.idle_watts, *model.waiting_watts)
        raise ValueError(
            f"{path.name}: idle_watts and waiting_watts leave no power for work: {waiting:g} >= "
            f"{model.held_watts:g}. Accepted: less than held_watts."
        )
    return model


_NUMBERS = ("cap_watts", "held_watts", "highest_clock_hertz", "idle_watts", "joules_per_byte", "clock_exponent",
            "energy_exponent")  # fmt: skip
_RANGES = ("waiting_watts", "link_joules_per_byte")
_TUPLES = ("devices", "timed", "paused", *_RANGES)


def _wrong(key: str, value: Any) -> str | None:
    """A description of the values accepted for *key*, or None if *value* is one."""
    if key in _NUMBERS:
        return None if _is_positive(value) else "a finite number above 0"
    if key in _RANGES:
        return None if _is_range(value) else "two finite numbers from 0 up, the least first"
    if key == "joules_per_flop":
        fits = isinstance(value, dict) and value and all(map(_is_positive, value.values()))
        return None if fits else "a table of finite numbers above 0"
    return None


def _is_range(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    return all(each == 0 or _is_positive(each) for each in value) and value[0] <= value[1]


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0
