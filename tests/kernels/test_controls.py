"""Controls of two streams: which of them a schedule has, and the same streams without any."""

import pytest

from kernels.schedule import Schedule
from kernels.schemes import stream_controls

OURS = {"tile": "64x128x64", "micro_batches": 8, "kernel": "ours", "comm_priority": "high", "resident_blocks": 1,
        "comm_sms": 0}  # fmt: skip
MODES = (
    ({}, stream_controls.BOTH), ({"comm_priority": "normal"}, stream_controls.SHAPING),
    ({"resident_blocks": 0}, stream_controls.PRIORITISED),
    ({"comm_priority": "normal", "resident_blocks": 0}, stream_controls.STREAMS),
    ({"comm_sms": 8}, stream_controls.SHARED),
)  # fmt: skip
"""Axes in addition to OURS, and the mode that they make: every mode once."""


@pytest.mark.parametrize(("axes", "mode"), MODES)
def test_every_mode_has_its_name(axes: dict[str, int | str], mode: str) -> None:
    assert stream_controls.mode({**OURS, **axes}) == mode


def test_cpu_ranks_have_a_priority_alone() -> None:
    axes = {"tile": "64x64x64", "micro_batches": 4, "collective": "direct", "comm_priority": "high"}
    assert stream_controls.mode(axes) == stream_controls.PRIORITISED
    assert stream_controls.off(axes) == {**axes, "comm_priority": "normal"}


def test_a_schedule_with_one_stream_has_no_mode_and_no_controls() -> None:
    axes = {"tile": "64x64x64", "collective": "library", "comm_sms": 8}
    assert not stream_controls.has_controls(axes)
    assert stream_controls.mode(axes) is None


def test_halves_alone_are_told_apart_by_what_they_read_and_streams_alone_have_no_control() -> None:
    schedule = Schedule("concurrent", tuple({**OURS, "comm_sms": 8}.items()))
    computes, moves = (dict(stream_controls.half(schedule, part).axes) for part in ("compute", "communication"))
    assert computes == {**OURS, "comm_sms": 8, "comm_priority": "normal"}
    assert moves == {**computes, "kernel": "library", "resident_blocks": 0}
    for part, axes in (("compute", computes), ("communication", moves)):
        assert stream_controls.of_half(axes, part) == stream_controls.of_half(dict(schedule.axes), part)
    cut = {"tile": "t", "comm_sms": 8, "pieces": 2}
    assert stream_controls.of_half(cut, "communication") == cut, "no controls of two streams"
    alone = stream_controls.streams_alone(schedule)
    assert stream_controls.mode(dict(alone.axes)) == stream_controls.STREAMS
    assert [name for name, _ in alone.axes] == [name for name, _ in schedule.axes], "in the same order"
