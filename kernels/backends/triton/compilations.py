"""Which kernels a trial compiles on GPU ranks, told without torch or Triton: those that two trials share, only once.

Triton compiles a kernel for each combination of constants and options, and of every number whether it is 1, a multiple
of 16, or neither. tests/kernels/triton/test_compilations.py compares this with what Triton itself tells apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kernels.axes import Tile, tile
from kernels.backends.triton.pieces import piece
from kernels.operators import OPERATORS, Flow
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import fused
from kernels.schemes.base import num_tiles
from kernels.schemes.fused import slice_rows
from kernels.schemes.sequential import is_ours
from kernels.trial import Trial

AXES = ("tile", "store", "num_warps", "num_stages", "slice_tiles", "comm_sms")
"""Axes that kernels may be compiled differently for; the others are numbers that a kernel reads."""
DIVISOR = 16
"""Triton asks of numbers and addresses whether they are multiples of it."""


class Compilation(NamedTuple):
    """One kernel; equal ones are compiled once."""

    family: str
    """What takes about the same time to compile."""
    facts: tuple[Any, ...]


def compilations(trial: Trial) -> tuple[Compilation, ...]:
    """The kernels of *trial* that take long: of a whole one also the form that is watched. None for CPU ranks."""
    problem, schedule = trial.problem, trial.schedule
    sequential = schedule.scheme == "sequential" and is_ours(problem, schedule)
    if trial.backend != "triton" or trial.part == "communication" or not (sequential or schedule.scheme == "fused"):
        return ()
    alone = sequential or trial.part == "compute"
    schedule = fused.alone(problem, schedule["tile"]) if sequential else schedule
    family, facts = _of(problem, schedule, alone)
    of_all = (problem.dtype, alone, str(tile(schedule["tile"])), *facts)
    return tuple(Compilation(family, (*of_all, watched)) for watched in ((False,) if alone else (False, True)))


def _of(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    """Its family, and what tells its kernel from others of one dtype and tile."""
    operator, tiles = OPERATORS[problem.operator], num_tiles(problem, schedule["tile"])
    if operator.work == "gather":
        return "lookup", _of_lookup(problem, tile(schedule["tile"]), alone)
    if operator.work == "gemv":  # constants of the problem are compiled into it
        return "gemv", (problem, schedule["num_warps"], schedule["num_stages"])
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    options = (schedule["store"], schedule["num_warps"], schedule["num_stages"], 1 if alone else problem.world)
    if operator.flow is Flow.RECEIVE:
        alone = alone or problem.world == 1
        return "receive", (*options, *_kinds(tiles, chunk, extent.columns, extent.contraction),
                           *_of_puts(problem, schedule, 0 if alone else schedule.count("comm_sms")))  # fmt: skip
    sums = (operator.reduces and not alone, operator.flow is Flow.BROADCAST and not alone)
    rows = extent.rows if alone else chunk
    family = "send and sum" if operator.reduces and not alone else "send"
    return family, (*options, *sums, *_kinds(tiles, rows, extent.columns, extent.contraction))


def _of_lookup(problem: Problem, size: Tile, alone: bool) -> tuple[Any, ...]:
    """Of `embedding`: what its walk through a tile is made of."""
    operator, dim, tables = OPERATORS[problem.operator], problem["dim"], problem["tables_per_rank"]
    chunk, columns = operator.chunk_rows(problem), operator.extent(problem).columns
    even = chunk % size.m == 0 and tables % max(1, size.n // dim) == 0
    rows, width = (problem["batch"], columns) if alone else (chunk, problem.world * columns)
    numbers = num_tiles(problem, str(size)), rows, problem["rows"], tables, width
    return (problem.world, dim, problem["pooling"], even, *_kinds(*numbers))


def _of_puts(problem: Problem, schedule: Schedule, comm: int) -> tuple[Any, ...]:
    """What `gemm_receive` is told of the rows that leave."""
    operator, size, slices = OPERATORS[problem.operator], tile(schedule["tile"]), slice_rows(problem, schedule)
    chunk, contraction = operator.chunk_rows(problem), operator.extent(problem).contraction
    put = piece(problem, size)
    pieces = -(-slices[0][1] // put.m) * -(-contraction // put.k)
    return (operator.collective, chunk % size.m == 0, put.k,
            *_kinds((problem.world - 1) * len(slices), pieces, comm))  # fmt: skip


def _kinds(*numbers: int) -> tuple[int, ...]:
    """Of each number what Triton tells apart."""
    return tuple(1 if number == 1 else DIVISOR if number % DIVISOR == 0 else 0 for number in numbers)
