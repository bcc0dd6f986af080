"""Two hosts that share one GPU, by commands: what is run, what its rows say, and what is refused. Fake ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.hosts import versions
from cluster.seating import Ranks
from kernels import files
from kernels.fabric import TIMES_ARE_NOT
from kernels.hardware import Hardware
from kernels.machine import toml
from tests.gpu import gin, gin_through_dask
from tests.release.commands import Miss
from workbench import cli, machines

HostWithGpus = Callable[..., None]
ADDRESS = ("--cluster", "tcp://127.0.0.1:1")
"""Nobody listens there, and nobody is asked."""


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], connected_fake: None, fake_cluster: Any,
    host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., list[dict[str, Any]]]:  # fmt: skip
    """run(words) -> the rows of a cluster of two hosts that share one GPU."""
    host_with_gpus(1)
    on_hosts = Hardware(model="NVIDIA H200", link=gin_through_dask.LINK, memory_bytes=141 << 30)
    fake_cluster.gang = lambda world, backend: Ranks(versions(), on_hosts)
    monkeypatch.setattr("workbench.cli.sessions.placed", lambda request, address: request)
    monkeypatch.setattr("workbench.cli.ask.placed", lambda request, address: request)
    path = machines.calibrated_path(gin_through_dask.MACHINE)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, toml(gin_through_dask.machine()))

    def rows(*words: str) -> list[dict[str, Any]]:
        status = cli.status([*words, *ADDRESS, "--json", "--store", str(tmp_path / "store.sqlite")])
        out, err = capsys.readouterr()
        assert status == 0, err
        document = json.loads(out)
        return list(document.get("rows", [document]))

    return rows


@pytest.mark.parametrize("operator", list(gin.TRIALS))
def test_a_run_is_of_puts_between_hosts_and_says_that_they_share_a_gpu(
    operator: str, run: Callable[..., list[dict[str, Any]]], fake_cluster: Any
) -> None:
    question = gin_through_dask.question("triton", operator)
    (row,) = run("run", *question.words, "--protocol", "quick")
    gin_through_dask.require_between(row, "triton")
    assert row["sequential_s"], "a baseline stands in its block"
    assert set(fake_cluster.across) == {True}
    assert set(fake_cluster.shared) == {False}, "no rank maps another one's memory"
    with pytest.raises(Miss, match="was timed on network, not one GPU shared by 2 hosts"):
        gin_through_dask.require_between({**row, "hardware": {**row["hardware"], "link": "network"}}, "triton")
    with pytest.raises(Miss, match="does not say that its time is not real"):
        gin_through_dask.require_between({**row, "message": None}, "triton")
    with pytest.raises(Miss, match="is wrong"):
        gin_through_dask.require_between({**row, "correct": False}, "triton")


@pytest.mark.parametrize("operator", list(gin.TRIALS))
def test_a_sweep_of_it_has_no_baseline(
    operator: str, run: Callable[..., list[dict[str, Any]]], fake_cluster: Any, tmp_path: Path
) -> None:
    space = tmp_path / "space.toml"
    space.write_text(gin_through_dask.question("triton", operator).space("quick"))
    rows = [row for row in run("sweep", str(space)) if row["source"] == "measured"]
    assert [(row["scheme"], row["axes"]["transport"]) for row in rows] == [("fused", "gin")]
    assert TIMES_ARE_NOT in rows[0]["message"]
    assert [trial.schedule.scheme for trials in fake_cluster.lists for trial in trials] == ["fused"]


def test_the_sweep_in_which_a_worker_dies_has_several_schedules(
    run: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    axis, values = gin_through_dask.MANY["triton"]
    space = tmp_path / "space.toml"
    space.write_text(gin_through_dask.question("triton", gin_through_dask.FAULTED).space("quick", {axis: values}))
    rows = [row for row in run("sweep", str(space)) if row["source"] == "measured"]
    assert sorted(row["axes"][axis] for row in rows) == values
