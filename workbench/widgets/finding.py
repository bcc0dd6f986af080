"""Who measures: the cluster is looked for in the background, and looked at again, so that the page says how it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cluster.devices import local_ranks
from cluster.dispatch import Cluster
from cluster.seating import Described, Ranks, Workers

LOOK_SECONDS, MISS_SECONDS = 3.0, 1.0
"""How often a cluster is looked at, and how often it is looked for."""
LOOKING_MOST = 4
"""So many explorers of a kernel look for their cluster; older ones keep what they have found."""
NOBODY = (
    "No cluster answers yet: the lab's takes some seconds to start, `workbench cluster up` starts one elsewhere. "
    "Simulate and Replay need none."
)
CLOSING_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""So long may somebody who needs a cluster wait for one that is being found."""


class Finder:
    """*tell* is called with the workers, or None, and with a sentence, whenever these have changed.

    Only the finder's own thread connects: a connection may hang, and whoever presses Run must not hang with it.
    """

    def __init__(self, tell: Callable[[Workers | None, str], Any], cluster: Cluster | str | None = None) -> None:
        self._tell = tell
        self._cluster = None if isinstance(cluster, str) else cluster
        self._address = cluster if isinstance(cluster, str) else None
        self._is_lab = cluster is None
        self._told: tuple[Workers | None, str] | None = None
        self._why = "it is still being looked for"
        self._closed = False
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        """A cluster was found, is needed at once, or is needed no more. Held for moments, never while connecting."""
        self._needed = False

    def start(self) -> None:
        """Begins to look, in a thread that ends with `close` or with the kernel."""
        self._thread = threading.Thread(target=self._look, name="workbench cluster", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing is told from now on: what is being told is waited for, a connection that hangs only so long."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_SECONDS)

    def cluster(self) -> Cluster:
        """The cluster that was found, connected; ValueError when nobody has answered."""
        with self._news:
            self._needed = not self._connected()
            self._news.notify_all()
            self._news.wait_for(self._connected, PATIENCE_SECONDS)
            if self._cluster is not None and self._connected():
                return self._cluster
            raise ValueError(
                f"Measuring needs 1 cluster, but 0 have answered: {self._why.rstrip('.')}. Accepted: a simulation, "
                "a replay, or another try once the page says that a cluster is there."
            )

    def ranks(self, world: int, backend: str, across: bool = False) -> Ranks | None:
        """What a gang would run on: of the cluster as it was seen last, or of the one that the lab is starting here."""
        workers = self._told and self._told[0]
        if workers is not None:
            return workers.ranks(world, backend, across)
        return local_ranks(world, backend) if self._is_lab else None

    def _connected(self) -> bool:
        return self._cluster is not None and self._cluster.client.status == "running"

    def _look(self) -> None:
        while not self._closed:
            news = self._found()
            if news != self._told and not self._closed:
                self._told = news
                try:
                    self._tell(*news)
                except ValueError:
                    if not self._closed:  # else the page went meanwhile, and its store with it
                        raise
            with self._news:
                pause_s = MISS_SECONDS if news[0] is None else LOOK_SECONDS
                self._news.wait_for(lambda: self._needed or self._closed, pause_s)
                self._needed = False

    def _connect(self) -> Cluster:
        with self._news:
            if self._cluster is not None and self._connected():
                return self._cluster
            self._cluster = None  # a lab that was ended and started again has another address
        cluster = Cluster.connect(self._address)
        with self._news:
            self._cluster = cluster
            self._news.notify_all()
        return cluster

    def _found(self) -> tuple[Workers | None, str]:
        try:
            cluster = self._connect()
            workers = Workers.described(cluster.describe())
        except (ValueError, OSError, TimeoutError, RuntimeError) as error:
            self._why = str(error) or type(error).__name__
            return None, NOBODY
        troubles = [f"{worker.name}: {worker.trouble}." for worker in workers.here if worker.trouble]
        silent = [worker.name for worker in workers.here if isinstance(worker, Described) and worker.is_away]
        if silent:
            troubles.append(f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer now.")
        hosts = len({worker.host for worker in workers.here})
        where = "this host" if cluster.address.startswith("tcp://127.0.0.1") else f"{hosts} hosts"
        return workers, " ".join([f"Cluster: {len(workers)} ranks on {where}.", *troubles])
