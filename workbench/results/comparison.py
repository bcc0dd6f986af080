"""Comparison of the schedules of one problem: inside a block by time, between blocks by the share of a baseline.

Every block holds a baseline, so that a computer that was slower for a while moves no schedule up or down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kernels.schemes import BASELINE
from kernels.units import seconds_text
from workbench.naming import TIMED, baseline_title
from workbench.results import verdict
from workbench.results.metrics import agreed_in_block, gain, same_problem
from workbench.results.quiet import caution, least_disturbed
from workbench.results.rows import Key, Row, by_problem, is_timed_whole, problem_of
from workbench.results.verdict import Fastest, Verdict

# Blocks that miss a baseline which another block shows to be faster: their speed-ups would be smaller over it.

T = TypeVar("T")
Beats = Callable[[T, T], bool]
"""Says whether its first argument is faster than its second; both are of one block."""


def better_baseline(
    here: Mapping[str, T], others: Sequence[Mapping[str, T]], seconds: Callable[[T], float], beats: Beats[T]
) -> T | None:
    """The fastest baseline that the block *here* misses and that beats its best one; None if there is none.

    Each block is a table of baselines by schedule. A block of *others* can judge a baseline if it also holds one of
    *here*, since times of two blocks compare only as shares of a common baseline. All blocks that can judge must agree.
    """
    faster: list[T] = []
    for schedule in dict.fromkeys(schedule for there in others for schedule in there if schedule not in here):
        judges = [there for there in others if schedule in there and here.keys() & there]
        if judges and all(_beats_best(there[schedule], (here, there), seconds, beats) for there in judges):
            faster.append(judges[-1][schedule])
    return min(faster, key=seconds, default=None)


def _beats_best(
    baseline: T, blocks: tuple[Mapping[str, T], Mapping[str, T]], seconds: Callable[[T], float], beats: Beats[T]
) -> bool:
    here, there = blocks
    common = min(here.keys() & there, key=lambda schedule: seconds(here[schedule]))
    scale = seconds(here[common]) / seconds(there[common])
    is_shorter = scale * seconds(baseline) < min(map(seconds, here.values()))
    return is_shorter and beats(baseline, there[common])


def beats(row: Row, other: Row) -> bool:
    """Whether the verdict on *row* is that it is faster than *other*."""
    return verdict.decide(row, other).word == verdict.FASTER


def missing_better_baselines(rows: Iterable[Row]) -> dict[Any, Row]:
    """The fastest better baseline that each block misses, by block; *rows* are the whole trials of one problem."""
    by_block: dict[Any, dict[str, Row]] = {}
    for row in rows:
        if row.get("scheme") == BASELINE and row.get("time_s") is not None:
            by_block.setdefault(row.get("block"), {})[str(sorted((row.get("axes") or {}).items()))] = row
    everywhere = list(by_block.values())
    missing = {block: better_baseline(here, everywhere, _seconds, beats) for block, here in by_block.items()}
    return {block: row for block, row in missing.items() if row is not None}


def _seconds(row: Row) -> float:
    return float(row["time_s"])


# The best schedule of a problem, and what its speed-up is over.

MAX_BLOCK_SCHEDULES = 8
"""The most schedules of one block; baselines are not counted."""

NO_BASELINE = "no sequential schedule was timed in the same block"
MEASURE_TOGETHER = (
    f"To compare what was not timed together, measure it again, at most {MAX_BLOCK_SCHEDULES} schedules at once: "
    '`--fresh`, or "Measure again what is known" in the explorer.'
)
"""The advice that follows every missing speed-up."""
SPEED_UPS_COMPARE = "Load and heat may differ. What compares is each run's own speed-up over its baseline."
"""The advice about one schedule in two runs, which cannot be measured together."""


def leading(rows: Sequence[Row]) -> list[Row]:
    """The whole schedules of one problem that have a time, best first; estimates only if none was timed."""
    known = [row for row in rows if row.get("part") in (None, "whole") and row.get("time_s") is not None]
    known = least_disturbed([row for row in known if row.get("source") in TIMED]) or known
    scales = _scales(known)
    by_share = sorted(known, key=lambda row: _share(row, scales))
    best_block = next((row.get("block") for row in by_share if row.get("scheme") != BASELINE), None)
    # a baseline that all blocks hold is the same in each: the one in the block of the best overlapping schedule counts
    return sorted(by_share, key=lambda row: (*_share(row, scales)[:2], row.get("block") != best_block, row["time_s"]))


def fastest(rows: Sequence[Row]) -> Row | None:
    """The best schedule of one problem, or None if none has a time."""
    return next(iter(leading(rows)), None)


def once(rows: Sequence[Row]) -> list[Row]:
    """*rows* with one time for each schedule of a problem: who reads two does not know which one counts.

    A baseline is timed in every block, and a schedule may be both recorded and measured: the first of `leading` stays.
    Parts, failures and estimates stay, too.
    """
    counts = {id(row) for row in _counting(rows).values()}
    return [row for row in rows if id(row) in counts or not is_timed_whole(row)]


def once_each_run(rows: Sequence[Row]) -> list[Row]:
    """*rows* with one time for each schedule of a problem in each run: what charts and tables of runs list."""
    counts = {id(row) for same in _by_run(rows) for row in _counting(same).values()}
    return [row for row in rows if id(row) in counts or not is_timed_whole(row)]


def counting(rows: Sequence[Row]) -> dict[int, Row]:
    """By the `id` of each timed row of *rows* the one that counts for its schedule in its run, by `once_each_run`.

    One that was timed once counts for itself.
    """
    by_timing: dict[int, Row] = {}
    for same in _by_run(rows):
        counts = _counting(same)
        by_timing |= {
            id(row): counts.get((problem_of(row), _schedule(row)), row) for row in same if is_timed_whole(row)
        }
    return by_timing


def _counting(rows: Sequence[Row]) -> dict[tuple[Key, str], Row]:
    """By problem and schedule the timed row of *rows* that counts: the first of `leading`."""
    return {
        (problem, _schedule(row)): row
        for problem, same in by_problem(rows).items()
        for row in reversed(leading(same))
        if row.get("source") in TIMED
    }


def _by_run(rows: Sequence[Row]) -> list[list[Row]]:
    runs: dict[Any, list[Row]] = {}
    for row in rows:
        runs.setdefault(row.get("run"), []).append(row)
    return list(runs.values())


def baselines(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The baselines of the block of *row*, fastest first; its speed-up is over the first."""
    sequential_rows = [other for other in leading(rows) if other.get("scheme") == BASELINE]
    return sorted(
        (other for other in sequential_rows if other.get("block") == row.get("block")), key=lambda each: each["time_s"]
    )


def fastest_of(rows: Sequence[Row]) -> Fastest | None:
    """The best timed schedule of one problem with those that may be as fast; None if none was timed.

    A baseline is in every block: it is compared in that of the best schedule.
    """
    known = leading(rows)
    if not known or known[0].get("source") not in TIMED:
        return None
    best = known[0]
    ordered = sorted(known[1:], key=lambda row: row.get("block") != best.get("block"))
    unique = {_schedule(row): row for row in reversed(ordered) if _schedule(row) != _schedule(best)}
    return verdict.fastest(best, unique.values())


def over_baseline(row: Row, base: Row, rows: Sequence[Row]) -> Verdict:
    """Whether *row* beats *base*; where it is the fastest of *rows*, with all in mind that it was chosen from.

    The fastest of many is ahead by chance more often than one of two: then what `fastest_of` calls as fast is not
    called slower here.
    """
    decided, chosen = verdict.decide(row, base), fastest_of(rows)
    if decided.word != verdict.FASTER or chosen is None or _schedule(chosen.row) != _schedule(row):
        return decided
    if _schedule(base) not in map(_schedule, chosen.near):
        return decided
    why = f"{decided.why}: as the fastest of {chosen.count} it may lead by chance"
    return replace(decided, word=verdict.NOT_CERTAIN, why=why)


def paired_gain(row: Row, base: Row) -> float | None:
    """The speed-up of *row* over *base* that a report names: of paired rounds; of the two times where there are
    none."""
    return verdict.decide(row, base).ratio or gain(row)


def verdict_note(rows: Sequence[Row]) -> str:
    """Whether overlap beats the baseline of its block, and how sure the fastest is; empty without two times."""
    fastest_known = fastest_of(rows)
    if fastest_known is None or fastest_known.count < 2:
        return ""
    sentences, known = [], leading(rows)
    bases = BlockBases.of(known).best
    row = next((each for each in known if each.get("scheme") != BASELINE and same_problem(each) in bases), None)
    if row is not None:
        against = over_baseline(row, bases[same_problem(row)], rows)
        sentences.append(f"{row['scheme']} over {BASELINE} is {against.word}: {against.why}.")
    if fastest_known.count > 2:
        sentences.append(f"{fastest_known.why[0].upper()}{fastest_known.why[1:]}.")
    return " ".join(sentences)


@dataclass(frozen=True, slots=True)
class BlockBases:
    """The best sequential schedule of each block, which the block's speed-ups are over; of any number of problems."""

    best: Mapping[Key, Row]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> BlockBases:
        best: dict[Key, Row] = {}
        for row in rows:
            if row.get("scheme") == BASELINE and row.get("part") in (None, "whole") and row.get("time_s") is not None:
                place = same_problem(row)
                best[place] = min(best.get(place, row), row, key=lambda each: float(each["time_s"]))
        return cls(best)

    def text(self, row: Row) -> str:
        """The baseline of *row*, such as `sequential, collective library, 85.8 ms`; empty if its block has none."""
        base = self.best.get(same_problem(row))
        if base is None:
            return ""
        how = baseline_title(base.get("axes"))
        return ", ".join(filter(None, (BASELINE, how, seconds_text(base["time_s"]))))


def comparison_note(rows: Sequence[Row], advice: str = MEASURE_TOGETHER) -> str:
    """Says whether times of one problem can be trusted, which cannot be compared, and what to do; empty if all can.

    *advice* says how to compare them where the reader is: in a terminal, or on the page.
    """
    known = agreed_in_block([row for row in leading(rows) if row.get("source") in TIMED])
    # on GPU ranks a first block tries all baselines; other blocks hold only those that matter there
    blocks = {row.get("block") for row in known if row.get("scheme") != BASELINE} or {row.get("block") for row in known}
    without_gain = sum(gain(row) is None for row in known)
    notes = []
    if len(blocks) > 1:
        notes.append(f"Timed in {len(blocks)} blocks. Each speed-up is over the best sequential schedule of its own "
                     "block; between blocks there is none.")  # fmt: skip
    if missing := {block: row for block, row in missing_better_baselines(known).items() if block in blocks}:
        how = baseline_title(min(missing.values(), key=lambda row: float(row["time_s"])).get("axes"))
        blocks_miss = "1 of them misses" if len(missing) == 1 else f"{len(missing)} of them miss"
        notes.append(f"{blocks_miss} sequential, {how}, which other blocks show to be faster: speed-ups over it would "
                     "be smaller.")  # fmt: skip
    if without_gain and without_gain == len(known):
        notes.append(f"There is no speed-up: {NO_BASELINE}.")
    elif without_gain:
        has = "has" if without_gain == 1 else "have"
        notes.append(f"{without_gain} of {len(known)} schedules {has} no speed-up: {NO_BASELINE}.")
    notes += _measure_again(known, advice) if notes else []
    return " ".join(filter(None, (caution(known), *notes)))


def apart(rows: Sequence[Row]) -> list[Row]:
    """The fastest schedule of one problem and those that it cannot be compared with, fastest first.

    They are at most as many as a block holds; none where all were timed together, or are replayed.
    """
    fastest_known = fastest_of(rows)
    if fastest_known is None or not fastest_known.not_compared:
        return []
    others = sorted(fastest_known.not_compared, key=_seconds)
    several = [fastest_known.row, *others][:MAX_BLOCK_SCHEDULES]
    return [] if all(map(_is_replayed, several)) else several


def _measure_again(rows: Iterable[Row], advice: str = MEASURE_TOGETHER) -> list[str]:
    """The advice to measure again; empty if all *rows* are replayed, since a replay measures nothing."""
    return [] if all(map(_is_replayed, rows)) else [advice]


def _is_replayed(row: Row) -> bool:
    """Whether *row* comes from a replayed recording, and not from a run of the same store."""
    return row.get("source") == "recorded" and not row.get("origin")


def with_ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Joined *rows* with `speed_up`, `speed_up_over` (the baseline, or why there is none) and the `verdict` on both."""
    bases = BlockBases.of(rows)
    return [{**row, **dict(zip(("speed_up", "speed_up_over"), _speed_up_and_base(row, bases), strict=True)),
             **_verdict_over_base(row, bases)} for row in rows]  # fmt: skip


def _verdict_over_base(row: Row, bases: BlockBases) -> dict[str, str | None]:
    """The columns `verdict` and `verdict_why` of *row* over its baseline; None for parts, estimates and baselines."""
    base = bases.best.get(same_problem(row))
    if base is None or row.get("part") not in (None, "whole") or row.get("source") not in TIMED or base is row:
        return {"verdict": None, "verdict_why": None}
    decided = verdict.decide(row, base)
    return {"verdict": decided.word, "verdict_why": decided.why}


def _speed_up_and_base(row: Row, bases: BlockBases) -> tuple[float | None, str | None]:
    if row.get("part") not in (None, "whole") or row.get("time_s") is None:
        return None, None
    missing = " ".join([f"-: {NO_BASELINE}.", *_measure_again([row])]) if row.get("source") in TIMED else None
    return gain(row), bases.text(row) or missing


def comparison_advice(rows: Iterable[Row]) -> str:
    """The `comparison_note` of each problem of *rows*, repeated ones once."""
    return " ".join(dict.fromkeys(filter(None, map(comparison_note, by_problem(rows).values()))))


def _scales(known: Sequence[Row]) -> dict[Any, float | None]:
    """The reference time of each block: that of a baseline which all blocks hold; without one, of each block's best."""
    blocks = list(dict.fromkeys(row.get("block") for row in known))
    if len(blocks) < 2:
        return dict.fromkeys(blocks, 1.0)
    baselines_s: dict[Any, dict[str, float]] = {block: {} for block in blocks}
    best: dict[Any, float | None] = dict.fromkeys(blocks)
    for row in known:
        block, of_block = row.get("block"), baselines_s[row.get("block")]
        if row.get("scheme") == BASELINE:
            of_block[_schedule(row)] = min(row["time_s"], of_block.get(_schedule(row), row["time_s"]))
        if (sequential_s := row.get("sequential_s")) is not None:
            best[block] = min(sequential_s, best[block] or sequential_s)
    common = [name for name in baselines_s[blocks[0]] if all(name in of_block for of_block in baselines_s.values())]
    return {block: of_block[common[0]] for block, of_block in baselines_s.items()} if common else best


def _scale(row: Row, scales: Mapping[Any, float | None]) -> float | None:
    return scales.get(row.get("block"))


def _share(row: Row, scales: Mapping[Any, float | None]) -> tuple[bool, float]:
    """Sort key of schedules; those of a block without a baseline come last, by their times."""
    scale = _scale(row, scales)
    return scale is None, row["time_s"] / (scale or 1.0)


def _schedule(row: Row) -> str:
    return f"{row.get('scheme')} {sorted((row.get('axes') or {}).items())}"
