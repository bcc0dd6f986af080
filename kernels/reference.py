"""The reference result in float64, and the verdict on a measured one: an error bound by dtype and sizes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import inf, prod, sqrt

import torch
from torch import Tensor

from kernels.operators import OPERATORS
from kernels.operators.base import Flow, ResultLayout
from kernels.plan import Kind, Plan
from kernels.problem import Problem

# The reference: every operator on all ranks' operands in float64, without tiles, peers or overlap.

POWER_LAW_EXPONENT = 1.05
"""Zipf exponent of `indices = power_law`; click logs are reported near 1."""

Operands = dict[str, Tensor]

POWERS = 8
"""Number of powers of two by which micro-batches differ."""

SEED = 0
"""Seed of operands that are the same in all runs; the bench draws those of its trials from new seeds."""


def torch_dtype(problem: Problem) -> torch.dtype:
    """The problem's dtype as torch names it."""
    dtype = getattr(torch, problem.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def operands(problem: Problem, rank: int, seed: int, device: str = "cpu", values: int = 0) -> Operands:
    """Random operands of *rank*, standard normal, which depend on *seed* and are the same in every process.

    Names and shapes are the operator's `local`, without the output. They are drawn on their *device*, so that GPU ranks
    have others than CPU ranks, but all GPU ranks draw the same. Each seed has two sets of *values*, 0 and 1, and two
    more for each further micro-batch of a call: 2 and 3 for the second one.
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
    return drawn | {alternated(problem): alternative(problem, rank, seed, drawn, values)} if values else drawn


def alternated(problem: Problem) -> str:
    """Name of the operand in which the values of a seed differ: the indices, the incoming one, or the smaller one."""
    operator = OPERATORS[problem.operator]
    shapes = {name: shape for name, shape in operator.local(problem).items() if name != "output"}
    if "indices" in shapes:
        return "indices"
    return next(iter(shapes)) if operator.flow is Flow.RECEIVE else min(shapes, key=lambda name: prod(shapes[name]))


def alternative(problem: Problem, rank: int, seed: int, of_rank: Operands, values: int = 1) -> Tensor:
    """The `alternated` operand in other *values*: other rows, or a factor. *of_rank*: *rank*'s operands in values 0.

    Every element of the output changes, so that a result left by an earlier call or another micro-batch is wrong.
    """
    name = alternated(problem)
    operand = of_rank[name]
    if name == "indices":
        return _indices(problem, rank, seed, tuple(operand.shape), values).to(operand.device)
    return operand * factor(values)


def factor(values: int) -> float:
    """The factor of the alternated operand of a product, and so of the result: exact, and small also in float16.

    The sign changes in values 1, 3, 5 ...; each of 16 micro-batches has a different factor, 2^-4 to 2^3.
    """
    micro_batch, other = divmod(values, 2)
    sign = (-1) ** (other + micro_batch // POWERS)
    return float(sign * 2.0 ** ((micro_batch + POWERS // 2) % POWERS - POWERS // 2))


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


def expected(problem: Problem, rank: int, seed: int, device: str = "cpu", values: int = 0) -> Tensor:
    """float64 output of *rank*, shaped as the operator's `local` says, from the operands of all ranks on *device*."""
    if OPERATORS[problem.operator].work == "gather":
        return _output(problem, rank, seed, device, values)
    first = _output(problem, rank, seed, device, 0)
    return first * factor(values) if values else first  # one operand has a factor, and so has every sum of products


@lru_cache(maxsize=2)
def _output(problem: Problem, rank: int, seed: int, device: str, values: int) -> Tensor:
    operator, world = OPERATORS[problem.operator], problem.world
    size = operator.chunk_rows(problem)
    chunk = slice(rank * size, (rank + 1) * size)
    # one rank's operands at a time where possible: tables and weights may fill much of the memory
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


# The verdict: the error of a result, and its bound.

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of each dtype; bfloat16's is 2^-9 for round to nearest, doubled for kernels that truncate."""
SIGMAS = 8.0
"""Most standard deviations to expect of an output, since operands are standard normal."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The error of a result and its bound, in standard deviations of the reference."""

    error: float
    bound: float
    stale: bool = False
    """Whether the result is the one that an earlier call left, on other operands."""

    @property
    def correct(self) -> bool:
        """Whether the error is within the bound; NaN is not."""
        return self.error <= self.bound

    def message(self, rank: int) -> str:
        if self.stale:
            return (
                f"The result on rank {rank} is wrong. It is that of an earlier call, on other operands, which the last "
                "call left in place. It was not timed."
            )
        return (
            f"The result on rank {rank} is wrong. Its largest error is {self.error:.3g} of the output's standard "
            f"deviation, and the limit is {self.bound:.3g}. It was not timed."
        )


def badness(verdict: Verdict) -> float:
    """A sort key of verdicts, highest for the worst: error over bound, and infinity for NaN."""
    ratio = verdict.error / verdict.bound
    return ratio if ratio == ratio else inf


def roundings(plan: Plan) -> int:
    """How often *plan* rounds a value to the problem's dtype before the output itself is rounded.

    Ranges whose partial sums are added together stay float32.
    """
    computes = plan.k_start[plan.kind == Kind.COMPUTE]
    pieces = 1 if plan.adds_units.any() else len(set(computes.tolist()))
    return pieces + (plan.problem.world if OPERATORS[plan.problem.operator].reduces else 0)


def bound(problem: Problem, roundings: int) -> float:
    """Largest accepted error in standard deviations of the output.

    Sums of K random terms err by about sqrt(K) float32 roundings of the running sum. Each store in the problem's dtype
    (of the result, and *roundings* times before: partial sums that are sent, pieces of the contraction) adds one
    rounding of a value that may be SIGMAS deviations large. Roundings are independent, so they add up as a random walk:
    a plain sum of 64 of them would hide a missing piece.
    """
    k = OPERATORS[problem.operator].extent(problem).contraction * problem.world
    return SIGMAS * (ROUNDING[problem.dtype] * (1 + sqrt(roundings)) + 4 * ROUNDING["float32"] * sqrt(k))


def verdict(problem: Problem, got: Tensor, expected: Tensor, roundings: int) -> Verdict:
    """Compares *got* [any dtype] with *expected* [float64] of equal shape; NaN anywhere in *got* is wrong."""
    assert got.shape == expected.shape, f"{tuple(got.shape)} is not {tuple(expected.shape)}"
    scale = expected.square().mean().sqrt().item() or 1.0
    error = (got.double() - expected).abs().max().item() / scale
    return Verdict(error if not torch.isnan(got).any() else float("nan"), bound(problem, roundings))
