"""The time left of a run: its remaining blocks at its pace so far, shown without jumps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from workbench.experiment.forecast import Durations, RemainingWork, WorkTotals, cutting

PRIOR_SECONDS = 3.0
"""Seconds of a run that must be done before its own pace weighs as much as the expected one."""
PRIOR_SHARE = 0.1
"""The same for a long run, as a share of the run."""
MOST_GROWTH = 1.5
"""The largest factor by which the shown time grows or shrinks in a second."""
LEAST_SECONDS = 1.0
"""A smaller shown time may grow as if it were this long."""


class TimeLeft:
    """The remaining time of a run, which reports its blocks and samples; any thread may read it."""

    def __init__(
        self, remaining: Sequence[RemainingWork], starting_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """*remaining* is the work by problem; *starting_s*: seconds until the run's own ranks have started."""
        self._remaining, self._clock = remaining, clock
        self._started_at = clock() + starting_s
        """When the ranks are expected to begin."""
        self._lock = threading.Lock()
        self._left = [work.totals(work.start) for work in remaining]
        self._resolving_s = sum(work.resolving_s() for work in remaining)
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

    @property
    def blocks(self) -> int:
        """The number of blocks of the run, as far as known now."""
        return self.block + sum(totals.blocks for totals in self._left)

    def durations(self, problem: int) -> Durations | None:
        """The durations by which the forecast cut the blocks of *problem*, a number; None if it did not."""
        return self._remaining[problem].durations if problem < len(self._remaining) else None

    def begin(self, problem: int, totals: WorkTotals, schedules: int, samples: int, timed: float) -> None:
        """A block begins: its *totals*, its number of remaining *schedules* (0 for a retry), how many *samples* in all,
        and which share of its calls is *timed*."""
        with self._lock:
            now = self._clock()
            self._first_at = self._first_at or now
            self.block += 1
            self._resolving_s = 0.0
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
        return self._remaining[problem].start if problem < len(self._remaining) else 0

    def _count_left(self) -> None:
        problem, position = self._at
        left = [WorkTotals()] * min(problem, len(self._remaining))
        if problem < len(self._remaining):
            left.append(self._remaining[problem].totals(position, cutting(self.correction)))
        later = self._remaining[problem + 1 :]
        self._left = (
            [*left, *(work.totals(work.start, cutting(self.correction)) for work in later)] if self._remaining else []
        )

    def _done_and_left_s(self, now: float) -> tuple[float, float]:
        """Expected seconds of the work that is done, and of the work that is left."""
        done_s = self._done.seconds(self.correction)
        left_s = self._resolving_s + sum(totals.seconds(self.correction) for totals in self._left) + self._starts_s(now)
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
            prior_s = max(PRIOR_SECONDS, PRIOR_SHARE * (done_s + left_s))
            remaining_s = left_s * (prior_s + spent_s) / (prior_s + done_s)
            if self._shown is not None:
                shown_at, shown_s = self._shown
                remaining_s = bounded(remaining_s, shown_s, now - shown_at)
            self._shown = now, remaining_s
            return remaining_s


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
