"""How far a gang is with compiling: as far as the slowest of its ranks says."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from kernels.events import TrialEvent


@dataclass(frozen=True, slots=True)
class Compiling:
    """What the slowest rank compiles now; nothing any more where *number* is 0."""

    number: int = 0
    """Of the trial, counted from 1."""
    of: int = 0

    def __str__(self) -> str:
        return f"compiling {self.number:,} of {self.of:,}" if self.number else ""


class Slowest:
    """Takes every event of a gang of *world* ranks; says when the slowest rank has got further."""

    def __init__(self, world: int) -> None:
        self._at: list[float] = [0.0] * world
        """By rank: the trial that it compiles, 0 before the first, infinity after the last."""
        self._of = 0
        self._told = Compiling()

    def heard(self, event: TrialEvent) -> Compiling | None:
        """What to tell now, or None where it was told before."""
        if event["kind"] == "stage" and event["stage"] == "open":
            self._at[event["rank"]] = 0.0
        elif event["kind"] == "stage" and "number" in event:
            self._at[event["rank"]], self._of = event["number"], event["of"]
        elif event["kind"] == "stage" or event["kind"] == "sample":
            self._at[event["rank"]] = inf
        slowest = min(self._at)
        now = Compiling(int(slowest), self._of) if 0 < slowest < inf else Compiling()
        if now == self._told:
            return None
        self._told = now
        return now
