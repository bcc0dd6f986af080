"""The launches of a Plan: its steps belong to one kernel, to a few launches in order, or to one launch each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kernels import plan
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import ANY_STREAM, NUM_KINDS, Ints, Kind, Launched, Launches
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import axis_rules

Columns = Mapping[str, Ints]
"""Columns of a Plan's steps by name."""

KERNELS = {
    ("gemm", False): "gemm_send", ("gemm", True): "gemm_receive", ("gemv", False): "gemv_all_reduce",
    ("gather", False): "embedding",
}  # fmt: skip
"""Our fused kernels, by work and whether the operand comes in."""
SPANNING = {False: "gemm_scattered", True: "gemm_gathered"}
"""The kernels of tiles that span ranks, by whether the operand comes in."""
IN_RING = "gemm_ring"
"""The kernel whose sums go from rank to rank."""
RELAYED = "gemm_relay"
"""The kernel whose tiles leave by SMs that only send."""
PUSHED = {
    "direct": "put_rows", "copy_engine": "copy_rows", "one_shot": "one_shot_all_reduce",
    "two_shot": "two_shot_all_reduce",
}  # fmt: skip
"""Names of the kernels of collectives made of puts; all others are the library's, with their operator's name."""


def one_kernel(problem: Problem, schedule: Schedule) -> Launched:
    """One launch for each rank: our fused kernel."""
    operator = OPERATORS[problem.operator]
    name, grid = KERNELS[operator.work, operator.flow is Flow.RECEIVE], int(schedule.get("grid") or 0)
    name = SPANNING[operator.flow is Flow.RECEIVE] if axis_rules.spans_ranks(schedule) else name
    name = IN_RING if axis_rules.sums_in_ring(schedule) else name
    name = RELAYED if axis_rules.relays(problem, schedule) else name

    def launched(columns: Columns) -> tuple[Launches, Ints]:
        ranks = np.arange(problem.world)
        return Launches.of(ranks, (name,) * problem.world, stream=0, grid=grid), columns["rank"].copy()

    return launched


def in_order(problem: Problem, schedule: Schedule) -> Launched:
    """Launches in a row: computation, collective and the copies out of its buffer, ordered by the operator's flow."""
    operator = OPERATORS[problem.operator]
    collective = PUSHED.get(str(schedule["collective"]), operator.collective)
    first, *rest = ["compute", collective, "unpack"]
    names = [*rest, first] if operator.flow is Flow.RECEIVE else [first, *rest]
    place = np.full(NUM_KINDS, names.index(collective))
    place[Kind.COMPUTE], place[Kind.COPY] = names.index("compute"), names.index("unpack")

    def launched(columns: Columns) -> tuple[Launches, Ints]:
        key = columns["rank"] * len(names) + place[columns["kind"]]
        numbers, launch = np.unique(key, return_inverse=True)
        ranks, places = np.divmod(numbers, len(names))
        return Launches.of(ranks, [names[at] for at in places], stream=0), launch

    return launched


def on_two_streams(problem: Problem, schedule: Schedule) -> Launched:
    """Launches on two streams: computation, and with a priority the collective and the copies out of its buffer.

    Copy engines have a stream for each peer; sums of received values use the stream of this rank's own number.
    """
    operator = OPERATORS[problem.operator]
    names, by_engine = _names(problem), schedule["collective"] == "copy_engine"
    names[Kind.COMPUTE], names[Kind.COPY] = "compute", "unpack"
    names[Kind.PUT] = names[Kind.REDUCE] = PUSHED.get(str(schedule["collective"]), operator.collective)
    if by_engine:
        names[Kind.REDUCE] = Kind.REDUCE.word

    def launched(columns: Columns) -> tuple[Launches, Ints]:
        rank, kind, peer = columns["rank"], columns["kind"], columns["peer"]
        moved = 2 + (np.where(peer < 0, rank, peer) if by_engine else 0)
        stream = np.where(kind == Kind.COMPUTE, 0, moved)
        key = (rank * (problem.world + 3) + stream) * 2 + (kind == Kind.COPY)
        _, first, launch = np.unique(key, return_index=True, return_inverse=True)
        computes = (stream[first] == 0).astype(np.int64)
        high = schedule["comm_priority"] == axis_rules.HIGH
        launches = Launches.of(
            rank[first], names[kind[first]].tolist(), stream=stream[first], priority=high * (1 - computes)
        )
        return replace(launches, resident_blocks=computes * int(schedule.get(axis_rules.RESIDENT) or 0)), launch

    return launched


def one_each(problem: Problem, schedule: Schedule) -> Launched:
    """One launch for every step, which begins as soon as the steps that it waits for are done."""
    by_kind = _names(problem)

    def launched(columns: Columns) -> tuple[Launches, Ints]:
        rank = columns["rank"]
        return Launches.of(rank, by_kind[columns["kind"]].tolist(), stream=ANY_STREAM), np.arange(len(rank))

    return launched


def on_streams(problem: Problem, schedule: Schedule) -> Launched:
    """Launches of pieces on a GPU: computation alternates between two streams, or is one launch; copies use others.

    The second stream of computation fills the tail of one piece with the next one's tiles. Copy engines have a stream
    for each peer. The library and the SMs that only send have one stream, with priority: their few blocks must not
    queue behind a full grid.
    """
    names = _names(problem)
    names[Kind.PUT] = PUSHED["copy_engine" if schedule["engine"] == "copy_engine" else "direct"]
    names[Kind.COPY] = "unpack"
    one_kernel = KERNELS.get((OPERATORS[problem.operator].work, OPERATORS[problem.operator].flow is Flow.RECEIVE), "")
    if schedule[axis_rules.LAUNCHES] == axis_rules.ONE:
        names[Kind.COMPUTE] = one_kernel

    def launched(columns: Columns) -> tuple[Launches, Ints]:
        key, stream = _launch_keys(problem, schedule, columns), _streams(schedule, columns)
        _, first, launch = np.unique(key, return_index=True, return_inverse=True)
        kind = columns["kind"][first]
        priority = np.isin(kind, (Kind.PUT, Kind.COLLECTIVE, Kind.COPY)) & (schedule["engine"] != "copy_engine")
        return Launches.of(
            columns["rank"][first], names[kind].tolist(), stream=stream[first], priority=priority.astype(np.int64)
        ), launch

    return launched


def _launch_keys(problem: Problem, schedule: Schedule, columns: Columns) -> Ints:
    """A number for each step that the steps of one launch share; launches of a rank ascend in the Plan's order."""
    rank, kind, count = columns["rank"], columns["kind"], len(columns["rank"])
    key = rank * count + np.arange(count)
    shared = (kind == Kind.COMPUTE) & (schedule[axis_rules.LAUNCHES] == axis_rules.ONE)
    if OPERATORS[problem.operator].flow is Flow.RECEIVE and schedule["engine"] == "sm":
        shared = shared | (kind == Kind.PUT)
    first = np.full((problem.world, NUM_KINDS), count)
    np.minimum.at(first, (rank[shared], kind[shared]), np.flatnonzero(shared))
    return np.where(shared, rank * count + first[rank, kind], key)


def _streams(schedule: Schedule, columns: Columns) -> Ints:
    """The stream of each step: 0 and 1 compute, from 2 on bytes move."""
    rank, kind = columns["rank"], columns["kind"]
    works = np.isin(kind, (Kind.COMPUTE, Kind.REDUCE))
    turns = np.zeros_like(rank)
    if schedule[axis_rules.LAUNCHES] != axis_rules.ONE:
        turns[works] = plan.nth(rank[works]) % 2
    moved = 2 + (columns["peer"] if schedule["engine"] == "copy_engine" else 0)
    return np.where(works, turns, moved)


def _names(problem: Problem) -> NDArray[np.object_]:
    """The name of a launch of one step, by kind."""
    names = plan.kind_names()
    names[Kind.COLLECTIVE] = OPERATORS[problem.operator].collective
    return names
