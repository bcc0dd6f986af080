"""The controls of two streams: axes that distribute the SMs, and the modes that they form.

Each has a value that switches it off. arXiv:2606.09200 has two: fewer resident blocks of the computation (shaping), and
a priority of communication. SMs that are set aside are a third one, for GPUs whose blocks fill an SM alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels.schedule import Schedule, Value
from kernels.schemes.axis_rules import KERNEL, NORMAL, RESIDENT

PRIORITY, SHARE = "comm_priority", "comm_sms"
LIBRARY, COMPUTE, COMMUNICATION = "library", "compute", "communication"
IGNORED_BY_PART: Mapping[str, tuple[str, ...]] = {
    COMPUTE: (PRIORITY,), COMMUNICATION: (PRIORITY, KERNEL, RESIDENT, "tile"),
}  # fmt: skip
"""By part, the axes that do not affect it when it is timed alone."""
OFF: Mapping[str, Value] = {PRIORITY: NORMAL, RESIDENT: 0, SHARE: 0}
"""The value that switches each control off."""
STREAMS, SHAPING, PRIORITISED, BOTH, SHARED = "streams", "+ shaping", "+ priority", "+ both", "SM share"
"""The modes: two streams alone, with one control, with both, and with SMs set aside."""


def has_controls(axes: Mapping[str, Value]) -> bool:
    """Whether a schedule with *axes* has two streams and their controls."""
    return PRIORITY in axes


def off(axes: Mapping[str, Value]) -> dict[str, Value]:
    """*axes* with all of its controls switched off: the same two streams alone."""
    return {name: OFF.get(name, value) for name, value in axes.items()}


def of_half(axes: Mapping[str, Value], part: str) -> dict[str, Value]:
    """The *axes* that affect *part* when it is timed alone; all of them if the schedule has no controls.

    A part alone needs no priority. Communication does not depend on the kernel that computes, nor on its blocks.
    """
    ignored = IGNORED_BY_PART[part] if has_controls(axes) else ()
    return {name: value for name, value in axes.items() if name not in ignored}


def half(schedule: Schedule, part: str) -> Schedule:
    """The schedule with which *part* of *schedule* is timed alone: equal for all schedules with an equal part."""
    without_compute: dict[str, Value] = {KERNEL: LIBRARY, RESIDENT: 0} if part == COMMUNICATION else {}
    plain = {PRIORITY: NORMAL, **without_compute}
    return Schedule(schedule.scheme, tuple((name, plain.get(name, value)) for name, value in schedule.axes))


def streams_alone(schedule: Schedule) -> Schedule:
    """*schedule* with all controls switched off."""
    return Schedule(schedule.scheme, tuple(off(dict(schedule.axes)).items()))


def mode(axes: Mapping[str, Value]) -> str | None:
    """The mode of a schedule with *axes*; None where it has no controls. SMs set aside count first."""
    if not has_controls(axes):
        return None
    if axes.get(SHARE, 0):
        return SHARED
    first, is_shaped = axes[PRIORITY] != NORMAL, bool(axes.get(RESIDENT, 0))
    return {(False, False): STREAMS, (False, True): SHAPING, (True, False): PRIORITISED, (True, True): BOTH}[
        first, is_shaped
    ]
