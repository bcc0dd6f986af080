"""Operands that calls take in turns: so many sets that none finds its own in the L2, every fourth with other values."""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

from kernels.backends.base import VALUES
from kernels.problem import Problem
from kernels.reference import SEED, Operands, alternated, alternative, operands

COLD, SETS_MOST = 3, 64
"""Times the L2 that operands fill together, and most sets of them."""
TURN = 4
"""Sets come in multiples of it, the last of each with values 1. So what is left of any of the three calls before shows,
also where two places take turns, as those of packets do."""


def values_of(number: int) -> int:
    """Which values of the seed set *number* has."""
    return int(number % TURN == TURN - 1)


def copies_of(num_bytes: int, l2_bytes: int) -> int:
    """How many copies of *num_bytes*: three times the L2 together, or 64; from three on as many as there are sets."""
    count = min(SETS_MOST, ceil(COLD * l2_bytes / num_bytes))
    return count if count < TURN - 1 else count + -count % TURN


def operand_sets(
    of: Problem, rank: int, device: torch.device, *, seed: int = SEED, cold: bool = True
) -> list[Operands]:
    """Random operands of *rank*, by set, with the values that `values_of` says.

    Where they are to be *cold* sets are copies. Of operands so large that one or two copies do, sets share them, but
    for what differs between the values.
    """
    first = operands(of, rank, seed, str(device))
    changed = {alternated(of): alternative(of, rank, seed, first)}
    size = sum(tensor.nbytes for tensor in first.values())
    count = copies_of(size, l2_bytes(device)) if cold else 1
    copies = [first, *({name: tensor.clone() for name, tensor in first.items()} for _ in range(count - 1))]
    sets = [copies[number % count] for number in range(max(TURN, count))]
    return [own | _own(changed, number) if values_of(number) else own for number, own in enumerate(sets)]


def of_micro_batches(
    first: list[Operands], count: int, of: Problem, rank: int, device: torch.device, *, seed: int = SEED
) -> list[list[Operands]]:
    """For each of *count* micro-batches as many sets as *first*, which are those of the first micro-batch.

    Micro-batch i has the values 2 i and 2 i + 1 of *seed*. What does not differ is a copy, unless it fills the L2 by
    itself: so one micro-batch does not find there what another one has read.
    """
    made, name, most = [first], alternated(of), COLD * l2_bytes(device)
    for number in range(1, count):
        values = [alternative(of, rank, seed, first[0], VALUES * number + each) for each in range(VALUES)]
        copies: dict[int, Tensor] = {}
        for at, one in enumerate(first):
            for key, tensor in one.items():
                if tensor.data_ptr() not in copies:
                    source = values[values_of(at)] if key == name else tensor
                    copies[tensor.data_ptr()] = source if source is tensor and tensor.nbytes >= most else source.clone()
        made.append([{key: copies[tensor.data_ptr()] for key, tensor in one.items()} for one in first])
    return made


def _own(changed: Operands, number: int) -> Operands:
    """*changed* for set *number*: the first that has it takes it as it is, the others a copy."""
    return changed if number < TURN else {name: tensor.clone() for name, tensor in changed.items()}


def l2_bytes(device: torch.device) -> int:
    """Of this GPU."""
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def times_l2(sets: list[Operands], device: torch.device) -> float:
    """How many times *sets* fill the L2 together; what they share counts once."""
    sizes = {tensor.data_ptr(): tensor.nbytes for operands_of in sets for tensor in operands_of.values()}
    return sum(sizes.values()) / l2_bytes(device)
