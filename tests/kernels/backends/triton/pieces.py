"""Every legal schedule of pieces on GPUs, for tests without and with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kernels.backends.triton import recipes
from kernels.schedule import Refusal
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import gpu_trial

RECEIVES, SENDS = ("all_gather_gemm", "all_to_all_gemm"), ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce")
SPLITS = {**dict.fromkeys(RECEIVES, ("rows", "contraction", "rows_and_contraction")),
          **dict.fromkeys(SENDS, ("rows", "columns"))}  # fmt: skip
"""By operator."""
ENGINES = ("copy_engine", "sm", "library")
AXES = {"steps": ("uniform", "local_first"), "grouping": ("fused", "unfused"), "pattern": ("all_to_all", "ring"),
        "launches": ("per_piece", "one")}  # fmt: skip


def legal(
    operator: str, world: int, engines: Iterable[str], shape: dict[str, int], *, pieces: int, tile: str, dtype: str
) -> list[Trial]:
    """All that nobody refuses."""
    trials = []
    for split, engine, *values in itertools.product(SPLITS[operator], engines, *AXES.values()):
        axes = {"split": split, "engine": engine, **dict(zip(AXES, values, strict=True))}
        try:
            trial = gpu_trial(operator, shape, world=world, dtype=dtype, scheme="decomposed", pieces=pieces, tile=tile,
                              **axes)  # fmt: skip
        except Refusal:
            continue
        recipe = recipes.of(trial.problem, trial.schedule)
        if recipe is not None and recipe.refusal(trial) is None:
            trials.append(trial)
    return trials
