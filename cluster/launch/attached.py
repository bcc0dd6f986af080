"""Somebody else's Dask cluster becomes one of ours, if its workers can keep ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster import probe
from cluster.connection import open_client, workers_of
from cluster.dispatch import Cluster
from cluster.launch.contract import DISTRIBUTION, refusal, stranger
from cluster.rank import Entry
from cluster.scheduler_file import Target, target_in


def attach(address: str | Path | Target, *, entry: Entry | None = None) -> Cluster:
    """Connect to any scheduler and bring broker and rank processes along; ValueError when its workers cannot do it."""
    target = target_in(address)
    with open_client(target) as client:
        workers = workers_of(client)
        sentence = refusal(target.address, workers)
        if sentence is None:
            versions = probe.ask(client, list(workers), _version_in)
            sentence = stranger(target.address, {str(workers[place]["name"]): versions[place] for place in workers})
    if sentence is not None:
        raise ValueError(sentence)
    return Cluster.connect(target, entry=entry)


def _version_in(worker: Any) -> dict[str, str | None]:
    return {"version": probe.version(DISTRIBUTION)}
