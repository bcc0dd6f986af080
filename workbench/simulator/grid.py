"""Estimates of whole spaces at once: legality and the closed form, column by column, for landscapes and pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_

import numpy as np
from numpy.typing import ArrayLike

from kernels.axes import Axis, Value, tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import axes, reads, refusal
from workbench.simulator import closed_form, distinct
from workbench.simulator.closed_form import cuts
from workbench.simulator.distinct import Kinds
from workbench.simulator.points import Column, Floats, Points

BLOCK = 65536
"""Points taken at once: their columns then stay in the cache."""

UNPRICED = ("num_warps", "num_stages", "group_rows")
"""Axes of GPU kernels that no price reads: points that differ in nothing else take as long."""


def times(problem: Problem, scheme: str, columns: Mapping[str, ArrayLike], machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of every point, nan where it is illegal.

    *columns* hold values of the scheme's axes (`tile` also as `tile_m` and `tile_n`), sizes of the problem's shape and
    numbers of an emulated fabric, all of one length or single values; the rest is the problem's, the fabric's or the
    axis's default for *problem*.
    """
    given = {name: np.atleast_1d(np.asarray(values)) for name, values in columns.items()}
    unpriced = {axis.name: axis for axis in axes(problem, scheme, machine, fabric)
                if axis.name in UNPRICED and axis.name in given}  # fmt: skip
    legal = [np.isin(given.pop(name), axis.values) for name, axis in unpriced.items()]
    seconds = _priced(problem, scheme, given, machine, fabric)
    return np.where(reduce(and_, legal), seconds, np.nan) if legal else seconds


def _priced(problem: Problem, scheme: str, given: Mapping[str, Column], machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of every point, by columns that prices read; points that share all values are computed once."""
    count = max((len(values) for values in given.values()), default=1)
    varied = {name: values for name, values in given.items() if len(values) > 1}
    chosen = {name: distinct.kinds(values) for name, values in varied.items() if distinct.repeats(values)}
    if len(chosen) < len(varied) or not chosen:
        return _times(problem, scheme, given, chosen, count, machine, fabric)
    one_of_each, which = distinct.rows(list(chosen.values()))
    fewer = {name: Kinds(column.values, column.which[one_of_each]) for name, column in chosen.items()}
    return _times(problem, scheme, given, fewer, len(one_of_each), machine, fabric)[which]


def _times(problem: Problem, scheme: str, given: Mapping[str, Column], chosen: Mapping[str, Kinds], count: int,
           machine: Machine, fabric: Fabric) -> Floats:  # fmt: skip
    """Seconds of *count* points; where a column is among *chosen*, its values are taken from there."""
    seconds, columns = np.full(count, np.nan), _in_numbers(given, chosen)
    for words, alike in _alike(problem, scheme, given, chosen, count, machine, fabric):
        for start in range(0, len(alike), BLOCK):
            block = alike[start : start + BLOCK]
            some = {name: _some(column, block) for name, column in columns.items() if name not in words}
            points = Points(problem, scheme, {**some, **words}, machine, fabric)
            with np.errstate(divide="ignore", invalid="ignore"):  # illegal sizes may be 0
                seconds[block] = np.where(_legal(points), closed_form.seconds(points), np.nan)
    return seconds


def _in_numbers(given: Mapping[str, Column], chosen: Mapping[str, Kinds]) -> dict[str, Column | Kinds]:
    """The columns, tiles as their two sides: numbers are picked faster than texts."""
    columns: dict[str, Column | Kinds] = {**given, **chosen}
    if isinstance(texts := columns.get("tile"), Kinds):
        del columns["tile"]
        sides = [tile(str(text)) for text in texts.values]
        columns = {"tile_m": Kinds(np.array([side.m for side in sides]), texts.which),
                   "tile_n": Kinds(np.array([side.n for side in sides]), texts.which), **columns}  # fmt: skip
    return columns


def _some(column: Column | Kinds, block: Column) -> Column:
    if isinstance(column, Kinds):
        return column.values[column.which[block]]
    return column if len(column) == 1 else column[block]


def _alike(problem: Problem, scheme: str, given: Mapping[str, Column], chosen: Mapping[str, Kinds], count: int,
           machine: Machine, fabric: Fabric) -> Iterator[tuple[dict[str, Value], Column]]:  # fmt: skip
    """Points that agree in every axis whose values are words, as far as those words are legal together."""
    known = axes(problem, scheme, machine, fabric)
    worded = {axis.name: axis for axis in known if not axis.open and _is_word(axis) and axis.name in given}
    texts = {name: chosen.get(name) or distinct.kinds(np.broadcast_to(given[name], (count,))) for name in worded}
    for alike in distinct.groups(list(texts.values())) if texts else [np.arange(count)]:
        words: dict[str, Value] = {name: str(text.values[text.which[alike[0]]]) for name, text in texts.items()}
        are_values = all(words[name] in axis.values for name, axis in worded.items())
        if are_values and _agree(problem, scheme, known, words, machine, fabric):
            yield words, alike


def _is_word(axis: Axis) -> bool:
    return isinstance(axis.default, str)


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
    legal = np.asarray(points.operator.obeys(points.sizes))
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
