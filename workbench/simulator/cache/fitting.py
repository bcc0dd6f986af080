"""The values of the reuse tier that nobody publishes, fitted to what a GPU counted of half of the kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.measured import Truth, errors

Tried = Mapping[str, Sequence[float]]
TRAFFIC: Tried = {
    "uneven": (0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.56),
    "far_copies": (0.0, 0.25, 0.5, 0.75, 1.0),
    "pace_spread": (0.0, 0.002, 0.003, 0.004, 0.005, 0.006, 0.0075, 0.01, 0.02),
}
"""What decides DRAM's bytes."""
REQUESTS: Tried = {
    "merged": tuple(i / 10 for i in range(11)), "l1_bytes": (131_072, 163_840, 196_608, 229_376),
}  # fmt: skip
"""What decides the bytes that are asked of L2."""
FITTED = (*TRAFFIC, *REQUESTS)


def fitted(of: Sequence[Truth], on: Hierarchy) -> Hierarchy:
    """*on* with the values of FITTED that are least off in the mean of the kernels to fit to, DRAM's bytes first."""
    chosen = [each for each in of if each.part == "fit"]
    if not chosen:
        raise ValueError("0 kernels are there to fit to. Accepted: a document with at least 1 of part = fit.")

    def off(one: Hierarchy, name: str) -> float:
        return _mean(abs(math.log1p(row[name])) for row in errors(chosen, one) if row[name] is not None)

    best = min(_all(on, TRAFFIC), key=lambda one: off(one, "off"))
    return min(_all(best, REQUESTS), key=lambda one: off(one, "asked_off"))


def _all(on: Hierarchy, tried: Tried) -> Iterator[Hierarchy]:
    """*on* with each combination of *tried*."""
    for values in product(*tried.values()):
        changed: dict[str, Any] = dict(zip(tried, values, strict=True))
        yield replace(on, **changed)


def _mean(values: Iterable[float]) -> float:
    """0 of none: where nothing was counted nothing is chosen."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def written_into(text: str, of: Hierarchy, source: str) -> str:
    """The text of a cache file with the fitted values of *of*, and *source* as where they are from."""
    lines = []
    for line in text.splitlines():
        key = line.split("=")[0].strip()
        for name in FITTED:
            value = getattr(of, name)
            line = f"{name} = {value:_}" if key == name and isinstance(value, int) else line
            line = f"{name} = {value:g}" if key == name and isinstance(value, float) else line
            line = f'"{name}" = "calibrated: {source}"' if key == f'"{name}"' else line
        lines.append(line)
    return "\n".join(lines) + "\n"
