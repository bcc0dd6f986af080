"""A call of the library, and the copies out of its buffer, in closed form."""

from __future__ import annotations

import numpy as np

from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.price.memory import unpacks


def bytes_of(points: Points, rows: Column, width: Column) -> Floats:
    """Of *rows* x *width* values."""
    return np.asarray(rows * width * points.problem.itemsize, dtype=float)


def library_seconds(points: Points, part: Floats) -> Floats:
    """A collective of one part per peer, and the unpacking of what it brings."""
    return call_seconds(points, part) + unpack_seconds(points, part)


def call_seconds(points: Points, part: Floats) -> Floats:
    """The call alone, of *part* bytes for each peer."""
    return points.collective((points.world - 1) * part * (2 if points.broadcasts else 1))


def unpack_seconds(points: Points, part: Floats) -> Floats:
    """The copies behind it: none where the library writes results where they belong."""
    if points.broadcasts or not unpacks(points.machine, points.problem, in_pieces=points.in_pieces):
        return np.zeros(points.count)
    return points.overhead + points.copy(part if points.operator.reduces else points.world * part)
