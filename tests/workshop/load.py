"""Plays a class on a workshop of its own, and sums up what everybody had to wait for and got."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))  # rank processes import the fake bench by its name

import fake_bench

from cluster import launch
from cluster.client import Cluster
from cluster.launch.local import Local
from cluster.workshop import hosting
from cluster.workshop.hosting import Plan

TESTS = Path(__file__).parents[1]
HOST = "127.0.0.2"
"""Loopback, and yet encrypted as on a network."""
OTHER_HOST = "127.0.0.3"
READY_S = 240.0
"""All clients have joined within this time, s: each process imports Dask first."""
HEAD_START_S = 2.0
"""From the word to the moment of the first Run, s."""
FREED_MOST_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is played."""

    clients: int
    seconds: float
    ranks: int = 4
    trial_s: float = 0.5
    real: bool = False
    threads: bool = False


class TwoHosts(Local):
    """As many ranks on a second host, so that two gangs time at once: gangs do not share the cores of one host."""

    def workers(self, pem: Path | None = None) -> dict[str, dict[str, Any]]:
        specified = Local.workers(self, pem)
        for each in list(specified.values())[self.num_ranks // 2 :]:
            each["options"]["host"] = OTHER_HOST
        return specified


def played(load: Load) -> dict[str, Any]:
    """Figures of one class: waits in s, granted seconds, what was measured and shared; with the computer's load."""
    loads = [os.getloadavg()[0]]
    with _workshop(load) as (links, cluster):
        _ranks_are_ready(cluster, load.ranks)
        facts, granted, closed_s = _play(load, links, cluster, loads)
        state = cluster.client.run_on_scheduler(_state)
    seconds = [granted[each["client"]] for each in facts]
    firsts = sorted(each["first_s"] for each in facts)
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "cores": len(os.sched_getaffinity(0)), "load_average": [round(min(loads), 1), round(max(loads), 1)],
        **asdict(load),
        "first_point_s": {"median": round(median(firsts), 2), "worst": round(firsts[-1], 2)},
        "granted_s": {"least": round(min(seconds), 2), "most": round(max(seconds), 2),
                      "ratio": round(max(seconds) / min(seconds), 3)},
        "runs": sum(each["runs"] for each in facts), "failed_trials": sum(each["lost"] for each in facts),
        "saw_their_place": sum(bool(each["places"]) for each in facts),
        "longest_queue_seen": max((place for each in facts for place in each["places"]), default=0),
        "lists_measured": state["measured"], "lists_shared": state["shared"], "guesses": state["guesses"],
        "lesson_runs": sum(each["shared_runs"] for each in facts),
        "lesson_lists": max(each["shared_runs"] for each in facts),
        "longest_list_s": round(max(each["held_s"] for each in facts), 2), "closed_laptop_freed_s": closed_s,
    }  # fmt: skip


def _state(dask_scheduler: Any) -> dict[str, Any]:
    from cluster.workshop.classroom import NAME

    state = dask_scheduler.plugins[NAME].state()
    return {"measured": state["measured"], "shared": state["shared"], "guesses": len(state["guesses"])}


@contextlib.contextmanager
def _workshop(load: Load) -> Iterator[tuple[list[str], Cluster]]:
    """A workshop on a cluster of its own: its links, and a client that looks on."""
    before = {name: os.environ.get(name) for name in ("XDG_STATE_HOME", fake_bench.FOLDER, "PYTHONPATH")}
    with tempfile.TemporaryDirectory(prefix="workbench-load-") as folder:
        bench = Path(folder) / "bench"
        bench.mkdir()
        paths = os.pathsep.join([str(TESTS.parent), str(TESTS / "cluster")])
        os.environ |= {"XDG_STATE_HOME": folder, fake_bench.FOLDER: str(bench), "PYTHONPATH": paths}
        entry = None if load.real else fake_bench.ENTRY
        kind = (Local if load.real else TwoHosts)(num_ranks=load.ranks, host=HOST)
        try:
            with launch.hold(kind, published=False, entry=entry) as record:
                plan = Plan(students=load.clients, cluster=record.for_clients, port=0)
                opened, _ = hosting.open_workshop(plan, dict, Path(folder))
                with Cluster.connect(opened.target, entry=entry) as cluster:
                    yield opened.links, cluster
                hosting.close_workshop()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _ranks_are_ready(cluster: Cluster, count: int) -> None:
    give_up_at = time.monotonic() + READY_S
    while sum(worker["ready"] for worker in cluster.describe()["workers"]) < count:
        assert time.monotonic() < give_up_at, cluster.describe()
        time.sleep(0.1)


Played = tuple[list[dict[str, Any]], dict[str, float], float | None]


def _play(load: Load, links: Sequence[str], cluster: Cluster, loads: list[float]) -> Played:
    """Facts of all students, granted seconds by client, and how long a closed laptop kept its ranks, s."""
    size = load.clients if load.threads else 1
    groups = [range(first, min(first + size, load.clients)) for first in range(0, load.clients, size)]
    running = [_started(group, load) for group in groups]
    try:
        with ThreadPoolExecutor(len(groups)) as pool:
            for process, group in zip(running, groups, strict=True):
                _write(process, *(links[number] for number in group))
            clients = [each for ready in pool.map(_read, running) for each in ready["clients"]]
            at = time.time() + HEAD_START_S
            for process in running:
                _write(process, str(at))
            reports = [pool.submit(_read, process) for process in running]
            _watch_load(at + load.seconds, loads)
            granted = dict(cluster.describe()["granted_seconds"])
            facts = [each for report in reports for each in report.result(timeout=READY_S)["facts"]]
        assert [each["client"] for each in facts] == clients
        is_long = load.seconds >= 60 and not load.threads and not load.real
        return facts, granted, _closed_laptop_s(load, links[0], cluster) if is_long else None
    finally:
        for process in running:
            _end(process)


def _closed_laptop_s(load: Load, link: str, cluster: Cluster) -> float:
    """From stopping a client that holds a grant, and expects nothing of it, to the end of that grant."""
    process = _started(range(9999, 10000), replace(load, seconds=300.0, trial_s=200.0))
    try:
        _write(process, link)
        (client,) = _read(process)["clients"]
        _write(process, str(time.time()))
        give_up_at = time.monotonic() + FREED_MOST_S
        while client not in _holders(cluster):
            assert time.monotonic() < give_up_at, "it got no grant"
            time.sleep(0.05)
        time.sleep(2.0)
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        while client in _holders(cluster):
            assert time.monotonic() - began < FREED_MOST_S, "it kept its grant"
            time.sleep(0.1)
        return round(time.monotonic() - began, 1)
    finally:
        _end(process)


def _started(group: range, load: Load) -> subprocess.Popen[str]:
    """The students of *group* in a process of their own; those who come alone have it alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.workshop.student", f"{group.start}:{group.stop}", json.dumps(asdict(load))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TESTS.parent,
    )  # fmt: skip


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):  # what it was sent last was not read
            pipe.close()


def _holders(cluster: Cluster) -> set[str]:
    return {client for client, *_ in cluster.describe()["grants"]}


def _watch_load(until: float, loads: list[float]) -> None:
    ended = threading.Event()
    while time.time() < until:
        ended.wait(min(5.0, max(0.0, until - time.time())))
        loads.append(os.getloadavg()[0])


def _write(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdin is not None
    process.stdin.writelines(f"{line}\n" for line in lines)
    process.stdin.flush()


def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"a student ended with status {process.wait()}"
    return json.loads(line)
