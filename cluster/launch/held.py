"""A cluster of any kind, held for as long as a `with` lasts: started, given its broker, findable, ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import dask
from distributed.deploy.cluster import Cluster as DaskCluster

from cluster import scheduler_file
from cluster.broker import dask_settings
from cluster.dispatch import Cluster
from cluster.launch.contract import LOOPBACK, Kind
from cluster.launch.secret import Secret
from cluster.process import began
from cluster.rank import Entry
from cluster.scheduler_file import Record, Target
from kernels.failed import Failed


@contextlib.contextmanager
def hold(
    kind: Kind,
    *,
    published: bool = True,
    detached: bool = False,
    entry: Entry | None = None,
    folder: Path | None = None,
) -> Iterator[Record]:
    """Start the cluster and end it afterwards; ValueError when it cannot be started or another one is published.

    `published`: notebooks and commands of this user find it. It ends with this process, however that ends. *folder*:
    where the certificate of an encrypted one is kept, by default beside the scheduler file.
    """
    if published:
        refuse_second()
    if (sentence := kind.refusal()) is not None:
        raise ValueError(sentence)
    with (
        Secret.kept(folder or scheduler_file.path().parent, kind) as secret,
        dask.config.set(dask_settings()),
        _started(kind, secret) as cluster,
    ):
        target = Target(cluster.scheduler_address, secret.certificate if secret else None)
        Cluster.connect(target, entry=entry).close()  # leaves the broker there
        record = Record(
            address=target.address,
            dashboard=_nearby(cluster.dashboard_link or ""),
            kind=kind.name,
            num_ranks=kind.num_ranks,
            detached=detached,
            pid=os.getpid(),
            began=began(),
            for_clients=str(secret.for_clients(target)) if secret else None,
        )
        if published:
            refuse_second()  # another one may have been quicker
            scheduler_file.write(record, target.certificate)
        try:
            yield record
        finally:
            scheduler_file.remove(record)


def _started(kind: Kind, secret: Secret | None) -> DaskCluster:
    try:
        return kind.start(secret.pem if secret else None)
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise Failed(f"The cluster of kind {kind.name} did not start: {why}") from error


def _nearby(link: str) -> str:
    """Where the scheduler runs its page is on loopback, whatever address Dask makes of that."""
    parts = urlsplit(link)
    return parts._replace(netloc=f"{LOOPBACK}:{parts.port}").geturl() if parts.port else link


def refuse_second() -> None:
    """ValueError when this user has a published cluster on this host already."""
    if (other := scheduler_file.running()) is not None:
        how = "with `workbench cluster down`" if other.detached else f"by ending the lab (process {other.pid})"
        raise ValueError(
            f"A second cluster does not start. One of kind {other.kind} with {other.num_ranks} ranks runs already "
            f"at {other.address}, and a user has 1 on a host. Accepted: use that one, or stop it first {how}."
        )
