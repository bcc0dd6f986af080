"""What a choice at set-up is worth: candidates timed to choose by, then timed anew, on all GPUs of this host.

`python -m tests.gpu.chosen OUT.json SECONDS`. Shapes are drawn by a committed seed that nothing was fitted to. For
each, all ranks time the candidates of calls without a schedule as `choose_by("measured")` does. Then they prepare and
time them again: the first times choose, the second ones judge. tests/gpu/choices.py reads the file.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import torch

from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from tests.gpu import ops, recording
from tests.gpu.alone import between

SEED = 20261127
EACH = 6
"""Shapes of an operator."""
START_S = 60.0
"""The first answer may take so long: ranks start."""


def problems(world: int) -> list[Problem]:
    """The drawn problems of *world* ranks, operators in turns: an early end has some of each."""
    every = [[_drawn(random.Random(f"{SEED} {name} {number}"), name, world) for name in OPERATORS]
             for number in range(EACH)]  # fmt: skip
    return [each for of_number in every for each in of_number]


def _drawn(chosen: random.Random, name: str, world: int) -> Problem:
    sizes: dict[str, Any]
    if name == "embedding_all_to_all":
        sizes = {"tables_per_rank": chosen.choice((4, 8, 16, 32)), "rows": between(chosen, 20_000, 200_000, 1000),
                 "dim": chosen.choice((64, 128, 256)), "batch": between(chosen, 512, 8192, 16 * world),
                 "pooling": between(chosen, 1, 40, 1)}  # fmt: skip
    elif name == "gemv_all_reduce":
        sizes = {"n": between(chosen, 1024, 32768, 256 * world), "k": between(chosen, 1024, 32768, 256)}
        sizes["tokens"] = chosen.choice((1, 2, 4, 8))
    else:
        sizes = {"m": between(chosen, 64, 16384, 16 * world), "n": between(chosen, 1024, 16384, 128 * world),
                 "k": between(chosen, 512, 8192, 128 * world)}  # fmt: skip
    dtype = "float32" if name == "embedding_all_to_all" else "bfloat16"
    return problem(name, sizes, dtype=dtype, world=world)


def main() -> int:
    """A row for each drawn problem that the seconds held; 1 where it is not all of them."""
    until, world = time.monotonic() + float(sys.argv[2]), torch.cuda.device_count()
    rows: list[dict[str, Any]] = []
    gang, drawn = ops.gang_of(world), problems(world)
    try:
        for each in drawn:
            left_s = until - time.monotonic()
            if left_s < 5.0:
                break
            asked = {"operator": each.operator, "shape": dict(each.shape)}
            try:
                answers = gang.check("candidates_twice", each.dtype, deadline_s=min(left_s, START_S), **asked)
            except AssertionError as error:
                print("BROKEN", each.operator, dict(each.shape), str(error)[-1500:], flush=True)
                break
            rows.append(asked | {"dtype": each.dtype} | answers[0])
            print(rows[-1], flush=True)
    finally:
        gang.close()
    recording.write(Path(sys.argv[1]), {"provenance": ops.origin() | {"launched_by": "tests/gpu/chosen.py"},
                                        "seed": SEED, "world": world, "rows": rows})  # fmt: skip
    print(f"{len(rows)} of {len(drawn)} problems", flush=True)
    return int(len(rows) < len(drawn))


if __name__ == "__main__":
    sys.exit(main())
