"""Who answers: told by heartbeats that change, in time that the scheduler itself was awake."""

from __future__ import annotations

from cluster.pulse import AWAY_S, LONGEST_TICK_S, Pulse
from cluster.stimulus import WorkerAnswers, WorkerSilent


def silent_after(pulse: Pulse, seconds: float, *, tick_s: float = 1.0, at: float = 0.0) -> list[WorkerSilent]:
    """Ticks of a cluster in which w0 answers and w1 does not."""
    said, now = [], at
    while now < at + seconds:
        now += tick_s
        said += pulse.tick(now, {"w0": now, "w1": at})
    return [event for event in said if isinstance(event, WorkerSilent)]


def test_a_worker_whose_heartbeat_stops_is_silent_within_fifteen_seconds_and_is_told_again() -> None:
    said = silent_after(Pulse(), 16.0)
    assert {event.worker for event in said} == {"w1"}
    assert AWAY_S <= said[0].silent_s <= said[0].at <= 15.0
    assert [event.silent_s for event in said] == sorted({event.silent_s for event in said})


def test_one_that_answers_again_is_told_once() -> None:
    pulse = Pulse()
    silent_after(pulse, 12.0)
    assert pulse.tick(13.0, {"w0": 13.0, "w1": 12.9}) == [WorkerAnswers(13.0, "w1")]
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 13.9}) == []


def test_a_scheduler_that_slept_calls_nobody_silent() -> None:
    pulse = Pulse()
    silent_after(pulse, 3.0)
    assert pulse.tick(600.0, {"w0": 3.0, "w1": 0.0}) == [], "a suspended computer"
    assert pulse.tick(601.0, {"w0": 600.9, "w1": 600.9}) == []


def test_a_scheduler_that_is_late_counts_no_more_than_its_longest_tick() -> None:
    said = silent_after(Pulse(), 60.0, tick_s=5.0)
    assert said[0].at >= 5.0 * AWAY_S / LONGEST_TICK_S


def test_a_clock_that_is_set_back_makes_nobody_silent() -> None:
    pulse = Pulse()
    for second in range(30):
        stamp = 1000.0 + second - (120.0 if second > 10 else 0.0)
        assert pulse.tick(float(second), {"w0": stamp}) == []


def test_one_that_left_is_forgotten() -> None:
    pulse = Pulse()
    silent_after(pulse, 12.0)
    assert pulse.tick(13.0, {"w0": 13.0}) == []
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 0.0}) == [], "a new worker of the same address"
