"""Trials whose tiles span ranks, on a GPU of few SMs, and what every interpreted rank has to answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.backends.triton import timeline
from kernels.outcome import Span
from kernels.schemes import axis_rules, expand
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import H200, InterpretedGang, gpu_trial

SMALL = replace(H200, device=replace(H200.device, slots=8))
EVEN, RAGGED = {"m": 64, "n": 96, "k": 128}, {"m": 40, "n": 72, "k": 136}


def spanning(operator: str, shape: dict[str, int], world: int = 2, **axes: Any) -> Trial:
    """A trial of *operator* whose tiles span its ranks."""
    of = {"tile": "32x32x32", "tile_order": axis_rules.SPANNING, "num_warps": 4, "num_stages": 2}
    return gpu_trial(operator, shape, world=world, dtype="float16", machine=SMALL, **{**of, **axes})


def assert_right(gangs: dict[int, InterpretedGang], of: Trial, programs: int = 1) -> None:
    """Five calls of *of* leave the right values on every rank, and each is counted; see `InterpretedGang.call`."""
    for answer in gangs[of.world].call(of, 5, programs):
        assert answer.get("failure") is None
        assert answer["error_of_bound"] < 1
        assert answer["epoch"] == 5


def spans_by_rank(gangs: dict[int, InterpretedGang], of: Trial) -> Iterator[dict[str, Span]]:
    """The spans of a stamped call of *of*, rank by rank: one for each step of the Plan, by its address."""
    plan, answers = expand(of.problem, of.schedule), gangs[of.world].call(of, calls=1, stamped=True)
    for rank in range(of.world):
        read = timeline.Stamps.read(np.array(answers[rank]["stamps"], dtype=np.int64), 0, 1e-9)
        spans = {span.step: span for span in timeline.of_kernel(plan, rank, read)}
        assert spans.keys() == {plan.address(step) for step in plan.steps_of(rank).tolist()}
        yield spans
