"""Clusters are started, found, looked at and ended; every kind is thin over one of Dask's own launchers."""

from __future__ import annotations

from contextlib import AbstractContextManager

from cluster.launch.contract import ClusterKind
from cluster.launch.detached import down, up
from cluster.launch.kinds import KINDS, kind_of
from cluster.launch.lifetime import attach, borrow, hold
from cluster.launch.local import Local
from cluster.launch.roster import status
from cluster.rank import EntryPoint
from cluster.scheduler_file import Record, running

__all__ = [
    "KINDS",
    "ClusterKind",
    "Record",
    "attach",
    "borrow",
    "down",
    "hold",
    "kind_of",
    "local",
    "running",
    "status",
    "up",
]


def local(
    num_ranks: int | None = None, *, gpus: int | None = None, published: bool = True, entry: EntryPoint | None = None
) -> AbstractContextManager[Record]:
    """A cluster on this host for as long as the `with` lasts: by default a rank per GPU where there are several, or
    else as many as it has cores, 4 to 8.

    `published`: it is the one that notebooks and commands of this user find; otherwise it is private.
    """
    counts = {"num_ranks": num_ranks, "gpus": gpus}
    kind = Local(**{name: value for name, value in counts.items() if value is not None})
    return hold(kind, published=published, entry=entry)
