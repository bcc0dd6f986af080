"""The file with a cluster's address, for notebooks and commands of the same user on the same host.

It has the format of Dask's own scheduler files, and in addition a record of the process that keeps the cluster. It
lies in the user's state folder, where nobody else can replace it: whoever connects to a scheduler trusts it with
everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
from distributed.comm.addressing import get_address_host_port

from cluster.certificate import SCHEME, Certificate
from cluster.process import is_alive, is_alive_by_clock
from kernels import files
from kernels.files import Failed

KNOCK_S = 1.0
"""Seconds within which a host must accept a connection; otherwise it counts as gone."""
SCHEMES = ("tcp://", SCHEME)
"""Beginnings of the addresses of schedulers."""
_KIND = files.TextKind(
    "scheduler file",
    "a scheduler file",
    "a file that `dask scheduler --scheduler-file` wrote; starting the cluster again writes a new one",
)
_ACCEPTED = (
    "Accepted: the address of a running Dask scheduler, such as tcp://127.0.0.1:8786, or its scheduler file; "
    "`workbench lab` or `workbench cluster up` starts one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A running cluster and the process that keeps it: when that ends, the cluster ends."""

    address: str
    dashboard: str
    """Address of Dask's own page, on the scheduler's host."""
    kind: str
    num_ranks: int
    detached: bool
    """Whether it outlives the command that started it, until `workbench cluster down`."""
    pid: int
    began: str
    """When that process started (`cluster.process.process_start`)."""
    for_clients: str | None = None
    """File that clients need: it names the scheduler and holds its certificate. None where clients need none."""

    @property
    def alive(self) -> bool:
        """Whether its process lives; a later process of the same number does not count."""
        return is_alive(self.pid, self.began)


@dataclass(frozen=True, slots=True)
class SchedulerTarget:
    """A scheduler, and the certificate that its clients need."""

    address: str
    certificate: Certificate | None = None
    link: int | None = field(default=None, compare=False)
    """Number of the workshop's link by which this user came, so that the lecturer sees who holds ranks."""

    @property
    def encrypted(self) -> bool:
        return self.address.startswith(SCHEME)


def path() -> Path:
    """Path of this host's file: hosts may share a home folder, and loopback addresses mean nothing elsewhere."""
    return platformdirs.user_state_path("overlap-workbench") / f"scheduler-{socket.gethostname()}.json"


def refuse_place() -> None:
    """Failed where the record could not be written, before a cluster is started that nobody would find."""
    folder = path().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise Failed(
            f"The cluster cannot start: its address is kept in {folder}, which cannot be written "
            f"({files.reason(error)}). Accepted: a HOME, or XDG_STATE_HOME, whose folders you may write."
        ) from error


def write(record: Record, certificate: Certificate | None = None, link: int | None = None) -> None:
    """Write the record where `read` finds it; only this user can read the file. *link*: the one by which they came."""
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_target(file, SchedulerTarget(record.address, certificate, link), workbench=asdict(record))


def write_target(file: Path, target: SchedulerTarget, **more: Any) -> None:
    """Write a scheduler file in Dask's format, with the certificate in addition; OSError where that fails."""
    certificate = {"certificate": target.certificate.pem} if target.certificate else {}
    link = {} if target.link is None else {"link": target.link}
    content = {"type": "Scheduler", "address": target.address, **certificate, **link, **more}
    files.write(file, json.dumps(content, indent=1), mode=0o600)


def read() -> Record | None:
    """The last record, of a running or an ended cluster; Failed if it runs and an older workbench keeps it."""
    facts = _stored_facts()
    if isinstance(then_s := facts.get("began", facts.get("started_at")), float):
        if isinstance(pid := facts.get("pid"), int) and is_alive_by_clock(pid, then_s):
            raise Failed(
                f"A cluster runs at {facts.get('address')} that process {pid} of an older workbench keeps. Accepted: "
                f"end it with `kill {pid}`, then ask again."
            )
        return None
    return _record_of(facts)


def _stored_facts() -> dict[str, Any]:
    try:
        facts = files.json_value(path(), _KIND)["workbench"]
    except (ValueError, KeyError, TypeError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _record_of(facts: dict[str, Any]) -> Record | None:
    try:
        record = Record(**facts)
    except TypeError:
        return None
    kinds = {"address": str, "kind": str, "num_ranks": int, "pid": int, "began": str}
    return record if all(isinstance(getattr(record, name), kind) for name, kind in kinds.items()) else None


def remove(record: Record) -> None:
    """Remove the file, unless it now describes another cluster."""
    if _record_of(_stored_facts()) == record:
        with contextlib.suppress(FileNotFoundError):
            path().unlink()


def running() -> Record | None:
    """The cluster that notebooks and commands of this user find on this host."""
    record = read()
    if record is None or not record.alive:
        return None
    try:
        reach(SchedulerTarget(record.address), KNOCK_S)
    except TimeoutError:
        return record  # its keeper lives, so it is not gone: a second one must not start
    except OSError:
        return None
    return record


def reach(target: SchedulerTarget, within_s: float) -> None:
    """Connect once; OSError when nothing accepts. A busy scheduler counts: its operating system accepts."""
    socket.create_connection(get_address_host_port(target.address), timeout=within_s).close()


def knock(target: SchedulerTarget, within_s: float) -> None:
    """Connect once, with the TLS handshake where there is a certificate; Dask itself would try again and again.

    OSError when nothing accepts the connection; ssl.SSLError, a kind of it, when the certificate does not fit. A busy
    scheduler is late with its handshake.
    """
    with socket.create_connection(get_address_host_port(target.address), timeout=within_s) as connection:
        if target.certificate is not None:
            target.certificate.greet(connection)


def target_in(scheduler: str | Path | SchedulerTarget | None) -> SchedulerTarget:
    """The requested scheduler, by its address or its scheduler file; by default that of `workbench lab`.

    ValueError when there is no such file, when the process that left it is gone, or for another kind of address.
    """
    if isinstance(scheduler, SchedulerTarget):
        return scheduler
    if isinstance(scheduler, str) and "://" in scheduler:
        return target_at(_checked_address(scheduler))
    file = path() if scheduler is None else Path(scheduler)
    is_there = os.path.lexists(file)
    if not is_there and isinstance(scheduler, str) and re.fullmatch(r"[\w.\-\[\]:]+:\d+", scheduler):
        return SchedulerTarget(f"tcp://{scheduler}")
    if scheduler is None and (record := read()) is not None and not record.alive:
        raise Failed(
            f"The lab's cluster is gone: process {record.pid}, which kept it at {record.address}, has ended and "
            f"left {file} behind. {_ACCEPTED}"
        )
    if not is_there:
        name = "The lab's cluster" if scheduler is None else f"The scheduler {scheduler!s}"
        raise ValueError(f"{name} cannot be reached: there is no scheduler file {file}. {_ACCEPTED}")
    target = _in_file(file)
    _checked_address(target.address)
    return target


def exposure(scheduler: str) -> str | None:
    """A warning where *scheduler* is a file that others of this host may change, or read if it has a key; else None."""
    file = Path(scheduler)
    if "://" in scheduler or not file.is_file() or not (mode := file.stat().st_mode & 0o777) & 0o046:
        return None
    may, why = "change", "it says to which cluster your programs go, and with which key."
    if not mode & 0o002:
        if not _in_file(file).certificate:
            return None
        may, why = "read", "it holds the key of the cluster, and whoever has it may run programs there."
    return f"Other users of this host may {may} {file} (mode {mode:o}): {why} `chmod 600 {file}` keeps it to you."


def _in_file(file: Path) -> SchedulerTarget:
    content = files.json_value(file, _KIND)
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise _KIND.unreadable(file, "it names no address")
    certificate, link = content.get("certificate"), content.get("link")
    return SchedulerTarget(
        content["address"],
        None if certificate is None else Certificate(str(certificate)),
        link if type(link) is int else None,
    )


def target_at(address: str) -> SchedulerTarget:
    """The scheduler at *address*, with its certificate where this user's scheduler file has it."""
    with contextlib.suppress(ValueError):
        if (target := _in_file(path())).address == address:
            return target
    return SchedulerTarget(address)


def _checked_address(address: str) -> str:
    """*address*, if it has the form of a Dask scheduler's; else ValueError."""
    if address.startswith(SCHEMES):
        return address
    raise ValueError(
        f"The scheduler {address} is not an address: a Dask scheduler's begins with {' or '.join(SCHEMES)}. {_ACCEPTED}"
    )
