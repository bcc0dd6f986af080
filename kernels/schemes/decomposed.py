"""The decomposed scheme: the operator is cut one level finer than the shard, and its pieces are pipelined (FiCCO)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, isqrt

import numpy as np

from kernels import plan as ranges
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators.base import Flow
from kernels.plan import Ints, Plan, Planner, Ranges
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Value
from kernels.schemes import axis_rules, base, fused, launches, library
from kernels.schemes.axis_rules import LAUNCHES, ONE, PER_PIECE
from kernels.schemes.base import ChunkBlocks, Scheme, Units, deliver
from kernels.schemes.fused import COMM_SMS

# The Plan: pieces in order, the compute steps that they form, and what waits for what.


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The pieces of every chunk as columns: each piece is one step's share of a chunk."""

    rows: Ranges
    columns: Ranges
    k: Ranges
    rectangle: Ints
    """Number that pieces of the same rows and columns share; they differ in their range of the contraction."""

    def __len__(self) -> int:
        return len(self.rectangle)

    def with_whole(self) -> Pieces:
        """These, and behind them one that is the whole chunk."""
        rows, columns, k = (
            (np.append(start, 0), np.append(stop, stop[-1])) for start, stop in (self.rows, self.columns, self.k)
        )
        return Pieces(rows, columns, k, np.append(self.rectangle, 0))


def split_of(problem: Problem, schedule: Schedule) -> str:
    """The split of *schedule*, or the only one that the operator has."""
    return str(schedule.get("split") or next(iter(base.operator_of(problem).splits)))


def counts(count: int, direction: str) -> tuple[int, int, int]:
    """The factors of *count* pieces along rows, columns and contraction."""
    if direction == "rows_and_contraction":
        rows = next(r for r in range(isqrt(count), 0, -1) if count % r == 0)
        return rows, 1, count // rows
    return (
        count if direction == "rows" else 1,
        count if direction == "columns" else 1,
        count if direction == "contraction" else 1,
    )


def pieces_of(problem: Problem, schedule: Schedule) -> Pieces:
    """The pieces in order, rows outermost."""
    operator, extent = base.operator_of(problem), base.operator_of(problem).extent(problem)
    each = counts(schedule.count("pieces"), operator.splits[split_of(problem, schedule)])
    lengths = (operator.chunk_rows(problem), extent.columns, extent.contraction)
    cuts = [base.parts(length, count) for length, count in zip(lengths, each, strict=True)]
    rows, columns, k = (
        (cut[number], cut[number + 1]) for cut, number in zip(cuts, np.indices(each).reshape(3, -1), strict=True)
    )
    return Pieces(rows, columns, k, np.arange(len(k[0])) // each[2])


@dataclass(frozen=True, slots=True, eq=False)
class PieceLayout:
    """The compute steps of every rank in order: each computes one piece of one chunk, or of several.

    Ranks differ only in the order of the chunks.
    """

    chunks: Ints
    """[rank, turn]: the order of the chunks on each rank."""
    turn: Ints
    """By block, which is one piece of one chunk, like `piece` and `step`."""
    piece: Ints
    step: Ints
    """Number of the compute step, ascending."""
    bounds: Ints
    """Block b is tiles bounds[b]..bounds[b + 1] of every rank."""

    @property
    def chunk(self) -> Ints:
        """[rank, block] the chunk of every block."""
        return self.chunks[:, self.turn]

    @property
    def first(self) -> Ints:
        """The first block of every compute step, and the end of the last step."""
        return np.append(np.flatnonzero(np.diff(self.step, prepend=-1)), len(self.step))

    @property
    def ranges(self) -> Ranges:
        """The range of tiles of every compute step."""
        return self.bounds[self.first[:-1]], self.bounds[self.first[1:]]


def expand(problem: Problem, schedule: Schedule) -> Plan:
    """The Plan of a complete schedule; only schedules of GPUs have the axis `launches`."""
    pieces = pieces_of(problem, schedule)
    chunks, (turn, piece, step) = _chunk_orders(problem), _blocks(problem, schedule, len(pieces))
    known = pieces.with_whole()
    blocks = ChunkBlocks.of(turn, ranges.some(known.rows, piece), ranges.some(known.columns, piece))
    cut = base.cut(blocks, base.size_of(schedule))
    layout = PieceLayout(chunks, turn, piece, step, cut.bounds)
    tiles = [replace(cut.tiles, chunk=of_rank[cut.tiles.chunk]) for of_rank in chunks]
    planner = Planner(problem, schedule, tiles)
    if base.operator_of(problem).flow is Flow.RECEIVE:
        _receive(planner, layout, pieces)
    else:
        _send(planner, layout, pieces)
    launched = launches.one_each if schedule.get(LAUNCHES) is None else launches.on_streams
    return planner.plan(launched(problem, schedule))


def adds_up(problem: Problem, schedule: Schedule) -> bool:
    """Whether a rank's own pieces are computed onto the partial sums that arrived, so that there are no separate sums.

    Own pieces are then separate steps. Contributions of several peers lie apart, and only the epilogue of our one
    kernel adds them all.
    """
    if schedule.get(LAUNCHES) is None or schedule["engine"] == "library" or not base.operator_of(problem).reduces:
        return False
    apart = schedule["steps"] == "local_first" or schedule["grouping"] == "unfused"
    return schedule[LAUNCHES] == ONE or (apart and problem.world <= 2)


def own_in_one(problem: Problem, schedule: Schedule) -> bool:
    """Whether a GPU computes its own shard in one step, first or last, since it does not wait for pieces.

    Launches of smaller pieces would only take longer. Where the operator reduces, own pieces are added to those of
    peers one by one, so the shard stays cut.
    """
    by_itself = schedule.get(LAUNCHES) == PER_PIECE and schedule["steps"] == "local_first"
    return by_itself and not base.operator_of(problem).reduces


def _chunk_orders(problem: Problem) -> Ints:
    """[rank, turn] the order of the chunks: data come from rank - 1 first if every rank sends to rank + 1 first."""
    itself, peers = np.arange(problem.world), base.peers_of(problem.world)
    receives = base.operator_of(problem).flow is Flow.RECEIVE
    return np.column_stack([itself, peers[:, ::-1]] if receives else [peers, itself])


def _blocks(problem: Problem, schedule: Schedule, pieces: int) -> tuple[Ints, Ints, Ints]:
    """The turn, piece and compute step of every block, in order."""
    receives, apart = base.operator_of(problem).flow is Flow.RECEIVE, schedule["steps"] == "local_first"
    turns, itself = np.arange(problem.world), 0 if receives else problem.world - 1
    together = np.delete(turns, itself) if apart else turns
    piece, place = np.indices((pieces, len(together)))
    if schedule["pattern"] == "ring":
        place, piece = np.indices((len(together), pieces))
    turn, piece = together[place.ravel()], piece.ravel()
    step = piece if schedule["grouping"] == "fused" else np.arange(len(piece))
    if not apart and schedule.get(LAUNCHES) == ONE:  # one launch computes its own pieces in separate steps all the same
        step = np.cumsum(np.diff(piece * 2 + (turn == itself), prepend=-1) != 0) - 1
    if not apart:
        return turn, piece, step
    shard = np.array([pieces]) if own_in_one(problem, schedule) else np.arange(pieces)  # see Pieces.with_whole
    local, rest = (np.full_like(shard, itself), shard, np.arange(len(shard))), (turn, piece, step)
    first, last = (local, rest) if receives else (rest, local)
    later = last[2] + int(first[2].max(initial=-1)) + 1
    return np.append(first[0], last[0]), np.append(first[1], last[1]), np.append(first[2], later)


def _computes(planner: Planner, layout: PieceLayout, pieces: Pieces) -> Ints:
    """Adds the compute steps, [rank, step], which wait for nothing yet."""
    piece, rank = layout.piece[layout.first[:-1]], np.arange(planner.problem.world)[:, None]
    return base.compute(planner, rank, layout.ranges, k=ranges.some(pieces.with_whole().k, piece))


def _send(planner: Planner, layout: PieceLayout, pieces: Pieces) -> None:
    computed, rank = _computes(planner, layout, pieces), np.arange(planner.problem.world)
    if planner.schedule["engine"] == "library":
        at = ranges.some(layout.ranges, np.arange(computed.shape[1])[:, None])
        library.collective(planner, rank, at, after=computed.T[:, None])
        return
    at = (layout.bounds[:-1], layout.bounds[1:])
    accumulates = adds_up(planner.problem, planner.schedule)
    deliver(planner, Units.of(rank[:, None], layout.chunk, at, computed[:, layout.step]), accumulates=accumulates)


def _receive(planner: Planner, layout: PieceLayout, pieces: Pieces) -> None:
    """Makes each step wait for its pieces, and for the step that computed the previous range of the contraction."""
    by_library = planner.schedule["engine"] == "library"
    arrived = _library_arrivals(planner, pieces) if by_library else _put_pieces(planner, pieces)
    computed, rank = _computes(planner, layout, pieces), np.arange(planner.problem.world)[:, None]
    of_block = computed[:, layout.step]
    pairs = [(of_block, arrived[rank, layout.chunk, layout.piece])]
    sums = ranges.before(layout.turn * len(pieces) + pieces.with_whole().rectangle[layout.piece])
    pairs.append((of_block, np.where(sums >= 0, of_block[:, sums], -1)))
    waiting, needed = (np.concatenate(column, axis=None) for column in zip(*pairs, strict=True))
    planner.wait(*ranges.distinct(waiting[needed >= 0], needed[needed >= 0]))


def _put_pieces(planner: Planner, pieces: Pieces) -> Ints:
    """[rank, source, piece] the step after which that piece of the source's rows is on rank; -1 for own rows.

    The last piece is the whole chunk, which only own rows use.
    """
    world, count = planner.problem.world, len(pieces)
    rank, number, turn = np.indices((world, count, world - 1))
    if planner.schedule["pattern"] == "ring":
        rank, turn, number = np.indices((world, world - 1, count))
    peer = base.peers_of(world)[rank, turn]
    rows, k = ranges.some(pieces.rows, number), ranges.some(pieces.k, number)
    arrived = np.full((world, world, count + 1), -1)
    arrived[peer, rank, number] = base.put_rows(planner, rank, peer, rows, k=k)
    return arrived


def _library_arrivals(planner: Planner, pieces: Pieces) -> Ints:
    """[rank, source, piece] as in `_put_pieces`, of collectives that each bring one piece of all ranks."""
    number = np.arange(len(pieces))[:, None]
    here = library.gather(planner, rows=ranges.some(pieces.rows, number), k=ranges.some(pieces.k, number)).T
    return np.repeat(here[:, None], planner.problem.world, axis=1)


# The axes and the rules.

PIECES = (1, 2, 4, 8, 16, 32, 64)
STEPS = {"steps": ("uniform", "local_first"), "grouping": ("fused", "unfused"), "pattern": ("all_to_all", "ring")}
"""Values of the axes that group pieces into steps. The library takes all peers' pieces alike: the first values."""


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    splits, engines = tuple(base.operator_of(problem).splits), _engines(problem, machine, fabric)
    alone = engines == ("library",)  # on a network, where only the library moves pieces
    offered = {axis: values[:1] if alone else values for axis, values in STEPS.items()}
    why = " The library is alone here, and takes the pieces of all peers in a step alike." if alone else ""
    by_gpu = machine.device.kind == "gpu"
    known = (
        base.tile_axis(problem, machine),
        _pieces(problem, machine),
        Axis("split", splits, splits[0], "The direction of the cut."),
        Axis(
            "steps",
            offered["steps"],
            offered["steps"][-1 if by_gpu else 0],
            f"Every step alike, or this rank's own shard apart: first when data come in, last when they go out.{why}",
        ),
        Axis("grouping", offered["grouping"], "fused", f"One computation per step, or one per peer's piece.{why}"),
        Axis("pattern", offered["pattern"], "all_to_all", f"Each step talks to all peers, or to one.{why}"),
        Axis(
            "engine",
            engines,
            engines[0],
            "Who moves the pieces: a copy engine, the SMs (a CPU rank itself), or the library.",
        ),
        *_gpu_axes(problem, machine, engines),
    )
    return tuple(axis for axis in known if axis.name in axis_rules.of_decomposed(problem, machine.backend))


def _engines(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[str, ...]:
    if fabric.kind == "network" and problem.world > 1:
        return ("library",)
    by_library = () if fabric.emulated or problem.world == 1 else ("library",)
    return (*(("copy_engine",) if machine.device.copy_engines else ()), "sm", *by_library)


def _pieces(problem: Problem, machine: Machine) -> Axis:
    """The axis `pieces`. On GPUs all values divide the shard."""
    doc = "How many pieces each shard is cut into."
    if machine.device.kind != "gpu":
        most = max(extents(problem, next(iter(base.operator_of(problem).splits))))
        offered = tuple(count for count in PIECES if count <= most)
        return Axis("pieces", offered, min(8, offered[-1]), doc, open=True)
    splits = base.operator_of(problem).splits
    offered = tuple(count for count in PIECES if any(_undivided(problem, split, count) is None for split in splits))
    usual = gcd(_usual_pieces(problem), extents(problem, next(iter(splits)))[0])
    return Axis("pieces", offered, usual, doc, open=True)


def _usual_pieces(problem: Problem) -> int:
    """As many pieces as ranks: a step brings as much as one rank owns. Twice as many where two ranks sum and keep.

    There no piece leaves before the first wave is computed. Two pieces took up to 13 % longer (docs/results/pieces.md).
    """
    operator = base.operator_of(problem)
    sums = operator.reduces and operator.flow is Flow.SEND
    return problem.world * (2 if sums and problem.world == 2 else 1)


def _gpu_axes(problem: Problem, machine: Machine, engines: tuple[str, ...]) -> tuple[Axis, ...]:
    """The axes that only GPUs have: the number of launches that compute, and SMs that only send."""
    gemm = base.operator_of(problem).work == "gemm"
    launches: tuple[Value, ...] = (PER_PIECE, ONE) if gemm and engines != ("library",) else (PER_PIECE,)
    sms = tuple(count for count in (4, 8, COMM_SMS, 32) if count < machine.device.slots) or (1,)
    doc = "One library call for each step, on two streams in turns, or one launch of our kernel that waits inside."
    usual = COMM_SMS if COMM_SMS in sms else sms[-1]
    sending = (Axis("comm_sms", sms, usual, "SMs that only move pieces."),) if "sm" in engines else ()
    return (Axis(axis_rules.LAUNCHES, launches, launches[0], doc), *sending)


def extents(problem: Problem, split: str) -> tuple[int, ...]:
    """Most pieces in each direction of *split*."""
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
        or (_one_launch_refusal(problem, schedule, machine) if schedule.get(axis_rules.LAUNCHES) == ONE else None)
        or (_library_refusal(schedule) if schedule["engine"] == "library" else None)
        or _ring_refusal(schedule)
    )  # fmt: skip


def _too_many(problem: Problem, schedule: Schedule) -> str | None:
    split, count = split_of(problem, schedule), schedule.count("pieces")
    operator = base.operator_of(problem)
    extent = operator.extent(problem)
    lengths = (operator.chunk_rows(problem), extent.columns, extent.contraction)
    for parts, most in zip(counts(count, operator.splits[split]), lengths, strict=True):
        if parts > most:
            return (
                f"pieces = {count} with split = {split} is too many. A shard is only {most} long that way: {parts} "
                f"> {most}. Accepted: at most {most} that way."
            )
    return None


def _undivided(problem: Problem, split: str, count: int) -> str | None:
    """Why GPUs cannot cut by *split* into *count* pieces, which must have equal sizes, or None."""
    operator = base.operator_of(problem)
    extent = operator.extent(problem)
    lengths = {"rows": operator.chunk_rows(problem), "columns": extent.columns, "contraction": extent.contraction}
    for (name, length), each in zip(lengths.items(), counts(count, operator.splits[split]), strict=True):
        if length % each:
            accepted = ", ".join(str(divisor) for divisor in _nearest_divisors(length, each))
            of_both = f" ({each} along {name})" if each != count else ""
            return (
                f"pieces = {count} with split = {split} does not cut evenly{of_both}. GPUs move and compute pieces of "
                f"one size: a shard is {length} long that way, and {each} does not divide {length}. Accepted: numbers "
                f"that divide it, such as {accepted}."
            )
    return None


def _nearest_divisors(length: int, number: int) -> list[int]:
    """The next divisors of *length* below and above *number*."""
    below = next((count for count in range(min(number, length), 0, -1) if length % count == 0), 1)
    above = next((count for count in range(number, length + 1) if length % count == 0), length)
    return sorted({below, above})


def _ring_refusal(schedule: Schedule) -> str | None:
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


def _library_refusal(schedule: Schedule) -> str | None:
    """Why *schedule* cannot use a library collective, which takes every peer's piece at once, or None."""
    for axis in reversed(STEPS):
        needed = STEPS[axis][0]
        if schedule[axis] != needed:
            return (
                f"{axis} = {schedule[axis]} does not go with engine = library: 1 library call takes the pieces of "
                f"all peers in a step alike. Accepted: {axis} = {needed}, or another engine."
            )
    return None


def _one_launch_refusal(problem: Problem, schedule: Schedule, machine: Machine) -> str | None:
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
    return fused.no_room(problem, fused.alone(problem, schedule["tile"]), machine)


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
