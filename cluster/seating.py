"""Decides whether a cluster's workers can host a gang, for the broker's grants and for what the explorer offers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kernels.hardware import Execution, Hardware, WorkerDevice, hardware_of, source_print, versions_print


class Worker(Protocol):
    """What decides whether a worker can host one rank of a gang."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def backend(self) -> str:
        """Its fastest backend; empty until its rank process has sent its handshake."""

    @property
    def trouble(self) -> str:
        """Why it does not count for now, or empty."""


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """A worker as the broker describes it."""

    name: str
    host: str
    backend: str = ""
    trouble: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    """Versions of its libraries, by name; empty until its rank process has sent its handshake."""
    device: WorkerDevice | None = None
    is_away: bool = False
    """Whether it does not answer now, or has left."""


AnyWorker = TypeVar("AnyWorker", bound=Worker)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Libraries and hardware of a gang, known before it is granted."""

    versions: Mapping[str, str]
    hardware: Hardware

    def execution(self, backend: str) -> Execution:
        """What would run a trial of *backend* there; ranks have the client's source, or refuse."""
        return Execution(source_print(backend), versions_print(self.versions), self.hardware)


def can_serve(worker: Worker, backend: str) -> bool:
    """Whether *worker* can be in a gang of *backend*; assumed while its own backend is unknown."""
    return backend == "cpu" or worker.backend in ("", backend)


def candidates(
    workers: Iterable[AnyWorker], world: int, backend: str, shares_heap: bool, across: bool = False
) -> list[AnyWorker]:
    """Workers to choose a gang from: those of the host with the fewest that suffice; all, if a gang may cross hosts."""
    able = [worker for worker in workers if can_serve(worker, backend)]
    if across and world > 1:
        return able if len(able) >= world and len(by_host(able)) > 1 else []
    fits = [group for group in by_host(able).values() if len(group) >= world]
    if fits:
        return min(fits, key=lambda group: (len(group), group[0].host))
    return able if not shares_heap and len(able) >= world else []


def natural_order(worker: Worker) -> list[tuple[int, str]]:
    """Sort key that puts rank10 after rank2."""
    parts = re.findall(r"\d+|\D+", f"{worker.host} {worker.name}")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def by_host(workers: Iterable[AnyWorker]) -> dict[str, list[AnyWorker]]:
    """*workers* by the name of their host."""
    groups: dict[str, list[AnyWorker]] = {}
    for worker in workers:
        groups.setdefault(worker.host, []).append(worker)
    return groups


def host_turns(workers: Iterable[AnyWorker]) -> dict[tuple[str, str], int]:
    """Position of each worker on its host, by host and name; this order takes one worker of each host in turn."""
    hosts = by_host(sorted(workers, key=natural_order)).values()
    return {(worker.host, worker.name): turn for group in hosts for turn, worker in enumerate(group)}


@dataclass(frozen=True, slots=True)
class Workers:
    """All workers of one cluster."""

    here: Sequence[Worker]
    away: Sequence[Worker] = ()
    """Workers that left: a nanny may bring them back, or has not in time."""

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Workers:
        """The workers of the broker's description."""
        return cls(_described(description["workers"]), _described(description.get("away", ())))

    def __len__(self) -> int:
        return len(self.here)

    def seats(self, backend: str) -> int:
        """Ranks of *backend* in the largest possible gang, on one host or on several."""
        return sum(can_serve(worker, backend) for worker in self._known)

    @property
    def _known(self) -> list[Worker]:
        return [worker for worker in (*self.here, *self.away) if not worker.trouble]

    def recovered(self) -> Workers:
        """The same cluster as if none of its workers were in trouble."""
        workers = (*self.here, *self.away)
        return Workers(tuple(WorkerDescription(each.name, each.host, each.backend) for each in workers))

    def gang(self, world: int, backend: str, across: bool = False) -> list[Worker]:
        """The workers of a gang if no other client wanted one; empty where no gang is possible."""
        able = [worker for worker in self.here if not worker.trouble]
        to_choose_from = candidates(able, world, backend, shares_heap=False, across=across)
        first = host_turns(to_choose_from) if across else {}
        chosen = sorted(to_choose_from, key=lambda worker: (
            first.get((worker.host, worker.name), 0), worker.backend not in ("", backend), natural_order(worker)
        ))[:world]  # fmt: skip
        return sorted(chosen, key=natural_order)

    def ranks(self, world: int, backend: str, across: bool = False) -> Ranks | None:
        """What such a gang would run on; None while a rank has not reported yet, or where their versions differ."""
        gang = [worker for worker in self.gang(world, backend, across) if isinstance(worker, WorkerDescription)]
        devices = [worker.device for worker in gang if worker.device is not None]
        if not gang or len(devices) < world or len({worker.versions for worker in gang}) > 1:
            return None
        hardware = hardware_of(backend, devices, [worker.host for worker in gang])
        return Ranks(dict(gang[0].versions), hardware) if hardware else None

    def ranks_on_gpu(self, world: int, backend: str) -> int:
        """How many workers were dealt the same GPU as a worker of such a gang; 1 where each has one, or none does."""
        devices = [worker.device for worker in self.gang(world, backend) if isinstance(worker, WorkerDescription)]
        return max((device.ranks_on_gpu for device in devices if device is not None), default=1)

    @property
    def gpus(self) -> int:
        """The GPUs that workers have reported, each counted once."""
        devices = [worker.device for worker in self.here if isinstance(worker, WorkerDescription)]
        return len({device.uuid for device in devices if device is not None and device.kind == "gpu"})

    def refusal(self, world: int, backend: str, shares_heap: bool, across: bool = False) -> str | None:
        """Why a gang of *world* ranks of *backend* is impossible, or None. *across*: it needs several hosts."""
        message = self._refusal(world, backend, shares_heap, across)
        ill = [f"{worker.name}: {worker.trouble}" for worker in (*self.here, *self.away) if worker.trouble]
        if message is None or not ill or self.recovered().refusal(world, backend, shares_heap, across) is not None:
            return message
        limit = self._limit(backend, shares_heap)
        accepted = f"at most {limit}, or wait" if limit else "to wait"
        return (
            f"{_ranks(world)} {'are' if world > 1 else 'is'} too many now: {len(ill)} of the cluster's "
            f"{len(self.here) + len(self.away)} workers cannot keep a rank ({'; '.join(ill)}). Accepted until that is "
            f"mended: {accepted}."
        )

    def _limit(self, backend: str, shares_heap: bool) -> int:
        """Most ranks that a gang can have."""
        hosts = [worker.host for worker in self._known if can_serve(worker, backend)]
        return max((hosts.count(host) for host in hosts), default=0) if shares_heap else len(hosts)

    def _refusal(self, world: int, backend: str, shares_heap: bool, across: bool) -> str | None:
        known, limit = self._known, self._limit(backend, shares_heap)
        hosts = [worker.host for worker in known if can_serve(worker, backend)]
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
                f"{len(known)} workers have one. Accepted: {fewer}a machine of CPU ranks."
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
