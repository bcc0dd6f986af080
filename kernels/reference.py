"""The slow truth: every operator on all ranks' operands in float64, without tiles, peers or overlap."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache, reduce
from math import prod

import torch
from torch import Tensor

from kernels.operators import OPERATORS, Flow, ResultLayout
from kernels.problem import Problem

POWER_LAW_EXPONENT = 1.05
"""Zipf exponent of `indices = power_law`; click logs are reported near 1."""

Operands = dict[str, Tensor]

SEED = 0
"""Of operands that are the same in all runs. What the bench verifies and times is drawn anew, from its own seeds."""


def torch_dtype(problem: Problem) -> torch.dtype:
    """The problem's dtype as torch names it."""
    dtype = getattr(torch, problem.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def operands(problem: Problem, rank: int, seed: int, device: str = "cpu", values: int = 0) -> Operands:
    """Random operands of *rank*, standard normal; the same in every process that asks with the same *seed*.

    Names and shapes are the operator's `local`, without the output. They are drawn where they are used, so that GPU
    ranks have others than CPU ranks, but all GPU ranks draw the same. Of each seed there are two *values*, 0 and 1.
    """
    text = json.dumps([problem.to_json(), rank, seed], sort_keys=True)
    generator = torch.Generator(device).manual_seed(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16))
    shapes = {name: shape for name, shape in OPERATORS[problem.operator].local(problem).items() if name != "output"}
    drawn = {
        name: _indices(problem, rank, seed, shape).to(device)
        if name == "indices"
        else torch.randn(shape, generator=generator, device=device).to(torch_dtype(problem))
        for name, shape in shapes.items()
    }
    return drawn | {alternated(problem): alternative(problem, rank, seed, drawn)} if values else drawn


def alternated(problem: Problem) -> str:
    """The one operand in which the two values of a seed differ: rows looked up, what comes in, or the smaller one."""
    operator = OPERATORS[problem.operator]
    shapes = {name: shape for name, shape in operator.local(problem).items() if name != "output"}
    if "indices" in shapes:
        return "indices"
    return next(iter(shapes)) if operator.flow is Flow.RECEIVE else min(shapes, key=lambda name: prod(shapes[name]))


def alternative(problem: Problem, rank: int, seed: int, of_rank: Operands) -> Tensor:
    """The `alternated` one of *of_rank*, which are *rank*'s values 0, in values 1: other rows, or the other sign.

    So every element of the output is another one, and what an earlier call left is wrong.
    """
    name = alternated(problem)
    held = of_rank[name]
    return _indices(problem, rank, seed, tuple(held.shape), 1).to(held.device) if name == "indices" else -held


def _indices(problem: Problem, rank: int, seed: int, shape: tuple[int, ...], values: int = 0) -> Tensor:
    """int64 [batch, tables, pooling]: rows of each table, uniform or by a power law over shuffled rows."""
    generator = torch.Generator().manual_seed((2 * seed + values) * 1009 + rank)
    rows = problem["rows"]
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    if problem.word("indices") == "uniform":
        return (uniform * rows).long()
    share = 1.0 - POWER_LAW_EXPONENT
    popular = ((uniform * ((rows + 1.0) ** share - 1.0) + 1.0) ** (1.0 / share)).long().clamp_(1, rows) - 1
    return torch.randperm(rows, generator=generator)[popular]


def partial(problem: Problem, of_rank: Operands, rows: slice) -> Tensor:
    """float64 result of one rank's computation for output rows *rows*, before any collective."""
    if "tables" in of_rank:
        return torch.cat(
            [
                of_rank["tables"][t].double()[of_rank["indices"][rows, t]].sum(1)
                for t in range(problem["tables_per_rank"])
            ],
            dim=1,
        )
    left, right = (value.double() for value in of_rank.values())
    return left[rows] @ right


@lru_cache(maxsize=2)
def expected(problem: Problem, rank: int, seed: int, device: str = "cpu", values: int = 0) -> Tensor:
    """float64 output of *rank*, shaped as the operator's `local` says, from the operands of all ranks on *device*."""
    operator, world = OPERATORS[problem.operator], problem.world
    if values and operator.work != "gather":  # one operand has the other sign, and so has every sum of products
        return -expected(problem, rank, seed, device)
    size = operator.chunk_rows(problem)
    chunk = slice(rank * size, (rank + 1) * size)
    # one rank's operands after the other where that is possible: tables and weights may fill much of the memory
    everyone = (operands(problem, peer, seed, device, values) for peer in range(world))
    if operator.flow is Flow.RECEIVE:
        return _received(problem, list(everyone), rank, chunk)
    if operator.flow is Flow.BROADCAST:
        return reduce(torch.add, (partial(problem, of_rank, slice(None)) for of_rank in everyone))
    parts = [partial(problem, of_rank, chunk) for of_rank in everyone]
    if operator.reduces:
        return torch.stack(parts).sum(0)
    return torch.cat(parts, dim=1 if operator.layout is ResultLayout.COLUMNS else 0)


def _received(problem: Problem, everyone: list[Operands], rank: int, chunk: slice) -> Tensor:
    whole = [of_rank["shard"] if "shard" in of_rank else of_rank["tokens"][chunk] for of_rank in everyone]
    weights = next(value for name, value in everyone[rank].items() if name in ("b", "expert"))
    return torch.cat(whole).double() @ weights.double()
