"""Kind local: scheduler and workers on this host, started by Dask's own nannies; others reach it where it may be."""

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

from cluster import hosts
from cluster.certificate import SCHEME, security
from cluster.hosts import usable_cores
from cluster.launch.contract import CERTIFIES, LOOPBACK, LOOPBACK_ANY_PORT, OPTIONS, RESOURCE, missing, too_many
from cluster.process import remove_left_semaphores

FEWEST, MOST = 4, 8
"""Default ranks: worlds of 1, 2 and 4 are possible on any laptop, and a large host has more only on request."""
MOST_HERE = 64
"""Ranks that even a small host may start, to show a large world."""
EACH_S = 10.0
"""A core of a busy host starts a worker within this time, s."""

DEFAULT_NUM_RANKS = -1
"""Stands for the default number of ranks, which depends on the GPUs."""


def num_ranks_here() -> int:
    """Default number of CPU ranks: one per core of this host, within bounds."""
    return min(max(FEWEST, usable_cores()), MOST)


def most_ranks_here() -> int:
    """Most ranks that this host may start; each is a process that loads torch."""
    return max(MOST_HERE, 4 * usable_cores())


def default_num_gpus() -> int:
    """All visible GPUs, one per rank; 0 for a single GPU, which would only allow world 1 and is used on request."""
    count = len(hosts.visible_gpus())
    return count if count > 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Ranks on this host, each with a GPU of its own where there are several, or all on one."""

    name: ClassVar[str] = "local"

    num_ranks: int = DEFAULT_NUM_RANKS
    """How many ranks; by default one per GPU, or else one per core."""
    gpus: int = field(default_factory=default_num_gpus)
    """How many GPUs ranks may have, one each; 0: CPU ranks only."""
    share_gpu: bool = False
    """Whether all ranks are dealt the first GPU, for a host that has fewer GPUs than ranks."""
    host: str = LOOPBACK
    """The address at which the scheduler listens; one that other hosts reach is encrypted. Workers stay on loopback."""
    port: int = 0
    """The scheduler's port; 0: any that is free."""

    def __post_init__(self) -> None:
        if self.num_ranks == DEFAULT_NUM_RANKS:
            of_cores = num_ranks_here()  # 4 to 8, which may share a GPU
            object.__setattr__(self, "num_ranks", of_cores if self.share_gpu else self.gpus or of_cores)

    @property
    def encrypted(self) -> bool:
        return self.host != LOOPBACK

    @property
    def patience_s(self) -> float:
        """Longest start, s: workers that share a core start one after the other, in effect."""
        return 60.0 + EACH_S * self.num_ranks / usable_cores()

    def refusal(self) -> str | None:
        if self.num_ranks < 1:
            return f"num_ranks = {self.num_ranks} is too small: {self.num_ranks} < 1. Accepted: 1 or more."
        if (message := too_many(f"num_ranks = {self.num_ranks}", self.num_ranks, most_ranks_here())) is not None:
            return message
        if (message := self._place_refusal()) is not None:
            return message
        if self.share_gpu:
            return hosts.sharing_refusal("num_ranks", self.num_ranks, len(hosts.visible_gpus()))
        num_gpus = len(hosts.visible_gpus()) if self.gpus else 0
        if self.gpus > num_gpus:
            return f"gpus = {self.gpus} does not fit: this host has {num_gpus} GPUs. Accepted: 0 to {num_gpus}."
        if self.gpus and self.num_ranks > self.gpus:
            return (
                f"num_ranks = {self.num_ranks} is too large. Every rank needs a GPU of its own, and there are "
                f"{self.gpus}. Accepted: 1 to {self.gpus}, or gpus=0 for ranks without."
            )
        return None

    def _place_refusal(self) -> str | None:
        """Why the scheduler cannot listen at its host and port, or None."""
        if self.encrypted and (message := missing("local on a network", CERTIFIES, "ssh")) is not None:
            return message
        try:
            socket.create_server((self.host, self.port)).close()
        except (OSError, OverflowError) as error:
            return (
                f"host = {self.host} with port = {self.port} does not fit: this host cannot listen there ({error}). "
                "Accepted: an address of this host, and a port that is free; port = 0 takes any."
            )
        return None

    def start(self, pem: Path | None = None) -> SpecCluster:
        """Start scheduler and workers; returns when all workers have joined. Their rank processes start after that.

        Ctrl-C reaches every process of a terminal, and half-started workers would print tracebacks. So a thread that
        blocks its signal starts them, and they inherit that. On Ctrl-C the start is completed, then the cluster ends.
        """
        with ThreadPoolExecutor(1, initializer=_ignore_terminal_signals) as executor:
            starting = executor.submit(self._started, pem)
            try:
                return starting.result()
            except KeyboardInterrupt:
                with contextlib.suppress(Exception):
                    starting.result(timeout=self.patience_s).close()
                raise

    def _started(self, pem: Path | None) -> SpecCluster:
        remove_left_semaphores()
        place = {"host": self.host, "port": self.port}
        scheduler = place | {"dashboard": True, "dashboard_address": LOOPBACK_ANY_PORT} | _encryption(pem)
        with _environment_kept():
            return SpecCluster(
                self.workers(pem),
                {"cls": Scheduler, "options": scheduler},
                name="overlap-workbench",
                silence_logs=logging.ERROR,
                security=None if pem is None else security(pem),
            )

    def workers(self, pem: Path | None = None) -> dict[str, dict[str, Any]]:
        """Dask's specification of each worker, by name; *pem* is their certificate's file, if they are encrypted."""
        host = socket.gethostname().partition(".")[0]
        gpus = hosts.visible_gpus()
        of_ranks: list[hosts.Gpu | None] = [*gpus[: self.num_ranks]] if self.gpus else [None] * self.num_ranks
        if self.share_gpu:
            of_ranks = [gpus[0]] * self.num_ranks
        ranks_on_gpu = self.num_ranks if self.share_gpu else 1
        death = {"death_timeout": self.patience_s}
        hide_others = bool(gpus)  # without GPUs the environment stays unchanged
        return {
            f"{host}-rank{rank}": {
                "cls": Nanny,
                "options": _options(gpu, hide_others, ranks_on_gpu) | _encryption(pem) | death,
            }
            for rank, gpu in enumerate(of_ranks)
        }


def _options(gpu: hosts.Gpu | None, hide_others: bool, ranks_on_gpu: int = 1) -> dict[str, Any]:
    """Options of a worker with *gpu*, or none; *hide_others*: hide all other GPUs from it.

    A worker that shares its GPU has as much less of the Dask resource, from which keepers and other users see it.
    """
    options = OPTIONS | {"host": LOOPBACK, "silence_logs": logging.ERROR, "preload": [__name__]}
    if hide_others:
        options["env"] = hosts.environment(gpu)
    if gpu is not None:
        options["resources"] = {RESOURCE: 1, hosts.RESOURCE: 1 / ranks_on_gpu}
    return options


def _encryption(pem: Path | None) -> dict[str, Any]:
    """Options of a scheduler or worker that speaks TLS with the certificate in *pem*; none without one."""
    return {} if pem is None else {"protocol": SCHEME, "security": security(pem)}


def _ignore_terminal_signals() -> None:
    if hasattr(signal, "pthread_sigmask"):
        # these signals end the lab, then its workers, and at last the process that removes their semaphores
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGQUIT})
        resource_tracker.ensure_running()  # its start with the first process would unblock SIGINT in this thread
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def dask_setup(worker: Worker) -> None:
    """Ignore Ctrl-C in a worker, which the lab ends quietly instead. Dask calls this in every worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # a heartbeat to a closing scheduler would log an error with a traceback; ranks report by events instead
    logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """Restore the environment: a nanny sets OMP_NUM_THREADS=1 and more here too, and a notebook would inherit it."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
