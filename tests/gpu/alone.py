"""Computations alone, of drawn shapes and schedules, on one GPU: `python -m tests.gpu.alone OUT.jsonl SECONDS SEED`.

Shapes are drawn by a committed seed, and for each one schedules of our kernel, with values of all axes that matter to
its computation. Half of the computations are held out (`workbench/machines/calibrate_gpu.py`). Some processes compile
first. The same schedule's whole operator, of one rank, is verified beside each: a wrong one is not recorded.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.hosts import local_ranks
from kernels.backends.base import Seat
from kernels.backends.triton import playground
from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.trial import PROTOCOLS, Trial
from tests.gpu import gang, spaces
from tests.gpu.recording import provenance, recorded, told
from workbench.machines import machine
from workbench.resources import data_directory

MACHINE, FABRIC = "h200_nvl2", parse("nvlink")
SEEDS = (20261124, 20261125)
"""Of a first drawing, and of one that was made when the first had been looked at."""
NEXT_SEED = 20261204
"""Of a third drawing, for prices of play 12, which is not measured yet: `committed` has its trials."""
EACH = {"gemm_all_to_all": (44, 5), "gemv_all_reduce": (24, 4), "embedding_all_to_all": (16, 4)}
"""By operator how many shapes, and schedules of each."""
FLOPS = (2e9, 2e12)
"""Of a GEMM: a few microseconds to a few milliseconds."""
UNREAD = ("store_hint", "load_hint", "shots")
"""Axes that keep their defaults: others compare hints, and a computation alone sends nothing."""
COMPILERS = 12
"""Processes that compile at once."""
TRIES = 2000
"""Draws for one schedule: some are refused, or were drawn before."""


def trials(seed: int) -> list[list[Trial]]:
    """By shape, its schedules; the same in every process. Operators are mixed: an early end has some of each."""
    made = [_of_shape(random.Random(f"{seed} {name} {number}"), name)
            for name, (shapes, _) in EACH.items() for number in range(shapes)]  # fmt: skip
    random.Random(seed).shuffle(made)
    return made


def committed() -> list[list[Trial]]:
    """The trials of NEXT_SEED as they were drawn on 2026-11-26: axes that are added later do not change them."""
    sittings = json.loads((data_directory() / "checks" / "alone_next.json").read_text())
    return [[Trial.from_json(one) for one in sitting] for sitting in sittings]


def _of_shape(chosen: random.Random, name: str) -> list[Trial]:
    of, place, made = SHAPES[name](chosen), machine(MACHINE), dict[Schedule, None]()
    for _ in range(TRIES):
        one = spaces.fused(chosen, of, UNREAD, place, FABRIC)
        if one is not None:
            made[one] = None
        if len(made) == EACH[name][1]:
            break
    return [Trial(problem=of, schedule=one, backend="triton", machine=MACHINE, fabric=FABRIC,
                  protocol=PROTOCOLS["default"], part="compute") for one in made]  # fmt: skip


def between(chosen: random.Random, least: int, most: int, unit: int) -> int:
    """A multiple of *unit*, as likely near the least as near the most."""
    return max(1, round(math.exp(chosen.uniform(math.log(least), math.log(most))) / unit)) * unit


def _gemm(chosen: random.Random) -> Problem:
    while True:
        m, n, k = (between(chosen, *ends) for ends in ((512, 16384, 256), (512, 16384, 256), (256, 16384, 64)))
        if FLOPS[0] <= 2.0 * m * n * k <= FLOPS[1]:
            return problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, dtype="bfloat16", world=1)


def _gemv(chosen: random.Random) -> Problem:
    sizes = {"n": between(chosen, 1024, 32768, 512), "k": between(chosen, 1024, 32768, 512)}
    return problem("gemv_all_reduce", sizes | {"tokens": chosen.choice((1, 2, 4, 8))}, dtype="bfloat16", world=1)


def _lookups(chosen: random.Random) -> Problem:
    sizes = {"tables_per_rank": chosen.choice((2, 4, 8, 16)), "rows": chosen.choice((20_000, 100_000, 500_000)),
             "dim": chosen.choice((64, 128, 256)), "batch": chosen.choice((2048, 4096, 8192)),
             "pooling": chosen.choice((4, 10, 20, 40)), "indices": chosen.choice(("uniform", "power_law"))}  # fmt: skip
    return problem("embedding_all_to_all", sizes, dtype=chosen.choice(("float32", "bfloat16")), world=1)


SHAPES: dict[str, Callable[[random.Random], Problem]] = {
    "gemm_all_to_all": _gemm, "gemv_all_reduce": _gemv, "embedding_all_to_all": _lookups,
}  # fmt: skip


def compile_all(sittings: list[list[Trial]], until: float) -> None:
    """Triton keeps what is compiled in files, so that ranks find it there."""
    queues = [[one.to_json() for sitting in sittings[number::COMPILERS] for one in sitting]
              for number in range(COMPILERS)]  # fmt: skip
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_compile, args=(number, queue)) for number, queue in enumerate(queues)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(0.1, until - time.monotonic()))
        process.kill()


def _compile(number: int, queue: list[dict[str, Any]]) -> None:
    import torch

    from kernels.backends.triton.backend import TritonBackend

    playground.take(0, 1)
    backend = TritonBackend(Seat(rank=0, world=1, session=f"alone{number}", shares_heap=True))
    for entry in queue:
        try:
            backend.prepare([Trial.from_json(entry)])
        except Exception as error:  # a rank meets it again, and says so in its outcome
            print("not compiled:", str(error)[-200:], flush=True)
        torch.cuda.empty_cache()


def outcomes(sittings: list[list[Trial]], seconds: float) -> Iterator[tuple[Any, Any]]:
    """Each outcome with its samples."""
    for news in gang.run([[one.to_json() for one in sitting] for sitting in sittings], 1, seconds):
        if isinstance(news, str):
            print("BROKEN", news, flush=True)
        else:
            yield news


def verified(one: Trial) -> Trial:
    """The whole operator of one rank: its kernel is that of *one*, and its result is compared."""
    return replace(one, part="whole", protocol=PROTOCOLS["quick"])


def main(out: Path, seconds: float, seed: int) -> None:
    """Compiles, then times, and writes each computation that is right at once."""
    until, sittings = time.monotonic() + seconds, committed() if seed == NEXT_SEED else trials(seed)
    compile_all(sittings, time.monotonic() + seconds / 2)
    print(f"compiled, {until - time.monotonic():.0f} s left", flush=True)
    facts, ran = provenance(MACHINE) | {"launched_by": "tests/gpu/alone.py, one process"}, local_ranks(1, "triton")
    right, waiting = set[str](), dict[str, str]()
    both = [[each for one in sitting for each in (verified(one), one)] for sitting in sittings]
    with out.open("w") as file:
        for outcome, samples in outcomes(both, until - time.monotonic()):
            if not isinstance(outcome, Measurement):
                print(told(outcome), flush=True)
            elif outcome.trial.part == "whole" and outcome.correct:
                right.add(outcome.trial.key)
            elif outcome.trial.part == "compute":
                waiting[verified(outcome.trial).key] = recorded(outcome, samples, facts, ran=ran)
            for key in right & set(waiting):
                print(waiting.pop(key), file=file, flush=True)
    print(f"{len(right)} are right; {len(waiting)} were timed, and are not recorded", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
