"""Events in, commands out, compared as lists; and what must hold for any sequence of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.gang import Gang
from cluster.stimulus import (
    ClientGone,
    Command,
    Ended,
    Event,
    Granted,
    Heartbeat,
    Kill,
    Place,
    RankFailed,
    RankGone,
    RankReady,
    Refused,
    Released,
    Requested,
    Tick,
    WorkerJoined,
    WorkerLeft,
)


def join(worker: str, host: str = "h1", at: float = 0.0) -> list[Event]:
    return [WorkerJoined(at, worker, worker, host), RankReady(at, worker, f"{worker}.1", "kernels")]


def gang_of(*workers: str, **hosts: str) -> Gang:
    gang = Gang("s")
    for worker in workers:
        gang.handle(*join(worker, hosts.get(worker, "h1")))
    return gang


def ask(client: str, stream: str, world: int, at: float = 0.0, shares_heap: bool = True) -> Requested:
    return Requested(at, client, stream, world, shares_heap, 5.0)


def place(worker: str, incarnation: str = "1", host: str = "h1") -> Place:
    return Place(worker, worker, host, f"{worker}.{incarnation}", "kernels")


def granted(client: str, stream: str, session: str, *workers: str) -> Granted:
    return Granted(client, stream, session, tuple(place(worker) for worker in workers))


def clean(client: str, stream: str, at: float = 1.0) -> Released:
    return Released(at, client, stream, spoiled=False)


def test_a_request_is_granted_all_its_ranks_at_once() -> None:
    gang = gang_of("w0", "w1")
    assert gang.handle(ask("a", "0", 2)) == [granted("a", "0", "s-1", "w0", "w1")]


def test_ranks_are_in_the_order_of_their_names_and_ten_comes_after_two() -> None:
    gang = gang_of("w10", "w2", "w1")
    assert gang.handle(ask("a", "0", 3)) == [granted("a", "0", "s-1", "w1", "w2", "w10")]


def test_one_rank_missing_grants_nothing_until_it_is_there() -> None:
    gang = gang_of("w0")
    gang.handle(WorkerJoined(0.0, "w1", "w1", "h1"))
    assert gang.handle(ask("a", "0", 2)) == []
    assert gang.handle(RankReady(1.0, "w1", "w1.1", "kernels")) == [granted("a", "0", "s-1", "w0", "w1")]


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


def test_a_session_is_not_warm_for_another_deadline() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2), clean("a", "0"))
    assert gang.handle(Requested(1.0, "a", "1", 2, True, 60.0)) == [granted("a", "1", "s-2", "w0", "w1")]


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
    assert gang.handle(ask("a", "0", 2)) == [Granted("a", "0", "s-1", (place("w1", host="h2"), place("w2", host="h2")))]


def test_a_gang_that_shares_none_crosses_hosts_when_it_must() -> None:
    gang = gang_of("w0", "w1", "w2", w0="h1", w1="h2", w2="h2")
    places = (place("w0", host="h1"), place("w1", host="h2"), place("w2", host="h2"))
    assert gang.handle(ask("a", "0", 3, shares_heap=False)) == [Granted("a", "0", "s-1", places)]


def test_a_request_larger_than_the_cluster_is_refused_with_both_numbers() -> None:
    gang = gang_of("w0", "w1")
    sentence = "4 ranks were asked for, but the cluster has 2 workers. Accepted: at most 2, or start more workers."
    assert gang.handle(ask("a", "0", 4)) == [Refused("a", "0", sentence)]


def test_a_request_larger_than_any_host_is_refused_when_it_shares_memory() -> None:
    gang = gang_of("w0", "w1", "w2", w2="h2")
    (refused,) = gang.handle(ask("a", "0", 3))
    assert isinstance(refused, Refused)
    assert refused.sentence.startswith("3 ranks were asked for that share memory, but no host has more than 2 of the")


def test_a_rank_process_that_cannot_start_is_named_in_the_refusal() -> None:
    gang = gang_of("w0")
    gang.handle(WorkerJoined(0.0, "w1", "w1", "h1"), ask("a", "0", 2))
    (refused,) = gang.handle(RankFailed(1.0, "w1", "ModuleNotFoundError: No module named 'torch'"))
    assert isinstance(refused, Refused)
    assert "1 of the cluster's 2 workers cannot start" in refused.sentence
    assert "w1: ModuleNotFoundError: No module named 'torch'" in refused.sentence
    assert gang.handle(RankReady(9.0, "w1", "w1.2", "kernels"), ask("a", "1", 2, 9.0)) != []


def test_a_client_that_goes_gives_its_grant_back_at_once_and_its_ranks_are_killed() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2), ask("b", "0", 2))
    assert gang.handle(ClientGone(1.0, "a")) == [Kill("w0", "w0.1"), Kill("w1", "w1.1")]
    assert gang.grants == {}
    gang.handle(RankReady(2.0, "w0", "w0.2", "kernels"))
    assert gang.handle(RankReady(2.0, "w1", "w1.2", "kernels")) == [
        Granted("b", "0", "s-2", (place("w0", "2"), place("w1", "2"))),
    ]


def test_a_client_that_goes_while_it_waits_is_forgotten() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1))
    assert gang.handle(ClientGone(1.0, "b")) == []
    assert gang.handle(clean("a", "0", 2.0)) == []


def test_a_silent_client_loses_its_grant_after_its_lease_and_a_heartbeat_renews_it() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), Heartbeat(30.0, "a"))
    assert gang.handle(Tick(61.0), Tick(90.0)) == []
    (ended, kill) = gang.handle(Tick(90.5))
    assert isinstance(ended, Ended)
    assert (ended.client, ended.stream, ended.worker) == ("a", "0", None)
    assert kill == Kill("w0", "w0.1")


def test_a_silent_client_does_not_wait_for_ever() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1), Heartbeat(59.0, "a"))
    (ended,) = gang.handle(Tick(61.0))
    assert isinstance(ended, Ended)
    assert (ended.client, ended.stream) == ("b", "0")


def test_a_gang_that_loses_a_worker_is_told_and_its_other_ranks_are_killed() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2))
    sentence = "Worker w1 on h1 (w1) left the cluster or died."
    assert gang.handle(WorkerLeft(1.0, "w1")) == [Ended("a", "0", "w1", sentence), Kill("w0", "w0.1")]
    assert gang.handle(Released(1.1, "a", "0", spoiled=True)) == []


def test_a_lost_worker_is_waited_for_and_refused_when_it_does_not_come_back() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerLeft(1.0, "w1"))
    assert gang.handle(ask("a", "0", 2, 2.0), Tick(10.0)) == []
    (refused,) = gang.handle(Tick(11.5))
    assert isinstance(refused, Refused)


def test_a_lost_worker_that_comes_back_under_its_name_serves_who_waited() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerLeft(1.0, "w1"), ask("a", "0", 2, 2.0), WorkerJoined(4.0, "w1-new", "w1", "h1"))
    (answer,) = gang.handle(RankReady(5.0, "w1-new", "x", "kernels"))
    assert isinstance(answer, Granted)
    assert [seat.worker for seat in answer.places] == ["w0", "w1-new"]


def test_who_waits_for_a_lost_worker_does_not_hold_back_the_others() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerLeft(1.0, "w1"), ask("a", "0", 2, 2.0))
    assert gang.handle(ask("b", "0", 1, 2.0)) == [granted("b", "0", "s-1", "w0")]


def test_a_spoiled_grant_has_its_ranks_killed_and_is_free_when_new_ones_are_ready() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1))
    assert gang.handle(Released(1.0, "a", "0", spoiled=True)) == [Kill("w0", "w0.1")]
    assert gang.handle(ask("a", "1", 1, 1.1)) == []
    assert gang.handle(RankReady(2.0, "w0", "w0.2", "kernels")) == [Granted("a", "1", "s-2", (place("w0", "2"),))]


def test_a_rank_process_that_was_replaced_already_is_not_killed_again() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), RankGone(1.0, "w0", "w0.1"), RankReady(2.0, "w0", "w0.2", "kernels"))
    assert gang.handle(Released(2.1, "a", "0", spoiled=True)) == []


def test_a_late_word_of_an_old_rank_process_changes_nothing() -> None:
    gang = gang_of("w0")
    gang.handle(RankReady(1.0, "w0", "w0.2", "kernels"), RankGone(1.1, "w0", "w0.1"))
    assert gang.handle(ask("a", "0", 1)) == [Granted("a", "0", "s-1", (place("w0", "2"),))]


def test_a_request_can_be_taken_back() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), ask("b", "0", 1), Released(0.5, "b", "0", spoiled=True))
    assert gang.handle(clean("a", "0")) == []


@pytest.mark.parametrize("event", [clean("x", "9"), ClientGone(0.0, "x"), Heartbeat(0.0, "x"), WorkerLeft(0.0, "x")])
def test_words_about_strangers_change_nothing(event: Event) -> None:
    assert gang_of("w0").handle(event) == []


# for any sequence of events

HOSTS = {"w0": "h1", "w1": "h1", "w2": "h1", "w3": "h2", "w4": "h2"}
CLIENTS = ["a", "b", "c"]
workers = st.sampled_from(sorted(HOSTS))
clients = st.sampled_from(CLIENTS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), clients, st.integers(1, 5), st.booleans()),
        st.tuples(st.just("release"), clients, st.integers(0, 3), st.booleans()),
        st.tuples(st.just("crash"), workers),
        st.tuples(st.just("leave"), workers),
        st.tuples(st.just("go"), clients),
        st.tuples(st.just("wait"), st.floats(0.1, 30.0)),
    ),
    max_size=60,
)


class World:
    """Plays the broker, the keepers and the clients around a gang."""

    def __init__(self) -> None:
        self.gang = Gang("s", lease_s=1e9)
        self.now = 0.0
        self.incarnations: dict[str, int] = {}
        self.names = dict.fromkeys(HOSTS, 0)
        self.num_streams = 0
        self.held: dict[tuple[str, str], tuple[str, ...]] = {}
        self.waiting: dict[tuple[str, str], int] = {}
        for worker in HOSTS:
            self.join(worker)

    def tell(self, event: Event) -> None:
        for command in self.gang.handle(event):
            self.obey(command)
            self.check()

    def obey(self, command: Command) -> None:
        match command:
            case Granted():
                key = (command.client, command.stream)
                assert len(command.places) == self.waiting.pop(key), "all ranks or none"
                self.held[key] = tuple(place.worker for place in command.places)
            case Refused():
                del self.waiting[command.client, command.stream]
            case Ended():
                self.held.pop((command.client, command.stream), None)
            case Kill():
                self.revive(command.worker)

    def check(self) -> None:
        taken = [place.worker for grant in self.gang.grants.values() for place in grant.places]
        assert len(taken) == len(set(taken)), "no worker in two grants"
        assert all(self.gang.workers[worker].busy for worker in taken)
        assert sum(worker.busy for worker in self.gang.workers.values()) == len(taken)

    def join(self, worker: str) -> None:
        self.names[worker] += 1
        self.tell(WorkerJoined(self.now, f"{worker}#{self.names[worker]}", worker, HOSTS[worker]))
        self.revive(f"{worker}#{self.names[worker]}")

    def revive(self, address: str) -> None:
        if address in self.gang.workers:
            number = self.incarnations[address] = self.incarnations.get(address, 0) + 1
            self.tell(RankReady(self.now, address, f"{address}.{number}", "kernels"))

    def step(self, step: tuple[object, ...]) -> None:
        self.now += 0.1
        match step:
            case ("ask", str(client), int(world), bool(shares_heap)):
                self.num_streams += 1
                self.waiting[client, str(self.num_streams)] = world
                self.tell(Requested(self.now, client, str(self.num_streams), world, shares_heap, 5.0))
            case ("release", str(client), int(number), bool(spoiled)):
                mine = [key for key in self.held if key[0] == client]
                if mine:
                    key = mine[number % len(mine)]
                    del self.held[key]
                    self.tell(Released(self.now, *key, spoiled=spoiled))
            case ("crash", str(worker)):
                address = f"{worker}#{self.names[worker]}"
                number = self.incarnations.get(address, 0)
                self.tell(RankGone(self.now, address, f"{address}.{number}"))
                self.revive(address)
            case ("leave", str(worker)):
                self.tell(WorkerLeft(self.now, f"{worker}#{self.names[worker]}"))
                self.join(worker)
            case ("go", str(client)):
                for mine in (self.held, self.waiting):
                    for key in [key for key in mine if key[0] == client]:
                        mine.pop(key)  # type: ignore[attr-defined]
                self.tell(ClientGone(self.now, client))
            case ("wait", float(seconds)):
                self.now += seconds
                self.tell(Tick(self.now))


@settings(max_examples=150, deadline=None)
@given(steps)
def test_no_worker_is_in_two_grants_and_everybody_who_waits_is_served_in_the_end(
    steps: list[tuple[object, ...]],
) -> None:
    world = World()
    for step in steps:
        world.step(step)
        world.check()
        assert set(world.gang.grants) == set(world.held)
    # nobody new asks: as grants come back, all that wait are served; nothing is stuck
    for _ in range(len(world.waiting) + 1):
        assert not world.waiting or world.held, f"deadlock: {world.waiting} wait, nobody holds anything"
        for key in list(world.held):
            world.now += 1.0
            world.held.pop(key)
            world.tell(Released(world.now, *key, spoiled=False))
    assert not world.waiting


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(clients, st.integers(1, 2)), min_size=1, max_size=30), st.integers(3, 5))
def test_a_large_gang_is_served_while_small_ones_keep_coming(others: list[tuple[str, int]], size: int) -> None:
    world = World()
    for client, wanted in others:
        world.step(("ask", client, wanted, False))
    world.waiting["large", "large"] = size
    world.tell(Requested(world.now, "large", "large", size, False, 5.0))
    for _ in range(200):
        if ("large", "large") in world.held:
            return
        key = next(iter(world.held))
        world.held.pop(key)
        world.now += 2.0
        world.tell(Released(world.now, *key, spoiled=False))
        world.step(("ask", key[0], 1, False))  # and asks again at once
    raise AssertionError("the large gang starved")


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3), st.lists(st.floats(0.5, 2.0), min_size=200, max_size=200))
def test_clients_that_always_want_more_get_equal_seconds(wanted: int, slices: list[float]) -> None:
    gang = gang_of("w0", "w1", "w2")
    now = 0.0
    for client in CLIENTS:
        gang.handle(ask(client, "0", wanted, now))
    for number, seconds in enumerate(slices, start=1):
        now += seconds
        key = min(gang.grants, key=lambda key: gang.grants[key].since)
        gang.handle(ask(key[0], str(number), wanted, now), clean(*key, now))
    shares = [gang.granted_seconds(client, now) for client in CLIENTS]
    assert max(shares) - min(shares) <= 3 * 2.0 * 3
