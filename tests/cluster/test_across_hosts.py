"""A gang on two hosts with their own addresses: real trials over gloo, and no memory in common."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.rendezvous import LOOPBACK
from kernels.fabric import parse
from kernels.machine import load
from kernels.operators import problem
from kernels.schemes import needs_peer_memory, schedule
from kernels.trial import Protocol, Trial

ROOT = Path(__file__).parents[2]
MACHINE = load(ROOT / "data" / "machines" / "laptop_cpu.toml")
TWICE = Protocol(name="twice", warmups=1, repeats=2)

GEMM = {"m": 148, "n": 75, "k": 96}
SHAPES = {
    "gemm_all_to_all": GEMM,  # compute -> send
    "all_gather_gemm": GEMM,  # receive -> compute
    "gemm_all_reduce": GEMM,  # reduce -> broadcast
}
HOW: dict[str, dict[str, Any]] = {
    "sequential": {"collective": "library"},
    "decomposed": {"engine": "library", "pieces": 2},
}

Host = dict[str, Any]


def trial(operator: str, scheme: str) -> Trial:
    trial_problem, network = problem(operator, SHAPES[operator], world=2), parse("network")
    chosen = schedule(trial_problem, scheme, HOW[scheme], MACHINE, network)
    assert not needs_peer_memory(chosen)
    return Trial(
        problem=trial_problem, schedule=chosen, backend="cpu", machine=MACHINE.name, fabric=network, protocol=TWICE
    )  # fmt: skip


TRIALS = [trial(operator, scheme) for operator in SHAPES for scheme in HOW]


def command(*words: str) -> None:
    subprocess.run(words, check=True, timeout=60, capture_output=True)


@contextlib.contextmanager
def namespace() -> Iterator[int]:
    """A process in a network namespace of its own; the namespace goes with it."""
    # the shell says when it is inside, and ends with its standard input: also when this process is killed
    inside = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo inside; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert inside.stdout is not None
        assert inside.stdout.readline() == b"inside\n"
        yield inside.pid
    finally:
        inside.communicate(timeout=60)


@contextlib.contextmanager
def two_namespaces() -> Iterator[list[Host]]:
    """Two hosts with a cable between them, and nothing else."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        pytest.skip("network namespaces need root, iproute2 and util-linux")
    try:
        with namespace() as first, namespace() as second:
            inside = [["nsenter", f"--net=/proc/{pid}/ns/net"] for pid in (first, second)]
            command(*inside[0], "ip", "link", "add", "cable", "type", "veth", "peer", "cable", "netns", str(second))
            for number, enter in enumerate(inside, start=1):
                command(*enter, "ip", "address", "add", f"10.77.0.{number}/24", "dev", "cable")
                for device in ("lo", "cable"):
                    command(*enter, "ip", "link", "set", device, "up")
            yield [{"address": f"10.77.0.{number}", "enter": enter} for number, enter in enumerate(inside, start=1)]
    except (subprocess.CalledProcessError, AssertionError) as error:
        pytest.skip(f"this machine makes no network namespaces: {error}")


@contextlib.contextmanager
def two_addresses() -> Iterator[list[Host]]:
    """One host under two addresses, which the broker takes for two: where namespaces are not allowed."""
    if sys.platform != "linux":
        pytest.skip("only Linux answers on all of 127.0.0.0/8")
    yield [{"address": address, "enter": []} for address in ("127.0.0.1", "127.0.0.2")]


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    """Two namespaces, which see less of each other than two addresses do; those where namespaces are not allowed."""
    with contextlib.ExitStack() as ends:
        try:
            made = ends.enter_context(two_namespaces())
        except pytest.skip.Exception:
            made = ends.enter_context(two_addresses())
        yield made


@pytest.fixture(scope="module")
def seen(hosts: list[Host]) -> dict[str, Any]:
    """What happened on the two hosts."""
    order = json.dumps({"hosts": hosts, "trials": [trial.to_json() for trial in TRIALS]})
    script = [sys.executable, str(Path(__file__).parent / "across_main.py"), order]
    answer = subprocess.run(
        [*hosts[0]["enter"], *script], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: f"{trial.problem.operator}-{trial.schedule.scheme}")
def test_the_librarys_schedules_are_measured_across_hosts(seen: dict[str, Any], trial: Trial) -> None:
    events = [event for event in seen["apart"] if event.get("trial") == trial.key]
    assert [event for event in events if event["kind"] == "failure"] == []
    results = {event["rank"]: event["correct"] for event in events if event["kind"] == "result"}
    assert results == {0: True, 1: True}
    samples = [event["seconds"] for event in events if event["kind"] == "sample"]
    assert len(samples) == 2 * TWICE.repeats
    assert min(samples) > 0


def test_a_rank_listens_on_its_own_address_and_finds_its_peer_on_the_others(
    seen: dict[str, Any], hosts: list[Host]
) -> None:
    first, second = (host["address"] for host in hosts)
    by_host = {worker["host"]: seen["sockets"][worker["address"]] for worker in seen["workers"]}
    for host in (first, second):
        assert set(by_host[host]["listens"]) - {LOOPBACK} == {host} - {LOOPBACK}, "the meeting place is on loopback"
    assert first in by_host[second]["talks_to"], "the door to the meeting place and its peer are there"


def test_ranks_that_must_share_memory_are_not_spread_over_hosts(seen: dict[str, Any]) -> None:
    (event,) = seen["together"]
    assert (event["kind"], event["stage"]) == ("failure", "refused")
    assert "2 ranks that share memory are too many: no host has more than 1" in event["message"]
