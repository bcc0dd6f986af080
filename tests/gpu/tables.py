"""The sessions behind the tables of docs/results/: `python -m tests.gpu.tables OUT_FOLDER SECONDS [TABLE ...]`.

Of each problem three blocks (tests/gpu/sittings.py). Each table's measurements become OUT_FOLDER/MACHINE_TABLE.jsonl, a
recording; SECONDS is the most that one table may take, and what was not measured until then is named. TABLE@latency is
the same with one call in each graph. On two H200s the four tables are expected to take three to six minutes together.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cluster.hosts import local_ranks
from kernels.backends.capabilities import MeasuringRanks
from kernels.fabric import parse
from kernels.machine import Machine, load
from kernels.operators import problem
from kernels.outcome import BLOCK_KIND, Measurement, Outcome, Sample
from kernels.problem import Problem
from kernels.schemes import relay, schedule
from kernels.trial import Protocol, Trial
from tests.gpu import gang, scenarios, sittings, spaces
from tests.gpu.recording import provenance, recorded, told
from tests.gpu.sittings import Axes, Modes, Question, Regimes
from tests.gpu.spaces import Space
from workbench.analysis import under_load

DEVICE = Protocol(name="device", warmups=2, repeats=15, cuda_graph=True, cold_l2=True)
HOW = {"": DEVICE, "latency": replace(DEVICE, name="device_latency", repeats=50, calls_per_graph=1)}
"""How a table is timed, by what stands behind its name's @."""
MACHINES = Path(__file__).parents[2] / "data" / "machines"
LARGEST_BYTES = 4_500_000
"""Of a recording that is to be shipped: the largest has 35 problems, each with all baselines of the GEMMs."""

GEMV_SHAPES = ((4096, 4096), (8192, 8192), (8192, 28672), (16384, 16384))
EMBEDDING_SHAPES = ((16, 4096, 16, 128), (16, 4096, 64, 128), (64, 2048, 32, 128), (16, 8192, 4, 256))
GEMM_SHAPES = ((8192, 4096, 1792), (8192, 7168, 2048), (4096, 4096, 14336), (16384, 4096, 3584), (2048, 4096, 1792))
LLAMA_70B = {"all_gather_gemm": (7168, 8192), "gemm_reduce_scatter": (8192, 7168), "gemm_all_reduce": (8192, 7168)}
MIXTRAL = {"all_to_all_gemm": (14336, 4096)}
TOKENS = (128, 512, 2048, 8192)
RECEIVES = ("all_gather_gemm", "all_to_all_gemm")
NO_SENDERS: Axes = {"comm_sms": 0}
"""Results leave by the SMs that compute them, whether others only send by default or not."""
SMALL_TILES: tuple[Axes, ...] = (
    {"tile": "64x128x64", "num_warps": 4, "num_stages": 4}, {"tile": "64x64x128", "num_warps": 4, "num_stages": 4},
    {"tile": "64x128x128"},
)  # fmt: skip
"""For layers of few tokens, which have fewer usual tiles than a GPU has SMs."""


def gemv(world: int) -> Iterator[Question]:
    """GEMV + all-reduce of 1 to 8 tokens."""
    for n, k in GEMV_SHAPES:
        for tokens in (1, 4, 8):
            shape = {"n": n, "k": k, "tokens": tokens}
            yield Question(problem("gemv_all_reduce", shape, world=world, dtype="bfloat16"), ({"grid": 264},))


def embedding(world: int) -> Iterator[Question]:
    """Pooled lookup + all-to-all, float32, both distributions of indices."""
    for tables, batch, pooling, dim in EMBEDDING_SHAPES:
        for indices in ("uniform", "power_law"):
            shape = {"tables_per_rank": tables, "rows": 100_000, "dim": dim, "batch": batch, "pooling": pooling,
                     "indices": indices}  # fmt: skip
            yield Question(problem("embedding_all_to_all", shape, world=world, dtype="float32"), ())


def gemm(world: int) -> Iterator[Question]:
    """GEMM + all-to-all."""
    fused: tuple[Axes, ...] = ({"store": "registers"}, {"group_rows": 4}, {"slice_tiles": 32}, NO_SENDERS)
    for m, n, k in GEMM_SHAPES:
        yield Question(problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, world=world, dtype="bfloat16"), fused)


def layers(world: int) -> Iterator[Question]:
    """Layers of Llama 3 70B and Mixtral 8x7B, from few tokens to many."""
    for tokens in TOKENS:
        for name, (n, k) in (LLAMA_70B | MIXTRAL).items():
            pushers = (0, 16) if tokens <= TOKENS[1] else (8, 32)
            fused: tuple[Axes, ...] = ({"group_rows": 4},)
            if name in RECEIVES:
                fused = tuple({"comm_sms": count} for count in pushers)
            both = name not in RECEIVES and world <= relay.RANKS_MOST
            fused += SMALL_TILES if tokens <= TOKENS[1] else (NO_SENDERS,) if both else ()
            yield Question(problem(name, {"m": tokens, "n": n, "k": k}, world=world, dtype="bfloat16"), fused)


def short_layers(world: int) -> Iterator[Question]:
    """Those of `layers` that are called once at a time: decoding, and short prompts."""
    yield from (each for each in layers(world) if each.problem["m"] <= TOKENS[1])


def regimes(world: int) -> Iterator[Regimes]:
    """The shapes of docs/results/steady.md, in bursts and under steady load."""
    for operator, shape in under_load.SHAPES:
        yield Regimes(problem(operator, dict(shape), world=world, dtype=under_load.DTYPE))


TABLES: dict[str, Callable[[int], Iterator[Question | Modes | Space | Regimes]]] = {
    "gemv": gemv, "embedding": embedding, "gemm": gemm, "layers": layers, "short_layers": short_layers,
    "pieces": scenarios.questions, "concurrent": scenarios.streams_questions, "regimes": regimes,
    **{f"space_{name}": partial(spaces.question, name) for name in spaces.PROBLEMS},
}  # fmt: skip
USUAL = ("gemv", "embedding", "gemm", "layers", "gemv@latency", "short_layers@latency")
"""What docs/results/ shows."""


@dataclass
class Table:
    """One table on its way: what it asks of the ranks, and what came of each problem."""

    name: str
    questions: Sequence[Question | Modes | Space | Regimes]
    protocol: Protocol
    ranks: MeasuringRanks
    block: str = ""
    """The id of the block that is being measured: its ratios are formed inside it."""
    kind: str = ""
    told: str = ""
    """The block whose devices' conditions are written down."""
    complete: list[Problem] = field(default_factory=list)
    """Problems whose last block has a right baseline and a right fused schedule."""
    begun: str = field(default_factory=lambda: time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))

    def conversation(self) -> gang.Conversation:
        """Problem after problem; says on the screen how long each block took."""
        for number, question in enumerate(self.questions):
            talk, came, blocks, seconds = question.blocks(self.protocol, self.ranks), None, 0, list[float]()
            while (block := answered(talk, came)) is not None:
                blocks += 1
                self.kind, self.block = block.kind, f"{self.name}.{self.begun}.p{number + 1}.{blocks}"
                begin = time.monotonic()
                came = yield sittings.to_json(block)
                seconds.append(time.monotonic() - begin)
                if block.kind == sittings.LAST and sittings.is_complete(came):
                    self.complete.append(question.problem)
            each = " + ".join(f"{took:.1f}" for took in seconds)
            print(f"== {self.name} {words(question.problem)}: {each} s, {blocks} blocks", flush=True)

    def missing(self) -> list[str]:
        """Problems that have no last block, or one without a ratio."""
        return [words(each.problem) for each in self.questions if each.problem not in self.complete]


def answered(talk: sittings.Talk, came: Sequence[Outcome] | None) -> sittings.Block | None:
    """The next block of *talk*, which is sent what the one before came to; None at its end."""
    try:
        return next(talk) if came is None else talk.send(came)
    except StopIteration:
        return None


def words(asked: Problem) -> str:
    return f"{asked.operator} {'x'.join(str(value) for _, value in asked.shape)}"


def trials(
    asked: Sequence[tuple[Problem, str, Axes]], machine: Machine, protocol: Protocol = DEVICE
) -> list[dict[str, Any]]:
    """One whole trial of each problem with its scheme and axes, as a gang takes it."""
    fabric = parse("nvlink")
    return [
        Trial(problem=one, schedule=schedule(one, scheme, dict(axes), machine, fabric), backend="triton",
              machine=machine.name, fabric=fabric, protocol=protocol).to_json()
        for one, scheme, axes in asked
    ]  # fmt: skip


def machine_here() -> Machine:
    """The shipped machine that these GPUs are, or the smallest one with more of them."""
    kind = "h200" if "H200" in torch.cuda.get_device_name(0) else "h100"
    machines = sorted((load(path) for path in MACHINES.glob(f"{kind}_nvl*.toml")), key=lambda each: each.max_world)
    return next(each for each in machines if each.max_world >= torch.cuda.device_count())


def measure(table: Table, path: Path, seconds: float, opened: gang.Opened = gang.gpu_bench) -> bool:
    """*table* into the recording *path* in at most *seconds*; whether all its problems were measured to the end."""
    machine, world = table.ranks.machine, table.questions[0].problem.world
    facts, ran, begin = provenance(machine.name), local_ranks(world, machine.backend), time.monotonic()
    with path.open("w") as out:
        for found in gang.run(table.conversation(), world, seconds, opened):
            if isinstance(found, str):
                print("BROKEN", found, flush=True)
                continue
            keep(table, found, facts, ran, out)
    missing, size = table.missing(), path.stat().st_size
    took = f"{time.monotonic() - begin:.0f} of {seconds:.0f} s, {size} bytes"
    print(f"## {table.name}: {len(table.complete)} of {len(table.questions)} problems, {took}", flush=True)
    if missing:
        print(f"## {table.name} is incomplete. Without a ratio in a last block: {'; '.join(missing)}", flush=True)
    if size > LARGEST_BYTES:
        print(f"## {path.name} has {size} bytes, more than {LARGEST_BYTES}", flush=True)
    return not missing


def keep(table: Table, found: tuple[Outcome, list[Sample]], facts: dict[str, Any], ran: Any, out: Any) -> None:
    """A line of the recording, and one on the screen.

    To keep the file small, spans are those of the last block, and what the devices said in the course of a block stands
    in its first line; under steady load each trial has readings of its own. Facts have the block's kind: the rows of
    docs/results/ are of last blocks.
    """
    measured, samples = found
    print(told(measured), flush=True)
    if isinstance(measured, Measurement):
        shared = table.block == table.told and not measured.trial.protocol.is_steady
        seen = () if shared else measured.conditions
        table.told = table.block
        kept = replace(measured, conditions=seen, facts={**measured.facts, BLOCK_KIND: table.kind})
        line = recorded(kept, samples, facts, block=table.block, ran=ran, with_spans=table.kind == sittings.LAST)
        print(line, file=out, flush=True)


def main() -> int:
    folder, seconds, names = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:] or list(USUAL)
    machine, world = machine_here(), torch.cuda.device_count()
    ranks, complete = MeasuringRanks(machine, parse("nvlink")), True
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        plain, _, how = name.partition("@")
        table = Table(f"{machine.name}_{name.replace('@', '_')}", list(TABLES[plain](world)), HOW[how], ranks)
        complete &= measure(table, folder / f"{table.name}.jsonl", seconds)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
