"""Decomposed: pieces computed by cuBLAS or by one kernel of ours, moved by copy engines, SMs or the library."""

from __future__ import annotations

from math import gcd
from typing import Any

from kernels.axes import tile
from kernels.backends.triton import limits
from kernels.backends.triton.pieces import tiles_are_whole
from kernels.backends.triton.recipes.base import Compilation, Recipe
from kernels.backends.triton.recipes.fused import kinds
from kernels.operators import OPERATORS, Flow
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes.base import num_tiles
from kernels.schemes.decomposed_plan import pieces_of
from kernels.schemes.reads import ONE
from kernels.trial import Trial


def _refusal(trial: Trial) -> str | None:
    """Why its pieces cannot be moved or computed, or None."""
    if sentence := limits.of_gemm(trial):
        return sentence
    return _of_pieces(trial.problem, trial.schedule)


def _of_pieces(problem: Problem, schedule: Schedule) -> str | None:
    """Pieces begin where our kernels can load and store 16 bytes, and cuBLAS needs no slower kernel."""
    pieces, step = pieces_of(problem, schedule), limits.BULK_BYTES // problem.itemsize
    sizes = {"n": pieces.columns, "k": pieces.k}
    if schedule["launches"] == ONE:
        sizes["k"], step_k = pieces.k, tile(schedule["tile"]).k
        if len({int(start) for start in pieces.k[0]}) > 1 and any(int(stop) % step_k for stop in pieces.k[1]):
            most = problem["k"] // step_k
            return (
                f"pieces = {schedule['pieces']} does not go with tile = {schedule['tile']} and launches = {ONE}. A "
                f"piece of the contraction ends at {int(pieces.k[1][0])}, which is no multiple of {step_k}, what a "
                f"tile takes at once. Accepted: a number of pieces that divides {most}, or launches = per_piece."
            )
    for key, (starts, _) in sizes.items():
        if odd := next((int(start) for start in starts if int(start) % step), None):
            return (
                f"pieces = {schedule['pieces']} does not run on backend = triton. A piece of {key} would begin at "
                f"{odd}, and 16 bytes are {step} elements: {odd} is no multiple of {step}. Accepted: pieces that "
                f"divide {problem[key] // gcd(problem[key], step)}."
            )
    return None


def _compilations(trial: Trial) -> tuple[Compilation, ...]:
    """Of `launches = one` the GEMM; the rest are cuBLAS, engines, and kernels of a few lines."""
    problem, schedule = trial.problem, trial.schedule
    if schedule["launches"] != ONE or trial.part == "communication":
        return ()
    return (Compilation("pieces", _facts(problem, schedule, trial.part == "compute")),)


def _facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[Any, ...]:
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    pieces, receives = pieces_of(problem, schedule), operator.flow is Flow.RECEIVE
    ranges, several = len({int(start) for start in pieces.k[0]}), problem.world > 1
    mixed = schedule["steps"] == "uniform" and int(pieces.rectangle[-1]) > 0  # own tiles between those of peers
    whole, sums = tiles_are_whole(problem, schedule), operator.reduces and not alone
    rows = receives and several and ranges == 1 and not mixed
    onto = sums and problem.world == 2 and whole and not mixed
    waits = (sums or receives) and several and not (rows or onto)
    numbers = num_tiles(problem, schedule["tile"]), extent.contraction, extent.columns, operator.chunk_rows(problem)
    return (problem.dtype, str(tile(schedule["tile"])), receives, sums, problem.world if sums else 1,
            ranges if receives else 1, rows, onto, waits, several and not receives and not alone, whole,
            *kinds(*numbers))  # fmt: skip


RECIPE = Recipe(refusal=_refusal, compilations=_compilations, module="kernels.backends.triton.calls.decomposed")
