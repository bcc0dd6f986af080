"""One line of a benchmark: a number with its unit, its spread, how it was found, and the target it is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The bounds a value must keep; None is no bound."""

    least: float | None = None
    most: float | None = None

    def met(self, value: float) -> bool:
        """Whether *value* keeps both; one that is no number keeps none."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:g} to {self.most:g}"
        return f"<= {self.most:g}" if self.least is None else f">= {self.least:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one benchmark found."""

    name: str
    value: float | None
    """None: it could not be found, and `how` says why."""
    unit: str
    """`s`, `1/s`, or `ratio`."""
    how: str
    """What was done, in one sentence."""
    target: Target | None = None
    spread: tuple[float, float] | None = None
    """A tenth of what was seen lies below, a tenth above."""
    n: int = 0
    """Of how many samples the value is the median, or the rate."""

    @property
    def met(self) -> bool | None:
        """None where there is no target; what could not be found does not keep its target."""
        if self.target is None:
            return None
        return self.value is not None and self.target.met(self.value)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "value": self.value, "unit": self.unit, "target": self.target and str(self.target),
            "met": self.met, "spread": self.spread and list(self.spread), "n": self.n, "how": self.how,
        }  # fmt: skip


def typical(name: str, samples: Sequence[float], unit: str, how: str, target: Target | None = None) -> Row:
    """The median of *samples* with the spread around it."""
    return Row(name=name, value=median(samples), unit=unit, how=how, target=target, spread=spread(samples),
               n=len(samples))  # fmt: skip


def spread(samples: Sequence[float]) -> tuple[float, float]:
    """The values below and above which a tenth of *samples* lies; with fewer than ten, all of them."""
    return quantile(samples, 0.1), quantile(samples, 0.9)


def quantile(samples: Sequence[float], share: float) -> float:
    """The sample that *share* of all lie below."""
    ordered = sorted(samples)
    return ordered[round(share * (len(ordered) - 1))]
