"""Prices a library call (NCCL, gloo): as measured, or as a fixed cost and a share of the link."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import LIMITED, TUNED, Machine, limited
from workbench.simulator.price.messages import Routes

Floats = NDArray[np.float64]


def call_seconds(machine: Machine, ways: Routes, name: str, num_bytes: ArrayLike, by: object = None) -> Floats:
    """Seconds of collective *name* in which *num_bytes* leave each rank; *by*: the schedule's `collective`."""
    measured, each = measured_seconds(machine, name, ways.world, num_bytes, by), name == "all_to_all"
    if measured is not None:  # a slower link in a machine's file bounds what was measured on another one
        return np.maximum(measured, np.asarray(num_bytes) * ways.library_byte_seconds(1.0, to_each=each))
    moved = np.asarray(num_bytes) * ways.library_byte_seconds(machine.costs.library_share, to_each=each)
    return np.asarray(machine.costs.library_seconds + moved)


def measured_seconds(machine: Machine, name: str, world: int, num_bytes: ArrayLike, by: object = None) -> Floats | None:
    """Seconds of one call of the library in which *num_bytes* leave each rank, as measured; None where it was not.

    Straight lines in log size and log time; below the smallest size as long as it, above the largest as fast as it.
    *by*: the schedule's `collective`; `library_tuned` has a curve of its own where its settings were compared.
    """
    if by == "library_tuned":
        tuned = measured_seconds(machine, f"{TUNED}{name}", world, num_bytes)
        return measured_seconds(machine, name, world, num_bytes) if tuned is None else tuned
    known = sorted((c.num_bytes, c.seconds) for c in machine.collectives if (c.name, c.world) == (name, world))
    if not known:
        return None
    sizes, times = np.array(known).T
    leaving = np.maximum(np.asarray(num_bytes, dtype=np.float64), 1.0)
    inside = np.exp(np.interp(np.log(leaving), np.log(sizes), np.log(times)))
    return np.asarray(inside * np.maximum(1.0, leaving / sizes[-1]))


def few_blocks_slowdown(machine: Machine, name: str, world: int, num_bytes: ArrayLike, blocks: Any) -> Floats | None:
    """How many times as long a library call takes with at most *blocks* blocks (0: no limit) as with its usual number.

    From the curves of few channels, each of which is a block, by straight lines over log blocks and log time. Fewer
    blocks than any curve has take proportionally longer. `send_blocks` are enough for all: an all-to-all, which takes
    more, was no slower with so many. None where that was not measured. *num_bytes* and *blocks*: columns.
    """
    curves = [measured_seconds(machine, f"{limited(count)}{name}", world, num_bytes) for count in LIMITED]
    usual = measured_seconds(machine, name, world, num_bytes)
    if usual is None or any(curve is None for curve in curves):
        return None
    counts = np.log([*LIMITED, max(machine.costs.send_blocks, 1 + LIMITED[-1])])
    shares = np.log([np.maximum(1.0, curve / usual) for curve in curves if curve is not None])
    wanted = np.log(np.where(np.asarray(blocks) > 0, blocks, np.exp(counts[-1])))
    lines = [*shares, np.zeros_like(shares[0])]
    slower = lines[0] + np.maximum(0.0, counts[0] - wanted)
    for (low, at), (high, then) in pairwise(zip(counts, lines, strict=True)):
        share = np.clip((wanted - low) / (high - low), 0.0, 1.0)
        slower = np.where(wanted > low, at + share * (then - at), slower)
    return np.asarray(np.exp(slower))


def usual_blocks(machine: Machine, name: str) -> int:
    """Number of blocks that the library's kernel usually has for collective *name*."""
    exchanging = machine.costs.exchange_blocks if name == "all_to_all" else 0
    return exchanging or machine.costs.send_blocks
