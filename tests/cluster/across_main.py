"""Two hosts, one rank each: starts their scheduler and workers, runs trials on both, and prints what happened as JSON.

Its argument: {"hosts": [{"address": ..., "enter": command that runs another one on that host}, ...], "trials": [...]}.
The scheduler and the client are on the first host, where this process runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import psutil
from distributed import Scheduler, SpecCluster

from cluster import keeper
from cluster.client import Cluster
from cluster.launch.contract import ARGUMENTS
from kernels.trial import Trial

READY_S = 150.0


def worker(scheduler: str, number: int, host: dict[str, Any]) -> subprocess.Popen[bytes]:
    own = ["--host", host["address"], "--name", f"host{number}-rank0", "--dashboard-address", f"{host['address']}:0"]
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        scheduler,
        *own,
        *ARGUMENTS,
        "--death-timeout",
        "20",
    ]
    return subprocess.Popen([*host["enter"], *command], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def ready(cluster: Cluster, num_ranks: int) -> None:
    give_up_at = time.monotonic() + READY_S
    while sum(worker["ready"] for worker in cluster.describe()["workers"]) < num_ranks:
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"no {num_ranks} ranks were ready within {READY_S:.0f} s: {cluster.describe()}")
        time.sleep(0.05)


def sockets(dask_worker: Any) -> dict[str, list[str]]:
    """The addresses that the worker's rank process listens on, and those it talks to; queried on its own host."""
    tcp = psutil.Process(dask_worker.plugins[keeper.NAME].process.popen.pid).net_connections("tcp")
    return {
        "listens": sorted({one.laddr.ip for one in tcp if one.status == psutil.CONN_LISTEN}),
        "talks_to": sorted({one.raddr.ip for one in tcp if one.status == psutil.CONN_ESTABLISHED}),
    }


def run(order: dict[str, Any], address: str) -> dict[str, Any]:
    trials = [Trial.from_json(trial) for trial in order["trials"]]
    with Cluster.connect(address) as cluster:
        ready(cluster, len(order["hosts"]))
        how: dict[str, Any] = {"world": len(order["hosts"]), "deadline_s": 15.0}
        return {
            "apart": list(cluster.stream(trials, shares_heap=False, **how)),
            "sockets": cluster.client.run(sockets),
            "together": list(cluster.stream(trials[:1], shares_heap=True, **how)),
            "workers": cluster.describe()["workers"],
        }


def main() -> None:
    order = json.loads(sys.argv[1])
    own = order["hosts"][0]["address"]
    head = {"cls": Scheduler, "options": {"host": own, "port": 0, "dashboard_address": f"{own}:0"}}
    with SpecCluster({}, head, silence_logs=40) as cluster:
        workers = [worker(cluster.scheduler_address, *numbered) for numbered in enumerate(order["hosts"])]
        try:
            print(json.dumps(run(order, cluster.scheduler_address)))
        finally:
            for process in workers:
                process.terminate()
            for process in workers:
                process.wait(timeout=60)


if __name__ == "__main__":
    main()
