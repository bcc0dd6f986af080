"""A model's step under each configuration, compared with the sequential step, and bands over network rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.schedule import Refusal
from kernels.schemes import BASELINE
from workbench.simulator.predict import UNCALIBRATED
from workbench.simulator.scaling.graph import BACKWARD, FORWARD, Task, tasks
from workbench.simulator.scaling.model import Model
from workbench.simulator.scaling.prices import Prices
from workbench.simulator.scaling.schedule import ExposedTime, TaskTimes, exposed, on_all_ranks, timed

# Rows of `workbench predict-step`: a step under each configuration, compared with the sequential one.

Row = dict[str, Any]
Floats = NDArray[np.float64]
CONFIGURATIONS: Mapping[str, Mapping[str, str]] = {
    "fused_forward": {FORWARD: "fused", BACKWARD: BASELINE},
    "fused_backward": {FORWARD: BASELINE, BACKWARD: "fused"},
    "fused": {FORWARD: "fused", BACKWARD: "fused"},
    "decomposed": {FORWARD: "decomposed", BACKWARD: "decomposed"},
}
"""The scheme of each pass. A model without a backward pass omits configurations that differ only in that pass."""
SEQUENTIAL: Mapping[str, str] = {FORWARD: BASELINE, BACKWARD: BASELINE}
DRAWS = 8
"""Number of random draws of stragglers; times are the mean over them."""

MOST_SLOWDOWN = 1_000_000
"""The largest slowdown of a rank: a step of a second then takes 12 days."""

RATES, SCALES = (1.0, 1e18), (1e-6, 1e6)
"""Rates of a network, bytes per second, and scales of dense layers: beyond, a time is endless or has 300 digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """Random differences between ranks: each computes *slowdown* times as long with *probability*.

    A rank's lookups and routed tokens are uniform within a share *imbalance* of the mean.
    """

    probability: float = 0.0
    slowdown: float = 1.5
    imbalance: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise Refusal(f"stragglers = {self.probability:g} is no probability. Accepted: 0 to 1.")
        if not 1 <= self.slowdown <= MOST_SLOWDOWN:
            within = f"1 to {MOST_SLOWDOWN:,}"
            raise Refusal(f"slowdown = {self.slowdown:g} is outside {within}. Accepted: {within}.")
        if not 0 <= self.imbalance <= 1:
            raise Refusal(f"imbalance = {self.imbalance:g} is no share. Accepted: 0 to 1.")

    @property
    def differ(self) -> bool:
        """Whether ranks differ at all."""
        return self.probability > 0 or self.imbalance > 0

    def draws(self, world: int) -> list[tuple[Floats, Floats]]:
        """For each draw, the slowdown of each of *world* ranks, and the additional factor of uneven tasks."""
        if not self.differ:
            return []
        random = np.random.default_rng(self.seed)
        slow = np.where(random.random((DRAWS, world)) < self.probability, self.slowdown, 1.0)
        load = 1.0 + self.imbalance * random.uniform(-1.0, 1.0, (DRAWS, world))
        return list(zip(slow, load, strict=True))


NO_STRAGGLERS = Stragglers()
"""All ranks are equally fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSetting:
    """The setting of a step: model, prices, stragglers and the scale of dense layers."""

    model: Model
    prices: Prices
    stragglers: Stragglers = NO_STRAGGLERS
    dense_scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class StepTime:
    """A step with its schedule and exposed time."""

    tasks: tuple[Task, ...]
    timed: TaskTimes
    exposed: ExposedTime
    time_s: float
    """Mean over the draws if ranks differ, else the time of the rank that represents all."""


def step(setting: StepSetting, schemes: Mapping[str, str] = SEQUENTIAL) -> StepTime:
    """Schedule the step with the given scheme of each pass."""
    step_tasks = tasks(setting.model, setting.prices, schemes, dense_scale=setting.dense_scale)
    task_times, network = timed(step_tasks), setting.prices.network
    ends = [float(on_all_ranks(step_tasks, task_times.order, slow, load).max())
            for slow, load in setting.stragglers.draws(network.world)]  # fmt: skip
    return StepTime(
        step_tasks,
        task_times,
        exposed(step_tasks, task_times, len(network.levels)),
        float(np.mean(ends)) if ends else task_times.time_s,
    )


def named(names: Sequence[str] | None, model: Model) -> list[str]:
    """The configurations *names*, or all that differ for *model* if none is named; Refusal for an unknown name."""
    if unknown := [name for name in names or () if name not in CONFIGURATIONS]:
        raise Refusal(f"There is no configuration {unknown[0]!r}. Accepted: {', '.join(CONFIGURATIONS)}.")
    every = [name for name, schemes in CONFIGURATIONS.items()
             if model.training or schemes[FORWARD] == schemes[BACKWARD]]  # fmt: skip
    return list(names) if names else every


def rows(setting: StepSetting, names: Sequence[str] | None = None) -> list[Row]:
    """A row for each configuration, with the sequential step as baseline; times in seconds, shares of 1."""
    baseline = step(setting)
    return [_row(setting, name, step(setting, CONFIGURATIONS[name]), baseline) for name in named(names, setting.model)]


def _row(setting: StepSetting, name: str, result: StepTime, baseline: StepTime) -> Row:
    network, machine, schemes = setting.prices.network, setting.prices.machine, CONFIGURATIONS[name]
    passes = (FORWARD, BACKWARD) if setting.model.training else (FORWARD,)
    overlapped = [each for each in passes if schemes[each] != BASELINE]
    inside = setting.prices.inside_a_host(network)
    low, high = (inside and machine.spread) or UNCALIBRATED
    return {
        "model": setting.model.name, "machine": machine.name, "world": network.world, "network": network.shape,
        "network_bytes_per_second": network.levels[network.outermost].bandwidth_bytes_per_second,
        "dense_scale": setting.dense_scale, "stragglers": setting.stragglers.probability,
        "slowdown": setting.stragglers.slowdown, "imbalance": setting.stragglers.imbalance,
        "seed": setting.stragglers.seed,
        "configuration": name, "scheme": schemes[overlapped[0]], "fused_passes": overlapped,
        "baseline_s": baseline.time_s, "fused_s": result.time_s, "reduction": 1.0 - result.time_s / baseline.time_s,
        "compute_s": result.exposed.compute_s, **_exposed_columns(result, setting, ""),
        **_exposed_columns(baseline, setting, "baseline_"),
        "baseline_low_s": low * baseline.time_s, "baseline_high_s": high * baseline.time_s,
        "fused_low_s": low * result.time_s, "fused_high_s": high * result.time_s,
        "source": "estimated", "calibrated": inside and machine.calibrated is not None,
    }  # fmt: skip


def _exposed_columns(result: StepTime, setting: StepSetting, prefix: str) -> Row:
    """Columns with the exposed time of *result*, in total and by part; the parts are computed without stragglers."""
    parts, levels = result.exposed, setting.prices.network.levels
    return {
        f"{prefix}exposed_s": parts.total_s,
        f"{prefix}exposed_share": parts.total_s / result.timed.time_s if result.timed.time_s else 0.0,
        f"{prefix}exposed_by_level": [
            {"level": at, "topology": level.topology, "count": level.count, "exposed_s": seconds}
            for at, (level, seconds) in enumerate(zip(levels, parts.by_level, strict=True))],
        f"{prefix}exposed_by_layer": [
            {"layer": layer, "pass": passes, "exposed_s": seconds}
            for (layer, passes), seconds in sorted(parts.by_place.items(), key=lambda each: -each[1])],
    }  # fmt: skip


# Bands: rows over several network rates and scales of dense layers, and their span.


def band(
    first: StepSetting,
    *,
    rates: Sequence[float] = (),
    dense_scales: Sequence[float] = (),
    names: Sequence[str] | None = None,
) -> list[Row]:
    """The rows of *first* at every rate of its outermost level and every scale of dense layers; by default its own.

    *rates* are in bytes per second; *names* are the configurations, all by default.
    """
    band_rows: list[Row] = []
    network = first.prices.network
    for rate in rates or (network.levels[network.outermost].bandwidth_bytes_per_second,):
        for scale in dense_scales or (first.dense_scale,):
            _check("network rate", rate, RATES)
            _check("dense scale", scale, SCALES)
            prices = first.prices.over(network.with_rates(network.outermost, rate))
            band_rows += rows(replace(first, prices=prices, dense_scale=scale), names)
    return band_rows


def _check(name: str, value: float, within: tuple[float, float]) -> None:
    least, most = within
    if not least <= value <= most:
        raise Refusal(f"{name} = {value:g} is outside {least:g} to {most:g}. Accepted: {least:g} to {most:g}.")


def span(of: Sequence[Row]) -> dict[str, list[float]]:
    """The lowest and highest reduction of each configuration among the rows."""
    spans: dict[str, list[float]] = {}
    for row in of:
        low, high = spans.get(row["configuration"], [row["reduction"]] * 2)
        spans[row["configuration"]] = [min(low, row["reduction"]), max(high, row["reduction"])]
    return spans
