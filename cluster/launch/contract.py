"""Rules for every worker of our clusters, whoever starts it: one thread, one rank, no memory limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any, ClassVar, Protocol

from distributed.deploy.cluster import Cluster as DaskCluster

from cluster import hosts
from cluster.broker import dask_settings

DISTRIBUTION = "overlap-workbench"
MOST_RANKS = 4096
"""Most ranks of one cluster: its scheduler would not keep up with more."""
LOOPBACK = "127.0.0.1"
RESOURCE = "rank"
"""Dask resource of which every worker has one, so that tasks of other users can avoid or request a rank's worker."""

CERTIFIES = "cryptography"
"""Library that makes certificates; using one does not need it."""

ORPHAN_S = 60
"""A worker that finds no scheduler within this time, s, ends."""
LOOPBACK_ANY_PORT = f"{LOOPBACK}:0"
"""Address of the pages of Dask's schedulers and workers: loopback, because they have no password."""

OPTIONS: dict[str, Any] = {
    "nthreads": 1,
    "memory_limit": 0,
    "resources": {RESOURCE: 1},
    "dashboard": False,
    "dashboard_address": LOOPBACK_ANY_PORT,
    "death_timeout": ORPHAN_S,
}
"""Options of a worker that is created in Python."""
ARGUMENTS = (
    *("--nthreads", "1", "--memory-limit", "0", "--resources", f"{RESOURCE}=1"),
    *("--no-dashboard", "--dashboard-address", LOOPBACK_ANY_PORT, "--death-timeout", str(ORPHAN_S)),
)
"""The same options for the command `dask worker`."""


class ClusterKind(Protocol):
    """One way to start a cluster; its fields are the options that a user sets."""

    name: ClassVar[str]

    @property
    def encrypted(self) -> bool:
        """Whether it listens on a network, with TLS only; otherwise it is on loopback without TLS."""

    @property
    def num_ranks(self) -> int:
        """How many workers it starts in all."""

    @property
    def patience_s(self) -> float:
        """How long its start may take, s."""

    def refusal(self) -> str | None:
        """Why it cannot be started from here, or None."""

    def start(self, pem: Path | None) -> DaskCluster:
        """Dask's own cluster object; closing it ends the cluster. *pem*: its certificate's file, if encrypted."""


def environment() -> dict[str, str]:
    """Dask's settings as variables, for workers that a command starts on another host."""
    return {
        "DASK_" + name.upper().replace("-", "_").replace(".", "__"): str(value)
        for name, value in dask_settings().items()
    }


def missing(kind: str, module: str, extra: str) -> str | None:
    """Why a cluster of *kind* cannot start without the Python package *module*; None where it is installed."""
    if util.find_spec(module) is not None:
        return None
    return (
        f"A cluster of kind {kind} needs the Python package {module}, which is not installed here. Accepted after: "
        f"pip install 'overlap-workbench[{extra}]'"
    )


def too_many(options: str, num_ranks: int, most: int = MOST_RANKS) -> str | None:
    """Why *num_ranks* ranks are too many, or None; *options*: the options that request them, for the message."""
    if num_ranks <= most:
        return None
    return f"{options} is too large: {num_ranks:,} ranks > {most:,}. Accepted: 1 to {most:,} ranks."


def idle_gpus(name: str, count: int, ranks: str, num_ranks: int) -> str | None:
    """Why *count* GPUs do not fit *num_ranks* ranks, or None; *name* and *ranks*: names of the two options."""
    if 0 <= count <= num_ranks:
        return None
    return (
        f"{name} = {count} does not fit {ranks} = {num_ranks}. A rank has 1 GPU, and others would be idle. Accepted: "
        f"{name} = 0 to {num_ranks}."
    )


def refusal(address: str, workers: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why the workers of somebody else's cluster, as its scheduler describes them, cannot keep ranks; or None."""
    broad = [f"{worker['name']} has {worker['nthreads']}" for worker in workers.values() if worker["nthreads"] != 1]
    if not broad:
        return None
    return (
        f"The cluster at {address} does not fit. A rank needs a worker with 1 thread, and {len(broad)} of its "
        f"{len(workers)} workers have another number: {_first(broad)}. Accepted: workers started with `dask worker "
        f"{address} {' '.join(ARGUMENTS)}`."
    )


def version_mismatch(address: str, answers: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why workers with these answers (their `version` of the workbench, or their `trouble`) cannot keep ranks; or None.

    A worker that does not answer is no reason: the broker does not use it until it does.
    """
    client_version = hosts.package_version(DISTRIBUTION)
    others = [
        f"{name}: {facts.get('trouble') or facts['version']}"
        for name, facts in answers.items()
        if facts.get("version") != client_version and not hosts.is_no_answer(facts)
    ]
    if not others:
        return None
    return (
        f"The cluster at {address} has another version: {len(others)} of its {len(answers)} workers do not have "
        f"{DISTRIBUTION} {client_version} as this process has: {_first(others)}. "
        "Accepted: the same version for all of them."
    )


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
