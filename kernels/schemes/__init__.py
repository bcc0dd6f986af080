"""The table of schemes, and the one way to build a complete, legal Schedule and its Plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product

from kernels.axes import Axis, Value, tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.plan import Plan, Tiles
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import concurrent, decomposed, fused, library, sequential
from kernels.schemes.base import Scheme
from kernels.schemes.limits import too_large, too_many_steps

__all__ = ["SCHEMES", "Scheme", "axes", "expand", "needs_peer_memory", "refusal", "schedule", "scheme", "tile_order"]

SCHEMES: dict[str, Scheme] = {
    "sequential": sequential.SCHEME,
    "concurrent": concurrent.SCHEME,
    "decomposed": decomposed.SCHEME,
    "fused": fused.SCHEME,
}


def scheme(name: str) -> Scheme:
    """The scheme called *name*; Refusal lists the names."""
    if name not in SCHEMES:
        raise Refusal(f"scheme {name!r} was asked for, which is unknown. Accepted: {', '.join(SCHEMES)}.")
    return SCHEMES[name]


def axes(problem: Problem, name: str, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    """The axes of scheme *name* with the values that are legal here."""
    stated = scheme(name)
    if (sentence := too_large(problem, machine)) is not None:
        raise Refusal(sentence)
    return stated.axes(problem, machine, fabric)


def refusal(problem: Problem, asked: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    """Why the complete schedule *asked* is illegal for *problem* on *machine* over *fabric*, or None."""
    if problem.world > machine.max_world:
        return (
            f"world = {problem.world} was asked for, but {machine.name} connects {machine.max_world} ranks: "
            f"{problem.world} > {machine.max_world}. Accepted: world 1..{machine.max_world}."
        )
    if (sentence := too_large(problem, machine)) is not None:
        return sentence
    known = {axis.name: axis for axis in axes(problem, asked.scheme, machine, fabric)}
    for name, value in asked.axes:
        if name not in known:
            return f"axis {name!r} was asked for, which {asked.scheme} does not have. Accepted: {', '.join(known)}."
        past = library.past_the_link(problem, known[name], value, fabric)
        if (sentence := past or known[name].refusal(value)) is not None:
            return sentence
    return too_many_steps(problem, asked) or scheme(asked.scheme).refusal(problem, asked, machine, fabric)


def schedule(problem: Problem, name: str, values: Mapping[str, Value], machine: Machine, fabric: Fabric) -> Schedule:
    """The legal schedule with *values*; axes that are not stated take their default, or the next value that is legal.

    Raises Refusal if what is stated cannot be.
    """
    known = axes(problem, name, machine, fabric)
    if unknown := [key for key in values if key not in {axis.name for axis in known}]:
        accepted = ", ".join(axis.name for axis in known)
        raise Refusal(f"axis {unknown[0]!r} was asked for, which {name} does not have. Accepted: {accepted}.")
    first = Schedule(name, tuple((axis.name, values.get(axis.name, axis.default)) for axis in known))
    sentence = refusal(problem, first, machine, fabric)
    if sentence is None:
        return first
    free = [
        [values[axis.name]] if axis.name in values else [axis.default] if axis.open else axis.values for axis in known
    ]
    for choice in product(*free):
        other = Schedule(name, tuple(zip((axis.name for axis in known), choice, strict=True)))
        if refusal(problem, other, machine, fabric) is None:
            return other
    raise Refusal(sentence)


@lru_cache(maxsize=256)
def expand(problem: Problem, asked: Schedule) -> Plan:
    """The Plan of a complete schedule."""
    tile(asked["tile"])
    return scheme(asked.scheme).expand(problem, asked)


def tile_order(problem: Problem, asked: Schedule, rank: int) -> Tiles:
    """The tiles of *rank* in the order in which they are computed: what every backend and simulator reads."""
    return expand(problem, asked).tiles[rank]


def needs_peer_memory(asked: Schedule) -> bool:
    """Whether the ranks must address each other's memory, and so sit on one host."""
    return scheme(asked.scheme).needs_peer_memory(asked)
