"""Scenarios of pieces and engines: drawn by a committed seed, so that nobody chooses those that look good.

Every operator has as many, spread evenly over the logarithm of T_comm / T_c. That ratio is a rough one, of two rates: a
scenario is the same whatever a machine file says of these GPUs later. What was measured tells the real ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from random import Random

from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.problem import Problem
from tests.gpu.sittings import Axes, Question

SEED = 20251210
"""The day of arXiv:2512.10236 v1, and nothing else."""
OF_EACH = 7
RATIOS = (0.2, 2.0)
"""T_comm / T_c, lowest and highest."""
TOKENS = (2048, 3072, 4096, 6144, 8192, 12288, 16384)
SIDES = (1024, 1536, 2048, 3584, 4096, 5120, 7168, 8192)
"""Of the GEMM's other side, which moves T_comm and T_c alike."""
FLOPS_PER_SECOND, LINK_BYTES_PER_SECOND = 660e12, 390e9
"""About what cuBLAS reaches in bfloat16 on an H200, and what one pushes over its link."""
STEP = 128
"""Sides are multiples of it."""

PIECES: dict[bool, tuple[Axes, ...]] = {
    True: ({"pieces": 1}, {"pieces": 2}, {"pieces": 4}, {"pieces": 2, "launches": "one"}),
    False: ({"pieces": 1}, {"pieces": 2}, {"pieces": 4}, {"pieces": 4, "launches": "one"}),
}  # fmt: skip
"""What may be the best, by whether operands come in. With one peer `unfused` is the same. SMs and the library moved
pieces slower in the trial of ten shapes, before anything was drawn (docs/kernels.md). The recording of 2026-11-23
asked for other ones instead of four pieces that come in and of one that goes out: they were nowhere the fastest."""


def problems(world: int) -> list[Problem]:
    """All scenarios, operator after operator; the same in every process."""
    random = Random(SEED)
    operators = [name for name, each in OPERATORS.items() if each.work == "gemm"]
    return [_drawn(random, name, number, world) for name in operators for number in range(OF_EACH)]


def _drawn(random: Random, operator: str, number: int, world: int) -> Problem:
    """One scenario whose ratio lies in the *number*-th of OF_EACH equal parts of the logarithm."""
    low, high = map(log, RATIOS)
    wanted = exp(low + (high - low) * (number + random.random()) / OF_EACH)
    tokens, other = random.choice(TOKENS), random.choice(SIDES)
    deciding = "n" if OPERATORS[operator].flow is Flow.RECEIVE else "k"
    free = "k" if deciding == "n" else "n"
    of_one = problem(operator, {"m": tokens, deciding: STEP, free: other}, world=world, dtype="bfloat16")
    side = max(1, round(ratio(of_one) / wanted))  # the ratio falls as this side grows, and depends on no other
    return problem(operator, {"m": tokens, "n": 0, "k": 0} | {deciding: STEP * side, free: other}, world=world,
                   dtype="bfloat16")  # fmt: skip


def ratio(asked: Problem) -> float:
    """T_comm / T_c by the two rates."""
    operator = OPERATORS[asked.operator]
    wire_s = operator.wire_bytes(asked) / LINK_BYTES_PER_SECOND
    return wire_s / (operator.flops(asked) / FLOPS_PER_SECOND)


def questions(world: int) -> Iterator[Question]:
    """Each with the same pieces and engines, all at their default but for what is named; operators in turns."""
    drawn = problems(world)
    for asked in (each for number in range(OF_EACH) for each in drawn[number::OF_EACH]):
        yield Question(asked, (), pieces=PIECES[OPERATORS[asked.operator].flow is Flow.RECEIVE])
