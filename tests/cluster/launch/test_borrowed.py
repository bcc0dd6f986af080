"""Many people on one cluster: each finds it as if it were their own, and leaves it as it was."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fake_bench
import pytest
from fake_cluster import eventually, measured

from cluster import launch, scheduler_file
from cluster.certificate import Certificate
from cluster.client import Cluster
from cluster.launch import lifetime
from cluster.scheduler_file import Record


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Iterator[Record]:
    """A cluster that this user would not find."""
    with launch.local(1, published=False, entry=fake_bench.ENTRY) as record:
        yield record


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.slow
def test_a_borrowed_cluster_is_found_without_an_address_and_stays_when_it_is_given_back(theirs: Record) -> None:
    for _ in range(2):
        assert launch.running() is None
        with launch.borrow(theirs.address, entry=fake_bench.ENTRY) as record:
            assert (record.address, record.num_ranks) == (theirs.address, 1)
            assert launch.running() == record
            with Cluster.connect() as cluster:
                assert measured(cluster, world=1) == [0]
        assert not scheduler_file.path().exists()


def test_nobody_borrows_a_second_cluster_nor_ends_the_borrowed_one(theirs: Record) -> None:
    with launch.borrow(theirs.address, entry=fake_bench.ENTRY):
        with pytest.raises(ValueError, match="runs already at"), launch.borrow(theirs.address):
            pass
        with pytest.raises(ValueError, match="belongs to a lab"):
            launch.down()


@pytest.mark.parametrize("has_another_name", [False, True])
def test_the_cluster_that_this_user_keeps_here_is_borrowed_as_it_is(
    theirs: Record, tmp_path: Path, has_another_name: bool
) -> None:
    """As by a lecturer who joins the own workshop, whose link may have another name of this host."""
    kept, certificate = replace(theirs, detached=True), Certificate.create()
    scheduler_file.write(kept, certificate)
    address = theirs.address.replace("127.0.0.1", "localhost") if has_another_name else theirs.address
    assert (address != theirs.address) == has_another_name
    scheduler_file.write_target(tmp_path / "joined", scheduler_file.SchedulerTarget(address, certificate))
    with launch.borrow(tmp_path / "joined") as record:
        assert record == kept
    assert launch.running() == kept, "it outlives the lab"


def test_an_address_where_nobody_answers_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="nobody answered there") as raised, launch.borrow("tcp://127.0.0.1:9"):
        pass
    assert "\n" not in str(raised.value)


def test_after_a_cluster_of_ones_own_the_borrowed_one_is_found_again(
    theirs: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While theirs does not answer, a person starts ranks here; when these have ended, the lab is back by itself."""
    monkeypatch.setattr(lifetime, "LOOK_S", 0.05)
    with launch.borrow(theirs.address, entry=fake_bench.ENTRY) as record:
        ours = replace(record, address="tcp://127.0.0.1:9", kind="local")
        scheduler_file.write(ours)
        time.sleep(0.3)
        assert scheduler_file.read() == ours, "what lives is left alone"
        scheduler_file.remove(ours)
        assert eventually(lambda: scheduler_file.read() == record, 10.0)
    assert not scheduler_file.path().exists()
