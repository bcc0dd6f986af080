"""In a workshop equal lists of trials are measured once: those who ask meanwhile, or later, get the same samples."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import fake_bench
import pytest
from distributed import Client
from fake_bench import FakeTrial
from fake_cluster import Events, await_ranks, eventually, failures, measured_keys, stream

from cluster import broker
from cluster.client import Cluster
from cluster.gang import Gang
from cluster.gang_messages import GrantMessage, RankReady, ReleaseMessage, RequestMessage, WorkerJoined
from cluster.shared import SHARED, SharedAnswers, list_print
from cluster.watchdog import Deadlines

SHARED_LIMITS = Deadlines(5.0, 20.0, shared=True)


def keep_answers(kept: bool, dask_scheduler: Any) -> None:
    dask_scheduler.plugins[broker.NAME].shared = SharedAnswers() if kept else None


def counts(dask_scheduler: Any) -> tuple[int, int]:
    shared = dask_scheduler.plugins[broker.NAME].shared
    return shared.num_measured, shared.num_shared


@pytest.fixture
def workshop(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster that keeps answers for all."""
    cluster.client.run_on_scheduler(keep_answers, True)
    yield cluster
    cluster.client.run_on_scheduler(keep_answers, False)


def seconds_of(events: Events) -> list[tuple[Any, ...]]:
    return sorted((each["trial"], each["rank"], each["index"], each["at"]) for each in events
                  if each["kind"] == "sample")  # fmt: skip


def is_shared(events: Events) -> bool:
    return all(each["facts"].get("timed", {}).get(SHARED) for each in events if each["kind"] == "result")


def test_equal_lists_of_several_clients_are_measured_once(workshop: Cluster) -> None:
    trials = [FakeTrial(key="a", num_samples=5, seconds=0.05), FakeTrial(key="b")]
    answers: dict[int, Events] = {}

    def ask(number: int) -> None:
        with Cluster.connect(workshop.address, entry=fake_bench.ENTRY) as client:
            answers[number] = stream(client, *trials, deadline_s=SHARED_LIMITS)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [measured_keys(events) for events in answers.values()] == [["a", "b"]] * 4
    first, *others = [seconds_of(events) for events in answers.values()]
    assert all(each == first for each in others), "the samples are those of one gang"
    assert sum(not is_shared(events) for events in answers.values()) == 1
    assert workshop.client.run_on_scheduler(counts) == (1, 3)


def test_who_asks_again_is_measured_again_and_others_who_do_share_that(workshop: Cluster) -> None:
    trial = FakeTrial(key="again")
    first, second = stream(workshop, trial, deadline_s=SHARED_LIMITS), stream(workshop, trial, deadline_s=SHARED_LIMITS)
    assert seconds_of(first) != seconds_of(second)
    with Cluster.connect(workshop.address, entry=fake_bench.ENTRY) as late:
        assert seconds_of(stream(late, trial, deadline_s=SHARED_LIMITS)) == seconds_of(first)
        assert seconds_of(stream(late, trial, deadline_s=SHARED_LIMITS)) == seconds_of(second)
        assert not is_shared(stream(late, trial)), "who wants a time of its own gets one"


def test_what_failed_is_nobody_elses_answer(workshop: Cluster) -> None:
    trials = FakeTrial(key="bad", does="throw", on=0, num_samples=1), FakeTrial(key="good")
    assert failures(stream(workshop, *trials, deadline_s=SHARED_LIMITS))
    with Cluster.connect(workshop.address, entry=fake_bench.ENTRY) as other:
        assert failures(stream(other, *trials, deadline_s=SHARED_LIMITS))
    assert workshop.client.run_on_scheduler(counts) == (0, 0)


def begin(client: str, dask_scheduler: Any) -> None:
    dask_scheduler.plugins[broker.NAME].shared.begin(client, "stream", "list", [{}])


def open_clients(dask_scheduler: Any) -> set[str]:
    return {client for client, _ in dask_scheduler.plugins[broker.NAME].shared._open}


def test_a_client_that_is_gone_leaves_no_open_answer(workshop: Cluster) -> None:
    """As one that dies while its ranks measure, and never takes its grant back."""
    mortal, other = (Client(workshop.address, set_as_default=False) for _ in range(2))
    for client in (mortal, other):
        workshop.client.run_on_scheduler(begin, client.id)
    mortal.close()
    assert eventually(lambda: workshop.client.run_on_scheduler(open_clients) == {other.id}, 10.0)
    other.close()


def test_without_a_workshop_everybody_measures(cluster: Cluster) -> None:
    trial = FakeTrial(key="alone")
    first = stream(cluster, trial, deadline_s=SHARED_LIMITS)
    with Cluster.connect(cluster.address, entry=fake_bench.ENTRY) as other:
        assert seconds_of(stream(other, trial, deadline_s=SHARED_LIMITS)) != seconds_of(first)
    assert eventually(lambda: not cluster.describe()["grants"], 10.0)


def test_a_request_waits_for_its_twin_and_holds_nobody_back() -> None:
    gang = Gang("g")
    for number in range(4):
        gang.handle(WorkerJoined(0.0, f"w{number}", f"w{number}", "host"), RankReady(0.0, f"w{number}", f"i{number}"))

    def ask(client: str, name: str | None) -> list[str]:
        commands = gang.handle(RequestMessage(1.0, client, "s", 2, False, shared_as=name))
        return [each.client for each in commands if isinstance(each, GrantMessage)]

    assert ask("a", "same") == ["a"]
    assert ask("b", "same") == []
    assert ask("c", "other") == ["c"], "the twin waits, and the next one does not"
    assert gang.twin_of(gang.requests["b", "s"]) == ("a", "s")
    commands = gang.handle(ReleaseMessage(2.0, "a", "s", spoiled=True))
    commands += [each for number in range(2) for each in gang.handle(RankReady(3.0, f"w{number}", f"j{number}"))]
    assert [each.client for each in commands if isinstance(each, GrantMessage)] == ["b"], "it broke: the twin measures"


def test_lists_are_equal_by_order_and_needs() -> None:
    assert list_print(["a", "b"], 2) == list_print(["a", "b"], 2)
    assert len({list_print(["a", "b"], 2), list_print(["b", "a"], 2), list_print(["a", "b"], 4)}) == 3


def test_a_client_that_somebody_else_connected_becomes_a_cluster(address: str) -> None:
    """As that of a gateway's cluster, which only its own library can connect."""
    with Cluster.on(Client(address, set_as_default=False), entry=fake_bench.ENTRY) as cluster:
        await_ranks(cluster)
        assert measured_keys(stream(cluster, FakeTrial(key="theirs"))) == ["theirs"]
