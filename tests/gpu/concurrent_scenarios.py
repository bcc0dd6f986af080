"""Scenarios of two streams: {compute-bound, memory-bound} GEMM x {all-reduce, all-to-all}, drawn by a committed seed.

Each workload of arXiv:2606.09200 has one in each part of the range of T_comm / T_c, so that nobody chooses those that
look good. The ratio is a rough one, of a few rates, and stays the same whatever a machine file says later; what was
measured tells the real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from random import Random

from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from tests.gpu.modes import Modes
from tests.gpu.scenarios import FLOPS_PER_SECOND

SEED = 20260608
"""The day of arXiv:2606.09200, and nothing else."""
RATIOS = ((0.4, 0.7), (0.7, 1.0), (1.0, 1.4), (1.4, 2.5))
"""T_comm / T_c of the scenarios of one workload, from where to where; the two in the middle have most to gain."""
NCCL_BYTES_PER_SECOND, NCCL_S = 300e9, 16e-6
"""About what NCCL takes on two H200s (2026-11-22): by bytes that leave a rank, and besides."""
MEMORY_BYTES_PER_SECOND = 4.3e12
"""About what reads of an H200 reach."""
STEP, DEEPEST = 64, 16384
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


def problems(world: int) -> Mapping[str, list[Problem]]:
    """By workload, all scenarios; the same in every process."""
    random = Random(SEED)
    return {each.name: [_drawn(random, each, part, world) for part in RATIOS] for each in WORKLOADS}


def _drawn(random: Random, workload: Workload, part: tuple[float, float], world: int) -> Problem:
    """One scenario whose ratio lies in *part*, evenly over the logarithm."""
    wanted = exp(random.uniform(*map(log, part)))
    rows, columns = random.choice(workload.rows), random.choice(workload.columns)
    every = [
        problem(workload.operator, {"m": rows, "n": columns, "k": depth}, world=world, dtype="bfloat16")
        for depth in range(STEP, DEEPEST + STEP, STEP)
    ]
    return min(every, key=lambda one: abs(log(ratio(one) / wanted)))  # the ratio falls as the contraction grows


def ratio(asked: Problem) -> float:
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


def questions(world: int) -> Iterator[Modes]:
    """Every scenario with all of its modes."""
    for some in problems(world).values():
        yield from (Modes(each) for each in some)
