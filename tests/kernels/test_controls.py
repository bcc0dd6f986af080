"""Controls of two streams: which of them a schedule has, and the same streams without any."""

import pytest

from kernels.schedule import Schedule
from kernels.schemes import controls

OURS = {"tile": "64x128x64", "micro_batches": 8, "kernel": "ours", "comm_priority": "high", "resident_blocks": 1,
        "comm_sms": 0}  # fmt: skip


@pytest.mark.parametrize(("axes", "mode"), [
    ({}, controls.BOTH), ({"comm_priority": "normal"}, controls.SHAPING),
    ({"resident_blocks": 0}, controls.PRIORITISED),
    ({"comm_priority": "normal", "resident_blocks": 0}, controls.STREAMS), ({"comm_sms": 8}, controls.SHARED),
])  # fmt: skip
def test_every_mode_has_its_name(axes: dict[str, int | str], mode: str) -> None:
    assert controls.mode({**OURS, **axes}) == mode
    assert mode in controls.MODES


def test_cpu_ranks_have_a_priority_alone() -> None:
    axes = {"tile": "64x64x64", "micro_batches": 4, "collective": "direct", "comm_priority": "high"}
    assert controls.mode(axes) == controls.PRIORITISED
    assert controls.off(axes) == {**axes, "comm_priority": "normal"}


def test_a_schedule_with_one_stream_has_no_mode_and_no_controls() -> None:
    axes = {"tile": "64x64x64", "collective": "library", "comm_sms": 8}
    assert not controls.has_controls(axes)
    assert controls.mode(axes) is None


def test_halves_alone_are_told_apart_by_what_they_read_and_streams_alone_have_no_control() -> None:
    schedule = Schedule("concurrent", tuple({**OURS, "comm_sms": 8}.items()))
    computes, moves = (dict(controls.half(schedule, part).axes) for part in ("compute", "communication"))
    assert computes == {**OURS, "comm_sms": 8, "comm_priority": "normal"}
    assert moves == {**computes, "kernel": "library", "resident_blocks": 0}
    for part, axes in (("compute", computes), ("communication", moves)):
        assert controls.of_half(axes, part) == controls.of_half(dict(schedule.axes), part)
    cut = {"tile": "t", "comm_sms": 8, "pieces": 2}
    assert controls.of_half(cut, "communication") == cut, "no controls of two streams"
    alone = controls.streams_alone(schedule)
    assert controls.mode(dict(alone.axes)) == controls.STREAMS
    assert [name for name, _ in alone.axes] == [name for name, _ in schedule.axes], "in the same order"
