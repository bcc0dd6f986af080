"""What an older workbench left running is reported in one message, and never mistaken for nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import SchedulerPlugin

from cluster import agreement, broker, launch, scheduler_file
from cluster.client import Cluster
from cluster.launch.lifetime import refuse_second
from kernels.files import Failed

AGO_S = 7200.0
RESTART = "restart the cluster with `workbench cluster down`, then `workbench cluster up`"


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A record as older ones wrote it, kept by a process that began at *then_s* by the clock."""
    file = tmp_path / "scheduler.json"
    monkeypatch.setattr(scheduler_file, "path", lambda: file)

    def leave(then_s: float, name: str) -> Path:
        facts = {"address": "tcp://127.0.0.1:9", "dashboard": "", "kind": "local", "num_ranks": 1, "detached": True}
        content = {"type": "Scheduler", "address": facts["address"], "workbench": facts | {"pid": os.getpid()}}
        content["workbench"] |= {name: then_s}
        file.write_text(json.dumps(content))
        return file

    return leave


@pytest.mark.parametrize("name", ["began", "started_at"])
@pytest.mark.parametrize("asks", [launch.down, launch.running, refuse_second], ids=["down", "running", "up"])
def test_a_keeper_of_an_older_workbench_is_named_with_what_ends_it(
    asks: Callable[[], Any], name: str, left: Callable[..., Path]
) -> None:
    left(psutil.Process().create_time(), name)
    with pytest.raises(Failed, match=f"process {os.getpid()} of an older workbench keeps. Accepted: end it with `kill"):
        asks()


@pytest.mark.parametrize("name", ["began", "started_at"])
def test_one_that_has_ended_is_no_cluster(name: str, left: Callable[..., Path]) -> None:
    left(psutil.Process().create_time() - AGO_S, name)
    assert scheduler_file.read() is None
    assert launch.running() is None


def test_a_broker_of_another_protocol_is_told() -> None:
    assert agreement.protocol_mismatch("tcp://a:1", broker.PROTOCOL, broker.PROTOCOL) is None
    for theirs, spoken in ((None, "speaks an older protocol"), (broker.PROTOCOL - 1, "speaks protocol 2")):
        message = agreement.protocol_mismatch("tcp://a:1", theirs, broker.PROTOCOL)
        assert message is not None
        assert f"{spoken}, and this process needs protocol 3. Accepted: " in message
        assert RESTART in message


@pytest.fixture
def of_protocol(cluster: Cluster) -> Iterator[Callable[[int | None], None]]:
    """of_protocol(number): the cluster's broker reports that protocol, None: no number, as the oldest ones."""

    def report(dask_scheduler: Any, protocol: int | None) -> None:
        plugin = dask_scheduler.plugins[broker.NAME]
        vars(plugin).pop("describe", None)
        facts = {key: value for key, value in plugin.describe().items() if key != "protocol"}
        if protocol != broker.PROTOCOL:
            plugin.describe = lambda: facts if protocol is None else facts | {"protocol": protocol}

    yield lambda protocol: cluster.client.run_on_scheduler(report, protocol=protocol)
    cluster.client.run_on_scheduler(report, protocol=broker.PROTOCOL)


@pytest.mark.parametrize("protocol", [None, broker.PROTOCOL - 1])
@pytest.mark.parametrize("asks", [Cluster.connect, launch.attach, launch.status], ids=["connect", "attach", "status"])
def test_a_client_that_meets_an_older_broker_is_refused_in_a_sentence(
    asks: Callable[[str], Any],
    protocol: int | None,
    of_protocol: Callable[[int | None], None],
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And before the scheduler or a worker would load code that an older workbench does not have."""
    of_protocol(protocol)
    with monkeypatch.context() as patch:
        patch.setattr("cluster.client.dumps", lambda plugin: pytest.fail("code was sent"))
        patch.setattr("cluster.hosts.ask_workers", lambda *_: pytest.fail("code was sent"))
        with pytest.raises(ValueError, match="by another version of the workbench") as refused:
            asks(address)
    assert RESTART in str(refused.value)
    assert "\n" not in str(refused.value)
    of_protocol(broker.PROTOCOL)
    Cluster.connect(address).close()


class BrokerOfAnother(SchedulerPlugin):
    """A broker as another workbench sends it: its pickle names a class that the scheduler does not have."""

    def __reduce__(self) -> Any:
        return getattr, (broker, "BrokerOfAnotherWorkbench")


def test_a_client_whose_code_the_scheduler_does_not_have_is_refused_in_a_sentence(
    cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older client meets where a newer workbench runs: it knows no `of_protocol`, and sends its own classes."""
    monkeypatch.setattr(broker, "Broker", lambda entry: BrokerOfAnother())
    with pytest.raises(ValueError, match="cannot take the workbench's broker") as refused:
        Cluster.connect(address)
    assert str(refused.value).endswith("has the same Python, Dask and overlap-workbench as this one.")
    assert "\n" not in str(refused.value)
