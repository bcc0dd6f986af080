"""What holds for any sequence of events: no worker twice, nobody starves, nothing is stuck."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.gang import Gang
from cluster.gang_messages import (
    ClientGone,
    Command,
    EndMessage,
    Event,
    GrantMessage,
    Kill,
    RankGone,
    RankReady,
    RefusalMessage,
    ReleaseMessage,
    RequestMessage,
    Tick,
    WorkerJoined,
    WorkerLeft,
)

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
