"""One warm Dask cluster for the session: two workers on one host and one on another, running the fake bench."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Nanny, Scheduler, SpecCluster

# rank processes import the fake bench by this name, from the path that they inherit
sys.path.insert(0, str(Path(__file__).parent))

import fake_bench
from fake_cluster import HOSTS, await_ranks, eventually, ranks_alive

from cluster.broker import dask_settings
from cluster.client import Cluster


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the ranks of fake benches meet."""
    path = tmp_path_factory.mktemp("fake-bench")
    os.environ[fake_bench.FOLDER] = str(path)
    yield path
    del os.environ[fake_bench.FOLDER]


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    """The scheduler's address; nothing is left in the process table when it is closed."""
    workers = {
        name: {"cls": Nanny, "options": {"host": host, "nthreads": 1, "memory_limit": 0, "dashboard_address": None}}
        for name, host in HOSTS.items()
    }
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}}
    with (
        dask.config.set(dask_settings()),
        SpecCluster(workers=workers, scheduler=scheduler, silence_logs=False) as cluster,
    ):
        yield cluster.scheduler_address
    left = eventually(lambda: not ranks_alive(), 60.0)
    assert left, f"rank processes left behind: {ranks_alive()}"


@pytest.fixture
def cluster(address: str) -> Iterator[Cluster]:
    """A client of its own, with every worker's rank process ready."""
    with Cluster.connect(address, entry=fake_bench.ENTRY) as connected:
        await_ranks(connected)
        yield connected
