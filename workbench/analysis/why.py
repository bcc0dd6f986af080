"""Why is one schedule faster than another, and what keeps it from its floor? The parts of both, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import operator
from kernels.schedule import Value
from kernels.schemes import BASELINE
from kernels.trial import Trial, protocol
from kernels.units import percent_text, seconds_text
from workbench.naming import TIMED, baseline_title, schedule_title
from workbench.results import comparison, metrics, verdict
from workbench.results.deltas import APART, Pinned
from workbench.results.rows import Row, current_problem_and_schedule, problem_of
from workbench.simulator.predict import compute_alone_seconds, predict, resolved

# The parts of a schedule's time.


@dataclass(frozen=True, slots=True)
class Explained:
    """A schedule's time and its parts, in seconds, from the floor on."""

    row: Row
    parts: Mapping[str, float | None]
    """By the names of metrics.waterfall; None where a part is not known."""
    time_s: float
    """The time that the parts sum to: that of the row, or of the simulator where *source* differs from the row's."""
    source: str
    """Where the parts come from: the row's source, or `estimated`."""

    @property
    def unknown(self) -> list[str]:
        return metrics.unknown_losses(self.parts)


def timed_parts(row: Row, spans: Sequence[Any], pieces_alone_s: float | None) -> Explained:
    """The parts of *row*, which is joined; *spans* and *pieces_alone_s* as for metrics.waterfall."""
    parts = metrics.waterfall(row, spans, pieces_alone_s) or {"floor": row.get("floor_s")}
    return Explained(row, parts, row["time_s"], row["source"])


def simulated_parts(rows: Sequence[Row], machine: Machine) -> list[Explained]:
    """The simulator's parts of *rows*, which are of one problem, with one floor; Refusal where it has no estimate.

    The floor is the fastest computation alone, of these schedules or of the baseline, or the wire, if that is longer.
    """
    trials = [_trial(row, machine) for row in rows]
    whole_s = compute_alone_seconds(trials[0].problem, machine, trials[0].fabric)
    pieces = [predict(replace(trial, part="compute"), machine, with_spans=False).time_s for trial in trials]
    link = metrics.link_bytes_per_second(trials[0], machine)
    wire_s = operator(trials[0].problem.operator).wire_bytes(trials[0].problem) / link if link else 0.0
    floor_s = max(min(whole_s, *pieces), wire_s)
    explained = []
    for row, trial, pieces_s in zip(rows, trials, pieces, strict=True):
        estimate = predict(trial, machine)
        known = {**row, "floor_s": floor_s, "compute_s": whole_s, "time_s": estimate.time_s}
        parts = metrics.waterfall(known, estimate.spans, pieces_s)
        assert parts is not None  # floor and time are known
        explained.append(Explained(row, parts, estimate.time_s, "estimated"))
    return explained


def _trial(row: Row, machine: Machine) -> Trial:
    problem, schedule = current_problem_and_schedule(row)
    fabric = resolved(parse(str(row["fabric"])), problem, machine)
    return Trial(problem=problem, schedule=schedule, backend=machine.backend, machine=machine.name, fabric=fabric,
                 protocol=protocol("default"))  # fmt: skip


# The schedule that another one is compared with, and names that tell them apart.


def runner_up(row: Row, rows: Sequence[Row]) -> Row | None:
    """The best other schedule of the problem of *row* by the same kind of source, or None.

    Timed ones are ordered as tables order them. An estimate that is equal to that of *row* is left out.
    """
    is_timed = row.get("source") in TIMED
    same = problem_of(row)
    alike = [other for other in rows if other.get("time_s") and other.get("part") in (None, "whole")
             and (other.get("source") in TIMED) == is_timed and problem_of(other) == same]  # fmt: skip
    if is_timed:
        return next((other for other in comparison.leading(alike) if _schedule(other) != _schedule(row)), None)
    differing = (other for other in alike if abs(other["time_s"] - row["time_s"]) > EQUAL * row["time_s"])
    return min(differing, key=lambda other: float(other["time_s"]), default=None)


EQUAL = 1e-6
"""Relative difference of estimates that are equal."""


def _schedule(row: Row) -> tuple[Any, ...]:
    return row.get("scheme"), tuple(sorted((row.get("axes") or {}).items()))


NAMED_FIRST = ("tile", "pieces", "slice_tiles", "tile_order", "engine", "collective", "micro_batches")
NAMED_MOST = 3
"""The most axes in a name; those of NAMED_FIRST come first."""


def short_names(row: Row, other: Row) -> tuple[str, str]:
    """Names of two schedules by what distinguishes them: `fused, tile 64x128x64` and `decomposed, pieces 4`."""
    its_axes, other_axes = row.get("axes") or {}, other.get("axes") or {}
    if row["scheme"] != other["scheme"]:
        return _name(row, its_axes), _name(other, other_axes)
    differing = [name for name in (*its_axes, *other_axes) if its_axes.get(name) != other_axes.get(name)]
    chosen = tuple({name: axes[name] for name in differing if name in axes} for axes in (its_axes, other_axes))
    return _name(row, chosen[0]), _name(other, chosen[1])


def _name(row: Row, axes: Mapping[str, Value]) -> str:
    if row["scheme"] == BASELINE and (how := baseline_title(axes)):
        return f"{BASELINE}, {how}"
    ordered = sorted(axes, key=lambda name: NAMED_FIRST.index(name) if name in NAMED_FIRST else len(NAMED_FIRST))
    return schedule_title(row["scheme"], {name: axes[name] for name in ordered[:NAMED_MOST]})


# Sentences.

FLOOR, LONGER_ALONE = "floor", "computation or wire alone"
"""The first part of a waterfall: the floor of the problem, or what the simulator has in place of a measured one."""
SPOKEN: Mapping[str, tuple[str, ...]] = {
    "fill and drain": ("fill and drain",), "computation": ("disturbance", "decomposition"),
    "waiting": ("waiting",), "contention": ("contention",), FLOOR: ("floor",), "unexplained time": ("unexplained",),
}  # fmt: skip
"""The parts of a sentence, each with the parts of a waterfall that it sums."""
SMALL = 0.05
"""Parts whose difference is below this share of the difference of the times are not named."""


def against_other(chosen: Explained, other: Explained, rows: Iterable[Row] = ()) -> str:
    """How much faster *chosen* is than *other*, whether that is certain, and which parts make the difference.

    The difference is that of deltas; among *rows* are the sequential schedules that two blocks have in common.
    """
    head = _head(chosen.row, Pinned.of(other.row, rows), short_names(chosen.row, other.row))
    if (missing := _missing(chosen, other)) is not None:
        return f"{head}. {missing}"
    return f"{head}{_by_simulator(chosen, other)}: {_differences(chosen, other)}."


def _by_simulator(chosen: Explained, other: Explained) -> str:
    """That the parts of timed rows are the simulator's, and whether it orders the two as they were timed."""
    if all(each.source == each.row["source"] for each in (chosen, other)):
        return ""
    times = f"{seconds_text(chosen.time_s)} against {seconds_text(other.time_s)}"
    timed_s, simulated_s = other.row["time_s"] - chosen.row["time_s"], other.time_s - chosen.time_s
    if timed_s * simulated_s > 0:
        return f". The simulator ({times}) says"
    return f". The simulator does not see that ({times})"


def _head(row: Row, pinned: Pinned, names: tuple[str, str]) -> str:
    (name, other_name), other = names, pinned.row
    kinds = {each.get("source") in TIMED for each in (row, other)}
    delta = pinned.delta(row)
    if delta.share is None:
        return f"{name} and {other_name} do not compare: {delta.why}"
    if delta.share == 0:
        return f"{name} takes as long as {other_name}"
    time, percent = delta.time.lstrip("+-"), delta.percent.lstrip("+-")
    amount = f"{time} ({percent})" if time else percent
    if kinds == {False}:
        word = verdict.FASTER if delta.share < 0 else verdict.SLOWER
        return f"By estimate, {name} is {amount} {word} than {other_name}"
    if delta.word in (verdict.FASTER, verdict.SLOWER):
        return f"{name} is {amount} {delta.word} than {other_name}"
    less = "less" if delta.share < 0 else "more"
    if kinds == {True, False}:
        return (f"{name}, {row['source']}, has {amount} {less} time than {other_name}, {other['source']}; "
                "an estimate has no verdict")  # fmt: skip
    if delta.word == verdict.NOT_COMPARED:
        basis = f" by {delta.basis}" if delta.basis and delta.basis != APART else ""
        return f"{name} took {amount} {less} time than {other_name}{basis}, but not in turns with it"
    return f"Whether {name} or {other_name} is faster is not certain, within noise: {delta.why}"


def _missing(chosen: Explained, other: Explained) -> str | None:
    """Why the parts of the difference are not known, or None."""
    unknown = list(dict.fromkeys([*chosen.unknown, *other.unknown]))
    if not unknown:
        return None
    return f"Which parts make the difference is not known: {', '.join(unknown)} were not measured for both."


def _differences(chosen: Explained, other: Explained) -> str:
    """`its fill and drain is 9 ms shorter, its computation 1 ms longer`, the largest difference first."""
    of_parts = {
        name: sum((chosen.parts.get(part) or 0.0) - (other.parts.get(part) or 0.0) for part in parts)
        for name, parts in SPOKEN.items()
    }
    least = max(SMALL * abs(chosen.time_s - other.time_s), 1e-3 * chosen.time_s)
    named = sorted((each for each in of_parts.items() if abs(each[1]) >= least), key=lambda each: -abs(each[1]))
    if not named:
        return "all parts are alike"
    if chosen.source != other.source:  # one floor was measured, the other one is the simulator's
        named = [(LONGER_ALONE if name == FLOOR else name, seconds) for name, seconds in named]
    texts = [f"its {name} {'is ' * (place == 0)}{seconds_text(abs(seconds))} {'longer' if seconds > 0 else 'shorter'}"
             for place, (name, seconds) in enumerate(named)]  # fmt: skip
    return ", ".join(texts)


def is_floor(explained: Explained, rows: Iterable[Row]) -> bool:
    """Whether the first part of *explained* is the one floor of its problem.

    Where that was measured among *rows*, what the simulator has in its place is none.
    """
    if explained.source in TIMED:
        return True
    problem = problem_of(explained.row)
    return not any(row.get("source") in TIMED and row.get("floor_s") and problem_of(row) == problem for row in rows)


def against_floor(chosen: Explained, rows: Iterable[Row] = ()) -> str:
    """How far *chosen* is above its floor, what the floor is, and the largest parts above it.

    A floor that was measured among *rows* is the only one: the simulator then has a computation or a wire alone.
    """
    floor_s = chosen.parts.get("floor")
    if floor_s is None:
        return "Its floor is not known: no computation alone was timed in its problem."
    above_s = chosen.time_s - floor_s
    losses = {part: seconds for part, seconds in chosen.parts.items() if part != "floor" and seconds}
    largest = sorted(losses.items(), key=lambda each: -abs(each[1] or 0.0))[:NAMED_MOST]
    parts = ", ".join(f"{part} {seconds_text(seconds or 0.0)}" for part, seconds in largest)
    it = "It" if chosen.source == chosen.row["source"] else "By the simulator it"
    above = f"{seconds_text(above_s)} ({percent_text(above_s / floor_s)})"
    bound, tail = _bound(chosen.row, floor_s), f": {parts}" if parts else ""
    if not is_floor(chosen, rows):
        longer = bound or "the longer of computation and wire"
        return f"{it} is {above} above {longer} alone, {seconds_text(floor_s)}{tail}."
    head = f"{it} is {above} above its floor of {seconds_text(floor_s)}"
    return f"{head}{f', which is {bound}' if bound else ''}{tail}."


def _bound(row: Row, floor_s: float) -> str:
    """What the floor is: the wire where the minimal bytes take as long, else the computation; empty if not known."""
    num_bytes, rate = row.get("minimal_wire_bytes"), row.get("link_bytes_per_second")
    if num_bytes is None or not rate:
        return ""
    return "the wire" if num_bytes / rate >= floor_s * (1 - 1e-3) else "the computation"
