"""A cluster is found in the background; whoever needs it never waits for a connection that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.dispatch import Cluster
from tests.widgets.conftest import FakeLab, eventually
from workbench.widgets.finding import PATIENCE_SECONDS, Finder


@pytest.fixture
def make_finder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Finder, list[tuple[Any, str]]]]]:
    """make_finder(connect): a finder that connects by that, and all that it tells."""
    made: list[Finder] = []

    def make(connect: Callable[[str | None], Any]) -> tuple[Finder, list[tuple[Any, str]]]:
        monkeypatch.setattr(Cluster, "connect", connect)
        told: list[tuple[Any, str]] = []
        finder = Finder(lambda ranks, words: told.append((ranks, words)))
        made.append(finder)
        finder.start()
        return finder, told

    yield make
    for finder in made:
        finder.close()


def test_while_a_connection_hangs_who_needs_a_cluster_is_told_so(make_finder: Callable[..., Any]) -> None:
    hanging, over = threading.Event(), threading.Event()

    def connect(address: str | None) -> FakeLab:
        hanging.set()
        over.wait(30)
        return FakeLab()

    finder, told = make_finder(connect)
    assert hanging.wait(10)

    def ask() -> None:
        with pytest.raises(ValueError, match="is still being looked for"):
            finder.cluster()

    asked = threading.Thread(target=ask, daemon=True)
    asked.start()
    asked.join(PATIENCE_SECONDS + 5)
    ended = not asked.is_alive()
    over.set()
    assert ended, "the one who asked waits for the connection"
    assert eventually(lambda: told and told[-1][0] == 4)
    assert isinstance(finder.cluster(), FakeLab)


def test_a_cluster_that_is_needed_is_looked_for_at_once(make_finder: Callable[..., Any]) -> None:
    up = threading.Event()

    def connect(address: str | None) -> FakeLab:
        if not up.is_set():
            raise ValueError("Nobody answers.")
        return FakeLab()

    finder, told = make_finder(connect)
    assert eventually(lambda: told)
    with pytest.raises(ValueError, match="0 have answered: Nobody answers"):
        finder.cluster()
    up.set()
    began = time.monotonic()
    assert isinstance(finder.cluster(), FakeLab)
    assert time.monotonic() - began <= PATIENCE_SECONDS


def test_a_lab_that_was_ended_is_looked_for_again(make_finder: Callable[..., Any]) -> None:
    labs = [FakeLab(), FakeLab()]
    rest = iter(labs)
    finder, _ = make_finder(lambda address: next(rest))
    assert finder.cluster() is labs[0]
    labs[0].client.status = "closed"
    assert finder.cluster() is labs[1]
