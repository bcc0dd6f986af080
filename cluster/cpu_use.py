"""Core use: how many of the cores that ranks may use others had, while the ranks were timed or waited."""

from __future__ import annotations

import platform
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psutil

from cluster.hosts import allowed_cores, container_seconds, core_numbers
from kernels.events import RankEvent

THIS_GANG, OTHER_GANG, PAGE = "this gang", "another gang", "the lab's page"
PROGRAMS, STOLEN = "other programs", "other virtual machines"
NAMED_LEAST = 0.05
"""Cores below which a party is not named."""
WINDOW_S = 1.0
"""Length of a window while trials are timed, s. The kernel counts in ticks of 10 ms, so that much less says little."""
SHORTEST_S = 0.5
"""A shorter window is joined with the one before it, starts at an earlier block, or ends later."""
RECENT_S = 1.0
"""An earlier block may begin a window until it is this old, s: before, another gang may have had the cores."""
_RANK_MODULE, _PAGE_PROGRAMS = "cluster.rank", ("jupyter", "ipykernel", "chrom", "firefox", "Safari")
_BY_NANNY = "multiprocessing"
"""In the command of a worker that a nanny started. The nanny's process is a lab's, which has the scheduler, too."""
_CLUSTER_PROGRAMS = (
    "cluster.launch",
    "distributed.cli",
    "dask-scheduler",
    "dask-worker",
    "dask scheduler",
    "dask worker",
)


@dataclass(frozen=True, slots=True)
class HostUse:
    """Use of one host's cores by others than a gang, its workers and its client."""

    host: str
    cores: float
    """Cores that the ranks may use: affinity, and the quota of a container."""
    others_cores: float
    """Mean number of these cores that others had."""
    whom: Mapping[str, float] = field(default_factory=dict)
    """Cores by party."""

    @property
    def share(self) -> float:
        """Share of the cores that others had."""
        return self.others_cores / self.cores


@dataclass(frozen=True, slots=True)
class GangOnHost:
    """The processes of one gang on this host."""

    incarnations: frozenset[str]
    """Names of its rank processes, which are in their command lines."""
    client: tuple[str, int] | None = None
    """Host name and process of the client."""


def client_process() -> list[Any]:
    """Host name and number of this process, for `GangOnHost.client`."""
    return [platform.node(), psutil.Process().pid]


# One reading: counters of the cores and of the gang's processes.


@dataclass(frozen=True, slots=True)
class CoreReading:
    """Counters at one moment, all in seconds."""

    at: float
    """Unix time, by which samples are found."""
    clock_s: float
    """A clock that nobody sets, by which lengths are measured."""
    idle_s: float
    """Idle time of all allowed cores together."""
    stolen_s: float
    gang_s: float
    container_s: float | None = None
    """CPU time of all processes of this container; None where no quota limits it."""


def core_reading(gang: Collection[psutil.Process]) -> CoreReading:
    """Counters of the cores that this process may use, and of the *gang*'s processes."""
    times = psutil.cpu_times(percpu=True)
    allowed = [times[number] for number in core_numbers() if number < len(times)] or times
    return CoreReading(
        at=time.time(),
        clock_s=time.monotonic(),
        idle_s=sum(each.idle + getattr(each, "iowait", 0.0) for each in allowed),
        stolen_s=sum(getattr(each, "steal", 0.0) for each in allowed),
        gang_s=sum(map(_process_seconds, gang)),
        container_s=container_seconds(),
    )


def _process_seconds(process: psutil.Process) -> float:
    """CPU seconds of *process* so far; 0 once it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def others_cores(first: CoreReading, last: CoreReading, cores: float) -> float:
    """Mean number of the *cores* that neither idled nor worked for the gang between two readings.

    With a quota below the host's cores only that counts which the quota would have allowed, and what others in the
    container took of the quota.
    """
    seconds = last.clock_s - first.clock_s
    if seconds <= 0:
        return 0.0
    had = (last.idle_s - first.idle_s + last.gang_s - first.gang_s) / seconds
    of_quota = 0.0
    if first.container_s is not None and last.container_s is not None:
        of_quota = (last.container_s - first.container_s - (last.gang_s - first.gang_s)) / seconds
    return min(cores, max(0.0, cores - had, of_quota))


def stolen_cores(first: CoreReading, last: CoreReading) -> float:
    """Mean number of cores that other virtual machines had between two readings."""
    seconds = last.clock_s - first.clock_s
    return (last.stolen_s - first.stolen_s) / seconds if seconds > 0 else 0.0


# Parties: whose process it is, by its command line and its parent.


@dataclass(frozen=True, slots=True)
class Parties:
    """CPU seconds of all processes of a host by party, and the gang's processes."""

    seconds: Mapping[int, tuple[str, float]]
    """Party and seconds by process."""
    gang: tuple[psutil.Process, ...]


def parties(gang: GangOnHost) -> Parties:
    """Reads all processes of this host once: a few tens of milliseconds, so off the clock."""
    infos = {process.pid: process for process in psutil.process_iter(["ppid", "cmdline", "cpu_times"])}
    commands = {pid: " ".join(process.info["cmdline"] or ()) for pid, process in infos.items()}
    client = gang.client[1] if gang.client and gang.client[0] == platform.node() else None
    party = {pid: _party(command) for pid, command in commands.items()}
    ranks = {pid: any(each in command for each in gang.incarnations)
             for pid, command in commands.items() if _RANK_MODULE in command}  # fmt: skip
    for owner, is_ours in ((OTHER_GANG, False), (THIS_GANG, True)):  # a parent of ranks of both is ours
        for pid in (pid for pid, ours in ranks.items() if ours is is_ours):
            worker = infos[pid].info["ppid"]
            nanny = infos[worker].info["ppid"] if _BY_NANNY in commands.get(worker, "") else None
            party |= {each: owner for each in (pid, worker, nanny) if each in party}
    if client in party:
        party[client] = THIS_GANG
    seconds = {}
    for pid, process in infos.items():
        times = process.info["cpu_times"]
        seconds[pid] = party[pid], float(times.user + times.system) if times else 0.0
    return Parties(seconds, tuple(infos[pid] for pid, name in party.items() if name == THIS_GANG))


def _party(command: str) -> str:
    if any(each in command for each in _CLUSTER_PROGRAMS):
        return THIS_GANG  # the scheduler, and workers without ranks: they carry samples and answers
    return PAGE if any(each in command for each in _PAGE_PROGRAMS) else PROGRAMS


def by_party(first: Parties, last: Parties, seconds: float, others: float, stolen: float) -> dict[str, float]:
    """The *others* cores by party, from two scans that are *seconds* apart.

    What no living process used is that of programs that ended, or of the kernel. Scans take a while themselves, so that
    parties may seem to have had more than the *others* together: no part is above its whole.
    """
    cores: dict[str, float] = {}
    for pid, (party, total_s) in last.seconds.items():
        before_s = first.seconds[pid][1] if pid in first.seconds else 0.0
        cores[party] = cores.get(party, 0.0) + max(0.0, total_s - before_s) / max(seconds, 1e-9)
    cores.pop(THIS_GANG, None)
    cores.pop(PROGRAMS, None)
    stolen = min(stolen, others)  # the cores' own counters say so, and scans do not know it
    named, most = sum(cores.values()), others - stolen
    if named > most:
        cores = {party: value * most / named for party, value in cores.items()}
    cores |= {STOLEN: stolen, PROGRAMS: max(0.0, most - named)}
    return {party: round(value, 3) for party, value in sorted(cores.items(), key=lambda item: -item[1])
            if value >= NAMED_LEAST}  # fmt: skip


def use_now(host: str, gang: GangOnHost, cores: float, seconds: float = SHORTEST_S) -> HostUse:
    """Who uses this *host*'s *cores* now, read for some *seconds*."""
    before = parties(gang)
    first = core_reading(before.gang)
    time.sleep(seconds)
    last = core_reading(before.gang)
    others = others_cores(first, last, cores)
    whom = by_party(before, parties(gang), last.at - first.at, others, stolen_cores(first, last))
    return HostUse(host, cores, others, whom)


# While trials are timed: the worker of one rank of each host reads, since nothing else may run in the rank process.


class TimedUse:
    """Windows of core use of one host while a gang times its trials; it hears the events of one rank.

    A block of tiny trials takes 10 ms, a tick of the kernel. Its window then starts where an earlier block of the same
    processes did, or ends `SHORTEST_S` after its start.
    """

    def __init__(self, gang: GangOnHost, earlier: TimedUse | None = None) -> None:
        self._gang, self._cores = gang, allowed_cores()
        self._starts: list[tuple[CoreReading, Parties]] = earlier._starts if earlier is not None else []
        self._readings: list[CoreReading] = []
        self._use: dict[str, Any] | None = None

    def hear(self, event: RankEvent) -> None:
        """Take *event* of the rank: it starts, cuts or ends a window; a result gets the windows as a fact."""
        match event["kind"]:
            case "stage" if event["stage"] == "open":
                self._open()
            case "stage" if event["stage"] == "time" and len(self._readings) == 1 and self._use is None:
                self._readings = [self._read()]
            case "sample" if self._readings and time.monotonic() - self._readings[-1].clock_s >= WINDOW_S:
                self._readings.append(self._read())
            case "stage" if event["stage"] == "timeline" and self._readings and self._use is None:
                self._use = self._ended()
            case "result" if self._use is not None:
                event["facts"] = {**event["facts"], "core_use": self._use}

    def _open(self) -> None:
        before = parties(self._gang)
        reading = core_reading(before.gang)
        same = [start for start in self._starts
                if start[1].gang == before.gang and reading.clock_s - start[0].clock_s < RECENT_S]  # fmt: skip
        self._starts, self._readings, self._use = [*same, (reading, before)], [reading], None

    def _read(self) -> CoreReading:
        return core_reading(self._starts[-1][1].gang)

    def _ended(self) -> dict[str, Any]:
        first, (opened, before), last = self._long_enough()
        readings = [first, *self._readings[1:]]
        if len(readings) > 1 and last.clock_s - readings[-1].clock_s < SHORTEST_S:
            readings.pop()
        readings.append(last)
        stolen = stolen_cores(first, last)
        others = others_cores(first, last, self._cores)
        windows = [[one.at, two.at, round(others_cores(one, two, self._cores), 3)]
                   for one, two in pairwise(readings)]  # fmt: skip
        whom = by_party(before, parties(self._gang), last.clock_s - opened.clock_s, others, stolen)
        return {"cores": self._cores, "windows": windows, "whom": whom}

    def _long_enough(self) -> tuple[CoreReading, tuple[CoreReading, Parties], CoreReading]:
        """Begin of windows that are `SHORTEST_S` long together or more, what was read when their block opened, end."""
        last, newest = self._read(), self._starts[-1]
        for first, start in [(self._readings[0], newest), *((start[0], start) for start in reversed(self._starts))]:
            if last.clock_s - first.clock_s >= SHORTEST_S:
                return first, start, last
        oldest = self._starts[0]
        time.sleep(SHORTEST_S - (last.clock_s - oldest[0].clock_s))
        return oldest[0], oldest, self._read()


# While nothing is timed: what a worker reports with its heartbeats.


class IdleUse:
    """Core use between two heartbeats of a worker, without the worker and its rank process."""

    def __init__(self) -> None:
        self._before: CoreReading | None = None
        self._report: dict[str, Any] = {}

    def report(self, worker_processes: Collection[psutil.Process]) -> dict[str, Any]:
        """Cores that may be used, those that were busy, and those of the worker itself, since a second ago or more.

        With the host's own name: Dask knows its address.
        """
        now = core_reading(worker_processes)
        if self._before is None or now.gang_s < self._before.gang_s:  # the first, or another rank process
            self._before = now
        elif (seconds := now.clock_s - self._before.clock_s) >= WINDOW_S:
            cores = allowed_cores()
            own_cores = (now.gang_s - self._before.gang_s) / seconds
            busy = others_cores(self._before, now, cores) + own_cores
            self._report = {"node": platform.node(), "cores": cores, "busy": round(busy, 3), "own": round(own_cores, 3)}
            self._before = now
        return self._report


LOOKED_AT_SHARE = 0.05
"""Share of the cores that others have from which on it is looked at who they are."""


def looked_at(use: HostUse, gang: GangOnHost) -> HostUse:
    """*use* as it is now, with the parties named, where others have much of this host's cores.

    Heartbeats do not know the client's own process, nor the page's: one that draws charts would count as others.
    """
    is_here = use.host == platform.node() and use.cores == allowed_cores()
    return use_now(use.host, gang, use.cores) if is_here and use.share > LOOKED_AT_SHARE else use


def host_uses(workers: Collection[tuple[str, bool, Mapping[str, Any]]]) -> tuple[HostUse, ...]:
    """The use of each host now, from (address, whether another client holds it, its newest report) of all workers."""
    uses = []
    for host in dict.fromkeys(host for host, *_ in workers):
        reports = [(held, report) for name, held, report in workers if name == host and report]
        if not reports:
            continue
        cores, busy = reports[0][1]["cores"], max(report["busy"] for _, report in reports)
        gangs = sum(report["own"] for held, report in reports if held)
        others = max(0.0, busy - sum(report["own"] for held, report in reports if not held))
        whom = {OTHER_GANG: gangs, PROGRAMS: max(0.0, others - gangs)}
        named = {name: value for name, value in whom.items() if value >= NAMED_LEAST}
        uses.append(HostUse(reports[0][1]["node"], cores, min(cores, others), named))
    return tuple(uses)
