"""Estimates of whole spaces at once: legality and the closed form, column by column, for landscapes and pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Value, tile
from kernels.schemes import axes, axis_rules, refusal
from workbench.simulator import columns as distinct
from workbench.simulator.closed_form import schemes, streams
from workbench.simulator.closed_form.points import Column, Floats, PointColumns
from workbench.simulator.closed_form.schemes import cuts
from workbench.simulator.columns import Kinds
from workbench.simulator.price import gemm, latency

BLOCK = 65536
"""Points taken at once: their columns then stay in the cache."""

UNPRICED = ("group_rows",)
"""Axes of GPU kernels that the closed form does not read: here points that differ in nothing else take as long.

`play` reads them where memory is near to bound a kernel."""
OF_BLOCKS = ("num_warps", "num_stages")
"""Those that prices read only where it is known what blocks of a kernel wait for."""


def times(problem: Problem, scheme: str, columns: Mapping[str, ArrayLike], machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of every point, nan where it is illegal.

    *columns* hold values of the scheme's axes (`tile` also as `tile_m` and `tile_n`), sizes of the problem's shape and
    numbers of an emulated fabric, all of one length or single values; the rest is the problem's, the fabric's or the
    axis's default for *problem*.
    """
    given = {name: np.atleast_1d(np.asarray(values)) for name, values in columns.items()}
    space = _Space(problem, scheme, machine, fabric, axes(problem, scheme, machine, fabric))
    known = {axis.name: axis for axis in space.axes}
    known_blocks = gemm.is_known(machine, problem) or latency.is_known(machine, problem)
    unread = UNPRICED if known_blocks else (*UNPRICED, *OF_BLOCKS)
    legal = [np.isin(given.pop(name), known[name].values) for name in unread if name in known and name in given]
    seconds = _priced(space, given)
    return np.where(reduce(and_, legal), seconds, np.nan) if legal else seconds


@dataclass(frozen=True, slots=True)
class _Space:
    """What all points share."""

    problem: Problem
    scheme: str
    machine: Machine
    fabric: Fabric
    axes: Sequence[Axis]

    def points(self, columns: Mapping[str, Column]) -> PointColumns:
        return PointColumns(self.problem, self.scheme, columns, self.machine, self.fabric)

    def accepts(self, words: Mapping[str, Value]) -> bool:
        """Whether *words* are legal together, the scheme's own rules asked; counts are 1, or as they are by default."""
        usual = {axis.name: axis.default for axis in self.axes}
        ones = {axis.name: 1 for axis in self.axes if axis.open and not _is_word(axis)}
        return any(
            refusal(
                self.problem,
                axis_rules.effective(self.problem, complete, self.machine.backend),
                self.machine,
                self.fabric,
            )
            is None
            for counts in (ones, {})
            for complete in [Schedule(self.scheme, tuple((usual | counts | dict(words)).items()))]
        )


def _priced(space: _Space, given: Mapping[str, Column]) -> Floats:
    """Seconds of every point, by columns that prices read; points that share all values are computed once."""
    count = max((len(values) for values in given.values()), default=1)
    varied = {name: values for name, values in given.items() if len(values) > 1}
    chosen = {name: distinct.kinds(values) for name, values in varied.items() if distinct.repeats(values)}
    if len(chosen) < len(varied) or not chosen:
        return _times(space, {**given, **chosen}, count)
    one_of_each, which = distinct.rows(list(chosen.values()))
    fewer = {name: Kinds(column.values, column.which[one_of_each]) for name, column in chosen.items()}
    return _times(space, {**given, **fewer}, len(one_of_each))[which]


def _times(space: _Space, given: Mapping[str, Column | Kinds], count: int) -> Floats:
    """Seconds of *count* points."""
    seconds, columns = np.full(count, np.nan), _in_numbers(given)
    for words, alike in _alike(space, given, count):
        for start in range(0, len(alike), BLOCK):
            block = alike[start : start + BLOCK]
            points = space.points({name: _some(each, block) for name, each in columns.items()} | words)
            estimated = streams.seconds if points.in_streams else schemes.seconds
            with np.errstate(divide="ignore", invalid="ignore"):  # illegal sizes may be 0
                seconds[block] = np.where(_legal(points), estimated(points), np.nan)
    return seconds


def _in_numbers(given: Mapping[str, Column | Kinds]) -> dict[str, Column | Kinds]:
    """The columns, tiles as their sides: numbers are picked faster than texts."""
    texts = given.get("tile")
    if not isinstance(texts, Kinds):
        return dict(given)
    sides = np.array([(one.m, one.n, one.k) for one in (tile(str(text)) for text in texts.values)])
    m, n, k = (Kinds(side, texts.which) for side in sides.T)
    return {"tile_m": m, "tile_n": n, "tile_k": k, **{name: column for name, column in given.items() if name != "tile"}}


def _some(column: Column | Kinds, block: Column) -> Column:
    if isinstance(column, Kinds):
        return np.asarray(column.values[column.which[block]])
    return column if len(column) == 1 else column[block]


def _alike(space: _Space, given: Mapping[str, Column | Kinds], count: int) -> Iterator[tuple[dict[str, Any], Column]]:
    """Points that agree in every axis whose values are words, as far as those words are legal together."""
    worded = {axis.name: axis for axis in space.axes if not axis.open and _is_word(axis) and axis.name in given}
    texts = {name: _as_kinds(given[name], count) for name in worded}
    for alike in distinct.groups(list(texts.values())) if texts else [np.arange(count)]:
        words = {name: str(text.values[text.which[alike[0]]]) for name, text in texts.items()}
        if all(words[name] in axis.values for name, axis in worded.items()) and space.accepts(words):
            yield words, alike


def _as_kinds(column: Column | Kinds, count: int) -> Kinds:
    return column if isinstance(column, Kinds) else distinct.kinds(np.broadcast_to(column, (count,)))


def _is_word(axis: Axis) -> bool:
    return isinstance(axis.default, str)


def _legal(points: PointColumns) -> Column:
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
