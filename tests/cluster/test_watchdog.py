"""Who is guilty, of which trial, and what becomes of the others."""

from __future__ import annotations

from typing import Any

from cluster.watchdog import GRACE_S, OPENING_S, Blame, Deadlines, Watchdog
from kernels import events


def watch_of(
    *trials: str, world: int = 2, deadline_s: float = 5.0, total_s: float = 20.0, compiling_s: float = 0.0,
    forgiving: bool = False,
) -> Watchdog:  # fmt: skip
    watch = Watchdog(trials or ("t",), world, Deadlines(deadline_s, total_s, compiling_s), forgiving=forgiving)
    watch.begin([f"rank {rank} (w{rank})" for rank in range(world)], 0.0)
    return watch


def opened(watch: Watchdog, now: float = 0.0) -> Watchdog:
    for rank in range(len(watch.ranks)):
        watch.heard({**events.OpenedEvent(kind="opened"), "rank": rank}, now)
    return watch


def tell(watch: Watchdog, rank: int, kind: str, now: float, trial: str = "t", **facts: Any) -> bool:
    return watch.heard({"kind": kind, "rank": rank, "trial": trial, **facts}, now)


def broken(watch: Watchdog, rank: int, now: float, message: str, *, witness: bool, stage: str = "launch") -> None:
    watch.heard(
        {
            **events.BrokenEvent(kind="broken", stage=stage, message=message, witness=witness, sticky=False),
            "rank": rank,
        },
        now,
    )


def test_ranks_that_report_and_finish_get_no_verdict() -> None:
    watch = opened(watch_of())
    for rank in (0, 1):
        assert tell(watch, rank, "sample", 1.0, index=0)
        assert tell(watch, rank, "result", 2.0)
        assert not watch.heard({**events.DoneEvent(kind="done"), "rank": rank}, 2.0)
    assert watch.done
    assert watch.verdict(1000.0) is None


def test_a_rank_that_fails_by_itself_is_guilty_although_its_peer_complained_first() -> None:
    watch = opened(watch_of())
    broken(watch, 0, 1.0, "Connection reset by peer", witness=True)
    assert watch.verdict(1.1) is None
    watch.heard(events.GoneEvent(kind="gone", message="the rank process ended with exit code 7", rank=1), 1.2)
    verdict = watch.verdict(1.2)
    assert verdict == Blame(
        1,
        "lost",
        "t",
        "rank 1 (w1): the rank process ended with exit code 7; it last reported that its bench is open.",
    )


def test_a_complaint_without_a_cause_makes_the_silent_rank_guilty_of_a_hang() -> None:
    watch = opened(watch_of())
    tell(watch, 1, "stage", 0.5, stage="time")
    broken(watch, 0, 4.0, "TimeoutError: waited for slice 3 of rank 1", witness=True, stage="hang")
    verdict = watch.verdict(4.0 + GRACE_S)
    assert verdict is not None
    assert (verdict.rank, verdict.stage, verdict.trial) == (1, "hang", "t")
    assert "the beginning of stage time" in verdict.message
    assert "rank 0 (w0) saw: TimeoutError: waited for slice 3 of rank 1" in verdict.message


def test_when_everybody_complains_the_first_is_believed() -> None:
    watch = opened(watch_of())
    broken(watch, 1, 4.0, "waited for rank 0", witness=True, stage="hang")
    broken(watch, 0, 4.1, "waited for rank 1", witness=True, stage="hang")
    verdict = watch.verdict(5.0)
    assert verdict is not None
    assert (verdict.rank, verdict.stage) == (1, "hang")


def test_silence_longer_than_the_deadline_is_a_hang_of_the_rank_that_got_least_far() -> None:
    watch = opened(watch_of())
    tell(watch, 0, "sample", 1.0, index=0)
    tell(watch, 0, "sample", 1.5, index=1)
    tell(watch, 1, "sample", 1.0, index=0)
    assert watch.verdict(5.9) is None
    verdict = watch.verdict(6.1)
    assert verdict is not None
    assert verdict.rank == 1
    assert "it does not answer. It last reported sample 0, 5.1 s ago; the deadline is 5.0 s" in (verdict.message)


def test_a_stopped_process_is_guilty_however_far_it_got() -> None:
    watch = opened(watch_of())
    tell(watch, 1, "sample", 1.0, index=0)
    watch.heard({**events.StateEvent(kind="state", stopped=True), "rank": 1}, 2.0)
    verdict = watch.verdict(6.1)
    assert verdict is not None
    assert verdict.rank == 1
    assert "its process is stopped" in verdict.message


def test_the_ranks_for_which_the_others_wait_are_named_long_before_a_deadline() -> None:
    watch = watch_of()
    assert (watch.waits_s(0.0), watch.waits_for(2.0)) == (0.0, "")
    tell(watch, 0, "opened", 1.0)
    assert watch.waits_for(2.5) == f"{watch.ranks[1].label} has not opened its bench"
    tell(watch, 1, "opened", 3.0)
    assert watch.waits_for(6.0) == "", "a long trial keeps nobody waiting"
    watch.heard({**events.StateEvent(kind="state", stopped=True), "rank": 1}, 6.0)
    assert watch.waits_for(6.0) == f"the process of {watch.ranks[1].label} is stopped"
    assert watch.waits_s(6.0) == 5.0


def test_looking_at_a_stopped_process_does_not_count_as_a_report() -> None:
    watch = opened(watch_of())
    watch.heard({**events.StateEvent(kind="state", stopped=True), "rank": 1}, 4.9)
    assert watch.verdict(5.1) is not None


def compiles(watch: Watchdog, rank: int, number: int, now: float) -> None:
    tell(watch, rank, "stage", now, trial=f"t{number}", stage="compile", number=number, of=24)


def test_a_gang_that_compiles_for_minutes_and_says_so_does_not_hang() -> None:
    """24 trials, 8 s each: far longer than any silence may be."""
    watch = opened(watch_of(*(f"t{number}" for number in range(1, 25)), compiling_s=12.0, total_s=1000.0))
    for number in range(1, 25):
        for rank in (0, 1):
            compiles(watch, rank, number, 8.0 * number)
        assert watch.verdict(8.0 * number + 7.9) is None


def test_a_compilation_that_does_not_end_is_found_by_its_own_bound_from_the_last_report_on() -> None:
    watch = opened(watch_of("t1", "t2", "t3", compiling_s=12.0, total_s=1000.0))
    for number in (1, 2):
        for rank in (0, 1):
            compiles(watch, rank, number, 8.0 * number + 0.1 * rank)
    watch.heard({**events.StateEvent(kind="state", stopped=True), "rank": 1}, 20.0)
    assert watch.verdict(27.9) is None
    verdict = watch.verdict(28.2)
    assert verdict is not None
    assert (verdict.rank, verdict.stage, verdict.trial) == (1, "hang", "t2")
    assert (
        "its process is stopped. It last reported the beginning of stage compile, trial 2 of 24, 12.1 s ago; the "
        "deadline is 12.0 s" in verdict.message
    )


def test_a_rank_that_compiles_no_more_may_be_silent_for_no_longer_than_before() -> None:
    watch = opened(watch_of("t1", compiling_s=60.0, total_s=1000.0))
    for rank in (0, 1):
        compiles(watch, rank, 1, 1.0)
        tell(watch, rank, "stage", 2.0, trial="t1", stage="verify")
    assert watch.verdict(6.9) is None
    assert watch.verdict(7.1) is not None


def test_the_form_that_is_watched_may_take_a_compilation_too() -> None:
    watch = opened(watch_of("t1", compiling_s=60.0, total_s=1000.0))
    for rank in (0, 1):
        tell(watch, rank, "stage", 1.0, trial="t1", stage="timeline")
    assert watch.verdict(60.9) is None
    assert watch.verdict(61.1) is not None


def test_nobody_is_expected_to_get_on_before_the_last_bench_is_open() -> None:
    watch = watch_of()
    watch.heard({**events.OpenedEvent(kind="opened"), "rank": 0}, 0.0)
    assert watch.verdict(20.0) is None
    watch.heard({**events.OpenedEvent(kind="opened"), "rank": 1}, 20.0)
    assert watch.verdict(24.9) is None
    assert watch.verdict(25.1) is not None


def test_a_bench_that_never_opens_ends_all_trials() -> None:
    watch = watch_of("t", "u")
    verdict = watch.verdict(OPENING_S + 5.1)
    assert verdict is not None
    assert verdict.trial is None
    assert [(f["trial"], f["stage"]) for f in watch.failures(verdict)] == [("t", "hang"), ("u", "hang")]
    assert watch.again(verdict) == []


def test_a_rank_that_chatters_for_ever_is_overdue_all_the_same() -> None:
    watch = opened(watch_of(deadline_s=1.0, total_s=3.0))
    now = 0.0
    while now < OPENING_S + 5.0 and watch.verdict(now) is None:
        now += 0.5
        for rank in (0, 1):
            tell(watch, rank, "sample", now, index=0)
    assert OPENING_S + 3.0 < now < OPENING_S + 4.0
    verdict = watch.verdict(now)
    assert verdict is not None
    assert "does not come to an end" in verdict.message
    assert "its list of 1 trials may take 3.0 s" in verdict.message


def test_a_long_list_does_not_make_a_hang_be_found_later() -> None:
    watch = opened(watch_of(*map(str, range(50)), deadline_s=1.0, total_s=1000.0))
    assert watch.verdict(0.9) is None
    assert watch.verdict(1.1) is not None


def test_what_is_timed_in_turns_ends_together_and_names_who_broke_it() -> None:
    watch = opened(watch_of("done", "beside", "guilty", "later", forgiving=True))
    for rank in (0, 1):
        tell(watch, rank, "result", 1.0, "done")
        tell(watch, rank, "sample", 1.0, "beside", index=0)
    tell(watch, 1, "stage", 1.0, "guilty", stage="time")
    watch.heard(events.GoneEvent(kind="gone", message="ended", rank=1), 1.0)
    verdict = watch.verdict(1.0)
    assert verdict is not None
    assert watch.again(verdict) == [], "who asked asks again: another gang has another baseline"
    assert [(f["trial"], f["rank"], f["stage"]) for f in watch.failures(verdict)] == [
        ("beside", 1, "cancelled"),
        ("guilty", 1, "lost"),
        ("later", 1, "cancelled"),
    ]


def test_a_failure_that_only_concerns_its_trial_is_passed_on_and_nothing_breaks() -> None:
    watch = opened(watch_of("t", "u"))
    assert tell(watch, 0, "failure", 1.0, stage="wrong", message="off by 3")
    for rank in (1, 0):
        tell(watch, rank, "result", 1.0, "u")
        watch.heard({**events.DoneEvent(kind="done"), "rank": rank}, 1.0)
    assert watch.verdict(1.0) is None


def test_a_failure_that_poisons_its_process_is_held_back_for_the_verdict() -> None:
    watch = opened(watch_of())
    assert not tell(watch, 0, "failure", 1.0, stage="launch", message="illegal memory access")
    verdict = watch.verdict(1.0)
    assert verdict is not None
    assert [(f["trial"], f["rank"], f["stage"]) for f in watch.failures(verdict)] == [("t", 0, "launch")]


def test_a_list_that_ends_without_a_result_is_a_failure_of_the_rank_that_owes_it() -> None:
    watch = opened(watch_of())
    tell(watch, 0, "result", 1.0)
    for rank in (1, 0):
        watch.heard({**events.DoneEvent(kind="done"), "rank": rank}, 1.0)
    verdict = watch.verdict(1.0)
    assert verdict is not None
    assert (verdict.rank, verdict.trial) == (1, "t")
    assert "without a result for 1 of 1 trials" in verdict.message


def test_a_gang_lost_before_it_began_is_forgiven_only_while_it_may_be() -> None:
    for forgiving, again in ((True, ["t", "u"]), (False, [])):
        watch = watch_of("t", "u", forgiving=forgiving)
        verdict = watch.lost(1, "Worker w1 died.")
        assert watch.again(verdict) == again
        assert len(watch.failures(verdict)) == 2 - len(again)


def test_cancelling_ends_every_trial_that_has_no_result() -> None:
    watch = opened(watch_of("t", "u"))
    for rank in (0, 1):
        tell(watch, rank, "result", 1.0)
    verdict = Blame(None, "cancelled", None, "Cancelled.")
    assert [(f["trial"], f["stage"]) for f in watch.failures(verdict)] == [("u", "cancelled")]
    assert watch.again(verdict) == []
