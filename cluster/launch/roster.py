"""Who is in a cluster and what each worker does now, as rows: the broker's view joined with what the workers say."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from distributed import Client

from cluster import agreement, broker, hosts, keeper
from cluster.connection import open_client, workers_of
from kernels.hardware import WorkerDevice, versions_print

Row = dict[str, Any]

_TOLD = ("backend", "device", "source_prints", "versions_print")


def status(address: str | Path | None = None) -> list[Row]:
    """One row per worker of the cluster at this address or scheduler file, by default the lab's; ValueError if none.

    Keys: name, address, host, threads, state (idle, granted, starting, troubled; away: it does not answer, or left;
    foreign where the workbench was never connected), client (who holds it), trouble (of one that is away: since when),
    gpu (the one that its rank process sees, by name and UUID), backend,
    device (its model), source_prints (by backend), versions_print, rank_pid, rank_alive, and what `probe.here` has.
    """
    with open_client(address) as client:
        workers = workers_of(client)
        known, gone = _known(client)
        awake = [place for place in workers if not known.get(place, {}).get("away_s")]
        answers = hosts.ask(client, awake, _of_worker)
    rows = []
    for place, worker in workers.items():
        its = {"name": str(worker["name"]), "address": place, "host": worker["host"]}
        rows.append(answers.get(place, {}) | its | _state(known.get(place)))
    rows += [{key: worker[key] for key in ("name", "address", "host")} | _state(worker, "left at") for worker in gone]
    return sorted(rows, key=lambda row: row["name"])


def _known(client: Client) -> tuple[dict[str, Row], list[Row]]:
    """What the broker knows of each worker and who holds it, by address; and of those that left."""
    described = client.run_on_scheduler(_describe)
    address = str(client.scheduler.address) if client.scheduler else "an address"
    if (sentence := agreement.other_protocol(address, described.get("protocol"), broker.PROTOCOL)) is not None:
        raise ValueError(sentence)
    holders = {worker: holder for holder, _, workers in described["grants"] for worker in workers}
    here = {worker["address"]: worker | {"client": holders.get(worker["address"])} for worker in described["workers"]}
    return here, [worker | {"client": None} for worker in described["away"]]


def _describe(dask_scheduler: Any) -> dict[str, Any]:
    plugin = dask_scheduler.plugins.get(broker.NAME)
    return plugin.describe() if plugin else {"protocol": broker.PROTOCOL, "workers": [], "away": [], "grants": []}


def _state(known: Row | None, since: str = "no answer since") -> Row:
    if known is None:
        return {"state": "foreign", "client": None, "gpu": None, **dict.fromkeys(_TOLD)}
    calm = "idle" if known["ready"] else "starting"
    state = "troubled" if known["trouble"] else "granted" if known["busy"] else calm
    words = known["trouble"] or known["last_death"]
    if known["away_s"]:
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() - known["away_s"]))
        state, words = "away", f"{since} {clock}, {known['away_s']:.0f} s ago"
    trouble = {"trouble": words} if words else {}
    return {"state": state, "client": known["client"]} | _told(known) | trouble


def _told(known: Row) -> Row:
    """What the rank process said in its hello, and what its worker has."""
    device = WorkerDevice.from_json(known["device"]) if known["device"] else None
    prints = [known["source_prints"] or None, versions_print(known["versions"]) if known["versions"] else None]
    gpu = {"gpu": known["gpu"] and f"{known['gpu']['name']} {known['gpu']['uuid']}"}
    return gpu | dict(zip(_TOLD, [known["backend"] or None, device and device.model, *prints], strict=True))


def _of_worker(worker: Any) -> Row:
    """In the worker: its host, and whether its rank process lives."""
    plugin = worker.plugins.get(keeper.NAME)
    popen = plugin.process.popen if plugin and plugin.process else None
    rank = {"rank_pid": popen and popen.pid, "rank_alive": popen is not None and popen.poll() is None}
    return {"trouble": None, "threads": worker.state.nthreads} | rank | hosts.probe_here()
