"""Prices work under steady load: a card that draws its cap computes no more FLOP a second than the cap's energy pays.

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
from kernels.trial import Trial
from workbench.resources import data_directory, toml

KIND = files.TextKind("power file", "a power model", "a TOML file")


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
    """What it draws at its cap."""
    highest_clock_hertz: float
    """The SM clock of bursts."""
    clock_exponent: float
    """A computation takes (highest clock / clock) to this power times its burst: not all waits for the SM clock."""
    joules_per_flop: Mapping[str, float]
    """By dtype, of a GEMM on standard normal operands; all of the card's energy where *idle_watts* is None."""
    idle_watts: float | None = None
    """What the card draws without work; None: not known, and part of the energies."""
    rest_share: tuple[float, float] | None = None
    """What the card draws while it only communicates, least and most, as a share of *held_watts*."""
    hidden_share: tuple[float, float] | None = None
    """What communication adds while the card computes, least and most, as a share of *held_watts*."""
    energy_exponent: tuple[float, float] | None = None
    """The energy of a FLOP rises with the SM clock to this power, least and most."""
    timed: tuple[Mapping[str, float], ...] = ()
    """The GEMMs that it was fitted to: m, n, k, burst_s, steady_s, clock_hertz, watts."""
    paused: tuple[Mapping[str, Any], ...] = ()
    """GEMMs with rests between replays, which nothing was fitted to: m, n, k, pause_s, seconds, calls of a replay."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """By key, "datasheet|calibrated|assumed: where from"."""

    def capped_seconds(self, flops: float, dtype: str) -> float:
        """The least seconds of *flops* at the cap: their energy, over the power that is left for work."""
        return flops * self.joules_per_flop[dtype] / (self.held_watts - (self.idle_watts or 0.0))

    def clock_hertz(self, burst_s: float, steady_s: float) -> float:
        """The SM clock at which a call of *burst_s* takes *steady_s*."""
        return float(self.highest_clock_hertz * (burst_s / steady_s) ** (1.0 / self.clock_exponent))

    def draws(self) -> list[Draw]:
        """The middle of what is assumed of seconds that do not compute, then every corner; [] if nothing is assumed."""
        if self.rest_share is None or self.hidden_share is None or self.energy_exponent is None:
            return []
        assumed = (self.rest_share, self.hidden_share, self.energy_exponent)
        corners = [Draw(*values) for values in product(*assumed)]
        return [Draw(*map(fmean, assumed)), *corners]

    def mixed_seconds(self, work: Work, draw: Draw) -> float:
        """Seconds of a schedule whose computation has a cap that rests raise and hidden communication lowers.

        The cap holds for the mean over many calls. At the cap alone, computation takes `work.capped_s`. A rest draws
        less than the cap, and what is left raises the clock of the computation. A faster clock costs more
        energy a FLOP, so only a part of it comes back as time: clock_exponent / (clock_exponent + energy_exponent).
        """
        returned = self.clock_exponent / (self.clock_exponent + draw.energy_exponent)
        spent_s = draw.hidden_share * work.hidden_s - (1.0 - draw.rest_share) * work.rest_s
        return work.rest_s + max(work.compute_s, work.capped_s + returned * spent_s)


@dataclass(frozen=True, slots=True)
class Draw:
    """What a card draws in seconds that do not compute, and how the energy of a FLOP follows the clock."""

    rest_share: float
    hidden_share: float
    energy_exponent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The seconds of one call."""

    compute_s: float
    """Seconds that its computation takes in a burst."""
    capped_s: float
    """Seconds that it takes where the power cap alone limits it."""
    rest_s: float
    """Seconds in which it does not compute."""
    hidden_s: float = 0.0
    """Seconds in which it communicates while it computes."""

    def at(self, energy: float) -> Work:
        """The same work with *energy* times as much energy a FLOP."""
        return replace(self, capped_s=energy * self.capped_s)


def steady_seconds(trial: Trial, machine: Machine, burst_s: float) -> float | str:
    """Seconds of *trial* under steady load, which takes *burst_s* in a burst; or why that is not known, as a clause."""
    model = of_device(machine.device.name)
    if model is None:
        return f"no file of data/power describes {machine.device.name}, and estimates are of bursts"
    if (clause := unknown(trial, model)) is not None:
        return clause
    problem = trial.problem
    flops = OPERATORS[problem.operator].flops(problem)
    capped_s = model.capped_seconds(flops, problem.dtype)
    if capped_s < burst_s:
        return (
            f"at the cap its FLOP take {capped_s * 1e6:.0f} us, less than the {burst_s * 1e6:.0f} us of a burst, and "
            "what else it spends energy on is not known"
        )
    return capped_s


def unknown(trial: Trial, model: PowerModel) -> str | None:
    """Why *model* says nothing about *trial*, as a clause; None where it does."""
    problem, work = trial.problem, OPERATORS[trial.problem.operator].work
    if work != "gemm":
        return f"the energy of a {work} is not known, that of a GEMM alone"
    if problem.dtype not in model.joules_per_flop:
        return f"the energy of {problem.dtype} is not known, that of {', '.join(model.joules_per_flop)} alone"
    if trial.part != "compute" and trial.world > 1:
        return "the energy of bytes on a link and of waiting for them is not known, that of computation alone"
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
    if model.held_watts <= (model.idle_watts or 0.0):
        raise ValueError(
            f"{path.name}: idle_watts = {model.idle_watts:g} leaves no power for work: {model.idle_watts:g} >= "
            f"{model.held_watts:g}. Accepted: less than held_watts."
        )
    return model


_NUMBERS = ("cap_watts", "held_watts", "highest_clock_hertz", "clock_exponent", "idle_watts")
_RANGES = ("rest_share", "hidden_share", "energy_exponent")
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
