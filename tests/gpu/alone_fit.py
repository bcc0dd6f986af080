"""What our GEMM waits for on an SM, fitted to computations alone: `python -m tests.gpu.alone_fit` prints the values.

Fitted to recorded computations that are not held out, drawn ones and those of the tables. One value after the other is
moved while the mean error falls; they go into the machine's file by hand, with their source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from kernels.machine import Machine
from kernels.operators import operator
from kernels.schedule import tile
from kernels.trial import Trial
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


def fitted(on: Machine, of: Sequence[Row]) -> Machine:
    """*on* with the values of FITTED at which the mean error of *of* is least, as far as one at a time finds it."""
    best, least = on, _mean(on, of)
    for step in [each for each in STEPS for _ in range(ROUNDS)]:
        for key in FITTED:
            for factor in (1 + step, 1 / (1 + step)):
                while (error := _mean(moved := with_value(best, key, value(best, key) * factor), of)) < least:
                    best, least = moved, error
        print(f"{step:.0%}: {least:.2%}", flush=True)
    return best


def _mean(on: Machine, of: Sequence[Row]) -> float:
    return float(np.mean(np.abs(np.log1p(errors_of(on, of)))))


def value(of: Machine, key: str) -> float:
    """A number of a machine by its name in the file."""
    part, name = key.split(".")
    return float(getattr(getattr(of, part), name))


def with_value(of: Machine, key: str, number: float) -> Machine:
    """The machine with another one."""
    part, name = key.split(".")
    return replace(of, **{part: replace(getattr(of, part), **{name: number})})


def told(on: Machine, of: Sequence[Row]) -> Iterator[str]:
    """How far *on* is off, by what was recorded."""
    for drawn, held in product((True, False), (False, True)):
        some = [row for row in of if held_out(row[0].problem) == held and (row[0].problem.world == 1) == drawn]
        off = np.abs(errors_of(on, some))
        yield (f"{'drawn' if drawn else 'tables'}, {'held out' if held else 'fitted'}: {len(off)}, "
               f"median {np.median(off):.1%}, p90 {np.quantile(off, 0.9):.1%}")  # fmt: skip


def main() -> None:
    """Fits, and prints values and errors."""
    known, start = rows(), machine(NAME)
    best = fitted(start, [row for row in known if not held_out(row[0].problem)])
    for key in FITTED:
        number = value(best, key)
        print(f"{key.split('.')[1]} = {number:.4g}")
    print(*told(best, known), sep="\n")


# How far estimates of computations alone are off, as documents say it: by what one waits for, fitted and held out.


def _is(work: str) -> Callable[[Trial], bool]:
    return lambda one: operator(one.problem.operator).work == work


def _is_short_tile(one: Trial) -> bool:
    return _is("gemm")(one) and tile(one.schedule["tile"]).m <= SHORT_ROWS


def _is_short_gemv(one: Trial) -> bool:
    return _is("gemv")(one) and one.problem["k"] <= SHORT_K


def _is_small_table(one: Trial) -> bool:
    sizes = one.problem
    return (_is("gather")(one)
            and sizes["tables_per_rank"] * sizes["rows"] * sizes["dim"] * sizes.itemsize <= SMALL_BYTES)  # fmt: skip


SHORT_ROWS, SHORT_K, SMALL_BYTES = 32, 2048, 2**25
KINDS: Mapping[str, Callable[[Trial], bool]] = {
    "GEMM": _is("gemm"), f"with tiles of up to {SHORT_ROWS} rows": _is_short_tile,
    "GEMV": _is("gemv"), f"with k up to {SHORT_K:,}": _is_short_gemv,
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
    main()
