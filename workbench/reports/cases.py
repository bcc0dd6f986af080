"""The findings of a report: its cases, a headline for each, the main numbers and the recommended schedule."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from kernels.schemes import BASELINE
from kernels.trial import protocol_text
from kernels.units import num_text, percent_text, ratio_text, seconds_text, spread_text, time_and_spread
from workbench.charts.labels import fabric_label
from workbench.naming import TIMED, baseline_title, operator_title
from workbench.reports.tables import (
    NOTHING,
    Cell,
    ReportColumn,
    Table,
    is_failure,
    markdown_text,
    parts_of,
    schedule_text,
    shown_cell,
    value_text,
)
from workbench.results import comparison, metrics
from workbench.results.comparison import missing_better_baselines
from workbench.results.metrics import FLOOR, JOINED, agreed_in_block
from workbench.results.quiet import distrust
from workbench.results.rows import PROBLEM, Key, Row, by_problem, computation_of, is_stop, problem_of, row_compared_as
from workbench.results.verdict import FASTER, NOT_CERTAIN, Verdict, decide

# A case is one problem of one run; its rows share a floor, a baseline and a fastest schedule.

SCHEDULE = ("scheme", "axes")


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of one problem of one run. Rows of one block share the numbers of JOINED."""

    whole: tuple[Row, ...]
    parts: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows except those that a stop left out."""
        return tuple(row for row in (*self.whole, *self.parts) if not is_stop(row))

    @property
    def stopped(self) -> list[Row]:
        """Schedules that were not measured because the run was stopped."""
        return [row for row in self.whole if is_stop(row)]

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.whole if is_failure(row) and not is_stop(row)]

    @property
    def leading(self) -> list[Row]:
        """The schedules to compare, best first: timed ones, or estimates where nothing was timed."""
        return comparison.leading(self.whole)

    @property
    def is_timed(self) -> bool:
        """Whether a schedule was timed."""
        return any(row.get("source") in TIMED for row in self.leading)

    @property
    def fastest(self) -> Row | None:
        return comparison.fastest(self.whole)

    def baselines(self, row: Row) -> list[Row]:
        """The schedules in the block of *row* that do not overlap, fastest first; its ratio is to the first."""
        return comparison.baselines(row, self.whole)

    @property
    def overlapping(self) -> list[Row]:
        """The schedules that overlap, best first."""
        return [row for row in self.leading if row.get("scheme") != BASELINE]

    @property
    def alike(self) -> list[Row]:
        """The schedules that may be as fast as the best one: the verdict is open, and the ranges overlap."""
        return [row for row in self._undecided if _overlaps(row, self.leading[0])]

    @property
    def doubtful(self) -> list[Row]:
        """The schedules whose times are apart from the best one's, though the verdict is open: `doubt` says why."""
        return [row for row in self._undecided if not _overlaps(row, self.leading[0])]

    @property
    def doubt(self) -> str:
        """Why it is not certain that those of `doubtful` are slower, as a clause; empty if there are none."""
        if not (rows := self.doubtful):
            return ""
        rounds = min(decide(self.leading[0], row).rounds for row in rows)
        return distrust([self.leading[0], *rows]) or f"{num_text(rounds, 'paired round')} cannot tell"

    @property
    def _undecided(self) -> list[Row]:
        """Rows of the best one's block whose verdict is open; estimates decide nothing."""
        fastest_known = comparison.fastest_of(self.whole)
        return [] if fastest_known is None else [*fastest_known.near]

    @property
    def comparison_note(self) -> str:
        """A message about schedules that cannot be compared, and what to do; empty if all can be."""
        return comparison.comparison_note(self.whole)


def _overlaps(row: Row, best: Row) -> bool:
    """Whether the range of *row* begins below the end of that of *best*; True where one has no range."""
    low_s, high_s = row.get("low_s"), best.get("high_s")
    return low_s is None or high_s is None or low_s <= high_s


def cases(rows: Sequence[Row]) -> list[Case]:
    """The cases of *rows*, in the order of their first rows."""
    whole, parts = parts_of(rows)
    grouped = by_problem(_with_protocol(whole))
    known = [_case(same, [part for part in parts if _is_part_of(part, same[0])]) for same in grouped.values()]
    homeless = [part for part in parts if not any(_is_part_of(part, same[0]) for same in grouped.values())]
    return [*known, Case((), tuple(homeless))] if homeless else known


def titles(of: Sequence[Case]) -> list[str]:
    """A title for each case from what differs between them: operator, sizes, ranks, link."""
    parts: list[list[str]] = [[] for _ in of]
    for key in PROBLEM:
        values = [_value(case, key) for case in of]
        groups: dict[tuple[str, ...], set[str]] = {}
        for title, value in zip(parts, values, strict=True):
            groups.setdefault(tuple(title), set()).add(value)
        several = [len(groups[tuple(title)]) > 1 for title in parts]
        for title, value, differs in zip(parts, values, several, strict=True):
            title += [value] if differs else []
    return [", ".join(title) for title in parts]


def problem_text(key: str, value: Any) -> str:
    """*value* of the column *key* of `PROBLEM`, as text."""
    if key == "operator":
        return operator_title(value)
    if key == "fabric" and isinstance(value, str):
        return fabric_label(value)
    if key == "world" and value is not None:
        return f"{value} rank{'s' * (value != 1)}"
    if key == "protocol" and isinstance(value, str):
        return protocol_text(value).removeprefix("protocol ")
    return value_text(key, value)


def _value(case: Case, key: str) -> str:
    row = case.whole[0] if case.whole else case.parts[0]
    return problem_text(key, row.get(key))


def _case(whole: Sequence[Row], parts: Sequence[Row]) -> Case:
    """The case of these rows. Its estimates get the timed floor, and JOINED of the block that timed their schedule."""
    settled = agreed_in_block(whole)
    timed = [row for row in settled if row.get("source") in TIMED and not is_failure(row)]
    homes = {_text(row, SCHEDULE): row for row in reversed(timed)}
    only: Row = timed[0] if len({row.get("block") for row in timed}) == 1 else {}
    if timed:
        for row in settled:
            if row.get("source") == "estimated":
                home = homes.get(_text(row, SCHEDULE), only)
                row.update({key: home.get(key) for key in JOINED} | {FLOOR: timed[0].get(FLOOR)})
    return Case(tuple(settled), tuple(parts))


def _is_part_of(part: Row, whole: Row) -> bool:
    """Whether *part* belongs to *whole*.

    Computation alone has no link, and protocols may differ, but for what they time.
    """
    if row_compared_as(part) != row_compared_as(whole):
        return False
    same = computation_of if part.get("part") == "compute" else problem_of
    return same({**part, "protocol": None}) == same({**whole, "protocol": None})


def _with_protocol(rows: Sequence[Row]) -> list[Row]:
    """*rows* with a protocol: an estimate without one gets the first with which its problem was timed."""
    first: dict[Key, Any] = {}
    for row in rows:
        if row.get("protocol") is not None:
            first.setdefault(problem_of({**row, "protocol": None}), row["protocol"])
    return [row if row.get("protocol") is not None else {**row, "protocol": first.get(problem_of(row))} for row in rows]


def _text(row: Row, keys: Sequence[str]) -> str:
    return json.dumps([row.get(key) for key in keys], sort_keys=True, default=str)


# The headline of a case in one sentence, and the recommended schedule with its spread.

NAMED = 3
"""The most tied schedules that are named; the others are counted."""
SMALL_GAIN = 1.1
"""Gains below this ratio are written in per cent."""


def headline(case: Case) -> str:
    """The result for one problem. A ratio names its baseline, the best sequential schedule of the same block."""
    best, overlapping = case.fastest, case.overlapping
    if best is None:
        return _nothing(case)
    if not overlapping:
        text = f"{_took(best, case)}{_bounds(best)}; {_missing(case, 'no schedule that overlaps')}"
    elif _baseline_leads_elsewhere(case):
        elsewhere = _against_baseline(overlapping[0], case)
        text = f"{_took(best, case)}{_bounds(best)}: the best in shares of the baseline. In another block: {elsewhere}"
    elif not _is_comparable(case):
        missing = _missing(case, "no sequential schedule")
        text = f"{_took(best, case)}{_bounds(best)}; {missing}, so that the gain is unknown"
    else:
        text = _against_baseline(overlapping[0], case)
    if not case.is_timed:
        text = f"Estimated, nothing was run: {text}"
    return f"{text}.{_failures(case)}"


def _is_comparable(case: Case) -> bool:
    """Whether the best overlapping schedule has a baseline in its block, and none of another block is faster."""
    known = any(metrics.gain(row) is not None and case.baselines(row) for row in case.overlapping[:1])
    return known and not _baseline_leads_elsewhere(case)


def _baseline_leads_elsewhere(case: Case) -> bool:
    """Whether a sequential schedule of another block than the best overlapping one's is the fastest."""
    best, overlapping = case.fastest, case.overlapping[:1]
    return (
        best is not None
        and best.get("scheme") == BASELINE
        and any(best.get("block") != row.get("block") and case.baselines(row) for row in overlapping)
    )


def _against_baseline(row: Row, case: Case) -> str:
    """The comparison of *row* with the fastest sequential schedule of its block, as text."""
    plain, count = case.baselines(row)[0], len(case.baselines(row))
    which = f"the best of {count} sequential schedules" if count > 1 else "the sequential schedule"
    by = "".join(f", {how}" for how in (baseline_title(plain.get("axes")),) if how)
    faster = missing_better_baselines(case.leading).get(row.get("block")) if case.is_timed else None
    faster_elsewhere = f"; in another block {baseline_title(faster.get('axes'))} was faster" if faster else ""
    base = f"{which} ({seconds_text(plain['time_s'])}{by}{faster_elsewhere})"
    verdict = comparison.over_baseline(row, plain, case.whole)
    ratio = comparison.paired_gain(row, plain) or 1.0
    if case.is_timed and not verdict.is_certain:
        return f"{_took(row, case)}{_bounds(row)}; whether it beats {base} is not certain: {verdict.why_paired}"
    is_faster = verdict.word == FASTER or (not case.is_timed and ratio > 1)
    interval = _range(ratio, verdict, is_faster=is_faster)
    paired = f"; {interval}in {num_text(verdict.rounds, 'paired round')}" if case.is_timed else ""
    gained = _gain_phrase(ratio, is_faster=is_faster)
    if is_faster:
        return f"{_took(row, case)}, {gained} than {base}{_bounds(row)}{paired}"
    return f"No schedule beats {base}{_bounds(plain)}: {_took(row, case)}, {gained}{paired}"


def _took(row: Row, case: Case) -> str:
    return f"{schedule_phrase(row, case.whole)} takes {seconds_text(row['time_s'])}"


def schedule_phrase(row: Row, rows: Sequence[Row]) -> str:
    """The scheme, and the axes that distinguish its schedule in *rows*: `fused with tiles per slice 8`."""
    scheme, _, axes = schedule_text(row, rows).partition(", ")
    return f"{scheme} with {axes}" if axes else scheme


def _in_per_cent(ratio: float, *, is_faster: bool) -> bool:
    """Whether the named *ratio*, and with it its interval, is written in per cent."""
    return ratio < SMALL_GAIN if is_faster else ratio > 0.5


def _amount(ratio: float, *, is_faster: bool, in_per_cent: bool) -> str:
    """*ratio* in its unit, as a gain or as a loss: `1.47x`, `8 %`."""
    known = ratio if is_faster else 1 / ratio
    return percent_text(known - 1) if in_per_cent else ratio_text(known)


def _gain_phrase(ratio: float, *, is_faster: bool) -> str:
    """The named *ratio*: `1.47x faster`, `8 % slower`, `2.50x as long`."""
    in_per_cent = _in_per_cent(ratio, is_faster=is_faster)
    how = "faster" if is_faster else "slower" if in_per_cent else "as long"
    return f"{_amount(ratio, is_faster=is_faster, in_per_cent=in_per_cent)} {how}"


def _range(ratio: float, verdict: Verdict, *, is_faster: bool) -> str:
    """The interval in the unit of the named *ratio*, `1.47x to 1.84x `; empty where so few rounds have none, and where
    both ends are the same text."""
    if verdict.low is None or verdict.high is None:
        return ""
    in_per_cent = _in_per_cent(ratio, is_faster=is_faster)
    bounds = (verdict.low, verdict.high) if is_faster else (verdict.high, verdict.low)
    low, high = (_amount(bound, is_faster=is_faster, in_per_cent=in_per_cent) for bound in bounds)
    return "" if low == high else f"{low} to {high} "


def _bounds(row: Row) -> str:
    """Its distance to the floor, and the ranks on which its result was verified, as text."""
    parts = []
    if row.get("floor_s"):
        parts.append(floor_text(metrics.above_floor(row["time_s"], row["floor_s"])))
    if row.get("correct") is True and row.get("world"):
        parts.append(f"verified on {row['world']} rank{'s' * (row['world'] != 1)}")
    return "".join(f", {part}" for part in parts)


def floor_text(share: float) -> str:
    """*share*, the time over its floor less 1, as text; a negative one means that one of the two was disturbed."""
    if abs(share) < 0.005:
        return "at the floor"
    if share < 0:
        return f"{percent_text(-share)} below a floor that was disturbed while it was timed"
    return f"{percent_text(share)} above the floor" if share < 1 else f"{ratio_text(1 + share)} the floor"


def _missing(case: Case, what: str) -> str:
    return f"{what} was {'timed' if case.is_timed else 'estimated'} with it"


def _nothing(case: Case) -> str:
    """Why a case has no time."""
    if case.failed:
        return f"Nothing was timed.{_failures(case)}"
    return "Nothing was timed: the run was stopped before." if case.stopped else "This run has no schedule."


def _failures(case: Case) -> str:
    stages = Counter(str(row.get("stage") or "unknown") for row in case.failed)
    if not stages:
        return ""
    total = len({str(row.get("key")) if row.get("key") else id(row) for row in (*case.leading, *case.failed)})
    how = ", ".join(f"{count} {stage}" for stage, count in stages.items())
    return f" {len(case.failed)} of {total} schedules failed ({how})."


def overall(of: Sequence[Case]) -> str:
    """The result for several problems: on how many of them overlap is faster, and by how much."""
    judged = [case for case in of if _is_comparable(case)]
    pairs = [(case.overlapping[0], case.baselines(case.overlapping[0])[0], case) for case in judged]
    distinct = [(row, plain) for row, plain, case in pairs
                if not case.is_timed or comparison.over_baseline(row, plain, case.whole).is_certain]  # fmt: skip
    gains = sorted(ratio for row, plain in distinct if (ratio := comparison.paired_gain(row, plain)) is not None)
    won = [gain for gain in gains if gain > 1]
    if not judged:
        return f"{len(of)} problems; on none of them were overlapping and sequential schedules timed together."
    spread = " to ".join(dict.fromkeys(map(ratio_text, (won[0], won[-1])))) if won else ""
    by = f", {spread} faster than the best sequential schedule of each" if won else ""
    rest = [f"{count} {word}" for count, word in ((len(judged) - len(gains), "not certain"),
            (len(gains) - len(won), "slower"), (len(of) - len(judged), "not comparable")) if count]  # fmt: skip
    text = f"Overlap is faster on {len(won)} of {len(of)} problems{by}{'; ' if rest else ''}{', '.join(rest)}."
    return text if any(case.is_timed for case in of) else f"Estimated, nothing was run: {text[0].lower()}{text[1:]}"


def ending(status: str | None, num_timed: int) -> str:
    """A warning if a run did not finish, to be read before its numbers; otherwise empty."""
    timed = f"{num_timed} schedule{'s' * (num_timed != 1)} had been timed" if num_timed else "anything was timed"
    after = f"after {timed}" if num_timed else f"before {timed}"
    match status:
        case None | "" | "finished":
            return ""
        case "cancelled":
            return f"Stopped {after}."
        case "refused":
            return "Refused before anything was timed."
        case "running":
            return f"Still running when this was written, {after}."
        case "lost":
            return f"Its process ended without a message {after}."
    return f"Ended early, {after}: {status.rstrip('.')}."


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The schedule to take, and those that may be as fast."""

    row: Row
    schedule: str
    """`fused, tiles per slice 8`."""
    time: str
    """`47.3 ms (46.0 to 49.1)`."""
    ties: tuple[str, ...]
    """Schedule and time of each that may be as fast, the fastest first."""
    doubtful: tuple[str, ...]
    """Schedule and time of each that took longer, though that is not certain, the fastest first."""
    doubt: str
    is_timed: bool

    @property
    def message(self) -> str:
        head = "Recommended" if self.is_timed else "Worth measuring first"
        within = f" These may be as fast: {_some(self.ties)}." if self.ties else ""
        apart = f" Not certain to be slower, because {self.doubt}: {_some(self.doubtful)}." if self.doubtful else ""
        return f"{head}: {self.schedule}: {self.time}.{within}{apart}"


def _some(names: Sequence[str]) -> str:
    """The first few of *names*, and how many more there are."""
    more = len(names) - NAMED
    return "; ".join([*names[:NAMED], *([f"{more} more"] if more > 0 else [])])


def recommendation(case: Case) -> Recommendation | None:
    """The fastest schedule with its middle 80 %; None if no schedule has a time."""
    if case.fastest is None:
        return None

    def named(rows: Sequence[Row]) -> tuple[str, ...]:
        return tuple(f"{schedule_text(row, case.whole)}: {_time(row)}" for row in rows)

    schedule, time = schedule_text(case.fastest, case.whole), _time(case.fastest)
    return Recommendation(case.fastest, schedule, time, named(case.alike), named(case.doubtful), case.doubt,
                          case.is_timed)  # fmt: skip


def _time(row: Row) -> str:
    return spread_text(row["time_s"], row.get("low_s"), row.get("high_s"))


# Cells of a report: the headline, the recommendation, the main numbers.


def lead(of: Sequence[Case], status: str | None) -> NotebookNode:
    """The headline cell: a warning if the run did not finish, then the result."""
    timed = sum(len(case.leading) for case in of if case.is_timed)
    stop = ending(status, timed)
    message = headline(of[0]) if len(of) == 1 else overall(of) if of else "Nothing came back."
    alarm = Markup('<strong class="wb-stop">{}</strong> ').format(stop) if stop else Markup("")
    html = Markup('<p class="wb-lead">{}{}</p>').format(alarm, message)
    markdown = f"**{markdown_text(stop)}** {markdown_text(message)}" if stop else markdown_text(message)
    return shown_cell(html, markdown, f"{stop} {message}".strip())


def recommended(case: Case) -> list[NotebookNode]:
    """A cell with the recommended schedule and those that tie with it."""
    advice = recommendation(case)
    if advice is None:
        return []
    head, _, rest = advice.message.partition(": ")
    html = Markup('<p class="wb-advice"><strong>{}:</strong> {}</p>').format(head, rest)
    return [shown_cell(html, f"**{head}:** {markdown_text(rest)}", advice.message)]


def in_short(of: Sequence[Case], mark: str) -> list[NotebookNode]:
    """Cells with one line for each of several problems: its fastest schedule, and the gain over the baseline."""
    known = [(title, case) for title, case in zip(titles(of), of, strict=True) if case.fastest is not None]
    if not known:
        return []
    headings = ("Problem", "Fastest", "Time", "Best sequential", "Gain", "Above the floor")
    columns = tuple(ReportColumn(heading=name, figure=place in (2, 3, 4)) for place, name in enumerate(headings))
    table = Table(columns=columns, rows=tuple(_line(title, case) for title, case in known))
    return [new_markdown_cell(f"{mark} In short"), table.to_cell()]


def _line(title: str, case: Case) -> tuple[Cell, ...]:
    best = case.leading[0]
    plain = next(iter(case.baselines(best)), None)
    ratio = None if plain is None else comparison.paired_gain(best, plain)
    gain = NOTHING
    if plain is not None and best is not plain and ratio is not None:
        is_certain = not case.is_timed or comparison.over_baseline(best, plain, case.whole).is_certain
        gain = ratio_text(ratio) if is_certain else f"{ratio_text(ratio)}, {NOT_CERTAIN}"
    scheme, _, axes = schedule_text(best, case.whole).partition(", ")
    floor_s = best.get("floor_s")
    above = floor_text(metrics.above_floor(best["time_s"], floor_s)) if floor_s else NOTHING
    tied = f"{len(case.alike)} more may be as fast" if case.alike else ""
    return (
        Cell(title), Cell(scheme, ", ".join(filter(None, (axes, tied)))), _timed(best),
        Cell(NOTHING) if plain is None else Cell(value_text("time_s", plain["time_s"]), _collective(plain)),
        Cell(gain), Cell(above.removesuffix(" above the floor")),
    )  # fmt: skip


def cards(facts: Mapping[str, Any], case: Case) -> list[NotebookNode]:
    """A cell with the main numbers of one problem, each with what it belongs to."""
    numbers = _cards(facts, case)
    if not numbers:
        return []
    card = Markup('<div class="wb-card"><div class="wb-number">{}</div><div class="wb-label">{}</div>{}</div>')
    aside = Markup('<div class="wb-aside">{}</div>')
    html = Markup("").join(card.format(value, name, aside.format(more)) for name, value, more in numbers)
    text = "\n".join(f"- {markdown_text(n)}: **{markdown_text(v)}** {markdown_text(more)}" for n, v, more in numbers)
    plain = "; ".join(f"{name}: {value} {more}".strip() for name, value, more in numbers)
    return [shown_cell(Markup('<div class="wb-cards">{}</div>').format(html), text, plain)]


def _cards(facts: Mapping[str, Any], case: Case) -> list[tuple[str, str, str]]:
    """Name, number and remark of each card."""
    best = case.fastest
    if best is None:
        return []
    shown = [(f"Fastest {best['source']}", best, schedule_text(best, case.whole))]
    baselines = case.baselines(best)
    if baselines and baselines[0] is not best:
        plain = baselines[0]
        name = "Best sequential" if len(baselines) > 1 else "Sequential"
        shown.append((f"{name}, {plain['source']}", plain, _collective(plain)))
    alike = [row for row in case.whole if row.get("source") == "estimated" and not is_failure(row)
             and all(row.get(key) == best.get(key) for key in ("scheme", "axes"))]  # fmt: skip
    if case.is_timed and alike:
        unfitted = "the simulator, not calibrated here" if alike[0].get("calibrated") is False else "the simulator"
        shown.append(("Estimated for the fastest", alike[0], unfitted))
    numbers = [(name, *number(row, more)) for name, row, more in shown]
    if best.get("floor_s") is not None:
        numbers.append(("Floor", value_text("floor_s", best["floor_s"]), "no schedule can be faster"))
    if facts.get("guess_s") is not None:
        numbers.append(("The guess", value_text("guess_s", facts["guess_s"]), "before anything was run"))
    return numbers


def number(row: Row, more: str = "") -> tuple[str, str]:
    """The time of *row*, and its range with the remark *more*."""
    time, spread = time_and_spread(row["time_s"], row.get("low_s"), row.get("high_s"))
    return time, ", ".join(filter(None, (spread, more)))


def _timed(row: Row) -> Cell:
    return Cell(*number(row))


def _collective(row: Row) -> str:
    return baseline_title(row.get("axes")) or "nothing overlaps"
