"""A local cluster on a host with GPUs: one worker for each, which sees no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import fake_bench
import pytest
from fake_bench import FakeTrial
from fake_cluster import measured

from cluster import hosts, launch
from cluster.client import Cluster

HostWithGpus = Callable[..., None]
Local = import_module("cluster.launch.local").Local


@pytest.mark.parametrize(("count", "stated", "num_ranks", "owned"), [
    (4, {}, 4, 4),
    (4, {"num_ranks": 2}, 2, 2),
    (4, {"gpus": 2}, 2, 2),
    (4, {"gpus": 0, "num_ranks": 6}, 6, 0),
    (1, {"num_ranks": 3}, 3, 0),
    (1, {"gpus": 1}, 1, 1),
    (0, {"num_ranks": 3}, 3, 0),
])  # fmt: skip
def test_each_rank_has_a_gpu_or_none_has(
    count: int, stated: dict[str, int], num_ranks: int, owned: int, host_with_gpus: HostWithGpus
) -> None:
    host_with_gpus(count)
    kind = Local(**stated)
    assert kind.refusal() is None
    options = [worker["options"] for worker in kind.workers().values()]
    assert [option["resources"] for option in options] == (
        [{"rank": 1, "GPU": 1}] * owned if owned else [{"rank": 1}] * num_ranks
    )
    sees = [option.get("env", {}).get(hosts.VISIBLE) for option in options]
    assert sees == ([f"GPU-{number}" for number in range(owned)] if owned else [("" if count else None)] * num_ranks)
    assert {option["nthreads"] for option in options} == {1}


def test_only_gpus_that_this_process_sees_are_given_away(
    host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with_gpus(8)
    monkeypatch.setenv(hosts.VISIBLE, "6,4")
    assert [worker["options"]["env"][hosts.VISIBLE] for worker in Local().workers().values()] == ["GPU-6", "GPU-4"]


def test_a_host_without_several_gpus_has_a_rank_per_core(
    host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("cluster.launch.local"), "usable_cores", lambda: 6)
    for count in (0, 1):
        host_with_gpus(count)
        assert (Local().num_ranks, Local().gpus) == (6, 0)
    host_with_gpus(4)
    assert Local(gpus=0).num_ranks == 6


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"num_ranks": 8},
            "num_ranks = 8 is too large. Every rank needs a GPU of its own, and there are 4. Accepted: 1 to 4, or",
        ),
        ({"gpus": 8}, "gpus = 8 does not fit: this host has 4 GPUs. Accepted: 0 to 4."),
        (
            {"gpus": 2, "num_ranks": 3},
            "num_ranks = 3 is too large. Every rank needs a GPU of its own, and there are 2.",
        ),
    ],
)
def test_more_ranks_than_gpus_are_refused(stated: dict[str, int], message: str, host_with_gpus: HostWithGpus) -> None:
    host_with_gpus(4)
    with pytest.raises(ValueError, match="Accepted") as raised:
        launch.up("local", **stated)
    assert str(raised.value).startswith(message)


def test_ranks_that_share_are_dealt_the_first_gpu_and_a_part_of_it_each(host_with_gpus: HostWithGpus) -> None:
    host_with_gpus(1)
    kind = Local(num_ranks=4, share_gpu=True)
    assert kind.refusal() is None
    options = [worker["options"] for worker in kind.workers().values()]
    assert [option["resources"] for option in options] == [{"rank": 1, "GPU": 1 / 4}] * 4
    assert [option["env"][hosts.VISIBLE] for option in options] == ["GPU-0"] * 4
    assert 2 <= Local(share_gpu=True).num_ranks <= 8


@pytest.mark.parametrize(
    ("count", "num_ranks", "message"),
    [
        (4, 2, ("num_ranks = 2 ranks share no GPU where each has one: this host has 4 GPUs, and 2 <= 4. Accepted: "
               "ranks with a GPU each, or more than 4 that share one.")),
        (1, 9, "num_ranks = 9 ranks cannot share a GPU: 2 to 8 ranks share one, and 9 > 8. Accepted: 2 to 8."),
        (1, 1, "num_ranks = 1 ranks cannot share a GPU: 2 to 8 ranks share one, and 1 < 2. Accepted: 2 to 8."),
        (0, 2, "num_ranks = 2 ranks cannot share a GPU: this host has 0. Accepted: a host with 1, or CPU ranks."),
    ],
)  # fmt: skip
def test_who_cannot_or_need_not_share_is_refused_with_both_numbers(
    count: int, num_ranks: int, message: str, host_with_gpus: HostWithGpus
) -> None:
    host_with_gpus(count)
    assert Local(num_ranks=num_ranks, share_gpu=True).refusal() == message


@pytest.fixture
def on_two_gpus(folder: Path, host_with_gpus: HostWithGpus, tmp_path: Path) -> Iterator[Cluster]:
    """Two workers with a GPU each, as far as the driver's files tell this process and theirs."""
    host_with_gpus(2)
    with launch.local(published=False, entry=fake_bench.ENTRY) as record, Cluster.connect(record.address) as cluster:
        assert len(measured(cluster, 2)) == 2
        yield cluster


def test_a_worker_sees_its_own_gpu_only_and_tells_what_it_can(on_two_gpus: Cluster) -> None:
    environments = on_two_gpus.client.run(_visible)
    assert sorted(environments.values()) == ["GPU-0", "GPU-1"]
    # the workers' own processes look for themselves, and find what is really here
    really = {worker["backend"] for worker in on_two_gpus.describe()["workers"]}
    assert really <= {"cpu", "triton"}
    resources = [dict(worker["resources"]) for worker in on_two_gpus.client.scheduler_info()["workers"].values()]
    assert resources == [{"rank": 1, "GPU": 1}] * 2
    if really == {"cpu"}:
        (failure,) = on_two_gpus.stream(
            [FakeTrial(key="a", backend="triton")], world=2, shares_heap=True, deadline_s=10.0
        )
        assert failure["stage"] == "refused"
        assert failure["message"] == (
            "2 ranks on backend = triton need a GPU each, but 0 of the cluster's 2 workers have one. "
            "Accepted: a machine of CPU ranks."
        )


def _visible() -> Any:
    return os.environ.get("CUDA_VISIBLE_DEVICES")
