"""A cluster is found in the background; whoever needs it never waits for a connection that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cluster.client import Cluster
from cluster.hosts import local_ranks
from tests.widgets.conftest import FakeLab, eventually
from workbench.widgets import cluster_watch
from workbench.widgets.cluster_watch import PATIENCE_SECONDS, ClusterWatcher


@pytest.fixture
def make_finder(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., tuple[ClusterWatcher, list[tuple[Any, str]]]]]:
    """make_finder(connect): a finder that connects by that, and all that it tells."""
    made: list[ClusterWatcher] = []

    def make(connect: Callable[[str | None], Any]) -> tuple[ClusterWatcher, list[tuple[Any, str]]]:
        monkeypatch.setattr(Cluster, "connect", connect)
        reports: list[tuple[Any, str]] = []
        finder = ClusterWatcher(lambda workers, words: reports.append((workers, words)))
        made.append(finder)
        finder.start()
        return finder, reports

    yield make
    for finder in made:
        finder.close()


def test_while_a_connection_hangs_who_needs_a_cluster_is_told_so(make_finder: Callable[..., Any]) -> None:
    hanging, over = threading.Event(), threading.Event()

    def connect(address: str | None) -> FakeLab:
        hanging.set()
        over.wait(200)
        return FakeLab()

    finder, reports = make_finder(connect)
    assert hanging.wait(100)

    def ask() -> None:
        with pytest.raises(ValueError, match="is still being looked for"):
            finder.cluster()

    asked = threading.Thread(target=ask, daemon=True)
    asked.start()
    asked.join(PATIENCE_SECONDS + 60)
    ended = not asked.is_alive()
    over.set()
    assert ended, "the one who asked waits for the connection"
    assert eventually(lambda: reports and len(reports[-1][0] or ()) == 4)
    assert isinstance(finder.cluster(), FakeLab)


def test_a_cluster_that_is_needed_is_looked_for_at_once(
    make_finder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when it would be looked for anyway."""
    monkeypatch.setattr(cluster_watch, "MISS_SECONDS", 1000.0)
    up = threading.Event()

    def connect(address: str | None) -> FakeLab:
        if not up.is_set():
            raise ValueError("Nobody answers.")
        return FakeLab()

    finder, reports = make_finder(connect)
    assert eventually(lambda: reports)
    with pytest.raises(ValueError, match="0 have answered: Nobody answers"):
        finder.cluster()
    up.set()
    monkeypatch.setattr(cluster_watch, "PATIENCE_SECONDS", 100.0)
    assert isinstance(finder.cluster(), FakeLab)


def test_a_lab_that_was_ended_is_looked_for_again(
    make_finder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "PATIENCE_SECONDS", 100.0)
    labs = [FakeLab(), FakeLab()]
    rest = iter(labs)
    finder, _ = make_finder(lambda address: next(rest))
    assert finder.cluster() is labs[0]
    labs[0].client.status = "closed"
    assert finder.cluster() is labs[1]


def test_a_page_that_could_not_be_drawn_is_drawn_again(caplog: pytest.LogCaptureFixture) -> None:
    """Or else its Run stayed disabled for good."""
    drawn: list[Any] = []

    def report(*news: Any) -> None:
        drawn.append(news)
        if len(drawn) == 1:
            raise KeyError("the form changes meanwhile")

    finder = ClusterWatcher(report, FakeLab())  # type: ignore[arg-type]
    finder.start()
    try:
        assert eventually(lambda: len(drawn) == 2)
        assert drawn[0] == drawn[1]
        assert "could not show the cluster's state" in caplog.text
    finally:
        finder.close()


def test_what_ranks_run_on_is_the_clusters_word_or_this_hosts_for_the_lab_that_is_still_starting() -> None:
    """What is known is asked with it."""
    reports: list[Any] = []
    lab, elsewhere = (
        ClusterWatcher(lambda *news: reports.append(news)),
        ClusterWatcher(lambda *news: None, "tcp://elsewhere:8786"),
    )
    here = local_ranks(2, "cpu")
    assert here is not None
    assert (lab.ranks(2, "cpu"), elsewhere.ranks(2, "cpu")) == (here, None)
    other = FakeLab()
    other.processor = "another processor"
    connected = ClusterWatcher(lambda *news: reports.append(news), other)  # type: ignore[arg-type]
    connected.start()
    assert eventually(lambda: reports)
    connected.close()
    ranks = connected.ranks(2, "cpu")
    assert ranks is not None
    assert ranks.hardware == replace(here.hardware, model="another processor")


def test_a_page_that_went_while_it_was_told_ends_the_looking_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store may be closed by then."""
    monkeypatch.setattr(Cluster, "connect", lambda address: FakeLab())

    def tell(workers: object, words: str) -> None:
        finder.close()
        raise ValueError("Cannot operate on a closed database.")

    finder = ClusterWatcher(tell)
    finder._look()  # else: the exception
    assert finder._closed


def test_the_page_names_workers_that_do_not_answer_or_cannot_keep_a_rank(
    make_finder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = FakeLab()
    described = lab.describe()
    first, second, *_ = described["workers"]
    first["away_s"], second["trouble"] = 12.0, "it left the cluster and did not come back"
    monkeypatch.setattr(lab, "describe", lambda: described)
    _, reports = make_finder(lambda address: lab)
    assert eventually(lambda: bool(reports and reports[-1][0]))
    assert reports[-1][1].endswith("rank1: it left the cluster and did not come back. rank0 does not answer now.")


def test_the_page_says_before_a_run_that_others_use_the_cores_and_once_while_they_do() -> None:
    lab = FakeLab()
    finder = ClusterWatcher(lambda *news: None, lab)  # type: ignore[arg-type]
    quiet = finder._state()[1]
    assert "busy" not in quiet
    lab.others_cores = 1.3
    busy = finder._state()[1]
    assert "others use 1.3 of 4 cores, mostly other programs. Times taken now are not trustworthy." in busy
    lab.others_cores = 2.0  # another text would redraw the page every three seconds
    assert finder._state()[1] == busy
    lab.party = "the lab's page"
    assert "others use 2.0 of 4 cores, mostly the lab's page." in finder._state()[1], "somebody else is new"
    lab.others_cores = 0.2
    assert finder._state()[1] == quiet


def test_a_cluster_that_goes_away_is_one_sentence_until_it_is_back_by_itself(
    make_finder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "MISS_SECONDS", 0.02)
    monkeypatch.setattr(cluster_watch, "LOOK_SECONDS", 0.02)
    lab, gone = FakeLab(), threading.Event()

    def connect(address: str | None) -> FakeLab:
        if gone.is_set():
            raise ValueError("nobody answered there")
        lab.client.status = "running"
        return lab

    finder, reports = make_finder(connect)
    assert eventually(lambda: reports and reports[-1][0])
    gone.set()
    lab.client.status = "closed"
    assert eventually(lambda: reports[-1][0] is None)
    count = len(reports)
    words = reports[-1][1]
    assert words.startswith(f"The cluster at {lab.address} has not answered since ")
    assert "goes on by itself when it does" in words
    assert "Recorded GPUs" in words
    assert "`workbench cluster up` starts ranks here" in words
    with pytest.raises(ValueError, match="nobody answered there"):
        finder.cluster()
    assert len(reports) == count, "it is said once"
    gone.clear()
    assert eventually(lambda: bool(reports[-1][0]))
    assert finder.cluster() is lab
