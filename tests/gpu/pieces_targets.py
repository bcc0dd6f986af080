"""What pieces were to reach, set before anything was measured: misses first, what limits them, a row an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tests.gpu.pieces_limits import Limits
from tests.gpu.pieces_summary import ABOVE, BEYOND_S, EVEN, NO_GAIN, Line, by_world, gained
from tests.gpu.summary import NONE, Column, number, percent, table
from tests.gpu.summary_text import wrapped
from tests.gpu.summary_words import ORDER
from workbench.results.recordings import Recorded

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
