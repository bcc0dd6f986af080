"""A cluster that somebody else keeps, found by this user's notebooks and commands for as long as a `with` lasts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from cluster import scheduler_file
from cluster.launch.attached import attach
from cluster.launch.held import refuse_second
from cluster.process import began
from cluster.rank import Entry
from cluster.scheduler_file import Record

KIND = "borrowed"


@contextlib.contextmanager
def borrow(address: str | Path, *, entry: Entry | None = None) -> Iterator[Record]:
    """The cluster at *address* as if it were this user's own; ValueError when it cannot be, or another one is."""
    refuse_second()
    target = scheduler_file.target_in(address)
    with attach(target, entry=entry) as cluster:
        num_ranks = len(cluster.describe()["workers"])
        at = cluster.address
    record = Record(
        address=at,
        dashboard="",
        kind=KIND,
        num_ranks=num_ranks,
        detached=False,
        pid=os.getpid(),
        began=began(),
    )
    scheduler_file.write(record, target.certificate)
    try:
        yield record
    finally:
        scheduler_file.remove(record)
