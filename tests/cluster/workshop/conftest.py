"""A workshop on a TLS cluster of two ranks on this host, opened as the lecturer does; and state folders for others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.workshop import hosting
from cluster.workshop.hosting import Plan, Workshop

HOST = "127.0.0.2"
"""Loopback, too, but not the address that needs no encryption."""


def page() -> dict[str, tuple[str, bytes]]:
    return {"/workshop": ("text/html", b"<title>page</title>")}


def free_ports(host: str = HOST) -> int:
    """A port of *host* that is free together with the next one."""
    for _ in range(50):
        with socket.create_server((host, 0)) as first:
            port = first.getsockname()[1]
            try:
                socket.create_server((host, port + 1)).close()
            except (OSError, OverflowError):
                continue
            return port
    raise AssertionError("no two ports are free")


@pytest.fixture(scope="module", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of lecturer and student in these tests."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of the workshop's cluster lie."""
    return tmp_path_factory.mktemp("clusters")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(students=3, hours=1.0, ranks=2, host=HOST, port=free_ports())


@pytest.fixture(scope="module")
def workshop(plan: Plan, cluster_folder: Path) -> Iterator[Workshop]:
    """One for the whole file; what is left of it is ended."""
    opened, is_new = hosting.open_workshop(plan, page, cluster_folder)
    assert is_new
    yield opened
    if hosting.remembered() is not None:
        hosting.close_workshop()
