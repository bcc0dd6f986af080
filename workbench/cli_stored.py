"""What was measured earlier, as a person reads it: runs, two of them side by side, estimates beside measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kernels.units import num_text, percent_text, ratio_text, seconds_text
from workbench.cli_accuracy import show_accuracy
from workbench.cli_outcomes import (
    clock_heading,
    few,
    heading,
    signed,
    tell_each,
    tell_more,
    tell_shared,
)
from workbench.cli_show import say, tell
from workbench.cli_table import Column, show_table
from workbench.cli_words import WHAT, WHERE, Axes, facts, problem_in_short, same, shape_in_short, told
from workbench.naming import SIGNS, operator_title
from workbench.validation import by_kind

Row = Mapping[str, Any]

STATES = ("running", "finished", "cancelled", "lost")
BROKEN_OFF = "failed"
"""A run whose status is the sentence that stopped it."""


def show_runs(rows: Sequence[Row]) -> None:
    """One line for each run; what a sentence has stopped, it says below."""
    if not rows:
        say("0 runs are stored: `workbench run` makes one.")
        return
    used = [name for name in SIGNS if name in {row["source"] for row in rows}]
    states = [row["status"] if row["status"] in STATES else BROKEN_OFF for row in rows]
    alike = f"; all {states[0]}" if len(set(states)) == 1 else ""
    signs = f"; best times are {', '.join(map(heading, used))}" if used else ""
    tell(f"The newest first{alike}{signs}")
    started = [datetime.fromtimestamp(row["started_at"]).isoformat(" ", "minutes") for row in rows]
    show_table([
        Column("run (date-time)", [row["run"] for row in rows], "name"),
        Column("started", started, "name", goes_below=24),
        Column("status", [None if alike else state for state in states], "name"),
        Column("best", [row["source"] and signed(row["source"], row["best_s"]) for row in rows], "number"),
        Column("tried", [row["schedules"] for row in rows], "number", goes_below=16),
        Column("scheme", [row["scheme"] for row in rows], "name"),
        Column("problem", [_problems(row) for row in rows], "cut"),
    ])  # fmt: skip
    for row, state in zip(rows, states, strict=True):
        if state == BROKEN_OFF:
            tell(f"{row['run']}: {row['status']}")


def _problems(row: Row) -> str | None:
    problems = row["problems"]
    if len(problems) == 1:
        return f"{problem_in_short(row)}, {row['dtype']}, {row['world']} {'rank' if row['world'] == 1 else 'ranks'}"
    operators = dict.fromkeys(operator_title(problem["operator"]) for problem in problems)
    return f"{len(problems)} problems of {', '.join(operators)}" if problems else None


def show_comparison(rows: Sequence[Row], differences: Mapping[str, Any], runs: Sequence[str], *,
                    every: bool) -> None:  # fmt: skip
    """Both runs' times of each problem, in the order of the first run's, and what else differs."""
    tell(f"first: run {runs[0]}; second: run {runs[1]}")
    parts = _by_problem(rows)
    for part, axes in zip(parts, tell_each(parts), strict=True):
        shown = sorted(part, key=lambda row: row["first_s"])[: None if every else few(len(parts))]
        show_table([
            *(_clock(which, shown) for which in ("first", "second")),
            Column("second /\nfirst", [ratio_text(row["ratio"]) for row in shown], "number"),
            Column("the\nsecond is", [row["second_is"] for row in shown], "name"),
            *(Column(f"speed-up\nin the {which}", [_speed_up(row, which) for row in shown], "number", goes_below=40)
              for which in ("first", "second")),
            Column("schedule", [axes.label(row) for row in shown], "cut"),
        ])  # fmt: skip
        tell_more(len(part) - len(shown))
    counts = [f"{sum(row['second_is'] == verdict for row in rows)} {verdict}"
              for verdict in ("faster", "slower", "alike")]  # fmt: skip
    say(f"Of {len(rows)} {'schedule' if len(rows) == 1 else 'schedules'} in the second run: {', '.join(counts)}.")
    if shared := sum(row["same_block"] for row in rows):
        say(f"{shared} of them {'is' if shared == 1 else 'are'} one measurement that both runs show.")
    for name, (one, other) in differences.items():
        say(_difference(name, one, other))


def _speed_up(row: Row, which: str) -> str | None:
    """Over the best sequential schedule of its own block, where that was timed."""
    ratio = row[f"{which}_speed_up"]
    return None if ratio is None else ratio_text(ratio)


def _clock(which: str, rows: Sequence[Row]) -> Column:
    """One run's times."""
    sources = [row[f"{which}_source"] for row in rows]
    title, is_mixed = clock_heading({"source": source} for source in sources)
    times = [signed(source, row[f"{which}_s"], is_mixed) for source, row in zip(sources, rows, strict=True)]
    return Column(f"{which}\n{title}", times, "number")


def _difference(name: str, one: Any, other: Any) -> str:
    """Of values with names those that differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
        return f"{name} differ: " + ", ".join(f"{key} {one.get(key)} and {other.get(key)}" for key in keys)
    return f"{name} differs: {one} and {other}"


def show_validation(rows: Sequence[Row], summary: Mapping[str, Any], source: str, *, every: bool) -> None:
    """The estimates that are furthest off, then how far they are by kind, then in all."""
    for reason in summary["without_estimate"]:
        some = "1 trial has" if reason["count"] == 1 else f"{reason['count']:,} trials have"
        say(f"{some} no estimate: {reason['message']}")
    if not rows:
        if not summary["without_estimate"]:
            say("0 measurements are stored: `workbench run` makes some.")
        return
    common = same([facts(row) for row in rows])
    axes = Axes.of(rows)
    tell_shared({name: words for name, words in common.items() if name != "protocol"}, axes)
    if others := sorted({row["estimated_for"] for row in rows if row["estimated_for"] != row["machine"]}):
        tell(f"estimates: for {', '.join(others)}; no bounds hold there")
    print()
    worst = sorted(rows, key=lambda row: -abs(row["error"]))
    firsts: dict[str, Row] = {}
    for row in worst:
        firsts.setdefault(row["key"], row)
    shown = worst if every else list(firsts.values())[: few(1)]
    tell("Furthest off:" if every else "Furthest off, each schedule once:")
    show_table([
        Column("error", [percent_text(row["error"], "+") for row in shown], "number"),
        Column(heading(source), [seconds_text(row["measured_s"]) for row in shown], "number"),
        Column(heading("estimated"), [seconds_text(row["estimated_s"]) for row in shown], "number"),
        Column("schedule", [_in_short(row, axes, common) for row in shown], "cut"),
    ])  # fmt: skip
    tell_more(len(rows) - len(shown))
    print()
    tell("By kind:")
    _show_kinds(by_kind(rows))
    show_accuracy(summary)
    parts = sum(row["part"] != "whole" for row in rows)
    beside = f", {parts:,} of them a part timed alone" if parts else ""
    say(f"{num_text(summary['count'], 'trial')}{beside}: "
        f"median error {percent_text(summary['median_absolute_error'])}, "
        f"{percent_text(summary['within_15_percent'])} within 15 %; "
        f"{'calibrated' if summary['calibrated'] else 'not calibrated: `workbench calibrate`'}.")  # fmt: skip


def _in_short(row: Row, axes: Axes, common: Mapping[str, str]) -> str:
    """Its scheme; what was timed of it, and its problem, where there are several; its axes."""
    scheme, _, axes_text = axes.label(row).partition(" ")
    part = "" if row["part"] == "whole" else row["part"]
    shape = "" if "shape" in common else shape_in_short(row["shape"])
    operator = "" if "operator" in common else operator_title(row["operator"])
    return " ".join(filter(None, (scheme, part, shape, operator, axes_text)))


def _show_kinds(kinds: Sequence[Row]) -> None:
    """Ratios by scheme; by operator, too, where there are several."""
    operators = {kind["operator"] for kind in kinds}
    names = [(f"{kind['scheme']} {kind['collective']}".rstrip(), "" if kind["part"] == "whole" else kind["part"],
              operator_title(kind["operator"]) if len(operators) > 1 else "") for kind in kinds]  # fmt: skip
    show_table([
        Column("estimated /\nmeasured", [ratio_text(kind["ratio"]) for kind in kinds], "number"),
        Column("from", [ratio_text(kind["lowest"]) for kind in kinds], "number"),
        Column("to", [ratio_text(kind["highest"]) for kind in kinds], "number"),
        Column("trials", [kind["count"] for kind in kinds], "number"),
        Column("schedule", [", ".join(filter(None, name)) for name in names]),
    ])  # fmt: skip


def _by_problem(rows: Iterable[Row]) -> list[list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(told(facts(row), (*WHAT, *WHERE)), []).append(row)
    return list(parts.values())
