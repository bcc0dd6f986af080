"""The blocks that a run has before it: how many, of how many trials, and how long they take about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from workbench.blocks import LONGEST_SECONDS, MOST, fit
from workbench.compile_time import FirstNeeded
from workbench.durations import Durations, overhead_s, rounds
from workbench.experiment import RESOLVING, Experiment


@dataclass(frozen=True, slots=True)
class Cut:
    """Some blocks, added up."""

    blocks: int = 0
    trials: int = 0
    overhead_s: float = 0.0
    calls_s: float = 0.0
    """As estimated: what was measured lately corrects it."""

    def seconds(self, correction: float = 1.0) -> float:
        return self.overhead_s + correction * self.calls_s

    def and_also(self, more: Cut) -> Cut:
        return Cut(self.blocks + more.blocks, self.trials + more.trials, self.overhead_s + more.overhead_s,
                   self.calls_s + more.calls_s)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The schedules of one problem that are to be measured, as numbers."""

    durations: Durations
    experiment: Experiment
    base_tile: Any
    schedules: Mapping[str, int]
    """How many of each scheme, the baseline counted where it was asked for."""
    known: int
    whole_s: tuple[float, ...]
    """One call of each, the baseline left out: it stands in every block."""
    tiles: tuple[Any, ...]
    base_alone: bool
    """Nothing but the baseline is to be measured."""
    compiling: FirstNeeded | None
    """Of kernels that the ranks do not have; None where nothing is compiled."""
    resolves: bool
    """The link is resolved first, with the computation alone."""
    base_s: tuple[float, ...] = ()
    """One call of each that stands in every block."""
    first_s: tuple[float, ...] = ()
    """One call of each trial of a first block of all baselines; empty where there is none."""
    first_compiling_s: float = 0.0

    @property
    def start(self) -> int:
        """The position of the first block: -1, where all baselines come before the schedules."""
        return -1 if self.first_s else 0

    @property
    def count(self) -> int:
        return sum(self.schedules.values())

    def cut(self, position: int = 0, correction: float = 1.0) -> Cut:
        """The blocks from schedule number *position* on."""
        if position < 0:
            return self._first().and_also(self.cut(0, correction))
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        base_s, whole_s, tiles = self.base_s, self.whole_s, self.tiles
        total = (
            Cut(1, len(base_s), len(base_s) * overhead + self._compiling_s(None), calls * sum(base_s))
            if self.base_alone and not position
            else Cut()
        )
        blocks, trials, called_s, compiled_s = total.blocks, total.trials, total.calls_s, total.overhead_s
        compiled_s -= trials * overhead
        while position < len(whole_s):
            end = position + self.fits(position, correction)
            alone_s = [*base_s, *self._others_s(tiles[position:end], each)]
            blocks += 1
            trials += len(alone_s) + end - position
            called_s += calls * (sum(alone_s) + sum(whole_s[position:end]))
            compiled_s += self._compiling_s(slice(position, end))
            position = end
        return Cut(blocks, trials, trials * overhead + compiled_s, called_s)

    def fits(self, position: int, correction: float = 1.0) -> int:
        """How many schedules the block from number *position* on holds."""
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        beside_s = [*self.base_s, *self._others_s(self.tiles[position : position + 1], each)]
        baselines_s = len(beside_s) * overhead + correction * calls * sum(beside_s)
        costs_s = [overhead + correction * calls * one for one in self.whole_s[position : position + MOST]]
        if self.compiling is not None:
            baselines_s += self.compiling.beside_s[position]
            costs_s = [cost + self.compiling.own_s[position + number] for number, cost in enumerate(costs_s)]
        return fit(costs_s, baselines_s, longest(self.experiment, len(self.whole_s)))

    def _compiling_s(self, some: slice | None) -> float:
        """Of the blocks that hold *some* schedules, or of one with the baseline alone."""
        if self.compiling is None:
            return 0.0
        return self.compiling.base_s if some is None else self.compiling.seconds(some)

    def _first(self) -> Cut:
        count, protocol = len(self.first_s), self.experiment.protocol
        overheads_s = count * overhead_s(self.experiment.backend, protocol) + self.first_compiling_s
        return Cut(1, count, overheads_s, rounds(protocol) * sum(self.first_s))

    def _others_s(self, tiles: Sequence[Any], each: bool) -> list[float]:
        """The computations alone of schedules with *tiles*, beside the baseline's."""
        if self.experiment.parts == "none":
            return []
        plain = [tile for tile in dict.fromkeys(tiles) if tile != self.base_tile]
        return [self.durations.compute_s(tile) for tile in (*plain, *(tiles if each else ()))]

    def resolving_s(self) -> float:
        """What timing the computation takes that a relative link is resolved with."""
        if not self.resolves:
            return 0.0
        alone_s = self.durations.compute_s(None)
        return overhead_s(self.experiment.backend, RESOLVING) + rounds(RESOLVING) * alone_s


def longest(experiment: Experiment, count: int) -> float:
    """How long a block of *experiment*, of *count* schedules, may be expected to take.

    What is compared together is not cut for time, nor are a few schedules that a person wants measured again.
    """
    return inf if experiment.together or (experiment.fresh and count <= MOST) else LONGEST_SECONDS
