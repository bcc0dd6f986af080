"""What one published number and ours come to: whether the direction and the size carry over, by one rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.published import UNITS, Published

NEAR = 1.5
"""Two effects are of similar size where neither is more than so many times the other."""
BASES = {"x": 1.0}
"""By unit, the value that means no effect; 0 of the others."""

WRITTEN = {**UNITS, "percent": "{:.0f} %", "x": "{:.2f}x", "holds": "in {:.0%}"}
"""How a value of ours is written: it has more digits than anybody needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What this workbench says of one published number, in its unit."""

    value: float | None
    """None: nobody measured or computed it."""
    low: float | None = None
    high: float | None = None
    """The band over `cases`, or over what is stated in `why`."""
    source: str | None = None
    """`measured`, `recorded` or `estimated`; None without a value."""
    machine: str = ""
    over: str = ""
    """What it is compared with here."""
    command: str = ""
    """What a person pastes to see it or to find it anew."""
    why: str = ""
    """Where it may differ from the paper, and what it rests on."""
    cases: Sequence[Mapping[str, Any]] = ()
    """The rows that it was formed of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One row of `workbench claims`."""

    published: Published
    ours: Ours

    @property
    def ratio(self) -> float | None:
        """Our effect over the published one; None where there is none of ours, or nothing to divide by."""
        base = BASES.get(self.published.unit, 0.0)
        effect = self.published.value - base
        return None if self.ours.value is None or not effect else (self.ours.value - base) / effect

    @property
    def direction(self) -> bool | None:
        """Whether ours has the sign of the published effect."""
        return None if self.ratio is None else self.ratio > 0

    @property
    def size(self) -> str | None:
        """`similar`, `smaller` or `larger`, by NEAR, or whether it always holds; None where the direction does not."""
        if self.ratio is None or self.ratio <= 0:
            return None
        if self.published.unit == "holds":
            return "similar" if self.ratio >= 1 else "smaller"
        return "similar" if 1 / NEAR <= self.ratio <= NEAR else "larger" if self.ratio > NEAR else "smaller"

    def in_unit(self, value: float) -> str:
        """*value* as it is written beside the published one: `28 %`, `1.52x`."""
        return WRITTEN[self.published.unit].format(value)

    def row(self) -> dict[str, Any]:
        """As `workbench claims --json` prints it."""
        reported, ours = self.published, asdict(self.ours)
        return {
            "id": reported.id, "scope": reported.scope, "operator": reported.operator or None,
            "scheme": reported.scheme or None, "metric": reported.metric, "aggregate": reported.aggregate,
            "unit": reported.unit, "published": reported.value, "paper": reported.paper, "version": reported.version,
            "section": reported.section, "verified": reported.verified, "published_machine": reported.machine,
            "published_baseline": reported.baseline, "ours": ours["value"], "ours_low": ours["low"],
            "ours_high": ours["high"], "source": ours["source"], "machine": ours["machine"] or None,
            "over": ours["over"] or None, "command": ours["command"] or None, "direction": self.direction,
            **{f"{name}_reduction": reported.as_reduction(value) for name, value in (
                ("published", reported.value), ("ours", ours["value"]), ("low", ours["low"]), ("high", ours["high"]))},
            "size": self.size, "ratio": self.ratio, "why": ours["why"], "cases": [dict(case) for case in ours["cases"]],
        }  # fmt: skip
