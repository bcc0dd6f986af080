"""Checks what must be equal: Python's minor version and Dask on both sides, kernels and libraries among the ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Client
from distributed.versions import get_versions

from kernels.events import ExecutionFields
from kernels.hardware import WorkerDevice, different_versions, hardware_of, versions_print

Versions = Mapping[str, Any]
"""What `distributed.versions.get_versions` reports about one process."""

Place = Mapping[str, Any]
"""One rank's place in a grant, as the broker sends it."""

_DASK = ("dask", "distributed")
_NAMED_MOST = 4
SILENT_S = 1.5
"""Time of each worker for its versions, s: a client of a stopped one is to hear within 5 s for whom it waits."""


def cluster_versions(client: Client, within_s: float) -> tuple[Versions, dict[str, Versions]]:
    """Versions of the scheduler, and of each worker by name. Sends no code; workers that do not answer are left out."""

    async def everyone() -> tuple[Versions, dict[str, Versions]]:
        assert client.scheduler is not None
        scheduler = await client.scheduler.versions(packages=[])
        return scheduler, dict(await asyncio.gather(*map(of_worker, known)))

    async def of_worker(place: str) -> tuple[str, Any]:
        assert client.scheduler is not None
        question = client.scheduler.broadcast(
            msg={"op": "versions", "packages": []}, workers=[place], on_error="ignore"
        )
        try:
            return place, (await asyncio.wait_for(question, SILENT_S)).get(place)
        except TimeoutError:  # a stopped worker keeps neither the client waiting nor the others unread
            return place, None

    known = client.scheduler_info(n_workers=-1).get("workers", {})
    scheduler, workers = client.sync(everyone, callback_timeout=2 * within_s)
    names = {address: str(worker["name"]) for address, worker in known.items()}
    return scheduler, {
        names.get(place, place): versions for place, versions in workers.items() if isinstance(versions, Mapping)
    }


def incompatible_versions(address: str, scheduler: Versions, workers: Mapping[str, Versions]) -> str | None:
    """Why this process cannot talk with the cluster at *address*, or None: code is encoded by Python and Dask."""
    client_labels = _package_labels(get_versions())
    others = []
    for place, versions in {"the scheduler": scheduler, **workers}.items():
        if differing := [label for label in _package_labels(versions) if label not in client_labels]:
            others.append(f"{place} has {' and '.join(differing)}")
    if not others:
        return None
    return (
        f"The cluster at {address} cannot be used from here. Python's minor version and Dask must be those of this "
        f"process, which has {_joined(client_labels)}: {_first(others)}. "
        f"Accepted: {_joined(client_labels)} on both sides."
    )


def disagreement(
    places: Sequence[Place], facts: Mapping[str, Mapping[str, Any]], backend: str, source: str | None
) -> str | None:
    """Why the ranks at *places* must not be timed together, or None.

    *facts*: fingerprints and versions of each rank, by worker. *source*: fingerprint of the client's source for
    *backend*; None where it is enough that all ranks have the same.
    """
    if silent := [f"{place['name']}: {why}" for place in places if (why := facts[place["worker"]].get("trouble"))]:
        return (
            f"The ranks did not report what they would run: {', '.join(silent)}. Accepted: the same command again, or "
            "restarted ranks."
        )
    prints = [facts[place["worker"]]["source_prints"].get(backend, "none") for place in places]
    if set(prints) != {source or prints[0]}:
        labels = [f"{place['name']} on {place['host']}" for place in places]
        return _source_mismatch(source, backend, list(zip(labels, prints, strict=True)))
    versions = {f"{place['host']} ({place['name']})": facts[place["worker"]]["versions"] for place in places}
    if len({versions_print(each) for each in versions.values()}) > 1:
        return (
            f"The ranks of this gang have different libraries: {different_versions(versions)}. A time only counts "
            "when all ranks run the same torch, triton, numpy and numba. Accepted: one version of each on these "
            "hosts; this process may have others."
        )
    return None


def execution_fields(places: Sequence[Place], backend: str) -> ExecutionFields:
    """Fingerprints and hardware that a result records, for ranks at *places* that agree."""
    handshakes = [place["hello"] for place in places]
    devices = [WorkerDevice.from_json(handshake["device"]) for handshake in handshakes]
    hardware = hardware_of(backend, devices, [place["host"] for place in places])
    return {
        "source_print": handshakes[0]["source_prints"][backend],
        "versions_print": versions_print(handshakes[0]["versions"]),
        "hardware": None if hardware is None else hardware.to_json(),
    }


def _source_mismatch(source: str | None, backend: str, prints: Sequence[tuple[str, str]]) -> str:
    """Message about ranks with other kernels. *prints*: label and source fingerprint of each rank."""
    others = ", ".join(f"{label} has {fingerprint}" for label, fingerprint in prints if fingerprint != source)
    if source is None:
        return (
            f"The ranks of this gang have different kernels on their hosts: {others}. A time only counts when all "
            "ranks run the same source. Accepted: one version on these hosts, then the same command again."
        )
    return (
        f"This process has the kernels' source {source} for backend = {backend}, but on the disk of the ranks "
        f"{others}. A time only counts for the client's source, so no rank was restarted. Accepted: the same source on "
        "both sides. If it has changed since this process began, start this process again (a notebook: its kernel). If "
        "not, install this version on that host."
    )


def protocol_mismatch(address: str, theirs: int | None, ours: int) -> str | None:
    """Why this process cannot use the broker at *address*, or None. *theirs* is None for a broker without a number."""
    if theirs == ours:
        return None
    spoken = "an older protocol" if theirs is None else f"protocol {theirs}"
    return (
        f"The cluster at {address} was started by another version of the workbench: its broker speaks {spoken}, and "
        f"this process needs protocol {ours}. Accepted: restart the cluster with `workbench cluster down`, then "
        "`workbench cluster up`; or use the version that started it."
    )


def _package_labels(versions: Versions) -> list[str]:
    packages = versions["packages"]
    python = ".".join(str(packages["python"]).split(".")[:2])
    return [f"Python {python}", *(f"{name} {packages[name]}" for name in _DASK)]


def _joined(labels: Sequence[str]) -> str:
    return f"{', '.join(labels[:-1])} and {labels[-1]}"


def _first(others: Sequence[str]) -> str:
    return "; ".join(others[:_NAMED_MOST]) + ("; ..." if len(others) > _NAMED_MOST else "")
