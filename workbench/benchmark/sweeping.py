"""One client of the fairness benchmark: `python -m workbench.benchmark.sweeping '{"address": ..., "list_s": ...}'`.

It says its name when it has met its ranks, sweeps for as many seconds as it is told, says how many lists it got, and
stays connected until its standard input is closed: the broker forgets the granted seconds of who has left.
"""

from __future__ import annotations

import json
import sys
import time

from cluster.dispatch import Cluster
from kernels.protocol import Protocol
from kernels.trial import Trial
from workbench import machines
from workbench.benchmark.setting import DEADLINE_S, WORLD, small

ITERATION_S = 0.01


def main() -> None:
    """Connects, sweeps, reports."""
    order = json.loads(sys.argv[1])
    machine = machines.machine(machines.LAPTOP)
    repeats = max(1, round(order["list_s"] / ITERATION_S))
    trial = small(machine, Protocol(name="sweep", warmups=0, repeats=repeats), ITERATION_S)
    with Cluster.connect(order["address"]) as cluster:
        _ask(cluster, small(machine))
        print(cluster.client.id, flush=True)
        ends = time.monotonic() + float(sys.stdin.readline() or 0)
        _ask(cluster, trial)
        count = 1
        while time.monotonic() < ends:
            _ask(cluster, trial)
            count += 1
        print(count, flush=True)
        sys.stdin.read()


def _ask(cluster: Cluster, trial: Trial) -> None:
    for event in cluster.stream([trial], world=WORLD, shares_heap=True, deadline_s=DEADLINE_S):
        if event["kind"] == "failure":
            raise ValueError(event["message"])


if __name__ == "__main__":
    main()
