"""Whether a cluster's workers can ever seat a gang: the broker asks before it grants, the explorer before it offers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kernels.hardware import Execution, Hardware, WorkerDevice, hardware_of, source_print, versions_print


class Worker(Protocol):
    """What decides whether one rank of a gang may sit here."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def backend(self) -> str:
        """The fastest that it has; nothing until its rank process said hello once."""

    @property
    def trouble(self) -> str:
        """Why nobody counts on it for now, or nothing."""


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """A worker as the broker tells of it."""

    name: str
    host: str
    backend: str = ""
    trouble: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    """Of the libraries there, by name; empty until its rank process said hello."""
    device: WorkerDevice | None = None
    is_away: bool = False
    """It does not answer now, or left."""


Seat = TypeVar("Seat", bound=Worker)


@dataclass(frozen=True, slots=True)
class Ranks:
    """What a gang would run its trials with and on: asked before it is granted."""

    versions: Mapping[str, str]
    hardware: Hardware

    def ran(self, backend: str) -> Execution:
        """What would run a trial of *backend* there: ranks have the client's source, or refuse."""
        return Execution(source_print(backend), versions_print(self.versions), self.hardware)


def may(worker: Worker, backend: str) -> bool:
    """Whether *worker* can sit in a gang of *backend*, as far as it is known."""
    return backend == "cpu" or worker.backend in ("", backend)


def room(workers: Iterable[Seat], world: int, backend: str, shares_heap: bool, across: bool = False) -> list[Seat]:
    """The workers to choose a gang from: those of the fullest host that fits; all where hosts may be crossed."""
    able = [worker for worker in workers if may(worker, backend)]
    if across and world > 1:
        return able if len(able) >= world and len(by_host(able)) > 1 else []
    fits = [group for group in by_host(able).values() if len(group) >= world]
    if fits:
        return min(fits, key=lambda group: (len(group), group[0].host))
    return able if not shares_heap and len(able) >= world else []


def natural(worker: Worker) -> list[tuple[int, str]]:
    """Sorts rank10 after rank2."""
    parts = re.findall(r"\d+|\D+", f"{worker.host} {worker.name}")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def by_host(workers: Iterable[Seat]) -> dict[str, list[Seat]]:
    """*workers* by the name of their host."""
    groups: dict[str, list[Seat]] = {}
    for worker in workers:
        groups.setdefault(worker.host, []).append(worker)
    return groups


def turns(workers: Iterable[Seat]) -> dict[tuple[str, str], int]:
    """By host and name, how many of its host come before it: whoever is chosen by that takes hosts in turns."""
    hosts = by_host(sorted(workers, key=natural)).values()
    return {(worker.host, worker.name): turn for group in hosts for turn, worker in enumerate(group)}


@dataclass(frozen=True, slots=True)
class Workers:
    """Those of one cluster."""

    here: Sequence[Worker]
    away: Sequence[Worker] = ()
    """Those that left, and that a nanny may bring back, or that did not come back in time."""

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Workers:
        """What the broker describes."""
        return cls(_described(description["workers"]), _described(description.get("away", ())))

    def __len__(self) -> int:
        return len(self.here)

    def seats(self, backend: str) -> int:
        """Ranks of *backend* in the largest gang that there may be, whether or not it sits on one host."""
        return sum(may(worker, backend) for worker in self._known)

    @property
    def _known(self) -> list[Worker]:
        return [worker for worker in (*self.here, *self.away) if not worker.trouble]

    def well(self) -> Workers:
        """The same cluster, were none of its workers in trouble."""
        return Workers(tuple(WorkerDescription(one.name, one.host, one.backend) for one in (*self.here, *self.away)))

    def gang(self, world: int, backend: str, across: bool = False) -> list[Worker]:
        """Who would sit in a gang if nobody else wanted one; empty where none can be seated."""
        able = [worker for worker in self.here if not worker.trouble]
        seats = room(able, world, backend, shares_heap=False, across=across)
        first = turns(seats) if across else {}
        chosen = sorted(seats, key=lambda one: (
            first.get((one.host, one.name), 0), one.backend not in ("", backend), natural(one)
        ))[:world]  # fmt: skip
        return sorted(chosen, key=natural)

    def ranks(self, world: int, backend: str, across: bool = False) -> Ranks | None:
        """What such a gang would run on; None while one of its ranks said no hello, or where their versions differ."""
        gang = [worker for worker in self.gang(world, backend, across) if isinstance(worker, WorkerDescription)]
        devices = [worker.device for worker in gang if worker.device is not None]
        if not gang or len(devices) < world or len({worker.versions for worker in gang}) > 1:
            return None
        hardware = hardware_of(backend, devices, [worker.host for worker in gang])
        return Ranks(dict(gang[0].versions), hardware) if hardware else None

    def refusal(self, world: int, backend: str, shares_heap: bool, across: bool = False) -> str | None:
        """Why *world* ranks of *backend* cannot be seated, or None. *across*: not on one host alone."""
        sentence = self._refusal(world, backend, shares_heap, across)
        ill = [f"{worker.name}: {worker.trouble}" for worker in (*self.here, *self.away) if worker.trouble]
        if sentence is None or not ill or self.well().refusal(world, backend, shares_heap, across) is not None:
            return sentence
        limit = self._limit(backend, shares_heap)
        accepted = f"at most {limit}, or wait" if limit else "to wait"
        return (
            f"{_ranks(world)} {'are' if world > 1 else 'is'} too many now: {len(ill)} of the cluster's "
            f"{len(self.here) + len(self.away)} workers cannot keep a rank ({'; '.join(ill)}). Accepted until that is "
            f"mended: {accepted}."
        )

    def _limit(self, backend: str, shares_heap: bool) -> int:
        """The most ranks that can be seated."""
        hosts = [worker.host for worker in self._known if may(worker, backend)]
        return max((hosts.count(host) for host in hosts), default=0) if shares_heap else len(hosts)

    def _refusal(self, world: int, backend: str, shares_heap: bool, across: bool) -> str | None:
        known, limit = self._known, self._limit(backend, shares_heap)
        hosts = [worker.host for worker in known if may(worker, backend)]
        if across and world > 1 and len(set(hosts)) == 1:
            return (
                f"{world} ranks that the network links need several hosts, and the cluster's {len(hosts)} workers for "
                "them are on 1. Accepted: another fabric, or workers on several hosts."
            )
        if world <= limit:
            return None
        wanted, need = _ranks(world), "need a GPU each" if world > 1 else "needs a GPU"
        if len(hosts) < min(world, len(known)):
            fewer = f"at most {limit}, or " if limit else ""
            return (
                f"{wanted} on backend = {backend} {need}, but {len(hosts)} of the cluster's "
                f"{len(known)} workers have one. Accepted: {fewer}backend = cpu."
            )
        if shares_heap and limit < len(hosts):
            others = ", or a schedule whose collective or engine is the library" if backend == "cpu" else ""
            return (
                f"{wanted} that share memory are too many: no host has more than {limit} of the cluster's "
                f"{len(hosts)} workers. Accepted: at most {limit} on one host{others}."
            )
        return (
            f"{wanted} are too many: the cluster has {limit} workers. Accepted: at most {limit}, or start more workers."
        )


def _ranks(world: int) -> str:
    return f"{world} ranks" if world > 1 else "1 rank"


def _described(workers: Iterable[Mapping[str, Any]]) -> tuple[WorkerDescription, ...]:
    return tuple(
        WorkerDescription(
            worker["name"],
            worker["host"],
            worker.get("backend") or "",
            worker.get("trouble") or "",
            tuple(sorted((worker.get("versions") or {}).items())),
            WorkerDevice.from_json(worker["device"]) if worker.get("device") else None,
            bool(worker.get("away_s")),
        )
        for worker in workers
    )
