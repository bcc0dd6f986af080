"""Kind local: scheduler and workers on this host, started by Dask's own nannies, reachable from this host only."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, ClassVar

from distributed import Nanny, Scheduler, SpecCluster, Worker

from cluster import hosts as gpus
from cluster.hosts import usable_cores
from cluster.launch.contract import LOOPBACK, NEARBY, OPTIONS, RESOURCE, too_many

FEWEST, MOST = 4, 8
"""Worlds of 1, 2 and 4 are possible on any laptop; on a large host more ranks are asked for, not given."""
MOST_HERE = 64
"""So many ranks a small host may be asked for, too, to see what a large world is like."""
EACH_S = 10.0
"""A core of a busy host starts a worker within this time."""

UNSTATED = -1
"""Stands for the default, which of the ranks depends on the GPUs."""


def num_ranks_here() -> int:
    """One rank per core of this host, within bounds."""
    return min(max(FEWEST, usable_cores()), MOST)


def most_ranks_here() -> int:
    """What this host may start: each rank is a process with torch in it."""
    return max(MOST_HERE, 4 * usable_cores())


def gpus_here() -> int:
    """GPUs for as many ranks; a single one would leave no world but 1, and is for who asks for it."""
    count = len(gpus.gpus_here())
    return count if count > 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Ranks on this host, each with a GPU of its own where there are several."""

    name: ClassVar[str] = "local"
    encrypted: ClassVar[bool] = False

    num_ranks: int = UNSTATED
    """Default: one per GPU, or else one per core."""
    gpus: int = field(default_factory=gpus_here)
    """How many GPUs ranks may have, one each; 0: CPU ranks only."""

    def __post_init__(self) -> None:
        if self.num_ranks == UNSTATED:
            object.__setattr__(self, "num_ranks", self.gpus or num_ranks_here())

    @property
    def patience_s(self) -> float:
        """Workers that share a core start one after the other, in effect."""
        return 60.0 + EACH_S * self.num_ranks / usable_cores()

    def refusal(self) -> str | None:
        if self.num_ranks < 1:
            return f"num_ranks = {self.num_ranks} is too small: {self.num_ranks} < 1. Accepted: 1 or more."
        if (sentence := too_many(f"num_ranks = {self.num_ranks}", self.num_ranks, most_ranks_here())) is not None:
            return sentence
        num_gpus = len(gpus.gpus_here()) if self.gpus else 0
        if self.gpus > num_gpus:
            return f"gpus = {self.gpus} does not fit: this host has {num_gpus} GPUs. Accepted: 0 to {num_gpus}."
        if self.gpus and self.num_ranks > self.gpus:
            return (
                f"num_ranks = {self.num_ranks} is too large. Every rank needs a GPU of its own, and there are "
                f"{self.gpus}. Accepted: 1 to {self.gpus}, or gpus=0 for ranks without."
            )
        return None

    def start(self, pem: Path | None = None) -> SpecCluster:
        """Returns when all workers are there; their rank processes start behind that.

        Ctrl-C reaches every process of a terminal, and half-started workers would tell all they think of it. A thread
        that does not hear it starts them, and they inherit that. What has begun is started to its end, then ended.
        """
        with ThreadPoolExecutor(1, initializer=_deaf) as aside:
            starting = aside.submit(self._started)
            try:
                return starting.result()
            except KeyboardInterrupt:
                with contextlib.suppress(Exception):
                    starting.result(timeout=self.patience_s).close()
                raise

    def _started(self) -> SpecCluster:
        scheduler = {"host": LOOPBACK, "port": 0, "dashboard": True, "dashboard_address": NEARBY}
        with _environment_kept():
            return SpecCluster(
                self.workers(),
                {"cls": Scheduler, "options": scheduler},
                name="overlap-workbench",
                silence_logs=logging.ERROR,
            )

    def workers(self) -> dict[str, dict[str, Any]]:
        """What Dask is told of each of them, by name."""
        host = socket.gethostname().partition(".")[0]
        here = gpus.gpus_here()
        owned: list[gpus.Gpu | None] = [*here[: self.num_ranks]] if self.gpus else [None] * self.num_ranks
        hidden = bool(here)  # where there are none, the environment stays as it is
        return {
            f"{host}-rank{rank}": {"cls": Nanny, "options": _options(gpu, hidden) | {"death_timeout": self.patience_s}}
            for rank, gpu in enumerate(owned)
        }


def _options(gpu: gpus.Gpu | None, hidden: bool) -> dict[str, Any]:
    """Of a worker that has *gpu* alone; *hidden*: there are others it must not see."""
    options = OPTIONS | {"host": LOOPBACK, "silence_logs": logging.ERROR, "preload": [__name__]}
    if hidden:
        options["env"] = gpus.environment(gpu)
    if gpu is not None:
        options["resources"] = {RESOURCE: 1, gpus.RESOURCE: 1}
    return options


def _deaf() -> None:
    if hasattr(signal, "pthread_sigmask"):
        # what ends a whole terminal ends the lab, its workers after it, and last of all who removes their semaphores
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGQUIT})
        resource_tracker.ensure_running()  # starting it with the first process would let this thread hear again
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def dask_setup(worker: Worker) -> None:
    """Dask calls this in every worker: Ctrl-C in the terminal is for the lab, which ends its workers in silence."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # a heartbeat that meets a scheduler on its way out is an error with a traceback there; of ranks we hear by events
    logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """A nanny sets OMP_NUM_THREADS=1 and others in its own process too, from where a notebook would inherit them."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
