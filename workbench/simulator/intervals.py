"""How far an estimate may be off: bounds of recorded residuals by class of trial, wider with distance and other cards.

`workbench/analysis/residuals.py` makes the table from recordings of trials that no price was fitted to. What is
promised: of trials like the recorded ones PROMISED lie inside. What is not: that the fastest estimate of many does,
which is more often too short, or a kind of schedule that nobody recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log2
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import files
from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.trial import Trial
from workbench.resources import data_directory

KIND = files.TextKind("table of residuals", "residuals of estimates",
                      "a file that `python -m workbench.analysis.residuals` writes")  # fmt: skip
PROMISED = 0.8
"""The share of trials that is promised to lie inside."""
LEAST = 100
"""The fewest residuals of a class with bounds of its own."""
UNIT = 3.0
"""The distance up to which an interval is as narrow as its class; beyond it widens in proportion.

Of 1, 1.5, 2, 2.5, 3 and 4 it has the least interval score over all residuals of two H200s.
"""


# The distance of a trial from those that were recorded.

Features = Mapping[str, float | str]
Cells = NDArray[np.float64]


def features(problem: Problem, schedule: Schedule) -> dict[str, float | str]:
    """What a distance compares: counts as their log2, all else as text. A tile is a count for each of its sides."""
    entries = dict[str, float | str](operator=problem.operator, dtype=problem.dtype, world=log2(problem.world))
    for name, value in (*problem.shape, *schedule.axes):
        if name == "tile":
            sides = str(value).split("x")
            entries |= {f"{name} {number}": log2(int(side)) for number, side in enumerate(sides) if side.isdigit()}
        elif isinstance(value, int) and not isinstance(value, bool):
            entries[name] = log2(max(value, 0.5))
        else:
            entries[name] = str(value)
    return entries


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded trials of one kind, as columns."""

    names: tuple[str, ...]
    numbers: Cells
    """By trial and name, the log2 of a count; NaN where there is none."""
    words: NDArray[np.int64]
    """By trial and name, the number of a text; -1 where there is none."""
    texts: Mapping[str, int]

    @classmethod
    def of(cls, names: Sequence[str], points: Sequence[Sequence[float | str | None]]) -> Recorded:
        """*points*: by trial the cell of each of *names*; None where it has none."""
        distinct = dict.fromkeys(cell for point in points for cell in point if isinstance(cell, str))
        texts = {text: number for number, text in enumerate(distinct)}
        numbers = [[cell if isinstance(cell, (int, float)) else np.nan for cell in point] for point in points]
        words = [[texts[cell] if isinstance(cell, str) else -1 for cell in point] for point in points]
        return cls(tuple(names), np.array(numbers, float), np.array(words, np.int64), texts)

    def distances(self, point: Features) -> Cells:
        """How far *point* is from each trial: |log2| of the ratios of counts, and 1 for each other thing that differs.

        What only one of the two has differs.
        """
        cells = [point.get(name) for name in self.names]
        number = np.array([cell if isinstance(cell, (int, float)) else np.nan for cell in cells], float)
        word = np.array([self.texts.get(cell, -2) if isinstance(cell, str) else -1 for cell in cells], np.int64)
        apart = np.abs(self.numbers - number)
        differs = (self.words != word) | (np.isnan(self.numbers) != np.isnan(number))
        unknown = len(point.keys() - set(self.names))
        return np.asarray(np.where(np.isnan(apart), differs, apart).sum(axis=1) + unknown)


def widening(distance: Any) -> Any:
    """By how much residuals are larger at *distance*, a number or a column, than at recorded trials; at least 1."""
    return np.maximum(1.0, np.asarray(distance) / UNIT)


# Classes of trials, and the bounds of their residuals.


def class_names(part: str, problem: Problem, scheme: str) -> tuple[str, str, str, str]:
    """Classes of a trial: its part with operator and scheme, computation and scheme, computation, and nothing."""
    work = operator(problem.operator).work
    return f"{part} {problem.operator} {scheme}", f"{part} {work} {scheme}", f"{part} {work}", part


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which residuals, log(measured / estimated), PROMISED of a class lie at distances up to UNIT."""

    low: float
    high: float
    trials: int
    """How many unseen trials they rest on."""
    pooled: bool
    """Whether the class had too few of its own, so that they are those of all of its part."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """The table of one machine."""

    calibrated: str
    """When and where the machine was fitted whose estimates these are of."""
    bounds: Mapping[str, Bounds]
    recorded: Mapping[str, Recorded]
    cards: Mapping[str, float]
    """By computation, log of the slowest over the fastest card of one host."""
    fabric: str
    """Kind of the recorded fabric: communication over another one has no residuals."""

    def interval(self, trial: Trial, machine: Machine) -> tuple[float, float] | None:
        """Factors of the estimate of *trial*; None where nothing of its kind was recorded."""
        if trial.part != "compute" and trial.fabric.kind != self.fabric:
            return None
        names = class_names(trial.part, trial.problem, trial.schedule.scheme)
        bounds = next((self.bounds[name] for name in names if name in self.bounds), None)
        distance = self.distance(trial)
        if bounds is None or distance is None:
            return None
        cards = 0.0 if self.is_calibrated_here(machine) or trial.part == "communication" else self.cards[_work(trial)]
        wider = float(widening(distance))
        return exp(wider * bounds.low - cards), exp(wider * bounds.high + cards)

    def distance(self, trial: Trial) -> float | None:
        """From *trial* to the nearest recorded one of its part and computation; None without any.

        Those of its scheme count, where there are any. To another scheme it is 1 more.
        """
        _, kind, work, _ = class_names(trial.part, trial.problem, trial.schedule.scheme)
        point = features(trial.problem, trial.schedule)
        if kind in self.recorded:
            return float(self.recorded[kind].distances(point).min())
        others = [each for name, each in self.recorded.items() if name.startswith(f"{work} ")]
        return min((float(each.distances(point).min()) + 1 for each in others), default=None)

    def is_calibrated_here(self, machine: Machine) -> bool:
        """Whether *machine* was fitted elsewhere than the recorded one: its costs are of the cards at hand."""
        return machine.calibrated not in (None, self.calibrated)


def _work(trial: Trial) -> str:
    return operator(trial.problem.operator).work


def path() -> Path:
    """The committed table."""
    return data_directory() / "checks" / "residuals.json"


@cache
def tables() -> Mapping[str, Residuals]:
    """Residuals by the name of a machine."""
    if not path().exists():  # it is being made
        return {}
    content = files.json_value(path(), KIND)
    return {name: _of(entry) for name, entry in content["machines"].items()}


def _of(entry: Mapping[str, Any]) -> Residuals:
    bounds = {name: Bounds(**one) for name, one in entry["bounds"].items()}
    recorded = {name: Recorded.of(kind["names"], kind["points"]) for name, kind in entry["recorded"].items()}
    return Residuals(entry["calibrated"], bounds, recorded, entry["cards"], entry["fabric"])


def interval(trial: Trial, machine: Machine) -> tuple[float, float] | None:
    """Least and most measured over estimated times of trials like *trial*; None where nobody recorded any.

    A machine that was calibrated here has a check of its own, which the interval holds, too.
    """
    if machine.calibrated is None or (known := tables().get(machine.name)) is None:
        return None
    factors = known.interval(trial, machine)
    if factors is None or machine.spread is None or not known.is_calibrated_here(machine):
        return factors
    return min(factors[0], machine.spread[0]), max(factors[1], machine.spread[1])
