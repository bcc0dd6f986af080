"""Whole design spaces, measured: of three problems more than a hundred schedules each, drawn by a committed seed."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

from kernels.backends.capabilities import MeasuringRanks
from kernels.backends.triton.recipes import Compilation, compilations
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value, tile
from kernels.schemes import BASELINE, axes, axis_rules, schedule
from kernels.trial import Protocol
from tests.gpu import sittings
from tests.gpu.sittings import Block, Talk

# A fused schedule with values drawn for its axes, of a kernel that a GPU does not compute for few rows alone.

TILE_LEAST = 64 * 64
"""Elements of a GEMM's tile; smaller ones are for few rows."""


def fused(
    chosen: random.Random, of: Problem, usual: Collection[str], place: Machine, fabric: Fabric
) -> Schedule | None:
    """One schedule; None where it is refused. Axes of *usual* keep their defaults."""
    values: dict[str, Value] = {axis.name: chosen.choice(axis.values) for axis in axes(of, "fused", place, fabric)
                                if axis.name not in usual}  # fmt: skip
    if values["tile_order"] != axis_rules.INTERLEAVED:
        values.pop("slice_tiles", None)
    size = tile(values["tile"])
    if OPERATORS[of.operator].work == "gemm" and size.m * size.n < TILE_LEAST:
        return None
    try:
        return schedule(of, "fused", values, place, fabric)
    except Refusal:
        return None


# Whole design spaces, measured: of three problems more than a hundred schedules each, drawn by a committed seed.
#
# They say whether an estimate finds the fastest schedules of a space (issue: the top 5 % by estimate hold one within 1
# % of the measured best), which tables of chosen schedules cannot.

SEED = 20261123
DRAWN = {BASELINE: 24, "fused": 48, "decomposed": 48}
"""Schedules of each scheme, at most."""
TRIES = 4000
"""Draws of one scheme: most points of a grid are refused, or read the same values as one before."""
KERNELS = 24
"""Compilations of one space, each of which takes a second or more."""
LEAST_SIDE = 64
"""Of a tile: smaller ones waste an H200's tensor cores, and a space of them would be won by whatever is large."""
PROBLEMS = {
    "gemm_all_to_all": (8192, 4096, 1792), "all_gather_gemm": (4096, 2048, 4096),
    "all_to_all_gemm": (4096, 1664, 8192),
}  # fmt: skip
"""m, n, k of one rank: computation and communication take about as long."""


@dataclass(frozen=True, slots=True)
class Space:
    """One problem, and schedules of all schemes that are compared."""

    problem: Problem

    def blocks(self, protocol: Protocol, ranks: MeasuringRanks) -> Talk:
        """All of them in blocks that share the library's baseline, and the fastest once more beside it."""
        few = replace(protocol, name=f"first_{protocol.name}", warmups=1, repeats=7)
        drawn = [replace(ranks.trial(self.problem, each), protocol=few) for each in schedules(self.problem, ranks)]
        baseline, *others = drawn
        measured = []
        step = sittings.MOST - 1
        for start in range(0, len(others), step):
            measured += yield Block("further", (baseline, *others[start : start + step]))
        best = sittings.fastest(one for one in measured if one.trial.schedule.scheme != BASELINE)
        if best is not None:
            yield Block(sittings.LAST, (baseline, best.trial))


def schedules(asked: Problem, ranks: MeasuringRanks) -> list[Schedule]:
    """The library's baseline first; the same in every process."""
    random, kernels = Random(f"{SEED} {asked.operator}"), set[Compilation]()
    made = dict.fromkeys([schedule(asked, BASELINE, {}, ranks.machine, ranks.fabric)])
    for scheme, most in DRAWN.items():
        count = 0
        for _ in range(TRIES):
            one = drawn(random, asked, scheme, ranks)
            if one is None or one in made:
                continue
            needed = kernels | set(compilations(ranks.trial(asked, one)))
            if len(needed) > KERNELS:
                continue
            kernels, count = needed, count + 1
            made[one] = None
            if count == most:
                break
    return list(made)


def drawn(random: Random, asked: Problem, scheme: str, ranks: MeasuringRanks) -> Schedule | None:
    """One point of the scheme's grid of values; None where it is refused."""
    known = axes(asked, scheme, ranks.machine, ranks.fabric)
    offered = {axis.name: [value for value in axis.values if axis.name != "tile" or _is_large(value)] for axis in known}
    point = Schedule(scheme, tuple((name, random.choice(values)) for name, values in offered.items()))
    with suppress(Refusal):
        read = axis_rules.effective(asked, point, ranks.machine.backend)
        legal = schedule(asked, scheme, dict(read.axes), ranks.machine, ranks.fabric)
        return legal if ranks.refusal(asked, legal) is None else None
    return None


def _is_large(tile: Value) -> bool:
    return min(map(int, str(tile).split("x")[:2])) >= LEAST_SIDE


def question(name: str, world: int) -> Iterator[Space]:
    """The space of operator *name*."""
    yield Space(problem(name, dict(zip("mnk", PROBLEMS[name], strict=True)), world=world, dtype="bfloat16"))
