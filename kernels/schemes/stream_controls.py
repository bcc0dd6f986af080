"""Controls of two streams: the axes that say who gets the SMs, and the modes that they make.

Each has a value where it says nothing. arXiv:2606.09200 has two: fewer resident blocks of the computation (shaping),
and a priority of communication. SMs that are set aside are a third one, for GPUs whose blocks fill an SM alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels.schedule import Schedule, Value
from kernels.schemes.axis_rules import KERNEL, NORMAL, RESIDENT

PRIORITY, SHARE = "comm_priority", "comm_sms"
LIBRARY, COMPUTE, COMMUNICATION = "library", "compute", "communication"
UNREAD: Mapping[str, tuple[str, ...]] = {COMPUTE: (PRIORITY,), COMMUNICATION: (PRIORITY, KERNEL, RESIDENT, "tile")}
"""Axes that say nothing of a part alone."""
OFF: Mapping[str, Value] = {PRIORITY: NORMAL, RESIDENT: 0, SHARE: 0}
"""Each control where it does nothing."""
STREAMS, SHAPING, PRIORITISED, BOTH, SHARED = "streams", "+ shaping", "+ priority", "+ both", "SM share"
MODES = (STREAMS, SHAPING, PRIORITISED, BOTH, SHARED)
"""What is laid side by side: two streams alone, with one control, with both, and with SMs set aside."""


def has_controls(axes: Mapping[str, Value]) -> bool:
    """Whether a schedule with *axes* has two streams that controls can tell apart."""
    return PRIORITY in axes


def off(axes: Mapping[str, Value]) -> dict[str, Value]:
    """*axes* with every control that it has off: the same two streams alone."""
    return {name: OFF.get(name, value) for name, value in axes.items()}


def of_half(axes: Mapping[str, Value], part: str) -> dict[str, Value]:
    """*axes* without those that say nothing of *part* alone, of a schedule with controls; of others all of them.

    Alone, a priority is none. Communication does not ask who computes, nor in which blocks.
    """
    unread = UNREAD[part] if has_controls(axes) else ()
    return {name: value for name, value in axes.items() if name not in unread}


def half(schedule: Schedule, part: str) -> Schedule:
    """*schedule* as its *part* is timed alone: one trial serves all that differ in nothing that it reads."""
    nobody: dict[str, Value] = {KERNEL: LIBRARY, RESIDENT: 0} if part == COMMUNICATION else {}
    plain = {PRIORITY: NORMAL, **nobody}
    return Schedule(schedule.scheme, tuple((name, plain.get(name, value)) for name, value in schedule.axes))


def streams_alone(schedule: Schedule) -> Schedule:
    """The same two streams with every control off."""
    return Schedule(schedule.scheme, tuple(off(dict(schedule.axes)).items()))


def mode(axes: Mapping[str, Value]) -> str | None:
    """Which of MODES a schedule with *axes* is; None where it has no controls. SMs set aside count first."""
    if not has_controls(axes):
        return None
    if axes.get(SHARE, 0):
        return SHARED
    first, is_shaped = axes[PRIORITY] != NORMAL, bool(axes.get(RESIDENT, 0))
    return {(False, False): STREAMS, (False, True): SHAPING, (True, False): PRIORITISED, (True, True): BOTH}[
        first, is_shaped
    ]
