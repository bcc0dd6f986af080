"""A client's trials go out and events come back on a real, local Dask cluster, also when its connection broke."""

from __future__ import annotations

import importlib
import json
import platform
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_bench
import pytest
from distributed import Client
from fake_bench import FakeTrial
from fake_cluster import await_ranks, eventually, measured
from relay import Relay

from cluster.client import Cluster
from cluster.hosts import allowed_cores
from cluster.launch.lifetime import attach
from cluster.rank import EntryPoint
from kernels.files import Failed

# Trials go out and events come back on a real, local Dask cluster.

Events = list[dict[str, Any]]


def stream(cluster: Cluster, *trials: FakeTrial, world: int = 2, **how: Any) -> Events:
    how = {"shares_heap": True, "deadline_s": 5.0} | how
    return list(cluster.stream(trials, world=world, **how))


def results(events: Events) -> Events:
    return sorted((event for event in events if event["kind"] == "result"), key=lambda event: event["rank"])


def failures(events: Events) -> Events:
    return [event for event in events if event["kind"] == "failure"]


def test_workers_report_the_use_of_their_host_s_cores_under_its_own_name(cluster: Cluster) -> None:
    assert cluster.describe()["workers"][0]["incarnation"]
    assert eventually(lambda: bool(cluster.core_use()), 60)
    for use in cluster.core_use():  # one for each address
        assert use.host == platform.node(), "so that it is looked at who has the cores"
        assert use.cores == allowed_cores()
        assert 0.0 <= use.share <= 1.0
        assert "this gang" not in use.whom


def test_every_rank_reports_every_trial_in_order(cluster: Cluster) -> None:
    events = stream(cluster, FakeTrial(key="a"), FakeTrial(key="b", num_samples=1))
    of_a = [("a", kind) for kind in ("stage", "stage", "sample", "sample", "result")]
    of_b = [("b", kind) for kind in ("stage", "stage", "sample", "result")]
    for rank in (0, 1):
        assert [(event["trial"], event["kind"]) for event in events if event["rank"] == rank] == of_a + of_b


def test_the_seat_says_where_everybody_sits(cluster: Cluster) -> None:
    seats = [result["facts"]["seat"] for result in results(stream(cluster, FakeTrial(key="a")))]
    assert [seat["rank"] for seat in seats] == [0, 1]
    for seat in seats:
        assert (seat["world"], seat["shares_heap"]) == (2, True)
        assert tuple(seat["rendezvous"]) == ("127.0.0.1", 4711)
        assert tuple(seat["addresses"]) == ("127.0.0.1", "127.0.0.1")
        assert seat["deadline_s"] < 5.0, "ranks lose patience before dispatch does"


def test_a_second_stream_finds_the_benches_open(cluster: Cluster) -> None:
    first, second = (results(stream(cluster, FakeTrial(key="a"))) for _ in range(2))
    assert [r["facts"]["opened_at"] for r in first] == [r["facts"]["opened_at"] for r in second]


def test_lists_of_other_deadlines_share_a_session_and_each_is_told_its_own(cluster: Cluster) -> None:
    found = [results(stream(cluster, FakeTrial(key="a"), deadline_s=limit_s)) for limit_s in (5.0, 47.5)]
    first, second = ([result["facts"] for result in of_both] for of_both in found)
    assert [facts["opened_at"] for facts in first] == [facts["opened_at"] for facts in second], "warm"
    assert {facts["seat"]["session"] for facts in (*first, *second)} == {first[0]["seat"]["session"]}
    assert [facts["seat"]["deadline_s"] for facts in (first[0], second[0])] == [4.0, 38.0]


def test_another_client_finds_them_open_too(cluster: Cluster, address: str) -> None:
    first = results(stream(cluster, FakeTrial(key="a")))
    with Cluster.connect(address, entry=fake_bench.ENTRY) as other:
        second = results(stream(other, FakeTrial(key="a")))
    assert [r["facts"]["opened_at"] for r in first] == [r["facts"]["opened_at"] for r in second]


def test_ranks_that_sat_elsewhere_meanwhile_open_theirs_together_again(cluster: Cluster) -> None:
    names = []
    for world in (2, 3, 2):
        shares_heap = world == 2
        seats = [
            result["facts"]["seat"]
            for result in results(stream(cluster, FakeTrial(key="a"), world=world, shares_heap=shares_heap))
        ]
        assert len({seat["session"] for seat in seats}) == 1
        names.append(seats[0]["session"])
    assert len(set(names)) == 3


def test_ranks_that_share_no_memory_cross_hosts_under_their_own_addresses(cluster: Cluster) -> None:
    for result in results(stream(cluster, FakeTrial(key="a"), world=3, shares_heap=False)):
        seat = result["facts"]["seat"]
        assert sorted(seat["addresses"]) == ["127.0.0.1", "127.0.0.1", "127.0.0.2"]
        assert seat["rendezvous"][0] == seat["addresses"][0]


def test_one_rank_needs_no_rendezvous(cluster: Cluster) -> None:
    (result,) = results(stream(cluster, FakeTrial(key="a"), world=1))
    assert result["facts"]["seat"]["rendezvous"] is None


@pytest.mark.parametrize(("shares_heap", "limit"), [(True, 2), (False, 3)])
def test_a_world_larger_than_the_cluster_is_refused_for_every_trial(
    cluster: Cluster, shares_heap: bool, limit: int
) -> None:
    events = stream(cluster, FakeTrial(key="a"), FakeTrial(key="b"), world=8, shares_heap=shares_heap)
    assert [(event["trial"], event["stage"]) for event in events] == [("a", "refused"), ("b", "refused")]
    assert events[0]["message"].startswith("8 ranks")
    assert (
        f"are too many: {'no host has more than' if shares_heap else 'the cluster has'} {limit}" in events[0]["message"]
    )
    assert f"at most {limit}" in events[0]["message"]


def test_no_trials_need_no_gang(cluster: Cluster) -> None:
    assert stream(cluster) == []


@pytest.mark.parametrize("how", [{"world": 0}, {"deadline_s": 0.0}])
def test_a_world_or_deadline_of_nothing_is_refused(cluster: Cluster, how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must both be above 0"):
        stream(cluster, FakeTrial(key="a"), **how)


def test_threads_and_clients_stream_at_once_and_nobody_waits_for_ever(cluster: Cluster, address: str) -> None:
    def sweep(client: Cluster, name: str, world: int) -> int:
        done = 0
        for number in range(4):
            trial = FakeTrial(key=f"{name}{number}", seconds=0.01)
            done += len(results(stream(client, trial, world=world, shares_heap=world < 3)))
        return done

    with Cluster.connect(address) as other, ThreadPoolExecutor(6) as pool:
        jobs = [(cluster, "a", 2), (cluster, "b", 1), (cluster, "c", 3), (other, "d", 2), (other, "e", 1)]
        sweeps = [pool.submit(sweep, *job) for job in jobs]
        assert [sweep.result(timeout=200) for sweep in sweeps] == [4 * world for _, _, world in jobs]


def test_nothing_is_held_after_the_last_event(cluster: Cluster) -> None:
    stream(cluster, FakeTrial(key="a"))
    found = cluster.describe()
    assert not found["grants"]
    assert not found["requests"]
    assert found["granted_seconds"][cluster.client.id] > 0


def test_a_reader_that_stops_early_gives_the_gang_back(cluster: Cluster) -> None:
    events = cluster.stream([FakeTrial(key="a", does="hang")], world=2, shares_heap=True, deadline_s=60.0)
    assert next(events)["kind"] == "stage"
    events.close()
    assert not cluster.describe()["grants"]
    await_ranks(cluster)
    assert len(results(stream(cluster, FakeTrial(key="b")))) == 2


def test_a_stream_that_nobody_reads_may_outlive_its_connection(address: str) -> None:
    with Cluster.connect(address, entry=fake_bench.ENTRY) as other:
        events = other.stream([FakeTrial(key="a", does="hang")], world=1, shares_heap=True, deadline_s=60.0)
        assert next(events)["kind"] == "stage"
    events.close()


def test_connecting_twice_keeps_the_rank_processes(cluster: Cluster, address: str) -> None:
    first = results(stream(cluster, FakeTrial(key="a")))
    with ThreadPoolExecutor(3) as pool:
        for other in pool.map(lambda _: Cluster.connect(address, entry=fake_bench.ENTRY), range(3)):
            other.close()
    second = results(stream(cluster, FakeTrial(key="a")))
    assert [r["facts"]["pid"] for r in first] == [r["facts"]["pid"] for r in second]


def test_a_scheduler_file_is_as_good_as_an_address(cluster: Cluster, address: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}))
    for target in (file, str(file), address.removeprefix("tcp://")):
        with Cluster.connect(target) as other:
            assert len(other.describe()["workers"]) == 3


def test_an_unreachable_scheduler_is_one_sentence_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(ValueError, match=f"The scheduler tcp://127.0.0.1:{port} cannot be reached: nobody answered"):
        Cluster.connect(f"tcp://127.0.0.1:{port}")
    assert time.monotonic() - began < 25.0, "Dask itself waits 30 s"


class Unknown(EntryPoint):
    """What another version of this package would send."""

    def __reduce__(self) -> Any:
        return importlib.import_module, ("no_such_package",)


def test_a_scheduler_that_cannot_take_the_broker_is_one_sentence(cluster: Cluster, address: str) -> None:
    with pytest.raises(ValueError, match="cannot take the workbench's broker") as raised:
        Cluster.connect(address, entry=Unknown())
    assert "no_such_package" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_scheduler_that_goes_while_the_broker_is_brought_is_no_stranger(
    cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chaos run: asyncio's own "release unlocked lock", and the sentence blamed the environment."""

    def torn(client: Client) -> Any:
        raise RuntimeError("release unlocked lock")

    monkeypatch.setattr("cluster.client.Feed", torn)
    with pytest.raises(Failed, match="Accepted: the command again, once the scheduler answers"):
        Cluster.connect(address)


def test_a_scheduler_that_goes_while_its_workers_are_listed_is_one_sentence(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "scheduler_info", lambda self, n_workers=5: {})
    with pytest.raises(Failed, match="then fell silent"):
        attach(address)


def test_a_closed_connection_is_a_failure_of_every_trial(address: str) -> None:
    with Cluster.connect(address) as closed:
        pass
    events = stream(closed, FakeTrial(key="a"), FakeTrial(key="b"))
    assert [(event["trial"], event["stage"]) for event in events] == [("a", "lost"), ("b", "lost")]
    assert "the connection is closed" in events[0]["message"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no scheduler file"),
        ("{", "cannot be read as a scheduler file: it is no JSON"),
        ("[]", "names no address"),
        ('{"address": "nonsense://x"}', "begins with tcp:// or tls://"),
    ],
)
def test_a_bad_scheduler_file_is_one_sentence(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=says) as raised:
        Cluster.connect(file)
    assert "\n" not in str(raised.value)


def test_samples_reach_a_listening_client_as_they_are_taken(cluster: Cluster) -> None:
    """Samples of a trial that never comes to its last one."""
    trial = FakeTrial(key="a", does="hang", num_samples=5)
    events = cluster.stream([trial], world=2, shares_heap=True, deadline_s=60.0)
    samples = []
    for event in events:
        assert event["kind"] in ("stage", "sample"), event
        samples += [(event["rank"], event["index"])] if event["kind"] == "sample" else []
        if len(samples) == 8:
            break
    events.close()
    assert sorted(samples) == [(rank, index) for rank in (0, 1) for index in range(4)]


def test_cancelling_before_the_start_runs_nothing(cluster: Cluster) -> None:
    cancelled = threading.Event()
    cancelled.set()
    events = stream(cluster, FakeTrial(key="a"), cancelled=cancelled)
    assert [(event["kind"], event["stage"], event["rank"]) for event in events] == [("failure", "cancelled", None)]


# A client whose connection broke comes back under its name before the scheduler hears that the old one ended.


def connections(cluster: Cluster, client: str) -> list[int]:
    """The scheduler's connection to *client*, as a number of its own; none where it has none."""

    def look(dask_scheduler: Any) -> list[int]:
        known = dask_scheduler.client_comms.get(client)
        return [] if client not in dask_scheduler.clients or known is None else [id(known)]

    return list(cluster.client.run_on_scheduler(look))


def test_it_keeps_its_place_when_the_old_connection_ends_at_last(cluster: Cluster, address: str) -> None:
    with Relay(address) as relay, Cluster.connect(relay.address, entry=fake_bench.ENTRY) as other:
        assert measured(other, world=2) == [0, 1]
        client = other.client.id
        before = connections(cluster, client)
        relay.lose()
        assert eventually(lambda: connections(cluster, client) not in ([], before), 30.0)
        after = connections(cluster, client)
        relay.end()
        for _ in range(20):  # what ends is cleared away within turns of the scheduler's loop
            assert connections(cluster, client) == after
            time.sleep(0.02)
        assert eventually(lambda: other.client.status == "running", 30.0)
        assert measured(other, world=2) == [0, 1]


# Who asks what a gang would run on is stopped at once, and hears which scheduler does not answer.


class Frozen(Cluster):
    """Its scheduler never answers."""

    def __init__(self) -> None:
        self.address = "tcp://127.0.0.1:1"

    def call(self, question: str, *, stop: threading.Event | None = None, within_s: float = 20.0, **facts: Any) -> Any:
        if stop is not None and stop.is_set():
            raise InterruptedError("stopped")
        raise TimeoutError(f"no answer within {within_s:.0f} s")


def test_stop_ends_the_question_although_the_scheduler_does_not_answer() -> None:
    stop = threading.Event()
    stop.set()
    assert Frozen().ranks(2, "cpu", stop) is None


def test_a_scheduler_that_does_not_answer_is_named() -> None:
    with pytest.raises(Failed, match=r"The scheduler tcp://127.0.0.1:1 does not say .* \(no answer within 20 s\)"):
        Frozen().ranks(2, "cpu")
