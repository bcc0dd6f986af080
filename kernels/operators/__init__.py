"""The table of operators, and the one way to build a checked Problem."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.operators import embedding, gemm, gemv
from kernels.operators.base import Extent, Flow, Key, Operator, ResultLayout
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.units import DTYPE_BYTES

__all__ = ["OPERATORS", "Extent", "Flow", "Key", "Operator", "ResultLayout", "operator", "problem"]

OPERATORS: dict[str, Operator] = {each.name: each for each in (embedding.OPERATOR, gemv.OPERATOR, *gemm.OPERATORS)}

MOST_RANKS = 65_536
"""Most ranks of a problem, more than any machine connects: lists by rank stay small, whatever a file contains."""
LARGEST = 2**53
"""Largest size: products of three such sizes are still numbers that arrays can estimate with."""


def operator(name: str) -> Operator:
    """The operator called *name*; Refusal lists the names."""
    if name not in OPERATORS:
        raise Refusal(f"There is no operator {name!r}. Accepted: {', '.join(OPERATORS)}.")
    return OPERATORS[name]


def problem(name: str, shape: Mapping[str, object], *, dtype: str = "float32", world: int = 2) -> Problem:
    """A checked Problem; Refusal says which size breaks which rule."""
    known = operator(name)
    if dtype not in DTYPE_BYTES:
        raise Refusal(f"There is no dtype {dtype!r}. Accepted: {', '.join(DTYPE_BYTES)}.")
    if world < 1:
        raise Refusal(f"world = {world} is too small: {world} < 1. Accepted: 1 rank or more.")
    if world > MOST_RANKS:
        raise Refusal(f"world = {world} is too large: {world} > {MOST_RANKS}. Accepted: 1 to {MOST_RANKS} ranks.")
    names = [key.name for key in known.keys]
    if unknown := [key for key in shape if key not in names]:
        raise Refusal(f"{name} has no shape key {unknown[0]!r}. Accepted: {', '.join(names)}.")
    for key in known.keys:  # a wrong size is named before one that is missing: it may hold the others
        if key.name in shape:
            _size(key, shape)
    if missing := [key for key in known.keys if not key.words and key.name not in shape]:
        needs = ", ".join(f"{key.name} ({key.doc})" for key in missing)
        raise Refusal(f"{name} needs {needs}. Accepted: {' '.join(f'{key.name}=SIZE' for key in missing)}.")
    built = Problem(name, tuple((key.name, _size(key, shape)) for key in known.keys), dtype, world)
    if (reason := known.rule(built)) is not None:
        raise Refusal(reason)
    return built


def _size(key: Key, shape: Mapping[str, object]) -> int | str:
    if key.words:
        word = str(shape.get(key.name, key.words[0]))
        if word not in key.words:
            raise Refusal(
                f"{key.name} = {word!r} is unknown ({key.name}: {key.doc}). Accepted: {', '.join(key.words)}."
            )
        return word
    try:
        size = int(str(shape[key.name]))
    except ValueError:
        size = 0
    if not 1 <= size <= LARGEST:
        raise Refusal(
            f"{key.name} = {shape[key.name]!s:.40} is not a size ({key.name}: {key.doc}). Accepted: a whole number "
            "from 1, and each size by itself."
        )
    return size
