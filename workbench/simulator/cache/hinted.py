"""A schedule's cache hints as a policy that a replay knows: what a machine would do that takes them at their word."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.schedule import Schedule
from kernels.schemes import hints
from workbench.simulator.cache.policies import POLICIES, Policy

USUAL = "cache_rw"
"""What L2 does by itself, and where a hint says nothing that it would not do anyway (wb, cg)."""
LOADS: Mapping[str, str] = {"evict_first": "weights_evict_first", "evict_last": "evict_last"}
STORES: Mapping[str, str] = {"cs": "evict_first", "wt": "cache_r"}
"""Names of policies by hint: of what is loaded by pointers, and of results."""


def hints_of(schedule: Schedule) -> dict[str, str]:
    """By axis the hint of *schedule*, where it names one."""
    named = {axis: str(schedule.get(axis, hints.NORMAL)) for axis in (hints.LOAD, hints.STORE)}
    return {axis: hint for axis, hint in named.items() if hint != hints.NORMAL}


def policies_of(schedule: Schedule) -> tuple[Policy, ...]:
    """The policy of each hint of *schedule*, each by itself, behind the usual one; that alone where it has none."""
    named = hints_of(schedule)
    chosen = [LOADS.get(named.get(hints.LOAD, ""), USUAL), STORES.get(named.get(hints.STORE, ""), USUAL)]
    return tuple(POLICIES[name] for name in dict.fromkeys([USUAL, *chosen]))
