"""Starts, finds, inspects and ends clusters; each kind is a thin layer over one of Dask's own launchers."""

from __future__ import annotations

from contextlib import AbstractContextManager

from cluster.hosts import visible_gpus
from cluster.launch.contract import ClusterKind
from cluster.launch.detached import down, up
from cluster.launch.kinds import KINDS, kind_of
from cluster.launch.lifetime import attach, borrow, hold
from cluster.launch.local import DEFAULT_NUM_RANKS, Local, default_num_gpus
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
    "shares_by_default",
    "status",
    "up",
]


def shares_by_default(num_ranks: int | None) -> bool:
    """Whether the ranks of a lab are all on this host's only GPU, so that its page can measure on it."""
    kind = Local(num_ranks=DEFAULT_NUM_RANKS if num_ranks is None else num_ranks, share_gpu=True)
    return len(visible_gpus()) == 1 and kind.refusal() is None


def local(
    num_ranks: int | None = None,
    *,
    gpus: int | None = None,
    share_gpu: bool = False,
    published: bool = True,
    entry: EntryPoint | None = None,
) -> AbstractContextManager[Record]:
    """A cluster on this host for as long as the `with` lasts.

    By default it has one rank per GPU where there are several; otherwise one per core, 4 to 8. *share_gpu*: all ranks
    are on the first GPU. `published`: notebooks and commands of this user find it; otherwise it is private.
    """
    kind = Local(
        num_ranks=DEFAULT_NUM_RANKS if num_ranks is None else num_ranks,
        gpus=default_num_gpus() if gpus is None else gpus,
        share_gpu=share_gpu,
    )
    return hold(kind, published=published, entry=entry)
