"""Our GEMM and GEMV alone against cuBLAS on one GPU: `python -m tests.gpu.against_cublas WHAT OUT`.

WHAT is `sweep` (24 shapes with many tiles, stages and steps of the contraction), `gemm` (these shapes and 48 drawn by a
committed seed), `split` (these 72: the default that `gemm` recorded, and the blocks that today's rule weighs, cut or
not), `gemv` (24 drawn, 9 of models and 11 that no block divides), `gemv_sweep` (the same, the first 33 in many blocks)
or `gemv_uneven` (the last 11). OUT is a file of JSON lines, one for each shape, written as soon as it is timed. All
candidates of a shape are verified first, and then timed in turns: a candidate that is wrong is named and has no time.
`defaults` are the 72, each with its default alone, `changed` those whose default is no longer the recorded one, and
`fitted` those for which the rule expects something of tiles that are fitted to waves. These and `split` also count
calls whose bits differ. `phases` stamps the units of some shapes: how long they compute, put sums aside and add. Our
kernel is called by name; nothing is dispatched to a library.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.backends.triton import playground
from kernels.backends.triton.backend import operand_sets
from kernels.backends.triton.kernels.sync import COMPUTED, SENT, STARTED, WORDS
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context, DeviceHeap, private_bytes, shared_bytes
from kernels.backends.triton.recipes import kernel as recipe
from kernels.backends.triton.schemes import fused
from kernels.fabric import parse
from kernels.fitted import is_fitted
from kernels.nvml import Meter
from kernels.operators import problem
from kernels.problem import Problem
from kernels.reference import Operands, bound
from kernels.schedule import Refusal, Schedule, tile
from kernels.schemes import axis_rules, expand, gemm_block, schedule, split_k
from kernels.schemes import fused as fused_scheme
from kernels.schemes.base import default_tile
from tests.gpu import in_turns
from tests.gpu.compiling import by_processes
from tests.gpu.in_turns import TimedCalls
from tests.gpu.recording import provenance, without_who
from workbench.machines import machine

MACHINE = "h200_nvl2"
"""Whose default tiles are the usual ones; an H100 has equally many SMs, and takes the same."""
KNOWN = (
    (128, 7168, 8192), (128, 4096, 14336), (256, 4096, 4096), (256, 7168, 2048), (512, 8192, 7168), (512, 4096, 14336),
    (768, 5120, 5120), (1024, 2048, 7168), (1024, 4096, 8192), (1536, 6144, 4096), (2048, 2048, 8192),
    (6144, 5120, 1536), (2048, 4096, 1792), (2048, 7168, 8192), (2048, 8192, 7168), (3072, 2048, 1536),
    (3072, 1024, 5632), (4096, 4096, 4096), (4096, 768, 4096), (8192, 4096, 1792), (8192, 3200, 5120),
    (8192, 8192, 7168), (12288, 1152, 3584), (16384, 4096, 3584),
)  # fmt: skip
"""m, n, k of 24 layers: twelve where few tiles lost, and twelve of this project's tables."""
GEMV_KNOWN = (
    (4096, 4096, 1), (5120, 13824, 8), (5120, 6912, 8), (7168, 2304, 8), (28672, 8192, 1), (6144, 24576, 2),
    (12288, 12288, 4), (8192, 8192, 8), (7168, 18432, 1),
)  # fmt: skip
"""n, k, tokens of nine layers, of which six lost."""
GEMV_UNEVEN = (
    (8192, 8192, 3), (8192, 8192, 5), (8192, 8192, 6), (8192, 8192, 7), (8191, 8192, 8), (8192, 8184, 8),
    (8192, 8188, 8), (8192, 8190, 8), (8192, 8191, 8), (8192, 8184, 1), (8191, 8191, 1),
)  # fmt: skip
"""Next to 8192x8192 of 8 tokens and of one: other tokens, a row less, and k of 8, 4, 2 and 1 times any number."""
SEED = 20261125
DRAWN = {"gemm": 48, "gemv": 24}
SIDES = {
    "gemm": {"m": (16, 16384), "n": (512, 16384), "k": (512, 16384)},
    "gemv": {"n": (1024, 32768), "k": (1024, 32768)},
}
FLOP_MOST = 2e12
"""Of a drawn GEMM: some milliseconds."""
BEST = 4
"""Candidates of the sweep that are timed again, in bursts and steadily."""
SWEEP_ROUNDS = 4


# Shapes and schedules.


def gemm(m: int, n: int, k: int) -> Problem:
    """The GEMM of one rank."""
    return problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, dtype="bfloat16", world=1)


def gemv(n: int, k: int, tokens: int) -> Problem:
    """The GEMV of one rank."""
    return problem("gemv_all_reduce", {"n": n, "k": k, "tokens": tokens}, dtype="bfloat16", world=1)


def drawn(kind: str) -> list[Problem]:
    """Problems by the committed seed; m of every third GEMM is any number, of the others a power of two."""
    chosen = random.Random(f"{SEED} {kind}")
    made: list[Problem] = []
    while len(made) < DRAWN[kind]:
        sides = {name: _side(chosen, *ends, name != "m") for name, ends in SIDES[kind].items()}
        if kind == "gemv":
            made.append(gemv(**sides, tokens=chosen.choice((1, 2, 4, 8))))
            continue
        if len(made) % 3:
            sides["m"] = 2 ** round(math.log2(sides["m"]))
        if 2.0 * math.prod(sides.values()) <= FLOP_MOST:
            made.append(gemm(**sides))
    return made


def _side(chosen: random.Random, least: int, most: int, is_wide: bool) -> int:
    """As likely near the least as near the most; wide sides are multiples of 128."""
    side = round(math.exp(chosen.uniform(math.log(least), math.log(most))))
    return max(128, round(side / 128) * 128) if is_wide else side


def usual(of: Problem) -> Schedule:
    """The default schedule, which a call with schedule '' gets."""
    return schedule(of, "fused", {}, machine(MACHINE), parse("nvlink"))


def wide(of: Problem) -> Schedule:
    """Tiles of 128 x 256 and three stages, however few they are: the default until 0.1.0."""
    return fused_scheme.alone(of, str(default_tile(of, machine(MACHINE))))


def short(one: Schedule) -> str:
    """The axes that a sweep changes."""
    parts = one.count(axis_rules.SPLIT_K)
    split = "" if parts == axis_rules.WHOLE else f" k/{parts}"
    grid = f" g{one['grid']}" if one.get("grid") and not split else ""
    return f"{one['tile']} s{one['num_stages']} w{one['num_warps']}{split}{grid}"


RECORDED = Path(__file__).parents[2] / "data" / "probes" / "h100_gemm_alone.jsonl"
"""A run of `gemm` before tiles were cut."""
WEIGHED, WEIGHED_EACH = 8, 3
"""Blocks of one shape that `split` times, and most of one tile."""


def recorded() -> dict[tuple[Any, ...], Schedule]:
    """The default schedule of each shape in RECORDED."""
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines()[1:]]
    defaults = [(row, one) for row in rows for one in row["timed"] if one["name"] == row["usual"]]
    axes = {tuple(row["shape"].values()): one["axes"] for row, one in defaults}
    return {shape: Schedule("fused", tuple(named.items())) for shape, named in axes.items()}


def weighed(of: Problem) -> list[Schedule]:
    """Schedules of the blocks that the rule expects to be the fastest, some of each tile."""
    kept: list[gemm_block.GemmBlock] = []
    for block in gemm_block.candidates(of, machine(MACHINE)):
        if sum(block.tile == other.tile for other in kept) < WEIGHED_EACH and len(kept) < WEIGHED:
            kept.append(block)
    return [scheduled(of, block) for block in kept]


def scheduled(of: Problem, block: gemm_block.GemmBlock) -> Schedule:
    """The schedule of *block*."""
    axes = {"tile": str(block.tile), "num_warps": block.warps, "num_stages": block.stages,
            axis_rules.SPLIT_K: block.split, "grid": block.grid}  # fmt: skip
    return schedule(of, "fused", axes, machine(MACHINE), parse("nvlink"))


FITTED_EACH, FITTED_WITHIN = 2, 1.06
"""Fitted tiles of one shape that `fitted` times, and their most time over that of other tiles by the rule."""


def plain_and_fitted(of: Problem) -> list[Schedule]:
    """The default with sides that are powers of two, then fitted tiles that may be faster."""
    weighed_blocks, plain = gemm_block.weighed(of, machine(MACHINE)), gemm_block.usual(of, machine(MACHINE), fits=False)
    assert plain is not None
    most = next(sums[0] for sums, block in weighed_blocks if block == plain) * FITTED_WITHIN
    near = [block for sums, block in weighed_blocks if is_fitted(block.tile) and sums[0] <= most]
    return [scheduled(of, block) for block in (plain, *near[:FITTED_EACH])]


TILES = ("128x256", "256x128", "128x128", "64x256", "128x64", "64x128", "64x64", "32x128", "32x256", "16x128", "16x256")
STEPS, STAGES, WARPS = (64, 128), (3, 4, 5, 6), (4, 8)
SHARED_BYTES = 227 * 1024
"""Of one block of an SM of compute capability 9.0."""
SUMS_MOST = 128
"""Of a thread: with more it spills."""
EIGHT_WARPS_FROM = 64 * 128
"""Results of a tile up to which four warps suffice."""


def swept(of: Problem) -> list[Schedule]:
    """The schedules of the sweep that fit an SM, without tiles that are taller or much lower than *of*'s rows."""
    made, tallest = [], max(16, 1 << (of["m"] - 1).bit_length())
    for name in TILES:
        size = tile(f"{name}x64")
        if size.m > tallest or size.m < min(64, tallest):
            continue
        choices = ((step, stages, warps) for step in STEPS for stages in STAGES for warps in WARPS)
        for step, stages, warps in choices:
            operands, results = (size.m + size.n) * step * 2 * stages, size.m * size.n
            if operands + 2 * results > SHARED_BYTES or results / (32 * warps) > SUMS_MOST:
                continue
            if warps == max(WARPS) and results <= EIGHT_WARPS_FROM:
                continue
            made.append(changed(wide(of), tile=f"{name}x{step}", num_stages=stages, num_warps=warps))
    return made


ONE_TOKEN = (
    (4, 2048, 3, 4, 0), (8, 512, 4, 2, 0), (8, 1024, 3, 4, 0), (8, 1024, 4, 4, 0), (8, 1024, 3, 4, 264),
    (8, 2048, 3, 4, 0), (16, 512, 3, 4, 0), (16, 512, 4, 4, 0), (16, 1024, 3, 4, 0), (32, 256, 3, 4, 0),
    (32, 512, 3, 4, 0), (64, 256, 3, 4, 0),
)  # fmt: skip
"""Rows, step of the contraction, stages, warps, grid: from 8 to 64 KiB in flight for a block."""
FEW_TOKENS = (
    (16, 256, 4, 1, 0), (16, 256, 5, 1, 0), (16, 512, 4, 1, 0), (16, 512, 3, 2, 0), (16, 512, 4, 2, 0),
    (16, 1024, 3, 2, 0), (16, 1024, 3, 4, 0), (32, 256, 4, 2, 0), (32, 512, 3, 2, 0), (32, 512, 4, 4, 0),
    (64, 256, 3, 4, 0), (64, 256, 4, 4, 0),
)  # fmt: skip
"""As ONE_TOKEN. Fewer rows have more blocks, more rows read the tokens less often; two warps of 16 rows repeat."""


NARROW_LOADS = (
    (16, 256, 3, 4, 0), (16, 256, 4, 4, 0), (32, 256, 3, 4, 0), (32, 256, 3, 8, 0), (16, 512, 3, 8, 0),
    (16, 128, 4, 2, 0),
)  # fmt: skip
"""As ONE_TOKEN, where rows are no multiples of 16 bytes: few pieces for each thread."""

Block = tuple[int, int, int, int, int]


def gemv_blocks(of: Problem, one_token: Iterable[Block], few_tokens: Iterable[Block]) -> list[Schedule]:
    """The schedules of *of* in the blocks of its number of tokens."""
    columns = 1 << (of["tokens"] - 1).bit_length()
    return [
        changed(usual(of), tile=f"{rows}x{columns}x{step}", num_stages=stages, num_warps=warps, grid=grid)
        for rows, step, stages, warps, grid in (one_token if columns == 1 else few_tokens)
    ]


def changed(schedule: Schedule, **values: Any) -> Schedule:
    """*schedule* with other values for some axes."""
    return replace(schedule, axes=tuple((name, values.get(name, value)) for name, value in schedule.axes))


# Compilation.


def compile_all(wanted: Iterable[tuple[Problem, Schedule]]) -> None:
    """Has what is *wanted* compiled, each kernel once."""
    different = {recipe(of).compilations(of, one, alone=True): (of, one) for of, one in wanted}
    by_processes(_compile, list(different.values()))


def _compile(queue: Sequence[tuple[Problem, Schedule]]) -> None:
    playground.take(0, 1)
    torch.cuda.set_device(0)
    for of, one in queue:
        try:
            RankAlone(of).kernel(one, operands_of(of, cold=False)[0]).compiled()
        except Exception as error:  # met again when it is timed, and named there
            print("not compiled:", of, short(one), str(error)[-200:], flush=True)


# One shape on one GPU.


def operands_of(of: Problem, *, cold: bool = True) -> list[Operands]:
    """Operand sets of rank 0, so many that none is still in the L2."""
    return operand_sets(of, 0, torch.device("cuda", 0), seed=SEED, cold=cold)


class RankAlone:
    """What our kernels need beside operands, for one problem of one rank."""

    def __init__(self, of: Problem) -> None:
        self.of, self.device = of, torch.device("cuda", 0)
        self._contexts: dict[Schedule, Context] = {}

    def context(self, schedule: Schedule) -> Context:
        """Signals and results of *schedule*: each schedule has its own result, so that none passes for another's."""
        if schedule not in self._contexts:
            plan = expand(self.of, schedule)
            start = shared_bytes(plan)
            heap = DeviceHeap(None, self.device, start + private_bytes(plan, 0))
            self._contexts[schedule] = Context(heap, plan, 0, self.device, start=start, limit_s=10.0)
        return self._contexts[schedule]

    def kernel(self, schedule: Schedule, operands: Operands) -> LaunchableKernel:
        """Our kernel of *schedule*, alone."""
        return fused.kernel(self.context(schedule), operands, alone=True)

    def calls(self, schedule: Schedule | None, sets: Sequence[Operands]) -> tuple[list[Callable[[], Any]], Tensor]:
        """One call for each of *sets*, and where results go; without a *schedule* cuBLAS's."""
        if schedule is not None:
            made = [self.kernel(schedule, each) for each in sets]
            return list(fused.launches(made)), self.context(schedule).local
        left, right = sets[0].values()
        result = torch.empty(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)
        return [_library(each, result) for each in sets], result


def _library(operands: Operands, result: Tensor) -> Callable[[], Any]:
    left, right = operands.values()
    return lambda: torch.mm(left, right, out=result)


ROWS_AT_ONCE = 2048
"""Of a reference in float64."""


def trouble(of: Problem, call: Callable[[], Any], result: Tensor, operands: Operands) -> str:
    """Why what *call* computes is not what float64 does, or not the same twice; or ''."""
    first = None
    for _ in range(2):
        result.fill_(float("nan"))
        call()
        torch.cuda.synchronize()
        if first is not None and not torch.equal(first.view(torch.int16), result.view(torch.int16)):
            return "other bits in a second call"
        first = result.clone()
    left, right = operands.values()
    worst, square, count = 0.0, 0.0, 0
    for row in range(0, left.shape[0], ROWS_AT_ONCE):
        rows = slice(row, row + ROWS_AT_ONCE)
        truth = left[rows].double() @ right.double()
        difference = result[rows].double() - truth
        if bool(torch.isnan(difference).any()):
            return "NaN in the result"
        worst = max(worst, float(difference.abs().max()))
        square, count = square + float(truth.square().sum()), count + truth.numel()
    most = bound(of, 1) * math.sqrt(square / count)
    return "" if worst <= most else f"wrong: {worst:.3g} > {most:.3g}"


def prepared(of: Problem, candidates: Iterable[Schedule | None], sets: Sequence[Operands]) -> Iterator[TimedCalls]:
    """The calls of each schedule that is right, captured."""
    rank, stream = RankAlone(of), torch.cuda.Stream()
    barrier = rank.context(usual(of))
    for one in candidates:
        name = "cublas" if one is None else short(one)
        try:
            calls, result = rank.calls(one, sets)
        except Refusal as refusal:
            print(of, name, "refused:", str(refusal)[:150], flush=True)
            continue
        if reason := trouble(of, calls[0], result, sets[0]):
            print(of, name, reason, flush=True)
            continue
        axes = {} if one is None else dict(one.axes)
        yield in_turns.captured(name, barrier, calls, stream, {"axes": axes})


CALLS = 1000


def differing(calls: Sequence[Callable[[], Any]], result: Tensor) -> int:
    """In how many of CALLS further calls any bit of *result* differs from that of the first one, on one set."""
    calls[0]()
    first, count = result.view(torch.int16).clone(), torch.zeros((), dtype=torch.int64, device=result.device)
    for _ in range(CALLS):
        calls[0]()
        count += (result.view(torch.int16) != first).any()
    return int(count)


def with_bits(of: Problem, row: dict[str, Any]) -> dict[str, Any]:
    """*row* with how many of CALLS calls of its usual schedule had other bits than the first."""
    calls, result = RankAlone(of).calls(usual(of), operands_of(of, cold=False)[:1])
    said = {"schedule": row["usual"], "calls": CALLS, "other": differing(calls, result)}
    return row | {"calls_with_other_bits": said}


PHASED = ((1536, 6144, 4096), (3072, 1024, 5632), (8192, 3200, 5120), (128, 1024, 13184))
STAMPED_CALLS = 3


def phases(of: Problem, one: Schedule, sets: Sequence[Operands]) -> dict[str, Any]:
    """Medians and maxima in us of the last of some stamped calls: whole tiles, and units by what they do."""
    rank, plan = RankAlone(of), expand(of, one)
    kernel = rank.kernel(one, sets[0])
    stamps = torch.zeros(kernel.records, WORDS.value, dtype=torch.int64, device=rank.device)
    for each in (sets * STAMPED_CALLS)[:STAMPED_CALLS]:
        rank.kernel(one, each).stamped(stamps).launcher()()
    torch.cuda.synchronize()
    cut, words = split_k.of(of, one), stamps.cpu().numpy()
    assert cut is not None
    first, units = 2 * len(plan.tiles[0]), len(cut.tile)
    at, sums = first + np.arange(units), first + units + np.arange(len(cut.add_tile))
    begun, computed, left = (words[:, column.value] for column in (STARTED, COMPUTED, SENT))
    whole = np.arange(cut.count, len(plan.tiles[0]))
    spans = {"unit": (computed - begun)[at], "put_aside": (left - computed)[at], "add": (left - begun)[sums],
             "units_end": left[at] - begun[at].min(), "sums_end": left[sums] - begun[at].min(),
             "whole": (left - begun)[whole], "end": left[left > 0] - begun[at].min()}  # fmt: skip
    return {"shape": dict(of.shape), "schedule": short(one), "units": units,
            "us": {name: [round(float(np.median(each)) / 1e3, 2), round(float(each.max()) / 1e3, 2)]
                   for name, each in spans.items() if len(each)}}  # fmt: skip


def all_phases() -> Iterator[dict[str, Any]]:
    """Phases of the cut blocks that the rule weighs first for PHASED."""
    for of in (gemm(*sides) for sides in PHASED):
        cut = [one for one in weighed(of) if one[axis_rules.SPLIT_K] != axis_rules.WHOLE]
        for one in cut[:2]:
            yield phases(of, one, operands_of(of))


def measured(of: Problem, schedules: Sequence[Schedule], meter: Meter) -> dict[str, Any]:
    """The row of one shape: cuBLAS and *schedules*; of many the best few are timed again."""
    sets = operands_of(of)
    timed = list(prepared(of, [None, *dict.fromkeys(schedules)], sets))
    sweep: list[dict[str, Any]] = []
    if len(timed) > 3 + BEST:
        in_turns.time_bursts(timed, SWEEP_ROUNDS)
        sweep = [{"name": one.name, "burst": in_turns.in_us(one.burst)} for one in timed]
        kept = {"cublas", *(short(one) for one in schedules[:2])}
        others = sorted((one for one in timed if one.name not in kept), key=lambda one: median(one.burst))
        timed = [*(one for one in timed if one.name in kept), *others[:BEST]]
        for one in timed:
            one.burst.clear()
    in_turns.time_bursts(timed)
    rested = without_who(meter.read())
    loaded = in_turns.time_steadily(timed, meter)
    return {"operator": of.operator, "shape": dict(of.shape), "sets": len(sets),
            "usual": short(usual(of)), "wide": short(wide(of)), "timed": [one.row() for one in timed],
            "swept": sweep, "rested": rested, "loaded": loaded}  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """What a person reads of a row: times in bursts / steadily, and ratios to cuBLAS."""
    shape = "x".join(map(str, row["shape"].values()))
    library, *ours = row["timed"]
    texts = [f"cublas {library['burst'][1]:.1f}/{library['steady'][1]:.1f}"]
    for one in ours:
        burst, steady = one["burst"][1], one["steady"][1]
        ratios = f"{burst / library['burst'][1]:.2f}/{steady / library['steady'][1]:.2f}"
        texts.append(f"{one['name']}{'*' if one['name'] == row['usual'] else ''} {burst:.1f}/{steady:.1f} ({ratios})")
    return f"{shape:18} {row['loaded'].get('sm_clock_mhz')} MHz  " + " · ".join(texts)


def gemv_shapes(what: str) -> Iterator[tuple[Problem, list[Schedule]]]:
    """The GEMVs of *what*, each with the blocks that are timed in addition to the default."""
    known = [gemv(*sides) for sides in GEMV_KNOWN]
    for of in (*drawn("gemv"), *known) if what != "gemv_uneven" else ():
        yield of, gemv_blocks(of, ONE_TOKEN, FEW_TOKENS) if what == "gemv_sweep" else []
    for of in (gemv(*sides) for sides in GEMV_UNEVEN):
        yield of, gemv_blocks(of, (), NARROW_LOADS) if of["k"] % 8 else []


COUNTED = ("split", "changed", "fitted", "defaults")
"""What also counts calls whose bits differ."""


def main(what: str, out: Path) -> None:
    """Compiles, then times shape after shape."""
    if what == "phases":
        with out.open("w") as file:
            for row in all_phases():
                print(json.dumps(row), file=file, flush=True)
                print(row, flush=True)
        return
    shapes = [gemm(*sides) for sides in KNOWN]
    shapes += drawn("gemm") if what in ("gemm", *COUNTED) else []
    by_shape = {of: [usual(of), wide(of), *(swept(of) if what == "sweep" else ())] for of in shapes}
    if what == "defaults":
        by_shape = {of: [usual(of)] for of in shapes}
    if what.startswith("gemv"):
        by_shape = {of: [usual(of), wide(of), *others] for of, others in gemv_shapes(what)}
    if what == "changed":
        before = recorded()
        by_shape = {of: [usual(of), before[tuple(dict(of.shape).values())]] for of in shapes}
        by_shape = {of: [*both, *weighed(of)[:3]] for of, both in by_shape.items() if short(both[0]) != short(both[1])}
    if what == "split":
        before = recorded()
        by_shape = {of: [usual(of), before[tuple(dict(of.shape).values())], *weighed(of)] for of in shapes}
    if what == "fitted":
        long = [of for of in shapes if gemm_block.weighed(of, machine(MACHINE))[0][0][0] >= gemm_block.FITTED_FROM]
        by_shape = {of: [usual(of), *each] for of in long if len(each := plain_and_fitted(of)) > 1}
    compile_all((of, one) for of, schedules in by_shape.items() for one in schedules)
    meter = in_turns.meter()
    facts = provenance(MACHINE) | {"launched_by": f"tests/gpu/against_cublas.py {what}, one process"}
    with out.open("w") as file:
        print(json.dumps({"provenance": facts, "seed": SEED, "protocol": in_turns.PROTOCOL}), file=file)
        for of, schedules in by_shape.items():
            row = measured(of, schedules, meter)
            row = with_bits(of, row) if what in COUNTED else row
            if what in ("split", "changed", "fitted"):
                row |= {"before": short(schedules[1])}
            print(json.dumps(row, separators=(",", ":")), file=file, flush=True)
            print(line(row), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
