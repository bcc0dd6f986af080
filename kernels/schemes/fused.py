"""The fused scheme: one kernel, in which a thread block sends its result as soon as it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from kernels import fitted
from kernels import plan as ranges
from kernels.fabric import Fabric, ranks_on_host
from kernels.machine import Machine
from kernels.occupancy import BULK, has_bulk_copies, room_refusal
from kernels.operators.base import Flow
from kernels.plan import Ints, Plan, Planner, Tiles
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Tile, Value, tile
from kernels.schemes import (
    axis_rules,
    base,
    fitted_tiles,
    gemm_block,
    gemv_block,
    hosts,
    launches,
    relay,
    spanning,
    split_k,
)
from kernels.schemes.base import (
    ChunkBlocks,
    Scheme,
    TileCut,
    TileOrder,
    Units,
    deliver,
    exchange,
    fewest_tiles,
    num_tiles,
    operator_of,
)

# Slices: the tiles of one step of a Plan.

TURNS = 64
"""Fewest slices where ranks alternate between peers: with fewer, a small problem's last wave is all for one peer."""
SLICES = 8
"""About how many slices a rank has by default: filling and draining the pipeline then take 1/8 of the time."""

STEPS_MOST = 100_000
"""Most units that are sent separately, over all ranks."""


def offered_sizes(problem: Problem, tile: Axis) -> tuple[int, ...]:
    """Values of `slice_tiles`: powers of two up to all tiles of a rank, without those that every *tile* refuses."""
    tiles = num_tiles(problem, tile.default)
    sizes = tuple(2**e for e in range(tiles.bit_length()))
    if tiles * problem.world <= STEPS_MOST:
        return sizes
    fewest = fewest_tiles(problem, tile.values)
    return tuple(size for size in sizes if -(-fewest // size) * problem.world <= STEPS_MOST) or sizes[-1:]


def slice_size(problem: Problem, schedule: Schedule) -> int:
    """Tiles of one step of the Plan; where the kernel sends each tile by itself, a step still shows several."""
    size = schedule.get("slice_tiles")
    return int(size) if size else int(default_slice_tiles(problem, num_tiles(problem, schedule["tile"])))


def default_slice_tiles(problem: Problem, tiles: Any) -> Any:
    """Default number of tiles of a step: the power of two that cuts *tiles* (a number or a column) into enough parts.

    GEMMs, whose tiles are large, have TURNS parts, other operators SLICES.
    """
    parts = TURNS if operator_of(problem).work == "gemm" else SLICES
    return 2 ** np.log2(np.maximum(1, tiles // parts)).astype(np.int64)


# The scheme.

COMM_SMS = 16
"""Number of SMs whose bulk copies fill a GPU's links; B200s are reported to need about 15."""
GROUP = 8
"""Rows of tiles that GPUs compute together: 4 are 7 % faster than 1 at 8192 x 8192 x 7168 on H200s, 8 another 2 %."""
ARRIVING = 4
"""Rows of tiles whose operand arrives together, and which are then computed together."""
SHORT = 64
"""Tensor cores multiply 64 rows at once, and fewer rows of a rank leave them idle. Tiles of results that nobody adds
leave by the bulk copy engine where they can, and a rank's rows are enough for it."""
PAIR = 2
"""Ranks of which each waits for one part of a sum, which is half a call old."""
RING_MOST = 2
"""Most ranks whose sums go round a ring by default. Of more ranks each wave leaves nearly whole in any order, and tiles
of all owners in turns read more operands: 2 % of the time with four ranks, 6 % with eight."""
UNFITTED = frozenset({"store", "num_warps", "num_stages", "grid", axis_rules.SPLIT_K})
"""Axes of which a fitted tile takes few values: who names one gets a default tile that takes all."""
STORE, STAGES = "tma", 3
"""Default way in which tiles leave, and default number of steps of the contraction that are loaded ahead."""


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    all_axes = (*_plan_axes(problem, machine, fabric), *_kernel_axes(problem, machine, fabric),
                *hosts.axes(problem, machine, fabric))  # fmt: skip
    known = {axis.name: axis for axis in all_axes}
    leaves, afar = base.operator_of(problem).flow is not Flow.RECEIVE, hosts.on_network(machine, fabric)
    alone = afar and (leaves or ranks_on_host(fabric, machine, problem.world) == 1)
    unread = (axis_rules.COMM_SMS,) if alone else ()  # no SM stores into another rank's memory
    return tuple(known[name] for name in axis_rules.of_fused(problem, machine.backend) if name not in unread)


def _plan_axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    of_tiles = base.tile_axis(problem, machine, _usual_tile(problem, machine))
    tiles = base.num_tiles(problem, of_tiles.default)
    sizes = offered_sizes(problem, of_tiles)
    usual = max((size for size in sizes if size <= _slice(problem, machine, tiles)), default=sizes[0])
    if hosts.on_network(machine, fabric):
        least = min(hosts.tiles_across(problem, tile(size)) for size in of_tiles.values)
        sizes = tuple(size for size in sizes if size >= least) or sizes[-1:]
        usual = hosts.usual_slice(problem, machine, fabric, tile(of_tiles.default))
        sizes = tuple(sorted({*sizes, usual}))
    return (
        of_tiles,
        _tile_order(problem, machine, fabric),
        Axis("slice_tiles", sizes, usual, "How many tiles one signal announces.", open=True),
        Axis(
            "write",
            ("zero_copy", "staged"),
            "zero_copy",
            "Straight into the peer's buffer, or through a staging buffer.",
        ),
    )


def _usual_tile(problem: Problem, machine: Machine) -> Tile:
    block = gemm_block.usual(problem, machine)
    return base.default_tile(problem, machine) if block is None else block.tile


def dependent_defaults(
    problem: Problem, machine: Machine, fabric: Fabric, values: Mapping[str, Value]
) -> dict[str, Value]:
    """What goes with *values*: warps, stages and split with a tile, the grid with a split, slices between hosts.

    Tiles span ranks by default only if *values* has no axis that changes nothing then.
    """
    usual: dict[str, Value] = {}
    if axis_rules.TILE_ORDER not in values:
        spans = spans_by_default(problem, machine, fabric) and _goes_with_all_rows(problem, values)
        by_rank = _order_of_ranks(problem, machine, fabric, values)
        usual = {axis_rules.TILE_ORDER: axis_rules.SPANNING if spans else by_rank}
    if axis_rules.may_relay(problem) and not hosts.on_network(machine, fabric):
        sends = axis_rules.TILE_ORDER not in values and usual[axis_rules.TILE_ORDER] in axis_rules.RELAYED
        usual[axis_rules.COMM_SMS] = _relaying(problem, machine, fabric, values) if sends else 0
    known = usual | _of_kernel(problem, machine, {**usual, **values})
    transport = axis_rules.GIN if hosts.on_network(machine, fabric) else axis_rules.PEER
    if values.get(axis_rules.TRANSPORT, transport) == axis_rules.GIN and problem.world > 1:
        size = values.get("tile", str(_usual_tile(problem, machine)))
        known |= hosts.dependent_defaults(problem, machine, fabric, size)
    return known


def spans_by_default(problem: Problem, machine: Machine, fabric: Fabric) -> bool:
    """Whether tiles span ranks by default: where a rank has few rows, on GPUs on which that was measured to gain."""
    measured = machine.device.kind == "gpu" and machine.device.architecture == gemm_block.MEASURED_ON
    if not measured or not axis_rules.may_span(problem) or hosts.on_network(machine, fabric):
        return False
    operator = base.operator_of(problem)
    if operator.flow is Flow.SEND and not operator.reduces:
        return operator.chunk_rows(problem) < SHORT
    return spanning.landed_bytes(problem) <= spanning.LANDED_MOST


def _goes_with_all_rows(problem: Problem, values: Mapping[str, Value]) -> bool:
    """Whether all of *values* are read by a kernel whose tiles span ranks."""
    ignored = axis_rules.ignored_axes(
        problem, SCHEME.name, {**values, axis_rules.TILE_ORDER: axis_rules.SPANNING}, "triton"
    )
    return values.get(axis_rules.TRANSPORT) != axis_rules.GIN and not ignored.keys() & values.keys()


def _of_kernel(problem: Problem, machine: Machine, values: Mapping[str, Value]) -> dict[str, Value]:
    """Warps, stages and split that go with a tile among *values*, and the grid that goes with a split."""
    if values.get(axis_rules.TILE_ORDER) == axis_rules.SPANNING and axis_rules.may_span(problem):
        return _goes_with_spanning(problem, machine, values)
    if machine.device.kind == "gpu" and base.operator_of(problem).work == "gemv":
        return _goes_with_gemv(problem, values)
    chosen: dict[str, Value] = {}
    usual = gemm_block.usual(problem, machine)
    if usual is not None and "tile" in values:
        usual = gemm_block.of_size(problem, tile(values["tile"]), machine)
        chosen = {"num_warps": usual.warps, "num_stages": usual.stages}
    elif usual is not None and fitted.is_fitted(usual.tile) and not UNFITTED.isdisjoint(values):
        usual = gemm_block.usual(problem, machine, fits=False) or usual
        chosen = {"tile": str(usual.tile), "num_warps": usual.warps, "num_stages": usual.stages}
    if usual is None or not axis_rules.cuts_tiles(problem) or axis_rules.may_span(problem):
        return chosen
    programs = int(values.get("grid") or 0)
    if programs != machine.device.slots and "grid" in values:
        return chosen | {axis_rules.SPLIT_K: axis_rules.WHOLE}  # the rule is about a program on each SM
    split = values.get(axis_rules.SPLIT_K, usual.split)
    return chosen | {axis_rules.SPLIT_K: split, "grid": machine.device.slots if split != axis_rules.WHOLE else 0}


def _goes_with_spanning(problem: Problem, machine: Machine, values: Mapping[str, Value]) -> dict[str, Value]:
    """What goes with tiles that span ranks: what a rank alone that has all rows takes."""
    alone, chosen = base.whole(problem), dict[str, Value]()
    if (block := gemm_block.usual(alone, machine, fits=False)) is not None and "tile" not in values:
        chosen = {"tile": str(block.tile)}
    chosen |= _of_kernel(alone, machine, {**chosen, **values})
    if base.operator_of(problem).flow is Flow.RECEIVE and axis_rules.COMM_SMS not in values:
        chosen |= {axis_rules.COMM_SMS: spanning.usual_pushers(problem, machine, {**chosen, **values})}
    if axis_rules.few_enough(problem) and machine.device.architecture == gemm_block.MEASURED_ON:
        chosen |= {"store": axis_rules.PACKETS}
    return chosen


def _goes_with_gemv(problem: Problem, values: Mapping[str, Value]) -> dict[str, Value]:
    """What goes with a GEMV's tile among *values*: also all programs that fit, since two on an SM are for one tile."""
    if "tile" not in values:
        return {}
    block = gemv_block.of_tile(tile(values["tile"]), problem.itemsize)
    return {"num_warps": block.warps, "num_stages": block.stages, "grid": 0}


def _tile_order(problem: Problem, machine: Machine, fabric: Fabric) -> Axis:
    """The axis `tile_order`. Outside a ring a rank adds peers' tiles in the epilogue of its own, which come last."""
    operator = base.operator_of(problem)
    sliced = operator.flow is not Flow.RECEIVE and "slice_tiles" in axis_rules.of_fused(problem, machine.backend)
    orders = ("remote_first", "rotated", "natural", *((axis_rules.INTERLEAVED,) if sliced else ()))
    orders += (axis_rules.RING,) if _offers_ring(problem, machine, fabric) else ()
    over_ranks = (axis_rules.SPANNING,) if machine.device.kind == "gpu" and axis_rules.may_span(problem) else ()
    offered = (
        () if hosts.on_network(machine, fabric) or spanning.landed_bytes(problem) > spanning.LANDED_MOST else over_ranks
    )
    spans = spans_by_default(problem, machine, fabric)
    return Axis(
        "tile_order",
        orders + offered,
        axis_rules.SPANNING if spans else _order_of_ranks(problem, machine, fabric, {}),
        "Whose rows come first: remote ones in rank order, remote ones from the next rank on, as they lie, or a "
        "slice of each in turns. When data come in, the first two begin with a rank's own rows, which need no "
        "wire; ring: in turns, too, and each sum goes from rank to rank; spanning: tiles span the rows of all ranks, "
        "as those of a rank alone.",
        unoffered=tuple(order for order in over_ranks if order not in offered),
    )


def _offers_ring(problem: Problem, machine: Machine, fabric: Fabric) -> bool:
    """Whether the sums of *problem* can go from rank to rank on *machine*: by bulk copies, inside a host."""
    adds = machine.device.kind == "gpu" and has_bulk_copies(machine.device.architecture)
    return adds and axis_rules.may_ring(problem) and not hosts.on_network(machine, fabric)


def _order_of_ranks(problem: Problem, machine: Machine, fabric: Fabric, values: Mapping[str, Value]) -> str:
    """Default order of tiles none of which spans ranks: GPUs send to all owners in turns where they can.

    Where SMs only send, tiles of peers come first.
    """
    operator = base.operator_of(problem)
    if _relaying(problem, machine, fabric, values):
        return axis_rules.RELAYED[0]
    if machine.device.kind == "gpu" and operator.flow is Flow.SEND and not operator.reduces:
        return axis_rules.INTERLEAVED
    measured = machine.device.architecture == gemm_block.MEASURED_ON and problem.world <= RING_MOST
    gains = measured and values.get("store", STORE) == STORE and not spans_by_default(problem, machine, fabric)
    return axis_rules.RING if gains and _offers_ring(problem, machine, fabric) else "rotated"


def _relaying(problem: Problem, machine: Machine, fabric: Fabric, values: Mapping[str, Value]) -> int:
    """Default number of SMs that only send results."""
    by_network = values.get(axis_rules.TRANSPORT) == axis_rules.GIN
    if not axis_rules.may_relay(problem) or fabric.kind != "nvlink" or by_network:
        return 0
    if axis_rules.COMM_SMS not in values and spans_by_default(problem, machine, fabric):
        return 0
    return relay.usual_sms(problem, machine, values)


def _slice(problem: Problem, machine: Machine, tiles: int) -> int:
    """Most tiles of a default slice: an eighth of a rank's; on GPUs a wave contains slices of all ranks."""
    most = max(1, tiles // SLICES)
    operator = base.operator_of(problem)
    if machine.device.kind == "cpu" or operator.work != "gemm":
        return most
    if operator.flow is Flow.RECEIVE:
        return _arriving(problem, _usual_tile(problem, machine))
    share = max(1, machine.device.slots // (2 * problem.world))
    if axis_rules.may_ring(problem):  # each owner's slices fall into as many classes as there are ranks
        return max(1, min(share, tiles // max(SLICES, problem.world**2)))
    return min(most, share if operator.reduces else max(1, min(share, tiles // TURNS)))


def _arriving(problem: Problem, size: Tile) -> int:
    """Tiles of a slice of incoming rows: tiles that are computed together arrive together."""
    across = -(-base.operator_of(problem).extent(problem).columns // size.n)
    return max(1, min(base.above(ARRIVING * across), base.num_tiles(problem, str(size)) // problem.world))


def _warps(problem: Problem) -> int:
    return 8 if base.operator_of(problem).work == "gemm" else 4


def _rows_together(problem: Problem) -> int:
    return 1 if base.operator_of(problem).flow is Flow.RECEIVE else GROUP


def _comm_sms(problem: Problem, machine: Machine, fabric: Fabric) -> Axis:
    """The axis `comm_sms`. Those that send incoming rows help with the last tiles, unless tiles span ranks."""
    receives = base.operator_of(problem).flow is Flow.RECEIVE
    sends = receives or has_bulk_copies(machine.device.architecture)
    offered = tuple(count for count in (0, *(relay.SMS if sends else ())) if count < machine.device.slots)
    usual = COMM_SMS if receives else 0
    usual = usual or _relaying(problem, machine, fabric, {})
    doc = "SMs that send first; where tiles span ranks only that." if receives else "SMs that only send."
    return Axis(axis_rules.COMM_SMS, offered, usual if usual in offered else 0, f"{doc} 0: all compute and send.")


def _kernel_axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    """The axes that only our kernels on GPUs have."""
    slots, (warps, stages, grid, split) = machine.device.slots, _usual_block(problem, machine)
    return (
        _store(problem, machine, fabric),
        Axis("num_warps", _offered_warps(problem), warps, "Warps of a block."),
        Axis("num_stages", _offered_stages(problem), stages, "How many steps of the contraction are loaded ahead.",
             unoffered=fitted_tiles.unoffered_stages(problem, _offered_stages(problem))),
        *_group_rows(problem),
        Axis("grid", (0, slots, 2 * slots), grid, "Persistent blocks; 0 = as many as fit at once."),
        Axis(
            axis_rules.SHOTS, (1, 2), axis_rules.omitted_shots(problem),
            "1: every rank sends its partial sums to all and sums alone; 2: to the owner of their rows, who sends the "
            "sums to all.",
        ),
        _comm_sms(problem, machine, fabric),
        _split_k(problem, machine, split),
        *axis_rules.hint_axes(),
    )  # fmt: skip


def _split_k(problem: Problem, machine: Machine, usual: int) -> Axis:
    """The axis `split_k`, with the values that cut tiles of some size."""
    doc = (
        "Ranges of the contraction into which each tile of the last, partial wave is cut, one for each program. "
        f"{axis_rules.WHOLE}: no tile is cut."
    )
    values: tuple[int, ...] = (axis_rules.WHOLE,)
    if axis_rules.cuts_tiles(problem) and not axis_rules.may_span(problem):
        slots, sizes = machine.device.slots, base.tile_axis(problem, machine, _usual_tile(problem, machine)).values
        values = split_k.offered(problem, map(tile, sizes), (slots, 2 * slots))
    return Axis(axis_rules.SPLIT_K, values, usual, doc, open=True)


def _usual_block(problem: Problem, machine: Machine) -> tuple[int, int, int, int]:
    """Default warps, stages, grid and split."""
    if base.operator_of(problem).work == "gemv":
        streams = gemv_block.usual(problem, machine.device.slots)
        return streams.warps, streams.stages, streams.grid, axis_rules.WHOLE
    block = gemm_block.usual(problem, machine)
    if block is None:
        return _warps(problem), STAGES, 0, axis_rules.WHOLE
    return block.warps, block.stages, block.grid, block.split


def _offered_warps(problem: Problem) -> tuple[int, ...]:
    """Numbers of warps: a GEMV of few rows does with two."""
    return (2, 4, 8) if base.operator_of(problem).work == "gemv" else (4, 8)


def _offered_stages(problem: Problem) -> tuple[int, ...]:
    """Numbers of stages: small tiles of a GEMM gain by up to six, other kernels were tried with four."""
    return (2, 3, 4, 5, 6) if base.operator_of(problem).work == "gemm" else (2, 3, 4)


def _store(problem: Problem, machine: Machine, fabric: Fabric) -> Axis:
    """The axis `store`, with the values that GPUs of the machine's architecture have for *problem*."""
    architecture, spans = machine.device.architecture, not hosts.on_network(machine, fabric)
    packets = (axis_rules.PACKETS,) if spans and axis_rules.may_send_packets(problem) else ()
    offered = packets if axis_rules.few_enough(problem) else ()
    unoffered = () if offered else packets  # the refusal says how many bytes they are
    also = "; or few sums in packets, which carry their signal" if offered else ""
    if has_bulk_copies(architecture):
        doc = f"Tiles leave by the bulk copy engine, or by the stores of every thread{also}."
        return Axis("store", (STORE, axis_rules.REGISTERS, *offered), STORE, doc, unoffered=unoffered)
    doc = (
        f"Tiles leave by the stores of every thread{also}: the bulk copy engine came with sm_{BULK}, and this is "
        f"sm_{architecture}: {architecture} < {BULK}."
    )
    return Axis("store", (axis_rules.REGISTERS, *offered), axis_rules.REGISTERS, doc, unoffered=unoffered)


def _group_rows(problem: Problem) -> tuple[Axis, ...]:
    """The axis `group_rows`; slices group incoming rows, so there it only chooses rows or columns first."""
    operator = base.operator_of(problem)
    if operator.work != "gemm":
        return ()
    usual = _rows_together(problem)
    doc = "How many rows of tiles are computed together, column by column. A wave of them reads fewer operands."
    if operator.flow is Flow.RECEIVE:
        doc = "1: the rows of a slice are computed column by column; 0: row by row."
        return (Axis("group_rows", (0, 1), usual, doc),)
    return (Axis("group_rows", (1, 2, 4, 8, 16), usual, doc),)


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    if axis_rules.puts_between_hosts(schedule):
        if axis_rules.spans_ranks(schedule):
            return _spans_no_hosts()
        return no_room(problem, schedule, machine) or hosts.refusal(problem, schedule, machine, fabric)
    if fabric.kind == "network":
        return _stores_end_at_the_host(problem, machine)
    if axis_rules.sums_in_ring(schedule) and (reason := _no_ring(problem, schedule, machine)) is not None:
        return reason
    if axis_rules.relays(problem, schedule) and (reason := relay.refusal(schedule, machine)) is not None:
        return reason
    if fitted_tiles.is_one_on(problem, schedule, machine):
        return fitted_tiles.refusal(problem, schedule, machine.device.architecture)
    if schedule.get("store") == axis_rules.PACKETS and (reason := spanning.no_packets(problem, schedule)) is not None:
        return reason
    landed = spanning.refusal(problem, schedule) if axis_rules.spans_ranks(schedule) else None
    return no_room(problem, schedule, machine) or landed or split_k.refusal(problem, schedule)


def _spans_no_hosts() -> str:
    """Why tiles span no ranks whose rows a network brings."""
    over_ranks, put = f"tile_order = {axis_rules.SPANNING}", f"{axis_rules.TRANSPORT} = {axis_rules.GIN}"
    return (
        f"{over_ranks} does not go with {put}: a rank waits for each slice that the network brings, and {over_ranks} "
        "has 0 slices. Accepted: another tile_order."
    )


def _no_ring(problem: Problem, schedule: Schedule, machine: Machine) -> str | None:
    """Why sums do not go from rank to rank, or None: threads do not add, and more ranks than two need many tiles."""
    if schedule.get("store") != STORE:
        return (
            f"store = {schedule['store']} does not go with tile_order = {axis_rules.RING}: each rank adds its part to "
            "the sum of those before it at the owner, which the bulk copy engine does and a thread's store does not. "
            f"Accepted: store = {STORE}, or another tile_order."
        )
    each, slots = num_tiles(problem, schedule["tile"]) // problem.world, machine.device.slots
    if problem.world == PAIR or each >= slots:
        return None
    return (
        f"tile_order = {axis_rules.RING} has {each} tiles for each owner, and {machine.name} computes {slots} at once: "
        f"of {problem.world} ranks each would wait for the one before it in the same wave. Accepted: {slots} tiles and "
        "more for each owner, or another tile_order."
    )


def _stores_end_at_the_host(problem: Problem, machine: Machine) -> str:
    """Why a kernel that stores into its peers' memory does not run on a network."""
    by_puts = machine.device.kind == "gpu" and axis_rules.TRANSPORT in axis_rules.of_fused(problem, machine.backend)
    request = f"{axis_rules.TRANSPORT} = {axis_rules.PEER}" if by_puts else "scheme = fused"
    accepted = f"{axis_rules.TRANSPORT} = {axis_rules.GIN}, sequential," if by_puts else "sequential,"
    return (
        f"{request} does not run on fabric = network. Its kernel stores into its peers' memory, and it reaches 0 of "
        f"world - 1 peers on other hosts. Accepted: {accepted} or decomposed with engine = library."
    )


def no_room(problem: Problem, schedule: Schedule, machine: Machine) -> str | None:
    """Why an SM of *machine* has no room for a block of the fused *schedule*, or None."""
    if machine.device.kind != "gpu" or base.operator_of(problem).work != "gemm":
        return None
    staged = schedule.get("store") == STORE
    return room_refusal(tile(schedule["tile"]), problem.itemsize, schedule.count("num_stages"), staged=staged,
                        architecture=machine.device.architecture)  # fmt: skip


def _order(problem: Problem, schedule: Schedule) -> TileOrder:
    """The tiles of all ranks in order: chunk after chunk, or interleaved by slices; or those that span all ranks."""
    if axis_rules.spans_ranks(schedule):
        return _spanning_order(base.tiled(problem, schedule), base.size_of(schedule), problem.world)
    one, chunks = _chunk(problem, schedule), chunk_orders(problem, schedule)
    turn, number = (each.ravel() for each in np.indices((problem.world, len(one.bounds) - 1)))
    if axis_rules.sums_in_ring(schedule):
        turn, number, _ = ring(problem.world, len(one.bounds) - 1)
    if schedule["tile_order"] == axis_rules.INTERLEAVED:
        between = axis_rules.puts_between_hosts(schedule)
        far = problem.world - schedule.count(axis_rules.PER_HOST) if between else problem.world
        order = np.lexsort((turn, number, turn >= far))
        turn, number = turn[order], number[order]
    start, stop = ranges.some(one.ranges, number)
    at, turn_of_tile = ranges.laid(start, stop), np.repeat(turn, stop - start)
    _, *sides = (column[at] for column in _columns(one.tiles))
    tiles = tuple(Tiles(of_rank[turn_of_tile], *sides) for of_rank in chunks)
    return TileOrder(tiles, chunks[:, turn], ranges.bounds(stop - start))


def ring(world: int, slices: int) -> tuple[Ints, Ints, Ints]:
    """Of each place in a rank's order: the turn of its owner, the number of its slice, and how many ranks come before.

    A rank's first owner is the next rank, its last one itself. Each owner's slices fall into as many classes as there
    are ranks. A sum of class j begins j + 1 ranks before its owner, and goes to the rank before each time: so a rank
    has slices of all owners in turns, and of those that it has at a time one class is its own.
    """
    turn, number = (each.ravel() for each in np.indices((world, slices)))
    of_class = number * world // slices
    before = (turn - of_class) % world
    order = np.lexsort((of_class, ranges.nth(before * world + turn), before))
    return turn[order], number[order], before[order]


def _spanning_order(whole: Problem, size: Tile, world: int) -> TileOrder:
    """The tiles of a rank that has all rows, for every rank: rows count from the first one's of rank 0."""
    tiles = _grouped(base.cut(base.whole_chunks(whole, 0), size).tiles, GROUP * size.m)
    starts = np.arange(0, len(tiles), int(default_slice_tiles(whole, len(tiles))))
    return TileOrder((tiles,) * world, np.zeros((world, len(starts)), dtype=np.int64), np.append(starts, len(tiles)))


def _chunk(problem: Problem, schedule: Schedule) -> TileCut:
    """The tiles of one chunk in order, with slices of rows that arrive together, or of tiles that leave together."""
    size, operator = base.size_of(schedule), base.operator_of(problem)
    if operator.flow is Flow.RECEIVE or axis_rules.puts_between_hosts(schedule):
        start, stop = np.array(slice_rows(problem, schedule)).T
        rows = base.cut(ChunkBlocks.of(0, (start, stop), (0, operator.extent(problem).columns)), size)
        together = int(schedule.get("group_rows") or 0) * size.m
        together = operator.chunk_rows(problem) if operator.flow is Flow.RECEIVE and together else together
        return TileCut(_by_columns(rows, together), rows.bounds) if together else rows
    tiles = base.cut(base.whole_chunks(problem, 0), size).tiles
    if group := schedule.get("group_rows"):
        tiles = _grouped(tiles, int(group) * size.m)
    return TileCut(tiles, np.append(np.arange(0, len(tiles), slice_size(problem, schedule)), len(tiles)))


def _grouped(tiles: Tiles, rows: int) -> Tiles:
    """*tiles* in groups of *rows* rows, column by column, so that tiles that run together read fewer operands."""
    return _taken(tiles, np.lexsort((tiles.row_start, tiles.col_start, tiles.row_start // rows)))


def _by_columns(cut: TileCut, rows: int) -> Tiles:
    """The tiles of *cut* in groups of *rows* rows inside each block, column by column, as in `_grouped`."""
    block, tiles = np.repeat(np.arange(len(cut.bounds) - 1), np.diff(cut.bounds)), cut.tiles
    group = (tiles.row_start - tiles.row_start[cut.bounds[block]]) // rows
    return _taken(tiles, np.lexsort((tiles.row_start, tiles.col_start, group, block)))


def _taken(tiles: Tiles, order: Ints) -> Tiles:
    """*tiles* in another order."""
    return Tiles(*(column[order] for column in _columns(tiles)))


def _columns(tiles: Tiles) -> list[Ints]:
    return [getattr(tiles, column.name) for column in fields(Tiles)]


def chunk_orders(problem: Problem, schedule: Schedule) -> Ints:
    """[rank, turn] the chunks in the order in which each rank computes them."""
    if axis_rules.puts_between_hosts(schedule):
        return hosts.chunk_orders(problem, schedule)
    world, others = problem.world, base.peers_of(problem.world)
    receives = base.operator_of(problem).flow is Flow.RECEIVE
    match schedule["tile_order"]:
        case "natural":
            return np.tile(np.arange(world), (world, 1))
        case "remote_first":
            others = np.sort(others, axis=1)
        case _:
            others = others[:, ::-1] if receives else others
    itself = np.arange(world)
    return np.column_stack([itself, others] if receives else [others, itself])


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    order = _order(problem, schedule)
    planner = Planner(problem, schedule, order.tiles)
    if axis_rules.spans_ranks(schedule):
        add = spanning.gather if base.operator_of(problem).flow is Flow.RECEIVE else spanning.scatter
        add(planner, order)
    elif base.operator_of(problem).flow is Flow.RECEIVE:
        _receive(planner, order)
    else:
        _send(planner, order)
    return planner.plan(launches.one_kernel(problem, schedule))


def _send(planner: Planner, order: TileOrder) -> None:
    """Adds steps that compute each slice and then send it."""
    rank = np.arange(planner.problem.world)[:, None]
    problem, schedule = planner.problem, planner.schedule
    cut = split_k.of(problem, schedule)
    if cut is not None:
        split_k.compute(planner, cut)
        order = order.after(cut.count)
    computed = base.compute(planner, rank, order.ranges)
    units = Units.of(rank, order.chunk, order.ranges, computed)
    if axis_rules.puts_between_hosts(schedule):
        hosts.deliver(planner, units)
        return
    if axis_rules.sums_in_ring(schedule):
        _add_in_ring(planner, order, computed)
        return
    if axis_rules.relays(problem, schedule):
        relay.add_steps(planner, computed, order.chunk, order.ranges)
        return
    one_shot = axis_rules.sends_packets(problem, schedule) and axis_rules.shots(problem, schedule) == 1
    reach = exchange if one_shot else deliver
    reach(planner, units, in_place=schedule.get("write") != "staged")


def _add_in_ring(planner: Planner, order: TileOrder, computed: Ints) -> None:
    """Adds steps that bring each *computed* slice to its owner, onto the sum of the ranks before; see `ring`.

    A step may wait for one of a rank whose memory it does not touch: who has added a part says so to the next rank.
    """
    world, rank = planner.problem.world, np.arange(planner.problem.world)[:, None]
    _, number, before = ring(world, order.chunk.shape[1] // world)
    there = np.full((world, int(number.max(initial=-1)) + 1), -1)
    for count in range(world):
        at = np.flatnonzero(before == count)
        owner, part = order.chunk[:, at], ranges.some(order.ranges, at)
        needed = np.stack([computed[:, at], there[owner, number[at]]], axis=-1)
        stays = owner == rank
        steps = computed[:, at].copy()
        rows, columns = np.nonzero(~stays)
        of_peers = ranges.some(part, columns)
        steps[~stays] = base.put_tiles(planner, rows, owner[~stays], of_peers, after=needed[~stays], in_place=True)
        if count:
            rows, columns = np.nonzero(stays)
            steps[stays] = base.add(planner, rows, ranges.some(part, columns), after=needed[stays])
        there[owner, number[at]] = steps


def slice_rows(problem: Problem, schedule: Schedule) -> list[tuple[int, int]]:
    """Ranges of operand rows with one signal each: as many rows as slice_tiles tiles cover, in whole rows of tiles."""
    size, extent = base.size_of(schedule), base.operator_of(problem).extent(problem)
    across = -(-extent.columns // size.n)
    rows = -(-schedule.count("slice_tiles") // across) * size.m
    length = base.operator_of(problem).chunk_rows(problem)
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


def _receive(planner: Planner, order: TileOrder) -> None:
    """Adds steps that compute each slice once its rows are here."""
    between = axis_rules.puts_between_hosts(planner.schedule)
    rows = slice_rows(planner.problem, planner.schedule)
    arrived = hosts.spread(planner, rows) if between else _put_slices(planner)
    rank, number = np.arange(planner.problem.world)[:, None], ranges.nth(order.chunk[0])
    base.compute(planner, rank, order.ranges, after=arrived[rank, order.chunk, number][..., None])


def _sends(planner: Planner, count: int) -> tuple[Ints, Ints, Ints]:
    """The rank, slice and peer of every put in order: each slice to all peers, then the next one.

    A GPU's kernel computes in the fixed order of its tiles, so there the slice that a peer computes first leaves first.
    """
    peers = base.peers_of(planner.problem.world)
    peers = peers if planner.schedule["tile_order"] == "rotated" else np.sort(peers)
    rank, number, turn = (each.ravel() for each in np.indices((len(peers), count, peers.shape[1])))
    peer = peers[rank, turn]
    if planner.schedule.get("comm_sms") is None:
        return rank, number, peer
    used = np.argsort(chunk_orders(planner.problem, planner.schedule), axis=1)  # [rank, chunk] its turn there
    order = np.lexsort((number, used[peer, rank], rank))
    return rank[order], number[order], peer[order]


def _put_slices(planner: Planner) -> Ints:
    """[rank, source, slice] the step after which that slice of the source's rows can be read on rank; -1: own rows."""
    world, (start, stop) = planner.problem.world, np.array(slice_rows(planner.problem, planner.schedule)).T
    rank, number, peer = _sends(planner, len(start))
    arrived = np.full((world, world, len(start)), -1)
    arrived[peer, rank, number] = base.put_rows(planner, rank, peer, ranges.some((start, stop), number))
    if planner.schedule.get("write") == "staged":
        here, source = np.arange(world)[:, None, None], np.sort(base.peers_of(world))[..., None]
        arrived[here, source, np.arange(len(start))] = base.unstage(
            planner, here, source, (start, stop), base.full_k(planner.problem),
            after=arrived[here, source, np.arange(len(start)), None],
        )  # fmt: skip
    return arrived


def alone(problem: Problem, size: Value) -> Schedule:
    """The schedule of a GPU's fused kernel that only computes: tiles of *size*, natural order, defaults for the rest.

    It needs no Machine, so that ranks can build it.
    """
    warps, stages = _warps(problem), STAGES
    if base.operator_of(problem).work == "gemv":
        streams = gemv_block.of_tile(tile(size), problem.itemsize)
        warps, stages = streams.warps, streams.stages
    elif base.operator_of(problem).work == "gemm" and fitted.runs(tile(size)):
        warps, stages = fitted.sides(tile(size)).warps, fitted.sides(tile(size)).stages
    usual: dict[str, Value] = {
        "tile": size, "store": STORE, "num_warps": warps, "num_stages": stages,
        "group_rows": _rows_together(problem), "tile_order": "natural", "slice_tiles": _arriving(problem, tile(size)),
        "grid": 0, "comm_sms": 0, axis_rules.SPLIT_K: axis_rules.WHOLE,
        axis_rules.SHOTS: axis_rules.omitted_shots(problem),
        axis_rules.LOAD: axis_rules.NO_HINT, axis_rules.STORE: axis_rules.NO_HINT,
        axis_rules.TRANSPORT: axis_rules.PEER, axis_rules.PER_HOST: 1,
    }  # fmt: skip
    known = tuple((name, usual[name]) for name in axis_rules.of_fused(problem, "triton"))
    return axis_rules.effective(problem, Schedule("fused", known), "triton")


def order_alone(problem: Problem, size: Value) -> TileCut:
    """The tiles of every rank in the order of `alone`, with one block for each chunk."""
    tiles = _order(problem, alone(problem, size)).tiles[0]
    return TileCut(tiles, np.searchsorted(tiles.chunk, np.arange(problem.world + 1)))


SCHEME = Scheme(
    name="fused",
    idea="One kernel: a workgroup sends its result as soon as it is done.",
    source="arXiv:2305.06942",
    axes=_axes,
    refusal=_refusal,
    expand=_expand,
    needs_peer_memory=lambda schedule: (
        not axis_rules.puts_between_hosts(schedule) or schedule.count(axis_rules.PER_HOST) > 1
    ),
    run_by=("cpu", "triton"),
    dependent_defaults=dependent_defaults,
    is_operator=True,
)
