"""Kernels that were drawn when the reuse tier and the price of a GEMM were finished: nobody had seen what they count.

`python -m tests.gpu.caches OUT.json SECONDS drawn` counts and times them. Nothing is fitted to any of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from kernels.fabric import parse
from kernels.operators import problem
from tests.gpu import spaces
from tests.gpu.caches_kernels import MACHINE, Row, kernel, number
from workbench.machines import machine

SEED = 20261123
"""Committed before anything was counted."""
GEMMS, GEMVS, LOOKUPS = 28, 8, 10
SIDES, CONTRACTIONS = (1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384), (512, 1024, 2048, 4096, 7168, 14336)
FLOPS_MOST = 4e12
"""Of a GEMM: ncu launches each kernel again for each group of counters."""
USUAL = ("store", "grid", "load_hint", "store_hint")
"""Axes that keep their defaults: hints are compared elsewhere, and the tier knows none."""


def kernels() -> list[Row]:
    """Every kernel, in the form of `caches_kernels.kernels`, all held out."""
    chosen = random.Random(SEED)
    return number([
        *_drawn("gemm", "gemm_all_to_all", "bfloat16", GEMMS, lambda: _gemm(chosen), chosen),
        *_drawn("gemv", "gemv_all_reduce", "bfloat16", GEMVS, lambda: _gemv(chosen), chosen),
        *(each for law in ("uniform", "power_law")
          for each in _drawn(f"lookups, {law}", "embedding_all_to_all", "float32", LOOKUPS // 2,
                             lambda law=law: _lookups(chosen, law), chosen)),
    ])  # fmt: skip


def _drawn(work: str, operator: str, dtype: str, count: int, shape: Callable[[], dict[str, Any]],
           chosen: random.Random) -> Iterator[Row]:  # fmt: skip
    """So many of a class; what is refused is drawn again."""
    made, place = 0, machine(MACHINE)
    while made < count:
        sizes = shape()
        of = problem(operator, sizes, dtype=dtype, world=1)
        one = spaces.fused(chosen, of, USUAL, place, parse("nvlink"))
        if one is None:
            continue
        made += 1
        yield kernel(work, operator, sizes, dtype, dict(one.axes))


def _gemm(chosen: random.Random) -> dict[str, Any]:
    while True:
        m, n, k = chosen.choice(SIDES), chosen.choice(SIDES), chosen.choice(CONTRACTIONS)
        if 2.0 * m * n * k <= FLOPS_MOST:
            return {"m": m, "n": n, "k": k}


def _gemv(chosen: random.Random) -> dict[str, Any]:
    return {"n": chosen.choice(SIDES), "k": chosen.choice(SIDES), "tokens": chosen.choice((1, 2, 4, 8))}


def _lookups(chosen: random.Random, law: str) -> dict[str, Any]:
    return {"tables_per_rank": chosen.choice((2, 4, 8, 16)), "rows": chosen.choice((20_000, 100_000, 500_000)),
            "dim": chosen.choice((64, 128, 256)), "batch": chosen.choice((2048, 4096, 8192)),
            "pooling": chosen.choice((4, 10, 20, 40)), "indices": law}  # fmt: skip
