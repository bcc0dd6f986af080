"""Recordings of pieces as a table: the best pieces beside what anybody could have picked, targets, and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from kernels.schemes import BASELINE
from kernels.schemes.axis_rules import LAUNCHES, ONE
from tests.gpu.sittings import PIECES
from tests.gpu.summary import (
    NONE,
    NUMBERS,
    ORDER,
    Column,
    Row,
    fastest,
    last_blocks,
    named,
    number,
    percent,
    problem_words,
    small_print,
    spread,
    table,
    wrapped,
)
from workbench.results import metrics
from workbench.results.recordings import Recorded

# Why a call in pieces takes more than the longer of its halves: by its timeline, which is of one call more.


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of the timeline of the slowest rank, as the longer half sees it."""

    before_s: float
    """Until it begins: ranks meet, launches begin, and what is sent first is computed."""
    between_s: float
    """In which it waits after it began."""
    after_s: float
    """After it ended, until all is done."""
    slower_s: float
    """That it is under way longer than alone in one piece."""

    traced_s: float
    """That the traced call takes longer than the timed ones: events between launches cost time."""


def limits(row: Row) -> Limits | None:
    """Of a whole *row* whose block has T_c and T_comm; None where its timeline was not recorded.

    Copies of all ranks count: what a rank waits for is another one's copy.
    """
    spans, whole_s, transfer_s = row["spans"], row["whole_s"], row["transfer_s"]
    computes = metrics.merged(span for span in metrics.spans_of_slowest(spans) if span.kind == "compute")
    copies = metrics.merged(span for span in spans if span.kind in metrics.SENDS)
    if not computes or not copies or not whole_s or not transfer_s:
        return None
    longer, alone_s = (computes, whole_s) if whole_s >= transfer_s else (copies, transfer_s)
    end_s, under_way_s = max(span.stop_s for span in spans), metrics.total_seconds(longer)
    begin_s, stop_s = longer[0][0], longer[-1][1]
    return Limits(begin_s, stop_s - begin_s - under_way_s, end_s - stop_s, under_way_s - alone_s,
                  end_s - row["time_s"])  # fmt: skip


# Recordings of pieces as a table: a row a scenario, the best pieces beside what anybody could have picked.
#
# Microseconds of one call: the slowest rank's median. Every number of a row is of the scenario's last block.

EVEN = 0.5
"""Where the shorter of T_c and T_comm is at least this share of the longer, there is most to hide."""
ABOVE, BEYOND_S = 1.05, 8e-6
"""Elsewhere: so many times the longer of both, and so many seconds."""
NO_GAIN = 1.005
"""What is written 1.00 or less is no gain."""
INTRO = """
A computation in pieces (`decomposed`, arXiv:2512.10236): microseconds of one call, bfloat16. T_c is the best whole
GEMM, T_comm the fastest transfer of the minimal bytes in which nothing is added. *Best baseline* is the fastest of
cuBLAS or our GEMM with NCCL, NCCL tuned, our own stores, copy engines or torch's symmetric all-reduces, and torch's
overlapped operators. *Fused* is ours with its defaults. *Pieces* is the fastest of four decomposed schedules, all moved
by copy engines, with the number of pieces to a peer. Share of ideal is (S - 1) / (S_ideal - 1), S = (T_c + T_comm) / T.
All numbers of a row are of one block.
"""


@dataclass(frozen=True)
class Line:
    """One scenario: the right rows of its last block, among them a baseline, a fused schedule and pieces."""

    rows: Sequence[Row]
    baseline: Row
    fused: Row
    pieces: Row

    @property
    def operator(self) -> str:
        return str(self.pieces["operator"])

    @property
    def halves(self) -> tuple[float, float]:
        """T_c and T_comm."""
        return self.pieces["whole_s"], self.pieces["transfer_s"]

    @property
    def balance(self) -> float:
        """T_comm / T_c, as measured."""
        return self.halves[1] / self.halves[0]

    @property
    def is_even(self) -> bool:
        return min(self.halves) / max(self.halves) >= EVEN

    @property
    def share(self) -> float:
        return float(self.pieces["share_of_ideal"])

    @property
    def speed_up(self) -> float:
        """Over the best baseline."""
        return metrics.speed_up(self.pieces["time_s"], self.baseline["time_s"])

    @property
    def over_fused_too(self) -> float:
        """Over the best of all others, our fused kernel included."""
        return metrics.speed_up(self.pieces["time_s"], min(self.baseline["time_s"], self.fused["time_s"]))

    @property
    def of_ours(self) -> float:
        """The speed-up of the faster of pieces and fused over the best baseline."""
        return metrics.speed_up(min(self.pieces["time_s"], self.fused["time_s"]), self.baseline["time_s"])

    @property
    def beyond_s(self) -> float:
        """What it takes more than the longer of both halves."""
        return float(self.pieces["time_s"]) - max(self.halves)

    @property
    def is_near(self) -> bool:
        """Whether it is as near to the longer half as it was to be where halves are uneven."""
        return bool(self.pieces["time_s"] <= ABOVE * max(self.halves) + BEYOND_S)

    @cached_property
    def limits(self) -> Limits | None:
        return limits(self.pieces)


def of_block(rows: Sequence[Row]) -> Line | None:
    """The line of one block; None where a baseline, a fused schedule, pieces, T_c or T_comm is missing."""
    best = [fastest(row for row in rows if row["scheme"] == scheme) for scheme in (BASELINE, "fused", PIECES)]
    baseline, fused, pieces = best
    known = baseline and fused and pieces and pieces["share_of_ideal"] is not None
    return Line(rows, baseline, fused, pieces) if known else None  # type: ignore[arg-type]


def lines(entries: Sequence[Recorded]) -> list[Line]:
    """A line for each scenario, operator by operator, by T_comm / T_c."""
    known = [line for line in map(of_block, last_blocks(entries)) if line]
    return sorted(known, key=lambda line: (ORDER.index(line.operator), line.balance))


def cut(row: Row) -> str:
    """How *row* cuts: its pieces to a peer, in one launch of ours, along the contraction."""
    axes = row["axes"]
    words = [f"{axes['pieces']} piece{'s' if axes['pieces'] > 1 else ''}"]
    words += ["one launch"] if axes.get(LAUNCHES) == ONE else []
    words += [f"by {axes['split']}"] if axes.get("split", "rows") != "rows" else []
    return ", ".join(words)


def gained(ratio: float) -> str:
    """A speed-up; one that is no gain stands out."""
    return f"{ratio:.2f}" if ratio >= NO_GAIN else f"**{ratio:.2f}**"


COLUMNS: tuple[Column[Line], ...] = (
    ("operator and shape", lambda line: problem_words(line.pieces)),
    ("T_c", lambda line: number(line.halves[0])), ("T_comm", lambda line: number(line.halves[1])),
    ("T_comm / T_c", lambda line: f"{line.balance:.2f}"), ("best baseline", lambda line: named(line.baseline)),
    ("fused", lambda line: number(line.fused["time_s"])),
    ("pieces", lambda line: f"{spread(line.pieces)}, {cut(line.pieces)}"),
    ("speed-up", lambda line: gained(line.speed_up)),
    ("over fused, too", lambda line: gained(line.over_fused_too)),
    ("share of ideal", lambda line: percent(line.share)),
    ("regime", lambda line: line.pieces["regime"]),
)  # fmt: skip


def by_world(entries: Sequence[Recorded]) -> Iterator[tuple[str, Sequence[Recorded], list[Line]]]:
    """Each number of GPUs with its words, recordings and lines, where there are any."""
    for world in sorted({entry.measurement.trial.world for entry in entries}):
        of_world = [entry for entry in entries if entry.measurement.trial.world == world]
        if some := lines(of_world):
            yield NUMBERS.get(world, str(world)).capitalize(), of_world, some


def text(entries: Sequence[Recorded]) -> str | None:
    """The table of each world with its small print; None where no scenario has a line."""
    parts = [wrapped(INTRO)]
    for words, of_world, some in by_world(entries):
        title = f"**{words} GPUs, pieces: {len(some)} scenarios, microseconds of one call**"
        parts += [title, "\n".join(table(COLUMNS, some)), wrapped(small_print(of_world, []))]
    return "\n\n".join(parts) if parts[1:] else None


# What pieces were to reach, set before anything was measured: misses first, what limits them, a row an operator.

LONG_S = 100e-6
"""A longer half beside which a few launches are little."""
SHARE, SPEED_UP = 0.85, 1.3
"""What is to be reached there in the median: the share of ideal, and the speed-up over the best baseline."""


@dataclass(frozen=True)
class Group:
    """The scenarios of one operator, or all of them."""

    name: str
    lines: Sequence[Line]

    @property
    def even(self) -> list[Line]:
        return [line for line in self.lines if line.is_even]

    @property
    def uneven(self) -> list[Line]:
        return [line for line in self.lines if not line.is_even]


def middle(value: Callable[[Line], float], words: Callable[[float], str]) -> Callable[[Group], str]:
    """*words* of the median of *value* over a group's even scenarios."""
    return lambda group: words(median(map(value, group.even))) if group.even else NONE


def _won(of: Callable[[Line], float]) -> Callable[[Group], str]:
    return lambda group: f"{sum(of(line) >= NO_GAIN for line in group.lines)} of {len(group.lines)}"


def _near(group: Group) -> str:
    return f"{sum(line.is_near for line in group.uneven)} of {len(group.uneven)}" if group.uneven else NONE


BY_OPERATOR: tuple[Column[Group], ...] = (
    ("operator", lambda group: group.name), ("even scenarios", lambda group: str(len(group.even))),
    ("share of ideal", middle(lambda line: line.share, percent)),
    ("speed-up", middle(lambda line: line.speed_up, gained)),
    ("over fused, too", middle(lambda line: line.over_fused_too, gained)),
    ("uneven: near the longer half", _near),
    ("faster than the best baseline", _won(lambda line: line.speed_up)),
    ("than fused, too", _won(lambda line: line.over_fused_too)),
)  # fmt: skip


def groups(some: Sequence[Line]) -> list[Group]:
    """One of each operator, then all."""
    names = [name for name in ORDER if any(line.operator == name for line in some)]
    return [*(Group(f"`{name}`", [line for line in some if line.operator == name]) for name in names),
            Group("all", some)]  # fmt: skip


def sentences(some: Sequence[Line]) -> str:
    """The targets, misses first, and what limits those that miss."""
    group = Group("all", some)
    which = (
        f"Scenarios are even where the shorter of T_c and T_comm is at least {EVEN:g} of the longer: {len(group.even)} "
        f"of {len(some)}."
    )
    answers = sorted(_answers(group), key=lambda answer: answer[0])
    return " ".join([which, *(words for _, words in answers), *_limited(some)])


def _answers(group: Group) -> Iterator[tuple[bool, str]]:
    """Each target: whether it is reached, and what was measured."""
    if even := group.even:
        share, gain = median(line.share for line in even), median(line.speed_up for line in even)
        of_all, of_ours = median(line.over_fused_too for line in even), median(line.of_ours for line in even)
        of_ideal = f"In even ones the share of ideal is {percent(share)} in the median."
        over_best = f"In even ones pieces are {gain:.2f} times as fast as the best baseline in the median."
        others = (
            f"They are {of_all:.2f} times as fast as the best of all others, our fused kernel included. The faster of "
            f"pieces and fused is {of_ours:.2f} times as fast as the best baseline."
        )
        yield share >= SHARE, f"{of_ideal} {_target(percent(SHARE), share >= SHARE)}"
        yield gain >= SPEED_UP, f"{over_best} {_target(f'{SPEED_UP:g}', gain >= SPEED_UP)} {others}"
    if uneven := group.uneven:
        near = sum(line.is_near for line in uneven)
        beside = (
            f"Of uneven ones {near} of {len(uneven)} take at most {ABOVE:g} times the longer half and "
            f"{BEYOND_S * 1e6:g} us."
        )
        yield near == len(uneven), f"{beside} {_target('all', near == len(uneven))}"


def _target(words: str, is_reached: bool) -> str:
    return f"The target, {words}, is {'reached' if is_reached else '**missed**'}."


def _limited(some: Sequence[Line]) -> Iterator[str]:
    """What limits even scenarios, in microseconds and as losses."""
    even = [line for line in some if line.is_even]
    if not even:
        return
    longer_s = median(max(line.halves) for line in even)
    yield (
        f"In the median a call of an even scenario takes {number(median(line.beyond_s for line in even))} us more than "
        f"its longer half, which takes {number(longer_s)} us alone."
    )
    sides = [[line.share for line in even if (max(line.halves) >= LONG_S) is is_long] for is_long in (True, False)]
    if all(sides):
        yield (
            f"Where its longer half takes {number(LONG_S)} us or more, the share of ideal is "
            f"{percent(median(sides[0]))} in the median of {len(sides[0])}, and {percent(median(sides[1]))} in the "
            f"other {len(sides[1])}."
        )
    yield from _by_timelines([line.limits for line in even if line.limits])
    yield from _losses(even)


def _by_timelines(known: Sequence[Limits]) -> Iterator[str]:
    if known:
        times = zip(*((each.traced_s, each.before_s, each.after_s, each.slower_s) for each in known), strict=True)
        traced, before, after, slower = (number(median(values)) for values in times)
        yield (
            f"Timelines are of a call that takes {traced} us longer than the timed ones. In them the longer half "
            f"begins {before} us after the call, ends {after} us before its end, and is under way {slower} us longer "
            "than alone in one piece (medians)."
        )


def _losses(even: Sequence[Line]) -> Iterator[str]:
    """Of both halves; what is alone counts its start and its meeting, what is together only when it is under way."""
    for key, words in (
        ("decomposition_loss", "Alone, pieces take {} (computation) and {} (communication) of the whole."),
        ("contention_loss", "Together, they are under way {} and {} of what they take alone."),
    ):
        halves = [_known(line.pieces[key] and line.pieces[key][part] for line in even)
                  for part in ("compute", "communication")]  # fmt: skip
        if all(halves):
            yield words.format(*(f"{median(half):.2f}" for half in halves))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def short(entries: Sequence[Recorded]) -> str | None:
    """A row an operator, and the targets; None where no scenario has a line."""
    parts = []
    for words, _, some in by_world(entries):
        title = f"**{words} GPUs, pieces: medians of even scenarios; the last two columns count all {len(some)}**"
        parts += [wrapped(sentences(some)), title, "\n".join(table(BY_OPERATOR, groups(some)))]
    return "\n\n".join(parts) if parts else None
