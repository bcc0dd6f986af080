"""A claim as a band: a model's rows over stated network rates and shares of dense layers, and what they span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernels.schedule import Refusal
from workbench.simulator.step.configurations import Row, Setting, rows


def band(
    first: Setting,
    *,
    rates: Sequence[float] = (),
    dense_scales: Sequence[float] = (),
    names: Sequence[str] | None = None,
) -> list[Row]:
    """The rows of *first* at every rate of its outermost level with every share of dense layers; its own where none is.

    *rates* in bytes per second; *names*: the configurations, all where none is named.
    """
    made: list[Row] = []
    network = first.prices.network
    for rate in rates or (network.levels[network.outermost].bandwidth_bytes_per_second,):
        for scale in dense_scales or (first.dense_scale,):
            _check({"network rate": rate, "dense scale": scale})
            prices = first.prices.over(network.with_rates(network.outermost, rate))
            made += rows(replace(first, prices=prices, dense_scale=scale), names)
    return made


def _check(values: dict[str, float]) -> None:
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise Refusal(f"{name} = {value:g} does not fit. Accepted: a finite number above 0.")


def span(of: Sequence[Row]) -> dict[str, list[float]]:
    """By configuration, the lowest and the highest reduction among the rows."""
    spans: dict[str, list[float]] = {}
    for row in of:
        low, high = spans.get(row["configuration"], [row["reduction"]] * 2)
        spans[row["configuration"]] = [min(low, row["reduction"]), max(high, row["reduction"])]
    return spans
