"""What our kernels wait for on an SM, fitted to computations alone: `python -m tests.gpu.alone_fit [gemv]`.

It prints values that go into the machine's file by hand, with their source. One value after the other is moved while
the mean error of what is not held out falls. Those of GEMMs are fitted to recorded computations, drawn ones and those
of the tables; those of GEMVs of 2 to 8 tokens to a sweep of one H100, whose SMs an H200 has, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import operator, problem
from kernels.schedule import Schedule, tile
from kernels.trial import PROTOCOLS, Trial
from workbench.analysis.accuracy import CLOSE
from workbench.machines import machine
from workbench.machines.calibrate_gpu import held_out
from workbench.results import recordings
from workbench.simulator.predict import predict

NAME = "h200_nvl2"
FITTED = ("device.load_latency_seconds", "device.shared_bytes_per_second",
          "device.short_bytes_per_second", "device.results_bytes_per_second", "costs.own_kernel_seconds")  # fmt: skip
STEPS = (0.3, 0.1, 0.03, 0.01)
"""A value is moved by so much of itself, up and down, as long as that helps; then by less."""
ROUNDS = 3
Row = tuple[Trial, float]


def rows() -> list[Row]:
    """Computations of our GEMM with their seconds: drawn ones, and the last of each of the tables."""
    made: dict[str, Row] = {}
    for name in recordings.paths():
        if name.startswith(f"{NAME}_") and "latency" not in name:
            for one in recordings.recordings(name):
                if _is_ours(one.measurement.trial):
                    made[one.measurement.trial.key] = (one.measurement.trial, one.measurement.time_s)
    return list(made.values())


def _is_ours(one: Trial) -> bool:
    """Whether nobody else computed, or sent beside it."""
    axes = dict(one.schedule.axes)
    ours = one.schedule.scheme == "fused" or axes.get("kernel") == "ours"
    alone = one.part == "compute" and operator(one.problem.operator).work == "gemm" and not axes.get("comm_sms")
    return ours and alone and one.schedule.scheme != "concurrent"


def errors_of(on: Machine, of: Sequence[Row]) -> np.ndarray:
    """Estimated over measured, less 1."""
    return np.array([predict(one, on, with_spans=False).time_s / seconds - 1 for one, seconds in of])


def fitted(on: Machine, of: Sequence[Row], keys: Sequence[str] = FITTED) -> Machine:
    """*on* with the values of *keys* at which the mean error of *of* is least, as far as one at a time finds it."""
    best, least = on, _mean(on, of)
    for step in [each for each in STEPS for _ in range(ROUNDS)]:
        for key in keys:
            for factor in (1 + step, 1 / (1 + step)):
                while (error := _mean(moved := with_value(best, key, value(best, key) * factor), of)) < least:
                    best, least = moved, error
        print(f"{step:.0%}: {least:.2%}", flush=True)
    return best


def _mean(on: Machine, of: Sequence[Row]) -> float:
    return float(np.mean(np.abs(np.log1p(errors_of(on, of)))))


def value(of: Machine, key: str) -> float:
    """A number of a machine by its name in the file."""
    part, name, *inside = key.split(".")
    number = getattr(getattr(of, part), name)
    return float(number[inside[0]] if inside else number)


def with_value(of: Machine, key: str, number: float) -> Machine:
    """The machine with another one."""
    part, name, *inside = key.split(".")
    whole = getattr(of, part)
    changed = {**getattr(whole, name), inside[0]: number} if inside else number
    return replace(of, **{part: replace(whole, **{name: changed})})


def told(on: Machine, of: Sequence[Row]) -> Iterator[str]:
    """How far *on* is off, by what was recorded."""
    for drawn, held in product((True, False), (False, True)):
        some = [row for row in of if held_out(row[0].problem) == held and (row[0].problem.world == 1) == drawn]
        if not some:
            continue
        off = np.abs(errors_of(on, some))
        yield (f"{'drawn' if drawn else 'tables'}, {'held out' if held else 'fitted'}: {len(off)}, "
               f"median {np.median(off):.1%}, p90 {np.quantile(off, 0.9):.1%}")  # fmt: skip


# GEMVs of several tokens.

SWEEP = Path(__file__).parents[2] / "data" / "probes" / "h100_gemv_sweep.jsonl"
SWEPT_ON = "h100_nvl2"
TOKENS = 2.0, 4.0, 8.0
EVEN = 8
"""Rows of the contraction that are multiples of this come as 16 bytes at once."""


def gemv_rows() -> list[Row]:
    """Each block of several tokens in SWEEP, by its last burst, with its seconds."""
    made: dict[str, Row] = {}
    for line in SWEEP.read_text().splitlines()[1:]:
        swept = json.loads(line)
        of = problem("gemv_all_reduce", swept["shape"], dtype="bfloat16", world=1)
        if of["tokens"] == 1 or of["k"] % EVEN:
            continue
        for block in (*swept["swept"], *swept["timed"]):
            if block["name"] != "cublas" and " w1" not in block["name"]:  # no schedule has one warp
                trial = Trial(problem=of, schedule=_block(block["name"]), backend="triton", machine=SWEPT_ON,
                              fabric=parse("nvlink"), protocol=PROTOCOLS["default"], part="compute")  # fmt: skip
                made[trial.key] = (trial, block["burst"][1] / 1e6)
    return list(made.values())


def _block(name: str) -> Schedule:
    """The schedule that `against_cublas.short` calls *name*."""
    size, stages, warps, *grid = name.split()
    return Schedule("fused", (("tile", size), ("num_warps", int(warps[1:])), ("num_stages", int(stages[1:])),
                              ("tile_order", "rotated"), ("grid", int(grid[0][1:]) if grid else 0)))  # fmt: skip


def streaming(on: Machine, of: Machine) -> Machine:
    """*on* with the waits of the blocks of *of*, and several tokens at the memory speed of one, which has a curve."""
    kept = [rate for rate in on.rates if rate.work != "own_gemv" or rate.width <= 1]
    wide = [replace(rate, size=int(rate.size * width), per_second=rate.per_second * width, width=width)
            for rate in kept if rate.work == "own_gemv" for width in TOKENS]  # fmt: skip
    waits = {name: getattr(of.device, name) for name in ("gemv_step", "few_tokens_step", "limits",
                                                         "shared_memory_per_slot_bytes")}  # fmt: skip
    return replace(on, rates=(*kept, *wide), device=replace(on.device, **waits))


def main(what: str = "gemm") -> None:
    """Fits, and prints values and errors."""
    known, start, keys = rows(), machine(NAME), FITTED
    if what == "gemv":
        known, start = gemv_rows(), streaming(machine(SWEPT_ON), start)
        keys = tuple(f"device.few_tokens_step.{name}" for name in start.device.few_tokens_step)
    best = fitted(start, [row for row in known if not held_out(row[0].problem)], keys)
    for key in keys:
        print(f"{key.rpartition('.')[2]} = {value(best, key):.4g}")
    print(*told(best, known), sep="\n")


# How far estimates of computations alone are off, as documents say it: by what one waits for, fitted and held out.


def _is(work: str) -> Callable[[Trial], bool]:
    return lambda one: operator(one.problem.operator).work == work


def _is_short_tile(one: Trial) -> bool:
    return _is("gemm")(one) and tile(one.schedule["tile"]).m <= SHORT_ROWS


def _is_gemv_of_one(one: Trial) -> bool:
    """Several tokens have another kernel since this was recorded."""
    return _is("gemv")(one) and one.problem["tokens"] == 1


def _is_short_gemv(one: Trial) -> bool:
    return _is_gemv_of_one(one) and one.problem["k"] <= SHORT_K


def _is_small_table(one: Trial) -> bool:
    sizes = one.problem
    return (_is("gather")(one)
            and sizes["tables_per_rank"] * sizes["rows"] * sizes["dim"] * sizes.itemsize <= SMALL_BYTES)  # fmt: skip


SHORT_ROWS, SHORT_K, SMALL_BYTES = 32, 2048, 2**25
KINDS: Mapping[str, Callable[[Trial], bool]] = {
    "GEMM": _is("gemm"), f"with tiles of up to {SHORT_ROWS} rows": _is_short_tile,
    "GEMV of 1 token": _is_gemv_of_one, f"with k up to {SHORT_K:,}": _is_short_gemv,
    "lookups": _is("gather"), "in tables of up to 32 MiB": _is_small_table,
}  # fmt: skip


@cache
def text(name: str) -> str:
    """A table of the computations of recording *name*."""
    known = [one.measurement for one in recordings.recordings(name)]
    trials = [one.trial for one in known]
    off = np.abs(errors_of(machine(trials[0].machine), [(one.trial, one.time_s) for one in known]))
    held = np.array([held_out(one.problem) for one in trials])
    heads = ("computation", "fitted: trials", "median", "p90", "held out: trials", "median", "p90", "within 15 %")
    lines: list[Sequence[str]] = [heads, ["---"] * len(heads)]
    for words, is_kind in KINDS.items():
        kind = np.array([is_kind(one) for one in trials])
        lines.append(
            (words, *_of(off[kind & ~held]), *_of(off[kind & held]), f"{np.mean(off[kind & held] < CLOSE):.0%}")
        )
    return "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def _of(some: np.ndarray) -> tuple[str, ...]:
    return (str(len(some)), f"{np.median(some):.1%}", f"{np.quantile(some, 0.9):.1%}") if len(some) else ("0", "", "")


if __name__ == "__main__":
    main(*sys.argv[1:])
