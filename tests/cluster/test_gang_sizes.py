"""Gangs of many ranks, and gangs that the network links: on which workers they sit."""

from __future__ import annotations

import pytest
from test_gang import ask, clean, gang_of, granted

from cluster.gang_messages import GrantMessage, RequestMessage


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
