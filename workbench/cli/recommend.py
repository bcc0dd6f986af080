"""Output of `workbench recommend`: the answer on half a screen; with --all, the measured winners and the estimates."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kernels.units import num_text, seconds_text
from workbench.cli.output import (
    Axes,
    TableColumn,
    clock_heading,
    command_lines,
    facts,
    gain_text,
    heading,
    show_shared,
    show_table,
    show_text,
    signed,
    width,
    wrapped,
)
from workbench.experiment.answer import Answer
from workbench.experiment.winners import Winner
from workbench.results.comparison import MEASURE_TOGETHER

Row = Mapping[str, Any]

LINES = 12
"""The most lines of an answer on a terminal of 80 columns."""


def show_answer(answer: Answer, *, every: bool = False) -> None:
    """Prints the answer, its reasons, what would change it and what would make it surer, on LINES lines at most.

    Reasons that do not fit are left for --all, the last first; the first one comes before what would change the answer.
    A sentence says how many. *every*: all lines, however many.
    """
    columns, count = width(sys.stdout), len(answer.reasons)
    shorter = [(count, True)] if every else [(count, True) for count in range(count, 0, -1)] + [(1, False), (0, False)]
    choices = (answer_lines(answer, columns, count, changes=changes) for count, changes in shorter)
    lines = next((some for some in choices if every or columns is None or len(some) <= LINES), None)
    print("\n".join(lines or answer_lines(answer, columns, 0, changes=False)))


def answer_lines(answer: Answer, columns: int | None, count: int, *, changes: bool = True) -> list[str]:
    """The lines of *answer* with its first *count* reasons, in *columns*; *changes*: and what would change it."""
    sure = answer.surer if answer.next_command else ""
    change = answer.crossover_text if changes else ""
    missing = len(answer.reasons) - count + bool(answer.crossover_text and not changes)
    more = f"{num_text(missing, 'more reason')}: --all." if missing else ""
    sentences = [answer.text, answer.axes_text, *answer.reasons[:count], *filter(None, [change, more, sure])]
    lines = [line for sentence in sentences for line in wrapped(sentence, columns).splitlines()]
    return [*lines, *(command_lines(answer.next_command, columns) if answer.next_command else [])]


def show_rest(answer: Answer, estimates: Sequence[Row], num_points: int) -> None:
    """Prints what --all adds to the answer: remarks, the measured winners and the estimates."""
    left_out = "" if answer.winners.winners else answer.winners.message
    for remark in filter(None, (*answer.remarks, left_out)):
        show_text(remark)
    timed = [row for row in answer.rows if row["source"] != "estimated"]
    print()
    if examples := [*estimates[:1], *timed[:1]]:
        here = {name: text for name, text in facts(examples[0]).items() if name != "protocol"}
        show_shared(here, Axes({}, {}))
    winners = [each for each in answer.winners.winners if each.known.trial.problem == answer.problem]
    if winners:
        print()
        show_text("Measured before on this hardware, the best of each scheme:")
        _show_winners(winners, timed)
    if estimates:
        print()
        show_text(f"The fastest by estimate, of {num_points:,} points examined:")
        _show_estimates(estimates)


def _show_winners(winners: Sequence[Winner], measured: Sequence[Row]) -> None:
    """Prints the times of winners, and below them where each was measured and what differs from then."""
    todays = [{**row, "scheme": each.schedule.scheme, "axes": dict(each.schedule.axes)}
              for row, each in zip(measured, winners, strict=True)]  # fmt: skip
    axes = Axes.of(todays)
    _show_lines(axes)
    title, is_mixed = clock_heading(measured)
    times = [signed(row["source"], row["time_s"], is_mixed) for row in measured]
    show_table([
        TableColumn(title, times, "number"),
        TableColumn("speed-up over\nsequential", [gain_text(row) for row in measured], "number"),
        TableColumn("schedule", list(map(axes.label, todays)), "cut"),
    ])  # fmt: skip
    for lack, schemes in _by_text([(str(each.missing_baseline or ""), each) for each in winners]).items():
        if lack:
            show_text(f"{schemes} {'have' if ',' in schemes else 'has'} no speed-up: {lack}.")
    if len({each.speed_up_over for each in winners if each.speed_up_over}) > 1:
        show_text(f"Speed-ups are over the best sequential schedule of the same block: {_over(winners)}.")
    if len({row["block"] for row in measured}) > 1:
        show_text(MEASURE_TOGETHER)
    for origin, schemes in _by_text([(_origin(each), each) for each in winners]).items():
        show_text(f"{schemes}: {origin}")


def _origin(winner: Winner) -> str:
    differs = f". Different from this request: {'; '.join(winner.differs)}." if winner.differs else ""
    return f"{winner.source}{differs}"


def _by_text(texts: Sequence[tuple[str, Winner]]) -> dict[str, str]:
    """The winners of each text, by scheme, and with their time where a scheme has two."""
    counts = Counter(winner.schedule.scheme for _, winner in texts)
    names: dict[str, list[str]] = {}
    for text, winner in texts:
        scheme, seconds = winner.schedule.scheme, seconds_text(winner.known.time_s)
        names.setdefault(text, []).append(scheme if counts[scheme] == 1 else f"{scheme} in {seconds}")
    return {text: ", ".join(several) for text, several in names.items()}


def _over(winners: Sequence[Winner]) -> str:
    """The baseline of each of *winners*: `fused over collective direct, 264 µs`."""
    return "; ".join(f"{each.schedule.scheme} over {each.speed_up_over}" for each in winners if each.speed_up_over)


def _show_estimates(rows: Sequence[Row]) -> None:
    """Prints estimates, of which no two are equal, and below them the axis values that do not change them."""
    axes = Axes.of(rows)
    _show_lines(axes)
    times = [TableColumn(title, [seconds_text(row[key]) for row in rows], "number", goes_below=goes_below)
             for title, key, goes_below in ((heading("estimated"), "time_s", 0), ("at least", "low_s", 34),
                                      ("at most", "high_s", 35))]  # fmt: skip
    show_table([*times, TableColumn("schedule", list(map(axes.label, rows)), "cut")])
    for values, numbers in _alike(rows).items():
        which = "all of them" if len(numbers) == len(rows) > 1 else f"number {', '.join(map(str, numbers))}"
        show_text(f"The same estimate ({which}) with {values}.")


def _alike(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Axis values that do not change estimates, with the numbers of those estimates, from 1."""
    places: dict[str, list[int]] = {}
    for number, row in enumerate(rows, 1):
        for name, values in row["alike"].items():
            places.setdefault(f"{name}={' or '.join(map(str, values))}", []).append(number)
    return places


def _show_lines(axes: Axes) -> None:
    for line in axes.lines():
        show_text(line)
