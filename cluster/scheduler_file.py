"""Where a cluster leaves its address for the notebooks and commands of the same user on the same host.

A file in the format of Dask's own scheduler files, with a record beside it of the process that keeps the cluster. It
lies in the user's state folder, so nobody else can put another one in its place: whoever connects to a scheduler
trusts it with everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs
from distributed.comm.addressing import get_address_host_port

from cluster.certificate import SCHEME, Certificate
from cluster.process import is_alive, is_alive_by_clock
from kernels import files
from kernels.files import Failed

KNOCK_S = 1.0
"""A host that does not take a connection within this time counts as gone."""
SCHEMES = ("tcp://", SCHEME)
"""What the addresses of schedulers begin with."""
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
    """Dask's own page, as it is called on the host of the scheduler."""
    kind: str
    num_ranks: int
    detached: bool
    """Whether it outlives the command that started it, until `workbench cluster down`."""
    pid: int
    began: str
    """When that process started (`cluster.process.began`)."""

    for_clients: str | None = None
    """The file that clients need: it names the scheduler and holds its certificate. None: it asks for none."""

    @property
    def alive(self) -> bool:
        """Whether its process lives; a later process of the same number does not count."""
        return is_alive(self.pid, self.began)


@dataclass(frozen=True, slots=True)
class SchedulerTarget:
    """A scheduler, and the certificate that it wants to see."""

    address: str
    certificate: Certificate | None = None

    @property
    def encrypted(self) -> bool:
        return self.address.startswith(SCHEME)


def path() -> Path:
    """This host's file: a home folder may be shared by several, and loopback addresses mean nothing elsewhere."""
    return platformdirs.user_state_path("overlap-workbench") / f"scheduler-{socket.gethostname()}.json"


def write(record: Record, certificate: Certificate | None = None) -> None:
    """Leave the record where `read` finds it, for this user's eyes only."""
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_target(file, SchedulerTarget(record.address, certificate), workbench=asdict(record))


def write_target(file: Path, target: SchedulerTarget, **more: Any) -> None:
    """A scheduler file in Dask's format, with the certificate beside the address; OSError when it cannot be written."""
    shown = {"certificate": target.certificate.pem} if target.certificate else {}
    content = {"type": "Scheduler", "address": target.address, **shown, **more}
    files.write(file, json.dumps(content, indent=1), mode=0o600)


def read() -> Record | None:
    """What was left last, whether it still runs or not; Failed where it runs and an older workbench keeps it."""
    facts = _left()
    if isinstance(then_s := facts.get("began", facts.get("started_at")), float):
        if isinstance(pid := facts.get("pid"), int) and is_alive_by_clock(pid, then_s):
            raise Failed(
                f"A cluster runs at {facts.get('address')} that process {pid} of an older workbench keeps. Accepted: "
                f"end it with `kill {pid}`, then ask again."
            )
        return None
    return _record_of(facts)


def _left() -> dict[str, Any]:
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
    """Take the file away, unless it is about another cluster by now."""
    if _record_of(_left()) == record:
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
        return record  # its keeper lives, so it is not gone: a second one must not start beside it
    except OSError:
        return None
    return record


def reach(target: SchedulerTarget, within_s: float) -> None:
    """OSError when nobody takes a connection. The kernel takes it: a scheduler may be as busy as it likes."""
    socket.create_connection(get_address_host_port(target.address), timeout=within_s).close()


def knock(target: SchedulerTarget, within_s: float) -> None:
    """OSError when nobody takes a connection; Dask itself would try again and again.

    ssl.SSLError, which is one: somebody takes it, but not with this certificate. A busy scheduler greets late.
    """
    with socket.create_connection(get_address_host_port(target.address), timeout=within_s) as connection:
        if target.certificate is not None:
            target.certificate.greet(connection)


def target_in(scheduler: str | Path | SchedulerTarget | None) -> SchedulerTarget:
    """The scheduler asked for: its address in Dask's form, or read from the file that was named; None: the lab's.

    ValueError when there is no such file, when it was left by a process that is gone, or for another kind of address.
    """
    if isinstance(scheduler, SchedulerTarget):
        return scheduler
    if isinstance(scheduler, str) and "://" in scheduler:
        return own(_of_scheduler(scheduler))
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
        what = "The lab's cluster" if scheduler is None else f"The scheduler {scheduler!s}"
        raise ValueError(f"{what} cannot be reached: there is no scheduler file {file}. {_ACCEPTED}")
    target = _in_file(file)
    _of_scheduler(target.address)
    return target


def _in_file(file: Path) -> SchedulerTarget:
    content = files.json_value(file, _KIND)
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise _KIND.unreadable(file, "it names no address")
    certificate = content.get("certificate")
    return SchedulerTarget(content["address"], None if certificate is None else Certificate(str(certificate)))


def own(address: str) -> SchedulerTarget:
    """The scheduler at *address*, with its certificate where it is this user's own."""
    with contextlib.suppress(ValueError):
        if (target := _in_file(path())).address == address:
            return target
    return SchedulerTarget(address)


def _of_scheduler(address: str) -> str:
    """*address*, if Dask schedulers listen at such ones."""
    if address.startswith(SCHEMES):
        return address
    raise ValueError(
        f"The scheduler {address} is not an address: a Dask scheduler's begins with {' or '.join(SCHEMES)}. {_ACCEPTED}"
    )
