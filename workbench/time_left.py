"""How long a run still takes: what is left of its blocks, at the pace that it has, told without jumps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from workbench.ahead import Ahead, Cut

PRIOR_SECONDS = 3.0
"""So much of a run must be done before its own pace counts for as much as what was expected."""
PRIOR_SHARE = 0.1
"""The same for a long run, as a share of it."""
MOST_GROWTH = 1.5
"""What is told grows or shrinks at most by this factor in a second, whatever turns out."""
LEAST_SECONDS = 1.0
"""What is told may always grow from here: nobody counts parts of a second."""


class TimeLeft:
    """A run tells it of blocks and samples; anybody may ask it, from any thread."""

    def __init__(
        self, ahead: Sequence[Ahead], starting_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """*starting_s*: what ranks of one's own take to start, from now on."""
        self._ahead, self._clock = ahead, clock
        self._started_at = clock() + starting_s
        """When the ranks are expected to begin."""
        self._lock = threading.Lock()
        self._left = [one.cut(one.start) for one in ahead]
        self._resolving_s = sum(one.resolving_s() for one in ahead)
        self._at = 0, self._start(0)
        """The problem, and the number of its schedule that the next block begins with; -1: all baselines."""
        self.correction = 1.0
        """Measured over estimated time of a call, lately."""
        self.block = 0
        """The number of the block that is timed now, or was last."""
        self._done = Cut()
        self._now: _Running | None = None
        self._first_at: float | None = None
        self._opening_s: float | None = None
        """What passed before the ranks began, who start and open their benches once."""
        self._told: tuple[float, float] | None = None

    @property
    def blocks(self) -> int:
        """All blocks of the run, as far as they can be counted now."""
        return self.block + sum(cut.blocks for cut in self._left)

    def begin(self, problem: int, cut: Cut, schedules: int, samples: int, timed: float) -> None:
        """A block of *cut* begins: so many schedules that were left, so many samples in all, and which share of the
        calls is *timed*. A block that runs again has none that were left."""
        with self._lock:
            now = self._clock()
            self._first_at = self._first_at or now
            self.block += 1
            self._resolving_s = 0.0
            start = self._at[1] if self._at[0] == problem else self._start(problem)
            self._at = problem, start + schedules
            self._count_left()
            begins_at = now if self._opening_s is not None else max(now, self._started_at)
            self._now = _Running(cut, begins_at, samples, timed)

    def sample(self) -> None:
        """One came back of the block that is timed."""
        running = self._now
        self._opens(0.0 if running is None else running.before_sample_s(self.correction))
        if running is not None:
            running.samples += 1

    def opened(self) -> None:
        """Ranks have begun, and compile."""
        if self._opening_s is None and self._now is not None:
            self._now.began_at = self._clock()
        self._opens(0.0)

    def _opens(self, expected_s: float) -> None:
        """Something came back, the first time after *expected_s* of work; what is resolved first counts as nothing."""
        if self._opening_s is None:
            passed_s = 0.0 if self._first_at is None else self._clock() - self._first_at
            self._opening_s = max(0.0, passed_s - expected_s)

    def end(self, correction: float) -> None:
        """The block is done; calls take *correction* times what was estimated."""
        with self._lock:
            self.correction = correction
            if self._now is not None:
                cut, done = self._now.cut, self._done
                self._done = Cut(done.blocks + 1, done.trials + cut.trials, done.overhead_s + cut.overhead_s,
                                 done.calls_s + cut.calls_s)  # fmt: skip
            self._now = None
            self._count_left()

    def _start(self, problem: int) -> int:
        return self._ahead[problem].start if problem < len(self._ahead) else 0

    def _count_left(self) -> None:
        problem, position = self._at
        left = [Cut()] * min(problem, len(self._ahead))
        if problem < len(self._ahead):
            left.append(self._ahead[problem].cut(position, self.correction))
        later = self._ahead[problem + 1 :]
        self._left = [*left, *(one.cut(one.start, self.correction) for one in later)] if self._ahead else []

    def _both(self, now: float) -> tuple[float, float]:
        """Seconds as expected: of what is done, and of what is left."""
        done_s = self._done.seconds(self.correction)
        left_s = self._resolving_s + sum(cut.seconds(self.correction) for cut in self._left) + self._starts_s(now)
        if self._now is not None:
            of_block_s = self._now.done_s(now, self.correction)
            done_s += of_block_s
            left_s += self._now.cut.seconds(self.correction) - of_block_s
        return done_s, left_s

    def _starts_s(self, now: float) -> float:
        """Of the start of the ranks, as long as nothing came back of them."""
        return max(0.0, self._started_at - now) if self._opening_s is None else 0.0

    def _spent_s(self, now: float) -> float:
        """With blocks, once the ranks had begun."""
        if self._first_at is None:
            return 0.0
        opening_s = max(0.0, self._started_at - self._first_at) if self._opening_s is None else self._opening_s
        return max(0.0, now - self._first_at - opening_s)

    def share(self) -> float:
        """How much of all is done."""
        with self._lock:
            done_s, left_s = self._both(self._clock())
            return done_s / (done_s + left_s) if done_s + left_s > 0 else 1.0

    def seconds(self) -> float:
        """What is to be told now."""
        with self._lock:
            now = self._clock()
            done_s, left_s = self._both(now)
            spent_s = self._spent_s(now)
            prior_s = max(PRIOR_SECONDS, PRIOR_SHARE * (done_s + left_s))
            found_s = left_s * (prior_s + spent_s) / (prior_s + done_s)
            if self._told is not None:
                told_at, told_s = self._told
                found_s = bounded(found_s, told_s, now - told_at)
            self._told = now, found_s
            return found_s


class _Running:
    """The block that is timed now."""

    def __init__(self, cut: Cut, began_at: float, samples_due: int, timed: float) -> None:
        self.cut, self.began_at = cut, began_at
        self._samples_due, self._timed = samples_due, timed
        self.samples = 0

    def before_sample_s(self, correction: float) -> float:
        """What passes before the first sample: setting up, verifying, warming up."""
        return self.cut.overhead_s + correction * self.cut.calls_s * (1 - self._timed)

    def done_s(self, now: float, correction: float) -> float:
        """As expected; before its first sample it is taken to be on time."""
        before_s = self.before_sample_s(correction)
        if self.samples == 0:
            return min(max(0.0, now - self.began_at), before_s)
        share = min(1.0, self.samples / max(1, self._samples_due))
        return before_s + share * (self.cut.seconds(correction) - before_s)


def bounded(found_s: float, told_s: float, passed_s: float) -> float:
    """*found_s*, as far as it may be from the *told_s* that was told *passed_s* ago."""
    factor = MOST_GROWTH ** min(1.0, passed_s)
    least_s = max(0.0, told_s - passed_s) / factor
    return float(min(max(found_s, least_s), max(told_s, LEAST_SECONDS) * factor))
