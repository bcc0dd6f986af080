"""Fits the power model of a card to GEMMs that were timed in bursts and under steady load, and says how far it is off.

`python -m workbench.analysis.power` prints the fit of each file of `data/power/` to its own GEMMs, and the errors of
fits to some of them on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import log
from statistics import fmean, geometric_mean, median
from typing import NamedTuple

from workbench.machines import shipped_machine
from workbench.resources import data_directory
from workbench.simulator.price.power import PowerModel, load, of_device

Timed = Mapping[str, float]
DTYPE = "bfloat16"
"""All GEMMs that were timed so far have it."""
MACHINE = "h200_nvl2"
"""A machine whose card is described."""


def card() -> PowerModel:
    """The power model of the card of MACHINE."""
    model = of_device(shipped_machine(MACHINE).device.name)
    assert model is not None, f"{MACHINE} has no power model"
    return model


class PowerError(NamedTuple):
    """How far a fit is off for a GEMM that it has not seen; shares."""

    seconds: float
    """Of its time: estimated over measured, less one."""
    clock: float
    """Of its clock, which follows from its measured burst and its estimated time."""
    as_burst: float
    """Of its time, if it were taken for a burst."""


def flops(timed: Timed) -> float:
    """FLOP of one GEMM."""
    return 2.0 * timed["m"] * timed["n"] * timed["k"]


def fitted(model: PowerModel, timed: Sequence[Timed]) -> PowerModel:
    """*model* with energy, power at the cap and exponent of the clock from *timed*, which are bound by computation.

    Without `idle_watts` the energy is all that the card draws, so it is that of a card that never waits.
    """
    idle_watts = model.idle_watts or 0.0
    energy = geometric_mean((each["watts"] - idle_watts) * each["steady_s"] / flops(each) for each in timed)
    exponents = (log(each["steady_s"] / each["burst_s"]) / log(model.highest_clock_hertz / each["clock_hertz"])
                 for each in timed)  # fmt: skip
    return replace(model, held_watts=fmean(each["watts"] for each in timed), clock_exponent=fmean(exponents),
                   joules_per_flop={DTYPE: energy})  # fmt: skip


def error(model: PowerModel, timed: Timed) -> PowerError:
    """How far *model* is off for *timed*."""
    seconds = model.capped_seconds(flops(timed), DTYPE)
    clock = model.clock_hertz(timed["burst_s"], seconds)
    return PowerError(seconds / timed["steady_s"] - 1, clock / timed["clock_hertz"] - 1,
                      timed["burst_s"] / timed["steady_s"] - 1)  # fmt: skip


def held_out(model: PowerModel, count: int) -> Iterator[PowerError]:
    """The errors of fits to every choice of *count* of the model's GEMMs, on each of the others."""
    for some in combinations(model.timed, count):
        part = fitted(model, some)
        yield from (error(part, each) for each in model.timed if each not in some)


def text(model: PowerModel, count: int) -> str:
    """What `held_out` says, in one line."""
    errors = list(held_out(model, count))
    of = {name: [abs(getattr(each, name)) for each in errors] for name in PowerError._fields}
    parts = [f"{name} {median(values):.1%}, at most {max(values):.1%}" for name, values in of.items()]
    return f"fits to {count} of {len(model.timed)}, on the others: median error of {'; '.join(parts)}"


def main() -> None:
    """Prints every file's fit and errors."""
    for path in sorted((data_directory() / "power").glob("*.toml")):
        model = load(path)
        part = fitted(model, model.timed)
        print(f"{model.name}: held_watts = {part.held_watts:.4g}, clock_exponent = {part.clock_exponent:.3g}, "
              f"joules_per_flop = {part.joules_per_flop[DTYPE]:.4g}")  # fmt: skip
        for count in range(1, len(model.timed)):
            print(f"  {text(model, count)}")


if __name__ == "__main__":
    main()
