"""The workers of a cluster and what each does now, as rows: the broker's view joined with the workers' answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from distributed import Client

from cluster import broker, hosts, keeper
from cluster.connection import holder_text, open_client, workers_of
from kernels.hardware import WorkerDevice, versions_print

Row = dict[str, Any]

_REPORTED_KEYS = ("backend", "device", "source_prints", "versions_print")


def status(address: str | Path | None = None) -> list[Row]:
    """One row per worker of the cluster at this address or scheduler file, by default the lab's; ValueError if none.

    Keys: name, address, host, threads, state (idle, granted, starting, troubled; away: it does not answer, or left;
    foreign where the workbench was never connected), client (its holder), holder (the same in words), trouble (of one
    that is away: since when), gpu (of its rank process, by name and UUID), backend, device (its model), source_prints
    (by backend), versions_print, rank_pid, rank_alive, and the keys of `cluster.hosts.host_facts`.
    """
    with open_client(address) as client:
        workers = workers_of(client)
        known, gone = _broker_view(client)
        awake = [place for place in workers if not known.get(place, {}).get("away_s")]
        answers = hosts.ask_workers(client, awake, _worker_facts)
    rows = []
    for place, worker in workers.items():
        identity = {"name": str(worker["name"]), "address": place, "host": worker["host"]}
        rows.append(answers.get(place, {}) | identity | _state(known.get(place)))
    rows += [{key: worker[key] for key in ("name", "address", "host")} | _state(worker, "left at") for worker in gone]
    return sorted(rows, key=lambda row: row["name"])


def _broker_view(client: Client) -> tuple[dict[str, Row], list[Row]]:
    """What the broker knows about each worker, with its holder, by address; and about those that left."""
    described = client.run_on_scheduler(_describe)
    holders = {worker: holder for holder, _, workers in described["grants"] for worker in workers}
    words = {holder: holder_text(holder, described.get("people")) for holder in holders.values()}
    here = {}
    for worker in described["workers"]:
        holder = holders.get(worker["address"])
        here[worker["address"]] = worker | {"client": holder, "holder": words.get(holder) if holder else None}
    return here, [worker | {"client": None, "holder": None} for worker in described["away"]]


def _describe(dask_scheduler: Any) -> dict[str, Any]:
    plugin = dask_scheduler.plugins.get(broker.NAME)
    people = [each.people for each in dask_scheduler.plugins.values() if hasattr(each, "people")]  # of a workshop
    described = plugin.describe() if plugin else {"workers": [], "away": [], "grants": []}
    return {**described, "people": dict(people[0]) if people else {}}


def _state(known: Row | None, since: str = "no answer since") -> Row:
    if known is None:
        return {"state": "foreign", "client": None, "holder": None, "gpu": None, **dict.fromkeys(_REPORTED_KEYS)}
    untroubled = "granted" if known["busy"] else "idle" if known["ready"] else "starting"
    state = "troubled" if known["trouble"] else untroubled
    reason = known["trouble"] or known["last_death"]
    if known["away_s"]:
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() - known["away_s"]))
        state, reason = "away", f"{since} {clock}, {known['away_s']:.0f} s ago"
    trouble = {"trouble": reason} if reason else {}
    return {"state": state, "client": known["client"], "holder": known["holder"]} | _reported(known) | trouble


def _reported(known: Row) -> Row:
    """What the rank process reported in its handshake, and the GPU of its worker."""
    device = WorkerDevice.from_json(known["device"]) if known["device"] else None
    fingerprints = [known["source_prints"] or None, versions_print(known["versions"]) if known["versions"] else None]
    gpu = {"gpu": known["gpu"] and f"{known['gpu']['name']} {known['gpu']['uuid']}"}
    return gpu | dict(
        zip(_REPORTED_KEYS, [known["backend"] or None, device and device.model, *fingerprints], strict=True)
    )


def _worker_facts(worker: Any) -> Row:
    """Facts about a worker's host, and whether its rank process lives; runs in the worker."""
    plugin = worker.plugins.get(keeper.NAME)
    popen = plugin.process.popen if plugin and plugin.process else None
    rank = {"rank_pid": popen and popen.pid, "rank_alive": popen is not None and popen.poll() is None}
    return {"trouble": None, "threads": worker.state.nthreads} | rank | hosts.host_facts()
