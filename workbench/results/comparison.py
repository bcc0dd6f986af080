"""Schedules of one problem compared: inside a block by their times, between blocks by what each takes of the baseline.

A baseline stands in every block, so that a computer that was slower for a while moves no schedule up or down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kernels.schemes import BASELINE
from kernels.units import seconds_text
from workbench.naming import TIMED, baseline_title
from workbench.results.metrics import agreed, apart, gain, same_problem
from workbench.results.rows import Key, by_problem

# Which blocks hold no baseline as good as another block tells one to be: over that one their ratios would be smaller.

Row = Mapping[str, Any]
T = TypeVar("T")
Beats = Callable[[T, T, float], bool]
"""Whether the first, scaled, is faster than the second."""


def better(
    here: Mapping[str, T], others: Sequence[Mapping[str, T]], seconds: Callable[[T], float], beats: Beats[T]
) -> T | None:
    """The fastest of the baselines that a block does not hold, and that beat the best *here*; None where none does.

    All are by schedule. One beats the best if every one of the *others* says so that holds it beside one of this
    block's, in shares of that one.
    """
    known: list[T] = []
    for schedule in dict.fromkeys(one for there in others for one in there if one not in here):
        telling = [there for there in others if schedule in there and here.keys() & there]
        if telling and all(_beats_best(there[schedule], (here, there), seconds, beats) for there in telling):
            known.append(telling[-1][schedule])
    return min(known, key=seconds, default=None)


def _beats_best(
    one: T, blocks: tuple[Mapping[str, T], Mapping[str, T]], seconds: Callable[[T], float], beats: Beats[T]
) -> bool:
    here, there = blocks
    common = min(here.keys() & there, key=lambda schedule: seconds(here[schedule]))
    return beats(one, min(here.values(), key=seconds), seconds(here[common]) / seconds(there[common]))


def beats(one: Row, other: Row, scale: float = 1.0) -> bool:
    """Whether *scale* times *one* is faster than *other*, and not by their spread alone."""
    scaled = {key: one.get(key) and scale * one[key] for key in ("time_s", "low_s", "high_s")}
    return bool(scaled["time_s"] < other["time_s"]) and apart(scaled, other)


def outdone(rows: Iterable[Row]) -> dict[Any, Row]:
    """By block of the whole *rows* of one problem: the faster baseline that it does not hold."""
    plain: dict[Any, dict[str, Row]] = {}
    for row in rows:
        if row.get("scheme") == BASELINE and row.get("time_s") is not None:
            plain.setdefault(row.get("block"), {})[str(sorted((row.get("axes") or {}).items()))] = row
    everywhere = list(plain.values())
    lacks = {block: better(here, everywhere, _seconds, beats) for block, here in plain.items()}
    return {block: row for block, row in lacks.items() if row is not None}


def _seconds(row: Row) -> float:
    return float(row["time_s"])


# Schedules of one problem compared: inside a block by their times, between blocks by what each takes of the baseline.

MOST = 8
"""Schedules of one block, the baseline not counted."""


ALONE = "no sequential schedule was timed in the same block"
TOGETHER = (
    f"To compare what was not timed together, measure it again, at most {MOST} schedules at once: `--fresh`, or "
    '"Measure again what is known" in the explorer.'
)
"""What to do, in the same words wherever a ratio is missing."""


def leading(rows: Sequence[Row]) -> list[Row]:
    """The whole schedules of one problem that have a time, best first: timed ones, or estimates where nothing was."""
    known = [row for row in rows if row.get("part") in (None, "whole") and row.get("time_s") is not None]
    known = [row for row in known if row.get("source") in TIMED] or known
    scales = _scales(known)
    by_share = sorted(known, key=lambda row: _share(row, scales))
    home = next((row.get("block") for row in by_share if row.get("scheme") != BASELINE), None)
    # the baseline of every block is as good as that of the others: the one beside the best that overlaps is named
    return sorted(by_share, key=lambda row: (*_share(row, scales)[:2], row.get("block") != home, row["time_s"]))


def fastest(rows: Sequence[Row]) -> Row | None:
    """The best schedule of one problem; None without any time."""
    return next(iter(leading(rows)), None)


def baselines(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The schedules of the block of *row* that do not overlap, fastest first: its ratio is to the first."""
    plain = [other for other in leading(rows) if other.get("scheme") == BASELINE]
    return sorted((other for other in plain if other.get("block") == row.get("block")), key=lambda each: each["time_s"])


def alike(rows: Sequence[Row]) -> list[Row]:
    """What nothing tells from the best, by spread; of another block in shares of its baseline. Of what was timed."""
    known = leading(rows)
    if not known or known[0].get("source") not in TIMED:
        return []
    scales, best = _scales(known), known[0]
    listed = {_schedule(best)}
    near = []
    for row in known[1:]:
        in_reach = row.get("block") == best.get("block") or None not in (_scale(row, scales), _scale(best, scales))
        if in_reach and _schedule(row) not in listed and not apart(_scaled(best, scales), _scaled(row, scales)):
            listed.add(_schedule(row))
            near.append(row)
    return near


@dataclass(frozen=True, slots=True)
class BlockBases:
    """The best sequential schedule of each block of rows of any problems: what the ratios of that block are over."""

    best: Mapping[Key, Row]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> BlockBases:
        best: dict[Key, Row] = {}
        for row in rows:
            if row.get("scheme") == BASELINE and row.get("part") in (None, "whole") and row.get("time_s") is not None:
                place = same_problem(row)
                best[place] = min(best.get(place, row), row, key=lambda each: float(each["time_s"]))
        return cls(best)

    def words(self, row: Row) -> str:
        """What the speed-up of *row* is over: `sequential, collective library, 85.8 ms`. Empty without a baseline."""
        base = self.best.get(same_problem(row))
        if base is None:
            return ""
        how = baseline_title(base.get("axes"))
        return ", ".join(filter(None, (BASELINE, how, seconds_text(base["time_s"]))))


def together(rows: Sequence[Row]) -> str:
    """Which schedules of one problem have no ratio to which, and what to do; empty where all of it compares."""
    known = agreed([row for row in leading(rows) if row.get("source") in TIMED])
    # baselines have a first block of their own on GPU ranks, and stand in the others as far as they matter there
    blocks = {row.get("block") for row in known if row.get("scheme") != BASELINE} or {row.get("block") for row in known}
    lonely = sum(gain(row) is None for row in known)
    said = []
    if len(blocks) > 1:
        said.append(f"Timed in {len(blocks)} blocks. Each speed-up is over the best sequential schedule of its own "
                    "block; between blocks there is none.")  # fmt: skip
    if lacking := {block: row for block, row in outdone(known).items() if block in blocks}:
        how = baseline_title(min(lacking.values(), key=lambda row: float(row["time_s"])).get("axes"))
        lack = "1 of them lacks" if len(lacking) == 1 else f"{len(lacking)} of them lack"
        said.append(f"{lack} sequential, {how}, which others tell to be faster than what they hold: over it speed-ups "
                    "would be smaller.")  # fmt: skip
    if lonely and lonely == len(known):
        said.append(f"There is no speed-up: {ALONE}.")
    elif lonely:
        said.append(f"{lonely} of {len(known)} schedules {'has' if lonely == 1 else 'have'} no speed-up: {ALONE}.")
    return " ".join([*said, *_measure_again(known)]) if said else ""


def _measure_again(rows: Iterable[Row]) -> list[str]:
    """What to do about it: nothing where all of it was recorded elsewhere, since a replay measures nothing."""
    return [] if all(map(_is_replayed, rows)) else [TOGETHER]


def _is_replayed(row: Row) -> bool:
    """Whether *row* comes from a recording that is played, and not from a run of the same store."""
    return row.get("source") == "recorded" and not row.get("origin")


def with_ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """*rows*, joined already, with `speed_up` and `speed_up_over`: what it is over, or why there is none."""
    bases = BlockBases.of(rows)
    return [{**row, **dict(zip(("speed_up", "speed_up_over"), _told(row, bases), strict=True))} for row in rows]


def _told(row: Row, bases: BlockBases) -> tuple[float | None, str | None]:
    if row.get("part") not in (None, "whole") or row.get("time_s") is None:
        return None, None
    missing = " ".join([f"-: {ALONE}.", *_measure_again([row])]) if row.get("source") in TIMED else None
    return gain(row), bases.words(row) or missing


def advice(rows: Iterable[Row]) -> str:
    """`together` of each problem of *rows*, each sentence once."""
    return " ".join(dict.fromkeys(filter(None, map(together, by_problem(rows).values()))))


def _scales(known: Sequence[Row]) -> dict[Any, float | None]:
    """By block the time that stands for it: of a baseline that all blocks have, else of the best of each."""
    blocks = list(dict.fromkeys(row.get("block") for row in known))
    if len(blocks) < 2:
        return dict.fromkeys(blocks, 1.0)
    plain: dict[Any, dict[str, float]] = {block: {} for block in blocks}
    best: dict[Any, float | None] = dict.fromkeys(blocks)
    for row in known:
        block, of_block = row.get("block"), plain[row.get("block")]
        if row.get("scheme") == BASELINE:
            of_block[_schedule(row)] = min(row["time_s"], of_block.get(_schedule(row), row["time_s"]))
        if (sequential_s := row.get("sequential_s")) is not None:
            best[block] = min(sequential_s, best[block] or sequential_s)
    common = [name for name in plain[blocks[0]] if all(name in of_block for of_block in plain.values())]
    return {block: of_block[common[0]] for block, of_block in plain.items()} if common else best


def _scale(row: Row, scales: Mapping[Any, float | None]) -> float | None:
    return scales.get(row.get("block"))


def _share(row: Row, scales: Mapping[Any, float | None]) -> tuple[bool, float]:
    """By which schedules are ordered; those of a block without a baseline come last, by their times."""
    scale = _scale(row, scales)
    return scale is None, row["time_s"] / (scale or 1.0)


def _scaled(row: Row, scales: Mapping[Any, float | None]) -> dict[str, float | None]:
    """Time and spread of *row* in shares of what stands for its block."""
    scale = _scale(row, scales) or 1.0
    return {key: None if row.get(key) is None else row[key] / scale for key in ("time_s", "low_s", "high_s")}


def _schedule(row: Row) -> str:
    return f"{row.get('scheme')} {sorted((row.get('axes') or {}).items())}"
