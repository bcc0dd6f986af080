"""One function decides which of two schedules is faster: from the rounds of one block, in which both were timed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, inf, log
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.units import num_text, percent_text, ratio_text, seconds_text
from workbench.naming import TIMED
from workbench.results.quiet import distrust
from workbench.results.rows import Row, question_of, turns

# What is decided, and the numbers that decide it.

FASTER, SLOWER, NOT_CERTAIN, NOT_COMPARED = "faster", "slower", "not certain", "not compared"
WORDS = (FASTER, SLOWER, NOT_CERTAIN, NOT_COMPARED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one row is faster than another, and the numbers that decided it."""

    word: str
    """One of WORDS."""
    why: str
    """One sentence with the numbers, without its full stop."""
    ratio: float | None = None
    """Time of the other over time of the row: the centre of the ratios of paired rounds. Above 1 the row is faster."""
    low: float | None = None
    high: float | None = None
    """The 95 % interval of the ratio; None where so few rounds have none."""
    rounds: int = 0
    """Number of rounds in which both were timed."""
    more_rounds: int | None = None
    """How many more rounds would tell in four of five cases; None: unknown, too many, or none is needed."""
    numbers: str = ""
    """The ratio, its interval and the number of rounds, as text: `1.34x (1.29x to 1.40x) in 15 paired rounds`."""
    p: float = 1.0
    """Probability of so large a difference between two equal schedules."""

    @property
    def is_certain(self) -> bool:
        return self.word in (FASTER, SLOWER)

    @property
    def why_paired(self) -> str:
        """The sentence without the two times, whose ratio differs a little from that of the rounds."""
        return self.why[max(0, self.why.find(self.numbers)) :] if self.numbers else self.why


def decide(row: Row, other: Row) -> Verdict:
    """Whether *row* is faster than *other*; only rows that were timed in turns in one block are compared.

    A round of one is paired with the same round of the other, so that what slowed both counts for neither. False
    alarms are at most 5 %: an exact sign-flip test below EXACT_BELOW rounds, a bootstrap-t of the trimmed mean from
    there on (Fisher, The Design of Experiments, 1935; Wilcox, Introduction to Robust Estimation, 2017, section 5.9).
    """
    if (never := _not_comparable(row, other)) is not None:
        return never
    times, others = row.get("rounds_s") or (), other.get("rounds_s") or ()
    if not times or not others:
        return Verdict(NOT_CERTAIN, f"{_medians(row, other)}: there are no samples of paired rounds")
    if len(times) != len(others):
        unpaired = f"{len(times)} rounds of one and {len(others)} of the other are no pairs"
        return Verdict(NOT_CERTAIN, f"{_medians(row, other)}: {unpaired}")
    paired_ratio = comparison_of(tuple(map(float, times)), tuple(map(float, others)))
    return _verdict(row, other, paired_ratio, distrust((row, other)))


def _not_comparable(row: Row, other: Row) -> Verdict | None:
    """The verdict of two rows that were not timed together; None where they were."""
    if row.get("time_s") is None or other.get("time_s") is None:
        return Verdict(NOT_COMPARED, "one of the two has no time")
    if row.get("source") not in TIMED or other.get("source") not in TIMED:
        return Verdict(NOT_COMPARED, f"{_medians(row, other)}: an estimate has no rounds")
    if turns(row) != turns(other):
        return Verdict(NOT_COMPARED, f"{_medians(row, other)}: timed in two blocks, not in turns")
    if question_of(row) != question_of(other):
        return Verdict(NOT_COMPARED, "they are of two problems")
    return None


def _medians(row: Row, other: Row) -> str:
    return f"{seconds_text(row['time_s'])} against {seconds_text(other['time_s'])}"


NEGLIGIBLE = 0.01
"""A ratio whose whole interval is nearer to 1 does not matter."""


def _verdict(row: Row, other: Row, paired_ratio: PairedRatio, doubt: str | None) -> Verdict:
    """The verdict of the numbers of *paired_ratio*; *doubt*, unless it is None, says why nothing is certain."""
    word = NOT_CERTAIN if doubt else paired_ratio.word
    numbers = f"{paired_ratio.text} in {num_text(paired_ratio.rounds, 'paired round')}"
    more = paired_ratio.more_rounds() if word == NOT_CERTAIN and not doubt else None
    more_to_say = f": {doubt}" if doubt else _what_would_tell(paired_ratio, more)
    why = f"{_medians(row, other)}, {numbers}{more_to_say if word == NOT_CERTAIN else ''}"
    low, high = (None if bound is None else exp(bound) for bound in (paired_ratio.low, paired_ratio.high))
    return Verdict(word, why, exp(paired_ratio.centre), low, high, paired_ratio.rounds, more, numbers,
                   paired_ratio.p)  # fmt: skip


def _what_would_tell(paired_ratio: PairedRatio, more: int | None) -> str:
    """What follows the numbers of a ratio that is not certain."""
    if (
        paired_ratio.low is not None
        and paired_ratio.high is not None
        and max(-paired_ratio.low, paired_ratio.high) <= log(1 + NEGLIGIBLE)
    ):
        return f": alike to {percent_text(exp(max(-paired_ratio.low, paired_ratio.high)) - 1)}, which does not matter"
    if more is not None:
        return f": about {num_text(more, 'more round')} would tell"
    return "" if paired_ratio.rounds < 2 else f": {MOST_ROUNDS} rounds would not tell"


# The statistics of paired rounds: the interval of a centre of their log ratios.

EXACT_BELOW = 8
"""From so many rounds on, resamples are good enough; below, all sign flips are tried."""
LEVEL = 0.035
"""Share of false alarms of independent rounds. Recorded ones resemble their neighbours: there it is nearly 5 %."""
TRIMMED = 0.2
"""Share of rounds that is left out of the centre at each end: a round that somebody disturbed moves it little."""
RESAMPLES = 1999
MOST_ROUNDS = 1000
"""More rounds than these are not proposed."""
_NORMAL_POWER = 1.96 + 0.84
"""Standard errors between no difference and one that is seen in four of five cases."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """The centre of the log ratios of paired rounds, its interval, and how likely it is between equals."""

    rounds: int
    centre: float
    error: float
    """Standard error of the centre; 0 for one round."""
    low: float | None
    high: float | None
    p: float
    is_one_sided: bool
    """Whether all rounds agree on which is faster."""

    @property
    def word(self) -> str:
        if self.low is None or self.high is None or self.low <= 0.0 <= self.high:
            return NOT_CERTAIN
        return FASTER if self.centre > 0 else SLOWER

    @property
    def text(self) -> str:
        """Such as `1.34x (1.29x to 1.40x)`."""
        if self.low is None or self.high is None:
            return ratio_text(exp(self.centre))
        return f"{ratio_text(exp(self.centre))} ({ratio_text(exp(self.low))} to {ratio_text(exp(self.high))})"

    def more_rounds(self) -> int | None:
        """How many more rounds would tell with this spread in four of five cases; None: unknown or too many."""
        if self.rounds < 2 or self.centre == 0.0:
            return None
        needed = (_NORMAL_POWER * self.error / self.centre) ** 2 * self.rounds
        if needed > MOST_ROUNDS:
            return None
        # six rounds tell if all agree: 2 of 64 flips are as far from nothing
        least = 6 if self.is_one_sided else EXACT_BELOW
        return max(1, ceil(max(needed, least)) - self.rounds)


@lru_cache(maxsize=65536)
def comparison_of(times: tuple[float, ...], others: tuple[float, ...]) -> PairedRatio:
    """The comparison of two schedules by the seconds of their rounds, which are paired in order."""
    return paired(np.log(np.array([others])) - np.log(np.array([times])))[0]


def paired(logs: Floats) -> list[PairedRatio]:
    """The comparisons whose log ratios are the lines of *logs*, (comparisons, rounds)."""
    return _exact(logs) if logs.shape[1] < EXACT_BELOW else _resampled(logs)


def _exact(logs: Floats) -> list[PairedRatio]:
    """All sign flips of a mean: as likely as each other if the two are equal. The interval holds what is not rejected.

    The means of all subsets of the rounds bound 2**rounds intervals of equal probability (Hartigan, Using subsample
    values as typical values, 1969): the outermost of these, half of LEVEL on each side, are left out.
    """
    rounds = logs.shape[1]
    chosen = (np.arange(2**rounds)[:, None] >> np.arange(rounds)) & 1
    flipped = np.abs(logs @ (1 - 2 * chosen).T) >= np.abs(logs.sum(axis=1, keepdims=True)) * (1 - 1e-12)
    means = np.sort(logs @ (chosen[1:] / chosen[1:].sum(axis=1, keepdims=True)).T, axis=1)
    outside = int(LEVEL / 2 * 2**rounds)
    errors = logs.std(axis=1, ddof=1) / np.sqrt(rounds) if rounds > 1 else np.zeros(len(logs))
    bounds = (means[:, outside - 1], means[:, -outside]) if outside else ([None] * len(logs),) * 2
    return _listed(logs, logs.mean(axis=1), errors, bounds, flipped.mean(axis=1))


def _resampled(logs: Floats) -> list[PairedRatio]:
    """A symmetric bootstrap-t of the trimmed mean, with Yuen's error; it grows where rounds resemble the one before."""
    rounds = logs.shape[1]
    cut = int(TRIMMED * rounds)
    # which of the two is named first changes nothing
    towards = np.where(np.sort(logs, axis=1)[:, cut : rounds - cut].sum(axis=1) < 0, -1.0, 1.0)
    ordered = np.sort(logs * towards[:, None], axis=1)
    middle = ordered[:, cut : rounds - cut]
    centres = middle.mean(axis=1)
    # what differs by less than rounding errors is equal
    centred = np.where(np.abs(ordered - centres[:, None]) < 1e-12, 0.0, ordered - centres[:, None])
    about = centred[:, cut : rounds - cut]
    errors = _yuen(rounds, about.sum(axis=1), (about**2).sum(axis=1), centred[:, cut], centred[:, rounds - cut - 1])
    kept, first, last = _resamples(rounds)
    sums = centred @ kept
    drawn = _yuen(rounds, sums, centred**2 @ kept, centred[:, first], centred[:, last])
    far = np.abs(np.divide(sums / (rounds - 2 * cut), drawn, out=np.where(sums == 0, 0.0, inf), where=drawn > 0))
    longer = errors * _memory(logs * towards[:, None], ordered[:, [cut]], ordered[:, [rounds - cut - 1]])
    reach = np.zeros(len(logs))
    np.multiply(np.quantile(far, 1 - LEVEL, axis=1, method="higher"), longer, out=reach, where=longer > 0)
    seen = np.abs(np.divide(centres, longer, out=np.where(centres == 0, 0.0, inf), where=longer > 0))
    p = (1 + (far >= seen[:, None]).sum(axis=1)) / (1 + RESAMPLES)
    centres = centres * towards
    return _listed(logs, centres, longer, (centres - reach, centres + reach), np.where(centres == 0, 1.0, p))


def _yuen(rounds: int, sums: Floats, squares: Floats, low: Floats, high: Floats) -> Floats:
    """Standard error of a trimmed mean, from the kept values' sums and the values that replace those cut off."""
    cut = int(TRIMMED * rounds)
    kept = rounds - 2 * cut
    about = squares + cut * (low**2 + high**2) - (sums + cut * (low + high)) ** 2 / rounds
    error: Floats = np.sqrt(np.maximum(about, 0.0) / (kept * (kept - 1)))
    return error


def _memory(logs: Floats, low: Floats, high: Floats) -> Floats:
    """Factor of the standard error where a round resembles the one before it (an autoregression of order 1)."""
    near = np.clip(logs, low, high)
    near = near - near.mean(axis=1, keepdims=True)
    squares, rounds = (near**2).sum(axis=1), logs.shape[1]
    likeness = np.divide((near[:, 1:] * near[:, :-1]).sum(axis=1), squares, out=np.zeros(len(logs)), where=squares > 0)
    # a short series hides some of it, and is itself uncertain: half a standard error more
    likeness = np.clip(likeness + (1 + 3 * likeness) / rounds + 0.5 / np.sqrt(rounds), 0.0, 0.9)
    factor: Floats = np.sqrt((1 + likeness) / (1 - likeness))
    return factor


@lru_cache(maxsize=32)
def _resamples(rounds: int) -> tuple[Floats, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """How often each ordered round is kept in each trimmed resample, (rounds, resamples), and its first and last one.

    They depend on the number of rounds alone, so that a comparison has one answer, and thousands are one product.
    """
    cut = int(TRIMMED * rounds)
    counts = np.random.default_rng(rounds).multinomial(rounds, np.full(rounds, 1 / rounds), size=RESAMPLES)
    upto = counts.cumsum(axis=1)
    kept = np.diff(np.clip(upto, cut, rounds - cut), axis=1, prepend=cut)
    return kept.T.astype(float), (upto > cut).argmax(axis=1), (upto > rounds - cut - 1).argmax(axis=1)


def _listed(logs: Floats, centres: Floats, errors: Floats, bounds: tuple[Any, Any], p: Floats) -> list[PairedRatio]:
    agree = np.asarray((logs > 0).all(axis=1) | (logs < 0).all(axis=1))
    lines = zip(centres.tolist(), errors.tolist(), *bounds, p.tolist(), agree.tolist(), strict=True)
    return [PairedRatio(logs.shape[1], centre, error, low if low is None else float(low),
                        high if high is None else float(high), chance, one_sided)
            for centre, error, low, high, chance, one_sided in lines]  # fmt: skip


# The fastest of many: the more schedules are compared, the more often one is ahead by chance.


@dataclass(frozen=True, slots=True)
class Fastest:
    """The fastest of several rows, and those that may be as fast."""

    row: Row
    count: int
    near: tuple[Row, ...]
    """Rows of its block that may be as fast, fastest first."""
    not_compared: tuple[Row, ...]
    """Timed rows of other blocks."""

    @property
    def is_certain(self) -> bool:
        return not self.near and not self.not_compared and self.count > 1

    @property
    def why(self) -> str:
        """One sentence, without its full stop: whether the fastest is certain."""
        if self.count < 2:
            return "there is one schedule"
        text = f"the fastest of {self.count} is {'certain' if self.is_certain else 'not certain'}"
        near = [f"{num_text(len(self.near), 'other')} may be as fast"] if self.near else []
        apart = len(self.not_compared)
        others = [f"{apart} {'was' if apart == 1 else 'were'} timed in other blocks"] if apart else []
        return ": ".join(filter(None, (text, ", ".join([*near, *others]))))


def fastest(best: Row, rows: Iterable[Row]) -> Fastest:
    """Which of *rows* may be as fast as *best*, the one with the least time.

    Holm's procedure: the true fastest is kept in 95 % of cases, however many are compared.
    """
    others = sorted((row for row in rows if row is not best and row.get("time_s") is not None
                     and row.get("source") in TIMED), key=lambda row: float(row["time_s"]))  # fmt: skip
    pairs = [(row, decide(best, row)) for row in others]
    compared = sorted(((row, each) for row, each in pairs if each.word != NOT_COMPARED), key=lambda pair: pair[1].p)
    slower: set[int] = set()
    for place, (row, each) in enumerate(compared):
        if each.word != FASTER or each.p * (len(compared) - place) > LEVEL:
            break
        slower.add(id(row))
    near = tuple(row for row, each in pairs if each.word != NOT_COMPARED and id(row) not in slower)
    apart = tuple(row for row, each in pairs if each.word == NOT_COMPARED)
    return Fastest(best, 1 + len(others), near, apart)
