"""What is known of a trial while it is timed: the running median of its samples, with an interval that narrows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb
from statistics import median
from typing import Any

from kernels.outcome import trial_row
from kernels.trial import PROTOCOLS, Trial

# How well a median of few times is known, whatever they were drawn from.

MEDIAN_CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Between which two of *values* the median of what they were drawn from lies, MEDIAN_CONFIDENCE sure.

    By order statistics: as many of n values lie below the median as a fair coin falls heads in n throws, whatever the
    distribution (Hahn and Meeker, Statistical Intervals, 1991, section 5.2). Below six values the widest that there is,
    which is less sure; None of one value.
    """
    if len(values) < 2:
        return None
    ordered, outside = sorted(values), _outside(len(values))
    return ordered[outside], ordered[-1 - outside]


@lru_cache(maxsize=1024)
def _outside(count: int) -> int:
    """How many of *count* values may be left out on each side."""
    below, number = 0.0, -1
    while below <= (1 - MEDIAN_CONFIDENCE) / 2:
        number += 1
        below += comb(count, number) / 2**count
    return max(0, number - 1)


# What is known of a trial while it is timed: the running median of its samples, with an interval that narrows.

Row = Mapping[str, Any]


class RunningMedians:
    """Feed it samples and rows; `rows` are of the trials that have samples and no outcome yet."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._ranks: dict[tuple[str, str | None], dict[int, dict[int, float]]] = {}
        """Seconds by rank, by iteration, of each trial in each block."""
        self._settled: set[tuple[str, str | None]] = set()

    def know(self, trials: Iterable[Trial]) -> None:
        """Samples of *trials* may come."""
        for trial in trials:
            if trial.key not in self._facts:
                self._facts[trial.key] = {**trial_row(trial), "due": trial.protocol.repeats}

    def add_rows(self, rows: Iterable[Row]) -> None:
        """An outcome takes the place of what ran; what was stopped stays as far as it came."""
        for row in rows:
            usual = PROTOCOLS.get(str(row["protocol"]))
            self._facts.setdefault(row["key"], {**row, "due": usual.repeats if usual else None})
            if row["source"] != "estimated" and row["stage"] != "cancelled":
                mark = row["key"], row.get("block")
                self._settled.add(mark)
                # what it came to in a block before was broken off there
                same = [each for each in self._ranks if each[0] == mark[0]]
                for older in same[: same.index(mark) + 1] if mark in same else same:
                    del self._ranks[older]

    def add_samples(self, samples: Iterable[Mapping[str, Any]]) -> None:
        """What came back of trials that are being timed."""
        for sample in samples:
            mark = sample["key"], sample.get("block")
            if mark not in self._settled:
                by_index = self._ranks.setdefault(mark, {})
                by_index.setdefault(sample["index"], {})[sample["rank"]] = sample["seconds"]

    def rows(self, stopped: bool = False) -> list[dict[str, Any]]:
        """One for each trial of which all ranks have told an iteration: the median of the slowest rank's times."""
        rows: dict[str, dict[str, Any]] = {}
        for (key, block), by_index in self._ranks.items():
            facts = self._facts.get(key)
            if facts is None:
                continue
            slowest = [max(ranks.values()) for ranks in by_index.values() if len(ranks) == facts["world"]]
            if slowest:
                low_s, high_s = median_interval(slowest) or (None, None)
                rows[key] = {**facts, "outcome": "running", "source": "measured", "block": block, "stage": None,
                              "time_s": median(slowest), "low_s": low_s, "high_s": high_s, "floor_s": None,
                              "samples": len(slowest), "stopped": stopped}  # fmt: skip
        return list(rows.values())
