"""Who measures: the cluster is looked for in the background, and looked at again, so that the page says how it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cluster.dispatch import Cluster

LOOK_SECONDS = 3.0
"""How often a cluster is looked for, or looked at."""
PATIENCE_SECONDS = 1.0
"""So long may somebody who needs a cluster wait for one that is being found."""


class Finder:
    """*tell* is called with the number of ranks, or None, and with a sentence, whenever these have changed.

    Only the finder's own thread connects: a connection may hang, and whoever presses Run must not hang with it.
    """

    def __init__(self, tell: Callable[[int | None, str], Any], cluster: Cluster | str | None = None) -> None:
        self._tell = tell
        self._cluster = None if isinstance(cluster, str) else cluster
        self._address = cluster if isinstance(cluster, str) else None
        self._told: tuple[int | None, str] | None = None
        self._why = "it is still being looked for"
        self._closed = False
        self._news = threading.Condition()
        """A cluster was found, is needed at once, or is needed no more. Held for moments, never while connecting."""
        self._needed = False

    def start(self) -> None:
        """Begins to look, in a thread that ends with `close` or with the kernel."""
        threading.Thread(target=self._look, name="workbench cluster", daemon=True).start()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()

    def cluster(self) -> Cluster:
        """The cluster that was found, connected; ValueError when nobody has answered."""
        with self._news:
            self._needed = not self._connected()
            self._news.notify_all()
            self._news.wait_for(self._connected, PATIENCE_SECONDS)
            if self._cluster is not None and self._connected():
                return self._cluster
            raise ValueError(
                f"To measure was asked for, which takes 1 cluster, but 0 have answered: {self._why.rstrip('.')}. "
                "Accepted: a simulation, a replay, or another try once the page says that a cluster is there."
            )

    def _connected(self) -> bool:
        return self._cluster is not None and self._cluster.client.status == "running"

    def _look(self) -> None:
        while not self._closed:
            news = self._found()
            if news != self._told:
                self._told = news
                self._tell(*news)
            with self._news:
                self._news.wait_for(lambda: self._needed or self._closed, LOOK_SECONDS)
                self._needed = False

    def _connect(self) -> Cluster:
        with self._news:
            if self._cluster is not None and self._connected():
                return self._cluster
            self._cluster = None  # a lab that was ended and started again has another address
        found = Cluster.connect(self._address)
        with self._news:
            self._cluster = found
            self._news.notify_all()
        return found

    def _found(self) -> tuple[int | None, str]:
        try:
            cluster = self._connect()
            workers = cluster.describe()["workers"]
        except (ValueError, OSError, TimeoutError, RuntimeError) as error:
            self._why = str(error) or type(error).__name__
            return None, "No cluster answers: simulate, replay, or start one with `workbench cluster up`."
        troubles = [f"{worker['name']}: {worker['trouble']}" for worker in workers if worker["trouble"]]
        hosts = len({worker["host"] for worker in workers})
        where = "this host" if cluster.address.startswith("tcp://127.0.0.1") else f"{hosts} hosts"
        return len(workers), " ".join([f"Cluster: {len(workers)} ranks on {where}.", *troubles])
