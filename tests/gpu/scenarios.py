"""Scenarios of pieces and of two streams: drawn by committed seeds, so that nobody chooses those that look good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from random import Random

from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.problem import Problem
from tests.gpu.sittings import Axes, Modes, Question

# Scenarios of pieces and engines: drawn by a committed seed, so that nobody chooses those that look good.
#
# Every operator has as many, spread evenly over the logarithm of T_comm / T_c. That ratio is a rough one, of two rates:
# a scenario is the same whatever a machine file says of these GPUs later. What was measured tells the real ratio.

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


# Scenarios of two streams: {compute-bound, memory-bound} GEMM x {all-reduce, all-to-all}, drawn by a committed seed.
#
# Each workload of arXiv:2606.09200 has one in each part of the range of T_comm / T_c, so that nobody chooses those that
# look good. The ratio is a rough one, of a few rates, and stays the same whatever a machine file says later; what was
# measured tells the real one.

STREAMS_SEED = 20260608
"""The day of arXiv:2606.09200, and nothing else."""
STREAMS_RATIOS = ((0.4, 0.7), (0.7, 1.0), (1.0, 1.4), (1.4, 2.5))
"""T_comm / T_c of the scenarios of one workload, from where to where; the two in the middle have most to gain."""
NCCL_BYTES_PER_SECOND, NCCL_S = 300e9, 16e-6
"""About what NCCL takes on two H200s (2026-11-22): by bytes that leave a rank, and besides."""
MEMORY_BYTES_PER_SECOND = 4.3e12
"""About what reads of an H200 reach."""
STREAMS_STEP, DEEPEST = 64, 16384
"""The contraction is a multiple of the one, and at most the other."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of GEMM and its collective."""

    name: str
    operator: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]


LARGE = (4096, 6144, 8192, 16384), (4096, 5120, 7168, 8192)
"""Tokens and hidden sizes of training, whose GEMMs the tensor cores bound."""
FLAT = (128,), (32768, 65536, 98304, 131072)
"""Few tokens times a vocabulary, as the last layer of decoding: reading the weights bounds the GEMM."""
WORKLOADS = (
    Workload("cb-ar", "gemm_all_reduce", *LARGE), Workload("mb-ar", "gemm_all_reduce", *FLAT),
    Workload("cb-a2a", "gemm_all_to_all", *LARGE), Workload("mb-a2a", "gemm_all_to_all", *FLAT),
)  # fmt: skip


def streams_problems(world: int) -> Mapping[str, list[Problem]]:
    """By workload, all scenarios; the same in every process."""
    random = Random(STREAMS_SEED)
    return {each.name: [_streams_drawn(random, each, part, world) for part in STREAMS_RATIOS] for each in WORKLOADS}


def _streams_drawn(random: Random, workload: Workload, part: tuple[float, float], world: int) -> Problem:
    """One scenario whose ratio lies in *part*, evenly over the logarithm."""
    wanted = exp(random.uniform(*map(log, part)))
    rows, columns = random.choice(workload.rows), random.choice(workload.columns)
    every = [
        problem(workload.operator, {"m": rows, "n": columns, "k": depth}, world=world, dtype="bfloat16")
        for depth in range(STREAMS_STEP, DEEPEST + STREAMS_STEP, STREAMS_STEP)
    ]
    return min(every, key=lambda one: abs(log(streams_ratio(one) / wanted)))  # the ratio falls as the contraction grows


def streams_ratio(asked: Problem) -> float:
    """T_comm / T_c by these rates."""
    return (NCCL_S + OPERATORS[asked.operator].wire_bytes(asked) / NCCL_BYTES_PER_SECOND) / compute_s(asked)


def compute_s(asked: Problem) -> float:
    """T_c: the longer of multiplying, and of reading both operands and writing the result."""
    moved = asked["m"] * asked["k"] + asked["k"] * asked["n"] + asked["m"] * asked["n"]
    return max(OPERATORS[asked.operator].flops(asked) / FLOPS_PER_SECOND,
               moved * asked.itemsize / MEMORY_BYTES_PER_SECOND)  # fmt: skip


def is_memory_bound(asked: Problem) -> bool:
    """Whether reading and writing take longer than multiplying."""
    return OPERATORS[asked.operator].flops(asked) / FLOPS_PER_SECOND < compute_s(asked)


def workload_of(asked: Problem) -> str:
    """The name of its workload."""
    kind = "mb" if is_memory_bound(asked) else "cb"
    return next(each.name for each in WORKLOADS if each.operator == asked.operator and each.name.startswith(kind))


def streams_questions(world: int) -> Iterator[Modes]:
    """Every scenario with all of its modes."""
    for some in streams_problems(world).values():
        yield from (Modes(each) for each in some)
