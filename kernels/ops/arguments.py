"""What a call of an operator asks for, read off its two operands: sizes, result, and why they cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from kernels import operators
from kernels.operators import OPERATORS, Operator
from kernels.problem import Problem
from kernels.schedule import Refusal

Size = Any
"""An int, or a symbol of torch's tracer that stands for one."""


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


def read(operator: str, first: Operand, second: Operand, world: int) -> Sizes:
    """The sizes of a call; Refusal where the operands cannot be those of *operator* on *world* ranks."""
    known = OPERATORS[operator]
    _check_kinds(known, first, second)
    sizes = Sizes(known.sizes(first.shape, second.shape, world), world)
    for key, size in sizes.by_key.items():
        if size < 1:
            raise Refusal(f"{operator} got {key} = {size}, and {size} < 1. Accepted: sizes from 1.")
    if (sentence := known.rule(sizes.as_problem())) is not None:
        raise Refusal(f"{operator} does not run in a group of {world}: {sentence}")
    _check_shapes(known, (first, second), sizes)
    return sizes


def result_shape(operator: str, sizes: Sizes) -> tuple[Size, ...]:
    """Of one rank's output."""
    return OPERATORS[operator].local(sizes.as_problem())["output"]


@lru_cache(maxsize=1024)
def problem(operator: str, first: Operand, second: Operand, world: int) -> Problem:
    """The checked Problem of a call; Refusal as in `read`."""
    sizes, dtype = read(operator, first, second, world), str(first.dtype).removeprefix("torch.")
    return operators.problem(operator, sizes.by_key, dtype=dtype, world=world)


def _check_kinds(known: Operator, first: Operand, second: Operand) -> None:
    """Dimensions, dtypes and devices."""
    called = tuple(known.operands())
    for (name, dimensions), operand in zip(known.operands().items(), (first, second), strict=True):
        if len(operand.shape) != dimensions:
            raise Refusal(
                f"{known.name} got {name} with {len(operand.shape)} dimensions, {operand}. Accepted: "
                f"{_meant(known)[name]}."
            )
    wanted = torch.int64 if known.work == "gather" else first.dtype
    if second.dtype != wanted:
        raise Refusal(
            f"{known.name} got {called[0]} of {first.dtype} and {called[1]} of {second.dtype}. Accepted: {called[1]} "
            f"of {wanted}."
        )
    if first.device != second.device:
        raise Refusal(
            f"{known.name} got {called[0]} on {first.device} and {called[1]} on {second.device}. Accepted: both on "
            "the device of this rank."
        )


def _check_shapes(known: Operator, operands: tuple[Operand, Operand], sizes: Sizes) -> None:
    """What both operands state has to agree: the contraction, the number of tables."""
    called, expected = tuple(known.operands()), known.local(sizes.as_problem())
    for name, operand, other in zip(called, operands, reversed(called), strict=True):
        if operand.shape != expected[name]:
            beside = operands[called.index(other)]
            raise Refusal(
                f"{known.name} got {name} of shape {operand}. Beside {other} of shape {beside} in a group of "
                f"{sizes.world} it must be {' x '.join(map(str, expected[name]))}. Accepted: "
                f"{', '.join(_meant(known).values())}."
            )


def _meant(known: Operator) -> dict[str, str]:
    """The operands with their shapes in words, by name."""
    return {name: f"{name} {words}" for name, words in zip(known.operands(), known.operand_words, strict=True)}
