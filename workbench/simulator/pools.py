"""Shares of pools as queues: in which queue of its rank a step stands, and how many units it holds while it runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.plan import EVERYTHING

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Queues:
    """Every pool of every rank is one queue, or two: one for the units that are set aside, one for the rest."""

    number: Ints
    """By step: the queue that it stands in."""
    units: Ints
    """By step: what it holds of that queue's units; at least 1."""
    capacity: Ints
    """By queue."""
    aside: NDArray[np.bool_]
    """By step: whether its units are set aside in a pool of which other steps hold everything else."""


def queues(rank: Ints, pool: Ints, share: Ints, capacity: Ints) -> Queues:
    """The queues of steps with *rank*, *pool* and *share*; *capacity* holds units by rank and pool.

    A share is a number of units, or EVERYTHING: all that the stated shares of that rank and pool leave. Where some
    steps state a share and others hold everything else, the largest stated share is set aside for the former: a kernel
    that keeps 16 of 132 SMs for its puts computes on 116, whether a put is under way or not. Where that would leave
    nothing, EVERYTHING is the whole pool, and they take turns.
    """
    of_step, units_of_pool = rank * capacity.shape[1] + pool, capacity.ravel()
    is_stated = share != EVERYTHING
    most = np.zeros_like(units_of_pool)
    np.maximum.at(most, of_step, share)
    too_large = np.flatnonzero(share > units_of_pool[of_step])
    assert not len(too_large), (
        f"step {too_large[0]} holds {share[too_large[0]]} units of a pool of {units_of_pool[of_step][too_large[0]]}"
    )
    is_cut = np.zeros(len(units_of_pool), dtype=bool)
    is_cut[of_step[~is_stated]] = True
    is_cut &= (most > 0) & (most < units_of_pool)
    aside = is_cut[of_step] & is_stated
    number = 2 * of_step + aside
    sizes = np.stack([np.where(is_cut, units_of_pool - most, units_of_pool), most], axis=1).ravel()
    return Queues(number=number, units=np.where(is_stated, share, sizes[number]), capacity=sizes, aside=aside)
