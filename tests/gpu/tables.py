"""The sittings behind README's tables of GPUs: `python -m tests.gpu.tables OUT_FOLDER SECONDS [TABLE ...]`.

A sitting is one problem with its baselines, its floor's parts and its fused schedules, timed in turns. Each table's
measurements become OUT_FOLDER/MACHINE_TABLE.jsonl, a recording; SECONDS is the most that one table may take.
TABLE@latency is the same with one call in each graph.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kernels.backends.triton import refusals
from kernels.fabric import parse
from kernels.machine import Machine, load
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.problem import Problem
from kernels.protocol import Protocol
from kernels.schemes import schedule
from kernels.trial import Trial
from tests.gpu import gang

DEVICE = Protocol(name="device", warmups=2, repeats=15, cuda_graph=True, cold_l2=True)
HOW = {"": DEVICE, "latency": replace(DEVICE, name="device_latency", repeats=50, calls_per_graph=1)}
"""How a table is timed, by what stands behind its name's @."""
MACHINES = Path(__file__).parents[2] / "data" / "machines"

Entry = tuple[str, str, dict[str, Any]]
"""Scheme, part, axes that differ from their defaults."""
Sittings = Iterator[tuple[Problem, list[Entry]]]

GEMV_SHAPES = ((4096, 4096), (8192, 8192), (8192, 28672), (16384, 16384))
EMBEDDING_SHAPES = ((16, 4096, 16, 128), (16, 4096, 64, 128), (64, 2048, 32, 128), (16, 8192, 4, 256))
GEMM_SHAPES = ((8192, 4096, 1792), (8192, 7168, 2048), (4096, 4096, 14336), (16384, 4096, 3584), (2048, 4096, 1792))
TOKENS = (512, 2048, 8192)


LIBRARY = ("library", "library_tuned")


def entries(*more: Entry, collectives: tuple[str, ...] = ()) -> list[Entry]:
    """The sequential baselines (NCCL and *collectives*) with their parts, then *more*."""
    whole: list[Entry] = [("sequential", "whole", {"collective": name}) for name in (*LIBRARY, *collectives)]
    alone: list[Entry] = [("sequential", "communication", {"collective": name}) for name in LIBRARY]
    return [*whole, ("sequential", "compute", {"collective": "library"}), *alone, *more]


def wholes(*variants: dict[str, Any]) -> list[Entry]:
    """The fused computation alone, and fused schedules whose axes differ from their defaults."""
    return [("fused", "compute", {}), *(("fused", "whole", axes) for axes in variants)]


def gemv(world: int) -> Sittings:
    """GEMV + all-reduce of 1 to 8 tokens."""
    for n, k in GEMV_SHAPES:
        for tokens in (1, 4, 8):
            asked = problem("gemv_all_reduce", {"n": n, "k": k, "tokens": tokens}, world=world, dtype="bfloat16")
            fused = wholes({}, {"grid": 264})
            yield asked, entries(*fused, collectives=("one_shot",))


def embedding(world: int) -> Sittings:
    """Pooled lookup + all-to-all, float32, both distributions of indices."""
    for tables, batch, pooling, dim in EMBEDDING_SHAPES:
        for indices in ("uniform", "power_law"):
            shape = {"tables_per_rank": tables, "rows": 100_000, "dim": dim, "batch": batch, "pooling": pooling,
                     "indices": indices}  # fmt: skip
            asked = problem("embedding_all_to_all", shape, world=world, dtype="float32")
            yield asked, entries(*wholes({}))


def gemm(world: int) -> Sittings:
    """GEMM + all-to-all."""
    for m, n, k in GEMM_SHAPES:
        asked = problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, world=world, dtype="bfloat16")
        fused = wholes({}, {"store": "registers"}, {"group_rows": 4}, {"slice_tiles": 32})
        yield asked, entries(*fused, collectives=("copy_engine",))


def layers(world: int) -> Sittings:
    """Layers of Llama 3 70B and Mixtral 8x7B at three numbers of tokens."""
    shapes = {"all_gather_gemm": (7168, 8192), "gemm_reduce_scatter": (8192, 7168), "gemm_all_reduce": (8192, 7168),
              "all_to_all_gemm": (14336, 4096)}  # fmt: skip
    for tokens in TOKENS:
        for name, (n, k) in shapes.items():
            asked = problem(name, {"m": tokens, "n": n, "k": k}, world=world, dtype="bfloat16")
            receives = name in ("all_gather_gemm", "all_to_all_gemm")
            fused = wholes({}, *({"comm_sms": 8}, {"comm_sms": 32}) if receives else ({"group_rows": 4},))
            yield asked, entries(*fused, collectives=("two_shot",) if name == "gemm_all_reduce" else ())


def ways(world: int) -> Sittings:
    """The library, our own stores, copy engines and torch's overlapped operators beside the fused kernels."""
    own: list[Entry] = [("sequential", "whole", {"collective": name}) for name in ("library", "direct", "copy_engine")]
    for tokens in TOKENS:
        for name, (n, k) in {"all_gather_gemm": (7168, 8192), "gemm_reduce_scatter": (8192, 7168)}.items():
            asked = problem(name, {"m": tokens, "n": n, "k": k}, world=world, dtype="bfloat16")
            yield asked, [*own, ("decomposed", "whole", refusals.OVERLAPPED_AXES), ("fused", "whole", {})]


TABLES: dict[str, Callable[[int], Sittings]] = {
    "gemv": gemv, "embedding": embedding, "gemm": gemm, "layers": layers, "ways": ways,
}  # fmt: skip


def trials(sittings: Sittings, machine: Machine, protocol: Protocol = DEVICE) -> list[list[dict[str, Any]]]:
    """What `gang.run` takes: a schedule that is asked for twice, once as the default, is run once."""
    fabric = parse("nvlink")

    def one(asked: Problem, scheme: str, part: str, axes: dict[str, Any]) -> Trial:
        chosen = schedule(asked, scheme, axes, machine, fabric)
        return Trial(problem=asked, schedule=chosen, backend="triton", machine=machine.name, fabric=fabric,
                     protocol=protocol, part=part)  # fmt: skip

    return [
        [trial.to_json() for trial in dict.fromkeys(one(asked, *entry) for entry in entries_of)]
        for asked, entries_of in sittings
    ]


def machine_here() -> Machine:
    """The shipped machine that these GPUs are."""
    kind = "h200" if "H200" in torch.cuda.get_device_name(0) else "h100"
    return load(MACHINES / f"{kind}_nvl{torch.cuda.device_count()}.toml")


def main() -> int:
    folder, seconds, names = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:] or list(TABLES)
    machine, world = machine_here(), torch.cuda.device_count()
    for name in names:
        table, _, how = name.partition("@")
        sittings = trials(TABLES[table](world), machine, HOW[how])
        facts = gang.provenance(machine.name)
        with (folder / f"{machine.name}_{name.replace('@', '_')}.jsonl").open("w") as out:
            for found in gang.run(sittings, world, seconds):
                if isinstance(found, str):
                    print("BROKEN", found, flush=True)
                    continue
                measured, samples = found
                if isinstance(measured, Measurement):
                    print(json.dumps(gang.recorded(measured, samples, facts)), file=out, flush=True)
                print(gang.told(measured), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
