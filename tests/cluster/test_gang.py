"""Gangs and GPUs are dealt by plain values: events in, commands out, compared as lists."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.gang import RELEASED_KEPT_S, Gang, GpuDealer, waiting_reasons
from cluster.gang_messages import (
    ClientGone,
    Command,
    DoomMessage,
    EndMessage,
    Event,
    GpuMessage,
    GrantMessage,
    Handshake,
    Heartbeat,
    Kill,
    RankFailed,
    RankGone,
    RankReady,
    RankSeat,
    RefusalMessage,
    ReleaseMessage,
    RequestMessage,
    Tick,
    WorkerJoined,
    WorkerLeft,
    WorkerSees,
    WorkerSilent,
)
from cluster.hosts import Gpu

# Events in, commands out, compared as lists.


def join(worker: str, host: str = "h1", at: float = 0.0) -> list[Event]:
    return [WorkerJoined(at, worker, worker, host), RankReady(at, worker, f"{worker}.1")]


def gang_of(*workers: str, **hosts: str) -> Gang:
    gang = Gang("s")
    for worker in workers:
        gang.handle(*join(worker, hosts.get(worker, "h1")))
    return gang


def ask(client: str, stream: str, world: int, at: float = 0.0, shares_heap: bool = True) -> RequestMessage:
    return RequestMessage(at, client, stream, world, shares_heap)


def place(worker: str, incarnation: str = "1", host: str = "h1") -> RankSeat:
    return RankSeat(worker, worker, host, f"{worker}.{incarnation}")


def granted(client: str, stream: str, session: str, *workers: str) -> GrantMessage:
    return GrantMessage(client, stream, session, tuple(place(worker) for worker in workers))


def clean(client: str, stream: str, at: float = 1.0) -> ReleaseMessage:
    return ReleaseMessage(at, client, stream, spoiled=False)


def test_a_request_is_granted_all_its_ranks_at_once() -> None:
    gang = gang_of("w0", "w1")
    assert gang.handle(ask("a", "0", 2)) == [granted("a", "0", "s-1", "w0", "w1")]


def test_a_request_that_comes_after_it_was_taken_back_is_not_granted() -> None:
    gang = gang_of("w0")
    gang.handle(ReleaseMessage(1.0, "a", "0", spoiled=False), Tick(30.0))
    assert gang.handle(ask("a", "0", 1, 30.5)) == [], "they come by two connections"
    assert not gang.requests
    assert gang.handle(ask("a", "1", 1, 31.0)) == [granted("a", "1", "s-1", "w0")]
    gang.handle(clean("a", "1", 32.0), Tick(2.0 + RELEASED_KEPT_S))
    assert not gang.released, "nothing is kept for ever, and of what was granted nothing at all"


def test_ranks_are_in_the_order_of_their_names_and_ten_comes_after_two() -> None:
    gang = gang_of("w10", "w2", "w1")
    assert gang.handle(ask("a", "0", 3)) == [granted("a", "0", "s-1", "w1", "w2", "w10")]


def test_one_rank_missing_grants_nothing_until_it_is_there() -> None:
    gang = gang_of("w0")
    gang.handle(WorkerJoined(0.0, "w1", "w1", "h1"))
    assert gang.handle(ask("a", "0", 2)) == []
    assert gang.handle(RankReady(1.0, "w1", "w1.1")) == [granted("a", "0", "s-1", "w0", "w1")]


def test_the_same_client_gets_its_warm_session_again() -> None:
    gang = gang_of("w0", "w1", "w2", "w3")
    gang.handle(ask("a", "0", 2), ask("b", "0", 2))
    assert gang.handle(clean("a", "0"), clean("b", "0"), ask("b", "1", 2, 1.0)) == [
        granted("b", "1", "s-2", "w2", "w3"),
    ]
    assert gang.handle(ask("a", "1", 2, 1.0)) == [granted("a", "1", "s-1", "w0", "w1")]


def test_another_client_takes_over_a_warm_session_that_nobody_else_wants() -> None:
    gang = gang_of("w0", "w1", "w2", "w3")
    gang.handle(ask("a", "0", 2), clean("a", "0"), ClientGone(1.0, "a"))
    assert gang.handle(ask("b", "0", 2, 2.0)) == [granted("b", "0", "s-1", "w0", "w1")]


def test_a_client_that_is_at_work_keeps_its_warm_session_while_others_are_free() -> None:
    gang = gang_of("w0", "w1", "w2", "w3")
    gang.handle(ask("a", "0", 1), clean("a", "0"))
    assert gang.handle(ask("a", "1", 2, 1.0)) == [granted("a", "1", "s-2", "w1", "w2")]
    assert gang.handle(ask("b", "0", 1, 1.0)) == [granted("b", "0", "s-3", "w3")]
    assert gang.handle(ask("b", "1", 1, 1.0)) == [granted("b", "1", "s-1", "w0")]


def test_a_session_is_not_warm_once_one_of_its_ranks_sat_elsewhere() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2), clean("a", "0"))
    assert gang.handle(ask("a", "1", 1, 1.0)) == [granted("a", "1", "s-2", "w0")]
    assert gang.handle(clean("a", "1", 2.0), ask("a", "2", 2, 2.0)) == [granted("a", "2", "s-3", "w0", "w1")]


def test_a_session_is_not_warm_for_ranks_that_may_not_share_a_heap() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2), clean("a", "0"))
    assert gang.handle(ask("a", "1", 2, 1.0, shares_heap=False)) == [granted("a", "1", "s-2", "w0", "w1")]


def test_two_clients_that_want_everything_take_turns() -> None:
    gang = gang_of("w0", "w1")
    assert gang.handle(ask("a", "0", 2), ask("b", "0", 2)) == [granted("a", "0", "s-1", "w0", "w1")]
    assert gang.handle(ask("a", "1", 2, 1.0)) == []
    assert gang.handle(clean("a", "0", 2.0)) == [granted("b", "0", "s-1", "w0", "w1")]
    assert gang.handle(clean("b", "0", 3.0)) == [granted("a", "1", "s-1", "w0", "w1")]


def test_the_client_with_the_fewest_granted_seconds_is_next() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1), ask("a", "1", 1), clean("a", "0", 5.0))
    assert gang.handle(ask("b", "1", 1, 5.5), clean("b", "0", 6.0)) == [granted("b", "1", "s-1", "w0")]


def test_within_a_client_the_first_request_is_first() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("a", "2", 1), ask("a", "1", 1))
    assert gang.handle(clean("a", "0")) == [granted("a", "2", "s-1", "w0")]


def test_small_gangs_do_not_starve_a_large_one() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("small", "0", 1))
    assert gang.handle(ask("large", "0", 2, 1.0), ask("small", "1", 1, 1.0)) == []
    assert gang.handle(clean("small", "0", 2.0)) == [granted("large", "0", "s-2", "w0", "w1")]


def test_a_newcomer_does_not_get_the_seconds_back_that_it_was_not_there() -> None:
    gang = gang_of("w0")
    gang.handle(ask("old", "0", 1), clean("old", "0", 100.0), ask("old", "1", 1, 100.0), ask("old", "2", 1, 100.0))
    gang.handle(ask("new", "0", 1, 101.0), ask("new", "1", 1, 101.0), clean("old", "1", 102.0))
    assert ("new", "0") in gang.grants
    gang.handle(clean("new", "0", 104.0))
    assert ("old", "2") in gang.grants


def test_a_gang_that_shares_memory_sits_on_one_host() -> None:
    gang = gang_of("w0", "w1", "w2", w0="h1", w1="h2", w2="h2")
    assert gang.handle(ask("a", "0", 2)) == [
        GrantMessage("a", "0", "s-1", (place("w1", host="h2"), place("w2", host="h2")))
    ]


def test_a_gang_that_shares_none_crosses_hosts_when_it_must() -> None:
    gang = gang_of("w0", "w1", "w2", w0="h1", w1="h2", w2="h2")
    places = (place("w0", host="h1"), place("w1", host="h2"), place("w2", host="h2"))
    assert gang.handle(ask("a", "0", 3, shares_heap=False)) == [GrantMessage("a", "0", "s-1", places)]


def test_a_request_larger_than_the_cluster_is_refused_with_both_numbers() -> None:
    gang = gang_of("w0", "w1")
    sentence = "4 ranks are too many: the cluster has 2 workers. Accepted: at most 2, or start more workers."
    assert gang.handle(ask("a", "0", 4)) == [RefusalMessage("a", "0", sentence)]


def test_a_request_larger_than_any_host_is_refused_when_it_shares_memory() -> None:
    gang = gang_of("w0", "w1", "w2", w2="h2")
    (refused,) = gang.handle(ask("a", "0", 3))
    assert isinstance(refused, RefusalMessage)
    assert refused.message.startswith("3 ranks that share memory are too many: no host has more than 2 of the")


def test_a_client_that_goes_gives_its_grant_back_at_once_and_its_ranks_are_killed() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2), ask("b", "0", 2))
    assert gang.handle(ClientGone(1.0, "a")) == [Kill("w0", "w0.1"), Kill("w1", "w1.1")]
    assert gang.grants == {}
    gang.handle(RankReady(2.0, "w0", "w0.2"))
    assert gang.handle(RankReady(2.0, "w1", "w1.2")) == [
        GrantMessage("b", "0", "s-2", (place("w0", "2"), place("w1", "2"))),
    ]


def test_a_client_that_goes_while_it_waits_is_forgotten() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1))
    assert gang.handle(ClientGone(1.0, "b")) == []
    assert gang.handle(clean("a", "0", 2.0)) == []


def test_a_silent_client_loses_its_grant_after_its_lease_and_a_heartbeat_renews_it() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), Heartbeat(30.0, "a"))
    assert gang.handle(Tick(51.0), Tick(80.0)) == []
    (ended, kill) = gang.handle(Tick(80.5))
    assert isinstance(ended, EndMessage)
    assert (ended.client, ended.stream, ended.worker) == ("a", "0", None)
    assert kill == Kill("w0", "w0.1")


def test_a_silent_client_does_not_wait_for_ever() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1), Heartbeat(59.0, "a"))
    (ended,) = gang.handle(Tick(61.0))
    assert isinstance(ended, EndMessage)
    assert (ended.client, ended.stream) == ("b", "0")


def test_a_gang_that_loses_a_worker_is_told_and_its_other_ranks_are_killed() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2))
    sentence = "Worker w1 on h1 (w1) left the cluster or died."
    assert gang.handle(WorkerLeft(1.0, "w1")) == [EndMessage("a", "0", "w1", sentence), Kill("w0", "w0.1")]
    assert gang.handle(ReleaseMessage(1.1, "a", "0", spoiled=True)) == []


def test_a_lost_worker_that_comes_back_under_its_name_serves_who_waited() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerLeft(1.0, "w1"), ask("a", "0", 2, 2.0), WorkerJoined(4.0, "w1-new", "w1", "h1"))
    (answer,) = gang.handle(RankReady(5.0, "w1-new", "x"))
    assert isinstance(answer, GrantMessage)
    assert [seat.worker for seat in answer.places] == ["w0", "w1-new"]


def test_who_waits_for_a_lost_worker_does_not_hold_back_the_others() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerLeft(1.0, "w1"), ask("a", "0", 2, 2.0))
    assert gang.handle(ask("b", "0", 1, 2.0)) == [granted("b", "0", "s-1", "w0")]


def test_a_spoiled_grant_has_its_ranks_killed_and_is_free_when_new_ones_are_ready() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1))
    assert gang.handle(ReleaseMessage(1.0, "a", "0", spoiled=True)) == [Kill("w0", "w0.1")]
    assert gang.handle(ask("a", "1", 1, 1.1)) == []
    assert gang.handle(RankReady(2.0, "w0", "w0.2")) == [GrantMessage("a", "1", "s-2", (place("w0", "2"),))]


def test_a_rank_process_that_was_replaced_already_is_not_killed_again() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), RankGone(1.0, "w0", "w0.1"), RankReady(2.0, "w0", "w0.2"))
    assert gang.handle(ReleaseMessage(2.1, "a", "0", spoiled=True)) == []


def test_a_late_word_of_an_old_rank_process_changes_nothing() -> None:
    gang = gang_of("w0")
    gang.handle(RankReady(1.0, "w0", "w0.2"), RankGone(1.1, "w0", "w0.1"))
    assert gang.handle(ask("a", "0", 1)) == [GrantMessage("a", "0", "s-1", (place("w0", "2"),))]


def test_a_request_can_be_taken_back() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1), ReleaseMessage(0.5, "b", "0", spoiled=True))
    assert gang.handle(clean("a", "0")) == []


@pytest.mark.parametrize("event", [clean("x", "9"), ClientGone(0.0, "x"), Heartbeat(0.0, "x"), WorkerLeft(0.0, "x")])
def test_words_about_strangers_change_nothing(event: Event) -> None:
    assert gang_of("w0").handle(event) == []


OF_ITS_OWN = "on backend = triton need a GPU each, but {} of the cluster's 4 workers have one. "


def test_one_rank_is_ended_before_the_grant_is_given_back_and_idle_ones_live_on() -> None:
    gang = gang_of("w0", "w1", "w2")
    gang.handle(ask("a", "0", 3))
    assert gang.handle(DoomMessage(1.0, "a", "0", "w1")) == [Kill("w1", "w1.1")]
    gang.handle(RankReady(2.0, "w1", "w1.2"))
    spoiled = ReleaseMessage(3.0, "a", "0", spoiled=True, idle=("w0",))
    assert gang.handle(spoiled) == [Kill("w2", "w2.1")], "the new process of w1 is none of the grant's"
    gang.handle(RankReady(4.0, "w2", "w2.2"))
    (answer,) = gang.handle(ask("a", "1", 3, 5.0))
    assert isinstance(answer, GrantMessage)
    assert answer.session == "s-2", "no session of a rank that was replaced is warm"
    assert [place.incarnation for place in answer.places] == ["w0.1", "w1.2", "w2.2"]


def test_who_holds_no_grant_ends_no_rank() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1))
    assert gang.handle(DoomMessage(1.0, "b", "0", "w0"), DoomMessage(1.0, "a", "0", "w9")) == []


def gpu(worker: str, host: str = "h1") -> list[Event]:
    return [WorkerJoined(0.0, worker, worker, host), RankReady(0.0, worker, f"{worker}.1", backend="triton")]


def ask_gpus(stream: str, world: int, at: float = 0.0) -> RequestMessage:
    return RequestMessage(at, "a", stream, world, True, "triton")


def test_a_gang_of_gpus_sits_on_workers_that_have_one_and_cpu_ranks_leave_them_free() -> None:
    gang = gang_of("w2", "w3")
    gang.handle(*gpu("w0"), *gpu("w1"))
    assert gang.handle(ask("a", "0", 2)) == [granted("a", "0", "s-1", "w2", "w3")]
    assert gang.handle(ask_gpus("1", 2)) == [granted("a", "1", "s-2", "w0", "w1")]


def test_cpu_ranks_take_workers_with_gpus_where_no_others_are() -> None:
    gang = Gang("s")
    gang.handle(*gpu("w0"), *gpu("w1"))
    assert gang.handle(ask("a", "0", 2)) == [granted("a", "0", "s-1", "w0", "w1")]
    assert gang.handle(ask_gpus("1", 1)) == [], "it waits for one of them"
    assert gang.handle(clean("a", "0")) == [granted("a", "1", "s-2", "w0")]


def test_a_warm_session_of_cpu_ranks_serves_gpus_only_where_all_of_it_has_them() -> None:
    gang = Gang("s")
    gang.handle(*gpu("w0"), *gpu("w1"), *join("w2"), *join("w3"))
    gang.handle(ask("a", "0", 2), clean("a", "0"))
    assert gang.handle(ask_gpus("1", 2, 1.0)) == [granted("a", "1", "s-2", "w0", "w1")]
    gang.handle(clean("a", "1", 2.0))
    assert gang.handle(ask_gpus("2", 2, 3.0)) == [granted("a", "2", "s-2", "w0", "w1")], "this one is warm"


def test_a_gang_of_gpus_is_on_the_host_that_has_enough_of_them() -> None:
    gang = gang_of("w0", "w1", "w2")
    gang.handle(*gpu("v0", "h2"), *gpu("v1", "h2"))
    (answer,) = gang.handle(ask_gpus("0", 2))
    assert isinstance(answer, GrantMessage)
    assert [place.worker for place in answer.places] == ["v0", "v1"]


@pytest.mark.parametrize(
    ("num_gpus", "num_others", "sentence"),
    [
        (2, 2, OF_ITS_OWN.format(2) + "Accepted: at most 2, or a machine of CPU ranks."),
        (0, 4, OF_ITS_OWN.format(0) + "Accepted: a machine of CPU ranks."),
        (2, 0, "are too many: the cluster has 2 workers. Accepted: at most 2, or start more workers."),
    ],
)  # fmt: skip
def test_more_ranks_than_gpus_are_refused_with_both_numbers(num_gpus: int, num_others: int, sentence: str) -> None:
    gang = gang_of(*(f"w{number}" for number in range(num_others)))
    for number in range(num_gpus):
        gang.handle(*gpu(f"v{number}"))
    (answer,) = gang.handle(RequestMessage(0.0, "a", "0", 4, False, "triton"))
    assert isinstance(answer, RefusalMessage)
    assert answer.message.removeprefix("4 ranks ") == sentence


def test_gpus_of_several_hosts_are_refused_without_a_schedule_that_would_not_help() -> None:
    gang = Gang("s")
    gang.handle(*gpu("v0", "h1"), *gpu("v1", "h2"))
    (answer,) = gang.handle(ask_gpus("0", 2))
    assert isinstance(answer, RefusalMessage)
    assert answer.message.endswith("of the cluster's 2 workers. Accepted: at most 1 on one host.")


def test_whether_a_worker_has_a_gpu_is_not_known_before_its_rank_process_says_so() -> None:
    gang = Gang("s")
    gang.handle(WorkerJoined(0.0, "w0", "w0", "h1"))
    assert gang.handle(ask_gpus("0", 1)) == [], "it waits"
    (answer,) = gang.handle(RankReady(1.0, "w0", "w0.1"))
    assert isinstance(answer, RefusalMessage)


# Gangs of many ranks, and gangs that the network links: on which workers they sit.


@pytest.mark.parametrize("count", [16, 32])
def test_a_cluster_of_many_ranks_forms_a_gang_of_them_all(count: int) -> None:
    names = [f"w{number}" for number in range(count)]
    gang = gang_of(*reversed(names))
    assert gang.handle(ask("a", "0", count)) == [granted("a", "0", "s-1", *names)]


def across(client: str, stream: str, world: int) -> RequestMessage:
    return RequestMessage(0.0, client, stream, world, shares_heap=False, across=True)


def test_ranks_that_the_network_links_take_hosts_in_turns_though_one_has_room_for_all() -> None:
    hosts = {"w0": "h1", "w1": "h1", "w2": "h1", "w3": "h2", "w4": "h2"}
    gang = gang_of(*hosts, **hosts)
    (grant,) = gang.handle(across("a", "0", 2))
    assert isinstance(grant, GrantMessage)
    assert [place.host for place in grant.places] == ["h1", "h2"]
    gang.handle(clean("a", "0"))
    (grant,) = gang.handle(across("a", "1", 4))
    assert isinstance(grant, GrantMessage)
    assert [place.worker for place in grant.places] == ["w0", "w1", "w3", "w4"]


def test_a_session_on_one_host_serves_nobody_who_asked_for_the_network() -> None:
    hosts = {"w0": "h1", "w1": "h1", "w2": "h2"}
    gang = gang_of(*hosts, **hosts)
    gang.handle(ask("a", "0", 2, shares_heap=False), clean("a", "0"))
    (grant,) = gang.handle(across("a", "1", 2))
    assert isinstance(grant, GrantMessage)
    assert [place.worker for place in grant.places] == ["w0", "w2"]


def test_ranks_that_the_network_links_wait_for_another_host_to_be_free() -> None:
    hosts = {"w0": "h1", "w1": "h1", "w2": "h1", "w3": "h2"}
    gang = gang_of(*hosts, **hosts)
    (held,) = gang.handle(ask("b", "0", 1))
    assert isinstance(held, GrantMessage)
    assert [place.worker for place in held.places] == ["w3"], "the smallest host that fits"
    assert gang.handle(across("a", "0", 2)) == [], "three of the other host are free"
    (grant,) = gang.handle(clean("b", "0"))
    assert isinstance(grant, GrantMessage)
    assert [place.worker for place in grant.places] == ["w0", "w3"]


# Why a request waits, as text.


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


# Every worker gets one GPU that no other worker has, or none: as a table, and as events and commands.

A, B, C, D = (Gpu(number=number, name="NVIDIA H200", uuid=f"GPU-{letter}") for number, letter in enumerate("abcd"))


def dealt(**sees: Sequence[Gpu]) -> dict[str, Gpu | None]:
    """Who has what when all workers have said at once what they see, in this order."""
    dealer = GpuDealer()
    at_once = [answer for worker, gpus in sees.items() for answer in dealer.sees(worker, gpus)]
    return dict([*at_once, *dealer.decide()])


def test_workers_that_see_all_gpus_of_a_host_get_one_each() -> None:
    assert dealt(w0=[A, B], w1=[A, B]) == {"w0": A, "w1": B}


def test_dask_cudas_turned_lists_give_everybody_the_first_of_its_own() -> None:
    assert dealt(w2=[C, D, A, B], w0=[A, B, C, D], w1=[B, C, D, A]) == {"w0": A, "w1": B, "w2": C}


def test_the_surplus_gets_none() -> None:
    assert dealt(w0=[A, B], w1=[A, B], w2=[A, B]) == {"w0": A, "w1": B, "w2": None}


def test_who_may_have_one_gpu_only_gets_it_before_those_who_may_have_several() -> None:
    assert dealt(w0=[A, B, C], w1=[A, B], w2=[A]) == {"w0": C, "w1": B, "w2": A}


def test_a_worker_that_sees_none_is_told_so_at_once_though_others_are_free() -> None:
    assert GpuDealer().sees("w0", []) == [("w0", None)]


def test_a_gpu_without_a_name_is_dealt_to_nobody() -> None:
    assert GpuDealer().sees("w0", [Gpu(number=0, name="NVIDIA H200")]) == [("w0", None)]


def test_a_worker_that_asks_again_keeps_its_own_and_one_that_left_gives_it_back() -> None:
    dealer = GpuDealer()
    dealer.sees("w0", [A, B])
    dealer.decide()
    assert dealer.sees("w0", [B, A]) == [("w0", A)]
    assert dealer.sees("w1", [A]) == [("w1", None)]
    dealer.free("w0")
    assert dealer.sees("w2", [A]) == [("w2", A)]


def test_workers_that_share_get_the_same_gpu_as_many_as_they_say() -> None:
    dealer = GpuDealer()
    assert [dealer.sees(f"w{number}", [A], 3) for number in range(4)] == [
        [("w0", A)], [("w1", A)], [("w2", A)], [("w3", None)]
    ]  # fmt: skip
    dealer.free("w1")
    assert dealer.sees("w4", [A], 3) == [("w4", A)], "one that left makes room"


def test_a_worker_that_shares_gets_no_gpu_of_one_that_does_not_and_the_other_way_round() -> None:
    dealer = GpuDealer()
    assert dealer.sees("alone", [A]) == [("alone", A)]
    assert dealer.sees("w0", [A], 8) == [("w0", None)]
    assert dealer.sees("w1", [B], 8) == [("w1", B)]
    assert dealer.sees("other", [B]) == [("other", None)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["sees", "leave", "decide"]), st.integers(0, 5), st.permutations([A, B, C]),
                  st.integers(0, 3)),
        max_size=40,
    )
)  # fmt: skip
def test_no_gpu_is_ever_of_two_workers(steps: list[tuple[str, int, list[Gpu], int]]) -> None:
    dealer, has = GpuDealer(), dict[str, Gpu | None]()
    for step, number, gpus, count in steps:
        worker = f"w{number}"
        match step:
            case "sees":
                before, answers = has.get(worker), dealer.sees(worker, gpus[:count])
                assert before is None or answers == [(worker, before)], "kept for life"
                has |= answers
            case "leave":
                dealer.free(worker)
                has.pop(worker, None)
            case "decide":
                has |= dealer.decide()
        held = [gpu for gpu in has.values() if gpu is not None]
        assert len(held) == len(set(held))


def dealing_join(gang: Gang, worker: str, *gpus: Gpu, host: str = "h1") -> list[Command]:
    return gang.handle(WorkerJoined(0.0, worker, worker.partition("#")[0], host), WorkerSees(0.0, worker, gpus))


def test_a_worker_with_a_choice_is_answered_at_the_next_tick_and_one_without_at_once() -> None:
    gang = Gang("s")
    assert dealing_join(gang, "w0", A, B) == []
    assert dealing_join(gang, "w1", A) == [GpuMessage("w1", A)]
    assert dealing_join(gang, "w2") == [GpuMessage("w2", None)]
    assert gang.handle(Tick(1.0)) == [GpuMessage("w0", B)]
    assert gang.handle(Tick(2.0)) == []


def test_a_grant_names_the_gpu_of_each_place_and_a_new_rank_process_has_the_same() -> None:
    gang = Gang("s")
    dealing_join(gang, "w0", A, B)
    dealing_join(gang, "w1", A, B)
    gang.handle(Tick(1.0))
    gang.handle(*(RankReady(1.0, worker, "1", "kernels", "triton") for worker in ("w0", "w1")))
    gang.handle(RankReady(2.0, "w1", "2", "kernels", "triton"))
    (granted,) = gang.handle(RequestMessage(3.0, "a", "0", 2, True, "triton"))
    assert isinstance(granted, GrantMessage)
    assert [place.gpu for place in granted.places] == [A, B]


def test_a_worker_that_its_nanny_brought_back_gets_a_gpu_again() -> None:
    gang = Gang("s")
    for worker in ("w0#1", "w1#1"):
        dealing_join(gang, worker, A, B)
    gang.handle(Tick(1.0))
    gang.handle(WorkerLeft(2.0, "w0#1"))
    dealing_join(gang, "w0#2", A, B)
    assert gang.handle(Tick(3.0)) == [GpuMessage("w0#2", A)]


def test_what_a_stranger_sees_is_not_answered() -> None:
    assert Gang("s").handle(WorkerSees(0.0, "w9", (A,))) == []


def on_cores(worker: str, host: str, cores: int, backend: str = "cpu") -> list[Event]:
    shake = Handshake(device={"cores": list(range(cores))})
    return [WorkerJoined(0.0, worker, worker, host), RankReady(0.0, worker, f"{worker}.1", shake, backend)]


def test_gangs_of_two_clients_do_not_share_the_cores_of_a_host() -> None:
    gang = Gang("s")
    for number in range(4):
        gang.handle(*on_cores(f"w{number}", "h1", cores=2))
    assert gang.handle(ask("a", "0", 2))
    assert gang.handle(ask("b", "0", 2)) == [], "two workers are free, but not the cores"
    assert "a gang times on the same cores as the free workers" in waiting_reasons(gang, "b", "0", 1.0)
    assert [type(command) for command in gang.handle(clean("a", "0"))] == [GrantMessage]


def test_a_second_gang_takes_the_host_with_idle_cores_and_a_large_one_an_idle_host() -> None:
    gang = Gang("s")
    for number in range(6):
        gang.handle(*on_cores(f"w{number}", f"h{1 + number // 3}", cores=2))
    [first] = gang.handle(ask("a", "0", 3))  # three ranks on two cores: alone, but not refused
    [second] = gang.handle(ask("b", "0", 1))
    assert isinstance(first, GrantMessage)
    assert isinstance(second, GrantMessage)
    assert {each.host for each in first.places} == {"h1"}
    assert {each.host for each in second.places} == {"h2"}


def test_gpu_ranks_are_not_held_back_by_cores() -> None:
    gang = Gang("s")
    for number in range(2):
        gang.handle(*on_cores(f"w{number}", "h1", cores=1, backend="triton"))
    assert gang.handle(ask_gpus("0", 1))
    assert gang.handle(ask_gpus("1", 1))
