"""The bandwidth of a relative link: from a measured computation, or else from the machine's estimate of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cluster.hosts import local_ranks
from kernels.fabric import Fabric
from kernels.hardware import Hardware
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.units import seconds_text
from workbench.simulator.predict import resolved

SAME_RATIO = 0.1
"""A ratio that differs by less than this share from the requested one is that one."""
ESTIMATED = "estimated"
"""The source of a computation that nobody timed."""


class LinkStore(Protocol):
    """The part of a store that links need."""

    def compute_seconds(self, machine: str, problem: Problem, hardware: Hardware | None) -> float | None:
        """Seconds of the computation alone of *problem* on *machine*, as measured on *hardware*; None if not
        measured."""


def known_link(fabric: Fabric, problem: Problem, machine: Machine, store: LinkStore | None,
               hardware: Hardware | None) -> Fabric:  # fmt: skip
    """*fabric* with its bandwidth: from the computation that *store* knows, or else as *machine* estimates it.

    *hardware* is that of the ranks; None if unknown.
    """
    seconds = store.compute_seconds(machine.name, problem, hardware) if store else None
    if seconds is None:
        return resolved(fabric, problem, machine)
    return link_of(fabric, problem, seconds)


def link_here(fabric: Fabric, problem: Problem, machine: Machine, store: LinkStore | None) -> Fabric:
    """`known_link` for the ranks of this host, which every estimate before a run uses."""
    ranks = local_ranks(problem.world, machine.backend)
    return known_link(fabric, problem, machine, store, ranks.hardware if ranks else None)


def link_of(fabric: Fabric, problem: Problem, compute_s: float) -> Fabric:
    """*fabric* with the bandwidth that follows if the computation of *problem* alone takes *compute_s*."""
    return fabric.resolve(OPERATORS[problem.operator].wire_bytes(problem), compute_s, problem.world)


def drawn_ratio(fabric: Fabric, problem: Problem, computes_s: Mapping[str, float]) -> str | None:
    """What the link *fabric* of *problem* makes of the requested wire : compute, as sentences; None where that holds.

    *computes_s*: by source, the computation alone that is drawn. It differs from the one that set the link's bandwidth
    when that was measured at another time, before the machine was calibrated, or when an estimate of it is off.
    """
    rate = fabric.rate(problem.world)
    if fabric.wire_to_compute is None or rate is None or problem.world == 1 or not computes_s:
        return None
    wire_s = OPERATORS[problem.operator].wire_bytes(problem) / rate
    ratios = {source: wire_s / compute_s for source, compute_s in computes_s.items()}
    off = [source for source, ratio in ratios.items() if abs(ratio / fabric.wire_to_compute - 1) >= SAME_RATIO]
    if not off:
        return None
    several = len(ratios) > 1
    drawn = " and ".join(f"{ratio:.2g}{f' {source}' if several else ''}" for source, ratio in ratios.items())
    computes = " and ".join(map(seconds_text, computes_s.values()))
    says = f"Timelines show {drawn}: wire {seconds_text(wire_s)}, compute {computes}."
    if several and off == [ESTIMATED]:
        return f"{says} The link follows the measured computation, and its estimate is another one."
    return (
        f"{says} The link keeps the speed of its first measurement here, when the computation took "
        f"{seconds_text(wire_s / fabric.wire_to_compute)}. “Measure again what is known” sets it anew."
    )
