"""Output of `workbench recommend`: the fastest measured schedules and their origins, then those worth measuring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kernels.machine import Machine
from kernels.schemes import COMPARED
from kernels.trial import is_one_call
from kernels.units import seconds_text
from workbench.analysis.winners import WantedSchedules, Winner, WinnerAnswer, known, tuned
from workbench.cli.output import (
    Axes,
    TableColumn,
    clock_heading,
    facts,
    gain_text,
    heading,
    say,
    show_shared,
    show_table,
    show_text,
    signed,
)
from workbench.experiment.question import Request
from workbench.machines import trust
from workbench.results import metrics
from workbench.results.comparison import MEASURE_TOGETHER
from workbench.results.provenance import provenance
from workbench.results.store import Store

Row = Mapping[str, Any]

RATIOS = ("sequential_s", "plain_s", "time_ratio")
"""Keys about the baselines of a row's block, which are empty where a faster baseline is known."""


def winners_known(request: Request, path: Path) -> tuple[WinnerAnswer, list[dict[str, Any]]]:
    """The winners for *request* and their rows, from recordings and from the store at *path*, if there is one."""
    machine = request.machine_description()
    problem, fabric = request.problem(machine), request.link(machine)
    with Store(path) if path.exists() else nullcontext() as store:
        one_call = is_one_call(request.protocol, machine.backend)
        measured = known(problem.operator, store, one_call=one_call)
        answer = tuned(problem, machine, fabric, measured, provenance(machine),
                       WantedSchedules(dict(request.settings), request.schemes or COMPARED))  # fmt: skip
        rows = [_joined(each, machine) for each in answer.winners]
    return answer, rows


def _joined(winner: Winner, machine: Machine) -> dict[str, Any]:
    """The row of *winner*, joined with the baselines of its block; without ratios where it has no speedup."""
    known = winner.known
    outcomes = (known.measurement(), *known.references())
    row = metrics.fill([metrics.row_of(outcome, known.run, machine) for outcome in outcomes])[0]
    without = f"no speed-up: {winner.missing_baseline}" if winner.missing_baseline else ""
    message = "; ".join(filter(None, (winner.source, *winner.differs, without)))
    return {**row, **(dict.fromkeys(RATIOS) if winner.missing_baseline else {}), "message": message}


def show_recommended(answer: WinnerAnswer, measured: Sequence[Row], estimates: Sequence[Row], num_points: int) -> None:
    """Prints the problem, the measured winners, and the schedules worth measuring."""
    if not answer.winners:
        say(answer.message)
    if examples := [*estimates[:1], *measured[:1]]:
        here = {name: text for name, text in facts(examples[0]).items() if name != "protocol"}
        show_shared(here, Axes({}, {}))
    if answer.winners:
        print()
        show_text("Measured before on this hardware, the best of each scheme:")
        _show_winners(answer.winners, measured)
    print()
    if not estimates:
        show_text("No schedule is legal.")
        return
    show_text(f"The fastest by estimate, of {num_points:,} points examined:")
    _show_estimates(estimates)
    if not all(row["calibrated"] for row in estimates):
        name = estimates[0]["machine"]
        say(f"{name} is {trust(name)}: read the order, not the size.")


def _show_winners(winners: Sequence[Winner], measured: Sequence[Row]) -> None:
    """Prints the times of winners, and below them where each was measured and what differs from then."""
    todays = [{"scheme": each.schedule.scheme, "axes": dict(each.schedule.axes)} for each in winners]
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
