"""Tiles that are cut along the contraction, so that a last wave of few tiles keeps all programs busy.

A grid of P programs computes whole tiles in waves of P. The last wave has fewer tiles, or all tiles are fewer than P:
these tiles are *cut* into equal ranges of the contraction, *units*, one for each program. Their float32 sums lie in a
workspace. Then programs add them in the order of the contraction, each for some columns of a tile. So the bits of a
result depend on the schedule, never on timing.

A program that adds waits only for units of itself and lower programs: a GPU starts programs in their order, and an
interpreter finishes one before the next. `table_refusal` proves it for any table.

Programs that run together read the same ranges of the contraction, so that the L2 gives an operand to all of them.
Stream-K (Osama et al., arXiv:2301.03598), which gives each program the next steps of all tiles, was tried: each program
is somewhere else then, and this GEMM took up to 2.4 times as long (docs/kernels.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import filterfalse, product

import numpy as np
from numpy.typing import ArrayLike

from kernels.fitted import is_fitted
from kernels.plan import Ints, Planner, inside
from kernels.problem import Problem
from kernels.schedule import Schedule, Tile, tile
from kernels.schemes import base
from kernels.schemes.axis_rules import SPLIT_K, WHOLE

VALUES = (WHOLE, 2, 3, 4, 5, 6, 7, 8)
"""Values of the axis that are offered."""
VALUES_EACH = 32
"""Values of each partial sum that a thread loads at once when it adds: 8 loads of 16 bytes."""
NARROWEST = 16
"""Fewest columns that a program adds at once: 64 bytes of a row of partial sums."""


@dataclass(frozen=True, slots=True, eq=False)
class CutTiles:
    """The cut tiles of one rank, its first `count` ones: their units and who adds them, by ascending program."""

    count: int
    programs: int
    parts: int
    """Units of each tile."""
    tile: Ints
    k_start: Ints
    k_stop: Ints
    """Tile and range of the contraction of each unit, in elements; unit u is of program u."""
    add_tile: Ints
    col_start: Ints
    col_stop: Ints
    """Tile, and columns inside it, that `add_program` adds and stores."""
    add_program: Ints

    def by_range(self) -> Ints:
        """The units in the order of a Plan's steps: those that begin earlier in the contraction first."""
        return np.argsort(self.k_start, kind="stable")


def last_wave(problem: Problem, size: Tile, programs: int) -> int:
    """Number of tiles of the last wave that do not fill it; 0 if whole waves cover all tiles."""
    return base.num_tiles(problem, str(size)) % programs


def adder_columns(size: Tile, warps: int) -> int:
    """Columns that a program adds at once: VALUES_EACH values of each thread."""
    return min(size.n, max(NARROWEST, VALUES_EACH * 32 * warps // size.m))


def of(problem: Problem, schedule: Schedule) -> CutTiles | None:
    """The cut tiles of *schedule*, which no rule refuses; None if all tiles are whole."""
    if schedule.get(SPLIT_K, WHOLE) == WHOLE:
        return None
    problem = base.tiled(problem, schedule)
    size, programs, parts = tile(schedule["tile"]), schedule.count("grid"), schedule.count(SPLIT_K)
    contraction = base.operator_of(problem).extent(problem).contraction
    count, steps = last_wave(problem, size, programs), -(-contraction // size.k)
    limits = np.minimum(base.parts(steps, parts) * size.k, contraction)
    start, stop = np.tile(limits[:-1], count), np.tile(limits[1:], count)
    pieces = size.n // adder_columns(size, schedule.count("num_warps"))
    last = np.arange(count) * parts + parts - 1
    add_tile, first, after, add_program = _adders(last, programs, pieces)
    return CutTiles(count, programs, parts, np.repeat(np.arange(count), parts), start, stop, add_tile,
                    first * (size.n // pieces), after * (size.n // pieces), add_program)  # fmt: skip


def _adders(last: Ints, programs: int, pieces: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Tile, first piece of its columns, end and program of those who add tiles; *last*: program of its last unit.

    They are the program of a tile's last unit and those after it, up to the next tile's last one: these have nothing
    else to add.
    """
    adders = np.clip(np.append(last[1:], programs) - last, 1, pieces)
    number, within = np.repeat(np.arange(len(last)), adders), inside(adders)
    start, stop = (pieces * (within + one) // adders[number] for one in (0, 1))
    return number, start, stop, last[number] + within


def most_steps(count: int, steps: int, programs: int, parts: int) -> int:
    """Most steps of one program where *parts* cut *count* tiles of *steps* each; 0: that is no cut."""
    return -(-steps // parts) if parts > WHOLE and count * parts <= programs and parts <= steps else 0


def offered(problem: Problem, sizes: Iterable[Tile], grids: Iterable[int]) -> tuple[int, ...]:
    """Values of SPLIT_K that cut tiles of one of *sizes* with one of *grids*; fitted ones are never cut."""
    contraction, kept = base.operator_of(problem).extent(problem).contraction, {WHOLE}
    for size, programs in product(filterfalse(is_fitted, sizes), filter(None, grids)):
        count, steps = last_wave(problem, size, programs), -(-contraction // size.k)
        kept |= {parts for parts in VALUES if count and most_steps(count, steps, programs, parts)}
    return tuple(parts for parts in VALUES if parts in kept)


def compute(planner: Planner, cut: CutTiles, rank: int = 0, after: ArrayLike = ()) -> Ints:
    """Adds the steps of a *rank* that cuts tiles: an SM for each unit, then for each tile one that adds, returned here.

    A range comes after those before it, so that a rank with one thread adds in the order of the contraction.
    """
    order, number = cut.by_range(), np.arange(cut.count)
    of_tile = cut.tile[order]
    units = base.compute(planner, np.full_like(of_tile, rank), (of_tile, of_tile + 1), share=1,
                         k=(cut.k_start[order], cut.k_stop[order]), after=after)  # fmt: skip
    return base.add_units(planner, rank, number, np.full(cut.count, cut.parts),
                          after=units.reshape(cut.parts, cut.count).T)  # fmt: skip


# What cannot be.


def refusal(problem: Problem, schedule: Schedule) -> str | None:
    """Why *schedule* cannot cut the tiles of *problem*, or None."""
    if schedule.get(SPLIT_K, WHOLE) == WHOLE:
        return None
    problem = base.tiled(problem, schedule)
    size, programs, parts = tile(schedule["tile"]), schedule.count("grid"), schedule.count(SPLIT_K)
    setting = f"{SPLIT_K} = {parts}"
    if not programs:
        return (
            f"{setting} does not go with grid = 0: which tiles are in the last wave depends on the number of programs, "
            f"and 0 leaves it to the GPU. Accepted: another grid, or {SPLIT_K} = {WHOLE}."
        )
    count = last_wave(problem, size, programs)
    if not count:
        tiles = base.num_tiles(problem, str(size))
        return (
            f"{setting} cuts nothing: {tiles} tiles fill waves of {programs} programs, and {tiles} is a multiple of "
            f"{programs}. "
            f"Accepted: {SPLIT_K} = {WHOLE}, or another tile or grid."
        )
    steps = -(-base.operator_of(problem).extent(problem).contraction // size.k)
    if parts > steps:
        return (
            f"{setting} is too many: the contraction of a tile {size} has {steps} step{'s' * (steps > 1)}, and "
            f"{parts} > {steps}. Accepted: {SPLIT_K} up to {steps}, or a tile with a shorter step."
        )
    if parts * count > programs:
        return (
            f"{setting} makes {parts * count} units of the {count} tiles of the last wave, one for each program, and "
            f"grid = {programs}: {parts * count} > {programs}. Accepted: {SPLIT_K} up to {programs // count}."
        )
    return None


def table_refusal(cut: CutTiles) -> str | None:
    """Why a program of *cut* would wait for a later one, or None."""
    last = np.zeros(cut.count, dtype=np.int64)
    np.maximum.at(last, cut.tile, np.arange(len(cut.tile)))
    late = np.flatnonzero(cut.add_program < last[cut.add_tile])
    if not len(late):
        return None
    at = int(late[0])
    adder, unit = int(cut.add_program[at]), int(last[cut.add_tile[at]])
    return (
        f"This table of units does not end: program {adder} adds tile {int(cut.add_tile[at])} and would wait for "
        f"program {unit}: {unit} > {adder}. Accepted: tables whose programs wait for themselves and lower ones."
    )
