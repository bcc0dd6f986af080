"""Which workers answer: their heartbeats change while the scheduler itself is awake."""

from __future__ import annotations

import pytest
from distributed.scheduler import heartbeat_interval

from cluster.broker import (
    AWAY_S,
    LONGEST_TICK_S,
    MISSED_BEATS,
    NO_ANSWER_S,
    HeartbeatWatch,
    WakingClock,
    away_s,
    no_answer_s,
)
from cluster.gang_messages import WorkerAnswers, WorkerSilent


def silent_after(pulse: HeartbeatWatch, seconds: float) -> list[WorkerSilent]:
    """Ticks of a cluster in which w0 answers and w1 does not."""
    silences, now = [], 0.0
    while now < seconds:
        now += 1.0
        silences += pulse.tick(now, {"w0": now, "w1": 0.0})
    return [event for event in silences if isinstance(event, WorkerSilent)]


def test_a_worker_whose_heartbeat_stops_is_silent_within_fifteen_seconds_and_is_told_again() -> None:
    silences = silent_after(HeartbeatWatch(), 16.0)
    assert {event.worker for event in silences} == {"w1"}
    assert AWAY_S <= silences[0].silent_s <= silences[0].at <= 15.0
    assert [event.silent_s for event in silences] == sorted({event.silent_s for event in silences})


def test_one_that_answers_again_is_told_once() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 12.0)
    assert pulse.tick(13.0, {"w0": 13.0, "w1": 12.9}) == [WorkerAnswers(13.0, "w1")]
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 13.9}) == []


def test_waking_time_stands_still_while_the_scheduler_sleeps() -> None:
    awake = WakingClock(100.0)
    assert awake.tick(101.0) == 1.0
    assert awake.at(101.5) == 1.5
    assert awake.at(600.0) == 1.0 + LONGEST_TICK_S, "a suspended computer, or Ctrl-Z; events come before the tick"
    assert awake.at(600.5) == 1.0 + LONGEST_TICK_S
    assert awake.tick(601.0) == 1.0 + LONGEST_TICK_S
    assert awake.at(601.5) == 1.5 + LONGEST_TICK_S


def test_a_scheduler_that_slept_calls_nobody_silent() -> None:
    pulse, awake = HeartbeatWatch(), WakingClock(0.0)
    for second in (1.0, 2.0, 3.0):
        pulse.tick(awake.tick(second), {"w0": second, "w1": 0.0})
    assert pulse.tick(awake.tick(600.0), {"w0": 3.0, "w1": 0.0}) == [], "a suspended computer"
    assert pulse.tick(awake.tick(601.0), {"w0": 600.9, "w1": 600.9}) == []


def test_a_clock_that_is_set_back_makes_nobody_silent() -> None:
    pulse = HeartbeatWatch()
    for second in range(30):
        stamp = 1000.0 + second - (120.0 if second > 10 else 0.0)
        assert pulse.tick(float(second), {"w0": stamp}) == []


def test_one_that_left_is_forgotten() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 12.0)
    assert pulse.tick(13.0, {"w0": 13.0}) == []
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 0.0}) == [], "a new worker of the same address"


@pytest.mark.parametrize("num_workers", [1, 8, 30, 100, 199, 200, 800, 2000])
def test_whoever_is_silent_missed_several_heartbeats_however_many_workers_there_are(num_workers: int) -> None:
    interval_s = heartbeat_interval(num_workers)
    assert no_answer_s(num_workers) >= MISSED_BEATS * interval_s
    assert away_s(num_workers) >= max(AWAY_S, no_answer_s(num_workers))
    if num_workers <= 50:
        assert (away_s(num_workers), no_answer_s(num_workers)) == (AWAY_S, NO_ANSWER_S)


def test_workers_of_a_large_cluster_that_answer_as_often_as_they_are_told_are_neither_silent_nor_unanswering() -> None:
    pulse, names = HeartbeatWatch(), [f"w{number}" for number in range(1000)]
    every_s = int(heartbeat_interval(len(names)))
    for second in range(60):
        late = second - second % (2 * every_s)  # each other heartbeat is lost on its way
        assert pulse.tick(float(second), dict.fromkeys(names, float(late))) == []
        assert pulse.unanswered_s(names) == {}


def test_one_that_is_away_stays_so_until_it_answers_also_when_workers_come() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 12.0)
    many = {f"x{number}": 0.0 for number in range(2000)}
    assert pulse.tick(13.0, {"w0": 13.0, "w1": 0.0} | many) == []
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 13.9} | many) == [WorkerAnswers(14.0, "w1")]


def test_who_has_not_answered_is_told_before_it_is_away() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 5.0)
    assert pulse.unanswered_s(["w0", "w1", "unknown"]) == {"w1": 4.0}
