"""Estimates a whole space of schedules at once, in columns: which are legal, and how long they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernels import fitted
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Tile, Value, tile
from kernels.schemes import axes, axis_rules, fitted_tiles, refusal, spanning
from kernels.schemes.fused import PAIR
from kernels.schemes.spanning import LANDED_MOST
from workbench.simulator.closed_form import hosts, schemes, streams
from workbench.simulator.closed_form.messages import tiles_of_chunk
from workbench.simulator.closed_form.points import Column, Floats, PointColumns
from workbench.simulator.closed_form.schemes import cuts
from workbench.simulator.columns import Kinds, distinct_rows, distinct_values, groups_of_equal_rows, has_repeats
from workbench.simulator.price import gemm, latency, networks, tiles

BLOCK = 65536
"""Points estimated at once: so few that their columns stay in the cache."""

UNPRICED = ("group_rows",)
"""Axes of GPU kernels that the closed form ignores: points that differ in these alone get equal estimates.

`play` reads them where memory nearly bounds a kernel."""
BLOCK_AXES = ("num_warps", "num_stages")
"""Axes that prices read only for machines where measurements show what the blocks of a kernel wait for."""


def times(problem: Problem, scheme: str, columns: Mapping[str, ArrayLike], machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of every point; nan for illegal points.

    *columns* hold values of the scheme's axes (`tile` also as `tile_m` and `tile_n`), sizes of the problem's shape and
    numbers of an emulated fabric. They have one length, or are single values. What they omit comes from *problem*,
    *fabric* or the defaults of the axes for *problem*; of an axis that schedules may omit it is the value they omit.
    """
    given = {name: np.atleast_1d(np.asarray(values)) for name, values in columns.items()}
    space = _Space(problem, scheme, machine, fabric, axes(problem, scheme, machine, fabric))
    known = {axis.name: axis for axis in space.axes}
    legal = [
        np.isin(given.pop(name), known[name].values)
        for name in unread(problem, machine)
        if name in known and name in given
    ]
    seconds = _priced(space, given)
    return np.where(reduce(and_, legal), seconds, np.nan) if legal else seconds


def unread(problem: Problem, machine: Machine) -> tuple[str, ...]:
    """The axes on which no estimate of *problem* on *machine* depends: nothing was measured that shows their effect."""
    known_blocks = gemm.is_known(machine, problem) or latency.is_known(machine, problem)
    return UNPRICED if known_blocks else (*UNPRICED, *BLOCK_AXES)


@dataclass(frozen=True, slots=True)
class _Space:
    """The problem, scheme, machine and fabric that all points of a space have in common."""

    problem: Problem
    scheme: str
    machine: Machine
    fabric: Fabric
    axes: Sequence[Axis]

    def points(self, columns: Mapping[str, Column]) -> PointColumns:
        return PointColumns(self.problem, self.scheme, columns, self.machine, self.fabric)

    def accepts(self, texts: Mapping[str, Value]) -> bool:
        """Whether *texts*, by axis, are legal together by the scheme's rules, with other axes 1 or at their default."""
        usual = {axis.name: axis.default for axis in self.axes}
        # not all orders take SMs that only send
        usual |= {axis.name: 0 for axis in self.axes if axis.name == axis_rules.COMM_SMS and 0 in axis.values}
        ones = {axis.name: 1 for axis in self.axes if axis.open and not _has_texts(axis)}
        whole_rows = {axis.name: max(axis.values) for axis in self.axes if axis.name == networks.SLICE}
        many_tiles = {axis.name: min(axis.values, key=_area) for axis in self.axes if axis.name == "tile"}
        return any(
            refusal(
                self.problem,
                axis_rules.effective(self.problem, complete, self.machine.backend),
                self.machine,
                self.fabric,
            )
            is None
            for counts in (ones, {}, whole_rows, many_tiles)
            for complete in [Schedule(self.scheme, tuple((usual | counts | dict(texts)).items()))]
        )


def _priced(space: _Space, given: Mapping[str, Column]) -> Floats:
    """Seconds of every point, from columns that prices read; equal points are computed once."""
    count = max((len(values) for values in given.values()), default=1)
    varied = {name: values for name, values in given.items() if len(values) > 1}
    repeated = {name: distinct_values(values) for name, values in varied.items() if has_repeats(values)}
    if len(repeated) < len(varied) or not repeated:
        return _times(space, {**given, **repeated}, count)
    examples, which = distinct_rows(list(repeated.values()))
    fewer = {name: Kinds(column.values, column.which[examples]) for name, column in repeated.items()}
    return _times(space, {**given, **fewer}, len(examples))[which]


def _times(space: _Space, given: Mapping[str, Column | Kinds], count: int) -> Floats:
    """Seconds of *count* points."""
    seconds, columns = np.full(count, np.nan), _with_tile_sides(given)
    for texts, places in _equal_texts(space, given, count):
        for start in range(0, len(places), BLOCK):
            block = places[start : start + BLOCK]
            points = space.points({name: _picked(column, block) for name, column in columns.items()} | texts)
            estimated = streams.seconds if points.in_streams else schemes.seconds
            with np.errstate(divide="ignore", invalid="ignore"):  # illegal sizes may be 0
                seconds[block] = np.where(_legal(points), estimated(points), np.nan)
    return seconds


def _with_tile_sides(given: Mapping[str, Column | Kinds]) -> dict[str, Column | Kinds]:
    """The columns *given*, with tiles as their three sides: numbers are picked faster than texts."""
    texts = given.get("tile")
    if not isinstance(texts, Kinds):
        return dict(given)
    sides = np.array([(size.m, size.n, size.k) for size in (tile(str(text)) for text in texts.values)])
    m, n, k = (Kinds(side, texts.which) for side in sides.T)
    return {"tile_m": m, "tile_n": n, "tile_k": k, **{name: column for name, column in given.items() if name != "tile"}}


def _picked(column: Column | Kinds, block: Column) -> Column:
    if isinstance(column, Kinds):
        return np.asarray(column.values[column.which[block]])
    return column if len(column) == 1 else column[block]


def _equal_texts(
    space: _Space, given: Mapping[str, Column | Kinds], count: int
) -> Iterator[tuple[dict[str, Any], Column]]:
    """Places of points that agree in every axis whose values are texts, with those texts, if they are legal."""
    text_axes = {axis.name: axis for axis in space.axes if not axis.open and _has_texts(axis) and axis.name in given}
    columns = {name: _as_kinds(given[name], count) for name in text_axes}
    for places in groups_of_equal_rows(list(columns.values())) if columns else [np.arange(count)]:
        texts = {name: str(column.values[column.which[places[0]]]) for name, column in columns.items()}
        offered = all(text in (*text_axes[name].values, *text_axes[name].unoffered) for name, text in texts.items())
        if offered and space.accepts(texts):
            yield texts, places


def _as_kinds(column: Column | Kinds, count: int) -> Kinds:
    return column if isinstance(column, Kinds) else distinct_values(np.broadcast_to(column, (count,)))


def _has_texts(axis: Axis) -> bool:
    return isinstance(axis.default, str)


def _area(size: Value) -> int:
    """Results of a tile."""
    return tile(str(size)).m * tile(str(size)).n


def _legal(points: PointColumns) -> Column:
    """Whether each point obeys the rules about numbers: sizes, counts from 1, and no more pieces than values."""
    legal = np.asarray(points.operator.obeys(points.sizes))
    for name, values in points.given.items():
        axis = points.axes.get(name)
        if axis is None or _has_texts(axis):
            legal = legal & (np.ones(1, dtype=bool) if axis else values > 0 if "seconds" not in name else values >= 0)
        else:
            listed = np.isin(values, (*axis.values, *axis.unoffered))
            legal = legal & (listed | (values >= 1) if axis.open else listed)
    if points.between_hosts:
        legal = legal & hosts.legal(points)
    if points.spans:
        rows, columns = axis_rules.landed(points.sizes)
        legal = legal & (rows * columns * points.problem.itemsize <= LANDED_MOST)
        if points.packets:
            legal = legal & _few_enough(points)
        whole = points.axis(axis_rules.SPLIT_K) == axis_rules.WHOLE if axis_rules.SPLIT_K in points.axes else True
        even = np.logical_and.reduce([end % points.tile_k == 0 for end in spanning.limits_of(points.contraction)])
        legal = legal & ((points.pushers == 0) | (whole & even & (points.contraction > spanning.RANGE_STEP)))
    if {"num_warps", "store", axis_rules.SPLIT_K} <= points.axes.keys():  # of a GPU's fused GEMM
        legal = legal & _of_fitted_tiles(points)
    if points.word(axis_rules.TILE_ORDER) == axis_rules.RING and points.world > PAIR:
        legal = legal & (tiles_of_chunk(points) >= tiles.slots(points.machine))
    if points.word(axis_rules.TILE_ORDER) not in axis_rules.RELAYED or points.word("store") == axis_rules.REGISTERS:
        legal = legal & ~points.relayed
    if points.relayed.any():
        legal = legal & ~(points.relayed & (points.axis("grid") > tiles.slots(points.machine)))
    if points.in_pieces:
        for count, length in zip(cuts(points), (points.chunk, points.columns, points.contraction), strict=True):
            legal = legal & (count <= length)
    return legal


def _few_enough(points: PointColumns) -> Column:
    """Where sums are few enough for packets, and tiles have one for each thread."""
    packets = axis_rules.packets_of(points.tile_m, points.tile_n, points.problem.itemsize)
    return np.asarray(axis_rules.are_few(points.sizes) & (packets >= 32 * points.axis("num_warps")))


def _of_fitted_tiles(points: PointColumns) -> Column:
    """Where no tile is fitted, or its kernel takes the other axes."""
    sides = np.stack(np.broadcast_arrays(points.tile_m, points.tile_n, points.tile_k), axis=1)
    some, which = np.unique(sides, axis=0, return_inverse=True)
    takes = np.ones(points.count, dtype=np.bool_)
    for number, size in enumerate(Tile(*map(int, each)) for each in some):
        if not fitted.is_fitted(size):
            continue
        here, of = which.ravel() == number, fitted_tiles.sides_on(points.problem, size, points.machine)
        if of is None or points.word("store") in (axis_rules.REGISTERS, axis_rules.PACKETS):
            takes &= ~here
            continue
        stages = points.axis("num_stages")
        fits = (points.axis("num_warps") == of.warps) & (stages >= fitted.STAGES_FEWEST) & (stages <= of.stages)
        takes &= ~here | (fits & (points.axis(axis_rules.SPLIT_K) == axis_rules.WHOLE))
    return takes
