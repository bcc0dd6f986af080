"""What the numbers of a case say in one sentence, and which schedule they recommend, with its spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.schemes import BASELINE
from kernels.units import percent_text, ratio_text, seconds_text, spread_text
from workbench import metrics
from workbench.naming import baseline_title
from workbench.outdone import outdone
from workbench.reports.cases import Case
from workbench.reports.outcomes import schedule_text

Row = Mapping[str, Any]

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
    faster = outdone(case.leading).get(row.get("block")) if case.is_timed else None
    beaten = f"; another block tells {baseline_title(faster.get('axes'))} to be faster" if faster else ""
    base = f"{which} ({seconds_text(plain['time_s'])}{by}{beaten})"
    ratio = metrics.gain(row) or 1.0
    if case.is_timed and not metrics.apart(row, plain):
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
    distinct = [row for row, plain, is_timed in pairs if not is_timed or metrics.apart(row, plain)]
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
