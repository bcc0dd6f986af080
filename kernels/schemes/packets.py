"""Packets, of which a GPU's GEMV is made: values that carry their signal, sent to everybody in one shot or two."""

from __future__ import annotations

from typing import Any

from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Schedule

SHOTS = "shots"
"""The axis that says how often a value flies before everybody has the sum."""
PACKET_BYTES = 8
"""A value and the epoch of its call, in 4 bytes each: one store, so that whoever sees the epoch sees the value."""
ONE_SHOT_VALUES = 64 * 1024
"""Values of the output up to which everybody sends all partial sums to everybody, as long as nobody says otherwise.

At world 4 one shot puts 24 bytes a value on the wire and two shots 12, which pays for a second flight of about 1.5 us.
"""


def are_sent(problem: Problem, schedule: Schedule) -> bool:
    """Whether *schedule* sends packets: one kernel of a GPU that computes a GEMV. CPU ranks copy tiles."""
    return (
        OPERATORS[problem.operator].work == "gemv" and schedule.scheme == "fused" and "num_warps" in dict(schedule.axes)
    )


def value_bytes(problem: Problem, schedule: Schedule) -> int:
    """Bytes that leave for each value that is sent."""
    return PACKET_BYTES if are_sent(problem, schedule) else problem.itemsize


def shots(problem: Problem, schedule: Schedule) -> int:
    """1: partial sums go to all, who sum alone. 2: they go to the owner of their rows, who sends the sums to all.

    As *schedule* says. One that says nothing means what `unnamed` says, as all did before there was a choice.
    """
    return int(schedule.get(SHOTS) or unnamed(problem))


def unnamed(problem: Problem) -> int:
    """The value of `shots` that no schedule of *problem* names: trials had it before they could name one.

    It is what stored keys mean, so it stays as it is, whatever the default becomes.
    """
    extent = OPERATORS[problem.operator].extent(problem)
    return unnamed_of(extent.rows * extent.columns)


def unnamed_of(values: Any) -> Any:
    """The same for so many values of the output, a number or a column."""
    return 1 + (values > ONE_SHOT_VALUES)
