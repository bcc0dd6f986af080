"""Arithmetic of addresses and sectors, compiled: which place a line has, and how many sectors a mask names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, error_model="numpy")
def turned(number: int, count: int, hashed: int) -> int:
    """One of *count* places: neighbours take all places, turned by what the higher bits say."""
    return (number + (folded(number // count) if hashed else 0)) % count


@njit(nogil=True, error_model="numpy")
def folded(number: int) -> int:
    """*number* with its higher bits in its lower ones, too."""
    return number ^ (number >> 5) ^ (number >> 11)


@njit(nogil=True, error_model="numpy")
def scattered(number: float) -> float:
    """A number that looks random, the same in every replay."""
    mixed = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return float(mixed >> np.uint64(11))


@njit(nogil=True, error_model="numpy")
def ones(bits: int) -> int:
    """How many of the lowest four bits, which are sectors."""
    return (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1)


@njit(nogil=True, error_model="numpy")
def in_channel(line: int, m: Any) -> tuple[int, int]:
    """The DRAM channel of *line*, and its number among the lines of that channel."""
    block = line // m.interleave_lines
    return turned(block, m.channels, m.hashed), block // m.channels * m.interleave_lines + line % m.interleave_lines


@njit(nogil=True, error_model="numpy")
def first_cell(line: int, part: int, m: Any) -> int:
    """The first cell of the L2 set of *line*, which is in slice *part*."""
    return m.l2_first + (part * m.l2_sets + turned(line // m.slices, m.l2_sets, m.hashed)) * m.l2_ways


@njit(nogil=True, error_model="numpy")
def find(line: int, first: int, ways: int, s: Any, m: Any) -> int:
    """The cell of the set that begins at cell *first* in which *line* is; -1: in none."""
    for cell in range(first, first + ways):
        if s.words[m.tag + cell] == line:
            return cell
    return -1
