"""How good estimates are, as a person reads it: errors of whole trials by kind, their order, and speed-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernels.units import percent_text
from workbench.cli_show import tell
from workbench.cli_table import Column, show_table
from workbench.naming import operator_title

Row = Mapping[str, Any]
LARGE = 9.0
"""An error from here on is told as estimated / measured."""


def show_accuracy(summary: Mapping[str, Any]) -> None:
    """Errors of whole trials; then how well estimates choose and how far intervals reach; then speed-ups."""
    kinds = summary["accuracy"]
    if not kinds:
        return
    print()
    tell("Errors of whole trials, and in brackets of problems that nothing was fitted to:")
    show_table([
        Column("trials", [_beside(kind, "count", "unseen", str) for kind in kinds], "number"),
        Column("median", [_beside(kind, "median", "unseen_median", error_text) for kind in kinds], "number"),
        Column("p90", [_beside(kind, "p90", "unseen_p90", error_text) for kind in kinds], "number"),
        Column("schedule", _names(kinds)),
    ])  # fmt: skip
    print()
    tell("Weighted by time, and to which side; roofline: the median error of a trivial estimate, to compare with:")
    show_table([
        Column("weighted", [error_text(kind["weighted"]) for kind in kinds], "number"),
        Column("bias", [error_text(kind["bias"], "+") for kind in kinds], "number"),
        Column("roofline", [error_text(kind["trivial_median"]) for kind in kinds], "number"),
        Column("schedule", _names(kinds)),
    ])  # fmt: skip
    print()
    tell("How well they choose: order, best within 5 %; and how many times lie in their interval:")
    show_table([
        Column("order", [_or_none(kind["rank_correlation"], lambda value: f"{value:.2f}") for kind in kinds], "number"),
        Column("best", [_or_none(kind["best_within_5_percent"], percent_text) for kind in kinds], "number"),
        Column("inside", [percent_text(kind["inside_interval"]) for kind in kinds], "number"),
        Column("half-width", [error_text(kind["half_width"]) for kind in kinds], "number"),
        Column("schedule", _names(kinds)),
    ])  # fmt: skip
    for pair in summary["speed_ups"]:
        tell(f"{pair['scheme']} over sequential on {pair['machine']}, {pair['pairs']} pairs: the ratio is estimated "
             f"{error_text(pair['median'], '+')} off in the middle, p90 {error_text(pair['p90'])}.")  # fmt: skip
    print()


def error_text(error: float, sign: str = "") -> str:
    """`12 %`; `43x` where the estimate is ten times as long as the time and more: a narrow terminal holds that."""
    return percent_text(error, sign) if error < LARGE else f"{error + 1:,.0f}x"


def _names(kinds: Sequence[Row]) -> list[str]:
    several = len({kind["machine"] for kind in kinds}) > 1
    words = ([kind["scheme"], operator_title(kind["operator"]), *([kind["machine"]] if several else [])]
             for kind in kinds)  # fmt: skip
    return [", ".join(each) for each in words]


def _beside(kind: Row, name: str, unseen: str, text: Callable[[Any], str]) -> str:
    return text(kind[name]) + (f" ({text(kind[unseen])})" if kind["unseen"] else "")


def _or_none(value: float | None, text: Callable[[float], str]) -> str | None:
    return None if value is None else text(value)
