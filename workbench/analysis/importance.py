"""Which axis matters? The share of the variance of log time that each axis explains by itself, of estimates or times.

The model is a sum: each value of each axis multiplies the time by a factor of its own. The share of an axis is the
variance of its factors' logarithms over that of all times (its main effect, a first-order index of Sobol). In a space
of which every combination is known, it is the variance of the mean of log time by value. Where combinations are
missing, the factors of all axes are fitted at once, so that no axis is credited with what another one did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Value, is_tile
from kernels.schemes import axes, axis_rules
from kernels.units import percent_text
from workbench.experiment.space import columns
from workbench.naming import TILE_SIDES, TOGETHER, axis_text
from workbench.results.rows import Row, tile_sides
from workbench.simulator.closed_form import grid

# What is known of each axis.

SPARE_LEAST = 4
"""Rows that must be left over after the fit of all values: fewer say nothing about how far the fit is off."""
CHANCE_MOST = 0.25
"""Where an axis without any effect could have a larger share than this by chance, its share is not known."""


@dataclass(frozen=True, slots=True)
class Share:
    """How much one axis matters."""

    axis: str
    """Name of the axis; the tile is `tile_rows`, `tile_columns` and `tile_depth`. Axes that never vary one without
    another are one share, their names joined by TOGETHER."""
    share: float | None
    """Of the variance of log time, 0 to 1; None where it is not known."""
    chance: float
    """A share up to which an axis without effect comes by chance, in 19 of 20 cases; 0 where all points are known."""
    values: int
    """Number of values that the axis has in these rows; of several axes, that of their combinations."""
    why: str = ""
    """Why the share is not known, in one sentence without its full stop."""

    @property
    def is_chance(self) -> bool:
        """Whether the share is no larger than that of an axis without effect may be."""
        return self.share is not None and self.share <= self.chance


@dataclass(frozen=True, slots=True)
class Importance:
    """How much the axes of one scheme matter, by one source of times."""

    shares: tuple[Share, ...]
    """The axes with several values: known ones first, the largest share first."""
    rest: float | None
    """The share that no axis explains by itself: several together, and noise; None where no share is known."""
    count: int
    """Number of times."""
    basis: str
    """What the times are of, in one sentence without its full stop."""

    @property
    def leading(self) -> list[str]:
        """The known axes, the most important first, those of one share one by one."""
        return [name for axis in self.known for name in axis.split(TOGETHER)]

    @property
    def known(self) -> dict[str, float]:
        """The share of each axis whose share is known, the largest first."""
        return {each.axis: each.share for each in self.shares if each.share is not None}


def by_axis(result: Importance) -> dict[str, float]:
    """The known share of each axis of a schedule; that of `tile` is the sum of its sides' where only they are known."""
    shares = {axis: share for axis, share in result.known.items() if TOGETHER not in axis}
    sides = [shares.pop(side) for side in TILE_SIDES if side in shares]
    return {**shares, "tile": sum(sides)} if sides else shares


def records(result: Importance, source: str) -> list[dict[str, Any]]:
    """The rows of a chart of *result*, which is of times of *source*: one per axis, and one for the rest."""
    shares = [{**asdict(each), "source": source} for each in result.shares]
    if result.rest is None or len(result.known) == 0:
        return shares
    return [*shares, {**asdict(Share("", result.rest, 0.0, 0)), "axis": None, "source": source}]


# Times of rows: logarithms, over the baseline of their block where there is one.


def importance(rows: Sequence[Row]) -> Importance:
    """How much each axis of *rows* matters: whole trials of one problem, one scheme and one kind of source.

    A timed row counts by its time over its block's baseline, since blocks differ; without any baseline, the block with
    most rows counts alone. Rows without a time are left out.
    """
    timed = [row for row in rows if row.get("time_s") and row.get("part") in (None, "whole")]
    kept, logs, basis = _logs(timed)
    values = [row.get("axes") or {} for row in kept]
    names = dict.fromkeys(chain.from_iterable(values))
    return _of_columns({name: _column([point.get(name) for point in values]) for name in names}, logs, basis)


def _column(values: Sequence[Any]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)  # numbers and texts stay what they are
    column[:] = values
    return column


Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def _logs(timed: Sequence[Row]) -> tuple[Sequence[Row], Floats, str]:
    """The rows that count, the logarithm of the time of each, and what the times are of."""
    if all(row.get("source") == "estimated" for row in timed):
        return timed, np.log([row["time_s"] for row in timed]), _counted(len(timed), "estimate")
    with_baseline = [row for row in timed if row.get("sequential_s")]
    if with_baseline:
        logs = np.log([row["time_s"] / row["sequential_s"] for row in with_baseline])
        return with_baseline, logs, _basis(with_baseline, timed, "over the baseline of its block", "without a baseline")
    (block, _), *_ = Counter(row.get("block") for row in timed).most_common(1)
    same = [row for row in timed if row.get("block") == block]
    return same, np.log([row["time_s"] for row in same]), _basis(same, timed, "of one block", "of other blocks")


def _basis(kept: Sequence[Row], timed: Sequence[Row], of: str, others: str) -> str:
    left_out = len(timed) - len(kept)
    return f"{_counted(len(kept), 'time')}, each {of}" + (f"; {left_out:,} {others} left out" if left_out else "")


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'s' * (count != 1)}"


# The estimated space of a scheme.

POINTS_MOST = 100_000
"""The most points of a space that are all estimated; of a larger one so many are drawn at random."""
UNREAD = "no estimate reads it: only a measurement shows how much it matters"


def importance_of_space(problem: Problem, scheme: str, machine: Machine, fabric: Fabric) -> Importance:
    """How much each axis of *scheme* matters by the closed form, over all legal combinations or a sample of them.

    *fabric* is resolved. Refusal where the scheme does not know the problem.
    """
    unread = grid.unread(problem, machine)
    known = [axis for axis in axes(problem, scheme, machine, fabric) if len(axis.values) > 1]
    points, size = _points([axis for axis in known if axis.name not in unread])
    seconds = grid.times(problem, scheme, points, machine, fabric)
    legal = np.isfinite(seconds)
    values = {name: column[legal].astype(object) for name, column in points.items()}
    for name, decider in axis_rules.DECIDED_BY.items():  # ignored values are no values
        for value in set(points.get(decider, ())) if name in values else ():
            point: dict[str, Value] = {decider: str(value), name: 1}
            if name in axis_rules.ignored_axes(problem, scheme, point, machine.backend):
                values[name][values[decider] == value] = None
    drawn = f", of {len(seconds):,} combinations drawn at random from {size:,}"
    basis = f"{_counted(int(legal.sum()), 'estimate')}{drawn if size > POINTS_MOST else ' of all combinations'}"
    whole = _of_columns(values, np.log(seconds[legal]), basis, is_whole=size <= POINTS_MOST)
    never = tuple(Share(axis.name, None, 0.0, len(axis.values), UNREAD) for axis in known if axis.name in unread)
    return Importance((*whole.shares, *never), whole.rest, whole.count, whole.basis)


def remembered_importance(problem: Problem, scheme: str, machine: Machine, fabric: Fabric) -> Importance:
    """`importance_of_space`, computed once for a question; a machine is the same one while its digest is."""
    return _remembered(problem, scheme, _ByDigest(machine.digest, machine), str(fabric))


@dataclass(frozen=True, slots=True)
class _ByDigest:
    """A machine that is compared by its digest."""

    digest: str
    machine: Machine = field(compare=False)


@lru_cache(maxsize=32)
def _remembered(problem: Problem, scheme: str, of: _ByDigest, fabric: str) -> Importance:
    return importance_of_space(problem, scheme, of.machine, parse(fabric))


def _points(known: Sequence[Axis]) -> tuple[Mapping[str, NDArray[Any]], int]:
    """The combinations of all values as columns, or POINTS_MOST drawn ones; and how many there are in all."""
    lists = {axis.name: axis.values for axis in known}
    size = prod(map(len, lists.values()))
    if size <= POINTS_MOST:
        return columns(lists), size
    drawn = np.random.default_rng(0)  # the same sample each time: a share does not move while somebody looks
    return {name: np.array(some)[drawn.integers(len(some), size=POINTS_MOST)] for name, some in lists.items()}, size


# The fit: sums over rows by value and by pair of values, so that a million rows take no more memory than their codes.


@dataclass(frozen=True, slots=True, eq=False)
class _Coded:
    """The values of one axis by row, as numbers from 0; -1 where a row has no value."""

    name: str
    codes: Codes
    count: int

    def sums(self, weights: Floats) -> Floats:
        """The sum of *weights* by value."""
        return np.bincount(self.codes + 1, weights, minlength=self.count + 1)[1:].astype(float)

    def pairs(self, other: _Coded) -> Floats:
        """The number of rows by value of this axis and of *other*, (values, values of other)."""
        both = (self.codes + 1) * (other.count + 1) + other.codes + 1
        counts = np.bincount(both, minlength=(self.count + 1) * (other.count + 1))
        return counts.reshape(self.count + 1, other.count + 1)[1:, 1:].astype(float)

    def decides(self, other: _Coded) -> bool:
        """Whether each value of this axis comes with one value of *other*, in all rows."""
        is_in_all = bool((self.codes >= 0).all() and (other.codes >= 0).all())
        return is_in_all and bool(((self.pairs(other) > 0).sum(axis=1) == 1).all())


def _of_columns(values: Mapping[str, NDArray[Any]], logs: Floats, basis: str, *, is_whole: bool = False) -> Importance:
    """The importance of axes with *values* by row; *is_whole*: no combination is missing, so that nothing is chance."""
    several = [each for each in map(_coded, values, values.values()) if each.count > 1]
    varied, unknown = _independent(several, values.get("tile"))
    spare = len(logs) - 1 - sum(each.count - 1 for each in varied)
    if not varied:  # one schedule, however often it was timed
        known, rest = [], None
    elif spare < SPARE_LEAST and not is_whole:
        least = len(logs) - spare + SPARE_LEAST
        why = f"not known with {_counted(len(logs), 'time')}: axes with so many values need {least:,}"
        known, rest = [Share(each.name, None, 0.0, each.count, why) for each in varied], None
    else:
        known, rest = _fitted(varied, logs - logs.mean(), None if is_whole else spare)
    ordered = sorted([*known, *unknown], key=lambda each: -1.0 if each.share is None else each.share, reverse=True)
    return Importance(tuple(ordered), rest, len(logs), basis)


def _coded(name: str, column: NDArray[Any]) -> _Coded:
    codes, distinct = pd.factorize(column, use_na_sentinel=True)
    return _Coded(name, codes.astype(np.int64), len(distinct))


def _independent(several: Sequence[_Coded], sizes: NDArray[Any] | None) -> tuple[list[_Coded], list[Share]]:
    """The axes that vary by themselves, with the tile by its sides; and those that another one decides in all rows."""
    whole = [each for each in several if each.name == "tile"]
    sides = [] if sizes is None or not whole else _sides(whole[0], sizes)
    others = [each for each in several if not (sides and each.name == "tile")]
    axes_here = [*sides, *others]
    varied, followers = [], []
    for place, axis in enumerate(axes_here):
        before = [*axes_here[:place], *(whole if sides and axis in others else [])]
        after = [each for each in axes_here[place + 1 :] if not axis.decides(each)]
        leader = next((each for each in (*before, *after) if each.decides(axis)), None)
        if leader is None:
            varied.append(axis)
        else:
            why = f"not known: each value of {axis_text(leader.name)} comes with one value of it here"
            followers.append(Share(axis.name, None, 0.0, axis.count, why))
    return varied, followers


def _sides(whole: _Coded, sizes: NDArray[Any]) -> list[_Coded]:
    """The sides of the tile that vary, as axes; none where some value is no tile."""
    texts = dict(zip(whole.codes.tolist(), sizes.tolist(), strict=True))
    texts.pop(-1, None)
    if not all(map(is_tile, texts.values())):
        return []
    sides = []
    tiles = [tile_sides(texts[code]) for code in range(whole.count)]
    for side in TILE_SIDES:
        lengths = np.array([each[side] for each in tiles])
        distinct, which = np.unique(lengths, return_inverse=True)
        codes = np.where(whole.codes < 0, -1, which[whole.codes])
        sides.append(_Coded(side, codes, len(distinct)))
    return [side for side in sides if side.count > 1]


def _fitted(varied: Sequence[_Coded], centred: Floats, spare: int | None) -> tuple[list[Share], float]:
    """The shares of axes that vary by themselves, and the rest; *spare* is None where all points are known.

    Effects are sums of squares of the fitted logarithms, less what noise alone would add to them.
    """
    spread = float(centred @ centred)
    if spread <= 1e-18 * len(centred):  # all times are equal
        return [Share(each.name, 0.0, 0.0, each.count) for each in varied], 0.0
    contrasts = [_contrasts(each.sums(np.ones(len(centred)))) for each in varied]
    products = np.block([[left.T @ one.pairs(other) @ right for other, right in zip(varied, contrasts, strict=True)]
                         for one, left in zip(varied, contrasts, strict=True)])  # fmt: skip
    slopes = np.concatenate([each.T @ one.sums(centred) for one, each in zip(varied, contrasts, strict=True)])
    inverse = np.linalg.pinv(products, rcond=1e-9, hermitian=True)
    effects = inverse @ slopes
    left = max(0.0, spread - float(effects @ slopes))
    noise = left / spare if spare is not None else 0.0

    def share_of(at: NDArray[np.intp]) -> tuple[float, float]:
        """The share of the effects *at*, and that which chance reaches."""
        of_these = products[np.ix_(at, at)]
        explained = float(effects[at] @ of_these @ effects[at])
        by_noise = noise * float(np.trace(inverse[np.ix_(at, at)] @ of_these))
        chance = 0.0 if spare is None else by_noise * (_largest_by_chance(len(at), spare) - 1) / spread
        return min(1.0, max(0.0, explained - by_noise) / spread), chance

    places = _places(varied)
    apart = [_is_apart(products, at) for at in places]
    shares = [_share(axis.name, axis.count, *share_of(at), len(centred))
              for axis, at, is_apart in zip(varied, places, apart, strict=True) if is_apart]  # fmt: skip
    if not all(apart):
        mixed = [axis for axis, is_apart in zip(varied, apart, strict=True) if not is_apart]
        at = np.concatenate([at for at, is_apart in zip(places, apart, strict=True) if not is_apart])
        names = TOGETHER.join(axis.name for axis in mixed)
        shares.append(_share(names, prod(axis.count for axis in mixed), *share_of(at), len(centred)))
    return shares, min(1.0, left / spread if spare is None else noise * (len(centred) - 1) / spread)


def _places(varied: Sequence[_Coded]) -> list[NDArray[np.intp]]:
    """The places of each axis's effects among those of all."""
    ends = np.cumsum([each.count - 1 for each in varied])
    return [np.arange(end - each.count + 1, end) for each, end in zip(varied, ends, strict=True)]


def _share(name: str, values: int, share: float, chance: float, count: int) -> Share:
    """The *share* of one axis, or that it is not known where *chance* may be all of it, and large."""
    if share > chance or chance <= CHANCE_MOST:
        return Share(name, share, chance, values)
    why = f"not known with {_counted(count, 'time')}: chance alone reaches {percent_text(min(chance, 1.0))}"
    return Share(name, None, chance, values, why)


def _contrasts(counts: Floats) -> Floats:
    """The effects of all values of an axis but the last as columns, each with a sum of 0 over the rows that have it."""
    free = np.eye(len(counts))[:, :-1]
    free[-1] = -counts[:-1] / counts[-1]
    return free


def _is_apart(products: Floats, at: NDArray[np.intp]) -> bool:
    """Whether the effects *at* are determined, whatever all others are."""
    others = np.delete(np.delete(products, at, axis=0), at, axis=1)
    rank, without = (np.linalg.matrix_rank(each, rtol=1e-9, hermitian=True) if len(each) else 0
                     for each in (products, others))  # fmt: skip
    return bool(rank - without == len(at))


@lru_cache(maxsize=256)
def _largest_by_chance(values: int, spare: int) -> float:
    """The variance ratio that 19 of 20 axes without effect stay below: Fisher's F, drawn rather than computed."""
    return float(np.quantile(np.random.default_rng(0).f(values, spare, 20_000), 0.95))
