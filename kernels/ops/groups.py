"""The ranks of a process group that the caller made: who they are, and what they tell each other once."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from kernels.backends.base import Seat
from kernels.schedule import Refusal

_C10D: Any = torch.distributed.distributed_c10d  # its names are not typed

ALONE = ""
"""The group name of one rank by itself, whether or not torch.distributed was begun."""


def process_group(name: str) -> Any:
    """The group called *name*, None for `ALONE`; Refusal lists the names that this process knows."""
    if name == ALONE:
        return None
    try:
        return _C10D._resolve_process_group(name)
    except (RuntimeError, ValueError):
        known = sorted(map(str, _C10D._world.pg_names.values()))
        told = ", ".join(map(repr, known)) if known else "none, since torch.distributed has no process group yet"
        raise Refusal(
            f"group_name = {name!r} is not a process group of this rank. Accepted: the group_name of a "
            f"ProcessGroup that this rank is in ({told}), or '' for one rank alone."
        ) from None


def world_of(name: str) -> int:
    """Ranks in the group called *name*: all that a tracer has to know of it."""
    group = process_group(name)
    return 1 if group is None else int(group.size())


@dataclass(slots=True)
class Ranks:
    """One rank's view of its group. Beginning one is collective: all ranks call `begin` in the same call."""

    seat: Seat
    nccl: Any
    """The process group, whatever its backend; None: one rank alone."""

    @classmethod
    def begin(cls, group: Any, device: torch.device) -> Ranks:
        """*group*'s ranks, who told each other their hosts; Refusal where these are several."""
        if group is None or group.size() == 1:
            return cls(Seat(rank=0, world=1, session=f"ops_{_drawn()}", shares_heap=True), group)
        told = everyone(group, (_host(), _drawn()))
        if len(hosts := {host for host, _ in told}) > 1:
            raise Refusal(
                f"The operators do not run in a group of {group.size()} ranks on {len(hosts)} hosts. Ranks store "
                "into each other's memory, and hosts share 0 bytes of it. Accepted: a group of one host's ranks."
            )
        seat = Seat(rank=group.rank(), world=group.size(), session=f"ops_{told[0][1]}", shares_heap=True,
                    deadline_s=_timeout_s(group, device))  # fmt: skip
        return cls(seat, group)

    def everyone(self, value: Any) -> list[Any]:
        """Everybody's *value*, by rank."""
        return [value] if self.seat.world == 1 else everyone(self.nccl, value)

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank."""
        return self.everyone(list(values))

    def barrier(self) -> None:
        """All ranks meet on the host."""
        self.everyone(None)


def everyone(group: Any, value: Any) -> list[Any]:
    """The *value* of every rank of *group*, by rank."""
    found: list[Any] = [None] * group.size()
    dist: Any = torch.distributed
    dist.all_gather_object(found, value, group=group)
    return found


def _host() -> str:
    """Names this host: containers of one machine share a boot, but no memory."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def _drawn() -> str:
    """A name that nobody had before."""
    return uuid.uuid4().hex[:12]


def _timeout_s(group: Any, device: torch.device) -> float:
    """How long a wait may take: what the caller told torch.distributed for this group."""
    try:
        limit = group._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        limit = _C10D.default_pg_timeout
    return float(limit.total_seconds())
