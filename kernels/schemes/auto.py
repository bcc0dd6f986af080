"""The schedule of a call that names none: eight candidates, a table of their times, and one pure rule.

The rule reads the operator, the bucket of rows, the other sizes, dtype, world, hardware and the table, nothing else. So
the same question has the same answer in every run and on every rank. `python -m tests.gpu.choices` writes the table,
from recordings where there are any and from estimates elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import schedule
from kernels.units import percent_text, seconds_text

AUTO = "auto"
"""What a person asks for."""

# The candidates, the simplest first.


class Candidate(NamedTuple):
    """A schedule by name: the axes that it sets, all others at their defaults."""

    scheme: str
    axes: Mapping[str, Value]
    spins: bool
    """Whether kernels wait for signals of peers while they hold SMs."""


STORES = "stores"
CANDIDATES: Mapping[str, Candidate] = {
    "library": Candidate("sequential", {"collective": "library"}, False),
    "tuned": Candidate("sequential", {"collective": "library_tuned"}, False),
    STORES: Candidate("sequential", {"collective": "direct"}, False),
    "one_shot": Candidate("sequential", {"collective": "one_shot"}, False),
    "copy_engine": Candidate("sequential", {"collective": "copy_engine"}, False),
    "overlapped": Candidate("sequential", {"collective": "overlapped"}, False),
    "pieces": Candidate("decomposed", {}, True),
    "fused": Candidate("fused", {}, True),
}
"""`stores` is two_shot where the operator is an all-reduce. Fixed: a table lists times in this order."""
DEFAULT = "fused"
"""The candidate of calls that the table does not know."""


def candidate_axes(name: str, operator: str) -> Mapping[str, Value]:
    """The axes that candidate *name* sets for *operator*."""
    if name == STORES and OPERATORS[operator].flow is Flow.BROADCAST:
        return {"collective": "two_shot"}
    return CANDIDATES[name].axes


def legal_schedule(name: str, problem: Problem, machine: Machine, fabric: Fabric) -> Schedule | None:
    """Candidate *name* for *problem*; None where it is not legal on *machine* over *fabric*."""
    try:
        return schedule(problem, CANDIDATES[name].scheme, candidate_axes(name, problem.operator), machine, fabric)
    except Refusal:
        return None


# The table: points, each with the time of every candidate.

ESTIMATED, RECORDED = "estimated", "recorded"
BUCKETED = ("m", "batch")
"""Sizes that change from call to call: all values between two powers of two, on a logarithmic scale, count as one."""
WIDER = 0.05
"""Share by which bounds widen for each doubling or halving between a call and its point in the table."""
OTHER_KERNELS = 0.1
"""Share by which bounds widen where the table was made with other kernels."""
NEARER = 0.5
"""A recorded point counts as this many doublings nearer than an estimated one."""
MOST_DISTANCE = 6.0
"""Doublings and halvings, over all sizes, beyond which a point says nothing."""


@dataclass(frozen=True, slots=True)
class Point:
    """One problem of the table."""

    sizes: tuple[float, ...]
    """Logarithms to base 2 of the sizes that `sizes_of` gives."""
    source: str
    seconds: Mapping[str, float]
    """By candidate."""


@dataclass(frozen=True, slots=True)
class Table:
    """Times of candidates by hardware, operator, dtype and world; *digest* is a hash of all of it."""

    digest: str
    kernels: str
    """Fingerprint of the kernels that it is about."""
    made: str
    spread: Mapping[str, tuple[float, float]]
    """By GPU, source and world the least and most that a time may be off, as factors: see `spread_key`."""
    alone: Mapping[str, str]
    """The candidate of a rank alone by the work of the operator."""
    points: Mapping[str, Mapping[str, tuple[Point, ...]]]
    """By the GPU's model and `key_of`."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Table:
        """The table in a JSON document, as `made` writes it."""
        text = json.dumps(content, sort_keys=True)
        return cls(
            digest=hashlib.sha256(text.encode()).hexdigest()[:12], kernels=content["kernels"], made=content["made"],
            spread={source: (low, high) for source, (low, high) in content["spread"].items()},
            alone=content["alone"],
            points={model: {key: tuple(map(_point, rows)) for key, rows in known.items()}
                    for model, known in content["points"].items()},
        )  # fmt: skip


def _point(row: Sequence[Any]) -> Point:
    """[sizes ..., source's initial, tenths of microseconds by candidate ...]; -1 where a candidate has no time."""
    first = next(number for number, value in enumerate(row) if isinstance(value, str))
    tenths = zip(CANDIDATES, row[first + 1 :], strict=True)
    source = RECORDED if row[first] == RECORDED[0] else ESTIMATED
    return Point(tuple(log2(size) for size in row[:first]), source, {name: t * 1e-7 for name, t in tenths if t >= 0})


def spread_key(gpu: str, source: str, world: int) -> str:
    """The name of a spread: `NVIDIA H200 estimated 2`."""
    return f"{gpu} {source} {world}"


def key_of(problem: Problem) -> str:
    """The part of the table that *problem* is looked up in; two-byte dtypes are alike."""
    dtype = "float32" if problem.dtype == "float32" else "bfloat16"
    return f"{problem.operator} {dtype} {problem.world}"


def sizes_of(problem: Problem) -> tuple[int, ...]:
    """The sizes of *problem*, rows as the power of two that stands for their bucket."""
    return tuple(
        2 ** round(log2(size)) if name in BUCKETED else size
        for name, size in problem.shape if isinstance(size, int)
    )  # fmt: skip


PLACE = Path(__file__).with_name("auto.json")


@cache
def shipped() -> Table:
    """The committed table."""
    return Table.of(json.loads(PLACE.read_text()))


# The rule.

GAIN = 0.02
"""A schedule that spins is taken where its upper bound is so much below the lower bound of the best that does not."""
SIMPLER = 0.02
"""Of schedules that do not spin, the first within this share of the fastest is taken."""
MOST_CLOSE = 3
"""Candidates that are measured together where the table cannot tell."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate for one problem, and how sure the table is."""

    name: str
    reason: str
    """A sentence with its numbers."""
    source: str = ""
    """Where the times come from; empty for a default."""
    time_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    close: tuple[str, ...] = ()
    """The candidates that only a measurement can tell apart, the choice among them; empty: the table can."""


def choose(problem: Problem, model: str, table: Table, offered: Collection[str], kernels: str) -> Choice:
    """The best of the candidates *offered* for *problem* on GPUs called *model*; *kernels*: today's fingerprint."""
    work = OPERATORS[problem.operator].work
    gpu = next((name for name in table.points if model.startswith(name)), None)
    if gpu is None:
        return _default(f"the table has no {model}, only {', '.join(table.points)}", offered)
    if problem.world == 1:
        name, why = table.alone[work], "A rank alone has nothing to overlap with."
        return Choice(name, why, RECORDED) if name in offered else _default(why, offered)
    point, distance = _nearest(table.points[gpu].get(key_of(problem), ()), sizes_of(problem))
    if point is None or distance > MOST_DISTANCE:
        near = f"its nearest point is {distance:.1f} doublings away" if point else f"no {key_of(problem)} ranks"
        return _default(f"the table has {near}" if not point else near, offered)
    seconds = {name: point.seconds[name] for name in CANDIDATES if name in offered and name in point.seconds}
    if not seconds:
        return _default("none of its candidates runs here", offered)
    low, high = table.spread[spread_key(gpu, point.source, problem.world)]
    wider = WIDER * distance + (OTHER_KERNELS if table.kernels != kernels else 0.0)
    return _decided(seconds, low - wider, high + wider, point.source)


def _default(why: str, offered: Collection[str]) -> Choice:
    name = DEFAULT if DEFAULT in offered else next(iter(offered))
    return Choice(name, f"{name} is the default: {why}.")


def _nearest(points: Sequence[Point], sizes: Sequence[int]) -> tuple[Point | None, float]:
    """The point nearest to *sizes* and its distance in doublings."""
    place = [log2(size) for size in sizes]

    def distance(point: Point) -> float:
        return sum(abs(one - other) for one, other in zip(point.sizes, place, strict=True))

    best = min(points, key=lambda point: distance(point) - NEARER * (point.source == RECORDED), default=None)
    return best, distance(best) if best else float("inf")


def _decided(seconds: Mapping[str, float], low: float, high: float, source: str) -> Choice:
    """The choice between candidates of *seconds*, each within *low* to *high* times its own."""
    plain = {name: taken for name, taken in seconds.items() if not CANDIDATES[name].spins}
    spinning = {name: taken for name, taken in seconds.items() if CANDIDATES[name].spins}
    best = min(seconds, key=lambda name: seconds[name])
    name = best
    if plain:
        fastest_s = min(plain.values())
        name = next(each for each, taken in plain.items() if taken <= fastest_s * (1 + SIMPLER))
        spins = min(spinning, key=lambda each: spinning[each], default=None)
        if spins and spinning[spins] * high <= (1 - GAIN) * fastest_s * low:
            name = spins
    close = sorted((each for each in seconds if seconds[each] * low < seconds[best] * high), key=lambda e: seconds[e])
    kept = tuple(dict.fromkeys([name, *close]))[:MOST_CLOSE]
    is_sure = name == best and (len(close) < 2 or not spinning)
    return Choice(name, _reason(name, best, seconds, (low, high), source), source, seconds[name], seconds[name] * low,
                  seconds[name] * high, () if is_sure else kept)  # fmt: skip


def _reason(name: str, best: str, seconds: Mapping[str, float], bounds: tuple[float, float], source: str) -> str:
    others = ", ".join(f"{other} {seconds_text(taken)}" for other, taken in seconds.items() if other != name)
    words = f"{name} takes {seconds_text(seconds[name])} ({source}), {others or 'alone'}."
    if name == best or not CANDIDATES[best].spins:
        return words
    upper, lower = seconds[best] * bounds[1], seconds[name] * bounds[0]
    return (
        f"{words} {best} may be faster, but it holds SMs while it waits, and its upper bound {seconds_text(upper)} is "
        f"not {percent_text(GAIN)} below {seconds_text(lower)}, the lower bound of {name}."
    )
