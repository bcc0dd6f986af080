"""Decomposed: the operator cut one level finer than the shard, its pieces pipelined (FiCCO)."""

from __future__ import annotations

from math import gcd

from kernels.axes import Axis, Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import base, reads
from kernels.schemes.base import Scheme
from kernels.schemes.decomposed_plan import counts, expand, split_of
from kernels.schemes.fused import COMM_SMS
from kernels.schemes.reads import ONE, PER_PIECE

PIECES = (1, 2, 4, 8, 16, 32, 64)
STEPS = {"steps": ("uniform", "local_first"), "grouping": ("fused", "unfused"), "pattern": ("all_to_all", "ring")}
"""Who is served in a step, by axis. The library takes all peers' pieces alike: it goes with the first value of each."""


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    splits, engines = tuple(base.operator_of(problem).splits), _engines(problem, machine, fabric)
    alone = engines == ("library",)  # on a network, where nobody else moves the pieces
    served = {axis: values[:1] if alone else values for axis, values in STEPS.items()}
    why = " The library is alone here, and takes the pieces of all peers in a step alike." if alone else ""
    by_gpu = machine.device.kind == "gpu"
    known = (
        base.tile_axis(problem, machine),
        _pieces(problem, machine),
        Axis("split", splits, splits[0], "The direction of the cut."),
        Axis(
            "steps",
            served["steps"],
            served["steps"][-1 if by_gpu else 0],
            f"Every step alike, or this rank's own shard apart: first when data come in, last when they go out.{why}",
        ),
        Axis("grouping", served["grouping"], "fused", f"One computation per step, or one per peer's piece.{why}"),
        Axis("pattern", served["pattern"], "all_to_all", f"Each step talks to all peers, or to one.{why}"),
        Axis(
            "engine",
            engines,
            engines[0],
            "Who moves the pieces: a copy engine, the SMs (a CPU rank itself), or the library.",
        ),
        *_gpu_axes(problem, machine, engines),
    )
    return tuple(axis for axis in known if axis.name in reads.of_decomposed(problem, machine.backend))


def _engines(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[str, ...]:
    if fabric.kind == "network" and problem.world > 1:
        return ("library",)
    by_library = () if fabric.emulated or problem.world == 1 else ("library",)
    return (*(("copy_engine",) if machine.device.copy_engines else ()), "sm", *by_library)


def _pieces(problem: Problem, machine: Machine) -> Axis:
    """On GPUs one for each rank by default, so that a step brings as much as one rank owns; all divide the shard."""
    doc = "How many pieces each shard is cut into."
    if machine.device.kind != "gpu":
        most = max(extents(problem, next(iter(base.operator_of(problem).splits))))
        offered = tuple(count for count in PIECES if count <= most)
        return Axis("pieces", offered, min(8, offered[-1]), doc, open=True)
    splits = base.operator_of(problem).splits
    offered = tuple(count for count in PIECES if any(_undivided(problem, split, count) is None for split in splits))
    usual = gcd(problem.world, extents(problem, next(iter(splits)))[0])
    return Axis("pieces", offered, usual, doc, open=True)


def _gpu_axes(problem: Problem, machine: Machine, engines: tuple[str, ...]) -> tuple[Axis, ...]:
    """What only GPUs have: how many launches compute, and SMs that only send."""
    gemm = base.operator_of(problem).work == "gemm"
    launches: tuple[Value, ...] = (PER_PIECE, ONE) if gemm and engines != ("library",) else (PER_PIECE,)
    sms = tuple(count for count in (4, 8, COMM_SMS, 32) if count < machine.device.slots) or (1,)
    doc = "One library call for each step, on two streams in turns, or one launch of our kernel that waits inside."
    usual = COMM_SMS if COMM_SMS in sms else sms[-1]
    sending = (Axis("comm_sms", sms, usual, "SMs that only move pieces."),) if "sm" in engines else ()
    return (Axis(reads.LAUNCHES, launches, launches[0], doc), *sending)


def extents(problem: Problem, split: str) -> tuple[int, ...]:
    """How many pieces each direction of *split* can have at the most."""
    operator, extent = base.operator_of(problem), base.operator_of(problem).extent(problem)
    direction, rows = operator.splits[split], operator.chunk_rows(problem)
    if direction == "rows_and_contraction":
        return rows, extent.contraction
    return ({"rows": rows, "columns": extent.columns, "contraction": extent.contraction}[direction],)


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    return (
        _too_many(problem, schedule)
        or (_undivided(problem, split_of(problem, schedule), schedule.count("pieces"))
            if machine.device.kind == "gpu" else None)
        or (_of_one_launch(schedule) if schedule.get(reads.LAUNCHES) == ONE else None)
        or (_of_library(schedule) if schedule["engine"] == "library" else None)
        or _of_ring(schedule)
    )  # fmt: skip


def _too_many(problem: Problem, schedule: Schedule) -> str | None:
    split, count = split_of(problem, schedule), schedule.count("pieces")
    operator = base.operator_of(problem)
    extent = operator.extent(problem)
    lengths = (operator.chunk_rows(problem), extent.columns, extent.contraction)
    for wanted, most in zip(counts(count, operator.splits[split]), lengths, strict=True):
        if wanted > most:
            return (
                f"pieces = {count} with split = {split} is too many. A shard is only {most} long that way: {wanted} "
                f"> {most}. Accepted: at most {most} that way."
            )
    return None


def _undivided(problem: Problem, split: str, count: int) -> str | None:
    """Why GPUs cannot cut by *split* into *count* pieces, which all have one size there; or None."""
    operator = base.operator_of(problem)
    extent = operator.extent(problem)
    lengths = {"rows": operator.chunk_rows(problem), "columns": extent.columns, "contraction": extent.contraction}
    for (name, length), each in zip(lengths.items(), counts(count, operator.splits[split]), strict=True):
        if length % each:
            accepted = ", ".join(str(near) for near in _divisors_near(length, each))
            of_both = f" ({each} along {name})" if each != count else ""
            return (
                f"pieces = {count} with split = {split} does not cut evenly{of_both}. GPUs move and compute pieces of "
                f"one size: a shard is {length} long that way, and {each} does not divide {length}. Accepted: numbers "
                f"that divide it, such as {accepted}."
            )
    return None


def _divisors_near(length: int, wanted: int) -> list[int]:
    """The next divisors of *length* below and above *wanted*."""
    below = next((count for count in range(min(wanted, length), 0, -1) if length % count == 0), 1)
    above = next((count for count in range(wanted, length + 1) if length % count == 0), length)
    return sorted({below, above})


def _of_ring(schedule: Schedule) -> str | None:
    if schedule["pattern"] == "ring" and schedule["grouping"] == "fused":
        return (
            "grouping = fused does not go with pattern = ring. A ring step has 1 peer's piece, and fused groups "
            "world - 1 of them. Accepted: grouping = unfused, or pattern = all_to_all."
        )
    if schedule["pattern"] == "ring" and schedule["steps"] == "local_first":
        return (
            "steps = local_first changes nothing with pattern = ring: both values give 1 plan, because a ring "
            "already keeps this rank's own shard apart. Accepted: steps = uniform, or pattern = all_to_all."
        )
    return None


def _of_library(schedule: Schedule) -> str | None:
    """A library collective takes every peer's piece at once."""
    for axis in reversed(STEPS):
        needed = STEPS[axis][0]
        if schedule[axis] != needed:
            return (
                f"{axis} = {schedule[axis]} does not go with engine = library: 1 library call takes the pieces of "
                f"all peers in a step alike. Accepted: {axis} = {needed}, or another engine."
            )
    return None


def _of_one_launch(schedule: Schedule) -> str | None:
    for axis, value, accepted in (("grouping", "unfused", "fused"), ("pattern", "ring", "all_to_all")):
        if schedule[axis] == value:
            return (
                f"launches = {ONE} does not go with {axis} = {value}: 1 launch computes all pieces, and {value} makes "
                f"one for each piece of a peer. Accepted: {axis} = {accepted}, or launches = {PER_PIECE}."
            )
    if schedule["engine"] == "library":
        return (
            f"launches = {ONE} does not go with engine = library: the 1 launch holds every SM while it waits, and the "
            f"library's kernels would never start. Accepted: engine = copy_engine or sm, or launches = {PER_PIECE}."
        )
    return None


SCHEME = Scheme(
    name="decomposed",
    idea="Cut the operator finer than the shard and pipeline the pieces.",
    source="arXiv:2512.10236",
    axes=_axes,
    refusal=_refusal,
    expand=expand,
    needs_peer_memory=lambda schedule: schedule["engine"] != "library",
    run_by=("cpu", "triton"),
)
