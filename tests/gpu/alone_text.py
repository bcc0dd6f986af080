"""How far estimates of computations alone are off, as documents say it: by what one waits for, fitted and held out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.operators import operator
from tests.gpu import alone_fit
from workbench.machines import machine
from workbench.machines.calibrate_gpu import held_out
from workbench.results import recordings

KINDS = {"gemm": "GEMM", "gemv": "GEMV", "gather": "lookups"}


def text(name: str) -> str:
    """A table of the computations of recording *name*."""
    known = [one.measurement for one in recordings.recordings(name)]
    place = machine(known[0].trial.machine)
    off = np.abs(alone_fit.errors(place, [(one.trial, one.time_s) for one in known])).tolist()
    errors = {(operator(one.trial.problem.operator).work, held_out(one.trial.problem)): list[float]() for one in known}
    for one, error in zip(known, off, strict=True):
        errors[operator(one.trial.problem.operator).work, held_out(one.trial.problem)].append(error)
    heads = ("computation", "fitted: trials", "median", "p90", "held out: trials", "median", "p90", "within 15 %")
    lines = [heads, ["---"] * len(heads), *_rows(errors)]
    return "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def _rows(errors: dict[tuple[str, bool], list[float]]) -> Iterator[tuple[str, ...]]:
    for work, words in KINDS.items():
        fitted, held = (np.array(errors[work, side]) for side in (False, True))
        yield (words, *_of(fitted), *_of(held), f"{np.mean(held < 0.15):.0%}")


def _of(some: np.ndarray) -> tuple[str, ...]:
    return (str(len(some)), f"{np.median(some):.1%}", f"{np.quantile(some, 0.9):.1%}")
