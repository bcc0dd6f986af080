"""Estimates of whole spaces at once: legality and the closed form, column by column, for landscapes and pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from kernels.axes import Axis, Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import axes, reads, refusal
from workbench.simulator import closed_form
from workbench.simulator.closed_form import cuts
from workbench.simulator.points import Column, Floats, Points

BLOCK = 65536
"""Points taken at once: their columns then stay in the cache."""


def times(problem: Problem, scheme: str, columns: Mapping[str, ArrayLike], machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of every point, nan where it is illegal.

    *columns* hold values of the scheme's axes (`tile` also as `tile_m` and `tile_n`), sizes of the problem's shape and
    numbers of an emulated fabric, all of one length or single values; the rest is the problem's, the fabric's or the
    axis's default for *problem*.
    """
    given = {name: np.atleast_1d(np.asarray(values)) for name, values in columns.items()}
    seconds = np.full(max((len(values) for values in given.values()), default=1), np.nan)
    for words, chosen in _alike(problem, scheme, given, len(seconds), machine, fabric):
        for start in range(0, len(chosen), BLOCK):
            block = chosen[start : start + BLOCK]
            some = {name: values if len(values) == 1 else values[block] for name, values in given.items()}
            points = Points(problem, scheme, {**some, **words}, machine, fabric)
            with np.errstate(divide="ignore", invalid="ignore"):  # illegal sizes may be 0
                seconds[block] = np.where(_legal(points), closed_form.seconds(points), np.nan)
    return seconds


def _alike(problem: Problem, scheme: str, given: Mapping[str, Column], count: int, machine: Machine,
           fabric: Fabric) -> Iterator[tuple[dict[str, Value], Column]]:  # fmt: skip
    """Points that agree in every axis whose values are words, as far as those words are legal together."""
    known = axes(problem, scheme, machine, fabric)
    worded = [axis for axis in known if not axis.open and _is_word(axis)]
    masks = {axis.name: {value: _equals(given[axis.name], value) for value in axis.values}
             for axis in worded if axis.name in given}  # fmt: skip
    for choice in product(*(of_axis.items() for of_axis in masks.values())):
        words = dict(zip(masks, (value for value, _ in choice), strict=True))
        chosen = np.ones(count, dtype=bool)
        for _, mask in choice:
            chosen = chosen & mask
        if chosen.any() and _agree(problem, scheme, known, words, machine, fabric):
            yield words, np.flatnonzero(chosen)


def _is_word(axis: Axis) -> bool:
    return isinstance(axis.default, str)


def _equals(column: Column, value: Value) -> Column:
    return np.asarray(column.astype(str) == value)


def _agree(problem: Problem, scheme: str, known: Sequence[Axis], words: Mapping[str, Value], machine: Machine,
           fabric: Fabric) -> bool:  # fmt: skip
    """Whether words are legal together, the scheme's own rules asked; counts are 1, or as they are by default."""
    usual = {axis.name: axis.default for axis in known}
    ones = {axis.name: 1 for axis in known if axis.open and not _is_word(axis)}
    return any(
        refusal(problem, reads.read(problem, complete, machine.backend), machine, fabric) is None
        for counts in (ones, {})
        for complete in [Schedule(scheme, tuple((usual | counts | dict(words)).items()))]
    )


def _legal(points: Points) -> Column:
    """The rules about numbers: sizes the operator accepts, counts from 1, pieces that are not shorter than 1."""
    legal = points.of_each_shape(lambda shaped: [operator(shaped.operator).rule(shaped) is None])[0].astype(bool)
    for name, values in points.given.items():
        axis = points.axes.get(name)
        if axis is None or _is_word(axis):
            legal = legal & (np.ones(1, dtype=bool) if axis else values > 0 if "seconds" not in name else values >= 0)
        else:
            legal = legal & (values >= 1 if axis.open else np.isin(values, axis.values))
    if points.in_pieces:
        for count, length in zip(cuts(points), (points.chunk, points.columns, points.contraction), strict=True):
            legal = legal & (count <= length)
    return legal
