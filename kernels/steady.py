"""Turns under steady load: a trial runs without a pause until the GPU's clock is flat; its last runs are its samples.

A thread reads the device meanwhile (kernels/nvml.py): ten times a second, while the rank waits for the GPU. A turn is
long enough that each schedule reaches its own clock; a second round in reverse order shows drift. On one H100 a GEMM's
clock was within 2 % of its lasting one after half a second (data/probes/h100_power.jsonl).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

from kernels.backends.base import PreparedTrial
from kernels.trial import Protocol

READ_SECONDS = 0.1
"""Seconds between two readings: NVML refreshes its values about ten times a second."""
LOOK_SECONDS = 0.25
"""Seconds of load between two looks at the clock, about; ranks meet then."""
FLAT_SECONDS, FLAT_SHARE = 1.0, 0.01
"""A clock is flat where its means over the last two such windows differ by no more than this share.

One H100 under a GEMM took its clock to 1,340 to 1,363 MHz, in the mean of each second, from the second one on
(data/probes/h100_power.jsonl): neighbours differ by 1.7 % and less, most of them by less than 1 %.
"""
LOAD_SECONDS_MOST = 10.0
"""Seconds after which the load ends though the clock is not flat: the regime is unknown then."""
TURNS = 2
"""Turns of each trial: in order, then in reverse order."""
RUNS_MOST = 10_000
"""Runs between two looks, at most."""

Reading = Mapping[str, Any]


class Sampler:
    """Reads a device every *period_s* seconds in a thread of its own for as long as the `with` lasts."""

    def __init__(self, read: Callable[[], Reading], period_s: float = READ_SECONDS) -> None:
        self._read, self._period_s = read, period_s
        self._readings: list[dict[str, Any]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="readings of the device", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=10 * max(self._period_s, READ_SECONDS))  # a reading takes milliseconds

    def _work(self) -> None:
        while not self._end.is_set():
            if condition := self._read():
                self._readings.append({**condition, "at": time.time()})
            self._end.wait(self._period_s)

    def between(self, start: float, stop: float) -> list[dict[str, Any]]:
        """The readings from Unix time *start* to *stop*, with `at`."""
        return [each for each in tuple(self._readings) if start <= each["at"] <= stop]


def is_flat(readings: Sequence[Reading], now: float) -> bool | None:
    """Whether the SM clock in *readings* is flat at Unix time *now*; None where they do not say."""
    windows: list[list[float]] = [[], []]
    for each in readings:
        age_s = now - each["at"]
        if 0 <= age_s < len(windows) * FLAT_SECONDS and "sm_clock_mhz" in each:
            windows[int(age_s / FLAT_SECONDS)].append(each["sm_clock_mhz"])
    if not all(windows):
        return None
    last, before = map(fmean, windows)
    return abs(last - before) <= FLAT_SHARE * before


def grouped(seconds: Sequence[float], count: int) -> list[float]:
    """The means of *count* groups of neighbours of *seconds*, which are as many or more: all runs become samples."""
    edges = [len(seconds) * number // count for number in range(count + 1)]
    return [fmean(seconds[start:stop]) for start, stop in pairwise(edges)]


@dataclass
class Turns:
    """The turns of one block's trials on one rank, and what the device was like in them."""

    protocol: Protocol
    sampler: Sampler
    exchange: Callable[[Sequence[float]], list[list[float]]]
    """Hands out all ranks' values (kernels/backends/base.py: Backend.exchange)."""
    clock: Callable[[], float] = time.time
    """Unix time."""
    conditions: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """By trial number, the readings from the last windows of the load to the last sample, with `samples` and `turn`."""
    loads: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """By trial number, for each turn: seconds and runs of its load, whether the clock was flat then, and the share of
    time in which the samples' runs, and those right before, were busy."""
    _runs: int = 1
    """Runs between the last two looks."""

    @property
    def first(self) -> int:
        """The first sample of the last turn."""
        return self.protocol.repeats * (TURNS - 1) // TURNS

    def run(self, prepared: Sequence[PreparedTrial], loading: Callable[[int], None],
            each: Callable[[int, int, float], None]) -> None:  # fmt: skip
        """Runs the turns of *prepared*, A B C C B A.

        Calls each(trial number, sample index, seconds) for every sample, the last runs of the load, and loading(trial
        number) whenever the load goes on: a long silence counts as a hang.
        """
        numbers = list(range(len(prepared)))
        for turn in range(TURNS):
            first, stop = (self.protocol.repeats * edge // TURNS for edge in (turn, turn + 1))
            for number in numbers if turn % 2 == 0 else reversed(numbers):
                trial = prepared[number]
                self.loads.setdefault(number, []).append(self._load(trial, partial(loading, number)))
                trial.forget()
                loaded_at = self.clock()
                ahead = trial.run_ahead(max(self._runs, stop - first))
                for index, seconds in zip(range(first, stop), grouped(ahead.seconds, stop - first), strict=True):
                    each(number, index, seconds)
                if ahead.busy_share is not None:
                    self.loads[number][-1]["busy_share"] = round(ahead.busy_share, 4)
                self._keep(number, turn, (first, stop - 1), loaded_at)

    def _load(self, trial: PreparedTrial, loading: Callable[[], None]) -> dict[str, Any]:
        """Runs *trial* without a pause until the clocks of all ranks are flat; all ranks run it equally often."""
        begun_at, count, runs = self.clock(), 1, 0
        while True:
            loading()
            look_at = self.clock()
            trial.run_ahead(count)
            now, runs = self.clock(), runs + count
            flat = is_flat(self.sampler.between(begun_at, now), now)
            values = [now - begun_at, now - look_at, float(flat is None), float(flat is not False)]
            elapsed_s, look_s, unknown, _ = map(max, zip(*(everyone := self.exchange(values)), strict=True))
            all_flat = all(of_rank[3] for of_rank in everyone)
            if elapsed_s >= self.protocol.load_seconds and (all_flat or elapsed_s >= LOAD_SECONDS_MOST):
                self._runs = count
                return {"load_s": round(elapsed_s, 3), "runs": runs, "flat": None if unknown else all_flat}
            count = max(1, min(RUNS_MOST, round(count * LOOK_SECONDS / max(look_s, 1e-6))))

    def _keep(self, number: int, turn: int, samples: tuple[int, int], loaded_at: float) -> None:
        """Keeps the readings of a turn; those of the last windows of its load are of the same runs as its samples."""
        readings = self.sampler.between(loaded_at - 2 * FLAT_SECONDS, self.clock())
        self.conditions.setdefault(number, []).extend({**each, "samples": list(samples), "turn": turn}
                                                      for each in readings)  # fmt: skip
