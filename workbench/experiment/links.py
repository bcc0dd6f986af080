"""The link that a problem's trials cross: from the computation that was measured, else as the machine estimates it."""

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
    """A store, as far as links are concerned."""

    def compute_seconds(self, machine: str, problem: Problem, hardware: Hardware | None) -> float | None:
        """The computation alone that links of *problem* on *machine* are resolved with, as measured on *hardware*."""


def known_link(fabric: Fabric, problem: Problem, machine: Machine, store: LinkStore | None,
               hardware: Hardware | None) -> Fabric:  # fmt: skip
    """*fabric* with its bandwidth: from the computation that *store* knows, else as *machine* estimates it.

    *hardware*: that of the ranks that are asked about; None where nobody knows it.
    """
    seconds = store.compute_seconds(machine.name, problem, hardware) if store else None
    if seconds is None:
        return resolved(fabric, problem, machine)
    return link_of(fabric, problem, seconds)


def link_here(fabric: Fabric, problem: Problem, machine: Machine, store: LinkStore | None) -> Fabric:
    """The same of this host's ranks: every estimate before a run is over this link."""
    ranks = local_ranks(problem.world, machine.backend)
    return known_link(fabric, problem, machine, store, ranks.hardware if ranks else None)


def link_of(fabric: Fabric, problem: Problem, compute_s: float) -> Fabric:
    """*fabric* with its bandwidth, where the computation of *problem* alone takes *compute_s*."""
    return fabric.resolve(OPERATORS[problem.operator].wire_bytes(problem), compute_s, problem.world)
