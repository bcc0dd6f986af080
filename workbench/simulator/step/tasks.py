"""A Task is one node of a step's graph: what it waits for, and which resources of a rank it holds, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

COMPUTE = "compute"
"""The resource that is a rank's processor; its links are `level 0`, `level 1`, ..."""
FORWARD, BACKWARD = "forward", "backward"
GRADIENTS = "gradients"
"""The pass of what sums the gradients of weights, beside the backward pass."""


def level_name(level: int) -> str:
    """The resource that is a rank's links of *level*."""
    return f"level {level}"


@dataclass(frozen=True, slots=True)
class Group:
    """Which ranks take part together: blocks of *size* neighbours, or one rank of every such block."""

    size: int
    neighbours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One computation, one collective, or both as one."""

    name: str
    layer: str
    passes: str
    """`forward`, `backward` or `gradients`; of a bucket of gradients, the layer is its last."""
    seconds: float
    compute_s: float = 0.0
    """How much of it is computation: what a slow rank is slower in."""
    holds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By resource, from when to when it is held, in seconds after the task's start."""
    after: tuple[int, ...] = ()
    """Numbers of the tasks that it waits for; all are smaller than its own."""
    group: Group | None = None
    """Who communicates; None: nobody."""
    collective: str = ""
    num_bytes: float = 0.0
    """As the collective counts them: one rank's whole buffer, or its contribution to a gather."""

    uneven: bool = False
    """Whether ranks have different shares of its work: tables are not equally full, nor experts equally liked."""
    by_level: tuple[float, ...] = ()
    """Seconds for which it keeps the links of each level busy: what its exposed time is shared out by."""

    @property
    def overlaps(self) -> bool:
        """Whether it computes and communicates at once."""
        return self.group is not None and self.compute_s > 0
