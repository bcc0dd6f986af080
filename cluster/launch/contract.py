"""What every worker of a cluster of ours must be, whoever starts it: one thread, one rank, no memory limit."""

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
"""Of one cluster: its scheduler would not keep up with more."""
LOOPBACK = "127.0.0.1"
RESOURCE = "rank"
"""Every worker has one of it, so that tasks of other users of the cluster can keep off or ask for a rank's worker."""

CERTIFIES = "cryptography"
"""The library that makes certificates; who only uses one needs none."""

ORPHAN_S = 60
"""A worker that finds no scheduler within this time ends."""
NEARBY = f"{LOOPBACK}:0"
"""Where Dask's pages are served, of schedulers and of workers: they ask nobody for a password."""

OPTIONS: dict[str, Any] = {
    "nthreads": 1,
    "memory_limit": 0,
    "resources": {RESOURCE: 1},
    "dashboard": False,
    "dashboard_address": NEARBY,
    "death_timeout": ORPHAN_S,
}
"""For a worker that is made in Python."""
ARGUMENTS = (
    *("--nthreads", "1", "--memory-limit", "0", "--resources", f"{RESOURCE}=1"),
    *("--no-dashboard", "--dashboard-address", NEARBY, "--death-timeout", str(ORPHAN_S)),
)
"""The same for `dask worker`."""


class ClusterKind(Protocol):
    """One way to start a cluster: a value whose fields are all that a person states."""

    name: ClassVar[str]

    encrypted: ClassVar[bool]
    """Whether it listens on a network, and so speaks TLS only; otherwise it is on loopback, and plain."""

    @property
    def num_ranks(self) -> int:
        """How many workers it starts in all."""

    @property
    def patience_s(self) -> float:
        """How long starting it may take."""

    def refusal(self) -> str | None:
        """Why it cannot be started from here, or None."""

    def start(self, pem: Path | None) -> DaskCluster:
        """Dask's own cluster object; closing it ends the cluster. *pem*: of its certificate, where it is encrypted."""


def environment() -> dict[str, str]:
    """Dask's settings as variables, for workers that are started by a command on another host."""
    return {
        "DASK_" + name.upper().replace("-", "_").replace(".", "__"): str(value)
        for name, value in dask_settings().items()
    }


def missing(kind: str, module: str, extra: str) -> str | None:
    """The sentence for an optional library that is not here, or None."""
    if util.find_spec(module) is not None:
        return None
    return (
        f"A cluster of kind {kind} needs the Python package {module}, which is not installed here. Accepted after: "
        f"pip install 'overlap-workbench[{extra}]'"
    )


def too_many(options: str, num_ranks: int, most: int = MOST_RANKS) -> str | None:
    """Why not so many ranks are started, or None; *options* are those that say how many."""
    if num_ranks <= most:
        return None
    return f"{options} is too large: {num_ranks:,} ranks > {most:,}. Accepted: 1 to {most:,} ranks."


def idle_gpus(name: str, count: int, ranks: str, num_ranks: int) -> str | None:
    """Why *count* GPUs do not suit *num_ranks* ranks, or None; *name* and *ranks* are the options that say so."""
    if 0 <= count <= num_ranks:
        return None
    return (
        f"{name} = {count} does not fit {ranks} = {num_ranks}. A rank has 1 GPU, and others would be idle. Accepted: "
        f"{name} = 0 to {num_ranks}."
    )


def refusal(address: str, workers: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why these workers of somebody else's cluster, as its scheduler knows them, cannot keep ranks; or None."""
    broad = [f"{worker['name']} has {worker['nthreads']}" for worker in workers.values() if worker["nthreads"] != 1]
    if not broad:
        return None
    return (
        f"The cluster at {address} does not fit. A rank needs a worker with 1 thread, and {len(broad)} of its "
        f"{len(workers)} workers have another number: {_first(broad)}. Accepted: workers started with `dask worker "
        f"{address} {' '.join(ARGUMENTS)}`."
    )


def stranger(address: str, answers: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why workers cannot keep ranks that told their `version` of the workbench, or their `trouble`; or None.

    One that does not answer is no reason: the broker does without it until it does.
    """
    ours = hosts.version(DISTRIBUTION)
    others = [
        f"{name}: {facts.get('trouble') or facts['version']}"
        for name, facts in answers.items()
        if facts.get("version") != ours and not hosts.is_silence(facts)
    ]
    if not others:
        return None
    return (
        f"The cluster at {address} has another version: {len(others)} of its {len(answers)} workers do not have "
        f"{DISTRIBUTION} {ours} as this process has: {_first(others)}. Accepted: the same version for all of them."
    )


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
