"""Our GEMM in fitted tiles on one GPU, which need no pytest: `python -m tests.gpu.fitted [TILE ...]`.

Each tile computes sizes that none of its sides divides, with all programs and with few, on new operands in each call.
The result is poisoned before, compared with float64, and has the same bits in 1,000 calls. Stamps are read once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial

import torch

from kernels.backends.triton import repeated
from kernels.backends.triton.direct_launch import launch_directly
from kernels.backends.triton.kernels.sync import COMPUTED, SENT, STARTED, WORDS
from kernels.backends.triton.memory import DeviceHeap
from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schemes import expand, schedule
from tests.gpu import against_cublas
from tests.gpu.against_cublas import MACHINE, RankAlone, differing, trouble
from workbench.machines import machine

TILES = (
    "128x192x64", "136x128x64", "96x64x64", "80x128x64", "112x128x64", "160x256x64", "208x128x64", "216x128x64",
    "192x128x64", "248x128x64", "72x256x64", "24x64x64", "64x192x64", "256x160x64", "128x96x64",
)  # fmt: skip
"""Those that are defaults, and others: five pieces, two parts of M, few rows."""
SIZES = ((1000, 1304, 4104), (263, 2056, 520), (129, 200, 136), (91, 7304, 72))
"""m, n, k: the last one has two steps, the second of 8 elements."""
PROGRAMS_MOST = (0, 5)
"""All programs, and so few that each computes many tiles."""
OPERAND_SETS = 3


def problem_of(m: int, n: int, k: int, dtype: str = "bfloat16") -> Problem:
    """The GEMM of one rank."""
    return problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, dtype=dtype, world=1)


def drawn(of: Problem, seed: int) -> Operands:
    """Operands at new addresses, by the names of the operator."""
    generator = torch.Generator("cuda").manual_seed(seed)
    shapes = {name: shape for name, shape in OPERATORS[of.operator].local(of).items() if name != repeated.RESULT}
    return {
        name: torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(getattr(torch, of.dtype))
        for name, shape in shapes.items()
    }


def troubles(size: str, m: int, n: int, k: int, dtype: str = "bfloat16") -> list[str]:
    """What is wrong with tiles of *size*, by number of programs; nothing where all is right."""
    of = problem_of(m, n, k, dtype)
    every = ((most, text) for most in PROGRAMS_MOST for text in troubles_of(of, size, most))
    return [f"{size} of {most or 'all'} programs {m}x{n}x{k} {dtype}: {text}" for most, text in every]


def troubles_of(of: Problem, size: str, most: int) -> Iterator[str]:
    """The same of at most *most* programs; 0: all."""
    by = schedule(of, "fused", {"tile": size}, machine(MACHINE), parse("nvlink"))
    plan, device = expand(of, by), torch.device("cuda", 0)
    heap = DeviceHeap(None, device, repeated.heap_bytes(plan, 0))
    places = repeated.StandInContext(heap, plan, 0, device, limit_s=10.0, errors=repeated.ErrorWords(device))
    sets = [drawn(of, seed) for seed in range(OPERAND_SETS)]
    call = repeated.Repeated(places, sets[0], most)
    if call._direct is None:
        yield "not launched directly"
    for operands in sets:
        if reason := trouble(of, partial(call, operands), call(operands), operands):
            yield reason
    if other := differing([partial(call, sets[0])], call(sets[0])):
        yield f"other bits in {other} of {against_cublas.CALLS} calls"


def stamps_trouble(size: str, m: int, n: int, k: int) -> str:
    """What is wrong with the stamps of tiles of *size*, or ''."""
    of = problem_of(m, n, k)
    by = schedule(of, "fused", {"tile": size}, machine(MACHINE), parse("nvlink"))
    kernel = RankAlone(of).kernel(by, against_cublas.operands_of(of, cold=False)[0])
    stamps = torch.zeros(kernel.records, WORDS.value, dtype=torch.int64, device="cuda")
    kernel.stamped(stamps).launcher()()
    torch.cuda.synchronize()
    words = stamps[: kernel.records // 2].cpu()
    started, computed, sent = (words[:, column.value] for column in (STARTED, COMPUTED, SENT))
    if not bool((started > 0).all()) or not bool(((started <= computed) & (computed <= sent)).all()):
        return f"{size}: stamps are {words[:4].tolist()}"
    return ""


def main(sizes: list[str]) -> int:
    """Checks all tiles; the number of those that are wrong."""
    torch.cuda.set_device(0)
    launch_directly(True)
    wrong = 0
    for size in sizes:
        since = time.monotonic()
        found = [text for sides in SIZES for text in troubles(size, *sides)]
        found += [*troubles(size, *SIZES[1], dtype="float16"), *filter(None, [stamps_trouble(size, *SIZES[0])])]
        wrong += bool(found)
        print(f"{size} {'FAILED' if found else 'ok'} {time.monotonic() - since:.1f} s", *found, sep="\n  ", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(TILES)))
