"""Which tensors of a trial lie in symmetric memory, and at which offsets: the same on every rank and every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from kernels.operators import OPERATORS, Flow
from kernels.problem import Problem
from kernels.schedule import Schedule

ALIGNMENT = 128
"""Bytes: a line of a GPU's L2, and what its bulk copy engine asks for."""


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor of the heap: the same offset on every rank."""

    offset: int
    shape: tuple[int, ...]


def regions(problem: Problem, schedule: Schedule) -> dict[str, Region]:
    """Offsets and shapes of the heap's tensors for *schedule*, by name."""
    operator, extent, world = OPERATORS[problem.operator], OPERATORS[problem.operator].extent(problem), problem.world
    rows, chunk = extent.rows, operator.chunk_rows(problem)
    if operator.flow is Flow.RECEIVE:
        shapes: dict[str, tuple[int, ...]] = {
            "operand": (rows, extent.contraction),
            "staging": (rows, extent.contraction),
        }
    elif operator.flow is Flow.BROADCAST:
        staged = rows if schedule.get("collective") == "one_shot" else chunk
        shapes = {"stage": (world, staged, extent.columns), "out": (rows, extent.columns)}
    elif operator.reduces:
        shapes = {"stage": (world, chunk, extent.columns), "out": (chunk, extent.columns)}
    else:
        shapes = {"out": operator.local(problem)["output"]}
    return place(shapes, problem.itemsize)


def place(shapes: Mapping[str, tuple[int, ...]], itemsize: int, start: int = 0) -> dict[str, Region]:
    """Tensors of *itemsize* bytes an element one after the other from offset *start*."""
    placed, offset = {}, start
    for name, shape in shapes.items():
        placed[name] = Region(offset, shape)
        offset = aligned(offset + prod(shape) * itemsize)
    return placed


def aligned(num_bytes: int) -> int:
    """*num_bytes*, or the next offset at which a tensor may begin."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def heap_bytes(problem: Problem, schedule: Schedule) -> int:
    """Bytes of heap that *schedule* needs on every rank."""
    return max(region.offset + problem.itemsize * prod(region.shape) for region in regions(problem, schedule).values())
