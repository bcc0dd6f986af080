"""Operands that calls take in turns: so many copies that none finds its own in the L2."""

from __future__ import annotations

from math import ceil

import torch

from kernels.problem import Problem
from kernels.reference import SEED, Operands, operands

COLD, SETS_MOST = 3, 8
"""Times the L2 that operands fill together, and most copies of them."""


def operand_sets(of: Problem, rank: int, device: torch.device, *, cold: bool = True) -> list[Operands]:
    """Random operands of *rank* and, where they are to be *cold*, copies: three times the L2 together, or eight."""
    first = operands(of, rank, SEED, str(device))
    l2 = torch.cuda.get_device_properties(device).L2_cache_size
    size = sum(tensor.nbytes for tensor in first.values())
    count = min(SETS_MOST, max(1, ceil(COLD * l2 / size))) if cold else 1
    return [first, *({name: tensor.clone() for name, tensor in first.items()} for _ in range(count - 1))]
