"""Holds clusters for as long as a `with` lasts: started by us, or adopted from somebody else's Dask cluster."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from distributed.deploy.cluster import Cluster as DaskCluster

from cluster import agreement, hosts, scheduler_file
from cluster.broker import dask_settings
from cluster.certificate import Certificate
from cluster.client import Cluster
from cluster.connection import open_client, workers_of
from cluster.launch.contract import DISTRIBUTION, LOOPBACK, ClusterKind, refusal, version_mismatch
from cluster.process import process_start
from cluster.rank import EntryPoint
from cluster.scheduler_file import Record, SchedulerTarget, target_in, write_target
from kernels import files
from kernels.files import Failed

# The files of an encrypted cluster: one for its own processes and one for clients, readable by this user only.


@dataclass(frozen=True, slots=True)
class Secret:
    """A certificate and its file on this host."""

    certificate: Certificate
    pem: Path
    """PEM file for scheduler and workers."""

    @classmethod
    @contextlib.contextmanager
    def kept(cls, folder: Path, kind: ClusterKind, certificate: Certificate | None = None) -> Iterator[Secret | None]:
        """A certificate in *folder* for as long as the `with` lasts, by default a new one; None without encryption.

        A user has one cluster on a host, and so one pair of files.
        """
        if not kind.encrypted:
            yield None
            return
        secret = cls(certificate or Certificate.create(), pem_in(folder))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write(secret.pem, secret.certificate.pem, mode=0o600)
        except OSError as error:
            raise Failed(
                f"The cluster of kind {kind.name} did not start: its certificate cannot be kept in {folder} "
                f"({error.strerror or error}). Accepted: a folder that you may write."
            ) from error
        try:
            yield secret
        finally:
            for file in (secret.pem, secret._file):
                file.unlink(missing_ok=True)

    def for_clients(self, target: SchedulerTarget) -> Path:
        """Write the file that clients of *target* need, and return its path."""
        write_target(self._file, target)
        return self._file

    @property
    def _file(self) -> Path:
        return for_clients_in(self.pem.parent)


def pem_in(folder: Path) -> Path:
    """The PEM file in *folder* of this user's cluster on this host."""
    return folder / f"{socket.gethostname()}.pem"


def for_clients_in(folder: Path) -> Path:
    """The scheduler file in *folder* that clients of this user's cluster need."""
    return pem_in(folder).with_suffix(".json")


# A cluster of any kind for as long as a `with` lasts: start it, install the broker, publish its record, end it.


@contextlib.contextmanager
def hold(
    kind: ClusterKind,
    *,
    published: bool = True,
    detached: bool = False,
    entry: EntryPoint | None = None,
    folder: Path | None = None,
    certificate: Certificate | None = None,
) -> Iterator[Record]:
    """Start the cluster and end it afterwards; ValueError when it cannot be started or another one is published.

    `published`: notebooks and commands of this user find it. It ends with this process, however that ends. *folder*:
    where the certificate of an encrypted one is kept, by default the scheduler file's. *certificate*: that of a cluster
    which this one replaces, so that its clients come back.
    """
    if published:
        refuse_second()
        scheduler_file.refuse_place()
    if (message := kind.refusal()) is not None:
        raise ValueError(message)
    with (
        Secret.kept(folder or scheduler_file.path().parent, kind, certificate) as secret,
        dask.config.set(dask_settings()),
        _started(kind, secret) as cluster,
    ):
        target = SchedulerTarget(cluster.scheduler_address, secret.certificate if secret else None)
        Cluster.connect(target, entry=entry).close()  # installs the broker, which stays
        record = Record(
            address=target.address,
            dashboard=_on_loopback(cluster.dashboard_link or ""),
            kind=kind.name,
            num_ranks=kind.num_ranks,
            detached=detached,
            pid=os.getpid(),
            began=process_start(),
            for_clients=str(secret.for_clients(target)) if secret else None,
        )
        if published:
            refuse_second()  # another one may have been quicker
            scheduler_file.write(record, target.certificate)
        try:
            yield record
        finally:
            scheduler_file.remove(record)


def _started(kind: ClusterKind, secret: Secret | None) -> DaskCluster:
    try:
        return kind.start(secret.pem if secret else None)
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise Failed(f"The cluster of kind {kind.name} did not start: {why}") from error


def _on_loopback(link: str) -> str:
    """*link* to the scheduler's page, with the address of loopback, where it is served: Dask may name another one."""
    parts = urlsplit(link)
    return parts._replace(netloc=f"{LOOPBACK}:{parts.port}").geturl() if parts.port else link


def refuse_second() -> None:
    """Raise a ValueError when this user has a published cluster on this host already."""
    if (other := scheduler_file.running()) is not None:
        how = "with `workbench cluster down`" if other.detached else f"by ending the lab (process {other.pid})"
        raise ValueError(
            f"A second cluster does not start. One of kind {other.kind} with {other.num_ranks} ranks runs already "
            f"at {other.address}, and a user has 1 on a host. Accepted: use that one, or stop it first {how}."
        )


# A cluster that somebody else started, if its workers can keep ranks.


def attach(address: str | Path | SchedulerTarget, *, entry: EntryPoint | None = None) -> Cluster:
    """Connect to any scheduler and install broker and rank processes; ValueError when its workers cannot keep ranks."""
    target = target_in(address)
    with open_client(target) as client:
        workers = workers_of(client)
        message = refusal(target.address, workers)
        if message is None:
            answers = hosts.ask_workers(client, list(workers), _version_in, agreement.SILENT_S)
            message = version_mismatch(
                target.address, {str(workers[place]["name"]): answers[place] for place in workers}
            )
    if message is not None:
        raise ValueError(message)
    return Cluster.connect(target, entry=entry)


def _version_in(worker: Any) -> dict[str, str | None]:
    return {"version": hosts.package_version(DISTRIBUTION)}


# Such a cluster, published for this user's notebooks and commands for as long as a `with` lasts.

KIND = "borrowed"
LOOK_S = 2.0
"""Seconds between two looks at whether a borrowed cluster is still the published one."""


@contextlib.contextmanager
def borrow(address: str | Path, *, entry: EntryPoint | None = None) -> Iterator[Record]:
    """Publish the cluster at *address* as this user's; ValueError when it does not fit, or another one is published.

    One that `workbench cluster up` or a workshop of this user published here is theirs already, and stays as it is.
    While it does not answer the user may start another one here; when that has ended, this one is published again.
    """
    target = scheduler_file.target_in(address)
    published = scheduler_file.running()
    if published is not None and published.detached and _is_at(target):
        yield published
        return
    refuse_second()
    with attach(target, entry=entry) as cluster:
        num_ranks = len(cluster.describe()["workers"])
        reached_at = cluster.address
    record = Record(
        address=reached_at,
        dashboard="",
        kind=KIND,
        num_ranks=num_ranks,
        detached=False,
        pid=os.getpid(),
        began=process_start(),
    )
    scheduler_file.write(record, target.certificate, target.link)
    ended = threading.Event()
    keeper = threading.Thread(target=_republish, args=(record, target, ended), name="workbench borrowed", daemon=True)
    keeper.start()
    try:
        yield record
    finally:
        ended.set()
        keeper.join()
        scheduler_file.remove(record)


def _is_at(target: SchedulerTarget) -> bool:
    """Whether the published cluster is the one at *target*: a host has several names, a certificate is one's own."""
    published = scheduler_file.target_in(None)
    is_certified = published.certificate is not None and published.certificate == target.certificate
    return is_certified or published.address == target.address


def _republish(record: Record, target: SchedulerTarget, ended: threading.Event) -> None:
    """Write *record* again whenever no living cluster is published and *target* answers, until *ended* is set."""
    while not ended.wait(LOOK_S):
        with contextlib.suppress(Failed, OSError):
            other = scheduler_file.read()
            if other is None or not other.alive:
                scheduler_file.reach(target, scheduler_file.KNOCK_S)
                scheduler_file.write(record, target.certificate, target.link)
