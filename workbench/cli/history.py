"""Output about earlier measurements: runs, two runs side by side, and the accuracy of estimates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from kernels.units import num_text, percent_text, ratio_text, seconds_text
from workbench.analysis.accuracy import ERRORS, NAMES, by_kind, coverage_text
from workbench.analysis.searches import NAMES as SEARCHES
from workbench.analysis.searches import NEAR, PlayedSearch, RecordedSpace, row_of
from workbench.cli.output import (
    WHAT,
    WHERE,
    Axes,
    TableColumn,
    clock_heading,
    facts,
    few,
    heading,
    joined_facts,
    link,
    one_screen,
    problem_in_short,
    same,
    say,
    shape_in_short,
    show_remaining_count,
    show_shared,
    show_shared_and_parts,
    show_table,
    show_text,
    signed,
)
from workbench.naming import SIGNS, operator_title
from workbench.results.comparison import SPEED_UPS_COMPARE
from workbench.results.quiet import BUSY_SHARE, busy_sentence, is_busy
from workbench.results.verdict import NOT_COMPARED, WORDS

# The accuracy of estimates: errors of whole trials by kind, their order, and speedups.

Row = Mapping[str, Any]
FURTHEST = 5
"""Largest errors that are printed, unless all are requested."""
LARGE = 9.0
"""A larger error is printed as estimated / measured."""


def show_accuracy(summary: Mapping[str, Any]) -> None:
    """Prints errors of whole trials in all and by kind, how well estimates choose, the reach of intervals, and
    speedups."""
    every, held = summary["whole"], summary["held_out"]
    if not every["count"]:
        return
    print()
    _show_all(every, held)
    print()
    _show_by_kind(every["accuracy"], held["accuracy"])
    for prefix, pairs in (("", every["speed_ups"]), ("Held out: ", held["speed_ups"])):
        for pair in pairs:
            count = num_text(pair["pairs"], "pair")
            show_text(f"{prefix}{pair['scheme']} over sequential on {pair['machine']}, {count}: the "
                 f"ratio is estimated {error_text(pair['median'], '+')} off in the middle, "
                 f"p90 {error_text(pair['p90'])}.")  # fmt: skip
    for space in summary["spaces"]:
        show_text(_space_text(space))
    print()


def _show_all(every: Row, held: Row) -> None:
    """Prints errors of estimates and of trivial ones, of all trials and of held-out ones."""
    tables = [(title, of["count"], of["all"], prefix)
              for name, of in (("all trials", every), ("held out", held)) if of["count"]
              for title, prefix in ((name, ""), (f"{name}, roofline alone", "trivial_"))]  # fmt: skip
    show_text(f"Errors of whole trials of {num_text(every['problems'], 'problem')}. {_held_out(held['problems'])} For "
         "comparison a roofline and one wire, the trivial estimate:")  # fmt: skip
    show_table([
        TableColumn("whole\ntrials", [count for _, count, _, _ in tables], "number"),
        *(TableColumn(name, [error_text(errors[prefix + name]) for _, _, errors, prefix in tables], "number")
          for name in ERRORS),
        TableColumn("inside", [None if prefix else percent_text(errors["inside_interval"])
                          for _, _, errors, prefix in tables], "number", goes_below=20),
        TableColumn("of", [title for title, *_ in tables]),
    ])  # fmt: skip


def _held_out(count: int) -> str:
    """A sentence about the number of held-out problems."""
    if count == 0:
        return "None is held out."
    return f"Nothing was fitted to {count:,} of them: {'it is' if count == 1 else 'they are'} held out."


def _show_by_kind(kinds: Sequence[Row], held: Sequence[Row]) -> None:
    held_by_kind = {_kind(kind): kind for kind in held}
    pairs = [(kind, held_by_kind.get(_kind(kind))) for kind in kinds]
    show_text("By kind, in brackets those that are held out:")
    show_table([
        TableColumn("whole\ntrials", [_with_held_out(pair, "count", str) for pair in pairs], "number"),
        TableColumn("median", [_with_held_out(pair, "median", error_text) for pair in pairs], "number"),
        TableColumn("p90", [_with_held_out(pair, "p90", error_text) for pair in pairs], "number"),
        TableColumn("schedule", _names(kinds)),
    ])  # fmt: skip
    print()
    show_text("Weighted by time, and to which side; roofline: the median error of a trivial estimate, to compare with:")
    show_table([
        TableColumn("weighted", [_with_held_out(pair, "weighted", error_text) for pair in pairs], "number"),
        TableColumn("bias", [error_text(kind["bias"], "+") for kind in kinds], "number"),
        TableColumn("roofline", [_with_held_out(pair, "trivial_median", error_text) for pair in pairs], "number"),
        TableColumn("schedule", _names(kinds)),
    ])  # fmt: skip
    print()
    show_text("How well they choose: order, best within 5 %; and how many times lie in their interval:")
    show_table(
        [
            TableColumn(
                "order", [_or_none(kind["rank_correlation"], lambda value: f"{value:.2f}") for kind in kinds], "number"
            ),
            TableColumn("best", [_or_none(kind["best_within_5_percent"], percent_text) for kind in kinds], "number"),
            TableColumn("inside", [_with_held_out(pair, "inside_interval", percent_text) for pair in pairs], "number"),
            TableColumn("half-width", [error_text(kind["half_width"]) for kind in kinds], "number"),
            TableColumn("schedule", _names(kinds)),
        ]
    )


def _space_text(space: Row) -> str:
    """A sentence about one design space: whether measuring the few with the lowest estimates would have been enough."""
    shape = "x".join(map(str, space["shape"].values()))
    how = "the best itself" if space["over_best"] == 1 else f"{percent_text(space['over_best'] - 1)} behind the best"
    return (f"Of {space['schedules']} schedules of {operator_title(space['operator'])} {shape} on {space['machine']}, "
            f"the {space['top']} that are estimated to be the fastest: their fastest is {how}. "
            f"Errors: median {error_text(space['median'])}, p90 {error_text(space['p90'])}.")  # fmt: skip


def error_text(error: float, sign: str = "") -> str:
    """An error as `12 %`, or as `43x` from ten times on, which fits into a narrow terminal."""
    return percent_text(error, sign) if error < LARGE else f"{error + 1:,.0f}x"


def _names(kinds: Sequence[Row]) -> list[str]:
    several = len({kind["machine"] for kind in kinds}) > 1
    names = ([kind["scheme"], operator_title(kind["operator"]), *([kind["machine"]] if several else [])]
             for kind in kinds)  # fmt: skip
    return [", ".join(each) for each in names]


def _kind(kind: Row) -> tuple[str, ...]:
    return tuple(str(kind[name]) for name in NAMES)


def _with_held_out(pair: tuple[Row, Row | None], name: str, text: Callable[[Any], str]) -> str:
    """A number over all trials of a kind, in brackets over those that are held out."""
    every, held = pair
    return text(every[name]) + (f" ({text(held[name])})" if held is not None else "")


def _or_none(value: float | None, text: Callable[[float], str]) -> str | None:
    return None if value is None else text(value)


# Runs, comparisons of two runs, and validations.

STATES = ("running", "finished", "cancelled", "lost")
DELETED_NAMED = 3
BROKEN_OFF = "failed"
"""The state of a run whose status is an error message."""


def show_runs(rows: Sequence[Row], num_stored: int, deleted: Mapping[str, str], *, every: bool) -> None:
    """Prints one line for each run of *num_stored*, and below them the messages of failed runs, notes and tags; one
    screen, or *every* line. Then it says which runs are *deleted*, by id the day, and can come back."""
    if rows:
        _show_some(rows, num_stored, every=every)
    else:
        say("0 runs are stored: `workbench run` makes one.")
    if deleted:
        some = [f"{run} on {day}" for run, day in list(deleted.items())[:DELETED_NAMED]]
        more = [f"{len(deleted) - DELETED_NAMED} more"] if len(deleted) > DELETED_NAMED else []
        say(f"Deleted, and back with --undo RUN: {', '.join([*some, *more])}.")


def _show_some(rows: Sequence[Row], num_stored: int, *, every: bool) -> None:
    used = [name for name in SIGNS if name in {row["source"] for row in rows}]
    states = [row["status"] if row["status"] in STATES else BROKEN_OFF for row in rows]
    alike = f"; all {states[0]}" if len(set(states)) == 1 else ""
    signs = f"; best times are {', '.join(map(heading, used))}" if used else ""
    newest = f"The newest {len(rows)} of {num_stored:,} runs" if len(rows) < num_stored else num_text(len(rows), "run")
    with one_screen(every):
        show_text(f"{newest}, the newest first{alike}{signs}")
        _show_runs(rows, states)


def _show_runs(rows: Sequence[Row], states: Sequence[str]) -> None:
    started = [datetime.fromtimestamp(row["started_at"]).isoformat(" ", "minutes") for row in rows]
    show_table([
        TableColumn("run (date-time)", [row["run"] for row in rows], "name"),
        TableColumn("started", started, "name", goes_below=24),
        TableColumn("status", [None if len(set(states)) == 1 else state for state in states], "name"),
        TableColumn("best", [row["source"] and signed(row["source"], row["best_s"]) for row in rows], "number"),
        TableColumn("others\nhad", [_share(row["others_share"]) for row in rows], "number", goes_below=12),
        TableColumn("tried", [row["schedules"] for row in rows], "number", goes_below=16),
        TableColumn("scheme", [row["scheme"] for row in rows], "name"),
        TableColumn("problem", [_problems(row) for row in rows], "cut"),
    ])  # fmt: skip
    if busy := sum(is_busy(row["others_share"]) for row in rows):
        times = "1 best time is" if busy == 1 else f"{busy} best times are"
        say(f"Others had more than {percent_text(BUSY_SHARE)} of the cores meanwhile: {times} not trustworthy.")
    for row, state in zip(rows, states, strict=True):
        if state == BROKEN_OFF:
            show_text(f"{row['run']}: {row['status']}")
        if annotation := " ".join([row["note"], *(f"#{tag}" for tag in row["tags"])]).strip():
            show_text(f"{row['run']}: {annotation}")


def _share(share: float | None) -> str | None:
    return None if share is None else percent_text(share)


def _problems(row: Row) -> str | None:
    problems = row["problems"]
    if len(problems) == 1:
        return f"{problem_in_short(row)}, {row['dtype']}, {row['world']} {'rank' if row['world'] == 1 else 'ranks'}"
    operators = dict.fromkeys(operator_title(problem["operator"]) for problem in problems)
    return f"{len(problems)} problems of {', '.join(operators)}" if problems else None


def show_comparison(rows: Sequence[Row], differences: Mapping[str, Any], runs: Sequence[str], *,
                    every: bool) -> None:  # fmt: skip
    """Prints the verdicts, then both runs' times of each problem, and says below what else differs."""
    remarks = [_difference(name, *(pair if every else _in_short(name, *pair))) for name, pair in differences.items()]
    if shared := sum(row["same_block"] for row in rows):
        remarks.insert(0, f"{shared} of them {'is' if shared == 1 else 'are'} one measurement that both runs show.")
    if apart := [row for row in rows if row["second_is"] == NOT_COMPARED]:
        remarks.insert(0, f"Two runs take no turns: {apart[0]['why']}. {SPEED_UPS_COMPARE}")
    counts = [f"{sum(row['second_is'] == verdict for row in rows)} {verdict}"
              for verdict in WORDS if any(row["second_is"] == verdict for row in rows)]  # fmt: skip
    for which, run in zip(("first", "second"), runs, strict=True):
        timed = [{"key": number, **{key: row[f"{which}_{key}"] for key in ("others_share", "others")}}
                 for number, row in enumerate(rows)]  # fmt: skip
        if sentence := busy_sentence(timed):
            remarks.insert(0, f"Run {run}: {sentence}")
    with one_screen(every, remarks):
        show_text(f"Of {num_text(len(rows), 'schedule')} in the second run: {', '.join(counts)}.")
        show_text(f"first: run {runs[0]}; second: run {runs[1]}")
        _show_times(_by_problem(rows), every=every)


def _show_times(parts: Sequence[Sequence[Row]], *, every: bool) -> None:
    """Prints a table of both times for each problem."""
    for part, axes in zip(parts, show_shared_and_parts(parts), strict=True):
        shown = sorted(part, key=lambda row: row["first_s"])[: None if every else few(len(parts))]
        show_table(
            [
                *(_clock(which, shown) for which in ("first", "second")),
                TableColumn("second /\nfirst", [ratio_text(row["ratio"]) for row in shown], "number"),
                TableColumn("the\nsecond is", [row["second_is"] for row in shown], "name"),
                *(
                    TableColumn(
                        f"speed-up\nin the {which}", [_speed_up(row, which) for row in shown], "number", goes_below=40
                    )
                    for which in ("first", "second")
                ),
                TableColumn("schedule", [axes.label(row) for row in shown], "cut"),
            ]
        )
        show_remaining_count(len(part) - len(shown))


def _speed_up(row: Row, which: str) -> str | None:
    """The speedup over the best sequential schedule of its block; None if none was timed."""
    ratio = row[f"{which}_speed_up"]
    return None if ratio is None else ratio_text(ratio)


def _clock(which: str, rows: Sequence[Row]) -> TableColumn:
    """The column of one run's times."""
    sources = [row[f"{which}_source"] for row in rows]
    title, is_mixed = clock_heading({"source": source} for source in sources)
    times = [signed(source, row[f"{which}_s"], is_mixed) for source, row in zip(sources, rows, strict=True)]
    return TableColumn(f"{which}\n{title}", times, "number")


def _in_short(name: str, one: Any, other: Any) -> tuple[Any, Any]:
    """Two values of a fact; of links their kind, ratio and rate, where those differ."""
    if name != "fabric" or not (isinstance(one, str) and isinstance(other, str)):
        return one, other
    short = tuple(", ".join(link(text).values()) for text in (one, other))
    return (short[0], short[1]) if short[0] != short[1] else (one, other)


def _difference(name: str, one: Any, other: Any) -> str:
    """A sentence about two different facts; of named values, those that differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
        return f"{name} differ: " + ", ".join(f"{key} {one.get(key)} and {other.get(key)}" for key in keys)
    return f"{name} differs: {one} and {other}"


def show_validation(
    rows: Sequence[Row], summary: Mapping[str, Any], source: str, *, every: bool, off: Sequence[str] = ()
) -> None:
    """Prints the error in all, then the largest errors, then errors by kind; what fits on a screen, or *every* line.

    Which trials are left out and why, and which estimates are *off*, is said below.
    """
    remarks = [*map(_left_out, summary["without_estimate"]), *off]
    if not rows:
        left = "Nothing is left to compare: `workbench run` measures again, and --recording NAME names a recording."
        for remark in [*remarks, left] if remarks else ["0 measurements are stored: `workbench run` makes some."]:
            say(remark)
        return
    with one_screen(every, remarks):
        show_text(_in_all(rows, summary))
        show_text(coverage_text(summary))
        _show_errors(rows, source, every=every)
        print()
        show_text("By kind, furthest off first:")
        _show_kinds(sorted(by_kind(rows), key=lambda kind: -max(kind["ratio"], 1 / kind["ratio"])))
        show_accuracy(summary)


def _left_out(reason: Row) -> str:
    some = "1 trial is" if reason["count"] == 1 else f"{reason['count']:,} trials are"
    return f"{some} left out: {reason['message']}"


def _in_all(rows: Sequence[Row], summary: Mapping[str, Any]) -> str:
    """The answer of a validation: the median error of all trials, and how many are close."""
    parts = sum(row["part"] != "whole" for row in rows)
    alone = f", {parts:,} of them a part timed alone" if parts else ""
    return (f"{num_text(summary['count'], 'trial')}{alone}: "
            f"median error {percent_text(summary['median_absolute_error'])}, "
            f"{percent_text(summary['within_15_percent'])} within 15 %; "
            f"{'calibrated' if summary['calibrated'] else 'not calibrated: `workbench calibrate`'}.")  # fmt: skip


def _show_errors(rows: Sequence[Row], source: str, *, every: bool) -> None:
    """Prints what all rows share, and the largest errors: of each schedule its largest, or *every* one."""
    common = same([facts(row) for row in rows])
    axes = Axes.of(rows)
    show_shared({name: text for name, text in common.items() if name != "protocol"}, axes)
    if others := sorted({row["estimated_for"] for row in rows if row["estimated_for"] != row["machine"]}):
        show_text(f"estimates: for {', '.join(others)}; no bounds hold there")
    print()
    worst = sorted(rows, key=lambda row: -abs(row["error"]))
    firsts: dict[str, Row] = {}
    for row in worst:
        firsts.setdefault(row["key"], row)
    shown = worst if every else list(firsts.values())[:FURTHEST]
    show_text("Furthest off:" if every else "Furthest off, each schedule once:")
    show_table([
        TableColumn("error", [percent_text(row["error"], "+") for row in shown], "number"),
        TableColumn(heading(source), [seconds_text(row["measured_s"]) for row in shown], "number"),
        TableColumn(heading("estimated"), [seconds_text(row["estimated_s"]) for row in shown], "number"),
        TableColumn("schedule", [_row_in_short(row, axes, common) for row in shown], "cut"),
    ])  # fmt: skip
    show_remaining_count(len(rows) - len(shown))


def _row_in_short(row: Row, axes: Axes, common: Mapping[str, str]) -> str:
    """The scheme, part, problem if there are several, and axes of *row*."""
    scheme, _, axes_text = axes.label(row).partition(" ")
    part = "" if row["part"] == "whole" else row["part"]
    shape = "" if "shape" in common else shape_in_short(row["shape"])
    operator = "" if "operator" in common else operator_title(row["operator"])
    return " ".join(filter(None, (scheme, part, shape, operator, axes_text)))


def _show_kinds(kinds: Sequence[Row]) -> None:
    """Prints ratios by scheme, and by operator if there are several."""
    operators = {kind["operator"] for kind in kinds}
    names = [(f"{kind['scheme']} {kind['collective']}".rstrip(), "" if kind["part"] == "whole" else kind["part"],
              operator_title(kind["operator"]) if len(operators) > 1 else "") for kind in kinds]  # fmt: skip
    show_table([
        TableColumn("estimated /\nmeasured", [ratio_text(kind["ratio"]) for kind in kinds], "number"),
        TableColumn("from", [ratio_text(kind["lowest"]) for kind in kinds], "number"),
        TableColumn("to", [ratio_text(kind["highest"]) for kind in kinds], "number"),
        TableColumn("trials", [kind["count"] for kind in kinds], "number"),
        TableColumn("schedule", [", ".join(filter(None, name)) for name in names]),
    ])  # fmt: skip


def _by_problem(rows: Iterable[Row]) -> list[list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(joined_facts(facts(row), (*WHAT, *WHERE)), []).append(row)
    return list(parts.values())


# Searches, played over measured schedules.

SPACES_SHOWN = 3
"""Spaces that are printed, unless all are requested."""


def show_searches(answers: Sequence[tuple[RecordedSpace, Sequence[PlayedSearch]]], *, every: bool) -> None:
    """Prints which search needs the fewest measurements in most spaces, then for each space what each needs."""
    if len(answers) > 1:
        wins = Counter(SEARCHES[_fewest(played).kind] for _, played in answers)
        most = ", ".join(f"{name} in {count}" for name, count in wins.most_common())
        show_text(f"Of {len(answers):,} problems, the fewest measurements until {percent_text(NEAR)} above the best "
                  f"are needed by {most}.")  # fmt: skip
    for space, played in answers if every else answers[:SPACES_SHOWN]:
        if len(answers) > 1:
            print()
        _show_space(space, played)
    show_remaining_count(0 if every else len(answers) - SPACES_SHOWN)


def _show_space(space: RecordedSpace, played: Sequence[PlayedSearch]) -> None:
    count, best = len(space.times), _fewest(played)
    show_text(f"{problem_in_short(row_of(space, best))} on {space.trial.machine}, {count} schedules, the best takes "
              f"{seconds_text(space.best_s)}. {SEARCHES[best.kind].capitalize()} is within {percent_text(NEAR)} of it "
              f"after {num_text(best.needed, 'measurement')}.")  # fmt: skip
    show_table([
        TableColumn("search", [SEARCHES[each.kind] for each in played], "name"),
        TableColumn("measurements", [_with_band(each) for each in played], "number"),
        TableColumn("of the\nspace", [percent_text(each.needed / count) for each in played], "number"),
        TableColumn("it stops\nafter", [_or_none(each.stopped_after, str) for each in played], "number"),
        TableColumn("then above\nthe best",
                    [_or_none(each.then_over_best, lambda over: percent_text(over - 1)) for each in played], "number"),
    ])  # fmt: skip


def _fewest(played: Sequence[PlayedSearch]) -> PlayedSearch:
    """The search that needs the fewest measurements; measuring all is named only where no other needs as few."""
    return min(played, key=lambda each: (each.needed, each.kind == "exhaustive"))


def _with_band(search: PlayedSearch) -> str:
    """What a search needs; of random searches the median, and 10 to 90 % of them."""
    return str(search.needed) if search.low is None else f"{search.needed} ({search.low} to {search.high})"
