"""What somebody opens a report for: the sentence that the numbers make, the few numbers, the schedule to take."""

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
from kernels.trial import protocol_words
from kernels.units import percent_text, ratio_text, seconds_text, spread_text, time_and_spread
from workbench.charts.labels import fabric_words
from workbench.naming import TIMED, baseline_title, operator_title
from workbench.reports.tables import (
    NOTHING,
    Cell,
    ReportColumn,
    Table,
    is_failure,
    is_stop,
    markdown_text,
    parts_of,
    schedule_text,
    shown_cell,
    value_text,
)
from workbench.reports.tables import (
    Row as TablesRow,
)
from workbench.results import comparison, metrics
from workbench.results.comparison import missing_better_baselines
from workbench.results.metrics import FLOOR, JOINED, agreed_in_block
from workbench.results.rows import PROBLEM, Key, by_problem, computation_of, problem_of

# A case: one problem of one run, with what was timed of it together; it has one floor, one baseline, one fastest.

Row = Mapping[str, Any]

SCHEDULE = ("scheme", "axes")


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of one problem of one run. The rows of one block share the numbers of JOINED."""

    whole: tuple[Row, ...]
    parts: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """What was tried: everything but what a stop left out."""
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
        """The schedules that a reader goes by, best first: timed ones, or estimates where nothing was timed."""
        return comparison.leading(self.whole)

    @property
    def is_timed(self) -> bool:
        """Whether anything was timed at all."""
        return any(row.get("source") in TIMED for row in self.leading)

    @property
    def fastest(self) -> Row | None:
        return comparison.fastest(self.whole)

    def baselines(self, row: Row) -> list[Row]:
        """The schedules of the block of *row* that do not overlap, fastest first: its ratio is to the first."""
        return comparison.baselines(row, self.whole)

    @property
    def overlapping(self) -> list[Row]:
        """The other schedules, best first."""
        return [row for row in self.leading if row.get("scheme") != BASELINE]

    @property
    def alike(self) -> list[Row]:
        """The schedules whose spread touches the best one's. Estimates have a range, and no spread."""
        return comparison.indistinguishable(self.whole)

    @property
    def together(self) -> str:
        """Which schedules have no ratio to which, and what to do; empty where all of it compares."""
        return comparison.comparison_note(self.whole)


def cases(rows: Sequence[Row]) -> list[Case]:
    """The cases of *rows* in the order in which they were first heard of."""
    whole, parts = parts_of(rows)
    grouped = by_problem(_with_protocol(whole))
    made = [_case(same, [part for part in parts if _is_part_of(part, same[0])]) for same in grouped.values()]
    homeless = [part for part in parts if not any(_is_part_of(part, same[0]) for same in grouped.values())]
    return [*made, Case((), tuple(homeless))] if homeless else made


def titles(of: Sequence[Case]) -> list[str]:
    """What tells each of the cases from the others: the operator where there are several, then sizes, ranks, link."""
    parts: list[list[str]] = [[] for _ in of]
    for key in PROBLEM:
        values = [_value(case, key) for case in of]
        groups: dict[tuple[str, ...], set[str]] = {}
        for words, value in zip(parts, values, strict=True):
            groups.setdefault(tuple(words), set()).add(value)
        several = [len(groups[tuple(words)]) > 1 for words in parts]
        for words, value, differs in zip(parts, values, several, strict=True):
            words += [value] if differs else []
    return [", ".join(words) for words in parts]


def problem_text(key: str, value: Any) -> str:
    """*value* of one of `PROBLEM` for people."""
    if key == "operator":
        return operator_title(value)
    if key == "fabric" and isinstance(value, str):
        return fabric_words(value)
    if key == "world" and value is not None:
        return f"{value} rank{'s' * (value != 1)}"
    if key == "protocol" and isinstance(value, str):
        return protocol_words(value).removeprefix("protocol ")
    return value_text(key, value)


def _value(case: Case, key: str) -> str:
    row = case.whole[0] if case.whole else case.parts[0]
    return problem_text(key, row.get(key))


def _case(whole: Sequence[Row], parts: Sequence[Row]) -> Case:
    """Where anything was timed an estimate has the floor of that, and the rest of the block that timed its schedule."""
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
    """Computation alone crosses no link, and what resolves a link has a protocol of its own."""
    same = computation_of if part.get("part") == "compute" else problem_of
    return same({**part, "protocol": None}) == same({**whole, "protocol": None})


def _with_protocol(rows: Sequence[Row]) -> list[Row]:
    """*rows* with a protocol: an estimate that states none is of the first one that its problem was timed with."""
    first: dict[Key, Any] = {}
    for row in rows:
        if row.get("protocol") is not None:
            first.setdefault(problem_of({**row, "protocol": None}), row["protocol"])
    return [row if row.get("protocol") is not None else {**row, "protocol": first.get(problem_of(row))} for row in rows]


def _text(row: Row, keys: Sequence[str]) -> str:
    return json.dumps([row.get(key) for key in keys], sort_keys=True, default=str)


# What the numbers of a case say in one sentence, and which schedule they recommend, with its spread.

NAMED = 3
"""So many schedules that tie are named, the others are counted."""
SMALL_GAIN = 1.1
"""Below this a gain is told in per cent: 1.04x says little."""


def headline(case: Case) -> str:
    """What was found for one problem, win or not. A ratio names its baseline: the best sequential of the same block."""
    best, overlapping = case.fastest, case.overlapping
    if best is None:
        return _nothing(case)
    if not overlapping:
        said = f"{_took(best, case)}{_bounds(best)}; {_missing(case, 'no schedule that overlaps')}"
    elif _is_elsewhere(case):
        there = _against(overlapping[0], case)
        said = f"{_took(best, case)}{_bounds(best)}: the best in shares of the baseline. In another block: {there}"
    elif not _is_judged(case):
        missing = _missing(case, "no sequential schedule")
        said = f"{_took(best, case)}{_bounds(best)}; {missing}, so that no gain can be told"
    else:
        said = _against(overlapping[0], case)
    if not case.is_timed:
        said = f"Estimated, nothing was run: {said}"
    return f"{said}.{_failures(case)}"


def _is_judged(case: Case) -> bool:
    """Whether the best schedule that overlaps can be compared: a sequential one stands in its block, and none leads."""
    known = any(metrics.gain(row) is not None and case.baselines(row) for row in case.overlapping[:1])
    return known and not _is_elsewhere(case)


def _is_elsewhere(case: Case) -> bool:
    """Whether a sequential schedule leads that was not timed beside the best that overlaps."""
    best, overlapping = case.fastest, case.overlapping[:1]
    return (
        best is not None
        and best.get("scheme") == BASELINE
        and any(best.get("block") != row.get("block") and case.baselines(row) for row in overlapping)
    )


def _against(row: Row, case: Case) -> str:
    """The fastest schedule that overlaps beside the fastest of its block that does not."""
    plain, count = case.baselines(row)[0], len(case.baselines(row))
    which = f"the best of {count} sequential schedules" if count > 1 else "the sequential schedule"
    by = "".join(f", {how}" for how in (baseline_title(plain.get("axes")),) if how)
    faster = missing_better_baselines(case.leading).get(row.get("block")) if case.is_timed else None
    beaten = f"; another block tells {baseline_title(faster.get('axes'))} to be faster" if faster else ""
    base = f"{which} ({seconds_text(plain['time_s'])}{by}{beaten})"
    ratio = metrics.gain(row) or 1.0
    if case.is_timed and not metrics.distinguishable(row, plain):
        return f"{_took(row, case)}{_bounds(row)}: within the spread of {base}, so that nothing tells which is faster"
    if ratio > 1:
        return f"{_took(row, case)}, {_faster(ratio)} than {base}{_bounds(row)}"
    return f"No schedule beats {base}{_bounds(plain)}: {_took(row, case)}, {_slower(ratio)}"


def _took(row: Row, case: Case) -> str:
    return f"{schedule_words(row, case.whole)} takes {seconds_text(row['time_s'])}"


def schedule_words(row: Row, rows: Sequence[Row]) -> str:
    """The scheme, and what tells its schedule from the others of *rows*: `fused with tiles per slice 8`."""
    scheme, _, axes = schedule_text(row, rows).partition(", ")
    return f"{scheme} with {axes}" if axes else scheme


def _faster(ratio: float) -> str:
    return f"{ratio_text(ratio)} faster" if ratio >= SMALL_GAIN else f"{percent_text(ratio - 1)} faster"


def _slower(ratio: float) -> str:
    return f"{ratio_text(1 / ratio)} as long" if ratio <= 0.5 else f"{percent_text(1 / ratio - 1)} slower"


def _bounds(row: Row) -> str:
    """How far it is above its floor, and whether its result was compared with the reference."""
    parts = []
    if row.get("floor_s"):
        parts.append(floor_words(metrics.above_floor(row["time_s"], row["floor_s"])))
    if row.get("correct") is True and row.get("world"):
        parts.append(f"verified on {row['world']} rank{'s' * (row['world'] != 1)}")
    return "".join(f", {part}" for part in parts)


def floor_words(share: float) -> str:
    """*share* is what the time is more than its floor; below it one of the two was disturbed."""
    if abs(share) < 0.005:
        return "at the floor"
    if share < 0:
        return f"{percent_text(-share)} below a floor that was disturbed while it was timed"
    return f"{percent_text(share)} above the floor" if share < 1 else f"{ratio_text(1 + share)} the floor"


def _missing(case: Case, what: str) -> str:
    return f"{what} was {'timed' if case.is_timed else 'estimated'} beside it"


def _nothing(case: Case) -> str:
    """Without any time: why."""
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
    """Of several problems: on how many overlap wins, and by how much."""
    judged = [case for case in of if _is_judged(case)]
    pairs = [(case.overlapping[0], case.baselines(case.overlapping[0])[0], case.is_timed) for case in judged]
    distinct = [row for row, plain, is_timed in pairs if not is_timed or metrics.distinguishable(row, plain)]
    gains = sorted(ratio for row in distinct if (ratio := metrics.gain(row)) is not None)
    won = [gain for gain in gains if gain > 1]
    if not judged:
        return f"{len(of)} problems; on none of them were overlapping and sequential schedules timed together."
    spread = " to ".join(dict.fromkeys(map(ratio_text, (won[0], won[-1])))) if won else ""
    by = f", {spread} faster than the best sequential schedule of each" if won else ""
    rest = [f"{count} {word}" for count, word in ((len(judged) - len(gains), "within the spread"),
            (len(gains) - len(won), "slower"), (len(of) - len(judged), "not comparable")) if count]  # fmt: skip
    said = f"Overlap is faster on {len(won)} of {len(of)} problems{by}{'; ' if rest else ''}{', '.join(rest)}."
    return said if any(case.is_timed for case in of) else f"Estimated, nothing was run: {said[0].lower()}{said[1:]}"


def ending(status: str | None, num_timed: int) -> str:
    """How a run ended, where that is not as it should have: what a reader must know before its numbers."""
    timed = f"{num_timed} schedule{'s' * (num_timed != 1)} had been timed" if num_timed else "anything was timed"
    after = f"after {timed}" if num_timed else f"before {timed}"
    match status:
        case None | "" | "finished":
            return ""
        case "cancelled":
            return f"Stopped {after}."
        case "running":
            return f"Still running when this was written, {after}."
        case "lost":
            return f"Its process ended without a word {after}."
    return f"Ended early, {after}: {status.rstrip('.')}."


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The schedule to take, and those that nothing tells from it."""

    row: Row
    schedule: str
    """`fused, tiles per slice 8`."""
    time: str
    """`47.3 ms (46.0 to 49.1)`."""
    ties: tuple[str, ...]
    """The same of each that lies within its spread, the fastest first."""
    is_timed: bool

    @property
    def sentence(self) -> str:
        head = "Recommended" if self.is_timed else "Worth measuring first"
        named, more = self.ties[:NAMED], len(self.ties) - NAMED
        tied = "; ".join([*named, *([f"{more} more"] if more > 0 else [])])
        within = f" Within its spread, so nothing tells them apart: {tied}." if tied else ""
        return f"{head}: {self.schedule}: {self.time}.{within}"


def recommendation(case: Case) -> Recommendation | None:
    """The fastest schedule with its middle 80 %; None where nothing has a time."""
    if case.fastest is None:
        return None
    named = [(schedule_text(row, case.whole), _time(row)) for row in (case.fastest, *case.alike)]
    (schedule, time), *ties = named
    return Recommendation(case.fastest, schedule, time, tuple(f"{name}: {tied}" for name, tied in ties), case.is_timed)


def _time(row: Row) -> str:
    return spread_text(row["time_s"], row.get("low_s"), row.get("high_s"))


# What somebody opens a report for: the sentence that the numbers make, the few numbers, the schedule to take.


def lead(of: Sequence[Case], status: str | None) -> NotebookNode:
    """The headline: how the run ended where it did not finish, then what was found."""
    timed = sum(len(case.leading) for case in of if case.is_timed)
    stop = ending(status, timed)
    sentence = headline(of[0]) if len(of) == 1 else overall(of) if of else "Nothing came back."
    alarm = Markup('<strong class="wb-stop">{}</strong> ').format(stop) if stop else Markup("")
    html = Markup('<p class="wb-lead">{}{}</p>').format(alarm, sentence)
    words = f"**{markdown_text(stop)}** {markdown_text(sentence)}" if stop else markdown_text(sentence)
    return shown_cell(html, words, f"{stop} {sentence}".strip())


def recommended(case: Case) -> list[NotebookNode]:
    """The schedule to take with its spread, and those that tie with it."""
    advice = recommendation(case)
    if advice is None:
        return []
    head, _, rest = advice.sentence.partition(": ")
    html = Markup('<p class="wb-advice"><strong>{}:</strong> {}</p>').format(head, rest)
    return [shown_cell(html, f"**{head}:** {markdown_text(rest)}", advice.sentence)]


def in_short(of: Sequence[Case], mark: str) -> list[NotebookNode]:
    """Of several problems one line each: what to take, and what it gains over the best that does not overlap."""
    known = [(title, case) for title, case in zip(titles(of), of, strict=True) if case.fastest is not None]
    if not known:
        return []
    headings = ("Problem", "Fastest", "Time", "Best sequential", "Gain", "Above the floor")
    columns = tuple(ReportColumn(heading=name, figure=place in (2, 3, 4)) for place, name in enumerate(headings))
    table = Table(columns=columns, rows=tuple(_line(title, case) for title, case in known))
    return [new_markdown_cell(f"{mark} In short"), table.to_cell()]


def _line(title: str, case: Case) -> tuple[Cell, ...]:
    best = case.leading[0]
    plain, ratio = next(iter(case.baselines(best)), None), metrics.gain(best)
    gain = NOTHING
    if plain is not None and best is not plain and ratio is not None:
        close = case.is_timed and not metrics.distinguishable(best, plain)
        gain = "within the spread" if close else ratio_text(ratio)
    scheme, _, axes = schedule_text(best, case.whole).partition(", ")
    floor_s = best.get("floor_s")
    above = floor_words(metrics.above_floor(best["time_s"], floor_s)) if floor_s else NOTHING
    tied = f"{len(case.alike)} more within its spread" if case.alike else ""
    return (
        Cell(title), Cell(scheme, ", ".join(filter(None, (axes, tied)))), _timed(best),
        Cell(NOTHING) if plain is None else Cell(value_text("time_s", plain["time_s"]), _collective(plain)),
        Cell(gain), Cell(above.removesuffix(" above the floor")),
    )  # fmt: skip


def cards(facts: Mapping[str, Any], case: Case) -> list[NotebookNode]:
    """The few numbers of one problem: values of its rows, each with what it belongs to."""
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
    """Name, number and what it belongs to."""
    best = case.fastest
    if best is None:
        return []
    shown = [(f"Fastest {best['source']}", best, schedule_text(best, case.whole))]
    beside = case.baselines(best)
    if beside and beside[0] is not best:
        plain = beside[0]
        name = "Best sequential" if len(beside) > 1 else "Sequential"
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


def number(row: TablesRow, more: str = "") -> tuple[str, str]:
    """The time, and its range with what it belongs to."""
    time, spread = time_and_spread(row["time_s"], row.get("low_s"), row.get("high_s"))
    return time, ", ".join(filter(None, (spread, more)))


def _timed(row: TablesRow) -> Cell:
    return Cell(*number(row))


def _collective(row: TablesRow) -> str:
    return baseline_title(row.get("axes")) or "nothing overlaps"
