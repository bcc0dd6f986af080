"""Estimates that are off: how many fresh measurements lie outside their estimate's interval, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from kernels.protocol import is_one_call
from kernels.units import ratio_text
from workbench.naming import operator_title
from workbench.resources import LAPTOP

FEWEST = 5
"""So many outside of their intervals are no chance."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """What was measured of one operator on one machine, beside the estimates that were made before."""

    machine: str
    backend: str
    operator: str
    outside: int
    count: int
    """Fresh measurements that have an estimate."""
    ratio: float
    """Measured over estimated time: the median of those outside."""

    def __str__(self) -> str:
        return (
            f"The estimates of {operator_title(self.operator)} on {self.machine} are off: {self.outside} of "
            f"{self.count} measured times lie outside their estimate's interval, and took {ratio_text(self.ratio)} the "
            "estimate (median)."
        )

    @property
    def advice(self) -> str:
        """What makes them right, as a command."""
        if self.machine == LAPTOP:
            return "`workbench calibrate` fits the machine."
        if self.backend == "cpu":
            return "`workbench calibrate --cluster ADDRESS` fits the machine where its ranks are."
        return f"`workbench calibrate --machine {self.machine}` fits the machine."

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def off(rows: Iterable[Row]) -> list[Off]:
    """Where FEWEST or more of the fresh measurements among *rows* lie outside; the estimates are those of *rows*.

    What was known from before is not fresh. Of a trial that was timed in several blocks the newest time counts.
    Estimates are of calls in a row, and say nothing of one call per graph.
    """
    estimates: dict[str, Row] = {}
    measured: dict[str, Row] = {}
    for row in rows:
        if row.get("time_s") is None or row.get("key") is None:
            continue
        if row["source"] == "estimated":
            estimates.setdefault(row["key"], row)
        elif row["source"] == "measured" and not is_one_call(row.get("protocol"), row.get("backend")):
            measured[row["key"]] = row
    return off_pairs((measured[key], estimates[key]) for key in measured if key in estimates)


def off_pairs(pairs: Iterable[tuple[Row, Row]]) -> list[Off]:
    """The same of *pairs* of a measured row and the row of its estimate."""
    ratios: dict[tuple[str, str, str], list[tuple[bool, float]]] = {}
    for timed, guess in pairs:
        outside = not guess["low_s"] <= timed["time_s"] <= guess["high_s"]
        group = timed["machine"], timed["backend"], timed["operator"]
        ratios.setdefault(group, []).append((outside, timed["time_s"] / guess["time_s"]))
    off = []
    for (machine, backend, operator), each in ratios.items():
        beyond = [ratio for outside, ratio in each if outside]
        if len(beyond) >= FEWEST:
            off.append(Off(machine=machine, backend=backend, operator=operator, outside=len(beyond), count=len(each),
                             ratio=median(beyond)))  # fmt: skip
    return off
