"""The time left of a run: its remaining blocks at its pace so far, shown without jumps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import fsum

from workbench.experiment.forecast import Durations, RemainingWork, WorkTotals, cutting

PRIOR_SECONDS = 3.0
"""Seconds of a run that must be done before its own pace weighs as much as the expected one."""
PRIOR_SHARE = 0.1
"""The same for a long run that is not slower than expected, as a share of the run.

A slow pace counts at once: on a busy computer what is left takes as much longer as what is done did."""
MOST_GROWTH = 1.5
"""The largest factor by which the shown time grows or shrinks in a second."""
LEAST_SECONDS = 1.0
"""A smaller shown time may grow as if it were this long."""


class TimeLeft:
    """The remaining time of a run, which reports its blocks and samples; any thread may read it."""

    def __init__(
        self, remaining: Sequence[RemainingWork], starting_s: float = 0.0, clock: Callable[[], float] = time.monotonic,
        among: tuple[Sequence[int], int] | None = None,
    ) -> None:  # fmt: skip
        """*remaining* is the work by problem; *starting_s*: seconds until the run's own ranks have started.

        *among*: the numbers of these problems among all, and how many there are; None: they are all. The others count
        as the mean of these.
        """
        numbers, self._count = among or (range(len(remaining)), len(remaining))
        self._remaining, self._clock = dict(zip(numbers, remaining, strict=True)), clock
        self._mean = _mean(remaining)
        self._started_at = clock() + starting_s
        """When the ranks are expected to begin."""
        self._lock = threading.Lock()
        self._at = 0, self._start(0)
        """The problem, and the number of its schedule that the next block begins with; -1: all baselines."""
        self.correction = 1.0
        """Recent ratio of measured to estimated time of a call."""
        self.block = 0
        """The number of the block that is timed now, or was timed last."""
        self._done = WorkTotals()
        self._now: _RunningBlock | None = None
        self._first_at: float | None = None
        self._opening_s: float | None = None
        """Seconds before the ranks began, once: they started and opened their benches."""
        self._shown: tuple[float, float] | None = None
        """When a remaining time was last shown, and how long it was."""
        self._resolving_s = self._resolving_later_s(-1)
        self._left = self._totals_left()

    @property
    def blocks(self) -> int:
        """The number of blocks of the run, as far as known now."""
        return self.block + self._left.blocks

    def durations(self, problem: int) -> Durations | None:
        """The durations by which the forecast cut the blocks of *problem*, a number; None if it did not."""
        return self._remaining[problem].durations if problem in self._remaining else None

    def has(self, problem: int) -> bool:
        """Whether the work of *problem*, a number, is known, and not only the mean of others."""
        return problem in self._remaining or problem >= self._count

    def add(self, problem: int, work: RemainingWork) -> None:
        """Records the work of *problem*, which begins."""
        with self._lock:
            self._remaining[problem] = work
            if self._at[0] == problem:
                self._at = problem, work.start

    def begin(self, problem: int, totals: WorkTotals, schedules: int, samples: int, timed: float) -> None:
        """A block begins: its *totals*, its number of remaining *schedules* (0 for a retry), how many *samples* in all,
        and which share of its calls is *timed*."""
        with self._lock:
            now = self._clock()
            self._first_at = self._first_at or now
            self.block += 1
            self._resolving_s = self._resolving_later_s(problem)
            start = self._at[1] if self._at[0] == problem else self._start(problem)
            self._at = problem, start + schedules
            self._count_left()
            begins_at = now if self._opening_s is not None else max(now, self._started_at)
            self._now = _RunningBlock(totals, begins_at, samples, timed)

    def sample(self) -> None:
        """Records one sample of the running block."""
        running = self._now
        self._opens(0.0 if running is None else running.before_sample_s(self.correction))
        if running is not None:
            running.samples += 1

    def opened(self) -> None:
        """Records that the ranks have begun to compile."""
        if self._opening_s is None and self._now is not None:
            self._now.began_at = self._clock()
        self._opens(0.0)

    def _opens(self, expected_s: float) -> None:
        """Records the first event, which was expected after *expected_s* of work; the rest of the time before it was
        spent on opening the ranks' benches."""
        if self._opening_s is None:
            passed_s = 0.0 if self._first_at is None else self._clock() - self._first_at
            self._opening_s = max(0.0, passed_s - expected_s)

    def end(self, correction: float) -> None:
        """The block is done; calls take *correction* times their estimate."""
        with self._lock:
            self.correction = correction
            if self._now is not None:
                self._done = self._done.and_also(replace(self._now.totals, blocks=1))
            self._now = None
            self._count_left()

    def _start(self, problem: int) -> int:
        return self._remaining[problem].start if problem in self._remaining else 0

    def _count_left(self) -> None:
        self._left = self._totals_left()

    def _totals_left(self) -> WorkTotals:
        """The totals of all blocks that have not begun."""
        (problem, position), factor = self._at, cutting(self.correction)
        later = {number: work for number, work in self._remaining.items() if number > problem}
        totals = [work.totals(work.start, factor) for work in later.values()]
        if problem in self._remaining:
            totals.append(self._remaining[problem].totals(position, factor))
        unknown = max(0, self._count - 1 - problem) - len(later) + (problem == 0 and not self.has(0))
        return reduce(WorkTotals.and_also, totals, self._mean.totals(unknown))

    def _resolving_later_s(self, problem: int) -> float:
        """Seconds of resolving the links of the problems after *problem*."""
        later = [work.resolving_s() for number, work in self._remaining.items() if number > problem]
        return fsum(later) + self._mean.resolving_s * (max(0, self._count - 1 - problem) - len(later))

    def _done_and_left_s(self, now: float) -> tuple[float, float]:
        """Expected seconds of the work that is done, and of the work that is left."""
        done_s = self._done.seconds(self.correction)
        left_s = self._resolving_s + self._left.seconds(self.correction) + self._starts_s(now)
        if self._now is not None:
            in_block_s = self._now.done_s(now, self.correction)
            done_s += in_block_s
            left_s += self._now.totals.seconds(self.correction) - in_block_s
        return done_s, left_s

    def _starts_s(self, now: float) -> float:
        """Seconds until the ranks have started; 0 once an event came."""
        return max(0.0, self._started_at - now) if self._opening_s is None else 0.0

    def _spent_s(self, now: float) -> float:
        """Seconds spent on blocks since the ranks began."""
        if self._first_at is None:
            return 0.0
        opening_s = max(0.0, self._started_at - self._first_at) if self._opening_s is None else self._opening_s
        return max(0.0, now - self._first_at - opening_s)

    def share(self) -> float:
        """The share of all work that is done."""
        with self._lock:
            done_s, left_s = self._done_and_left_s(self._clock())
            return done_s / (done_s + left_s) if done_s + left_s > 0 else 1.0

    def seconds(self) -> float:
        """The remaining seconds to show now."""
        with self._lock:
            now = self._clock()
            done_s, left_s = self._done_and_left_s(now)
            spent_s = self._spent_s(now)
            prior_s = PRIOR_SECONDS if spent_s > done_s else max(PRIOR_SECONDS, PRIOR_SHARE * (done_s + left_s))
            remaining_s = left_s * (prior_s + spent_s) / (prior_s + done_s)
            if self._shown is not None:
                shown_at, shown_s = self._shown
                remaining_s = bounded(remaining_s, shown_s, now - shown_at)
            self._shown = now, remaining_s
            return remaining_s


@dataclass(frozen=True, slots=True)
class _MeanWork:
    """The mean of the work of several problems."""

    blocks: float
    trials: float
    overhead_s: float
    calls_s: float
    resolving_s: float

    def totals(self, count: int) -> WorkTotals:
        """The totals of *count* problems of that work."""
        return WorkTotals(round(count * self.blocks), round(count * self.trials), count * self.overhead_s,
                          count * self.calls_s)  # fmt: skip


def _mean(remaining: Sequence[RemainingWork]) -> _MeanWork:
    if not remaining:
        return _MeanWork(0.0, 0.0, 0.0, 0.0, 0.0)
    sums = reduce(WorkTotals.and_also, (work.totals(work.start) for work in remaining))
    resolving_s, count = fsum(work.resolving_s() for work in remaining), len(remaining)
    return _MeanWork(sums.blocks / count, sums.trials / count, sums.overhead_s / count, sums.calls_s / count,
                     resolving_s / count)  # fmt: skip


class _RunningBlock:
    """The block that is timed now."""

    def __init__(self, totals: WorkTotals, began_at: float, samples_due: int, timed: float) -> None:
        self.totals, self.began_at = totals, began_at
        self._samples_due, self._timed = samples_due, timed
        self.samples = 0

    def before_sample_s(self, correction: float) -> float:
        """Seconds before the first sample: setting up, verifying, warming up."""
        return self.totals.overhead_s + correction * self.totals.calls_s * (1 - self._timed)

    def done_s(self, now: float, correction: float) -> float:
        """Expected seconds of the part that is done; before its first sample the block counts as on time."""
        before_s = self.before_sample_s(correction)
        if self.samples == 0:
            return min(max(0.0, now - self.began_at), before_s)
        share = min(1.0, self.samples / max(1, self._samples_due))
        return before_s + share * (self.totals.seconds(correction) - before_s)


def bounded(remaining_s: float, shown_s: float, passed_s: float) -> float:
    """*remaining_s*, limited to what may follow the *shown_s* that was shown *passed_s* ago."""
    factor = MOST_GROWTH ** min(1.0, passed_s)
    least_s = max(0.0, shown_s - passed_s) / factor
    return float(min(max(remaining_s, least_s), max(shown_s, LEAST_SECONDS) * factor))
