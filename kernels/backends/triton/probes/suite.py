"""The list of probes, the most wanted first: each states its facts, its expected time, and how it is prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from statistics import median
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.base import Hang, Region, Seat, aligned, place
from kernels.backends.triton import timing
from kernels.backends.triton.backend import operand_sets
from kernels.backends.triton.collectives import at_once
from kernels.backends.triton.kernels.probe import copy, gather, ping_pong, ping_pong_packets, put, put_bulk, read
from kernels.backends.triton.kernels.sync import write_now
from kernels.backends.triton.launch import descriptors
from kernels.backends.triton.memory import (
    Context,
    DeviceHeap,
    RankEndpoint,
    RankProcessGroup,
    SymmetricHeap,
    private_bytes,
    shared_bytes,
)
from kernels.backends.triton.schemes import fused
from kernels.backends.triton.timing import GraphReplay, StreamBarrier
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import Refusal, Schedule
from kernels.schemes import expand, schedule
from kernels.schemes.base import above
from kernels.units import bytes_text

# Where probes run: signals and a landing place in symmetric memory, random words to send; on GPUs and interpreted.

Call = Callable[[], None]

SITE_PACKETS = 1024
"""Most packets of one ping-pong."""
LIMIT_S = 5.0
"""After which a wait inside a probe's kernel gives up."""


def _regions(world: int, slot_bytes: int) -> dict[str, tuple[Region, torch.dtype]]:
    """What peers send, and behind it, where no trial's data come, counters and packets."""
    landing = Region(0, (world, slot_bytes // 4))
    counted = place({"meet": (world,), "done": (world,), "ping": (1,)}, 4, aligned(world * slot_bytes))
    packets = Region(max(aligned(each.offset + 4 * prod(each.shape)) for each in counted.values()), (SITE_PACKETS,))
    found = {name: (region, torch.int32) for name, region in ({"landing": landing} | counted).items()}
    return found | {"packets": (packets, torch.int64)}


class ProbeSite(RankEndpoint):
    """One rank's end. *slot_bytes*: what each peer may send here; the heap has room for `heap_bytes` of them."""

    def __init__(self, heap: SymmetricHeap, rank: int, world: int, slot_bytes: int, device: torch.device) -> None:
        super().__init__(heap, rank, world, device, limit_s=LIMIT_S)
        self.data_bytes = world * slot_bytes
        """What trials may use while nothing is sent."""
        self.places |= _regions(world, slot_bytes)
        for name in ("meet", "done", "ping", "packets"):
            self.of(rank, name).zero_()
        self.rounds = torch.zeros(2, dtype=torch.int32, device=device)
        """How many signals and how many packets were sent back and forth, in all."""
        self.source = torch.empty(slot_bytes // 4, dtype=torch.int32, device=device).random_()

    @staticmethod
    def heap_bytes(world: int, slot_bytes: int) -> int:
        """What the heap must have room for."""
        region, dtype = _regions(world, slot_bytes)["packets"]
        return region.offset + dtype.itemsize * prod(region.shape)

    @property
    def partner(self) -> int | None:
        """With whom this rank plays ping-pong; None for the last of an odd world."""
        found = self.rank ^ 1
        return found if found < self.world else None

    def slot(self, peer: int) -> torch.Tensor:
        """int32: where this rank's words land on *peer*."""
        return self.of(peer, "landing")[self.rank]

    def slots(self) -> torch.Tensor:
        """int64 [W]: addresses of `slot` by rank."""
        found = [self.slot(peer).data_ptr() for peer in range(self.world)]
        return torch.tensor(found, dtype=torch.int64, device=self.device)

    def title(self) -> str:
        return "a probe"


# A gang of GPU ranks that times probes: all ranks at once, captured calls, five blocks of replays.

SLOT_BYTES = 1 << 28
"""The largest message of a pair of ranks."""
POOL_BYTES = 1 << 31
"""Of a GPU's own memory, read and copied in turns: forty times its L2."""
GRAPH_SECONDS, EAGER_SECONDS = 2e-3, 4e-3
"""A replay is about this long by the time that is expected of a call."""
CALLS_MOST = 200
BLOCKS, REPLAYS, WARM = 5, 3, 2
"""Blocks of a probe, replays in each, replays before the first."""


class ProbeRank:
    """One rank's process group, heap, stream and memory, on the one GPU that its process sees."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.device = torch.device("cuda", 0)
        torch.cuda.set_device(self.device)
        self.group = RankProcessGroup(seat, self.device) if seat.world > 1 else None
        heap = DeviceHeap(self.group, self.device, ProbeSite.heap_bytes(seat.world, SLOT_BYTES))
        self.site = ProbeSite(heap, seat.rank, seat.world, SLOT_BYTES, self.device)
        self.processors = torch.cuda.get_device_properties(self.device).multi_processor_count
        self.pool = torch.empty(POOL_BYTES // 8, dtype=torch.int64, device=self.device).random_()
        self.stream = torch.cuda.Stream(self.device)
        self.held: tuple[Problem, list[Operands]] | None = None
        """Operands of the last problem, which several probes in a row use."""
        self.barrier()

    def blocks(self, calls: Sequence[Call], expected_s: float, *, captured: bool = True) -> list[float]:
        """Seconds of one call in each of BLOCKS blocks, on this rank's clock from the common start.

        *calls* run in turns, as many as take about GRAPH_SECONDS by *expected_s*; `Hang` says what was waited for.
        """
        self.barrier()  # what was prepared on another stream is there
        with torch.cuda.stream(self.stream):  # compiles; libraries set up what they may not while a graph is captured
            for call in calls[:2]:
                call()
        self.barrier()
        self._check()
        count = min(CALLS_MOST, max(3, round((GRAPH_SECONDS if captured else EAGER_SECONDS) / expected_s)))
        replay = GraphReplay(self.site, [calls[n % len(calls)] for n in range(count)], self.stream, captured=captured)
        for _ in range(WARM):
            self._replayed(replay)
        found = [median(self._replayed(replay) for _ in range(REPLAYS)) for _ in range(BLOCKS)]
        self._check()
        return found

    def _replayed(self, replay: GraphReplay) -> float:
        self.barrier()
        return replay.seconds()

    def _check(self) -> None:
        if sentence := self.site.failure():
            raise Hang(sentence)

    def barrier(self) -> None:
        """All ranks meet on the host, their GPUs idle."""
        torch.cuda.synchronize(self.device)
        if self.group is not None:
            self.group.barrier()

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank."""
        return [list(values)] if self.group is None else self.group.exchange(values)

    def close(self) -> None:
        """Leaves the process group."""
        if self.group is not None:
            self.group.close()


# What is expected of each probe before it is measured: the datasheet's numbers times what was reached before.

Facts = Mapping[str, Any]

PUT_SHARE = {"registers": 0.76, "tma": 0.80, "copy_engine": 0.86}
"""Of the link's bandwidth: 386 of 450 GB/s by copy engines in a ring of 4 H200s; stores reached 310 under a GEMM."""
PROGRAM_BYTES_PER_SECOND = {"registers": 8e9, "tma": 2.5e10}
"""What one block puts: 16 KiB a load's latency of 0.7 µs, or four such under way, twice that to be stored."""
CALL_S = {"registers": 5e-6, "tma": 6e-6, "copy_engine": 1.2e-5}
"""Of a put of next to nothing: a node of a graph, two flights and a fence; copies: two meetings and a launch."""
NCCL_S = {"all_reduce": 1.0e-5, "all_gather": 1.2e-5, "reduce_scatter": 1.2e-5, "all_to_all": 1.4e-5}
NCCL_SHARE = {"all_reduce": 0.72, "all_gather": 0.75, "reduce_scatter": 0.75, "all_to_all": 0.58}
"""4 H200s, NCCL 2.28.9 without multicast: all-to-all of 64 MB at 262 GB/s, all-reduce of 8 KB in 10.5 µs."""
READ_SHARE, COPY_SHARE, GATHER_SHARE = 0.92, 0.88, 0.7
"""Of the HBM's peak; rows of 256 bytes at random reached 2.6 TB/s with our lookup."""
GEMM_SHARE = {"ours": 0.71, "library": 0.74}
GEMV_SHARE = 0.8
"""737 and 750 TFLOP/s on 8192 x 8192 x 8192; a GEMV of 33 MB took 10.9 µs with 2.5 µs fixed."""
NODE_S, SHORT_S = 1.5e-6, 2.5e-6
SIMPLE_S = {
    "graph_node": NODE_S, "eager_launch": 2e-5, "meeting": 4e-6, "signal": 1.2e-6, "packets": 0.9e-6,
    "clock_step": 3.2e-8,
}  # fmt: skip
"""Launches from a host in a virtual machine are slow; one way of a signal is a fence, 0.6 µs of link, and a poll."""


def expected_seconds(name: str, facts: Facts, machine: Machine) -> float:
    """Seconds of one call of probe *name*."""
    if name in SIMPLE_S:
        return SIMPLE_S[name]
    return _FORMULAS[name](facts, machine)


def _link(facts: Facts, machine: Machine) -> float:
    way = facts["way"]
    speed = PUT_SHARE[way] * machine.dimensions[0].bandwidth_bytes_per_second
    if way in PROGRAM_BYTES_PER_SECOND:
        speed = min(speed, facts["programs"] * PROGRAM_BYTES_PER_SECOND[way])
    return CALL_S[way] + float(facts["bytes"] / speed)


def _expected_nccl(facts: Facts, machine: Machine) -> float:
    name = facts["collective"]
    speed = NCCL_SHARE[name] * machine.dimensions[0].bandwidth_bytes_per_second
    return NCCL_S[name] + float(facts["wire_bytes"] / speed)


def _expected_memory(share: float) -> Callable[[Facts, Machine], float]:
    return lambda facts, machine: SHORT_S + float(facts["bytes"] / (share * machine.device.memory_bytes_per_second))


def _expected_gemm(facts: Facts, machine: Machine) -> float:
    peak = machine.device.matrix_flops_per_second["bfloat16"]
    return 2 * SHORT_S + float(facts["flops"] / (GEMM_SHARE[facts["by"]] * peak))


_FORMULAS: dict[str, Callable[[Facts, Machine], float]] = {
    "put": _link,
    "nccl": _expected_nccl,
    "read": _expected_memory(READ_SHARE),
    "copy": _expected_memory(COPY_SHARE),
    "gather": _expected_memory(GATHER_SHARE),
    "gemv": _expected_memory(GEMV_SHARE),
    "gemm": _expected_gemm,
}


# Computation alone: our kernels and cuBLAS on the shapes of the operators, operands rotated so that they are cold.


def ours(site: ProbeSite, of: Problem, schedule: Schedule, sets: list[Operands]) -> list[Call]:
    """The fused kernel of *of* and *schedule*, alone: nothing is sent or awaited."""
    plan = expand(of, schedule)
    start = shared_bytes(plan)
    _check_room(site, plan, start)
    context = Context(site.heap, plan, site.rank, site.device, start=start, limit_s=site.limit_ns / 1e9)
    launchers = [fused.kernel(context, operands, alone=True).launcher() for operands in sets]
    return [partial(_launch, context, launcher) for launcher in launchers]


def _launch(context: Context, launch: Call) -> None:
    """*context* owns memory of which the kernel has the address only, and a graph empties the allocator's cache."""
    launch()


def _check_room(site: ProbeSite, plan: Plan, start: int) -> None:
    """A trial's places lie where peers' bytes land, and nobody sends any meanwhile."""
    needs = start + private_bytes(plan.problem, len(plan.tiles[site.rank]))
    if needs > site.data_bytes:
        raise Refusal(
            f"{plan.problem.operator} needs {bytes_text(needs)} of the heap, but the probes have "
            f"{bytes_text(site.data_bytes)}. Accepted: a smaller shape."
        )


def library(site: ProbeSite, of: Problem, sets: list[Operands]) -> list[Call]:
    """cuBLAS on the same operands."""
    extent = OPERATORS[of.operator].extent(of)
    out = torch.empty(extent.rows, extent.columns, dtype=torch.bfloat16, device=site.device)

    def one(left: torch.Tensor, right: torch.Tensor) -> Call:
        return lambda: _multiply(left, right, out)

    return [one(*operands.values()) for operands in sets]


def _multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(left, right, out=out)


def lookup_bytes(of: Problem) -> int:
    """Bytes of the rows that a pooled lookup reads."""
    return prod(of[key] for key in ("batch", "tables_per_rank", "pooling", "dim")) * of.itemsize


# Bytes of a GPU's own memory: read, copied, and gathered as a pooled lookup gathers them.

PIECE = 2048
"""int64 words of a piece, 16 KiB: 8 loads of 16 bytes by each of 128 threads."""
BLOCKS_PER_SM = 8
SETS_MOST = 64


def reads(pool: Tensor, num_bytes: int, processors: int) -> list[Call]:
    """Calls that read *num_bytes* of *pool* (int64) each, other ones in turns."""
    pieces, programs = num_bytes // 8 // PIECE, BLOCKS_PER_SM * processors
    out = torch.zeros(programs, dtype=torch.int64, device=pool.device)
    grid = (min(pieces, programs),)

    def one(part: Tensor) -> Call:
        return lambda: read[grid](part, out, pieces, PIECE=PIECE, num_warps=4)

    return [one(part) for part in _parts(pool, num_bytes)]


def memory_copies(pool: Tensor, num_bytes: int, processors: int, *, own: bool) -> list[Call]:
    """Calls that copy *num_bytes* inside *pool*, by torch or by a kernel of our *own*."""
    half = pool.numel() // 2
    pairs = zip(_parts(pool[:half], num_bytes), _parts(pool[half:], num_bytes), strict=True)
    pieces = num_bytes // 8 // PIECE
    grid = (min(pieces, BLOCKS_PER_SM * processors),)

    def one(source: Tensor, target: Tensor) -> Call:
        if own:
            return lambda: copy[grid](source, target, pieces, PIECE=PIECE, num_warps=4)
        return lambda: _copy(source, target)

    return [one(*pair) for pair in pairs]


def _copy(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


def _parts(pool: Tensor, num_bytes: int) -> list[Tensor]:
    words = num_bytes // 8
    count = max(1, min(SETS_MOST, pool.numel() // words))
    return [pool[number * words : (number + 1) * words] for number in range(count)]


def gathers(site: ProbeSite, problem: Problem, operands: Operands, rows: int) -> list[Call]:
    """One call that reads every row that the pooled lookup of *problem* reads, *rows* of them by each program."""
    tables, indices = operands["tables"], operands["indices"].view(-1)
    programs = -(-indices.numel() // rows)
    out = torch.zeros(programs, dtype=torch.float32, device=tables.device)
    return [
        lambda: gather[(programs,)](
            tables, indices, out, indices.numel(), problem["rows"], site.limit_ns, site.error,
            ROWS=rows, DIM=problem["dim"], WIDTH=above(problem["dim"]), NUM_TABLES=problem["tables_per_rank"],
            POOLING=problem["pooling"], num_warps=4,
        )
    ]  # fmt: skip


# Bytes to peers: stores by all threads, bulk copies, copy engines; to all peers in turn or to the next rank only.

PIECE_BYTES = 16 * 1024
ROW = 128
"""bfloat16 values of a row of a piece: what the bulk copy engine swizzles at once, twice."""
PIECE_ROWS = PIECE_BYTES // 2 // ROW

"""Places that calls write in turns."""
WARPS = 4


def peers(world: int, pattern: str) -> int:
    """How many peers each rank sends to: `all_to_all` or `ring`."""
    return world - 1 if pattern == "all_to_all" else 1


def pieces_per_peer(count: int, num_bytes: int) -> int:
    """Pieces for each of *count* peers when about *num_bytes* leave each rank."""
    return max(1, num_bytes // count // PIECE_BYTES)


def puts(site: ProbeSite, way: str, pattern: str, num_bytes: int, programs: int) -> list[Call]:
    """Calls that put about *num_bytes* of each rank into peers' memory by *way* = registers or tma, all ranks at once.

    A call ends when all bytes for this rank are here. Calls write other places in turns, and read others.
    """
    count = peers(site.world, pattern)
    each = pieces_per_peer(count, num_bytes)
    items = each * count
    sets = min(SETS_MOST, max(1, site.source.nbytes // PIECE_BYTES // each))
    ends = (site.addresses("done"), site.epoch, site.arrived, site.error, site.limit_ns, site.rank)
    grid, options = (min(items, programs),), {"WORLD": site.world, "PEERS": count, "num_warps": WARPS}
    if way == "registers":
        slots = site.slots()

        def registers(first: int) -> Call:
            return lambda: put[grid](site.source, slots, items, first, *ends, PIECE=PIECE_BYTES // 4, **options)

        return [registers(number * each) for number in range(sets)]
    source = TensorDescriptor.from_tensor(_rows(site.source), [PIECE_ROWS, ROW])
    landings = descriptors([_rows(site.slot(peer)) for peer in range(site.world)], PIECE_ROWS, ROW)

    def bulk(first: int) -> Call:
        return lambda: put_bulk[grid](source, *landings, items, first, *ends, ROWS=PIECE_ROWS, **options)

    return [bulk(number * each) for number in range(sets)]


def _rows(words: torch.Tensor) -> torch.Tensor:
    return words.view(torch.bfloat16).view(-1, ROW)


def copies(site: ProbeSite, pattern: str, num_bytes: int, streams: int) -> list[Call]:
    """Calls in which copy engines push about *num_bytes* of each rank, between two meetings of all ranks.

    Each peer's share is cut over *streams* streams.
    """
    each = pieces_per_peer(peers(site.world, pattern), num_bytes) * PIECE_BYTES // 4
    sets = min(SETS_MOST, max(1, site.source.numel() // each))
    meeting = StreamBarrier(site)
    to = [(site.rank + 1 + near) % site.world for near in range(peers(site.world, pattern))]
    lanes = [torch.cuda.Stream(site.device) for _ in range(len(to) * streams + 1)]

    def pushed(number: int) -> Call:
        part = slice(number * each, (number + 1) * each)
        pairs = [
            pair
            for peer in to
            for pair in zip(
                site.slot(peer)[part].chunk(streams), site.source[part].chunk(streams), strict=True
            )
        ]  # fmt: skip
        return lambda: _pushed(meeting, pairs, lanes, site.device)

    return [pushed(number) for number in range(sets)]


def _pushed(
    meeting: StreamBarrier,
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    lanes: Sequence[torch.cuda.Stream],
    device: torch.device,
) -> None:
    meeting()
    at_once(pairs, lanes, device)
    meeting()


# What costs time without moving much: a signal there and back, packets, a meeting, a node of a graph, a launch.

ROUNDS = 100
"""There and back, in one call of a ping-pong."""


def signals(site: ProbeSite, rounds: int = ROUNDS) -> list[Call]:
    """Pairs of ranks signal each other, all pairs at once; half a round is one signal's way."""
    partner = site.partner
    if partner is None:
        return [lambda: None]
    at = site.addresses("ping")
    return [
        lambda: ping_pong[(1,)](
            at, site.rounds[:1], site.error, site.limit_ns, site.rank, partner, rounds, num_warps=4
        )
    ]  # fmt: skip


def packets(site: ProbeSite, values: int, rounds: int = ROUNDS) -> list[Call]:
    """As `signals`, with *values* packets each way."""
    partner = site.partner
    if partner is None:
        return [lambda: None]
    places, sent = (site.of(site.rank, "packets"), site.of(partner, "packets")), torch.randn(values, device=site.device)
    return [
        lambda: ping_pong_packets[(1,)](
            places, site.rounds[1:], site.error, site.limit_ns, site.rank, partner, rounds, sent, VALUES=values,
            num_warps=min(4, max(1, values // 32)),
        )
    ]  # fmt: skip


def meetings(site: ProbeSite) -> list[Call]:
    """All ranks meet, by a kernel of one block."""
    return [StreamBarrier(site)]


def nodes(site: ProbeSite) -> list[Call]:
    """A kernel of one block that stores one word."""
    word = torch.zeros(1, dtype=torch.int64, device=site.device)
    return [lambda: write_now[(1,)](word, num_warps=1)]


def clock_step(site: ProbeSite) -> list[float]:
    """Seconds of the smallest step of the GPU's clock."""
    return [timing.measured(site.device).tick_s]


# NCCL's collectives as it chooses to run them: the table that estimates of library calls are read from.

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def wire_bytes(name: str, num_bytes: float, world: int) -> float:
    """Bytes that leave each rank at least; *num_bytes*: the larger of a call's two buffers, as nccl-tests count."""
    return (2 if name == "all_reduce" else 1) * num_bytes * (world - 1) / world


def calls(site: ProbeSite, name: str, num_bytes: int, group: Any) -> list[Call]:
    """Calls of one collective over buffers of its own, random; *num_bytes* as in `wire_bytes`."""
    dist: Any = torch.distributed
    count = num_bytes // 2 // site.world * site.world
    large = torch.randn(count, device=site.device).to(torch.bfloat16)
    if name == "all_reduce":
        # the largest and not the sum, which would be infinite after a hundred calls in place
        return [lambda: dist.all_reduce(large, dist.ReduceOp.MAX, group=group)]
    if name == "all_to_all":
        received = torch.empty_like(large)
        return [lambda: dist.all_to_all_single(received, large, group=group)]
    small = torch.randn(count // site.world, device=site.device).to(torch.bfloat16)
    if name == "all_gather":
        return [lambda: dist.all_gather_into_tensor(large, small, group=group)]
    return [lambda: dist.reduce_scatter_tensor(small, large, group=group)]


# The list of probes, the most wanted first: each states its facts, its expected time, and how it is prepared.

KIB, MIB = 1 << 10, 1 << 20
DTYPE = "bfloat16"
LINK_BYTES = tuple(16 * KIB << 2 * step for step in range(8))
"""16 KiB to 256 MiB leave each rank."""
PROGRAMS_BYTES, PROGRAMS = 64 * MIB, (4, 8, 16, 32, 64)
ALL_PROGRAMS = {"registers": 4, "tma": 2}
"""Blocks per SM where all put: as many as are resident."""
STREAMS = (1, 2)
NCCL_BYTES = (*(8 * KIB << 2 * step for step in range(6)), 64 * MIB, 256 * MIB)
READ_BYTES = (16 * MIB, 128 * MIB, 512 * MIB)
COPY_BYTES = (64 * KIB, MIB, 16 * MIB, 128 * MIB, 512 * MIB)
PACKETS = (32, 1024)
GEMM_SHAPES = ((8192, 4096, 1792), (8192, 7168, 2048), (4096, 4096, 14336), (16384, 4096, 3584), (2048, 4096, 1792))
"""m, n, k of the issue that asked for these kernels."""
WAVE_TILES = (12, 11)
"""Rows and columns of tiles that are one wave of 132 SMs."""
WAVE_DEPTHS = (512, 1024, 2048, 4096, 8192)
LOOKUPS = ((16, 4096, 16, 128), (16, 4096, 64, 128), (64, 2048, 32, 128), (16, 8192, 4, 256))
"""Tables of a rank, global batch, lookups of a sample and table, width."""
TABLE_ROWS = 100_000
GATHER_ROWS = (32, 64)
"""Rows that a program of the read-only gather has under way; the faster one is the bound."""
GEMV_SHAPES = ((4096, 4096), (8192, 8192), (8192, 28672), (16384, 16384))
TOKENS = (1, 4, 8)

Timed = Callable[[], list[float]]
Make = Callable[[ProbeRank], Sequence[Call]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to be measured by all ranks at once."""

    name: str
    facts: dict[str, Any]
    """What it is a measurement of, as plain values."""
    expected_s: float
    prepare: Callable[[ProbeRank], Timed]
    """Compiles and takes memory, without waiting for anybody; what it returns is called by all ranks together."""
    share: float = 1.0
    """Of a call that is one of what is measured."""


def suite(world: int, processors: int, machine: Machine) -> Iterator[Probe]:
    """All probes of *world* ranks, the same and in the same order on every rank."""
    yield from _fixed_costs(world, machine)
    if world > 1:
        yield from _puts(world, processors, machine)
    yield from _memory(machine)
    if world > 1:
        yield from _nccl(world, machine)
    yield from _gemms(world, machine)
    yield from _lookups(world, machine)
    yield from _gemvs(world, machine)


def _timed(machine: Machine, name: str, facts: dict[str, Any], make: Make, share: float = 1.0) -> Probe:
    """A probe whose calls are captured."""
    expected = expected_seconds(name, facts, machine)

    def prepare(ground: ProbeRank) -> Timed:
        calls = make(ground)
        return lambda: ground.blocks(calls, expected / share)

    return Probe(name, facts, expected, prepare, share)


def _fixed_costs(world: int, machine: Machine) -> Iterator[Probe]:
    yield _timed(machine, "graph_node", {}, lambda ground: nodes(ground.site))
    eager_s = expected_seconds("eager_launch", {}, machine)

    def eager(ground: ProbeRank) -> Timed:
        calls = nodes(ground.site)
        return lambda: ground.blocks(calls, eager_s, captured=False)

    yield Probe("eager_launch", {}, eager_s, eager)
    yield Probe("clock_step", {}, expected_seconds("clock_step", {}, machine), _clock_step)
    if world == 1:
        return
    yield _timed(machine, "meeting", {}, lambda ground: meetings(ground.site))
    half = 0.5 / ROUNDS
    yield _timed(machine, "signal", {}, lambda ground: signals(ground.site), half)
    for count in PACKETS:
        yield _timed(machine, "packets", {"packets": count}, _packets(count), half)


def _packets(count: int) -> Make:
    return lambda ground: packets(ground.site, count)


def _clock_step(ground: ProbeRank) -> Timed:
    return lambda: clock_step(ground.site)


def _puts(world: int, processors: int, machine: Machine) -> Iterator[Probe]:
    for num_bytes in dict.fromkeys(_rounded(world, "all_to_all", size) for size in LINK_BYTES):
        for way, blocks in ALL_PROGRAMS.items():
            yield _put(machine, world, way, "all_to_all", num_bytes, blocks * processors)
        yield _copy_engine(machine, world, "all_to_all", num_bytes, 1)
    for programs in (*PROGRAMS, processors):
        for way in ALL_PROGRAMS:
            yield _put(machine, world, way, "all_to_all", PROGRAMS_BYTES, programs)
    for streams in STREAMS[1:]:
        yield _copy_engine(machine, world, "all_to_all", PROGRAMS_BYTES, streams)
    if world > 2:
        for num_bytes in LINK_BYTES[3::2]:
            for way, blocks in ALL_PROGRAMS.items():
                yield _put(machine, world, way, "ring", num_bytes, blocks * processors)
            yield _copy_engine(machine, world, "ring", num_bytes, 1)


def _put(machine: Machine, world: int, way: str, pattern: str, num_bytes: int, programs: int) -> Probe:
    sent = _rounded(world, pattern, num_bytes)
    facts = {"way": way, "pattern": pattern, "bytes": sent, "programs": programs}
    return _timed(machine, "put", facts, lambda ground: puts(ground.site, way, pattern, num_bytes, programs))


def _copy_engine(machine: Machine, world: int, pattern: str, num_bytes: int, streams: int) -> Probe:
    sent = _rounded(world, pattern, num_bytes)
    facts = {"way": "copy_engine", "pattern": pattern, "bytes": sent, "streams": streams}
    return _timed(machine, "put", facts, lambda ground: copies(ground.site, pattern, num_bytes, streams))


def _rounded(world: int, pattern: str, num_bytes: int) -> int:
    """Bytes that really leave: whole pieces for every peer."""
    count = peers(world, pattern)
    return pieces_per_peer(count, num_bytes) * count * PIECE_BYTES


def _memory(machine: Machine) -> Iterator[Probe]:
    for size in READ_BYTES:
        yield _timed(machine, "read", {"bytes": size}, _reads(size))
    for size in COPY_BYTES:
        for by in ("library", "ours"):
            yield _timed(machine, "copy", {"bytes": 2 * size, "by": by}, _copies(size, by == "ours"))


def _reads(num_bytes: int) -> Make:
    return lambda ground: reads(ground.pool, num_bytes, ground.processors)


def _copies(num_bytes: int, own: bool) -> Make:
    return lambda ground: memory_copies(ground.pool, num_bytes, ground.processors, own=own)


def _nccl(world: int, machine: Machine) -> Iterator[Probe]:
    for size in NCCL_BYTES:
        for name in NAMES:
            facts = {"collective": name, "bytes": size, "wire_bytes": wire_bytes(name, size, world)}
            yield _timed(machine, "nccl", facts, _collectives(name, size))


def _collectives(name: str, num_bytes: int) -> Make:
    return lambda ground: calls(ground.site, name, num_bytes, _nccl_of(ground))


def _nccl_of(ground: ProbeRank) -> Any:
    return ground.group and ground.group.nccl


def _gemms(world: int, machine: Machine) -> Iterator[Probe]:
    rows, columns = (128 * WAVE_TILES[0], 256 * WAVE_TILES[1])
    for waves in (1, 2):
        for depth in WAVE_DEPTHS:
            of = _gemm(world, waves * rows, columns, depth)
            yield _computed(machine, "gemm", of, "ours", {"waves": waves})
    for m, n, k in GEMM_SHAPES:
        of = _gemm(world, m, n, k)
        for by in ("library", "ours"):
            yield _computed(machine, "gemm", of, by, {})


def _gemm(world: int, m: int, n: int, k: int) -> Problem:
    return problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, dtype=DTYPE, world=world)


def _gemvs(world: int, machine: Machine) -> Iterator[Probe]:
    """k is as it is on four ranks, so that worlds can be compared."""
    for n, k in GEMV_SHAPES:
        for tokens in TOKENS:
            sizes = {"n": n, "k": k // 4 * world, "tokens": tokens}
            of = problem("gemv_all_reduce", sizes, dtype=DTYPE, world=world)
            for by in ("library", "ours"):
                yield _computed(machine, "gemv", of, by, {})


def _lookups(world: int, machine: Machine) -> Iterator[Probe]:
    for dtype, shapes in (("float32", LOOKUPS), (DTYPE, LOOKUPS[:1])):
        for tables, batch, pooling, dim in shapes:
            for indices in ("uniform", "power_law"):
                sizes = {"tables_per_rank": tables, "rows": TABLE_ROWS, "dim": dim, "batch": batch, "pooling": pooling,
                         "indices": indices}  # fmt: skip
                of = problem("embedding_all_to_all", sizes, dtype=dtype, world=world)
                for rows in GATHER_ROWS:
                    facts = {"by": "read_only", "rows_under_way": rows, **_of(of), "bytes": lookup_bytes(of)}
                    yield _timed(machine, "gather", facts, _gathers(of, rows))
                yield _computed(machine, "gather", of, "ours", {})


def _gathers(of: Problem, rows: int) -> Make:
    return lambda ground: gathers(ground.site, of, _operands(ground, of)[0], rows)


def _of(of: Problem) -> dict[str, Any]:
    return {"operator": of.operator, "shape": dict(of.shape), "dtype": of.dtype}


def _computed(machine: Machine, name: str, of: Problem, by: str, more: dict[str, Any]) -> Probe:
    """The computation of *of* alone, by our kernel as it is scheduled by default or by cuBLAS."""
    stated = OPERATORS[of.operator]
    chosen = schedule(of, "fused", {}, machine, parse("nvlink"))
    facts = {"by": by, **_of(of), "flops": stated.flops(of), "bytes": stated.memory_bytes(of), **more}
    if by == "ours":
        facts["axes"] = dict(chosen.axes)

    def make(ground: ProbeRank) -> Sequence[Call]:
        sets = _operands(ground, of)
        if by == "library":
            return library(ground.site, of, sets)
        return ours(ground.site, of, chosen, sets)

    return _timed(machine, name, facts, make)


def _operands(ground: ProbeRank, of: Problem) -> list[Operands]:
    if ground.held is None or ground.held[0] != of:
        ground.held = None  # the old ones go before the new ones come
        ground.held = (of, operand_sets(of, ground.seat.rank, ground.device))
    return ground.held[1]
