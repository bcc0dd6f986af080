"""Who waits for whom in a Plan, and who goes first: what every way of playing it begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kernels.plan import Kind, Plan

Ints = NDArray[np.int64]


def order(plan: Plan) -> tuple[Ints, Ints]:
    """The steps from who goes first to who goes last, and the place of each step among them."""
    priority = plan.launches.priority
    first = np.lexsort((plan.turn, -priority[plan.launch])) if priority.any() else np.argsort(plan.turn, kind="stable")
    place = np.empty_like(first)
    place[first] = np.arange(len(plan))
    return first, place


def missing(plan: Plan, gate: Ints, launches: Mapping[int, int]) -> Ints:
    """By gate, how much is waited for there: steps, and the launch before."""
    waits = np.diff(plan.after_start)
    if launches:
        has_one_before = np.zeros(len(plan.launches), dtype=np.int64)
        has_one_before[list(launches.values())] = 1
        waits += has_one_before[plan.launch]
    return np.bincount(gate, waits, minlength=len(plan)).astype(np.int64)


def gates(plan: Plan) -> tuple[Ints, dict[int, Sequence[int]]]:
    """A step waits at its own gate; a collective at that of rank 0's, which opens once it is ready on all ranks."""
    gate = np.arange(len(plan))
    calls = np.flatnonzero(plan.kind == Kind.COLLECTIVE)
    opens: dict[int, list[int]] = {}
    first: dict[int, int] = {}
    for step, number in zip(calls.tolist(), plan.index[calls].tolist(), strict=True):
        gate[step] = first.setdefault(number, step)
        opens.setdefault(int(gate[step]), []).append(step)
    return gate, dict(opens)


def followers(plan: Plan, gate: Ints) -> tuple[Ints, Ints]:
    """By step s, flat[bounds[s]:bounds[s + 1]] are the gates at which somebody waits for it: *bounds* and *flat*."""
    waiting = np.repeat(gate, np.diff(plan.after_start))
    order = np.argsort(plan.after, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(plan.after, minlength=len(plan)))])
    return bounds, waiting[order]
