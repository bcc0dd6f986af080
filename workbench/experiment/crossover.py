"""The crossover: from which size on another kind of schedule is the answer, by closed form over many sizes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernels import operators
from kernels.backends.capabilities import MeasuringRanks
from kernels.problem import Problem
from kernels.schedule import Refusal, Value
from kernels.schemes import axes
from workbench.experiment.space import EVERY, Choice, columns, first_occurrences, values
from workbench.simulator.closed_form import grid

SIZES = ("m", "tokens", "batch")
"""Sizes that change from call to call, of which an operator has one."""
DOUBLINGS = 5
"""How often the size is doubled and halved."""
BETWEEN = 8
"""Equal steps of a doubling to which a crossover is narrowed down."""
SIZES_OF_SLICES = (1, 4, 16)
"""Tiles per slice that are tried; a scheme's default depends on the size."""
COARSE = ("tile", "collective", "kernel", "pieces", "engine", "shots", "slice_tiles")
"""Axes of a first look, which finds the tiles that are best somewhere."""
FINE = (*COARSE, "split", "steps", "launches", "comm_sms", "num_stages", "num_warps", "tile_order")
"""Axes of the second look with those tiles; all others keep their default."""
MOST = 50_000
"""The most points of a scheme at one size."""

NOT_CERTAIN = "not certain"
"""What stands for a scheme at sizes where the estimates tell none apart."""
FAR = 4
"""How many times smaller and larger are the sizes that are worth a measurement where no estimate separates schemes."""

Decide = Callable[[Mapping[str, float]], str]
"""The scheme to take, from the seconds of each; `a or b` of several, NOT_CERTAIN of all."""


class Edge(NamedTuple):
    """A size that has another answer."""

    at: int
    scheme: str
    """That answer."""
    stays: bool
    """Whether all sizes beyond that were looked at have it, too."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """The nearest smaller and larger sizes that have another answer."""

    size: str
    """Its name: `m`."""
    below: Edge | None
    above: Edge | None
    looked: tuple[int, int]
    """The smallest and the largest size that were looked at."""
    here: str = ""
    """What is decided at the size itself."""
    to_measure: tuple[int, ...] = ()
    """Sizes that are worth a measurement where no estimate separates schemes."""

    @property
    def is_blind(self) -> bool:
        """Whether the estimates tell no schemes apart at any size that was looked at."""
        return self.here == NOT_CERTAIN and self.below is None and self.above is None

    def text(self, taken: str) -> str:
        """One sentence for whoever takes the scheme *taken*."""
        low, high = self.looked
        if self.is_blind:
            sizes = " and ".join(f"{self.size} = {at:,}" for at in self.to_measure)
            tell = f" To know, measure at {sizes}." if sizes else ""
            return f"The estimates cannot tell schemes apart from {self.size} = {low:,} to {high:,}.{tell}"
        here = f" {self.here} here;" if self.here not in ("", taken) else ","
        return f"By estimate{here} {self}."

    def __str__(self) -> str:
        """`from m = 1,024 on: fused; up to m = 64: sequential`; `near` where it is not so for all sizes beyond."""
        pairs = (("from", self.above, " on"), ("up to", self.below, ""))
        parts = [f"{before} {self.size} = {edge.at:,}{after}: {edge.scheme}" if edge.stays else
                 f"near {self.size} = {edge.at:,}: {edge.scheme}" for before, edge, after in pairs if edge]  # fmt: skip
        low, high = self.looked
        return "; ".join(parts) or f"the same from {self.size} = {low:,} to {high:,}"


def crossover(problem: Problem, ranks: MeasuringRanks, schemes: Sequence[str], decide: Decide) -> Crossover | None:
    """Where *decide* takes another one of *schemes* than for *problem*; None where no size changes, or there is one
    scheme."""
    size = next((name for name in SIZES if name in dict(problem.shape)), None)
    if size is None or len(schemes) < 2 or problem.world == 1:
        return None
    curves = _Curves(problem, ranks, size, tuple(schemes))
    here, sizes = int(problem[size]), curves.sizes()

    def taken(some: Sequence[int]) -> dict[int, str]:
        """The scheme to take at each of *some* sizes that some scheme runs."""
        times = curves.seconds(some) if some else {}
        listed = {at: {name: float(seconds[number]) for name, seconds in times.items() if np.isfinite(seconds[number])}
                  for number, at in enumerate(some)}  # fmt: skip
        return {at: decide(seconds) for at, seconds in listed.items() if seconds}

    answers = taken(sizes)
    if here not in answers:
        return None
    upwards, downwards = [at for at in sorted(answers) if at >= here], [at for at in sorted(answers) if at <= here]
    above, below = (_edge(way, answers, lambda near, far: taken(curves.between(near, far)))
                    for way in (upwards, downwards[::-1]))  # fmt: skip
    worth = (next((at for at in downwards if at * FAR >= here), here),
             next((at for at in reversed(upwards) if at <= here * FAR), here))  # fmt: skip
    return Crossover(size, below, above, (downwards[0], upwards[-1]), answers[here],
                     tuple(at for at in dict.fromkeys(worth) if at != here))  # fmt: skip


def _edge(sizes: Sequence[int], answers: Mapping[int, str],
          narrowed: Callable[[int, int], Mapping[int, str]]) -> Edge | None:  # fmt: skip
    """The first of *sizes*, which lead away from here, with another answer than the first one has, narrowed down."""
    current = answers[sizes[0]]
    place = next((number for number, at in enumerate(sizes) if answers[at] != current), None)
    if place is None:
        return None
    near, far = sizes[place - 1], sizes[place]
    finer = {**narrowed(near, far), far: answers[far]}
    at = next(at for at in sorted(finer, reverse=far < near) if finer[at] != current)
    return Edge(at, finer[at], {finer[at]} == {answers[beyond] for beyond in sizes[place:]})


@dataclass(frozen=True)
class _Curves:
    """The least closed-form time of each scheme over one size of a problem."""

    problem: Problem
    ranks: MeasuringRanks
    size: str
    schemes: tuple[str, ...]

    @property
    def _step(self) -> int:
        """What the size is a multiple of."""
        keys = {key.name: key for key in operators.operator(self.problem.operator).keys}
        return self.problem.world if keys[self.size].shared else 1

    def sizes(self) -> list[int]:
        """Doublings and halvings of the size that are legal, from the smallest."""
        here = int(self.problem[self.size])
        offered = {here << power for power in range(DOUBLINGS + 1)} | {here >> power for power in range(DOUBLINGS + 1)}
        return sorted(at for at in offered if at >= 1 and self._at(at) is not None)

    def between(self, near: int, far: int) -> list[int]:
        """Legal sizes between *near* and *far*, fewer than BETWEEN."""
        steps = np.linspace(near, far, BETWEEN + 1)[1:-1]
        rounded = {max(self._step, int(at) // self._step * self._step) for at in steps}
        return sorted(at for at in rounded if at not in (near, far) and self._at(at) is not None)

    def _at(self, size: int) -> Problem | None:
        """The problem with another size; None where it is illegal."""
        shape = {**dict(self.problem.shape), self.size: size}
        try:
            return operators.problem(
                self.problem.operator, shape, dtype=self.problem.dtype, world=self.problem.world
            )  # fmt: skip
        except Refusal:
            return None

    @cached_property
    def largest(self) -> Problem:
        """The problem of the largest size. Its tiles are those of all sizes: one that is larger than a small problem is
        legal there, and never best."""
        return self._at(max(self.sizes())) or self.problem

    @cached_property
    def lists(self) -> dict[str, dict[str, tuple[Value, ...]]]:
        """By scheme that the ranks run: the values of each axis, all of those in FINE."""
        listed = {name: self._lists(name, self.largest) for name in self.schemes}
        for name, of_scheme in listed.items():
            of_scheme["tile"] = tuple(dict.fromkeys((*of_scheme["tile"], *self._lists(name, self.problem)["tile"])))
        return {name: of_scheme for name, of_scheme in listed.items() if all(of_scheme.values())}

    def _lists(self, scheme: str, problem: Problem) -> dict[str, tuple[Value, ...]]:
        machine, fabric = self.ranks.machine, self.ranks.fabric
        known = {axis.name: axis for axis in axes(problem, scheme, machine, fabric)}
        wanted: dict[str, tuple[Value, ...]] = {name: (EVERY,) for name in FINE if name in known}
        if "slice_tiles" in wanted:
            wanted["slice_tiles"] = tuple(size for size in SIZES_OF_SLICES if size in known["slice_tiles"].values)
        choice = Choice(scheme, tuple((name, some) for name, some in wanted.items() if some))
        return dict(values(choice, problem, machine, fabric, MOST, self.ranks))

    @cached_property
    def tiles(self) -> tuple[Value, ...]:
        """The tiles that are best for some scheme at one of the sizes, with the axes of COARSE alone."""
        best: dict[Value, None] = {}
        for scheme, of_scheme in self.lists.items():
            usual = {axis.name: axis.default
                     for axis in axes(self.largest, scheme, self.ranks.machine, self.ranks.fabric)}  # fmt: skip
            few = {name: some if name in COARSE or usual[name] not in some else (usual[name],)
                   for name, some in of_scheme.items()}  # fmt: skip
            crossed, times = self._times(scheme, self.sizes(), few)
            places = times.argmin(axis=1)[np.isfinite(times).any(axis=1)]
            best |= dict.fromkeys(crossed["tile"][places].tolist())
        return tuple(best)

    def seconds(self, sizes: Sequence[int]) -> dict[str, np.ndarray]:
        """By scheme the least time at each of *sizes*; inf where it does not run."""
        least = {}
        for scheme, of_scheme in self.lists.items():
            tiles = tuple(tile for tile in of_scheme["tile"] if tile in self.tiles)
            least[scheme] = self._times(scheme, sizes, {**of_scheme, "tile": tiles})[1].min(axis=1, initial=np.inf)
        return least

    def _times(self, scheme: str, sizes: Sequence[int], lists: Mapping[str, Sequence[Value]]
               ) -> tuple[dict[str, np.ndarray], np.ndarray]:  # fmt: skip
        """The points of *lists*, and the seconds of each, (sizes, points); inf where it is illegal."""
        crossed = columns(lists)
        machine, fabric = self.ranks.machine, self.ranks.fabric
        first = first_occurrences(self.largest, scheme, crossed, machine)
        crossed = {name: column[first] for name, column in crossed.items()}
        count = len(crossed["tile"])
        points = {name: np.tile(column, len(sizes)) for name, column in crossed.items()}
        points[self.size] = np.repeat(np.asarray(sizes), count)
        times = grid.times(self.largest, scheme, points, machine, fabric).reshape(len(sizes), count)
        return crossed, np.where(np.isnan(times), np.inf, times)
