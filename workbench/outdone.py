"""Which blocks hold no baseline as good as another block tells one to be: over that one their ratios would be smaller.

A ratio is over the best that anybody could have picked. A block of a drawn space holds whatever was drawn, perhaps NCCL
alone, where another block tells that our own stores beat NCCL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kernels.schemes import BASELINE
from workbench.metrics import apart

Row = Mapping[str, Any]
T = TypeVar("T")
Beats = Callable[[T, T, float], bool]
"""Whether the first, scaled, is faster than the second."""


def better(
    here: Mapping[str, T], others: Sequence[Mapping[str, T]], seconds: Callable[[T], float], beats: Beats[T]
) -> T | None:
    """The fastest of the baselines that a block does not hold, and that beat the best *here*; None where none does.

    All are by schedule. One beats the best if every one of the *others* says so that holds it beside one of this
    block's, in shares of that one.
    """
    known: list[T] = []
    for schedule in dict.fromkeys(one for there in others for one in there if one not in here):
        telling = [there for there in others if schedule in there and here.keys() & there]
        if telling and all(_beats_best(there[schedule], (here, there), seconds, beats) for there in telling):
            known.append(telling[-1][schedule])
    return min(known, key=seconds, default=None)


def _beats_best(
    one: T, blocks: tuple[Mapping[str, T], Mapping[str, T]], seconds: Callable[[T], float], beats: Beats[T]
) -> bool:
    here, there = blocks
    common = min(here.keys() & there, key=lambda schedule: seconds(here[schedule]))
    return beats(one, min(here.values(), key=seconds), seconds(here[common]) / seconds(there[common]))


def beats(one: Row, other: Row, scale: float = 1.0) -> bool:
    """Whether *scale* times *one* is faster than *other*, and not by their spread alone."""
    scaled = {key: one.get(key) and scale * one[key] for key in ("time_s", "low_s", "high_s")}
    return bool(scaled["time_s"] < other["time_s"]) and apart(scaled, other)


def outdone(rows: Iterable[Row]) -> dict[Any, Row]:
    """By block of the whole *rows* of one problem: the faster baseline that it does not hold."""
    plain: dict[Any, dict[str, Row]] = {}
    for row in rows:
        if row.get("scheme") == BASELINE and row.get("time_s") is not None:
            plain.setdefault(row.get("block"), {})[str(sorted((row.get("axes") or {}).items()))] = row
    everywhere = list(plain.values())
    lacks = {block: better(here, everywhere, _seconds, beats) for block, here in plain.items()}
    return {block: row for block, row in lacks.items() if row is not None}


def _seconds(row: Row) -> float:
    return float(row["time_s"])
