"""Outcomes as a person reads them: what all share once, then for each problem a table, the fastest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.protocol import BESIDE_ONE_CALL, is_one_call
from kernels.units import ratio_text, seconds_text
from workbench import one_problem
from workbench.cli_show import tell
from workbench.cli_status import counted
from workbench.cli_table import NOTHING, Column, show_table
from workbench.cli_words import WHAT, WHERE, Axes, facts, same, told
from workbench.compared import Bases, leading, together
from workbench.metrics import gain
from workbench.naming import OF_ONE, SIGNS, TIMED, is_of_one, source_title

Row = Mapping[str, Any]

FEW = 10
"""So many rows are printed of a problem, unless all are asked for."""
FEW_IN_ALL, FEWEST = 30, 3
"""Of several problems so many in all, but of each no fewer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One schedule of one problem: what a clock said, and the estimate."""

    clock: Row | None
    guess: Row | None

    @property
    def row(self) -> Row:
        """The one that the ratios are of."""
        either = self.clock or self.guess
        assert either is not None
        return either


def show_outcomes(rows: Sequence[Row], *, title: str = "", every: bool = False) -> None:
    """Timed and estimated schedules side by side; of each problem the first few, or *every* one."""
    parts = by_problem(rows)
    if title:
        tell(title)
    if not parts:
        return
    entries = [entry for part in parts for entry in part]
    rows_of = [[entry.row for entry in part] for part in parts]
    # how one times says nothing of estimates
    hidden = () if any(entry.clock for entry in entries) else ("protocol",)
    most = None if every else few(len(parts))
    for part, axes in zip(parts, tell_each(rows_of, notes(entries), hidden), strict=True):
        _show_part(part, axes, most)
    _show_remarks([entry.clock for entry in entries if entry.clock])


def tell_each(parts: Sequence[Sequence[Row]], said: Iterable[str] = (), hidden: Sequence[str] = ()) -> Iterator[Axes]:
    """Above all: what the rows of all *parts* share. Then, before each part is shown, what is its own.

    The answer is what need not be said of the part's schedules. *hidden*: facts that are not to be told.
    """
    alike = same([facts(row) for part in parts for row in part])
    axes = Axes.of(row for part in parts for row in part)
    tell_shared({name: words for name, words in alike.items() if name not in hidden}, axes, said)
    for part in parts:
        print()
        more = Axes.of(part, axes)
        differing = {name: words for name, words in facts(part[0]).items() if name not in alike}
        if len(parts) > 1:
            tell("; ".join(filter(None, (told(differing, (*WHAT, *WHERE)), *more.lines()))))
        yield axes.and_also(more) if len(parts) > 1 else axes


def few(num_problems: int) -> int:
    """How many rows of each problem are printed."""
    return max(FEWEST, min(FEW, FEW_IN_ALL // max(1, num_problems)))


def tell_more(count: int) -> None:
    """How many rows were left out."""
    if count > 0:
        tell(f"and {count:,} more: --all prints them")


def tell_shared(common: Mapping[str, str], axes: Axes, said: Iterable[str] = ()) -> None:
    """What all rows share: what is computed, where, how it is to be read, and with which axes."""
    for line in (told(common, WHAT), told(common, WHERE), "; ".join(said), *axes.lines()):
        if line:
            tell(line)


def by_problem(rows: Iterable[Row]) -> list[list[Entry]]:
    """The schedules of each problem: those a clock has timed before those only estimated, each the best first."""
    timed = one_problem.by_problem(row for row in rows if row["time_s"] is not None)
    return [_entries(same) for same in timed.values()]


def _entries(rows: Sequence[Row]) -> list[Entry]:
    """One for each schedule of one problem; of a baseline that stands in several blocks the one beside the best."""
    clocks = [row for row in leading(rows) if row["source"] in TIMED]
    guesses = {row["key"]: row for row in rows if row["source"] not in TIMED}
    firsts = {row["key"]: row for row in reversed(clocks)}
    timed = [Entry(row, guesses.get(row["key"])) for row in clocks if firsts[row["key"]] is row]
    only = sorted((row for row in guesses.values() if row["key"] not in firsts), key=lambda row: row["time_s"])
    return [*timed, *(Entry(None, row) for row in only)]


def notes(entries: Sequence[Entry]) -> list[str]:
    """How the times of all *entries* are to be read."""
    clocks = [entry.clock for entry in entries if entry.clock]
    guesses = [entry.guess for entry in entries if entry.guess]
    said = ["plan executed on CPU ranks"] if clocks and all(row["backend"] == "cpu" for row in clocks) else []
    said += [OF_ONE] if any(map(is_of_one, (*clocks, *guesses))) else []
    said += ["results verified"] if clocks and all(row["correct"] for row in clocks) else []
    if unfitted := [row for row in guesses if not row["calibrated"]]:
        from workbench.machines import trust

        words = sorted({trust(row["machine"]) for row in unfitted})
        schemes = ", ".join(sorted({row["scheme"] for row in unfitted}))
        of_schemes = "" if len(unfitted) == len(guesses) else f" of {schemes}"
        said.append(f"estimates{of_schemes} {words[0]}: only their order counts")
    if guesses and any(is_one_call(row.get("protocol"), row.get("backend")) for row in clocks):
        said.append(BESIDE_ONE_CALL)
    return said


def clock_heading(rows: Iterable[Row]) -> tuple[str, bool]:
    """The heading of times that a clock took, and whether each needs its own sign: they are of several sources."""
    met = {row["source"] for row in rows}
    sources = [source for source in TIMED if source in met]
    return "\n".join(map(heading, sources)), len(sources) > 1


def heading(source: str) -> str:
    """A source and its sign, as a heading."""
    return source_title(source).replace("\N{NO-BREAK SPACE}", " ")


def signed(source: str, seconds: float | None, needed: bool = True) -> str | None:
    """A time behind the sign of its source, where that is *needed*."""
    if seconds is None:
        return None
    return f"{SIGNS[source]} {seconds_text(seconds)}" if needed else seconds_text(seconds)


def _show_part(part: Sequence[Entry], axes: Axes, most: int | None) -> None:
    """One problem."""
    shown, rows = part[:most], [row for entry in part for row in (entry.clock, entry.guess) if row]
    clocks = [entry.clock for entry in shown]
    title, is_mixed = clock_heading(row for row in clocks if row)
    # the ratio of an estimate is to an estimate: beside ratios of what was timed it would be taken for one of these
    compared = [entry.row if entry.clock or not any(clocks) else None for entry in shown]
    bases = Bases.of(rows)
    several = len({bases.words(row) for row in compared if row}) > 1
    all_right = all(row["correct"] for row in clocks if row)
    show_table([
        Column(title, [row and signed(row["source"], row["time_s"], is_mixed) for row in clocks], "number"),
        Column(heading("estimated"), [entry.guess and seconds_text(entry.guess["time_s"]) for entry in shown],
               "number"),
        Column("of the\nfloor", [row and _ratio(row["time_s"], row["floor_s"]) for row in compared], "number",
               goes_below=20),
        Column("speed-up over\nsequential", [row and (gain_text(row) or NOTHING) for row in compared], "number"),
        Column("over", [row and bases.words(row) if several else None for row in compared], "name", goes_below=60),
        Column("skew", [row and _seconds(row["skew_s"]) for row in clocks], "number", goes_below=40),
        Column("correct", [None if all_right else row and {True: "yes", False: "no"}.get(row["correct"])
                           for row in clocks], "name", goes_below=30),
        Column("schedule", [axes.label(entry.row) for entry in shown], "cut"),
    ])  # fmt: skip
    tell_more(len(part) - len(shown))
    if said := together(rows):
        tell(said)


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else seconds_text(seconds)


def gain_text(row: Row) -> str | None:
    """The speed-up over the best sequential schedule of the row's block, where one was timed there."""
    ratio = gain(row)
    return None if ratio is None else ratio_text(ratio)


def _ratio(over: float | None, under: float | None) -> str | None:
    return ratio_text(over / under) if over and under else None


def _show_remarks(rows: Sequence[Row]) -> None:
    """What is to be said of times that there are, each sentence once: of a control that did not act, first of all."""
    axes, remarks = Axes.of(rows), dict[str, list[Row]]()
    for row in rows:
        if row["message"]:
            remarks.setdefault(str(row["message"]), []).append(row)
    if remarks:
        print()
    for remark, about in list(remarks.items())[:FEWEST]:
        who = dict.fromkeys(axes.label(row) for row in about)
        tell(f"{'; '.join(who) if len(who) <= FEWEST else f'{len(who)} schedules'}: {remark}")
    tell_more(len(remarks) - FEWEST)


def show_failures(rows: Sequence[Row], *, every: bool = False) -> None:
    """What failed, and why: each reason once, behind the schedules it is about. What was stopped did not fail."""
    failed = [row for row in rows if row["outcome"] == "failure" and row["stage"] != "cancelled"]
    if not failed:
        return
    axes = Axes.of(row for row in rows)
    reasons: dict[tuple[str, str], list[Row]] = {}
    for row in failed:
        reasons.setdefault((row["stage"], row["message"]), []).append(row)
    print()
    tell(counted(failed))
    shown = list(reasons.items())[: None if every else FEW]
    for (stage, message), about in shown:
        who = dict.fromkeys(axes.label(row) + ("" if row["part"] == "whole" else f", {row['part']} alone")
                            for row in about)  # fmt: skip
        named = "; ".join(who) if len(who) <= FEWEST else f"{len(who)} schedules"
        tell(f"{named} ({stage}): {message}")
    tell_more(len(reasons) - len(shown))
