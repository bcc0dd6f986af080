"""The regime of a measurement: whether a GPU's power cap decided its clock meanwhile, as its own readings say.

A card that rests between replays runs at its highest clock: a *burst*. One that does not rest is taken down by its
power cap: *steady*. Each is a machine of its own, and nothing joins their times. What the protocol was does not decide:
long calls with short pauses are capped too, and calls that only wait for memory may never be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

BURST, STEADY, UNKNOWN = "burst", "steady", "unknown"
REGIMES = (BURST, STEADY, UNKNOWN)

POWER_CAP, SET_CLOCKS = "power cap", "application clocks"
"""Two reasons of a low clock, by their names in `kernels/nvml.py`."""
AGREEING = 0.9
"""Least share of a rank's readings that must say the same: a reading may fall between two samples."""
BELOW_HIGHEST = 0.95
"""A clock below this share of the highest one, without a reason, was locked by somebody."""

Reading = Mapping[str, Any]
"""A device's condition at one moment (`kernels/nvml.py: Meter.read`)."""


class Regime(NamedTuple):
    """A regime, and why it is unknown."""

    name: str
    """One of REGIMES."""
    why: str = ""
    """One sentence where it is unknown, else empty."""


def regime(conditions: Sequence[Reading], world: int, *, settled: bool = True) -> Regime:
    """The regime of a measurement of *world* ranks with these *conditions*; *settled*: whether its clocks were flat.

    All ranks must be in one regime.
    """
    by_rank = {rank: [each for each in conditions if each.get("rank", 0) == rank] for rank in range(world)}
    regimes = {rank: of_readings(_of_device(readings)) for rank, readings in by_rank.items()}
    for rank, one in regimes.items():
        if one.name == UNKNOWN:
            return one if world == 1 else Regime(UNKNOWN, f"Rank {rank}: {one.why}")
    if not settled:
        return Regime(UNKNOWN, "The clock was not flat when the samples began: the load was too short for it.")
    names = sorted({one.name for one in regimes.values()})
    if len(names) > 1:
        each = " and ".join(f"rank {rank} was {one.name}" for rank, one in regimes.items())
        return Regime(UNKNOWN, f"Its ranks were not in one regime: {each}.")
    return Regime(names[0])


def _of_device(readings: Sequence[Reading]) -> list[Reading]:
    """Those of *readings* that are about a device; others are about the cores of a host."""
    return [each for each in readings if "others_cores" not in each]


def of_readings(readings: Sequence[Reading]) -> Regime:
    """The regime of one device with these *readings*."""
    if (why := _no_evidence(readings) or _changed(readings)) is not None:
        return Regime(UNKNOWN, why)
    reasons = [frozenset(each["throttled"]) for each in readings]
    if others := sorted(frozenset.union(*reasons) - {POWER_CAP}):
        return Regime(UNKNOWN, f"Its clock was lowered for another reason than its power cap: {', '.join(others)}.")
    capped = sum(POWER_CAP in each for each in reasons)
    if capped >= AGREEING * len(readings):
        return Regime(STEADY)
    if len(readings) - capped >= AGREEING * len(readings):
        return Regime(BURST)
    return Regime(
        UNKNOWN, f"The power cap lowered its clock in {capped} of {len(readings)} readings, which is neither regime."
    )


def _no_evidence(readings: Sequence[Reading]) -> str | None:
    """Why *readings* say nothing about the regime, or None."""
    if not any("sm_clock_mhz" in each for each in readings):
        return "No clock was read: nvidia-ml-py, its driver or its access to this GPU is missing."
    if not all("throttled" in each for each in readings):
        return "This GPU does not say why its clock is low."
    if not all("power_now_watts" in each or "power_watts" in each for each in readings):
        return "This GPU does not say its power."
    return None


def _changed(readings: Sequence[Reading]) -> str | None:
    """What somebody set on the device of *readings*, so that its cap or clock is not its own; None: nothing is known.

    Older readings have neither limits nor the highest clock.
    """
    for each in readings:
        limit, usual = each.get("power_limit_watts"), each.get("power_limit_default_watts")
        if limit is not None and usual is not None and limit != usual:
            return f"Its power cap was changed: {limit:g} W, and the card's own is {usual:g} W."
        if SET_CLOCKS in (each.get("throttled") or ()):
            return f"Its clock was locked at {each.get('sm_clock_mhz')} MHz: the driver says {SET_CLOCKS}."
    low = [each for each in readings if _is_low_without_reason(each)]
    if low and len(low) >= AGREEING * len(readings):  # a single one was read while the GPU was idle
        clock, highest = low[-1]["sm_clock_mhz"], low[-1]["sm_clock_max_mhz"]
        return f"Its clock was locked: {clock} of {highest} MHz, and the driver gives no reason."
    return None


def _is_low_without_reason(reading: Reading) -> bool:
    highest, clock = reading.get("sm_clock_max_mhz"), reading.get("sm_clock_mhz")
    return bool(highest and clock and not reading.get("throttled") and clock < BELOW_HIGHEST * highest)


def settled(facts: Mapping[str, Any]) -> bool:
    """Whether the clock was flat in every load of a measurement with these *facts*; not where it was not read."""
    loads = facts.get("loads") or ()
    by_rank = loads if loads and isinstance(loads[0], list) else [loads]
    return all(load.get("flat") is True for of_rank in by_rank for load in of_rank)
