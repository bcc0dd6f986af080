"""The block of a fused GEMM by default: large tiles where they fill all SMs, small or cut ones where tiles are few.

Measured for 24 shapes on an H100 (docs/kernels.md, "Few tiles"): a wave of tiles takes as long as its tensor cores
multiply or its loads take, whichever is longer, and few waves of small tiles beat one wave that leaves SMs idle. Small
tiles wait for the latency of their loads, so they load as many steps ahead as shared memory holds.

A last, partial wave may be cut along the contraction (`split_k.py`). It then takes its share of a wave, and what its
partial sums cost: they are stored, waited for and read. Nothing is shorter than memory takes for the operands.

A rank alone also has tiles that are fitted to its waves (`kernels/fitted.py`): as small as so many waves of them cover
the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from kernels import fitted
from kernels.machine import Machine
from kernels.occupancy import BARRIER_BYTES, gemm_block, room_of
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import Tile
from kernels.schemes import axis_rules, base, fitted_tiles, split_k

MEASURED_ON, MEASURED_SLOTS = 90, 132
"""The architecture on which the rule was measured, and its SMs; others keep the tile of `base.default_tile`."""
SIDES = (128, 256), (128, 128), (64, 128), (64, 64)
"""Rows and columns of the tiles to choose from, the largest first: of two that take equally long it loads less."""
SHORT, LONG, LONG_UP_TO = 64, 128, 192
"""Steps of the contraction: long ones where rows and columns together are few, since each step is waited for."""
FEWEST_SENT = 64
"""Fewest rows of a chunk of several ranks: of lower tiles four warps have too few rows each, and took twice as long.
Rows that come in keep wide tiles as well: each chunk streams all weights, and small tiles of two chunks drift apart."""
FEWEST_ALONE = 64
"""The same of a rank alone: tensor cores that take 64 rows at once read shared memory, those of fewer read registers.
A step of 128 of the contraction took 0.23 us in tiles of 64 x 64, and 0.74 us in 32 x 64 (h100_gemm_alone.jsonl)."""
FEWEST = 16
"""Fewest rows, columns or elements of the contraction that a tensor core takes."""
RESULTS_PER_LOAD = 62
"""Results of a tile that an SM's tensor cores multiply while it loads one element of each operand's side."""
STEP_LOADS = 40
"""What a step takes in addition, whatever its tile, as elements loaded: many waves of small tiles lose by it."""
LOADED_PER_SECOND = 6.2e10
"""Elements that an SM loads in a second of such a wave: converts seconds into what waves are counted in."""
CUT_STEPS = 1.2
"""How many times as long a step of a unit takes: tiles share operands with those of the same range only."""
UNITS_LOADS = 6e5
"""What a cut wave takes in addition, as elements loaded: 10 us to fill a pipeline again, to signal, to wait, and until
programs that went on at different times read the same operands again."""
VALUE_LOADS = 4
"""The same for each value of a tile: its partial sum is stored and read. These three were fitted to 24 shapes and tried
on 48 others (docs/kernels.md)."""
GAIN = 0.03
"""Share of the time that a cut has to gain by this sum, which is a few percent off."""
GAIN_LOADS = 1.9e5
"""The same as elements loaded: 3 us. By 2.2 us (6 %) 64x4096x14336 was cut, and took 4 % longer on an H200. A larger
share instead would have left out cuts that gained 2 to 11 % (h100_gemm_split.jsonl)."""
RESULTS, SIDES_SHARE = 1.1, 0.15
"""How many times as long results take in whole tiles, fitted or not, and the share of loads that adds to them. Fitted
to 17 fitted tiles on an H200, 1.4 % off in the mean; waves and the call are counted apart."""
CALL_SECONDS, WAVE_SECONDS = 1.5e-6, 1.5e-6
"""What a call and each wave take in addition: fitted to 88 timings of other tiles, 3 % off in the mean."""
FITTED_WAVE_SECONDS, FITTED_RESULT_SECONDS = 0.6e-6, 3.4e-11
"""What a wave of fitted tiles takes instead, and each result of such a tile: the next one begins when they have been
put into shared memory."""
OF_CUT_SUM = 0.86
"""The sum of a cut block over what was measured, in the median of 113 timings."""
FITTED_GAIN = 0.02
"""Share of the time that a fitted tile has to gain."""
FITTED_FROM = 20e-6
"""Seconds of a call: no shorter one was tried in fitted tiles."""
FITTED_WAVES, FITTED_WAVES_OF_SMALL = 16, 5
"""Most waves of fitted tiles: many waves end evenly whatever their tiles. Those with M < 256 read operands so often
that ten and thirteen waves over operands larger than the L2 took 5 and 7 % longer than with a meeting in each step."""
FITTED_FEWEST, FITTED_FEWEST_OF_ROWS = 112, 72
"""Least N of a fitted tile, and least N where it are all rows: tiles of 96 rows among many lost to those of 128."""
FITTED_FEWEST_OF_GROUP = 136
"""Least N next to 64 rows or columns, unless it are all rows: others load more than they multiply."""
FITTED_FULL = 130
"""Most fitted tiles of a single wave, of 132 programs: those of 132 took a tenth longer in both shapes tried."""
STAGES_FEWEST, STAGES_MOST = 2, 6
FOUR_WARPS = 128 * 128
"""Most results of a tile that four warps hold without a spill."""


@dataclass(frozen=True, slots=True)
class GemmBlock:
    """A tile with the warps and stages that go with it."""

    tile: Tile
    warps: int
    stages: int
    split: int = axis_rules.WHOLE
    """Value of the axis `split_k`."""
    grid: int = 0
    """Programs, which a split needs to know; 0: as many as fit."""


Sums = tuple[float, float]
"""Time of a block as elements that an SM loads meanwhile, or in seconds, and what it would be if memory were no bound.
Of blocks that memory bounds alike the second decides: many SMs draw more than few (h100_gemm_alone.jsonl)."""
Summed = tuple[Sums, GemmBlock]


def of_tile(size: Tile, itemsize: int, architecture: int) -> GemmBlock:
    """Warps that hold the results of *size*, and as many stages as shared memory holds with them."""
    if fitted.runs(size):
        sides = fitted.sides(size)
        return GemmBlock(size, sides.warps, sides.stages)
    stages = STAGES_FEWEST
    while stages < STAGES_MOST and _shared_bytes(size, itemsize, stages + 1, architecture) <= room_of(architecture):
        stages += 1
    return GemmBlock(size, 4 if size.m * size.n <= FOUR_WARPS else 8, stages)


def _shared_bytes(size: Tile, itemsize: int, stages: int, architecture: int) -> int:
    return gemm_block(size, itemsize, stages, 8, architecture=architecture).shared_bytes - BARRIER_BYTES


def usual(problem: Problem, machine: Machine, *, fits: bool = True) -> GemmBlock | None:
    """The default block of the fused kernel of *problem*; None where nothing was measured, or where it lost.

    Without *fits* its tile is not a fitted one: that of a rank whose tiles span the rows of all.
    """
    device, operator = machine.device, base.operator_of(problem)
    if device.kind != "gpu" or device.architecture != MEASURED_ON or operator.work != "gemm":
        return None
    if problem.world > 1 and (operator.flow is Flow.RECEIVE or operator.chunk_rows(problem) < FEWEST_SENT):
        return None
    others = [each for size in _tiles(problem) for each in _summed(problem, size, machine)]
    best = _best(others)
    sizes = tiles_of_waves(problem, device.slots) if fits else []
    if not sizes:
        return best[1]
    return _fitting(_expected(problem, best, machine), [_fitted(problem, size, machine) for size in sizes])


def of_size(problem: Problem, size: Tile, machine: Machine) -> GemmBlock:
    """The block of tiles of *size* on a machine where `usual` has one."""
    if fitted.is_fitted(size):
        return of_tile(size, problem.itemsize, machine.device.architecture)
    return _best(_summed(problem, size, machine))[1]


def weighed(problem: Problem, machine: Machine) -> list[Summed]:
    """All blocks that the rule weighs for *problem*, with their seconds: first the one that it expects to win."""
    others = [each for size in dict.fromkeys(_tiles(problem)) for each in _summed(problem, size, machine)]
    every = [_expected(problem, each, machine) for each in others]
    every += [_fitted(problem, size, machine) for size in tiles_of_waves(problem, machine.device.slots)]
    return sorted(every, key=lambda each: each[0])


def candidates(problem: Problem, machine: Machine) -> list[GemmBlock]:
    """The blocks of `weighed`."""
    return [block for _, block in weighed(problem, machine)]


def _tiles(problem: Problem) -> list[Tile]:
    """The tiles to choose from, none larger than a chunk needs."""
    operator, extent = base.operator_of(problem), base.operator_of(problem).extent(problem)
    rows, columns = base.above(operator.chunk_rows(problem)), base.above(extent.columns)
    fewest = FEWEST_ALONE if axis_rules.stores_alone(problem) else FEWEST
    sizes = [(max(fewest, min(m, rows)), max(FEWEST, min(n, columns))) for m, n in SIDES]
    steps = [LONG if m + n <= LONG_UP_TO else SHORT for m, n in sizes]
    most = max(FEWEST, base.above(extent.contraction))
    return [Tile(m, n, min(k, most)) for (m, n), k in zip(sizes, steps, strict=True)]


def tiles_of_waves(problem: Problem, slots: int) -> list[Tile]:
    """For each M and number of waves the fitted tile with the least N; none where several ranks compute."""
    if fitted_tiles.of_problem(problem) is not None:
        return []
    extent, least = base.operator_of(problem).extent(problem), dict[tuple[bool, int, int], Tile]()
    for swapped, m in product((False, True), fitted.ROWS):
        for n in range(FITTED_FEWEST_OF_ROWS, fitted.MOST, fitted.EIGHTH):
            size = Tile(n, m, fitted.STEP) if swapped else Tile(m, n, fitted.STEP)
            if not fitted.runs(size) or fitted.sides(size).is_slow:
                continue
            has_all = swapped and n == -(-extent.rows // fitted.EIGHTH) * fitted.EIGHTH
            count = base.num_tiles(problem, str(size))
            waves = -(-count // slots)
            is_full = waves == 1 and count > slots * FITTED_FULL // MEASURED_SLOTS
            fewest = FITTED_FEWEST if m > fitted.GROUP_ROWS else FITTED_FEWEST_OF_GROUP
            most = FITTED_WAVES if m == max(fitted.ROWS) else FITTED_WAVES_OF_SMALL
            if waves <= most and not is_full and (has_all or n >= fewest):
                least.setdefault((swapped, m, waves), size)
    return list(least.values())


def _best(summed: Sequence[Summed]) -> Summed:
    """The block with the least sums; a cut one if it gains so much that the sum's error does not decide."""
    whole = min((each for each in summed if each[1].split == axis_rules.WHOLE), key=lambda each: each[0])
    best = min(summed, key=lambda each: each[0])
    least = min((1 - GAIN) * whole[0][0], whole[0][0] - GAIN_LOADS)
    return best if best[0][0] < least else whole


def _fitting(best: Summed, tried: Sequence[Summed]) -> GemmBlock:
    """The best of the fitted blocks *tried* if it gains enough over the *best* one of the others, by their seconds.

    Where memory bounds both alike it has to gain as much in the second sum.
    """
    (first, second), other = best
    (least, least_second), block = min(tried, key=lambda each: each[0])
    gains = least < (1 - FITTED_GAIN) * first or (least <= first and least_second < (1 - FITTED_GAIN) * second)
    return block if gains and first >= FITTED_FROM else other


def _expected(problem: Problem, summed: Summed, machine: Machine) -> Summed:
    """The block of *summed* with its seconds: of a whole one by its waves, of a cut one by its sum."""
    (_, loads), block = summed
    if block.split != axis_rules.WHOLE:
        return _bounded(problem, loads / LOADED_PER_SECOND / OF_CUT_SUM, machine), block
    return _bounded(problem, _seconds(problem, block.tile, machine), machine), block


def _fitted(problem: Problem, size: Tile, machine: Machine) -> Summed:
    """The block of the fitted tile *size* with its seconds."""
    block = of_tile(size, problem.itemsize, machine.device.architecture)
    return _bounded(problem, _seconds(problem, size, machine), machine), block


def _seconds(problem: Problem, size: Tile, machine: Machine) -> float:
    """What whole tiles of *size* take if memory is no bound."""
    contraction, results = base.operator_of(problem).extent(problem).contraction, size.m * size.n
    sides = size.m + size.n
    loads = max(RESULTS * results / RESULTS_PER_LOAD + SIDES_SHARE * sides, sides)
    between = FITTED_WAVE_SECONDS + results * FITTED_RESULT_SECONDS if fitted.is_fitted(size) else WAVE_SECONDS
    wave = contraction * loads / LOADED_PER_SECOND + between
    return CALL_SECONDS + _waves(problem, size, machine.device.slots) * wave


def _bounded(problem: Problem, seconds: float, machine: Machine) -> Sums:
    """*seconds*, but at least what memory takes for the operands, and *seconds*."""
    return max(seconds, CALL_SECONDS + _memory_seconds(problem, machine)), seconds


def _memory_seconds(problem: Problem, machine: Machine) -> float:
    return base.operator_of(problem).memory_bytes(problem) / machine.device.memory_bytes_per_second


def _summed(problem: Problem, size: Tile, machine: Machine) -> list[Summed]:
    """Blocks of *size*, whole ones and then cut ones, each with its sums."""
    device, kind = machine.device, base.operator_of(problem)
    block, contraction = of_tile(size, problem.itemsize, device.architecture), kind.extent(problem).contraction
    waves = _waves(problem, size, device.slots)
    whole = float(waves * _wave_cost(size) * contraction)
    if not axis_rules.stores_alone(problem):  # tiles that span ranks are those of a rank alone
        return [((whole, whole), block)]
    least = _memory_seconds(problem, machine) * LOADED_PER_SECOND
    count, steps = split_k.last_wave(problem, size, device.slots), -(-contraction // size.k)
    before = (base.num_tiles(problem, str(size)) - count) // device.slots * _wave_cost(size) * contraction
    summed = [((max(whole, least), whole), block)]
    for parts in split_k.VALUES if count else ():
        if parts != axis_rules.WHOLE and (most := split_k.most_steps(count, steps, device.slots, parts)):
            adding = UNITS_LOADS + VALUE_LOADS * size.m * size.n
            cut = before + CUT_STEPS * most * size.k * _wave_cost(size)
            summed.append(((max(cut, least) + adding, cut + adding), replace(block, split=parts, grid=device.slots)))
    return summed


def _waves(problem: Problem, size: Tile, slots: int) -> int:
    return -(-base.num_tiles(problem, str(size)) // slots)


def _wave_cost(size: Tile) -> float:
    """Time of a wave for each element of the contraction, as the elements that an SM loads meanwhile."""
    return STEP_LOADS + max(size.m * size.n / RESULTS_PER_LOAD, size.m + size.n)
