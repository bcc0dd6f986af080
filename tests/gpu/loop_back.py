"""What the protocol costs without a wire: `python -m tests.gpu.loop_back OUT [many | packets]` on one GPU.

Every fused operator runs in worlds of 2, 4 and 8. With `many` they are MANY, most of them in worlds of 8; with
`packets` FEW_BYTES in those worlds, whose sums leave in packets, and then again with signals.

In a loop-back world a rank's peers are itself: what it puts to peer p lands where p's put to it would, and raises the
counter that p would raise. Dependencies, bytes and tables are those of a symmetric call, and every wait is met by the
same kernel. So T_loop - max(T_alone, T_put) is what credits, signals, waits and epilogues add: T_alone is the
computation of the same schedule alone, T_put a kernel that stores the bytes that leave into own memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton.backend import operand_sets
from kernels.backends.triton.collectives import RowLayout, put_kernel
from kernels.backends.triton.memory import Context, DeviceHeap, private_bytes, shared_bytes
from kernels.backends.triton.schemes import fused
from kernels.fabric import parse
from kernels.nvml import Meter
from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow, ResultLayout
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands, partial, roundings, verdict
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import axis_rules, expand, schedule
from kernels.schemes.base import default_tile
from kernels.schemes.fused import slice_rows
from tests.gpu import in_turns
from tests.gpu.in_turns import TimedCalls
from tests.gpu.recording import provenance, without_who
from workbench.machines import machine

MACHINES = {2: "h200_nvl2", 4: "h200_nvl4", 8: "h200_nvl8"}
"""By world, whose default schedules are taken."""
SEED, LIMIT_S = 20261125, 2.0
GEMMS = ("gemm_all_to_all", "all_gather_gemm", "all_to_all_gemm", "gemm_reduce_scatter", "gemm_all_reduce")
SHAPES: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    **{name: ("bfloat16", ({"m": 128, "n": 7168, "k": 8192}, {"m": 2048, "n": 4096, "k": 4096},
                           {"m": 8192, "n": 4096, "k": 1792}))
       for name in GEMMS},
    "gemv_all_reduce": ("bfloat16", ({"n": 8192, "k": 2048, "tokens": 1}, {"n": 8192, "k": 8192, "tokens": 1})),
    "embedding_all_to_all": ("float32", (
        {"tables_per_rank": 16, "rows": 100_000, "dim": 128, "batch": 4096, "pooling": 16},
        {"tables_per_rank": 4, "rows": 100_000, "dim": 64, "batch": 2048, "pooling": 4})),
}  # fmt: skip


FEW_ROWS, SOME_ROWS = {"m": 128, "n": 7168, "k": 8192}, {"m": 512, "n": 8192, "k": 7168}
FEW_TILES = tuple({"m": m, "n": n, "k": k} for m, n, k in ((64, 2048, 8192), (128, 1024, 13184), (64, 4096, 14336)))
"""Fewer tiles than SMs, and long contractions: cut by default."""
MANY: tuple[tuple[str, dict[str, Any], int], ...] = (
    *((name, FEW_ROWS, world) for world in (2, 4, 8) for name in GEMMS),
    *((name, SOME_ROWS, world) for world in (2, 8) for name in GEMMS),
    *((name, shape, 2) for shape in FEW_TILES for name in ("gemm_reduce_scatter", "gemm_all_reduce")),
    ("gemm_all_reduce", FEW_TILES[0], 8),
    ("gemm_all_to_all", FEW_TILES[1], 8),
    ("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}, 8),
    *(("embedding_all_to_all", shape, 8) for shape in SHAPES["embedding_all_to_all"][1]),
)  # fmt: skip
"""Operator, shape and world of calls in which signals and waits are a large part."""
FEW_BYTES = tuple({"m": m, "n": n, "k": k} for m, n, k in ((64, 2048, 8192), (32, 4096, 8192), (16, 8192, 4096)))
"""256 KB of results: the first ones' tiles are cut, and are no more than SMs."""


class LoopBackContext(Context):
    """The context of rank 0, whose peers' tensors are views of its own: shifted so that a put lands where theirs would.

    Only one shot of a GEMV's packets can be looped back: the sums of the second one lie in rows of another rank. Those
    of a GEMM have slots of their own.
    """

    def of(self, rank: int, name: str) -> Tensor:
        """Tensor *name* of *rank*, at the place of own memory where what *rank* puts would lie."""
        if rank == self.rank:
            return super().of(rank, name)
        region, dtype = self.places[name]
        shift = rank * self._step(name) * dtype.itemsize
        return self.heap.tensor(self.rank, region.offset + shift, region.shape, dtype)

    def _step(self, name: str) -> int:
        """Elements from where one rank's puts lie to where the next one's do."""
        operator, extent = OPERATORS[self.problem.operator], OPERATORS[self.problem.operator].extent(self.problem)
        chunk = operator.chunk_rows(self.problem)
        match name:
            case "credits" | "done" | "meet":
                return 1
            case "counters" if axis_rules.spans_ranks(self.plan.schedule):
                return len(self.plan.tiles[0])
            case "out" if axis_rules.sums_in_ring(self.plan.schedule):
                return 0  # this rank is every owner: each tile of its result gets a part for each of them
            case "landed":
                rows, columns = axis_rules.landed(self.problem)
                return rows // self.world * columns
            case "counters":
                return len(slice_rows(self.problem, self.plan.schedule)) if operator.flow is Flow.RECEIVE else 0
            case "packets":
                return self.places[name][0].shape[-1]
            case "operand" | "staging":
                return chunk * extent.contraction
            case _ if operator.layout is ResultLayout.COLUMNS:
                return extent.columns
        return chunk * extent.columns


def looped_back(of: Problem, plan_of: Schedule) -> LoopBackContext:
    """Memory and signals of rank 0 of *of*, and as much memory again behind them for shifted views."""
    plan, device = expand(of, plan_of), torch.device("cuda", 0)
    start = shared_bytes(plan)
    used = start + private_bytes(plan, 0)
    return LoopBackContext(DeviceHeap(None, device, 3 * used), plan, 0, device, start=start, limit_s=LIMIT_S)


def default_schedule(of: Problem, **values: Value) -> Schedule:
    """The default fused schedule of *of*, with one shot, and with *values*."""
    one_shot: dict[str, Value] = {axis_rules.SHOTS: 1} if of.operator in axis_rules.SENT_IN_PACKETS else {}
    return schedule(of, "fused", {**one_shot, **values}, machine(MACHINES[of.world]), parse("nvlink"))


def schedules(of: Problem) -> list[Schedule]:
    """The default, and for GEMMs the one with tiles of 128 x 256 and three stages, the default until 0.1.0."""
    usual = default_schedule(of)
    if OPERATORS[of.operator].work != "gemm":
        return [usual]
    size = str(default_tile(of, machine(MACHINES[of.world])))
    return list(dict.fromkeys([usual, default_schedule(of, tile=size, num_stages=3, num_warps=8)]))


# What a call has to leave in a world whose ranks are all the same.


def truth(plan: Plan, operands: Operands) -> Tensor:
    """float64: this rank's output where every peer sends what this rank sends to it."""
    of = plan.problem
    operator, world = OPERATORS[of.operator], of.world
    one_shot = axis_rules.spans_ranks(plan.schedule) and axis_rules.spans_in_one_shot(of)
    if operator.flow is Flow.RECEIVE:
        first, weights = operands.values()
        rows = first.double() @ weights.double()
        return rows.repeat(world, 1) if "shard" in operands else rows
    whole = partial(of, operands, slice(None))
    if operator.work == "gemv" or one_shot:
        return whole * world
    chunks = whole.view(world, -1, whole.shape[-1])
    if operator.flow is Flow.BROADCAST:
        return chunks.sum(0).repeat(world, 1)
    if operator.reduces:
        return chunks.sum(0)
    return torch.cat(list(chunks), dim=1) if operator.layout is ResultLayout.COLUMNS else whole


def trouble(context: Context, call: Callable[[], Any], expected: Tensor) -> str:
    """Why three calls on poisoned results do not leave *expected*, or ''."""
    for _ in range(3):
        context.result().fill_(float("nan"))
        call()
        if context.device.type == "cuda":
            torch.cuda.synchronize()
        if sentence := context.failure():
            return sentence
        result = context.result()
        judged = verdict(context.problem, result, expected.view(result.shape), roundings(context.plan))
        if not judged.correct:
            return judged.message(0)
    return ""


# The three times.


def put_of(context: Context) -> Callable[[], None]:
    """A call of our put kernel that stores as many bytes as leave rank 0 into own memory."""
    rows = max(1, context.plan.wire_bytes(0) // (WIDTH * context.dtype.itemsize))
    target = torch.empty(rows, WIDTH, dtype=context.dtype, device=context.device)
    source = torch.randn_like(target)
    where = RowLayout(source=source, source_step=0, target="out", target_step=0, target_stride=WIDTH, rows=rows,
                      width=WIDTH)  # fmt: skip
    launch = replace(put_kernel(_TargetContext(context, target), where), concurrent=True).launcher()

    def call(kept: Tensor = target) -> None:  # the kernel knows only its address
        launch()

    return call


class _TargetContext(Context):
    """*context* in a world of one, whose tensors are all *target*."""

    def __init__(self, context: Context, target: Tensor) -> None:
        self.__dict__.update(context.__dict__)
        self.world, self._target = 1, target

    def of(self, rank: int, name: str) -> Tensor:
        return self._target


WIDTH = 4096
"""Elements of a row that the put stores."""


def timed(context: LoopBackContext, sets: Sequence[Operands]) -> Iterator[TimedCalls]:
    """The call in a loop-back world, the computation alone, and the put alone; ValueError where a call is wrong."""
    of, stream = context.problem, torch.cuda.Stream()
    loop = list(fused.launches([fused.kernel(context, each) for each in sets]))
    if reason := trouble(context, loop[0], truth(context.plan, sets[0])):
        raise ValueError(reason)
    other = looped_back(of, context.plan.schedule)  # a computation alone counts its calls in the epoch, too
    alone = list(fused.launches([fused.kernel(other, each, alone=True) for each in sets]))
    for name, calls in (("loop", loop), ("alone", alone), ("put", [put_of(other)] * len(sets))):
        yield in_turns.captured(name, other, calls, stream)


def overhead_us(row: dict[str, Any], kind: str) -> float:
    """T_loop - max(T_alone, T_put), of medians."""
    medians = {one["name"]: one[kind][1] for one in row["timed"]}
    return round(medians["loop"] - max(medians["alone"], medians["put"]), 2)


def measured(of: Problem, one: Schedule, meter: Meter) -> dict[str, Any]:
    """The row of one schedule; Refusal or ValueError where it cannot be timed."""
    sets = operand_sets(of, 0, torch.device("cuda", 0), seed=SEED)
    context = looped_back(of, one)
    row = row_of(of, one, len(sets), list(timed(context, sets)), meter)
    if sentence := context.failure():
        raise ValueError(sentence)
    row["bytes"] = context.plan.wire_bytes(0)
    return row | {f"overhead_{kind}_us": overhead_us(row, kind) for kind in ("burst", "steady")}


def row_of(of: Problem, one: Schedule, sets: int, calls: Sequence[TimedCalls], meter: Meter) -> dict[str, Any]:
    """The times of *calls* in turns, in bursts and then steadily, with what they are of."""
    in_turns.time_bursts(calls)
    rested = without_who(meter.read())
    loaded = in_turns.time_steadily(calls, meter)
    return {"operator": of.operator, "shape": dict(of.shape), "world": of.world, "axes": dict(one.axes), "sets": sets,
            "timed": [each.row() for each in calls], "rested": rested, "loaded": loaded}  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """What a person reads of a row: times in bursts / steadily, in us."""
    sizes = "x".join(map(str, row["shape"].values()))
    times = " ".join(f"{each['name']} {each['burst'][1]:.1f}/{each['steady'][1]:.1f}" for each in row["timed"])
    known = "overhead_burst_us" in row
    overhead = f"  overhead {row['overhead_burst_us']}/{row['overhead_steady_us']} us" if known else ""
    way = row["axes"].get("store", "")
    return f"w{row['world']} {row['operator']:20} {sizes:18} {row['axes']['tile']:11} {way:9} {times}{overhead}"


def every(what: str) -> list[tuple[Problem, Schedule]]:
    """What is measured: MANY with their default schedules, FEW_BYTES in two ways, or every operator in every world."""
    if what == "packets":
        few = [problem(name, shape, dtype=SHAPES[name][0], world=world) for world in MACHINES
               for shape in FEW_BYTES for name in ("gemm_reduce_scatter", "gemm_all_reduce")]  # fmt: skip
        ways = (axis_rules.PACKETS, axis_rules.REGISTERS)
        return [(each, default_schedule(each, store=way)) for each in few for way in ways]
    if what == "many":
        chosen = [problem(name, shape, dtype=SHAPES[name][0], world=world) for name, shape, world in MANY]
        return [(each, default_schedule(each)) for each in chosen]
    problems = [problem(name, shape, dtype=dtype, world=world)
                for name, (dtype, shapes) in SHAPES.items() for shape in shapes for world in MACHINES]  # fmt: skip
    return [(each, one) for each in problems for one in schedules(each)]


def write_rows(
    out: Path, launched_by: str, trials: Sequence[tuple[Problem, Schedule]],
    row: Callable[[Problem, Schedule, Meter], dict[str, Any]],
) -> None:  # fmt: skip
    """Measures row after row, each written as soon as it is there; one that cannot be timed is only printed."""
    meter, facts = in_turns.meter(), provenance("h200_nvl2") | {"launched_by": launched_by}
    with out.open("w") as file:
        print(json.dumps({"provenance": facts, "seed": SEED, "protocol": in_turns.PROTOCOL}), file=file)
        for of, one in trials:
            try:
                made = row(of, one, meter)
            except (Refusal, ValueError) as error:
                print(f"w{of.world} {of.operator} {dict(of.shape)} {one}: {error}", flush=True)
                continue
            print(json.dumps(made, separators=(",", ":")), file=file, flush=True)
            print(line(made), flush=True)
            torch.cuda.empty_cache()


def main(out: Path, what: str = "") -> None:
    write_rows(out, "tests/gpu/loop_back.py, one process, peers are own memory", every(what), measured)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
