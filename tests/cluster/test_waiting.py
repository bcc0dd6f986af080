"""Why a request waits, as text."""

from __future__ import annotations

from test_gang import ask, gang_of

from cluster.gang import waiting_reasons
from cluster.gang_messages import Heartbeat, RankFailed, RankGone, WorkerLeft, WorkerSilent


def test_who_waits_hears_who_is_before_and_who_holds_the_workers() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2), ask("b", "0", 2, 1.0), ask("c", "0", 2, 2.0))
    assert waiting_reasons(gang, "b", "0", 3.0) == "0 requests are before; 1 client holds 2 of 2 workers"
    assert waiting_reasons(gang, "c", "0", 3.0) == "1 request is before; 1 client holds 2 of 2 workers"
    assert waiting_reasons(gang, "a", "0", 3.0) == "", "it has its ranks"
    assert waiting_reasons(gang, "nobody", "0", 3.0) == ""


def test_workers_that_start_are_silent_or_left_are_named() -> None:
    gang = gang_of("w0", "w1", "w2", "w3")
    gang.handle(RankGone(1.0, "w1", "w1.1"), RankFailed(2.0, "w1", "it died"), WorkerSilent(12.0, "w2", 11.0))
    gang.handle(WorkerLeft(12.0, "w3"), ask("a", "0", 4, 12.0))
    assert waiting_reasons(gang, "a", "0", 15.0) == (
        "0 requests are before; w1 is starting (1 start failed); w2 has not answered for 11 s; w3 left 3 s ago and "
        "may come back"
    )


def test_of_many_only_some_are_named() -> None:
    gang = gang_of(*(f"w{number}" for number in range(9)))
    gang.handle(*(RankGone(1.0, f"w{number}", f"w{number}.1") for number in range(9)), ask("a", "0", 9, 2.0))
    assert waiting_reasons(gang, "a", "0", 3.0).endswith("w3 is starting; ...")


def test_a_client_that_says_nothing_stands_behind_all_others() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1), ask("c", "0", 1), Heartbeat(30.0, "a"), Heartbeat(30.0, "c"))
    assert waiting_reasons(gang, "c", "0", 30.0).startswith("0 requests are before")
