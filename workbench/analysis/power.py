"""Fits the power model of a card to probes of one kind of work each, and says how far it is off elsewhere.

`python -m workbench.analysis.power` prints the fits of both cards, and the errors on what nothing was fitted to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean, linear_regression, median
from typing import Any, NamedTuple

from kernels.regime import STEADY, Regime
from kernels.trial import PROTOCOLS
from workbench.machines import shipped_machine
from workbench.resources import data_directory
from workbench.results import recordings
from workbench.simulator.predict import predict
from workbench.simulator.price.power import PowerModel, Work, load, of_device

Timed = Mapping[str, float]
DTYPE = "bfloat16"
"""All GEMMs that were timed so far have it, but one probe."""
MACHINE = "h200_nvl2"
"""A machine whose card is described."""
PROBED, OTHER = "h100", "h200"
"""The card with probes, and the one that takes from it what was not measured there."""
RECORDINGS = ("h100_steady", "h100_nvl2_regimes")
"""Calls under steady load that nothing is fitted to: of one rank on the probed card, and of two ranks on two others."""
SETTLED_S = 4.0
"""Seconds of the first probe after which its power is that of the cap."""


def card(machine: str = MACHINE) -> PowerModel:
    """The power model of the card of *machine*."""
    model = of_device(shipped_machine(machine).device.name)
    assert model is not None, f"{machine} has no power model"
    return model


# GEMMs, and the probes of them.


def flops(timed: Timed) -> float:
    """FLOP of one GEMM."""
    return 2.0 * timed["m"] * timed["n"] * timed["k"]


def num_bytes(timed: Timed, itemsize: int = 2) -> float:
    """Bytes of its operands and its result, once each."""
    return itemsize * (timed["m"] * timed["k"] + timed["k"] * timed["n"] + timed["m"] * timed["n"])


def gemm_work(model: PowerModel, timed: Timed, burst_s: float, rest_s: float = 0.0) -> Work:
    """One call of a GEMM with *rest_s* before the next."""
    return Work(burst_s=burst_s + rest_s, compute_s=burst_s, flop_joules=flops(timed) * model.joules_per_flop[DTYPE],
                memory_bytes=num_bytes(timed))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """A GEMM at one clock."""

    seconds: float
    clock: float
    """As a share of the highest one."""
    joules_per_flop: float
    """At this clock, without idle power and bytes."""


def probes() -> dict[str, dict[str, Any]]:
    """The rows of the probed card by name."""
    lines = (data_directory() / "probes" / f"{PROBED}_power.jsonl").read_text().splitlines()
    return {row["probe"]: row for row in map(json.loads, lines) if "probe" in row}


def point(row: Mapping[str, Any], timed: Timed, model: PowerModel) -> Point:
    """A probe of a GEMM; in a duty cycle it draws idle power between its calls.

    Older rows lack the calls of one run and the seconds of the probe.
    """
    calls, seconds = row.get("calls", max(1, round(2e12 / flops(timed)))), row.get("seconds", 4.0)
    busy_s = row["seconds_per_call"] * row["runs"] * calls
    share = min(1.0, busy_s / seconds) if row["duty"] < 1 else 1.0
    joules = (row["power_now_watts"] - model.idle_watts) / share * row["seconds_per_call"]
    return _point(row["seconds_per_call"], row["sm_clock_mhz"] * 1e6, joules, timed, model)


def _point(seconds: float, clock_hertz: float, joules: float, timed: Timed, model: PowerModel) -> Point:
    """A call of *seconds* that takes *joules* without idle power."""
    of_flops = joules - num_bytes(timed) * model.joules_per_byte
    return Point(seconds, clock_hertz / model.highest_clock_hertz, of_flops / flops(timed))


def _timed(sizes: str) -> dict[str, float]:
    return dict(zip("mnk", map(float, sizes.split("x")), strict=True))


CLOCKED = "4096x4096x4096"
"""The GEMM that was probed at four clocks: in three duty cycles, and without a rest."""
ALSO = ("8192x8192x7168",)
"""Other GEMMs whose energy is fitted to."""


def probe_points(model: PowerModel) -> list[tuple[str, Point]]:
    """The probes of bfloat16 GEMMs of cuBLAS on standard normal operands, those at several clocks first."""
    rows = probes()
    clocked = [rows[name] for name in rows if name.startswith("gemm duty ")]
    named = [(CLOCKED, row) for row in [*clocked, rows[f"gemm {CLOCKED} {DTYPE} normal"]]]
    named += [(sizes, rows[f"gemm {sizes} {DTYPE} normal"]) for sizes in ALSO]
    return [(sizes, point(row, _timed(sizes), model)) for sizes, row in named]


# Fits.


def fitted(model: PowerModel) -> PowerModel:
    """*model* with all that the probes of its card say."""
    rows = probes()
    idle, spin, copy = (rows[name] for name in ("idle", "spin", "copy 2 GiB"))
    idle_watts, settled = idle["power_now_watts"], rows["gemm settling"]["readings"]
    model = replace(
        model, idle_watts=idle_watts, waiting_watts=(idle_watts, spin["power_now_watts"]),
        held_watts=fmean(each["power_now_watts"] for each in settled if each["at"] > SETTLED_S),
        joules_per_byte=(copy["power_now_watts"] - idle_watts) / copy["per_second"],
    )  # fmt: skip
    points = probe_points(model)
    clocked = [each for sizes, each in points if sizes == CLOCKED]
    clocks = [log(each.clock) for each in clocked]
    model = replace(model, clock_exponent=-_slope(clocks, [log(each.seconds) for each in clocked]),
                    energy_exponent=_slope(clocks, [log(each.joules_per_flop) for each in clocked]))  # fmt: skip
    half = point(rows[f"gemm {CLOCKED} float16 normal"], _timed(CLOCKED), model)
    energies = {DTYPE: [each for _, each in points], "float16": [half]}
    return replace(model, joules_per_flop={dtype: _at_highest(model, each) for dtype, each in energies.items()})


def transferred(model: PowerModel, probed: PowerModel) -> PowerModel:
    """*model* with what its own GEMMs say, and from the card *probed*, whose die it has, all that they do not."""
    same = ("idle_watts", "waiting_watts", "joules_per_byte", "link_joules_per_byte", "clock_exponent",
            "energy_exponent")  # fmt: skip
    model = replace(model, **{name: getattr(probed, name) for name in same},
                    held_watts=fmean(each["watts"] for each in model.timed))  # fmt: skip
    points = [
        _point(
            each["steady_s"], each["clock_hertz"], (each["watts"] - model.idle_watts) * each["steady_s"], each, model
        )
        for each in model.timed
    ]
    return replace(model, joules_per_flop={DTYPE: _at_highest(model, points)})


def _at_highest(model: PowerModel, points: Sequence[Point]) -> float:
    """Geometric mean of the energy of a FLOP at the highest clock."""
    return exp(fmean(log(each.joules_per_flop) - model.energy_exponent * log(each.clock) for each in points))


def _slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    return linear_regression(xs, ys).slope


def refitted(name: str) -> PowerModel:
    """The model in the file of the card called *name*, fitted again."""
    probed = fitted(load(data_directory() / "power" / f"{PROBED}.toml"))
    return probed if name == PROBED else transferred(load(data_directory() / "power" / f"{name}.toml"), probed)


# Errors on what nothing was fitted to.


class Comparison(NamedTuple):
    """One call under steady load: seconds measured, estimated, and estimated as a burst."""

    name: str
    measured_s: float
    estimated_s: float
    burst_s: float

    @property
    def error(self) -> float:
        """Estimated over measured, less one."""
        return self.estimated_s / self.measured_s - 1

    @property
    def as_burst(self) -> float:
        """The same, if it were taken for a burst."""
        return self.burst_s / self.measured_s - 1


def recorded(name: str) -> Iterator[Comparison]:
    """The calls of a recording under `--protocol steady` whose regime is steady, priced by the simulator."""
    for each in recordings.read(recordings.paths()[name]):
        trial, measured = each.measurement.trial, each.measurement
        if not trial.protocol.is_steady or measured.regime != Regime(STEADY):
            continue
        on, sizes = shipped_machine(trial.machine), "x".join(map(str, dict(trial.problem.shape).values()))
        burst, loaded = (predict(replace(trial, protocol=PROTOCOLS[one]), on, with_spans=False).time_s
                         for one in ("default", "steady"))  # fmt: skip
        yield Comparison(f"{trial.schedule.scheme} {trial.problem.operator} {sizes}", measured.time_s, loaded, burst)


def paused(model: PowerModel) -> Iterator[tuple[str, float, float, float]]:
    """Each GEMM of *model* that was timed with rests: its sizes, seconds of computation as estimated, least and most,
    and as measured."""
    bursts = {sizes_of(each): each["burst_s"] for each in model.timed}
    for each in model.paused:
        seconds = []
        for calls in each["calls"]:
            rest_s = each["pause_s"] / calls
            call = gemm_work(model, each, bursts[sizes_of(each)], rest_s)
            seconds += [model.seconds(call, draw) - rest_s for draw in model.draws()]
        yield sizes_of(each), min(seconds), max(seconds), each["seconds"]


def sizes_of(gemm: Timed) -> str:
    """m, n and k as text."""
    return "x".join(f"{gemm[name]:.0f}" for name in ("m", "n", "k"))


def shares_text(errors: Sequence[float]) -> str:
    """Median, 90th percentile and largest size of *errors*."""
    sizes = sorted(map(abs, errors))
    return f"median {median(sizes):.1%}, p90 {sizes[round(0.9 * (len(sizes) - 1))]:.1%}, at most {sizes[-1]:.1%}"


def main() -> None:
    """Prints the fits, and the errors."""
    for name in (PROBED, OTHER):
        model = refitted(name)
        per_flop = ", ".join(f"{dtype} = {value:.4g}" for dtype, value in model.joules_per_flop.items())
        print(f"{name}: held_watts = {model.held_watts:.5g}, idle_watts = {model.idle_watts:.5g}, waiting_watts = "
              f"[{model.waiting_watts[0]:.5g}, {model.waiting_watts[1]:.5g}], joules_per_byte = "
              f"{model.joules_per_byte:.4g}, clock_exponent = {model.clock_exponent:.3g}, energy_exponent = "
              f"{model.energy_exponent:.3g}, joules_per_flop: {per_flop}")  # fmt: skip
    for name in RECORDINGS:
        calls = list(recorded(name))
        for call in calls:
            print(f"  {call.name}: {call.measured_s * 1e6:.1f} us measured, {call.estimated_s * 1e6:.1f} estimated, "
                  f"{call.error:+.1%}; as a burst {call.as_burst:+.1%}")  # fmt: skip
        print(f"{len(calls)} calls of {name}: {shares_text([each.error for each in calls])}, "
              f"{sum(each.error < 0 for each in calls)} estimated too short; "
              f"as bursts {shares_text([each.as_burst for each in calls])}")  # fmt: skip
    other = refitted(OTHER)
    rested = {sizes: (low, high, measured) for sizes, low, high, measured in paused(other)}
    for each in other.timed:
        low, high, measured = rested[sizes_of(each)]
        without_s = other.seconds(gemm_work(other, each, each["burst_s"]))
        steady_s = each["steady_s"]
        print(f"{OTHER} {sizes_of(each)}: {without_s * 1e6:.0f} us estimated without rests, {steady_s * 1e6:.0f} "
              f"measured; {low * 1e6:.0f} to {high * 1e6:.0f} estimated with rests, {measured * 1e6:.0f} measured; "
              f"{each['burst_s'] * 1e6:.0f} in a burst")  # fmt: skip


if __name__ == "__main__":
    main()
