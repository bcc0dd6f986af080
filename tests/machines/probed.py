"""Raw results as probes would write them of a machine that behaves by simple rules: what a fit must find again."""

from typing import Any

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import operator, problem
from kernels.schedule import tile
from kernels.schemes import schedule
from kernels.schemes.base import num_tiles
from workbench.simulator.price.tiles import fixed_seconds, tile_width, work_share

NODE, PACKET, SIGNAL, HANDSHAKE, TILE = 1.5e-6, 0.8e-6, 1.3e-6, 2.2e-6, 1.2e-6
READ, COPY, PUT, COPY_ENGINE, GEMM = 4.4e12, 4.1e12, 3.6e11, 3.9e11, 7.1e14
COPY_LAUNCH = 4e-6
ONE_SM = 2e10
"""Bytes a second that one SM puts."""


def raw(machine: Machine, world: int) -> dict[str, Any]:
    """The content of a raw file."""
    rows = [*_simple(), *_puts(), *_nccl(world), *_gemms(machine, world)]
    return {
        "format": 1, "world": world, "gpu": "NVIDIA H200", "machine": machine.name, "host": "somewhere",
        "date": "2026-11-22T10:00:00+00:00", "broken": [], "rows": rows,
    }  # fmt: skip


def _simple() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"probe": "graph_node", "seconds": NODE},
        {"probe": "packets", "packets": 32, "seconds": PACKET},
        {"probe": "signal", "seconds": SIGNAL},
        {"probe": "gather", "by": "read_only", "refused": "no room"},
    ]
    rows += [{"probe": "read", "bytes": n, "seconds": NODE + n / READ} for n in (1 << 24, 1 << 29)]
    rows += [{"probe": "copy", "by": "library", "bytes": n, "seconds": NODE + n / COPY} for n in (1 << 21, 1 << 30)]
    return rows


def _puts() -> list[dict[str, Any]]:
    fixed, rows = NODE + HANDSHAKE + SIGNAL, []
    for num_bytes in (1 << 14, 1 << 18, 1 << 22, 1 << 26):
        about = {"probe": "put", "pattern": "all_to_all", "bytes": num_bytes}
        for way, programs in (("registers", 528), ("tma", 264)):
            rows.append({**about, "way": way, "programs": programs, "seconds": fixed + num_bytes / PUT})
        seconds = fixed + COPY_LAUNCH + num_bytes / COPY_ENGINE
        rows.append({**about, "way": "copy_engine", "streams": 1, "seconds": seconds})
    for programs in (4, 8, 16):
        seconds = fixed + (1 << 26) / (programs * ONE_SM)
        rows.append({"probe": "put", "pattern": "all_to_all", "bytes": 1 << 26, "way": "tma", "programs": programs,
                     "seconds": seconds})  # fmt: skip
    return rows


def nccl_seconds(wire_bytes: float) -> float:
    """A library that is slow to begin."""
    return 1.1e-5 + wire_bytes / 2.8e11


def _nccl(world: int) -> list[dict[str, Any]]:
    rows = []
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for num_bytes in (1 << 13, 1 << 20, 1 << 28):
            wire = (2 if name == "all_reduce" else 1) * num_bytes * (world - 1) / world
            rows.append({"probe": "nccl", "collective": name, "bytes": num_bytes, "wire_bytes": wire,
                         "seconds": nccl_seconds(wire)})  # fmt: skip
    return rows


def _gemms(machine: Machine, world: int) -> list[dict[str, Any]]:
    shapes: list[tuple[dict[str, int], dict[str, int]]] = [
        ({"m": 1536 * waves, "n": 2816, "k": k}, {"waves": waves}) for waves in (1, 2) for k in (512, 2048, 8192)
    ]
    shapes += [({"m": 8192, "n": 4096, "k": 1792}, {}), ({"m": 4096, "n": 4096, "k": 14336}, {})]
    rows = [_ours(machine, world, "gemm", "gemm_all_to_all", shape) | more for shape, more in shapes]
    rows += [_library(machine, world, "gemm", "gemm_all_to_all", shape) for shape, more in shapes if not more]
    gemv = {"n": 8192, "k": 4096 * world, "tokens": 4}
    lookup = {"tables_per_rank": 16, "rows": 100_000, "dim": 128, "batch": 4096, "pooling": 16, "indices": "uniform"}
    rows.append(_ours(machine, world, "gemv", "gemv_all_reduce", gemv, tile="64x4x512"))
    rows.append(_ours(machine, world, "gather", "embedding_all_to_all", lookup, "float32"))
    return rows


def _about(world: int, name: str, shape: dict[str, Any], dtype: str) -> dict[str, Any]:
    of = problem(name, shape, dtype=dtype, world=world)
    stated = operator(name)
    return {"operator": name, "shape": dict(of.shape), "dtype": dtype, "flops": stated.flops(of),
            "bytes": stated.memory_bytes(of)}  # fmt: skip


def _ours(
    machine: Machine, world: int, probe: str, name: str, shape: dict[str, Any], dtype: str = "bfloat16", **axes: Any
) -> dict[str, Any]:
    """By the rule of estimates, with tiles that are as fast as memory or the tensor cores allow, one on an SM."""
    of = problem(name, shape, dtype=dtype, world=world)
    chosen = schedule(of, "fused", axes, machine, parse("nvlink"))
    size, slots = tile(chosen["tile"]), machine.device.slots
    work, share = work_share(of)
    amount = share * size.m * size.n * operator(name).extent(of).contraction
    speed = GEMM if work == "gemm" else READ / operator(name).memory_bytes(of) * (
        operator(name).flops(of) if work == "gemv" else operator(name).memory_bytes(of))  # fmt: skip
    waves = -(-num_tiles(of, str(size)) // slots)
    fixed = TILE * fixed_seconds(machine, work) / machine.costs.tile_seconds
    seconds = NODE + waves * (fixed + amount * slots / speed)
    assert tile_width(of, size.m, size.n)
    about = _about(world, name, shape, dtype)
    return {"probe": probe, "by": "ours", **about, "axes": dict(chosen.axes), "seconds": seconds}


def _library(machine: Machine, world: int, probe: str, name: str, shape: dict[str, Any]) -> dict[str, Any]:
    about = _about(world, name, shape, "bfloat16")
    return {"probe": probe, "by": "library", **about, "seconds": NODE + about["flops"] / (GEMM * 1.05)}
