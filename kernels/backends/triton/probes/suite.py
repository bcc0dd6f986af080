"""All probes, the most important first: each has its facts, its expected time, and a function that prepares it."""

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
from kernels.backends.triton.launch import Call, descriptors
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
from kernels.occupancy import BULK
from kernels.operators import OPERATORS, problem
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import Refusal, Schedule
from kernels.schemes import expand, schedule
from kernels.schemes.base import above
from kernels.units import bytes_text

# The memory of probes: signals and landing buffers in symmetric memory, random data to send; on GPUs or interpreted.

PACKETS_MOST = 1024
"""Most packets of one ping-pong."""
LIMIT_S = 5.0
"""Seconds after which a wait inside a probe's kernel gives up."""


def _regions(world: int, slot_bytes: int) -> dict[str, tuple[Region, torch.dtype]]:
    """Regions of the landing buffers, and behind them, out of reach of trials' data, of counters and packets."""
    landing = Region(0, (world, slot_bytes // 4))
    counted = place({"meet": (world,), "done": (world,), "ping": (1,)}, 4, aligned(world * slot_bytes))
    packets = Region(max(aligned(each.offset + 4 * prod(each.shape)) for each in counted.values()), (PACKETS_MOST,))
    regions = {name: (region, torch.int32) for name, region in ({"landing": landing} | counted).items()}
    return regions | {"packets": (packets, torch.int64)}


class ProbeSite(RankEndpoint):
    """One rank's memory for probes. Each peer may send *slot_bytes* here; the heap needs `heap_bytes`."""

    def __init__(self, heap: SymmetricHeap, rank: int, world: int, slot_bytes: int, device: torch.device) -> None:
        super().__init__(heap, rank, world, device, limit_s=LIMIT_S)
        self.data_bytes = world * slot_bytes
        """Bytes that trials may use while no probe sends."""
        self.places |= _regions(world, slot_bytes)
        for name in ("meet", "done", "ping", "packets"):
            self.of(rank, name).zero_()
        self.rounds = torch.zeros(2, dtype=torch.int32, device=device)
        """Total number of round trips so far, of signals and of packets."""
        self.source = torch.empty(slot_bytes // 4, dtype=torch.int32, device=device).random_()

    def rising(self) -> list[torch.Tensor]:
        """Also the round trips."""
        return [*super().rising(), self.rounds, self.of(self.rank, "ping")]

    @staticmethod
    def heap_bytes(world: int, slot_bytes: int) -> int:
        """Bytes of the heap that a site needs."""
        region, dtype = _regions(world, slot_bytes)["packets"]
        return region.offset + dtype.itemsize * prod(region.shape)

    @property
    def partner(self) -> int | None:
        """The other rank of a ping-pong; None for the last rank of an odd world."""
        partner = self.rank ^ 1
        return partner if partner < self.world else None

    def slot(self, peer: int) -> torch.Tensor:
        """int32: where this rank's data land on *peer*."""
        return self.of(peer, "landing")[self.rank]

    def slots(self) -> torch.Tensor:
        """int64 [W]: addresses of `slot` by rank."""
        addresses = [self.slot(peer).data_ptr() for peer in range(self.world)]
        return torch.tensor(addresses, dtype=torch.int64, device=self.device)

    def title(self) -> str:
        return "a probe"


# A GPU rank that times probes together with all others: captured calls, five blocks of replays.

SLOT_BYTES = 1 << 28
"""Bytes of the largest message between two ranks."""
POOL_BYTES = 1 << 31
"""Bytes of local memory that probes read and copy in rotation: forty times the L2."""
GRAPH_SECONDS, EAGER_SECONDS = 2e-3, 4e-3
"""Approximate seconds of a replay, by the expected time of a call."""
CALLS_MOST = 200
BLOCKS, REPLAYS, WARM = 5, 3, 2
"""Blocks of a probe, replays per block, and warm-up replays before the first block."""


class ProbeRank:
    """One rank of all probes: process group, heap, stream and memory, on the one GPU that its process sees."""

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
        """Operands of the last problem, which several consecutive probes use."""
        self.barrier()

    def blocks(self, calls: Sequence[Call], expected_s: float, *, captured: bool = True) -> list[float]:
        """Seconds of one call in each of BLOCKS blocks, on this rank's clock from the common start.

        The replay rotates through *calls* for about GRAPH_SECONDS by *expected_s*; `Hang` reports an expired wait.
        """
        self.barrier()  # what another stream prepared has finished
        with torch.cuda.stream(
            self.stream
        ):  # compiles, and lets libraries set up what they cannot set up during a capture
            for call in calls[:2]:
                call()
        self.barrier()
        self._check()
        count = min(CALLS_MOST, max(3, round((GRAPH_SECONDS if captured else EAGER_SECONDS) / expected_s)))
        replay = GraphReplay(self.site, [calls[n % len(calls)] for n in range(count)], self.stream, captured=captured)
        for _ in range(WARM):
            self._replayed(replay)
        block_seconds = [median(self._replayed(replay) for _ in range(REPLAYS)) for _ in range(BLOCKS)]
        self._check()
        return block_seconds

    def _replayed(self, replay: GraphReplay) -> float:
        self.barrier()
        return replay.seconds()

    def _check(self) -> None:
        if message := self.site.failure():
            raise Hang(message)

    def barrier(self) -> None:
        """Waits on the host until all ranks are here and their GPUs are idle."""
        torch.cuda.synchronize(self.device)
        if self.group is not None:
            self.group.barrier()

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank."""
        return [list(values)] if self.group is None else self.group.exchange(values)

    def close(self) -> None:
        """Leaves the process group."""
        if self.group is not None:
            self.group.close()


# Expected times of probes: datasheet numbers times the shares that earlier measurements reached.

Facts = Mapping[str, Any]

PUT_SHARE = {"registers": 0.76, "tma": 0.80, "copy_engine": 0.86}
"""Reached share of the link's bandwidth: 386 of 450 GB/s by copy engines in a ring of 4 H200s; stores reached 310
during a GEMM."""
PROGRAM_BYTES_PER_SECOND = {"registers": 8e9, "tma": 2.5e10}
"""Bytes per second that one thread block puts: 16 KiB per load latency of 0.7 µs, or four such pieces in flight, and
twice that time for the stores."""
CALL_S = {"registers": 5e-6, "tma": 6e-6, "copy_engine": 1.2e-5}
"""Seconds of an almost empty put: a graph node, two link latencies and a fence; copies: two barriers and a launch."""
NCCL_S = {"all_reduce": 1.0e-5, "all_gather": 1.2e-5, "reduce_scatter": 1.2e-5, "all_to_all": 1.4e-5}
NCCL_SHARE = {"all_reduce": 0.72, "all_gather": 0.75, "reduce_scatter": 0.75, "all_to_all": 0.58}
"""Reached shares of the link's bandwidth on 4 H200s with NCCL 2.28.9 without multicast: all-to-all of 64 MB at
262 GB/s, all-reduce of 8 KB in 10.5 µs."""
READ_SHARE, COPY_SHARE, GATHER_SHARE = 0.92, 0.88, 0.7
"""Reached shares of the HBM peak; random rows of 256 bytes reached 2.6 TB/s with our lookup."""
GEMM_SHARE = {"ours": 0.71, "library": 0.74}
GEMV_SHARE = 0.8
"""Reached shares of peaks: GEMMs of 8192 x 8192 x 8192 ran at 737 and 750 TFLOP/s; a GEMV of 33 MB took 10.9 µs, of
which 2.5 µs are fixed."""
NODE_S, SHORT_S = 1.5e-6, 2.5e-6
SIMPLE_S = {
    "graph_node": NODE_S, "eager_launch": 2e-5, "meeting": 4e-6, "signal": 1.2e-6, "packets": 0.9e-6,
    "clock_step": 3.2e-8,
}  # fmt: skip
"""Expected seconds of probes without a size. Launches from a virtual machine are slow; a signal takes a fence, 0.6 µs
on the link, and a poll."""


def expected_seconds(name: str, facts: Facts, machine: Machine) -> float:
    """Expected seconds of one call of probe *name*."""
    if name in SIMPLE_S:
        return SIMPLE_S[name]
    return _FORMULAS[name](facts, machine)


def _put_seconds(facts: Facts, machine: Machine) -> float:
    way = facts["way"]
    speed = PUT_SHARE[way] * machine.dimensions[0].bandwidth_bytes_per_second
    if way in PROGRAM_BYTES_PER_SECOND:
        speed = min(speed, facts["programs"] * PROGRAM_BYTES_PER_SECOND[way])
    return CALL_S[way] + float(facts["bytes"] / speed)


def _nccl_seconds(facts: Facts, machine: Machine) -> float:
    name = facts["collective"]
    speed = NCCL_SHARE[name] * machine.dimensions[0].bandwidth_bytes_per_second
    return NCCL_S[name] + float(facts["wire_bytes"] / speed)


def _memory_seconds(share: float) -> Callable[[Facts, Machine], float]:
    return lambda facts, machine: SHORT_S + float(facts["bytes"] / (share * machine.device.memory_bytes_per_second))


def _gemm_seconds(facts: Facts, machine: Machine) -> float:
    peak = machine.device.matrix_flops_per_second["bfloat16"]
    return 2 * SHORT_S + float(facts["flops"] / (GEMM_SHARE[facts["by"]] * peak))


_FORMULAS: dict[str, Callable[[Facts, Machine], float]] = {
    "put": _put_seconds,
    "nccl": _nccl_seconds,
    "read": _memory_seconds(READ_SHARE),
    "copy": _memory_seconds(COPY_SHARE),
    "gather": _memory_seconds(GATHER_SHARE),
    "gemv": _memory_seconds(GEMV_SHARE),
    "gemm": _gemm_seconds,
}


# Computation alone: our kernels and cuBLAS on operator shapes, with rotated operands so that the L2 is cold.


def our_calls(site: ProbeSite, of: Problem, schedule: Schedule, sets: list[Operands]) -> list[Call]:
    """Calls of the fused kernel of *of* and *schedule* without communication."""
    plan = expand(of, schedule)
    start = shared_bytes(plan)
    _check_room(site, plan, start)
    context = Context(site.heap, plan, site.rank, site.device, start=start, limit_s=site.limit_ns / 1e9)
    launchers = [fused.kernel(context, operands, alone=True).launcher() for operands in sets]
    return [partial(_launch, context, launcher) for launcher in launchers]


def _launch(context: Context, launch: Call) -> None:
    """Launches the kernel and keeps *context* alive, whose memory the kernel only knows by address."""
    launch()


def _check_room(site: ProbeSite, plan: Plan, start: int) -> None:
    """Raises Refusal if a trial needs more than the landing buffers, which no peer writes meanwhile."""
    needs = start + private_bytes(plan, site.rank)
    if needs > site.data_bytes:
        raise Refusal(
            f"{plan.problem.operator} needs {bytes_text(needs)} of the heap, but the probes have "
            f"{bytes_text(site.data_bytes)}. Accepted: a smaller shape."
        )


def library_calls(site: ProbeSite, of: Problem, sets: list[Operands]) -> list[Call]:
    """Calls of cuBLAS on the same operands."""
    extent = OPERATORS[of.operator].extent(of)
    out = torch.empty(extent.rows, extent.columns, dtype=torch.bfloat16, device=site.device)

    def product(left: torch.Tensor, right: torch.Tensor) -> Call:
        return lambda: _multiply(left, right, out)

    return [product(*operands.values()) for operands in sets]


def _multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(left, right, out=out)


def lookup_bytes(of: Problem) -> int:
    """Bytes of the rows that a pooled lookup reads."""
    return prod(of[key] for key in ("batch", "tables_per_rank", "pooling", "dim")) * of.itemsize


# Local memory: read, copied, and gathered as a pooled lookup gathers it.

PIECE_WORDS = 2048
"""int64 values of a piece of local memory, 16 KiB: 8 loads of 16 bytes by each of 128 threads."""
BLOCKS_PER_SM = 8
SETS_MOST = 64
"""Largest number of places that calls rotate through."""


def reads(pool: Tensor, num_bytes: int, processors: int) -> list[Call]:
    """Calls that read *num_bytes* of *pool* (int64) each, at rotating places."""
    pieces, programs = num_bytes // 8 // PIECE_WORDS, BLOCKS_PER_SM * processors
    out = torch.zeros(programs, dtype=torch.int64, device=pool.device)
    grid = (min(pieces, programs),)

    def read_part(part: Tensor) -> Call:
        return lambda: read[grid](part, out, pieces, PIECE=PIECE_WORDS, num_warps=4)

    return [read_part(part) for part in _parts(pool, num_bytes)]


def local_copies(pool: Tensor, num_bytes: int, processors: int, *, by_kernel: bool) -> list[Call]:
    """Calls that copy *num_bytes* inside *pool*, with our kernel or with torch."""
    half = pool.numel() // 2
    pairs = zip(_parts(pool[:half], num_bytes), _parts(pool[half:], num_bytes), strict=True)
    pieces = num_bytes // 8 // PIECE_WORDS
    grid = (min(pieces, BLOCKS_PER_SM * processors),)

    def copied(source: Tensor, target: Tensor) -> Call:
        if by_kernel:
            return lambda: copy[grid](source, target, pieces, PIECE=PIECE_WORDS, num_warps=4)
        return lambda: _copy(source, target)

    return [copied(*pair) for pair in pairs]


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


# Puts to peers: by stores of all threads, bulk copies or copy engines; to all peers or only to the next rank.

PIECE_BYTES = 16 * 1024
ROW_VALUES = 128
"""bfloat16 values of a row of a piece: twice the width that the bulk copy engine swizzles."""
PIECE_ROWS = PIECE_BYTES // 2 // ROW_VALUES
WARPS = 4


def peers(world: int, pattern: str) -> int:
    """Number of peers that each rank sends to in *pattern* all_to_all or ring."""
    return world - 1 if pattern == "all_to_all" else 1


def pieces_per_peer(count: int, num_bytes: int) -> int:
    """Pieces per peer if each rank sends about *num_bytes* to *count* peers."""
    return max(1, num_bytes // count // PIECE_BYTES)


def puts(site: ProbeSite, way: str, pattern: str, num_bytes: int, programs: int) -> list[Call]:
    """Calls in which each rank puts about *num_bytes* into peers' memory, with *way* = registers or tma.

    A call ends when all data for this rank have arrived. Calls rotate through the places that they read and write.
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
    if not site.bulk:
        raise Refusal(
            f"way = {way} cannot be probed here. The bulk copy engine came with sm_{BULK}, and this GPU is "
            f"sm_{site.architecture}: {site.architecture} < {BULK}. Accepted: registers or copy_engine."
        )
    source = TensorDescriptor.from_tensor(_rows(site.source), [PIECE_ROWS, ROW_VALUES])
    landings = descriptors([_rows(site.slot(peer)) for peer in range(site.world)], PIECE_ROWS, ROW_VALUES)

    def bulk(first: int) -> Call:
        return lambda: put_bulk[grid](source, *landings, items, first, *ends, ROWS=PIECE_ROWS, **options)

    return [bulk(number * each) for number in range(sets)]


def _rows(words: torch.Tensor) -> torch.Tensor:
    return words.view(torch.bfloat16).view(-1, ROW_VALUES)


def engine_puts(site: ProbeSite, pattern: str, num_bytes: int, streams: int) -> list[Call]:
    """Calls in which copy engines push about *num_bytes* of each rank, between two barriers of all ranks.

    Each peer's share is split across *streams* streams.
    """
    each = pieces_per_peer(peers(site.world, pattern), num_bytes) * PIECE_BYTES // 4
    sets = min(SETS_MOST, max(1, site.source.numel() // each))
    barrier = StreamBarrier(site)
    receivers = [(site.rank + 1 + step) % site.world for step in range(peers(site.world, pattern))]
    lanes = [torch.cuda.Stream(site.device) for _ in range(len(receivers) * streams + 1)]

    def pushed(number: int) -> Call:
        part = slice(number * each, (number + 1) * each)
        pairs = [
            pair
            for peer in receivers
            for pair in zip(
                site.slot(peer)[part].chunk(streams), site.source[part].chunk(streams), strict=True
            )
        ]  # fmt: skip
        return lambda: _pushed(barrier, pairs, lanes, site.device)

    return [pushed(number) for number in range(sets)]


def _pushed(
    barrier: StreamBarrier,
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    lanes: Sequence[torch.cuda.Stream],
    device: torch.device,
) -> None:
    barrier()
    at_once(pairs, lanes, device)
    barrier()


# Latencies: a round trip of a signal or of packets, a barrier, a graph node, a launch.

ROUNDS = 100
"""Round trips in one call of a ping-pong."""


def signals(site: ProbeSite, rounds: int = ROUNDS) -> list[Call]:
    """Calls in which pairs of ranks signal each other, all pairs at once; a signal takes half a round trip."""
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
    """Calls of a barrier of all ranks, by a kernel of one thread block."""
    return [StreamBarrier(site)]


def nodes(site: ProbeSite) -> list[Call]:
    """Calls of a kernel of one thread block that stores one int64."""
    word = torch.zeros(1, dtype=torch.int64, device=site.device)
    return [lambda: write_now[(1,)](word, num_warps=1)]


def clock_step(site: ProbeSite) -> list[float]:
    """The smallest step of the GPU's clock in seconds."""
    return [timing.measured(site.device).tick_s]


# NCCL's collectives with default settings; estimates of library calls use these times.

NCCL_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def wire_bytes(name: str, num_bytes: float, world: int) -> float:
    """Fewest bytes that each rank must send; *num_bytes*: the larger buffer of a call, as nccl-tests count."""
    return (2 if name == "all_reduce" else 1) * num_bytes * (world - 1) / world


def nccl_calls(site: ProbeSite, name: str, num_bytes: int, group: Any) -> list[Call]:
    """Calls of one collective over its own buffers of random values; *num_bytes* as in `wire_bytes`."""
    dist: Any = torch.distributed
    count = num_bytes // 2 // site.world * site.world
    large = torch.randn(count, device=site.device).to(torch.bfloat16)
    if name == "all_reduce":
        # MAX: sums would overflow after a hundred calls in place
        return [lambda: dist.all_reduce(large, dist.ReduceOp.MAX, group=group)]
    if name == "all_to_all":
        received = torch.empty_like(large)
        return [lambda: dist.all_to_all_single(received, large, group=group)]
    small = torch.randn(count // site.world, device=site.device).to(torch.bfloat16)
    if name == "all_gather":
        return [lambda: dist.all_gather_into_tensor(large, small, group=group)]
    return [lambda: dist.reduce_scatter_tensor(small, large, group=group)]


# The list of probes, the most important first.

KIB, MIB = 1 << 10, 1 << 20
DTYPE = "bfloat16"
LINK_BYTES = tuple(16 * KIB << 2 * step for step in range(8))
"""Bytes that each rank sends: 16 KiB to 256 MiB."""
PROGRAMS_BYTES, PROGRAMS = 64 * MIB, (4, 8, 16, 32, 64)
ALL_PROGRAMS = {"registers": 4, "tma": 2}
"""Thread blocks per SM when all SMs put: as many as are resident."""
STREAMS = (1, 2)
NCCL_BYTES = (*(8 * KIB << 2 * step for step in range(6)), 64 * MIB, 256 * MIB)
READ_BYTES = (16 * MIB, 128 * MIB, 512 * MIB)
COPY_BYTES = (64 * KIB, MIB, 16 * MIB, 128 * MIB, 512 * MIB)
PACKETS = (32, 1024)
GEMM_SHAPES = ((8192, 4096, 1792), (8192, 7168, 2048), (4096, 4096, 14336), (16384, 4096, 3584), (2048, 4096, 1792))
"""m, n and k of the problems for which these kernels were requested."""
WAVE_TILES = (12, 11)
"""Rows and columns of tiles that form one wave of 132 SMs."""
WAVE_DEPTHS = (512, 1024, 2048, 4096, 8192)
LOOKUPS = ((16, 4096, 16, 128), (16, 4096, 64, 128), (64, 2048, 32, 128), (16, 8192, 4, 256))
"""Tables of a rank, global batch size, lookups per sample and table, vector width."""
TABLE_ROWS = 100_000
GATHER_ROWS = (32, 64)
"""Rows that a program of the read-only gather has in flight; the faster variant is the bound."""
GEMV_SHAPES = ((4096, 4096), (8192, 8192), (8192, 28672), (16384, 16384))
TOKENS = (1, 4, 8)

Timed = Callable[[], list[float]]
Make = Callable[[ProbeRank], Sequence[Call]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One measurement by all ranks at once."""

    name: str
    facts: dict[str, Any]
    """Parameters of the measurement, as plain values."""
    expected_s: float
    prepare: Callable[[ProbeRank], Timed]
    """Compiles and allocates without waiting for peers; all ranks call its result together."""
    share: float = 1.0
    """Share of a call that is one measured operation, such as half of a round trip."""


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
    """A probe whose calls run in a CUDA graph."""
    expected = expected_seconds(name, facts, machine)

    def prepare(probe_rank: ProbeRank) -> Timed:
        calls = make(probe_rank)
        return lambda: probe_rank.blocks(calls, expected / share)

    return Probe(name, facts, expected, prepare, share)


def _fixed_costs(world: int, machine: Machine) -> Iterator[Probe]:
    yield _timed(machine, "graph_node", {}, lambda probe_rank: nodes(probe_rank.site))
    eager_s = expected_seconds("eager_launch", {}, machine)

    def eager(probe_rank: ProbeRank) -> Timed:
        calls = nodes(probe_rank.site)
        return lambda: probe_rank.blocks(calls, eager_s, captured=False)

    yield Probe("eager_launch", {}, eager_s, eager)
    yield Probe("clock_step", {}, expected_seconds("clock_step", {}, machine), _clock_step)
    if world == 1:
        return
    yield _timed(machine, "meeting", {}, lambda probe_rank: meetings(probe_rank.site))
    half = 0.5 / ROUNDS
    yield _timed(machine, "signal", {}, lambda probe_rank: signals(probe_rank.site), half)
    for count in PACKETS:
        yield _timed(machine, "packets", {"packets": count}, _packets(count), half)


def _packets(count: int) -> Make:
    return lambda probe_rank: packets(probe_rank.site, count)


def _clock_step(probe_rank: ProbeRank) -> Timed:
    return lambda: clock_step(probe_rank.site)


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
    return _timed(machine, "put", facts, lambda probe_rank: puts(probe_rank.site, way, pattern, num_bytes, programs))


def _copy_engine(machine: Machine, world: int, pattern: str, num_bytes: int, streams: int) -> Probe:
    sent = _rounded(world, pattern, num_bytes)
    facts = {"way": "copy_engine", "pattern": pattern, "bytes": sent, "streams": streams}
    return _timed(machine, "put", facts, lambda probe_rank: engine_puts(probe_rank.site, pattern, num_bytes, streams))


def _rounded(world: int, pattern: str, num_bytes: int) -> int:
    """Bytes that are actually sent: whole pieces for every peer."""
    count = peers(world, pattern)
    return pieces_per_peer(count, num_bytes) * count * PIECE_BYTES


def _memory(machine: Machine) -> Iterator[Probe]:
    for size in READ_BYTES:
        yield _timed(machine, "read", {"bytes": size}, _reads(size))
    for size in COPY_BYTES:
        for by in ("library", "ours"):
            yield _timed(machine, "copy", {"bytes": 2 * size, "by": by}, _copies(size, by == "ours"))


def _reads(num_bytes: int) -> Make:
    return lambda probe_rank: reads(probe_rank.pool, num_bytes, probe_rank.processors)


def _copies(num_bytes: int, by_kernel: bool) -> Make:
    return lambda probe_rank: local_copies(probe_rank.pool, num_bytes, probe_rank.processors, by_kernel=by_kernel)


def _nccl(world: int, machine: Machine) -> Iterator[Probe]:
    for size in NCCL_BYTES:
        for name in NCCL_COLLECTIVES:
            facts = {"collective": name, "bytes": size, "wire_bytes": wire_bytes(name, size, world)}
            yield _timed(machine, "nccl", facts, _collectives(name, size))


def _collectives(name: str, num_bytes: int) -> Make:
    return lambda probe_rank: nccl_calls(probe_rank.site, name, num_bytes, _nccl_of(probe_rank))


def _nccl_of(probe_rank: ProbeRank) -> Any:
    return probe_rank.group and probe_rank.group.nccl


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
    """Probes of GEMVs; k per rank is that of four ranks, so that worlds can be compared."""
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
    return lambda probe_rank: gathers(probe_rank.site, of, _operands(probe_rank, of)[0], rows)


def _of(of: Problem) -> dict[str, Any]:
    return {"operator": of.operator, "shape": dict(of.shape), "dtype": of.dtype}


def _computed(machine: Machine, name: str, of: Problem, by: str, more: dict[str, Any]) -> Probe:
    """A probe of the computation of *of* alone, by our kernel with its default schedule or by cuBLAS."""
    operator = OPERATORS[of.operator]
    chosen = schedule(of, "fused", {}, machine, parse("nvlink"))
    facts = {"by": by, **_of(of), "flops": operator.flops(of), "bytes": operator.memory_bytes(of), **more}
    if by == "ours":
        facts["axes"] = dict(chosen.axes)

    def make(probe_rank: ProbeRank) -> Sequence[Call]:
        sets = _operands(probe_rank, of)
        if by == "library":
            return library_calls(probe_rank.site, of, sets)
        return our_calls(probe_rank.site, of, chosen, sets)

    return _timed(machine, name, facts, make)


def _operands(probe_rank: ProbeRank, of: Problem) -> list[Operands]:
    if probe_rank.held is None or probe_rank.held[0] != of:
        probe_rank.held = None  # freed before the new ones are allocated
        probe_rank.held = (of, operand_sets(of, probe_rank.seat.rank, probe_rank.device))
    return probe_rank.held[1]
