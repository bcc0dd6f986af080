"""What an older workbench left running: told in one sentence, never taken for nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster import agreement, broker, launch, scheduler_file
from cluster.client import Cluster
from cluster.launch.lifetime import refuse_second
from kernels.files import Failed

AGO_S = 7200.0


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
    assert agreement.other_protocol("tcp://a:1", broker.PROTOCOL, broker.PROTOCOL) is None
    for theirs, told in ((None, "it tells none, as older ones do"), (broker.PROTOCOL + 1, "it tells 3")):
        sentence = agreement.other_protocol("tcp://a:1", theirs, broker.PROTOCOL)
        assert sentence is not None
        assert told in sentence
        assert "Accepted: " in sentence


def test_a_client_that_meets_an_older_broker_is_refused_in_a_sentence(cluster: Cluster, address: str) -> None:
    def replaced(dask_scheduler: Any, is_old: bool) -> None:
        its = dask_scheduler.plugins[broker.NAME]
        older = {key: value for key, value in its.describe().items() if key != "protocol"}
        dask_scheduler.handlers["workbench_describe"] = (lambda: older) if is_old else its.describe

    cluster.client.run_on_scheduler(replaced, is_old=True)
    try:
        with pytest.raises(ValueError, match="was begun by another version of the workbench") as refused:
            Cluster.connect(address)
    finally:
        cluster.client.run_on_scheduler(replaced, is_old=False)
    assert "\n" not in str(refused.value)
    Cluster.connect(address).close()
