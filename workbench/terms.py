"""Where an estimate is wrong: its error as a sum over terms, each measured alone beside what it was estimated at.

*rows* are those of `workbench.validation`: measured trials of one problem, whole ones and parts, with their estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

from kernels.schemes import BASELINE

Row = Mapping[str, Any]

PARTS = {"compute": "computation alone", "communication": "communication alone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a time."""

    name: str
    measured_s: float
    estimated_s: float
    adds: bool
    """Whether the errors of these terms add up to that of the whole trial."""

    @property
    def error_s(self) -> float:
        """Seconds that the estimate says too much."""
        return self.estimated_s - self.measured_s


def terms(rows: Iterable[Row], whole: Row) -> list[Term]:
    """What the time of *whole*, one of *rows*, consists of: its parts alone, what they must take, the rest, and itself.

    Parts are those of its block: with the same schedule, or the fastest. Of the baseline they follow each other, so
    both must be taken; of the others the longer one. The rest is what its overlap does not hide, or what it costs.

    ValueError: where a part was not measured beside it.
    """
    beside = [row for row in rows if row["block"] == whole["block"]]
    parts = [_term(name, _part(beside, whole, part), adds=False) for part, name in PARTS.items()]
    together, name = (sum, "both parts") if whole["scheme"] == BASELINE else (max, "the longer part")
    least = Term(name=name, measured_s=together(part.measured_s for part in parts),
                 estimated_s=together(part.estimated_s for part in parts), adds=True)  # fmt: skip
    itself = _term("the whole trial", whole, adds=False)
    rest = Term(name="the rest", measured_s=_difference(itself.measured_s, least.measured_s),
                estimated_s=_difference(itself.estimated_s, least.estimated_s), adds=True)  # fmt: skip
    return [*parts, least, rest, itself]


def _difference(one_s: float, other_s: float) -> float:
    """Seconds; none where only rounding tells the two apart."""
    return 0.0 if isclose(one_s, other_s) else one_s - other_s


def _term(name: str, row: Row, *, adds: bool) -> Term:
    return Term(name=name, measured_s=row["measured_s"], estimated_s=row["estimated_s"], adds=adds)


def _part(beside: Sequence[Row], whole: Row, part: str) -> Row:
    """The part of *whole*'s own schedule; where that was not timed the fastest, of its scheme before others."""
    alone = [row for row in beside if row["part"] == part]
    if not alone:
        raise ValueError(f"{PARTS[part]} was not measured in block {whole['block']}, which has {len(beside)} trials. "
                         "Accepted: a trial whose parts were timed beside it.")  # fmt: skip
    return min(alone, key=lambda row: (row["axes"] != whole["axes"], row["scheme"] != whole["scheme"],
                                       row["measured_s"]))  # fmt: skip
