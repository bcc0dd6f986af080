"""Which problems no machine is fitted to: drawn by a committed seed, by what one rank computes; one operator whole.

A computation lies on one side for good: operators that share it, other dtypes, more ranks and later recordings change
nothing. So no error is told of what was fitted as if it were of something new.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

from kernels.operators import operator
from kernels.problem import Problem

SEED = 43
"""The first of 0, 1, 2, ... by which LEAST of each other operator's computations are held out, and LEAST are not.

It was chosen by counting, before any estimate was looked at.
"""
SHARE = 0.5
"""How likely a computation is to be held out."""
LEAST = 0.4
"""Of those that two H200s recorded, and of those that their probes timed: less says nothing of an operator."""
WHOLE: Mapping[str, bool] = {"gemm_reduce_scatter": True}
"""By operator, whether it is held out whole: so one sees what an estimate of another operator is worth."""


def held_out(of: Problem) -> bool:
    """Whether nothing may be fitted to *of*."""
    return WHOLE.get(of.operator, False) or is_drawn(computation(of), SEED)


def computation(of: Problem) -> str:
    """What one rank computes of *of*, in words: operators that differ in their collective alone have the same."""
    kind = operator(of.operator)
    extent = kind.extent(of)
    return f"{kind.work} {extent.rows} x {extent.columns} x {extent.contraction}"


@cache
def is_drawn(name: str, seed: int) -> bool:
    """Whether *seed* holds computation *name* out: a draw of its own for each."""
    return random.Random(f"{seed}: {name}").random() < SHARE
