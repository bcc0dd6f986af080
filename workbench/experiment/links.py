"""The bandwidth of a relative link: from a measured computation, or else from the machine's estimate of it."""

from __future__ import annotations

from typing import Protocol

from cluster.hosts import local_ranks
from kernels.fabric import Fabric
from kernels.hardware import Hardware
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from workbench.simulator.predict import resolved


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
