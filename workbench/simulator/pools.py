"""Shares of pools as units: what a step holds while it runs, in which queue it stands, and who moves it with others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.plan import EVERYTHING, Kind, Plan, Pool

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shares:
    """Columns by step, but for *capacity*. Every pool of every rank has one queue."""

    queue: Ints
    units: Ints
    """What the step holds of its pool, at least 1."""
    crew: Ints
    """The launch whose workgroups move this put after another; -1 for steps that wait for units alone."""
    capacity: Ints
    """Units by queue."""


def shares(plan: Plan, pool: Ints, share: Ints, capacity: Ints) -> Shares:
    """What the steps of *plan* hold: each *share* units of its *pool*; *capacity* has units by rank and pool.

    EVERYTHING is all that the largest stated share on that rank and pool leaves: a kernel that keeps 16 of 132 SMs for
    its puts computes on 116. Where nothing is left it is the whole pool, and they take turns.

    The SMs that a kernel keeps for its puts work together on each of them. So puts of one launch that state a share of
    the SMs have a crew: they follow each other, however many units are free.
    """
    queue, units_of_pool = plan.rank * capacity.shape[1] + pool, capacity.ravel()
    is_stated = share != EVERYTHING
    if not is_stated.any():
        nobody = np.full(len(plan), -1)
        return Shares(queue=queue, units=units_of_pool[queue], crew=nobody, capacity=units_of_pool)
    if (too_large := np.flatnonzero(share > units_of_pool[queue])).size:
        step = int(too_large[0])
        raise AssertionError(
            f"{plan.address(step)} holds {share[step]} units of a pool of {units_of_pool[queue[step]]}"
        )
    most = np.zeros_like(units_of_pool)
    np.maximum.at(most, queue, share)
    rest = np.where(most < units_of_pool, units_of_pool - most, units_of_pool)
    return Shares(queue=queue, units=np.where(is_stated, share, rest[queue]),
                  crew=np.where(has_crew(plan, pool, share), plan.launch, -1), capacity=units_of_pool)  # fmt: skip


def has_crew(plan: Plan, pool: Ints, share: Ints) -> NDArray[np.bool_]:
    """By step, whether it is a put for which its launch keeps SMs."""
    moves = (plan.kind == Kind.PUT) | (plan.kind == Kind.PULL)
    return moves & (share != EVERYTHING) & (pool == Pool.COMPUTE)
