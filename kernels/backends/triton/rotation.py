"""Operands that calls take in turns: so many sets that none finds its own in the L2, every second with other values."""

from __future__ import annotations

from math import ceil

import torch

from kernels.problem import Problem
from kernels.reference import SEED, Operands, alternated, alternative, operands

COLD, SETS_MOST = 3, 64
"""Times the L2 that operands fill together, and most sets of them."""


def count_of(num_bytes: int, l2_bytes: int) -> int:
    """How many sets of *num_bytes*: three times the L2 together, or 64; an even number, so that values alternate."""
    count = min(SETS_MOST, ceil(COLD * l2_bytes / num_bytes))
    return count + count % 2


def operand_sets(
    of: Problem, rank: int, device: torch.device, *, seed: int = SEED, cold: bool = True
) -> list[Operands]:
    """Random operands of *rank* in turns: the even ones have the seed's values 0, the odd ones values 1.

    Where they are to be *cold* each set is a copy. Where one alone fills the L2 often enough, or none has to be cold,
    there are two, which share what does not differ.
    """
    first = operands(of, rank, seed, str(device))
    changed = {alternated(of): alternative(of, rank, seed, first)}
    size = sum(tensor.nbytes for tensor in first.values())
    if not cold or size >= COLD * l2_bytes(device):
        return [first, first | changed]
    count = count_of(size, l2_bytes(device))
    pairs = (first, first | changed)
    others = ({name: tensor.clone() for name, tensor in pairs[number % 2].items()} for number in range(1, count))
    return [first, *others]


def l2_bytes(device: torch.device) -> int:
    """Of this GPU."""
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def times_l2(sets: list[Operands], device: torch.device) -> float:
    """How many times *sets* fill the L2 together; what they share counts once."""
    sizes = {tensor.data_ptr(): tensor.nbytes for operands_of in sets for tensor in operands_of.values()}
    return sum(sizes.values()) / l2_bytes(device)
