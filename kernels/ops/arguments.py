"""What a call of an operator asks for, read off its two operands: sizes, result, and why they cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from kernels import operators
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Refusal

Size = Any
"""An int, or a symbol of torch's tracer that stands for one."""
Shapes = Mapping[str, tuple[Size, ...]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes by shape key and the world: all that an operator's `local` and `rule` read of a problem."""

    by_key: Mapping[str, Size]
    world: int

    def __getitem__(self, key: str) -> Size:
        return self.by_key[key]

    def as_problem(self) -> Problem:
        """For functions that only read sizes: a Problem holds no symbols."""
        return cast(Problem, self)


class Operand(NamedTuple):
    """What a call has to know of one operand before it is computed with."""

    shape: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)

    def __str__(self) -> str:
        return " x ".join(map(str, self.shape))


def _gemm(first: tuple[Size, ...], second: tuple[Size, ...], world: int) -> dict[str, Size]:
    return {"m": first[0], "n": second[1], "k": first[1]}


def _gathered(first: tuple[Size, ...], second: tuple[Size, ...], world: int) -> dict[str, Size]:
    return {"m": world * first[0], "n": second[1], "k": first[1]}


def _gemv(first: tuple[Size, ...], second: tuple[Size, ...], world: int) -> dict[str, Size]:
    return {"n": first[0], "k": world * first[1], "tokens": second[1]}


def _embedding(first: tuple[Size, ...], second: tuple[Size, ...], world: int) -> dict[str, Size]:
    tables, rows, dim = first
    return {"tables_per_rank": tables, "rows": rows, "dim": dim, "batch": second[0], "pooling": second[2]}


_READ: Mapping[str, Callable[[tuple[Size, ...], tuple[Size, ...], int], dict[str, Size]]] = {
    "embedding_all_to_all": _embedding,
    "gemv_all_reduce": _gemv,
    "all_gather_gemm": _gathered,
}
"""How sizes are read off the operands' shapes: the inverse of `local`; GEMM operators not listed share `_gemm`."""


def names(operator: str) -> tuple[str, str]:
    """Of the two operands, as the operator's `local` calls them."""
    stated = OPERATORS[operator]
    ones = Sizes({key.name: 1 for key in stated.keys}, 1)
    first, second, _ = stated.local(ones.as_problem())
    return first, second


def read(operator: str, first: Operand, second: Operand, world: int) -> Sizes:
    """The sizes of a call; Refusal where the operands cannot be those of *operator* on *world* ranks."""
    stated, called = OPERATORS[operator], names(operator)
    _check_kinds(operator, called, first, second)
    sizes = Sizes(_READ.get(operator, _gemm)(first.shape, second.shape, world), world)
    for key, size in sizes.by_key.items():
        if size < 1:
            raise Refusal(f"{operator} got {key} = {size}, and {size} < 1. Accepted: sizes from 1.")
    if (sentence := stated.rule(sizes.as_problem())) is not None:
        raise Refusal(f"{operator} does not run in a group of {world}: {sentence}")
    _check_shapes(operator, called, (first, second), sizes)
    return sizes


def result_shape(operator: str, sizes: Sizes) -> tuple[Size, ...]:
    """Of one rank's output."""
    return OPERATORS[operator].local(sizes.as_problem())["output"]


@lru_cache(maxsize=1024)
def problem(operator: str, first: Operand, second: Operand, world: int) -> Problem:
    """The checked Problem of a call; Refusal as in `read`."""
    sizes, dtype = read(operator, first, second, world), str(first.dtype).removeprefix("torch.")
    return operators.problem(operator, sizes.by_key, dtype=dtype, world=world)


def _check_kinds(operator: str, called: tuple[str, str], first: Operand, second: Operand) -> None:
    """Dimensions, dtypes and devices."""
    looks_up = operator == "embedding_all_to_all"
    for name, operand in zip(called, (first, second), strict=True):
        if len(operand.shape) != (3 if looks_up else 2):
            raise Refusal(
                f"{operator} got {name} with {len(operand.shape)} dimensions, {operand}. Accepted: "
                f"{_meant(operator)[name]}."
            )
    wanted = torch.int64 if looks_up else first.dtype
    if second.dtype != wanted:
        raise Refusal(
            f"{operator} got {called[0]} of {first.dtype} and {called[1]} of {second.dtype}. Accepted: {called[1]} "
            f"of {wanted}."
        )
    if first.device != second.device:
        raise Refusal(
            f"{operator} got {called[0]} on {first.device} and {called[1]} on {second.device}. Accepted: both on "
            "the device of this rank."
        )


def _check_shapes(operator: str, called: tuple[str, str], operands: tuple[Operand, Operand], sizes: Sizes) -> None:
    """What both operands state has to agree: the contraction, the number of tables."""
    expected = OPERATORS[operator].local(sizes.as_problem())
    for name, operand, other in zip(called, operands, reversed(called), strict=True):
        if operand.shape != expected[name]:
            beside = operands[called.index(other)]
            raise Refusal(
                f"{operator} got {name} of shape {operand}. Beside {other} of shape {beside} in a group of "
                f"{sizes.world} it must be {' x '.join(map(str, expected[name]))}. Accepted: "
                f"{', '.join(_meant(operator).values())}."
            )


def _meant(operator: str) -> dict[str, str]:
    """The operands' shapes in words."""
    first, second = names(operator)
    match operator:
        case "embedding_all_to_all":
            texts = ("tables [tables_per_rank, rows, dim]", "indices [batch, tables_per_rank, pooling]")
        case "gemv_all_reduce":
            texts = ("weights [n, k/world]", "activations [k/world, tokens]")
        case "all_gather_gemm":
            texts = ("shard [m/world, k]", "b [k, n]")
        case _:
            texts = (f"{first} [m, k]", f"{second} [k, n]")
    return {first: texts[0], second: texts[1]}
