"""Which kernels are counted on a GPU: GEMMs of every tile order and group_rows, GEMVs, lookups; two parts by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schedule import Schedule, Value
from kernels.schemes import axis_rules, schedule
from kernels.trial import Protocol, Trial
from workbench.machines import machine

MACHINE = "h200_nvl2"
SEED = 17
"""Decides which half of each class is fitted to; it is committed before anything was measured."""
DEEP = (8192, 8192, 28672)
"""The GEMM whose SMs drift apart: always held out."""
GEMMS = ((4096, 4096, 4096), (8192, 8192, 4096), (8192, 5120, 5120), (2048, 8192, 8192), (16384, 4096, 3584),
         (8192, 8192, 1024), (4096, 14336, 4096), (4096, 4096, 14336), (2048, 4096, 1792), (8192, 8192, 14336),
         (1024, 8192, 8192), DEEP)  # fmt: skip
GROUPS: tuple[dict[str, Value], ...] = (
    {"group_rows": 8, "tile_order": "natural"}, {"group_rows": 1, "tile_order": "rotated"},
    {"group_rows": 16, "tile_order": "remote_first"},
)  # fmt: skip
MORE: tuple[tuple[tuple[int, int, int], dict[str, Value]], ...] = (
    ((8192, 8192, 4096), {"group_rows": 2}), ((8192, 8192, 4096), {"group_rows": 4}),
    ((8192, 8192, 4096), {"tile_order": "interleaved", "slice_tiles": 8}), (DEEP, {"group_rows": 4}),
    ((4096, 4096, 14336), {"tile": "128x128x64"}), ((8192, 8192, 4096), {"tile": "128x128x64", "group_rows": 4}),
    ((8192, 8192, 8192), {}),
)  # fmt: skip
GEMVS = ((8192, 8192, 1), (8192, 28672, 1), (8192, 28672, 8), (28672, 8192, 4), (4096, 4096, 2), (2048, 16384, 8))
TABLES = ((8, 1_000_000, 128, 4096, 20), (8, 100_000, 128, 4096, 20), (4, 20_000, 128, 8192, 8),
          (16, 1_000_000, 64, 2048, 32), (2, 50_000, 256, 8192, 10))  # fmt: skip
STORES: tuple[dict[str, Value], ...] = tuple(
    {axis_rules.STORE: hint} for hint in axis_rules.MODIFIER if hint != axis_rules.NO_HINT
)
LOADS: tuple[dict[str, Value], ...] = tuple(
    {axis_rules.LOAD: hint} for hint in axis_rules.EVICTION if hint != axis_rules.NO_HINT
)
COMPARED = "hints"
"""The class of kernels that are compared with each other, seconds, hits and bytes. The tier knows no hint, and nothing
is fitted to them. A GEMV has none: Triton drops them where it loads ahead."""
HINTED_GEMM, BY_THREADS = (8192, 4096, 1792), {"store": axis_rules.REGISTERS}
Row = dict[str, Any]


def kernels() -> list[Row]:
    """Every kernel with its number, class, part, operator, shape, dtype, axes and resident programs of an SM."""
    rows = [kernel(work, *point) for work, point in _points()]
    chosen = random.Random(SEED)
    for work in dict.fromkeys(each["work"] for each in rows):
        same = [each for each in rows if each["work"] == work and not _is_deep(each)]
        for each in chosen.sample(same, len(same) // 2) if work != COMPARED else same:
            each["part"] = "fit" if work != COMPARED else "compared"
    return number(rows)


def number(rows: Iterable[Row]) -> list[Row]:
    """*rows*, each with its number."""
    return [{"number": place, **each} for place, each in enumerate(rows)]


def in_turns(rows: Sequence[Row]) -> list[Row]:
    """*rows* so that a session that ends early has some of each class and part, and the deepest GEMMs."""
    queues: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda each: not _is_deep(each)):
        queues.setdefault((row["work"], row["part"]), []).append(row)
    return [row for turn in zip_longest(*queues.values()) for row in turn if row is not None]


def trial(row: Row, asked: Protocol) -> Trial:
    """The computation of a kernel alone: nobody is waited for."""
    of, chosen = point(row)
    return Trial(problem=of, schedule=chosen, backend="triton", machine=MACHINE, fabric=parse("nvlink"),
                 protocol=asked, part="compute")  # fmt: skip


def point(row: Row) -> tuple[Problem, Schedule]:
    """The problem and the schedule of a kernel."""
    of = problem(row["operator"], row["shape"], dtype=row["dtype"], world=1)
    return of, schedule(of, "fused", row["axes"], machine(MACHINE), parse("nvlink"))


def kernel(work: str, operator: str, shape: dict[str, Any], dtype: str, axes: dict[str, Value]) -> Row:
    """A kernel that is held out, its axes complete."""
    made: Row = {"work": work, "part": "held_out", "operator": operator, "shape": shape, "dtype": dtype, "axes": axes}
    _, chosen = point(made)
    resident = machine(MACHINE).device.resident_blocks.get(OPERATORS[operator].work, 1)
    return {**made, "axes": dict(chosen.axes), "resident": int(resident)}


def _points() -> Iterator[tuple[str, tuple[str, dict[str, Any], str, dict[str, Value]]]]:
    shaped = [(shape, axes) for shape in GEMMS for axes in GROUPS] + list(MORE)
    for (m, n, k), axes in shaped:
        yield "gemm", ("gemm_all_to_all", {"m": m, "n": n, "k": k}, "bfloat16", axes)
    for n, k, tokens in GEMVS:
        yield "gemv", ("gemv_all_reduce", {"n": n, "k": k, "tokens": tokens}, "bfloat16", {})
    for law in ("uniform", "power_law"):
        for tables in TABLES:
            for dtype in ("float32", "bfloat16"):
                yield f"lookups, {law}", ("embedding_all_to_all", _lookups(tables, law), dtype, {})
    for hint in ({}, *LOADS, *STORES):
        yield COMPARED, ("embedding_all_to_all", _lookups(TABLES[1], "power_law"), "float32", hint)
    m, n, k = HINTED_GEMM
    for hint in ({}, *STORES):
        yield COMPARED, ("gemm_all_to_all", {"m": m, "n": n, "k": k}, "bfloat16", {**BY_THREADS, **hint})


def _lookups(tables: tuple[int, ...], law: str) -> dict[str, Any]:
    names = ("tables_per_rank", "rows", "dim", "batch", "pooling")
    return {**dict(zip(names, tables, strict=True)), "indices": law}


def _is_deep(row: Row) -> bool:
    return row["work"] == "gemm" and row["shape"]["k"] == DEEP[2]
