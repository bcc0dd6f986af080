"""How good estimates are, as a person reads it: errors of whole trials by kind, their order, and speed-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernels.units import num_text, percent_text
from workbench.bounds import ERRORS, NAMES
from workbench.cli_show import tell
from workbench.cli_table import Column, show_table
from workbench.naming import operator_title

Row = Mapping[str, Any]
LARGE = 9.0
"""An error from here on is told as estimated / measured."""


def show_accuracy(summary: Mapping[str, Any]) -> None:
    """Errors of whole trials in all; by kind; how well estimates choose and how far intervals reach; speed-ups."""
    every, held = summary["whole"], summary["held_out"]
    if not every["count"]:
        return
    print()
    _show_all(every, held)
    print()
    _show_by_kind(every["accuracy"], held["accuracy"])
    for words, pairs in (("", every["speed_ups"]), ("Held out: ", held["speed_ups"])):
        for pair in pairs:
            count = num_text(pair["pairs"], "pair")
            tell(f"{words}{pair['scheme']} over sequential on {pair['machine']}, {count}: the "
                 f"ratio is estimated {error_text(pair['median'], '+')} off in the middle, "
                 f"p90 {error_text(pair['p90'])}.")  # fmt: skip
    for space in summary["spaces"]:
        tell(_space_text(space))
    print()


def _show_all(every: Row, held: Row) -> None:
    """Estimates and the trivial ones, of all trials and of those that are held out."""
    tables = [(words, of["count"], of["all"], prefix)
              for name, of in (("all trials", every), ("held out", held)) if of["count"]
              for words, prefix in ((name, ""), (f"{name}, roofline alone", "trivial_"))]  # fmt: skip
    tell(f"Errors of whole trials of {num_text(every['problems'], 'problem')}. {_held_out(held['problems'])} Beside "
         "them a roofline and one wire, the trivial estimate:")  # fmt: skip
    show_table([
        Column("whole\ntrials", [count for _, count, _, _ in tables], "number"),
        *(Column(name, [error_text(errors[prefix + name]) for _, _, errors, prefix in tables], "number")
          for name in ERRORS),
        Column("inside", [None if prefix else percent_text(errors["inside_interval"])
                          for _, _, errors, prefix in tables], "number", goes_below=20),
        Column("of", [words for words, *_ in tables]),
    ])  # fmt: skip


def _held_out(count: int) -> str:
    """Of how many problems the estimates were never told."""
    if count == 0:
        return "None is held out."
    return f"To {count:,} of them nothing was fitted: {'it is' if count == 1 else 'they are'} held out."


def _show_by_kind(kinds: Sequence[Row], held: Sequence[Row]) -> None:
    beside = {_kind(kind): kind for kind in held}
    pairs = [(kind, beside.get(_kind(kind))) for kind in kinds]
    tell("By kind, and in brackets what is held out:")
    show_table([
        Column("whole\ntrials", [_beside(pair, "count", str) for pair in pairs], "number"),
        Column("median", [_beside(pair, "median", error_text) for pair in pairs], "number"),
        Column("p90", [_beside(pair, "p90", error_text) for pair in pairs], "number"),
        Column("schedule", _names(kinds)),
    ])  # fmt: skip
    print()
    tell("Weighted by time, and to which side; roofline: the median error of a trivial estimate, to compare with:")
    show_table([
        Column("weighted", [_beside(pair, "weighted", error_text) for pair in pairs], "number"),
        Column("bias", [error_text(kind["bias"], "+") for kind in kinds], "number"),
        Column("roofline", [_beside(pair, "trivial_median", error_text) for pair in pairs], "number"),
        Column("schedule", _names(kinds)),
    ])  # fmt: skip
    print()
    tell("How well they choose: order, best within 5 %; and how many times lie in their interval:")
    show_table([
        Column("order", [_or_none(kind["rank_correlation"], lambda value: f"{value:.2f}") for kind in kinds], "number"),
        Column("best", [_or_none(kind["best_within_5_percent"], percent_text) for kind in kinds], "number"),
        Column("inside", [_beside(pair, "inside_interval", percent_text) for pair in pairs], "number"),
        Column("half-width", [error_text(kind["half_width"]) for kind in kinds], "number"),
        Column("schedule", _names(kinds)),
    ])  # fmt: skip


def _space_text(space: Row) -> str:
    """One design space: whether measuring the few that are estimated to be fast would have been enough."""
    shape = "x".join(map(str, space["shape"].values()))
    how = "the best itself" if space["over_best"] == 1 else f"{percent_text(space['over_best'] - 1)} behind the best"
    return (f"Of {space['schedules']} schedules of {operator_title(space['operator'])} {shape} on {space['machine']}, "
            f"the {space['top']} that are estimated to be the fastest: their fastest is {how}. "
            f"Errors: median {error_text(space['median'])}, p90 {error_text(space['p90'])}.")  # fmt: skip


def error_text(error: float, sign: str = "") -> str:
    """`12 %`; `43x` where the estimate is ten times as long as the time and more: a narrow terminal holds that."""
    return percent_text(error, sign) if error < LARGE else f"{error + 1:,.0f}x"


def _names(kinds: Sequence[Row]) -> list[str]:
    several = len({kind["machine"] for kind in kinds}) > 1
    words = ([kind["scheme"], operator_title(kind["operator"]), *([kind["machine"]] if several else [])]
             for kind in kinds)  # fmt: skip
    return [", ".join(each) for each in words]


def _kind(kind: Row) -> tuple[str, ...]:
    return tuple(str(kind[name]) for name in NAMES)


def _beside(pair: tuple[Row, Row | None], name: str, text: Callable[[Any], str]) -> str:
    """A number of all trials of a kind, and in brackets of those that are held out."""
    every, held = pair
    return text(every[name]) + (f" ({text(held[name])})" if held is not None else "")


def _or_none(value: float | None, text: Callable[[float], str]) -> str | None:
    return None if value is None else text(value)
