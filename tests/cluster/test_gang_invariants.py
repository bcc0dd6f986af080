"""What holds of gangs for any sequence of events, whoever dies, starts again or is silent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gang import ask, clean, gang_of, granted, place

from cluster.broker import AWAY_S
from cluster.gang import GIVE_UP_S, HELD_FACTOR, HELD_LEAST_S, LEFT_KEPT_S, MOST_DEATHS, Gang, waiting_reasons
from cluster.gang_messages import (
    ClientGone,
    Command,
    EndMessage,
    Event,
    GrantMessage,
    Heartbeat,
    Kill,
    RankFailed,
    RankGone,
    RankReady,
    RefusalMessage,
    ReleaseMessage,
    RequestMessage,
    Tick,
    WorkerAnswers,
    WorkerJoined,
    WorkerLeft,
    WorkerSilent,
)

# What holds for any sequence of events: no worker twice, nobody starves, nothing is stuck.

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
        self.gang = Gang("s", lease_s=1e9, quiet_s=1e9)
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
            case GrantMessage():
                key = (command.client, command.stream)
                assert len(command.places) == self.waiting.pop(key), "all ranks or none"
                self.held[key] = tuple(place.worker for place in command.places)
            case RefusalMessage():
                del self.waiting[command.client, command.stream]
            case EndMessage():
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
            self.tell(RankReady(self.now, address, f"{address}.{number}"))

    def step(self, step: tuple[object, ...]) -> None:
        self.now += 0.1
        match step:
            case ("ask", str(client), int(world), bool(shares_heap)):
                self.num_streams += 1
                self.waiting[client, str(self.num_streams)] = world
                self.tell(RequestMessage(self.now, client, str(self.num_streams), world, shares_heap))
            case ("release", str(client), int(number), bool(spoiled)):
                held_keys = [key for key in self.held if key[0] == client]
                if held_keys:
                    key = held_keys[number % len(held_keys)]
                    del self.held[key]
                    self.tell(ReleaseMessage(self.now, *key, spoiled=spoiled))
            case ("crash", str(worker)):
                address = f"{worker}#{self.names[worker]}"
                number = self.incarnations.get(address, 0)
                self.tell(RankGone(self.now, address, f"{address}.{number}"))
                self.revive(address)
            case ("leave", str(worker)):
                self.tell(WorkerLeft(self.now, f"{worker}#{self.names[worker]}"))
                self.join(worker)
            case ("go", str(client)):
                for held_keys in (self.held, self.waiting):
                    for key in [key for key in held_keys if key[0] == client]:
                        held_keys.pop(key)  # type: ignore[attr-defined]
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
            world.tell(ReleaseMessage(world.now, *key, spoiled=False))
    assert not world.waiting


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(clients, st.integers(1, 2)), min_size=1, max_size=30), st.integers(3, 5))
def test_a_large_gang_is_served_while_small_ones_keep_coming(others: list[tuple[str, int]], size: int) -> None:
    world = World()
    for client, wanted in others:
        world.step(("ask", client, wanted, False))
    world.waiting["large", "large"] = size
    world.tell(RequestMessage(world.now, "large", "large", size, False))
    for _ in range(200):
        if ("large", "large") in world.held:
            return
        key = next(iter(world.held))
        world.held.pop(key)
        world.now += 2.0
        world.tell(ReleaseMessage(world.now, *key, spoiled=False))
        world.step(("ask", key[0], 1, False))  # and asks again at once
    raise AssertionError("the large gang starved")


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3), st.lists(st.floats(0.5, 2.0), min_size=200, max_size=200))
def test_clients_that_always_want_more_get_equal_seconds(wanted: int, slices: list[float]) -> None:
    gang = Gang("s")
    for worker in ("w0", "w1", "w2"):
        gang.handle(WorkerJoined(0.0, worker, worker, "h1"), RankReady(0.0, worker, f"{worker}.1"))
    now = 0.0
    for client in CLIENTS:
        gang.handle(RequestMessage(now, client, "0", wanted, True))
    for number, seconds in enumerate(slices, start=1):
        now += seconds
        key = min(gang.grants, key=lambda key: gang.grants[key].since)
        gang.handle(RequestMessage(now, key[0], str(number), wanted, True), ReleaseMessage(now, *key, spoiled=False))
    shares = [gang.granted_seconds(client, now) for client in CLIENTS]
    assert max(shares) - min(shares) <= 3 * 2.0 * 3


# What starts again is waited for, what is silent or gone is named, and who holds ranks without a word loses them.

PATIENT_S = Gang("").patient_s


def refused_after(gang: Gang, client: str, at: float) -> RefusalMessage:
    """The answer to a request that cannot be met since *at*."""
    assert gang.handle(Heartbeat(at + PATIENT_S - 1.0, client)) == []
    (refused,) = gang.handle(Heartbeat(at + PATIENT_S, client))
    assert isinstance(refused, RefusalMessage)
    assert refused.for_now
    return refused


KILLED = "the rank process was ended by SIGKILL before its first message"


def test_who_dies_while_it_starts_is_started_again_and_waited_for() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(RankGone(1.0, "w1", "w1.1"), ask("a", "0", 2, 1.0))
    for number in range(MOST_DEATHS - 1):
        assert gang.handle(RankFailed(2.0 + number, "w1", KILLED)) == [], "its next start is scheduled"
    (answer,) = gang.handle(RankReady(5.0, "w1", "w1.9"))
    assert isinstance(answer, GrantMessage)
    assert [seat.incarnation for seat in answer.places] == ["w0.1", "w1.9"]


def test_after_several_deaths_in_a_row_a_worker_is_named_in_the_refusal_until_a_start_succeeds() -> None:
    gang = gang_of("w0")
    gang.handle(WorkerJoined(0.0, "w1", "w1", "h1"), ask("a", "0", 2))
    commands = gang.handle(*[RankFailed(1.0 + each, "w1", "No module named 'torch'") for each in range(MOST_DEATHS)])
    assert commands == [], "it may be mended"
    refused = refused_after(gang, "a", 3.0)
    assert refused.message == (
        "2 ranks are too many now: 1 of the cluster's 2 workers cannot keep a rank (w1: 3 starts of its rank process "
        "failed in a row, the last one: No module named 'torch'). Accepted until that is mended: at most 1, or wait."
    )
    gang.handle(RankReady(69.0, "w1", "w1.2"), RankFailed(70.0, "w1", KILLED))
    assert gang.handle(ask("a", "1", 2, 70.0), Heartbeat(140.0, "a")) == [], (
        "deaths before the last success do not count"
    )


def test_deaths_far_apart_are_not_in_a_row() -> None:
    gang = gang_of("w0")
    for number in range(3 * MOST_DEATHS):
        gang.handle(RankFailed(float(number), "w0", KILLED), RankReady(number + 0.5, "w0", f"w0.{number}"))
    assert [type(each) for each in gang.handle(ask("a", "0", 1, 99.0))] == [GrantMessage]


def test_what_can_never_be_is_not_refused_for_now() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(*[RankFailed(1.0, "w1", KILLED)] * MOST_DEATHS)
    (refused,) = gang.handle(ask("a", "0", 4, 2.0))
    assert isinstance(refused, RefusalMessage)
    assert not refused.for_now
    assert refused.message.startswith("4 ranks are too many: the cluster has")


def test_a_silent_worker_loses_its_grant_and_its_gang_is_told_who_it_is() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("a", "0", 2))
    sentence = "Worker w1 on h1 (w1) has not answered for 10 s. It is taken back when it answers again."
    first = gang.handle(WorkerSilent(20.0, "w1", AWAY_S))
    assert first == [EndMessage("a", "0", "w1", sentence), Kill("w0", "w0.1"), Kill("w1", "w1.1")]
    assert gang.handle(WorkerSilent(21.0, "w1", AWAY_S + 1)) == [], "told once"


def test_others_get_the_work_of_a_silent_worker() -> None:
    gang = gang_of("w0", "w1", "w2")
    gang.handle(WorkerSilent(20.0, "w0", AWAY_S))
    assert gang.handle(ask("a", "0", 2, 20.0)) == [granted("a", "0", "s-1", "w1", "w2")]


def test_who_needs_a_silent_worker_waits_a_minute_then_is_refused_for_now_with_its_name() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerSilent(20.0, "w1", AWAY_S))
    assert gang.handle(ask("a", "0", 2, 20.0)) == []
    assert gang.handle(WorkerSilent(23.0, "w1", GIVE_UP_S - 1)) == []
    assert gang.handle(WorkerSilent(25.0, "w1", GIVE_UP_S + 0.5)) == []
    refused = refused_after(gang, "a", 25.0)
    assert "(w1: it has not answered for more than 14 s)" in refused.message
    assert gang.handle(ask("b", "0", 1, 85.0)) == [granted("b", "0", "s-1", "w0")]


def test_the_next_requests_of_a_sweep_wait_for_a_worker_that_is_away_for_longer_and_hold_nobody_back() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerSilent(40.0, "w1", 3 * GIVE_UP_S))
    assert gang.handle(ask("a", "1", 2, 41.0), Heartbeat(60.0, "a"), Tick(60.0)) == []
    assert "w1 has not answered for 42 s" in waiting_reasons(gang, "a", "1", 60.0)
    assert gang.handle(ask("b", "0", 1, 61.0)) == [granted("b", "0", "s-1", "w0")]
    gang.handle(clean("b", "0", 62.0))
    assert gang.handle(WorkerAnswers(63.0, "w1")) == [granted("a", "1", "s-2", "w0", "w1")]
    gang.handle(clean("a", "1", 64.0), Tick(65.0))
    assert not gang.unmet_since
    gang.handle(WorkerSilent(110.0, "w1", 3 * GIVE_UP_S))
    assert gang.handle(ask("a", "2", 2, 110.0)) == [], "each trouble has its own minute"


def test_a_silent_worker_that_answers_again_is_taken_back() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerSilent(20.0, "w1", AWAY_S), ask("a", "0", 2, 20.0))
    assert gang.handle(WorkerAnswers(22.0, "w1")) == [granted("a", "0", "s-1", "w0", "w1")]


def test_the_rank_process_of_a_silent_worker_is_not_trusted_when_it_was_at_work() -> None:
    gang = gang_of("w0")
    gang.handle(ask("a", "0", 1), WorkerSilent(20.0, "w0", AWAY_S), ask("a", "1", 1, 21.0))
    assert gang.handle(WorkerAnswers(22.0, "w0")) == [], "the order to end it has been sent"
    (answer,) = gang.handle(RankReady(25.0, "w0", "w0.2"))
    assert answer == GrantMessage("a", "1", "s-2", (place("w0", "2"),))


def test_who_waits_for_a_silent_worker_does_not_hold_back_the_others() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerSilent(20.0, "w1", AWAY_S), ask("a", "0", 2, 20.0))
    assert gang.handle(ask("b", "0", 1, 20.0)) == [granted("b", "0", "s-1", "w0")]


def test_a_lost_worker_is_waited_for_and_then_missed_by_its_name() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(WorkerLeft(1.0, "w1"))
    assert gang.handle(ask("a", "0", 2, 2.0), Heartbeat(12.0, "a"), Tick(20.5)) == []
    assert gang.handle(Tick(21.5)) == []
    assert "w1 left 21 s ago and may come back" in waiting_reasons(gang, "a", "0", 22.0)
    refused = refused_after(gang, "a", 21.5)
    assert "1 of the cluster's 2 workers cannot keep a rank (w1: it left the cluster and did not" in refused.message
    (later,) = gang.handle(Tick(1.5 + LEFT_KEPT_S), ask("a", "1", 2, 2.0 + LEFT_KEPT_S))
    assert isinstance(later, RefusalMessage)
    assert not later.for_now, "the cluster is smaller now"


def held(expected_s: float | None) -> tuple[RequestMessage, RequestMessage]:
    return (RequestMessage(0.0, "a", "0", 1, True, expected_s=expected_s), ask("b", "0", 1))


@pytest.mark.parametrize(
    ("expected_s", "ends_s"), [(1.0, HELD_LEAST_S), (5.0, 5.0 * HELD_FACTOR), (100.0, 50.0), (None, 50.0)]
)
def test_a_client_that_freezes_loses_its_ranks_when_their_time_has_passed_several_times(
    expected_s: float | None, ends_s: float
) -> None:
    gang = gang_of("w0")
    gang.handle(*held(expected_s), Heartbeat(0.1, "a"))
    for second in range(1, int(ends_s) + 1):
        assert gang.handle(Heartbeat(float(second), "b"), Tick(float(second))) == []
    (ended, kill) = gang.handle(Tick(ends_s + 1.0))
    assert isinstance(ended, EndMessage)
    assert (ended.client, ended.worker, kill) == ("a", None, Kill("w0", "w0.1"))
    assert ended.message.startswith("The client said nothing for ")


def test_a_client_that_speaks_keeps_its_ranks_however_long_it_holds_them() -> None:
    gang = gang_of("w0")
    gang.handle(*held(1.0))
    for second in range(1, 300):
        assert gang.handle(Heartbeat(float(second), "a"), Heartbeat(float(second), "b"), Tick(float(second))) == []


def test_a_client_that_is_frozen_while_it_waits_gets_nothing_before_it_speaks_and_holds_nobody_back() -> None:
    gang = gang_of("w0", "w1")
    gang.handle(ask("holder", "0", 2), ask("frozen", "0", 2), ask("later", "0", 1), Heartbeat(20.0, "later"))
    gang.handle(Heartbeat(20.0, "holder"))
    assert gang.handle(clean("holder", "0", 20.0)) == [granted("later", "0", "s-2", "w0")]
    gang.handle(ClientGone(21.0, "later"), RankReady(22.0, "w0", "w0.1"))
    (answer,) = gang.handle(Heartbeat(22.5, "frozen"))
    assert isinstance(answer, GrantMessage)
    assert answer.client == "frozen"


def test_what_a_client_gives_back_after_it_lost_it_changes_nothing() -> None:
    gang = gang_of("w0")
    gang.handle(*held(1.0), Heartbeat(11.0, "b"), Tick(11.5))
    assert gang.handle(ReleaseMessage(12.0, "a", "0", spoiled=False)) == []
