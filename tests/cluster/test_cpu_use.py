"""Core use from injected counters: who else had cores, how much, and how often a quiet or a busy host is flagged."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cluster import cpu_use, hosts
from cluster.cpu_use import CoreReading, GangOnHost, HostUse, Parties, TimedUse, host_uses, others_cores
from workbench.results.quiet import BUSY_SHARE, is_busy

TICK_S = 0.01
"""The kernel counts in ticks of this length, s."""


def reading(at: float, idle_s: float, gang_s: float, stolen_s: float = 0.0) -> CoreReading:
    return CoreReading(at=at, clock_s=at, idle_s=idle_s, stolen_s=stolen_s, gang_s=gang_s)


def test_what_neither_idled_nor_worked_for_the_gang_is_others() -> None:
    assert others_cores(reading(0, 0, 0), reading(10, 4, 12), 2.0) == pytest.approx(0.4)
    assert others_cores(reading(0, 0, 0), reading(10, 10, 10), 2.0) == 0.0
    assert others_cores(reading(0, 0, 0), reading(0, 0, 0), 2.0) == 0.0


def test_under_a_quota_only_that_counts_which_the_quota_would_have_allowed() -> None:
    # 64 cores of a host, of which a container may use 2: others have 40, and still every core of the quota was there
    assert others_cores(reading(0, 0, 0), reading(10, 240, 0), 2.0) == 0.0
    assert others_cores(reading(0, 0, 0), reading(10, 5, 10), 2.0) == pytest.approx(0.5)
    # the same host, whose container has a make next to the gang: it takes of the quota, however idle the host is
    first, last = (
        replace(each, container_s=used_s) for each, used_s in ((reading(0, 0, 0), 50), (reading(10, 240, 5), 65))
    )
    assert others_cores(first, last, 2.0) == pytest.approx(1.0)


def test_what_a_container_used_is_read_where_it_has_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"/sys/fs/cgroup/cpu.max": "200000 100000", "/sys/fs/cgroup/cpu.stat": "usage_usec 2500000\nnr_periods 3\n",
             "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
             "/sys/fs/cgroup/cpuacct/cpuacct.usage": "3500000000"}  # fmt: skip

    def read(path: Any, *args: object, **more: object) -> str:
        if str(path) in known:
            return known[str(path)]
        raise OSError

    monkeypatch.setattr(hosts.Path, "read_text", read)
    assert hosts.container_seconds() == 2.5
    del known["/sys/fs/cgroup/cpu.max"], known["/sys/fs/cgroup/cpu.stat"]
    assert hosts.container_seconds() == 3.5, "cgroup v1"
    known["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "-1"
    assert hosts.container_seconds() is None, "without a quota the host's counters tell"


@pytest.mark.parametrize(("text", "cores"), [("max 100000", None), ("150000 100000", 1.5), ("nonsense", None)])
def test_the_quota_of_a_container_limits_the_cores(
    text: str, cores: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Any, *args: object, **more: object) -> str:
        if str(path) == "/sys/fs/cgroup/cpu.max":
            return text
        raise OSError

    monkeypatch.setattr(hosts.Path, "read_text", read)
    monkeypatch.setattr(hosts, "core_numbers", lambda: (0, 1, 2, 3))
    assert hosts.allowed_cores() == (4.0 if cores is None else cores)
    assert hosts.usable_cores() == (4 if cores is None else 1)
    assert hosts.worker_device(None).cores == ((0, 1, 2, 3) if cores is None else (0,)), "gangs share the quota"


@pytest.mark.parametrize(("version", "quota"), [
    ("0::/user.slice/lab.service\n", {"/sys/fs/cgroup/user.slice/cpu.max": "300000 100000",
                                      "/sys/fs/cgroup/user.slice/lab.service/cpu.max": "max 100000"}),
    ("4:cpu,cpuacct:/lab\n0::/lab\n", {"/sys/fs/cgroup/cpu/lab/cpu.cfs_quota_us": "300000\n",
                                       "/sys/fs/cgroup/cpu/lab/cpu.cfs_period_us": "100000\n",
                                       "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                                       "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}),
])  # fmt: skip
def test_the_quota_of_a_service_or_of_one_around_it_counts(
    version: str, quota: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Any, *args: object, **more: object) -> str:
        try:
            return {**quota, "/proc/self/cgroup": version}[str(path)]
        except KeyError as error:
            raise OSError from error

    monkeypatch.setattr(hosts.Path, "read_text", read)
    monkeypatch.setattr(hosts, "core_numbers", lambda: (0, 1, 2, 3))
    assert hosts.allowed_cores() == 3.0


def process(pid: int, parent: int, command: str, seconds: float) -> Any:
    info = {"ppid": parent, "cmdline": command.split(), "cpu_times": SimpleNamespace(user=seconds, system=0.0)}
    return SimpleNamespace(pid=pid, info=info)


def test_processes_are_named_by_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda attributes: [
        process(1, 0, "systemd", 1), process(10, 1, "python -m cluster.launch worker", 2),
        process(11, 10, 'python -m cluster.rank {"incarnation":"aaa"}', 3),
        process(20, 1, "python -m distributed.cli.dask_worker", 4),
        process(21, 20, 'python -m cluster.rank {"incarnation":"bbb"}', 5),
        process(30, 1, "jupyter-lab", 6), process(31, 30, "python -m ipykernel", 7), process(40, 1, "make -j8", 8),
        process(50, 1, "workbench lab", 9), process(51, 50, "python -c multiprocessing.spawn", 10),
        process(52, 51, 'python -m cluster.rank {"incarnation":"ccc"}', 11),
    ])  # fmt: skip
    monkeypatch.setattr(cpu_use.platform, "node", lambda: "here")
    seen = cpu_use.parties(GangOnHost(frozenset({"aaa", "ccc"}), ("here", 31)))
    assert {pid: party for pid, (party, _) in seen.seconds.items()} == {
        1: "other programs", 10: "this gang", 11: "this gang", 20: "another gang", 21: "another gang",
        30: "the lab's page", 31: "this gang", 40: "other programs",
        50: "this gang", 51: "this gang", 52: "this gang",
    }  # fmt: skip
    assert [each.pid for each in seen.gang] == [10, 11, 31, 50, 51, 52]


def test_others_are_shared_out_to_parties_and_the_rest_is_other_programs() -> None:
    before = Parties({1: ("another gang", 5.0), 2: ("this gang", 0.0), 3: ("the lab's page", 1.0)}, ())
    after = Parties({1: ("another gang", 10.0), 2: ("this gang", 9.0), 3: ("the lab's page", 1.1)}, ())
    whom = cpu_use.by_party(before, after, 10.0, others=1.0, stolen=0.2)
    assert whom == {"another gang": 0.5, "other programs": pytest.approx(0.29), "other virtual machines": 0.2}


def test_no_party_has_more_cores_than_the_others_together() -> None:
    before = Parties({1: ("another gang", 0.0), 3: ("the lab's page", 0.0)}, ())
    after = Parties({1: ("another gang", 1.0), 3: ("the lab's page", 3.0)}, ())
    whom = cpu_use.by_party(before, after, 1.0, others=1.8, stolen=0.0)
    assert whom == {"the lab's page": pytest.approx(1.35), "another gang": pytest.approx(0.45)}
    whom = cpu_use.by_party(before, after, 1.0, others=1.8, stolen=1.4)
    assert whom == {
        "other virtual machines": 1.4,
        "the lab's page": pytest.approx(0.3),
        "another gang": pytest.approx(0.1),
    }


class Host:
    """A host of two cores with counters in ticks, on which a gang of two ranks and others compete for time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, load: int, draw: random.Random) -> None:
        self.now, self._idle_s, self._gang_s, self._load, self._draw = 1e9, 0.0, 0.0, load, draw
        self.set_back_s = 0.0
        """How far the clock was set back."""
        monkeypatch.setattr(cpu_use, "allowed_cores", lambda: 2.0)
        monkeypatch.setattr(cpu_use, "parties", lambda gang: Parties({}, ()))
        monkeypatch.setattr(cpu_use, "core_reading", lambda gang: self.read())
        clocks = SimpleNamespace(
            time=lambda: self.now - self.set_back_s, monotonic=lambda: self.now, sleep=self.pass_time
        )
        monkeypatch.setattr(cpu_use, "time", clocks)

    def pass_time(self, seconds: float) -> None:
        """The ranks want both cores for most of the time; each of the others wants one core all the time."""
        wanted = 2 * seconds * self._draw.uniform(0.7, 0.98)
        background = seconds * self._draw.uniform(0.0, 0.08)  # heartbeats, the kernel, a shell
        gang = wanted * 2 / (2 + self._load) if self._load else wanted
        self.now += seconds
        self._gang_s += gang
        self._idle_s += max(0.0, 2 * seconds - wanted - background) if not self._load else 0.0

    def read(self) -> CoreReading:
        """Counters with the noise of ticks: one for each core, and one for each of five processes of the gang."""
        noise = [self._draw.uniform(-TICK_S, TICK_S) for _ in range(7)]
        counted = reading(self.now, self._idle_s + sum(noise[:2]), self._gang_s + sum(noise[2:]))
        return replace(counted, at=self.now - self.set_back_s)


def timed(host: Host, draw: random.Random) -> dict[str, Any]:
    """The fact of a result after a list of trials was timed on *host*."""
    use = TimedUse(GangOnHost(frozenset({"aaa"})))
    stage = {"kind": "stage", "trial": "k", "rank": 0}
    use.hear({**stage, "stage": "open"})  # type: ignore[typeddict-item]
    host.pass_time(draw.uniform(0.3, 2.0))
    use.hear({**stage, "stage": "time"})  # type: ignore[typeddict-item]
    for index in range(draw.randint(5, 60)):
        host.pass_time(draw.uniform(0.02, 0.2))
        use.hear({"kind": "sample", "trial": "k", "rank": 0, "index": index, "seconds": 0.1, "at": host.now})
    use.hear({**stage, "stage": "timeline"})  # type: ignore[typeddict-item]
    result: Any = {"kind": "result", "trial": "k", "rank": 0, "facts": {"iteration": 3}}
    use.hear(result)
    assert result["facts"]["iteration"] == 3
    return dict(result["facts"]["core_use"])


def flagged(monkeypatch: pytest.MonkeyPatch, load: int) -> int:
    """How many of 40 runs at *load* are flagged."""
    count = 0
    for seed in range(40):
        draw = random.Random(seed)
        use = timed(Host(monkeypatch, load, draw), draw)
        seconds = sum(stop - start for start, stop, _ in use["windows"])
        share = sum((stop - start) * others for start, stop, others in use["windows"]) / seconds / use["cores"]
        count += is_busy(share)
    return count


def test_a_quiet_lab_is_hardly_ever_flagged_and_a_busy_one_nearly_always(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flagged(monkeypatch, load=0) <= 2, "at most 5 % of 40"
    assert flagged(monkeypatch, load=8) >= 38, "at least 95 % of 40"


def test_windows_follow_each_other_and_short_ones_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    windows = timed(Host(monkeypatch, 0, draw), draw)["windows"]
    assert all(one[1] == two[0] for one, two in itertools.pairwise(windows))
    assert all(stop - start >= cpu_use.SHORTEST_S for start, stop, _ in windows)


def test_hosts_are_read_from_heartbeats_with_other_clients_gangs_named() -> None:
    [use] = host_uses([
        ("10.0.0.1", False, {"node": "h1", "cores": 4.0, "busy": 2.5, "own": 0.1}),
        ("10.0.0.1", True, {"node": "h1", "cores": 4.0, "busy": 2.4, "own": 1.0}),
    ])  # fmt: skip
    assert use == HostUse("h1", 4.0, pytest.approx(2.4), {"another gang": 1.0, "other programs": pytest.approx(1.4)})
    assert use.share > BUSY_SHARE
    assert host_uses([("h1", False, {})]) == ()


def test_the_reading_of_this_computer_is_possible() -> None:
    first = cpu_use.core_reading([psutil.Process()])
    sum(range(3_000_000))
    last = cpu_use.core_reading([psutil.Process()])
    assert last.gang_s >= first.gang_s
    assert 0.0 <= others_cores(first, last, hosts.allowed_cores()) <= hosts.allowed_cores()
    assert cpu_use.parties(GangOnHost(frozenset())).seconds


def test_a_busy_host_of_the_client_is_looked_at_so_that_page_and_client_are_no_other_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heartbeats say that 1.6 of 2 cores are busy. Half of that is the client itself, and most of the rest its page."""
    readings = iter([reading(0, 0, 0), reading(0.5, 0.2, 0.4)])
    scans = iter([Parties({1: ("the lab's page", 0.0), 2: ("this gang", 0.0)}, ()),
                  Parties({1: ("the lab's page", 0.3), 2: ("this gang", 0.4)}, ())])  # fmt: skip
    monkeypatch.setattr(cpu_use.platform, "node", lambda: "here")
    monkeypatch.setattr(cpu_use, "allowed_cores", lambda: 2.0)
    monkeypatch.setattr(cpu_use, "parties", lambda gang: next(scans))
    monkeypatch.setattr(cpu_use, "core_reading", lambda gang: next(readings))
    monkeypatch.setattr(cpu_use.time, "sleep", lambda seconds: None)
    gang = GangOnHost(frozenset(), ("here", 2))
    busy = HostUse("here", 2.0, 1.6, {"other programs": 1.6})
    named = cpu_use.looked_at(busy, gang)
    assert named == HostUse("here", 2.0, pytest.approx(0.8), {"the lab's page": 0.6, "other programs": 0.2})
    for unread in (HostUse("here", 2.0, 0.05), HostUse("elsewhere", 2.0, 1.6), HostUse("here", 4.0, 1.6)):
        assert cpu_use.looked_at(unread, gang) == unread, "quiet, another host, or other cores than the ranks have"


def tiny(host: Host, earlier: TimedUse | None) -> tuple[TimedUse, dict[str, Any]]:
    """A block that takes a tick of the kernel, and its fact."""
    use = TimedUse(GangOnHost(frozenset({"aaa"})), earlier)
    for stage in ("open", "time", "timeline"):
        use.hear({"kind": "stage", "trial": "k", "rank": 0, "stage": stage})  # type: ignore[typeddict-item,misc]
        host.pass_time(0.004)
    result: Any = {"kind": "result", "trial": "k", "rank": 0, "facts": {}}
    use.hear(result)
    return use, result["facts"]["core_use"]


def test_a_block_of_a_tick_is_judged_by_a_window_that_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    for load, least, most in ((0, 0, 2), (8, 38, 40)):
        count, lengths_s = 0, []
        for seed in range(40):
            draw, earlier = random.Random(seed), None
            host = Host(monkeypatch, load, draw)
            began = host.now
            for _ in range(20):
                earlier, use = tiny(host, earlier)
                (window,) = use["windows"]
                lengths_s.append(window[1] - window[0])
            assert host.now - began < 20 * 0.012 + cpu_use.SHORTEST_S + 0.2, "only the first block waits"
            count += is_busy(window[2] / use["cores"])
        assert min(lengths_s) >= cpu_use.SHORTEST_S
        assert least <= count <= most


def test_a_clock_that_is_set_back_makes_no_worker_wait_and_no_reading_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker slept for as long as the clock had been set back, since it waited until half a second was over."""
    for load, busy in ((0, False), (8, True)):
        host = Host(monkeypatch, load, random.Random(1))
        began, use = host.now, TimedUse(GangOnHost(frozenset({"aaa"})))
        stage = {"kind": "stage", "trial": "k", "rank": 0}
        use.hear({**stage, "stage": "open"})  # type: ignore[typeddict-item]
        host.pass_time(0.1)
        host.set_back_s = 3600.0
        for name in ("time", "timeline"):
            use.hear({**stage, "stage": name})  # type: ignore[typeddict-item]
        result: Any = {"kind": "result", "trial": "k", "rank": 0, "facts": {}}
        use.hear(result)
        assert host.now - began <= 2 * cpu_use.SHORTEST_S
        [(_, _, others)] = result["facts"]["core_use"]["windows"]
        assert is_busy(others / 2) is busy
