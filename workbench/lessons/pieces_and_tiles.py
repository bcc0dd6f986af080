"""Questions and exercises of lessons 1 to 3: one operator on a laptop, computed first, in pieces, and fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np

from kernels.operators import OPERATORS, problem
from kernels.outcome import Measurement, Span
from kernels.plan import Planner, Tiles
from kernels.schemes import base, expand, launches
from workbench.lesson import Lesson, lesson
from workbench.lessons.questions import (
    NOT_CERTAIN,
    OR,
    Answer,
    ChoiceValue,
    Exercise,
    Question,
    Unreadable,
    Wrong,
    close,
    winners,
)
from workbench.results import metrics, verdict
from workbench.simulator.play import play, spans
from workbench.simulator.price.steps import step_costs

RECORDED_ON = "recorded on two cores of a server, two CPU ranks"
LINK = "emulated:bandwidth_bytes_per_second=30501600,latency_seconds=0.0001,message_seconds=0.00015"
"""The link that the recorded ranks had: 30.5 MB/s."""
OPERATOR = "gemm_all_to_all"
Rows = list[dict[str, Any]]


def over_recorded_link(world: int = 2) -> Lesson:
    """The experts of lesson 1, over the link that was recorded."""
    return lesson(OPERATOR, world=world, fabric=LINK)


def balanced() -> Lesson:
    """The experts of lessons 2 and 3, whose wire takes as long as their computation."""
    return lesson(OPERATOR)


@cache
def _recorded() -> dict[tuple[str, str], Rows]:
    """The recorded rows of the ladder by scheme and part."""
    from workbench.results import recordings

    rows = metrics.fill([
        metrics.row_of(entry.measurement, None, balanced().machine)
        for entry in recordings.recordings("laptop_ladder_pieces_and_slices")
    ])  # fmt: skip
    kinds: dict[tuple[str, str], Rows] = {}
    for row in rows:
        kinds.setdefault((row["scheme"], row["part"]), []).append(row)
    return kinds


def _one(scheme: str, part: str, **axes: Any) -> dict[str, Any]:
    """The recorded row with *axes*; the fastest of those."""
    rows = [row for row in _recorded()[scheme, part] if axes.items() <= row["axes"].items()]
    return min(rows, key=lambda row: row["time_s"])


# Lesson 1.

PARTS = ("computing", "sending", "the start of a message")


def _total() -> Answer:
    measured = _one("sequential", "whole")["time_s"]
    return Answer(over_recorded_link().estimate("sequential").time_s * 1e3, measured * 1e3, "recorded", RECORDED_ON)


def _total_here() -> Answer:
    case = over_recorded_link()
    (measured,) = case.measured(case.trial("sequential"))
    here = "measured on two CPU ranks of this computer"
    return Answer(case.estimate("sequential").time_s * 1e3, measured.time_s * 1e3, "measured", here)


def _longest() -> Answer:
    case, message_s = over_recorded_link(), 0.00025  # latency and gap of LINK
    estimated = (case.alone("compute", "sequential").time_s, case.alone("communication", "sequential").time_s)
    recorded = [_one("sequential", part)["time_s"] for part in ("compute", "communication")]
    values = [
        ChoiceValue(choice, source, seconds * 1e3)
        for source, two in (("estimated", estimated), ("recorded", recorded))
        for choice, seconds in zip(PARTS, two, strict=False)
    ]
    values.append(ChoiceValue(PARTS[2], "estimated", message_s * 1e3))
    longest = {source: max((each for each in values if each.source == source), key=lambda each: each.value).choice
               for source in ("estimated", "recorded")}  # fmt: skip
    return Answer(longest["estimated"], longest["recorded"], "recorded", RECORDED_ON, "Time alone in ms", tuple(values))


def _wire_bytes(world: int) -> float:
    case = over_recorded_link(world)
    return float(OPERATORS[OPERATOR].wire_bytes(case.problem))


def _bytes_rule(world: int) -> Any:
    def rule(value: Any) -> str:
        close(value, _wire_bytes(world), "bytes", 1.02)
        return f"{_wire_bytes(world) / 1e6:.2f} MB leave each rank."

    return rule


def _wire_ms(world: int) -> float:
    return _wire_bytes(world) / 30501600 * 1e3


def _wire_rule(value: Any) -> str:
    close(value, _wire_ms(4), "ms", 1.03)
    return f"The wire is busy for {_wire_ms(4):.0f} ms: the share that stays at home is smaller with four ranks."


# Lesson 2.

COUNTS = (1, 2, 4, 8, 16)


def _pieces(rows: Rows) -> dict[int, float]:
    return {row["axes"]["pieces"]: row["time_s"] / row["sequential_s"] for row in rows if "pieces" in row["axes"]}


def _values(source: str, shares: dict[int, float]) -> list[ChoiceValue]:
    return [ChoiceValue(str(count), source, share) for count, share in shares.items() if count in COUNTS]


def _best_pieces() -> Answer:
    recorded = {1: 1.0, **_pieces(_recorded()["decomposed", "whole"])}
    return _pieces_answer(_values("recorded", recorded), "recorded", RECORDED_ON)


def _best_pieces_here() -> Answer:
    case = balanced()
    timed = case.measured(*(case.trial("decomposed", pieces=count) for count in COUNTS))
    times = {int(each.trial.schedule.count("pieces")): each.time_s for each in timed}
    shares = {count: seconds / times[1] for count, seconds in times.items()}
    return _pieces_answer(_values("measured", shares), "measured", "measured on two CPU ranks of this computer")


def _pieces_answer(timed: list[ChoiceValue], source: str, where: str) -> Answer:
    estimated = _values("estimated", _pieces(balanced().rows("decomposed", pieces=COUNTS)))
    axis = "Time over the time of one piece"
    return Answer(winners(estimated, 0.0), winners(timed), source, where, axis, (*estimated, *timed))


def small(m: int) -> Lesson:
    """The experts with *m* rows on each rank, on the same machine and link."""
    case = balanced()
    return replace(case, problem=problem(OPERATOR, {"m": m, "n": 1024, "k": 3072}, world=2))


@cache
def _stops() -> int:
    """The largest power of two for m at which two pieces are not faster than one, as it is estimated."""
    sizes = [2**power for power in range(2, 11)]
    return max(m for m in sizes if small(m).estimate("decomposed", pieces=2).time_s
               >= small(m).estimate("decomposed", pieces=1).time_s)  # fmt: skip


def _stops_rule(value: Any) -> str:
    close(value, _stops(), "rows", 2.0)
    return f"With {_stops()} rows two pieces lose, and with {2 * _stops()} they win."


TWO_COUNTS = ("1 piece", "8 pieces", NOT_CERTAIN)


@dataclass(frozen=True, slots=True)
class FasterOf:
    """Two timed schedules of one block, and which of them a student takes for the faster one."""

    answer: str
    one: Any
    """A row or Measurement of one piece."""
    other: Any
    """The same of eight pieces."""

    def decided(self) -> verdict.Verdict:
        """Whether one piece is faster than eight, from paired rounds."""
        one, other = (_as_row(each) for each in (self.one, self.other))
        return verdict.decide(one, other)


def _as_row(timed: Any) -> dict[str, Any]:
    if isinstance(timed, Measurement):
        return metrics.fill([metrics.row_of(timed, "here", balanced().machine)])[0]
    if not isinstance(timed, dict) or "rounds_s" not in timed:
        raise Unreadable(f"{str(timed)[:40]!r} is no timed schedule. Accepted: one that the lesson timed.")
    return timed


def samples(pieces: int) -> dict[str, Any]:
    """The recorded row of *pieces* with its rounds, where nothing is timed here; 1 is the sequential one."""
    return _one("sequential", "whole") if pieces == 1 else _one("decomposed", "whole", pieces=pieces)


def faster_of(answer: Any, one: Any, other: Any) -> Any:
    """*answer* with the two timed schedules that it is about, for `check`; an answer that is still missing stays so."""
    return None if answer is None or answer is ... else FasterOf(answer, one, other)


def _faster_rule(value: Any) -> str:
    if not isinstance(value, FasterOf) or value.answer not in TWO_COUNTS:
        raise Unreadable(f"The answer is one of {', '.join(TWO_COUNTS)}.")
    decided = value.decided()
    by_word = {verdict.FASTER: TWO_COUNTS[0], verdict.SLOWER: TWO_COUNTS[1]}
    right = by_word.get(decided.word, NOT_CERTAIN)
    if value.answer != right:
        raise Wrong(f"Your samples say something else than {value.answer}: look at both medians and their spread.")
    return f"Your samples: {decided.why}."


# Lesson 3.

BUCKETS = ("less than 1.2 times", "1.2 to 1.6 times", "more than 1.6 times")
TILE = "128x256x3072"
FINEST = 1


def _bucket(speed_up: float) -> str:
    return BUCKETS[0] if speed_up < 1.2 else BUCKETS[1] if speed_up <= 1.6 else BUCKETS[2]


def _fused() -> Answer:
    row = _one("fused", "whole", slice_tiles=FINEST)
    return _fused_answer(row["sequential_s"] / row["time_s"], "recorded", RECORDED_ON)


def _fused_here() -> Answer:
    case = balanced()
    plain, fused = case.measured(case.trial("sequential"), case.trial("fused", tile=TILE, slice_tiles=FINEST))
    return _fused_answer(plain.time_s / fused.time_s, "measured", "measured on two CPU ranks of this computer")


def _fused_answer(timed: float, source: str, where: str) -> Answer:
    (row,) = balanced().rows("fused", tile=TILE, slice_tiles=FINEST)
    estimated = row["sequential_s"] / row["time_s"]
    values = (ChoiceValue(_bucket(estimated), "estimated", estimated), ChoiceValue(_bucket(timed), source, timed))
    return Answer(_bucket(estimated), _bucket(timed), source, where, "Sequential time over fused time", values)


OWNERS = (0, 0, 1, 1, 2, 2, 3, 3)
"""Whose eight tiles rank 0 computes, as they lie in memory."""


@dataclass(frozen=True, slots=True)
class PlayedOrder:
    """What an order of tiles does."""

    spans: tuple[Span, ...]
    first_byte_s: float
    """When the first byte of rank 0 leaves."""
    time_s: float


def played(owners: Sequence[int]) -> PlayedOrder:
    """The timeline of four ranks whose rank 0 computes its eight tiles for *owners* in this order; rank r computes for
    (owner + r) mod 4. Wrong says which tile is missing or too many."""
    order = _order(owners)
    case = lesson(OPERATOR, world=4)
    ranks = np.arange(4)[:, None]
    schedule = case.trial("fused", tile="128x1024x3072", slice_tiles=1, tile_order="natural").schedule
    chunks = (order + ranks) % 4
    natural = expand(case.problem, schedule).tiles
    tiles = [_taken(of_rank, chunk) for of_rank, chunk in zip(natural, chunks, strict=True)]
    planner, at = Planner(case.problem, schedule, tiles), (np.arange(len(order)), np.arange(1, len(order) + 1))
    computed = base.compute(planner, ranks, at)
    base.deliver(planner, base.Units.of(ranks, chunks, at, computed), in_place=True)
    plan = planner.plan(launches.one_kernel(case.problem, schedule))
    costs = step_costs(plan, case.machine, case.fabric)
    times = play(plan, costs)
    drawn = spans(plan, times, costs)
    leaves = min(span.start_s for span in drawn if span.rank == 0 and span.kind == "put")
    return PlayedOrder(drawn, leaves, times.time_s)


def _order(owners: Sequence[int]) -> np.ndarray:
    if not isinstance(owners, list | tuple | np.ndarray) or not all(isinstance(each, int | np.integer)
                                                                    for each in owners):  # fmt: skip
        raise Unreadable(f"An order is a list of eight ranks, such as {list(OWNERS)}.")
    counts, needed = Counter(map(int, owners)), Counter(OWNERS)
    if counts != needed:
        more = ", ".join(f"{counts[each]} tiles for rank {each}" for each in sorted({*counts, *needed})
                         if counts[each] != needed[each])  # fmt: skip
        raise Wrong(f"Every rank gets two tiles, and your order has {more}.")
    return np.array([int(each) for each in owners])


def _taken(tiles: Tiles, chunk: np.ndarray) -> Tiles:
    """*tiles*, two for each chunk as they lie, in the order of *chunk*."""
    seen: Counter[int] = Counter()
    places = []
    for each in map(int, chunk):
        places.append(2 * each + seen[each])
        seen[each] += 1
    return Tiles(*(getattr(tiles, column.name)[places] for column in fields(Tiles)))


BEST_ORDER = [1, 2, 3, 1, 2, 3, 0, 0]


def _order_rule(value: Any) -> str:
    here, best = played(value), played(BEST_ORDER)
    if here.first_byte_s > best.first_byte_s * 1.001:
        raise Wrong(f"The first byte leaves after {here.first_byte_s * 1e3:.0f} ms, and it could leave after "
                    f"{best.first_byte_s * 1e3:.0f} ms.")  # fmt: skip
    if here.time_s > best.time_s * 1.01:
        raise Wrong(f"The first byte leaves early, but the call takes {here.time_s * 1e3:.0f} ms where "
                    f"{best.time_s * 1e3:.0f} ms are possible.")  # fmt: skip
    return f"The first byte leaves after {here.first_byte_s * 1e3:.0f} ms, the call takes {here.time_s * 1e3:.0f} ms."


# What the lessons ask.

QUESTIONS = {
    1: {
        "total_time": Question(
            "How many milliseconds from the first multiplication to the last byte?", 200.0, _total, "ms",
            timed=_total_here,
        ),
        "longest_term": Question("Which of the three takes longest?", PARTS[1], _longest, choices=PARTS),
    },
    2: {
        "best_pieces": Question(
            "Into how many pieces would you cut each shard?", "16", _best_pieces, choices=tuple(map(str, COUNTS)),
            timed=_best_pieces_here,
        ),
    },
    3: {
        "fused_over_sequential": Question(
            "One kernel sends every single tile as soon as it is done. How much faster than sequential is that?",
            BUCKETS[2], _fused, choices=BUCKETS, timed=_fused_here,
        ),
    },
}  # fmt: skip

EXERCISES = {
    1: {
        "bytes_of_two_ranks": Exercise(
            "**By hand.** How many bytes leave one of the *two* ranks? A rank has 1024 rows of 1024 numbers, each of 4 "
            "bytes, and half of the rows stay at home.",
            _bytes_rule(2),
            ("count the numbers of the whole result first: rows times columns.",
             "1024 * 1024 numbers, 4 bytes each, and only one half travels."),
            "1024 * 1024 * 4 / 2 = 2,097,152 bytes.",
            lambda: _wire_bytes(2),
        ),
        "bytes_of_four_ranks": Exercise(
            "**Then for four ranks.** Each rank still has 1024 rows. How many bytes leave one rank now?",
            _bytes_rule(4),
            ("which part of the rows stays at home now?", "a quarter stays, so three quarters of 4,194,304 travel."),
            "1024 * 1024 * 4 * 3 / 4 = 3,145,728 bytes.",
            lambda: _wire_bytes(4),
        ),
        "wire_time_of_four_ranks": Exercise(
            "**And how long is the wire busy**, in milliseconds, at 30.5 MB/s?",
            _wire_rule,
            ("time is bytes over bytes per second.", "3,145,728 bytes / 30,500,000 bytes per second, times 1000."),
            "3.146 MB / 30.5 MB/s = 103 ms.",
            lambda: _wire_ms(4),
        ),
    },
    2: {
        "cutting_stops_paying": Exercise(
            "Make the problem smaller. `small(m)` has *m* rows on each rank. At which *m* does cutting stop paying, as "
            "two pieces are no faster than one? Within a factor of two is enough.",
            _stops_rule,
            ("halve m again and again, and compare `small(m).estimate(\"decomposed\", pieces=2).time_s` with pieces=1.",
             "it is far below 64 rows: a second message then costs as much as half of the computation."),
            "m = 8: two pieces take 3.1 ms there, one piece takes 2.5 ms.",
            _stops,
        ),
        "one_or_eight": Exercise(
            "Look at your own samples: is one piece faster, or are eight, or is it not certain? Answer `\"1 piece\"`, "
            "`\"8 pieces\"` or `\"not certain\"`.",
            _faster_rule,
            ("divide one time by the other, round by round. How often could chance do that?",
             "five rounds that all go one way happen by chance once in 16 times, and once in 20 is the limit."),
            "what paired rounds say. Of the five recorded ones it is not certain, although the medians are 143 ms and "
            "118 ms: one round more would tell.",
            lambda: FasterOf(NOT_CERTAIN, samples(1), samples(8)),
        ),
    },
    3: {
        "order_of_tiles": Exercise(
            "Rank 0 of four computes eight tiles, two for each rank. In memory they are for "
            "`[0, 0, 1, 1, 2, 2, 3, 3]`. Put them in an order in which the first byte leaves earliest, and the "
            "call ends earliest. The other ranks do the same, each beginning from itself.",
            _order_rule,
            ("which tiles need no wire at all? They can wait.",
             "begin with a tile for another rank, and compute the two for rank 0 last."),
            "[1, 2, 3, 1, 2, 3, 0, 0]: remote tiles first, own tiles last.",
            lambda: BEST_ORDER,
        ),
    },
}  # fmt: skip

__all__ = ["BUCKETS", "EXERCISES", "OR", "OWNERS", "QUESTIONS", "FasterOf", "PlayedOrder", "balanced", "faster_of",
           "over_recorded_link", "played", "samples", "small"]  # fmt: skip
