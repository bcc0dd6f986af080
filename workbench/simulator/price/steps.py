"""Prices every step of a Plan: columns of seconds, and the pools that steps hold meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.operators.base import Flow
from kernels.plan import EVERYTHING, NUM_KINDS, Kind, Plan, Pool, Tiles, bounds, inside, nth
from kernels.problem import Problem
from kernels.schedule import tile
from kernels.schemes import BASELINE, axis_rules, library, spanning, split_k
from workbench.simulator.price import gemm, latency, messages, networks, shared, tiles
from workbench.simulator.price.collectives import call_seconds
from workbench.simulator.price.costs import StepCosts
from workbench.simulator.price.gemm import memory_floor_seconds
from workbench.simulator.price.messages import Routes, routes
from workbench.simulator.price.rates import start_seconds, step_overhead, unpacks, work_seconds

# Compute steps: their tiles in order, in waves over the slots that a step has.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def compute_seconds(plan: Plan, machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of every compute step without its overhead; 0 for other steps."""
    seconds = np.zeros(len(plan))
    steps = np.flatnonzero(plan.kind == Kind.COMPUTE)
    if not len(steps):
        return seconds
    by_library = tiles.library_seconds(machine, plan.problem, plan.schedule.get(axis_rules.KERNEL))
    if by_library is not None:
        seconds[steps] = by_library
    elif one_kernel(plan) or computes_in_one_launch(plan):
        seconds[steps] = _one_kernel(plan, machine, fabric, steps)
    elif plan.schedule.get(axis_rules.LAUNCHES) == axis_rules.PER_PIECE and tiles.in_calls(machine, plan.problem):
        sides, slots = _rectangles(plan, steps), _slots(plan, machine, steps)
        seconds[steps] = tiles.library_piece_seconds(machine, plan.problem, sides, slots)
    else:
        seconds[steps] = _own_kernels(plan, machine, steps)
    return seconds


def one_kernel(plan: Plan) -> bool:
    """Whether each rank has a single launch, so that its steps begin inside a running kernel."""
    return len(plan) > 0 and len(plan.launches) <= plan.problem.world


def computes_in_one_launch(plan: Plan) -> bool:
    """Whether one of several launches of each rank has all compute steps, which wait inside it."""
    return plan.schedule.get(axis_rules.LAUNCHES) == axis_rules.ONE


def _slots(plan: Plan, machine: Machine, steps: Ints, away: float = 1.0) -> Ints:
    """Number of tiles computed at once, by step; at most the share of a step that has one.

    *away*: share of the time during which communicating SMs do not compute. Without communication, only SMs that were
    set aside are taken.
    """
    schedule, share = plan.schedule, plan.share[steps]
    engine = schedule.get("engine") if bool((plan.kind != Kind.COMPUTE).any()) else None
    most = tiles.slots(machine, grid=plan.launches.grid[plan.launch[steps]],
                       comm_sms=away * _comm_sms(plan), engine=engine)  # fmt: skip
    return np.where(share == EVERYTHING, most, np.minimum(most, share))


def _own_kernels(plan: Plan, machine: Machine, steps: Ints) -> Floats:
    """Seconds of steps that each begin new waves; all tiles of a wave wait for its slowest."""
    chosen, counts = _chosen(plan, steps)
    first, place_in_step = bounds(counts)[:-1], inside(counts)
    k = np.repeat(plan.k_stop[steps] - plan.k_start[steps], counts)
    rows, columns = _sides(plan.tiles)
    seconds = _tile_seconds(plan, machine, (rows[chosen], columns[chosen]), k)
    waves = np.flatnonzero(place_in_step % np.repeat(_slots(plan, machine, steps), counts) == 0)
    of_wave = np.maximum.reduceat(seconds, waves)
    computed = np.add.reduceat(of_wave, np.searchsorted(waves, first))
    memory = tiles.memory_seconds(machine, plan.problem, *_rectangles(plan, steps))
    if not tiles.in_waves(machine):
        return np.maximum(computed, memory)
    size, of_step = tile(plan.schedule["tile"]), plan.k_stop[steps] - plan.k_start[steps]
    loads = tiles.load_seconds(machine, plan.problem, size.m, size.n, of_step)
    slots = _slots(plan, machine, steps)
    number = -(-counts // slots)
    # pieces are a library's, and streams share SMs as price/shared.py says
    ours = plan.schedule.get(axis_rules.KERNEL) is not None and not plan.launches.micro_batch.any()
    blocks = _blocks(plan, machine) if ours else None
    seconds = gemm.better(machine, plan.problem, blocks, (of_step, counts, slots, memory),
                          lambda: tiles.in_waves_seconds(number, computed / number, loads, memory))  # fmt: skip
    awaited = latency.of_schedule(machine, plan.problem, plan.schedule) if ours else None
    return latency.no_sooner(machine, awaited, counts, seconds)


def _blocks(plan: Plan, machine: Machine) -> gemm.GemmBlocks | None:
    """Blocks of our kernel that executes *plan*; None if only its tiles are known."""
    pushes = one_kernel(plan) and bool((plan.kind == Kind.PUT).any())
    return gemm.of_schedule(machine, plan.problem, plan.schedule, pushes=pushes)


def _one_kernel(plan: Plan, machine: Machine, fabric: Fabric, steps: Ints) -> Floats:
    """Seconds that each step adds to the end of its last wave, where waves run through the whole tile order.

    If tiles wait for rows, a wave begins when the last of them arrives: the step that completes it costs all of it.
    """
    added, slots = np.zeros(len(steps)), _slots(plan, machine, steps, _away(plan, machine, fabric, steps))
    kind = operator(plan.problem.operator)
    contraction, waits = kind.extent(plan.problem).contraction, kind.flow is Flow.RECEIVE
    if plan.adds_units.any():
        return _cut_kernel(plan, machine, steps)
    if computes_in_one_launch(plan) and (plan.k_stop[steps] - plan.k_start[steps] < contraction).any():
        return _ranges_in_one_launch(plan, machine, steps, slots)
    floor_s = _floor_seconds(plan, machine, int(slots.max())) if one_kernel(plan) else 0.0
    share_of_k = (plan.k_stop[steps] - plan.k_start[steps]) / contraction
    for rank, of_rank in enumerate(plan.tiles):
        here = plan.rank[steps] == rank
        count, at_once = len(of_rank), int(slots[here].max(initial=1))
        seconds = _tile_seconds(plan, machine, _sides([of_rank]), np.full(count, contraction))
        ends = np.concatenate([[0.0], np.cumsum(np.maximum.reduceat(seconds, np.arange(0, count, at_once)))])
        between = np.stack([plan.tile_start[steps[here]], plan.tile_stop[steps[here]]])
        if waits and computes_in_one_launch(plan):
            added[here] = _behind_rows(between, at_once, float(ends[-1])) * _slower(plan, machine, (count, at_once),
                                                                                 ends[-1], floor_s)  # fmt: skip
            continue
        wave = np.where(between < count, between // at_once, len(ends) - 1) if waits else -(-between // at_once)
        ends *= _slower(plan, machine, (count, at_once), ends[-1], floor_s)
        stores = not waits and not axis_rules.relays(plan.problem, plan.schedule)
        if stores and one_kernel(plan) and (plan.kind == Kind.PUT).any():
            ends = _behind_stores(plan, machine, fabric, ends, (rank, at_once))
        added[here] = (ends[wave[1]] - ends[wave[0]]) * share_of_k[here]
        if len(later := np.flatnonzero(here & (plan.k_start[steps] > 0))):
            added[later[0]] += spanning.MIDWAY_SECONDS
    return added


def _cut_kernel(plan: Plan, machine: Machine, steps: Ints) -> Floats:
    """Seconds of the steps of a kernel that cuts tiles: units, steps that add them, slices of whole tiles."""
    size, contraction = tile(plan.schedule["tile"]), operator(plan.problem.operator).extent(plan.problem).contraction
    k, adds, programs = plan.k_stop[steps] - plan.k_start[steps], plan.adds_units[steps], plan.schedule.count("grid")
    count = len(plan.tiles[0])
    priced = gemm.cut_kernel(
        machine, plan.problem, _blocks(plan, machine), (size.m, size.n, contraction),
        size.k, (count, programs, plan.schedule.count(axis_rules.SPLIT_K)),
    )  # fmt: skip
    units, adding, whole, total = (float(np.max(each)) for each in
                                   (priced.units, priced.adding, priced.whole, priced.total))  # fmt: skip
    cut = split_k.of(plan.problem, plan.schedule)
    assert cut is not None
    is_unit, added = ~adds & (k < contraction), np.zeros(len(steps))
    turns = -(-len(cut.tile) // machine.device.slots)  # of programs that share an SM, in the Plan's slots
    added[is_unit] = units * k[is_unit] / k[is_unit].max() / turns
    added[adds] = adding
    if (is_whole := ~adds & ~is_unit).any():
        waves = count // programs
        between = np.stack([plan.tile_start[steps], plan.tile_stop[steps]])[:, is_whole] - cut.count
        begun = -(-between // programs)
        added[is_whole] = (begun[1] - begun[0]) * whole / max(1, waves)
    floor_s = memory_floor_seconds(plan, machine, total)
    return np.asarray(added * max(total, floor_s) / (units + adding + whole))


def _behind_stores(plan: Plan, machine: Machine, fabric: Fabric, ends: Floats, where: tuple[int, int]) -> Floats:
    """*ends* of waves, each of which takes at least as long as storing its bytes on peers.

    *where*: the rank, and how many tiles a wave has.
    """
    (rank, at_once), size = where, tile(plan.schedule["tile"])
    leave = _is_stored_on_peer(plan, rank) * float(size.m * size.n * plan.problem.itemsize)
    num_bytes = np.add.reduceat(leave, np.arange(0, len(leave), at_once))
    stored = num_bytes * networks.store_byte_seconds(machine, plan.problem, fabric, dict(plan.schedule.axes))
    return np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(ends), stored))])


def _is_stored_on_peer(plan: Plan, rank: int) -> NDArray[np.bool_]:
    """Which tiles the kernel stores on other ranks: those of this host alone where puts go between hosts."""
    chunk = plan.tiles[rank].chunk
    if not axis_rules.puts_between_hosts(plan.schedule):
        return np.asarray(chunk != rank)
    each = plan.schedule.count(axis_rules.PER_HOST)
    collector = np.where(chunk // each == rank // each, chunk, rank // each * each + chunk % each)
    return np.asarray(collector != rank)


def _behind_rows(between: Ints, at_once: int, seconds: float) -> Floats:
    """What the steps of one launch add to its *seconds*: tiles [begin or end, step] in the launch's order.

    Each program waits by itself, so none waits for a whole wave. But the tiles of the last step are computed after
    their rows arrive, in at least their number of waves.
    """
    count = int(between.max())
    waves = -(-count // at_once)
    last = -(-(between[1] - between[0])[np.argmax(between[1])] // at_once) / waves
    ends = np.minimum(between / count, max(0.0, 1.0 - last)) * seconds
    ends = np.where(between == count, seconds, ends)
    return np.asarray(ends[1] - ends[0])


def _ranges_in_one_launch(plan: Plan, machine: Machine, steps: Ints, slots: Ints) -> Floats:
    """Seconds of steps in a kernel that waits for ranges of the contraction: only the first wave of a rectangle waits.

    A rectangle has one step for each range: each takes its part of one wave, and the last one also the other waves,
    whose operands have all arrived.
    """
    size, (rows, columns, k) = tile(plan.schedule["tile"]), _rectangles(plan, steps)
    contraction = operator(plan.problem.operator).extent(plan.problem).contraction
    waves = (plan.tile_stop[steps] - plan.tile_start[steps]) / slots
    of_wave = tiles.tile_seconds(machine, plan.problem, size.m, size.n, contraction)
    last = plan.k_stop[steps] == contraction
    seconds = of_wave * (np.minimum(1.0, waves) * k / contraction + last * np.maximum(0.0, waves - 1.0))
    bound = tiles.memory_seconds(machine, plan.problem, rows, columns, k)
    return np.asarray(np.maximum(seconds, bound))


def _rectangles(plan: Plan, steps: Ints) -> tuple[Floats, Ints, Ints]:
    """Rows, columns and contraction of what each step computes: pieces of several ranks lie one below the other."""
    chosen, counts = _chosen(plan, steps)
    first, (heights, widths) = bounds(counts)[:-1], _sides(plan.tiles)
    starts, stops = (
        np.concatenate([getattr(each, name) for each in plan.tiles])[chosen] for name in ("col_start", "col_stop")
    )
    columns = np.maximum.reduceat(stops, first) - np.minimum.reduceat(starts, first)
    rows = np.add.reduceat(heights[chosen] * widths[chosen], first) / columns
    return rows, columns, plan.k_stop[steps] - plan.k_start[steps]


def _chosen(plan: Plan, steps: Ints) -> tuple[Ints, Ints]:
    """The tiles of *steps* end to end, counted over all ranks, and how many each step has."""
    counts = plan.tile_stop[steps] - plan.tile_start[steps]
    offsets = _offsets(plan)[plan.rank[steps]] + plan.tile_start[steps]
    return np.repeat(offsets, counts) + inside(counts), counts


def _away(plan: Plan, machine: Machine, fabric: Fabric, steps: Ints) -> float:
    """Share of the computation during which pushing SMs do not compute; 0 if nothing is pushed.

    It is 1 if they belong to a separate kernel, or only push.
    """
    if not one_kernel(plan) or axis_rules.spans_ranks(plan.schedule):
        return 1.0
    if not _comm_sms(plan) or not (plan.kind == Kind.PUT).any():
        return 0.0
    axes, size = dict(plan.schedule.axes), tile(plan.schedule["tile"])
    k, count = operator(plan.problem.operator).extent(plan.problem).contraction, max(map(len, plan.tiles))
    at_once = _slots(plan, machine, steps, 0.0).max()
    blocks = _blocks(plan, machine)
    whole = gemm.kernel_seconds(machine, plan.problem, blocks, (size.m, size.n, k), count, at_once)
    return float(networks.away(machine, plan.problem, fabric, axes, whole).max())


def _comm_sms(plan: Plan) -> int:
    return int(plan.schedule.get("comm_sms", 0) or 0)


def _slower(plan: Plan, machine: Machine, waves: tuple[int, int], computed_s: float, floor_s: float) -> float:
    """How many times as long as *computed_s* a kernel takes, since it waits for loads and memory, at least *floor_s*.

    *waves*: its tiles, and how many of them are computed at once.
    """
    least = 0.0 if tiles.in_waves(machine) else computed_s
    return max(_kernel_seconds(plan, machine, waves), floor_s, least) / computed_s


def _kernel_seconds(plan: Plan, machine: Machine, waves: tuple[int, int]) -> float:
    """Seconds of a kernel with *waves*: its tiles, and how many run at once. By memory alone if it has no waves."""
    if not tiles.in_waves(machine):
        return float(tiles.kernel_memory_seconds(machine, plan.problem).max())
    size, k = tile(plan.schedule["tile"]), operator(plan.problem.operator).extent(plan.problem).contraction
    blocks = _blocks(plan, machine)
    seconds = gemm.kernel_seconds(machine, plan.problem, blocks, (size.m, size.n, k), *waves)
    awaited = latency.of_schedule(machine, plan.problem, plan.schedule)
    return float(latency.no_sooner(machine, awaited, waves[0], seconds).max())


def _floor_seconds(plan: Plan, machine: Machine, at_once: int) -> float:
    """Least seconds by memory, if these are near the seconds that the kernel takes otherwise."""
    return memory_floor_seconds(plan, machine, _kernel_seconds(plan, machine, (len(plan.tiles[0]), at_once)))


def _offsets(plan: Plan) -> Ints:
    """Where each rank's tiles begin if the tiles of all ranks are laid end to end."""
    return bounds(np.array([len(each) for each in plan.tiles], dtype=np.int64))


def _sides(of_ranks: Sequence[Tiles]) -> tuple[Ints, Ints]:
    """Rows and columns of all tiles, rank after rank."""
    rows = np.concatenate([each.row_stop - each.row_start for each in of_ranks])
    return rows, np.concatenate([each.col_stop - each.col_start for each in of_ranks])


def _tile_seconds(plan: Plan, machine: Machine, sides: tuple[Ints, Ints], k: Ints) -> Floats:
    """Seconds of tiles with these *sides*. A GPU takes as long for a partial tile as for a whole one."""
    if not tiles.in_waves(machine):
        return tiles.tile_seconds(machine, plan.problem, *sides, k)
    size, (each, place) = tile(plan.schedule["tile"]), np.unique(k, return_inverse=True)
    alike = np.ones_like(each)
    return tiles.tile_seconds(machine, plan.problem, size.m * alike, size.n * alike, each)[place]


# The trivial estimate: roofline and alpha-beta, with which every tier of the simulator is compared.


def trivial_seconds(problem: Problem, scheme: str, part: str, machine: Machine, fabric: Fabric) -> float:
    """Seconds at the machine's peaks: the baseline's computation and communication follow each other, others overlap.

    *fabric* must be resolved.
    """
    compute, communication = _compute_seconds(problem, machine), _communication_seconds(problem, machine, fabric)
    if part == "compute":
        return compute
    if part == "communication":
        return communication
    return compute + communication if scheme == BASELINE else max(compute, communication)


def _compute_seconds(problem: Problem, machine: Machine) -> float:
    """Seconds by the roofline: FLOP at the peak, or the bytes of operands and result at the memory bandwidth."""
    kind = operator(problem.operator)
    bare = machine.device.matrix_flops_per_second
    peak = bare.get(problem.dtype, min(bare.values()))
    return max(kind.flops(problem) / peak, kind.memory_bytes(problem) / machine.device.memory_bytes_per_second)


def _communication_seconds(problem: Problem, machine: Machine, fabric: Fabric) -> float:
    """Seconds by alpha and beta: one latency, and the least bytes that leave a rank at the link's bandwidth."""
    if problem.world == 1:
        return 0.0
    num_bytes = operator(problem.operator).wire_bytes(problem)
    ways = routes(problem.world, machine, fabric)
    if fabric.kind == "shared_memory":  # what crosses no wire is copied
        return float(work_seconds(machine, "copy", problem.dtype, 2 * num_bytes))
    route = ways.between(0, 1)
    return float(route.latency_seconds + num_bytes * ways.collective_byte_seconds)


# Costs of all steps of a Plan.

_IS_WORK = np.isin(np.arange(NUM_KINDS), (Kind.COMPUTE, Kind.REDUCE, Kind.COPY))
"""Whether a rank does a step by itself, by the number of its kind."""


def step_costs(plan: Plan, machine: Machine, fabric: Fabric) -> StepCosts:
    """Costs of *plan*. *fabric* must be resolved."""
    carried_out, count = library.executed_schedule(plan.schedule), len(plan)
    plan = plan if carried_out is plan.schedule else replace(plan, schedule=carried_out)
    alone = _leaves_alone(plan, machine)
    plan = replace(plan, share=np.where(alone, EVERYTHING, plan.share)) if alone.any() else plan
    issue, transit, delay = _local_seconds(plan, machine, fabric), np.zeros(count), np.zeros(count)
    link = np.full(count, -1, dtype=np.int64)
    ways, together = routes(plan.problem.world, machine, fabric), one_kernel(plan)
    moves, sent = plan.kind == Kind.PUT, axis_rules.sends_packets(plan.problem, plan.schedule)
    waits = _waits_in_kernels(plan)
    puts = messages.Puts(plan.pool[moves], plan.share[moves], plan.in_place[moves] == 1, sent, waits)
    issue[moves] = messages.issue_seconds(machine, plan.problem.dtype, plan.num_bytes[moves], puts,
                                          one_kernel=together)  # fmt: skip
    route = ways.between(plan.rank[moves], plan.peer[moves])
    link[moves] = route.number
    level = np.where(link >= 0, ways.levels(link), 0)
    puts_seconds = messages.sent_byte_seconds if (plan.kind == Kind.COMPUTE).any() else messages.put_byte_seconds
    measured = puts_seconds(plan.problem, machine, fabric, dict(plan.schedule.axes))
    if (last := messages.last_byte_seconds(plan.problem, machine, fabric)) is not None and measured is not None:
        measured = np.where(alone[moves], last, measured) if alone.any() else measured
    transit[moves] = messages.transit_seconds(route, plan.num_bytes[moves], measured)
    hides = (plan.pool[moves] == Pool.COPY_ENGINE) & (not waits)
    delay[moves] = messages.delay_seconds(machine, route, packets=sent, hides=hides)
    overlap = np.zeros(count)
    overlap[moves] = messages.held_seconds(machine, puts, transit[moves])
    issue += overlap
    calls = plan.kind == Kind.COLLECTIVE
    issue[calls] = _call_seconds(plan, machine, ways, calls)
    start = start_seconds(machine, one_kernel=together, collective=plan.schedule.get("collective"),
                          communicates=bool((plan.kind != Kind.COMPUTE).any()), packets=sent)  # fmt: skip
    by_thread = moves & messages.computes_too(machine, plan.pool, plan.share)
    costs = StepCosts(pool=np.where(by_thread, Pool.COMPUTE, plan.pool),
                     share=np.where(by_thread, EVERYTHING, plan.share),
                     capacity=np.tile(capacities(machine), (plan.problem.world, 1)), issue=issue, link=link,
                     level=level, transit=transit, overlap=overlap, delay=delay, start_seconds=start)  # fmt: skip
    return shared.dealt(plan, machine, fabric, costs) if shared.are_dealt(plan, machine) else costs


def _leaves_alone(plan: Plan, machine: Machine) -> NDArray[np.bool_]:
    """By step, whether an all-reduce's sums leave without the SMs that only send: those of the last wave."""
    if not axis_rules.relays(plan.problem, plan.schedule) or operator(plan.problem.operator).flow is not Flow.BROADCAST:
        return np.zeros(len(plan), dtype=np.bool_)
    count = len(plan.tiles[0])
    last = max(count // plan.problem.world, count - int(tiles.slots(machine, comm_sms=_comm_sms(plan))))
    return np.asarray((plan.kind == Kind.PUT) & (plan.tile_start >= last))


def _waits_in_kernels(plan: Plan) -> bool:
    """Whether copies wait for pieces of a running launch: in a kernel, since no event marks a piece."""
    sends = operator(plan.problem.operator).flow is not Flow.RECEIVE
    return computes_in_one_launch(plan) and sends and bool((plan.kind == Kind.COMPUTE).any())


def capacities(machine: Machine) -> Ints:
    """Units by pool: SMs or a CPU rank's one thread, copy engines, one for links and one for library calls."""
    units = np.ones(len(Pool), dtype=np.int64)
    units[Pool.COMPUTE] = machine.device.slots
    units[Pool.COPY_ENGINE] = max(1, machine.device.copy_engines)
    return units


def _local_seconds(plan: Plan, machine: Machine, fabric: Fabric) -> Floats:
    """Seconds of the steps that a rank does by itself: their work and overhead."""
    seconds, dtype = compute_seconds(plan, machine, fabric), plan.problem.dtype
    for kind, work in ((Kind.REDUCE, "reduce"), (Kind.COPY, "copy")):
        steps = plan.kind == kind
        seconds[steps] = work_seconds(machine, work, dtype, plan.num_bytes[steps])
    works = _IS_WORK[plan.kind]
    seconds[works] += step_overhead(machine, one_kernel=one_kernel(plan))
    if computes_in_one_launch(plan):  # only the first step of a launch waits for it to begin
        begun = (plan.kind == Kind.COMPUTE) & (nth(plan.launch) > 0)
        seconds[begun] -= step_overhead(machine, one_kernel=False) - step_overhead(machine, one_kernel=True)
    calls = bool((plan.kind == Kind.COLLECTIVE).any())
    if calls and not unpacks(machine, plan.problem, in_pieces=plan.schedule.get("pieces") is not None):
        seconds[plan.kind == Kind.COPY] = 0.0
    return seconds


def _call_seconds(plan: Plan, machine: Machine, ways: Routes, calls: NDArray[np.bool_]) -> Floats:
    """Seconds of collectives, by the most bytes that any rank sends in the call with the same number."""
    index = plan.index[calls]
    most = np.zeros(int(index.max(initial=-1)) + 1)
    np.maximum.at(most, index, plan.num_bytes[calls])
    name = operator(plan.problem.operator).collective
    return call_seconds(machine, ways, name, most[index], plan.schedule.get("collective"))
