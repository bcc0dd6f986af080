"""What is known of a trial while it is timed: the running median of its samples, with an interval that narrows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from kernels.outcome import trial_row
from kernels.protocol import PROTOCOLS
from kernels.trial import Trial
from workbench.medians import median_interval

Row = Mapping[str, Any]


class Running:
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
