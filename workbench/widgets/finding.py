"""Who measures: the cluster is looked for in the background, and looked at again, so that the page says how it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cluster.dispatch import Cluster

LOOK_SECONDS = 3.0
"""How often a cluster is looked for, or looked at."""


class Finder:
    """*tell* is called with the number of ranks, or None, and with a sentence, whenever these have changed."""

    def __init__(self, tell: Callable[[int | None, str], Any], cluster: Cluster | str | None = None) -> None:
        self._tell = tell
        self._cluster = None if isinstance(cluster, str) else cluster
        self._address = cluster if isinstance(cluster, str) else None
        self._told: tuple[int | None, str] | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begins to look, in a thread that ends with `close` or with the kernel."""
        threading.Thread(target=self._look, name="workbench cluster", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def cluster(self) -> Cluster:
        """The cluster that was found, connected; ValueError when nobody answers."""
        with self._lock:
            if self._cluster is None or self._cluster.client.status != "running":
                self._cluster = None  # a lab that was ended and started again has another address
                self._cluster = Cluster.connect(self._address)
            return self._cluster

    def _look(self) -> None:
        while not self._closed.is_set():
            news = self._found()
            if news != self._told:
                self._told = news
                self._tell(*news)
            self._closed.wait(LOOK_SECONDS)

    def _found(self) -> tuple[int | None, str]:
        try:
            cluster = self.cluster()
            workers = cluster.describe()["workers"]
        except (ValueError, OSError, TimeoutError, RuntimeError):
            return None, "No cluster answers: simulate, replay, or start one with `workbench cluster up`."
        troubles = [f"{worker['name']}: {worker['trouble']}" for worker in workers if worker["trouble"]]
        hosts = len({worker["host"] for worker in workers})
        where = "this host" if cluster.address.startswith("tcp://127.0.0.1") else f"{hosts} hosts"
        return len(workers), " ".join([f"Cluster: {len(workers)} ranks on {where}.", *troubles])
