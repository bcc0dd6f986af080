"""The list of probes, the most wanted first: each states its facts, its expected time, and how it is prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.backends.triton.probes import collectives, compute, latency, link, memory
from kernels.backends.triton.probes.expected import expected_seconds
from kernels.backends.triton.probes.ground import Ground
from kernels.backends.triton.probes.site import Call
from kernels.backends.triton.rotation import operand_sets
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schemes import schedule

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
Make = Callable[[Ground], Sequence[Call]]


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to be measured by all ranks at once."""

    name: str
    facts: dict[str, Any]
    """What it is a measurement of, as plain values."""
    expected_s: float
    prepare: Callable[[Ground], Timed]
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

    def prepare(ground: Ground) -> Timed:
        calls = make(ground)
        return lambda: ground.blocks(calls, expected / share)

    return Probe(name, facts, expected, prepare, share)


def _fixed_costs(world: int, machine: Machine) -> Iterator[Probe]:
    yield _timed(machine, "graph_node", {}, lambda ground: latency.nodes(ground.site))
    eager_s = expected_seconds("eager_launch", {}, machine)

    def eager(ground: Ground) -> Timed:
        calls = latency.nodes(ground.site)
        return lambda: ground.blocks(calls, eager_s, captured=False)

    yield Probe("eager_launch", {}, eager_s, eager)
    yield Probe("clock_step", {}, expected_seconds("clock_step", {}, machine), _clock_step)
    if world == 1:
        return
    yield _timed(machine, "meeting", {}, lambda ground: latency.meetings(ground.site))
    half = 0.5 / latency.ROUNDS
    yield _timed(machine, "signal", {}, lambda ground: latency.signals(ground.site), half)
    for count in PACKETS:
        yield _timed(machine, "packets", {"packets": count}, _packets(count), half)


def _packets(count: int) -> Make:
    return lambda ground: latency.packets(ground.site, count)


def _clock_step(ground: Ground) -> Timed:
    return lambda: latency.clock_step(ground.site)


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
    return _timed(machine, "put", facts, lambda ground: link.puts(ground.site, way, pattern, num_bytes, programs))


def _copy_engine(machine: Machine, world: int, pattern: str, num_bytes: int, streams: int) -> Probe:
    sent = _rounded(world, pattern, num_bytes)
    facts = {"way": "copy_engine", "pattern": pattern, "bytes": sent, "streams": streams}
    return _timed(machine, "put", facts, lambda ground: link.copies(ground.site, pattern, num_bytes, streams))


def _rounded(world: int, pattern: str, num_bytes: int) -> int:
    """Bytes that really leave: whole pieces for every peer."""
    count = link.peers(world, pattern)
    return link.pieces_per_peer(count, num_bytes) * count * link.PIECE_BYTES


def _memory(machine: Machine) -> Iterator[Probe]:
    for size in READ_BYTES:
        yield _timed(machine, "read", {"bytes": size}, _reads(size))
    for size in COPY_BYTES:
        for by in ("library", "ours"):
            yield _timed(machine, "copy", {"bytes": 2 * size, "by": by}, _copies(size, by == "ours"))


def _reads(num_bytes: int) -> Make:
    return lambda ground: memory.reads(ground.pool, num_bytes, ground.processors)


def _copies(num_bytes: int, own: bool) -> Make:
    return lambda ground: memory.copies(ground.pool, num_bytes, ground.processors, own=own)


def _nccl(world: int, machine: Machine) -> Iterator[Probe]:
    for size in NCCL_BYTES:
        for name in collectives.NAMES:
            facts = {"collective": name, "bytes": size, "wire_bytes": collectives.wire_bytes(name, size, world)}
            yield _timed(machine, "nccl", facts, _collectives(name, size))


def _collectives(name: str, num_bytes: int) -> Make:
    return lambda ground: collectives.calls(ground.site, name, num_bytes, _nccl_of(ground))


def _nccl_of(ground: Ground) -> Any:
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
                    facts = {"by": "read_only", "rows_under_way": rows, **_of(of), "bytes": compute.lookup_bytes(of)}
                    yield _timed(machine, "gather", facts, _gathers(of, rows))
                yield _computed(machine, "gather", of, "ours", {})


def _gathers(of: Problem, rows: int) -> Make:
    return lambda ground: memory.gathers(ground.site, of, _operands(ground, of)[0], rows)


def _of(of: Problem) -> dict[str, Any]:
    return {"operator": of.operator, "shape": dict(of.shape), "dtype": of.dtype}


def _computed(machine: Machine, name: str, of: Problem, by: str, more: dict[str, Any]) -> Probe:
    """The computation of *of* alone, by our kernel as it is scheduled by default or by cuBLAS."""
    stated = OPERATORS[of.operator]
    chosen = schedule(of, "fused", {}, machine, parse("nvlink"))
    facts = {"by": by, **_of(of), "flops": stated.flops(of), "bytes": stated.memory_bytes(of), **more}
    if by == "ours":
        facts["axes"] = dict(chosen.axes)

    def make(ground: Ground) -> Sequence[Call]:
        sets = _operands(ground, of)
        if by == "library":
            return compute.library(ground.site, of, sets)
        return compute.ours(ground.site, of, chosen, sets)

    return _timed(machine, name, facts, make)


def _operands(ground: Ground, of: Problem) -> list[Operands]:
    if ground.held is None or ground.held[0] != of:
        ground.held = None  # the old ones go before the new ones come
        ground.held = (of, operand_sets(of, ground.seat.rank, ground.device))
    return ground.held[1]
