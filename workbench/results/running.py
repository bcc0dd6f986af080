"""Running median of a trial's samples while it is timed, with a confidence interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb
from statistics import median
from typing import Any

from kernels.outcome import trial_row
from kernels.trial import PROTOCOLS, Trial
from workbench.results.rows import Row

MEDIAN_CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Confidence interval of the median of the distribution of *values*, at MEDIAN_CONFIDENCE; None for one value.

    By order statistics: the number of n values below the median is that of heads in n throws of a fair coin, for any
    distribution (Hahn and Meeker, Statistical Intervals, 1991, section 5.2). Below six values it is the range of all,
    whose confidence is lower.
    """
    if len(values) < 2:
        return None
    ordered, outside = sorted(values), _outside(len(values))
    return ordered[outside], ordered[-1 - outside]


@lru_cache(maxsize=1024)
def _outside(count: int) -> int:
    """Number of values outside the interval on each side, out of *count*."""
    below, number = 0.0, -1
    while below <= (1 - MEDIAN_CONFIDENCE) / 2:
        number += 1
        below += comb(count, number) / 2**count
    return max(0, number - 1)


class RunningMedians:
    """Running medians of trials that have samples but no outcome yet."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._ranks: dict[tuple[str, str | None], dict[int, dict[int, float]]] = {}
        """Seconds by rank, by iteration, of each trial in each block."""
        self._settled: set[tuple[str, str | None]] = set()

    def know(self, trials: Iterable[Trial]) -> None:
        """Announce *trials* whose samples may come."""
        for trial in trials:
            if trial.key not in self._facts:
                self._facts[trial.key] = {**trial_row(trial), "due": trial.protocol.repeats}

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Replace running trials by their outcomes; a stopped trial keeps its samples."""
        for row in rows:
            usual = PROTOCOLS.get(str(row["protocol"]))
            self._facts.setdefault(row["key"], {**row, "due": usual.repeats if usual else None})
            if row["source"] != "estimated" and row["stage"] != "cancelled":
                mark = row["key"], row.get("block")
                self._settled.add(mark)
                # in earlier blocks it was interrupted
                same = [each for each in self._ranks if each[0] == mark[0]]
                for older in same[: same.index(mark) + 1] if mark in same else same:
                    del self._ranks[older]

    def add_samples(self, samples: Iterable[Mapping[str, Any]]) -> None:
        """Add samples of running trials."""
        for sample in samples:
            mark = sample["key"], sample.get("block")
            if mark not in self._settled:
                by_index = self._ranks.setdefault(mark, {})
                by_index.setdefault(sample["index"], {})[sample["rank"]] = sample["seconds"]

    def rows(self, stopped: bool = False) -> list[dict[str, Any]]:
        """A row for each trial with an iteration of all ranks: the median of the slowest rank's times."""
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
