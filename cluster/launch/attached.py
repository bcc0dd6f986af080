"""Somebody else's Dask cluster becomes one of ours, if its workers can keep ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster import probe
from cluster.connection import open_client
from cluster.dispatch import Cluster
from cluster.launch.contract import DISTRIBUTION, refusal, stranger
from cluster.rank import Entry


def attach(address: str | Path, *, entry: Entry | None = None) -> Cluster:
    """Connect to any scheduler and bring broker and rank processes along; ValueError when its workers cannot do it."""
    with open_client(address) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        sentence = refusal(str(address), workers)
        if sentence is None:
            told = probe.ask(client, list(workers), _version_in)
            sentence = stranger(str(address), {str(workers[place]["name"]): told[place] for place in workers})
    if sentence is not None:
        raise ValueError(sentence)
    return Cluster.connect(address, entry=entry)


def _version_in(worker: Any) -> dict[str, str | None]:
    return {"version": probe.version(DISTRIBUTION)}
