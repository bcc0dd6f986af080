"""Interpreted calls of every fused operator in a loop-back world, a line each: `python -m ...loop_back_main`.

Then GEMMs whose tiles end with the rows of a rank, which these sizes do not have by default.
"""

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton.memory import private_bytes, shared_bytes
from kernels.backends.triton.schemes import fused
from kernels.operators import problem
from kernels.reference import operands
from kernels.schedule import Value
from kernels.schemes import expand
from tests.gpu.loop_back import SEED, SHAPES, LoopBackContext, default_schedule, trouble, truth
from tests.kernels.backends.triton.quick_interpreter import quicken

SMALL: dict[str, dict[str, Any]] = {
    "gemv_all_reduce": {"n": 64, "k": 64, "tokens": 1},
    "embedding_all_to_all": {"tables_per_rank": 2, "rows": 50, "dim": 32, "batch": 16, "pooling": 3},
}
SMALL_GEMM = {"m": 64, "n": 64, "k": 64}
WORLDS, LIMIT_S = (2, 4), 20.0
ORDERS = (("gemm_reduce_scatter", "rotated"), ("gemm_all_reduce", "rotated"), ("all_gather_gemm", "rotated"),
          ("gemm_all_to_all", "interleaved"))  # fmt: skip
CHOSEN: list[tuple[str, int, dict[str, Value]]] = [
    *((name, world, {}) for name in SHAPES for world in WORLDS),
    *((name, world, {"tile_order": order}) for name, order in ORDERS for world in WORLDS),
    ("gemm_reduce_scatter", 2, {"tile_order": "ring"}),  # of more ranks it needs more tiles
    *(
        (name, world, {"tile_order": "spanning", "store": "registers"})  # few sums leave in packets by default
        for name in ("gemm_reduce_scatter", "gemm_all_reduce")
        for world in WORLDS
    ),
]


class HostHeap:
    """The memory of one rank."""

    def __init__(self, num_bytes: int) -> None:
        self.capacity, self._bytes = num_bytes, torch.zeros(num_bytes, dtype=torch.uint8)

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view; there is no other rank."""
        return self._bytes[offset : offset + prod(shape) * dtype.itemsize].view(dtype).view(*shape)


def main() -> None:
    torch.set_num_threads(1)
    quicken()
    for name, world, axes in CHOSEN:
        of = problem(name, SMALL.get(name, SMALL_GEMM), dtype="float32", world=world)
        plan = expand(of, default_schedule(of, **axes))
        start = shared_bytes(plan)
        heap = HostHeap(3 * (start + private_bytes(plan, 0)))
        context = LoopBackContext(heap, plan, 0, torch.device("cpu"), start=start, limit_s=LIMIT_S)
        values = operands(of, 0, SEED, values=0)
        call = fused.kernel(context, values).launcher(1)
        reason = trouble(context, call, truth(plan, values))
        swapped = trouble(context, call, truth(plan, values).flip(0))
        print(json.dumps([name, world, reason, swapped]), flush=True)


if __name__ == "__main__":
    main()
