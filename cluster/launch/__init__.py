"""Starts, finds, inspects and ends clusters; each kind is a thin layer over one of Dask's own launchers."""

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
    """A cluster on this host for as long as the `with` lasts.

    By default it has one rank per GPU where there are several; otherwise one per core, 4 to 8. `published`: notebooks
    and commands of this user find it; otherwise it is private.
    """
    counts = {"num_ranks": num_ranks, "gpus": gpus}
    kind = Local(**{name: value for name, value in counts.items() if value is not None})
    return hold(kind, published=published, entry=entry)
