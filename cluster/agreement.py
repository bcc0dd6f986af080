"""What must be the same on both sides: Python's minor version and Dask to talk at all, libraries among the ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Client
from distributed.versions import get_versions

from kernels.events import ExecutionFields
from kernels.hardware import WorkerDevice, different_versions, hardware_of, versions_print

Versions = Mapping[str, Any]
"""What `distributed.versions.get_versions` tells of one process."""

Place = Mapping[str, Any]
"""One rank's place in a grant, as the broker tells of it."""

_DASK = ("dask", "distributed")
_NAMED_MOST = 4


def asked(client: Client, within_s: float) -> tuple[Versions, dict[str, Versions]]:
    """What the scheduler and each worker, by name, run on; no code is sent for it. Who does not answer is left out."""

    async def everyone() -> tuple[Versions, dict[str, Versions]]:
        assert client.scheduler is not None
        scheduler = await client.scheduler.versions(packages=[])
        asking = client.scheduler.broadcast(msg={"op": "versions", "packages": []}, on_error="ignore")
        try:
            return scheduler, await asyncio.wait_for(asking, within_s)
        except TimeoutError:
            return scheduler, {}

    scheduler, workers = client.sync(everyone, callback_timeout=2 * within_s)
    known = client.scheduler_info(n_workers=-1).get("workers", {})
    names = {address: str(worker["name"]) for address, worker in known.items()}
    return scheduler, {
        names.get(place, place): versions for place, versions in workers.items() if isinstance(versions, Mapping)
    }


def stranger(address: str, scheduler: Versions, workers: Mapping[str, Versions]) -> str | None:
    """Why this process cannot talk with the cluster at *address*, or None: code is sent as this Python and Dask do."""
    ours = _stated(get_versions())
    others = []
    for place, versions in {"the scheduler": scheduler, **workers}.items():
        if differing := [words for words in _stated(versions) if words not in ours]:
            others.append(f"{place} has {' and '.join(differing)}")
    if not others:
        return None
    return (
        f"The cluster at {address} cannot be used from here. Python's minor version and Dask must be those of this "
        f"process, which has {_listed(ours)}: {_first(others)}. Accepted: {_listed(ours)} on both sides."
    )


def trouble(
    places: Sequence[Place], of: Mapping[str, Mapping[str, Any]], backend: str, source: str | None
) -> str | None:
    """Why the ranks at *places* are not to be timed together that have what *of* says, by worker; or None.

    *source*: print of the client's source for *backend*; None where it is enough that theirs is the same.
    """
    if silent := [f"{place['name']}: {why}" for place in places if (why := of[place["worker"]].get("trouble"))]:
        return f"What ranks would run could not be asked: {', '.join(silent)}. Ask again, or start them anew."
    prints = [of[place["worker"]]["source_prints"].get(backend, "none") for place in places]
    if set(prints) != {source or prints[0]}:
        labels = [f"{place['name']} on {place['host']}" for place in places]
        return _other_source(source, backend, list(zip(labels, prints, strict=True)))
    versions = {f"{place['host']} ({place['name']})": of[place["worker"]]["versions"] for place in places}
    if len({versions_print(each) for each in versions.values()}) > 1:
        return (
            f"The ranks of this gang have different libraries: {different_versions(versions)}. A time only counts "
            "when all ranks run the same torch, triton, numpy and numba. Accepted: one version of each on these "
            "hosts; this process may have others."
        )
    return None


def ran(places: Sequence[Place], backend: str) -> ExecutionFields:
    """What a result says of the ranks at *places* that agree: prints, and the hardware of this gang."""
    hellos = [place["hello"] for place in places]
    devices = [WorkerDevice.from_json(hello["device"]) for hello in hellos]
    hardware = hardware_of(backend, devices, [place["host"] for place in places])
    return {
        "source_print": hellos[0]["source_prints"][backend],
        "versions_print": versions_print(hellos[0]["versions"]),
        "hardware": None if hardware is None else hardware.to_json(),
    }


def _other_source(source: str | None, backend: str, prints: Sequence[tuple[str, str]]) -> str:
    """*prints*: each rank in words, and what it has."""
    others = ", ".join(f"{label} has {there}" for label, there in prints if there != source)
    if source is None:
        return (
            f"The ranks of this gang have different kernels on their hosts: {others}. A time only counts when all "
            "ranks run the same source. Install one version on these hosts and ask again."
        )
    return (
        f"This process has the kernels' source {source} for backend = {backend}, but on the disk of the ranks "
        f"{others}. A time only counts for the source that was asked with, so nothing was started anew. Accepted: the "
        "same source on both sides. If it has changed since this process began, start this process again (a notebook: "
        "its kernel); if not, install this version on that host."
    )


def other_protocol(address: str, theirs: int | None, ours: int) -> str | None:
    """Why this process does not understand the broker at *address*, or None; one that tells no number is older."""
    if theirs == ours:
        return None
    says = "none, as older ones do" if theirs is None else str(theirs)
    return (
        f"The cluster at {address} was begun by another version of the workbench. Its broker must speak protocol "
        f"{ours} as this process does, and it tells {says}. Accepted: the version that began it, or a cluster that is "
        "started anew: `workbench cluster down`, then `workbench cluster up`."
    )


def _stated(versions: Versions) -> list[str]:
    packages = versions["packages"]
    python = ".".join(str(packages["python"]).split(".")[:2])
    return [f"Python {python}", *(f"{name} {packages[name]}" for name in _DASK)]


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _first(others: Sequence[str]) -> str:
    return "; ".join(others[:_NAMED_MOST]) + ("; ..." if len(others) > _NAMED_MOST else "")
