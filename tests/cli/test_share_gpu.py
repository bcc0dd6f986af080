"""`--share-gpu`: what is timed on one GPU says so in every place, is compared with nothing, and is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster.hosts import local_ranks
from kernels.fabric import TIMES_ARE_NOT, parse
from workbench import cli
from workbench.cli import measuring
from workbench.results.store import Store
from workbench.simulator.predict import no_estimate

HostWithGpus = Callable[..., None]
SIZES = ("gemm_all_to_all", "--shape", "m=256", "--shape", "n=128", "--shape", "k=128", "--dtype", "bfloat16")
SHARED = (*SIZES, "--backend", "triton", "--world", "2", "--share-gpu")
ASKED = ("run", *SHARED, "--protocol", "quick")

Answer = tuple[int, str, str]


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], connected_fake: None, fake_cluster: Any,
    host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Answer]:  # fmt: skip
    """command(words...) -> status, stdout, stderr on a host with one GPU, whose ranks the fake cluster plays."""
    host_with_gpus(1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fake_cluster.gang = partial(local_ranks, share_gpu=True)
    fake_cluster.seconds = lambda trial: {"sequential": 3e-3}.get(trial.schedule.scheme, 1e-3)

    def run(*words: str) -> Answer:
        return cli.status([*words, "--store", str(tmp_path / "store.sqlite")]), *capsys.readouterr()

    return run


def test_every_row_says_so_and_the_one_cluster_is_asked_to_share(
    command: Callable[..., Answer], fake_cluster: Any, tmp_path: Path
) -> None:
    status, out, err = command(*ASKED, "--json")
    assert status == 0, err
    rows = json.loads(out)["rows"]
    assert {row["fabric"] for row in rows} == {"shared_gpu"}
    assert {row["message"] for row in rows} == {TIMES_ARE_NOT}
    assert {row["hardware"]["link"] for row in rows} == {"one GPU shared by 2 ranks"}
    assert {trial.fabric.kind for trials in fake_cluster.lists for trial in trials} == {"shared_gpu"}
    with Store(tmp_path / "store.sqlite") as store:
        stored = store.rows(None)
    assert "estimated" not in {row["source"] for row in stored}, "nothing is estimated beside them"
    lists = len(fake_cluster.lists)
    status, out, _ = command(*ASKED)
    assert status == 0
    assert len(fake_cluster.lists) == lists, "known for the same link and hardware"
    assert " ".join(out.split()).count(TIMES_ARE_NOT) == 1, out


def test_a_speed_up_of_three_is_not_certain(command: Callable[..., Answer], tmp_path: Path) -> None:
    command(*ASKED)
    path = tmp_path / "rows.csv"
    assert command("export", "last", "--to", "csv", "-o", str(path))[0] == 0
    text = path.read_text()
    assert "ranks share a GPU, so times are not real" in text
    assert "not certain" in text
    assert ",faster," not in text
    report = tmp_path / "run.md"
    assert command("report", "last", "-o", str(report))[0] == 0
    assert TIMES_ARE_NOT in report.read_text()


def test_times_of_a_shared_gpu_are_not_known_for_ranks_with_a_gpu_each(
    command: Callable[..., Answer], fake_cluster: Any, host_with_gpus: HostWithGpus
) -> None:
    command(*ASKED)
    before = len(fake_cluster.lists)
    host_with_gpus(2)
    fake_cluster.gang = local_ranks
    status, out, err = command("run", *SIZES, "--backend", "triton", "--world", "2", "--protocol", "quick", "--json")
    assert status == 0, err
    assert len(fake_cluster.lists) > before, "measured again"
    rows = json.loads(out)["rows"]
    assert {row["fabric"] for row in rows} == {"nvlink"}
    assert {row["compute_s"] for row in rows} == {1e-3, 3e-3} or {row["compute_s"] for row in rows} <= {1e-3, 3e-3}


@pytest.mark.parametrize(
    ("gpus", "words", "sentence"),
    [
        (2, ("run", *SHARED), "world = 2 ranks share no GPU where each has one: this host has 2 GPUs, and 2 <= 2."),
        (1, ("run", *SIZES, "--backend", "triton", "--world", "1", "--share-gpu"),
         "fabric = shared_gpu does not fit world = 1: 2 to 8 ranks share a GPU, and 1 < 2."),
        (1, ("run", *SHARED, "--fabric", "nvlink"), "--share-gpu states the fabric, and --fabric nvlink states it"),
        (1, ("run", *SIZES[:-2], "--world", "2", "--share-gpu"), "CPU ranks have 0 GPUs to share."),
        (1, ("run", *SHARED, "--scheme", "sequential", "--set", "collective=copy_engine"),
         "collective = copy_engine does not run where ranks share a GPU."),
        (1, ("run", *SIZES, "--backend", "triton", "--world", "2"),
         "Every rank needs a GPU of its own, and this host has 1. Accepted: world 1 to 1, --share-gpu for ranks"),
        (1, ("predict", *SHARED), "fabric = shared_gpu has no estimate. Its ranks take turns on 1 GPU"),
        (1, ("recommend", *SHARED), "fabric = shared_gpu has no estimate."),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_one_sentence(
    gpus: int, words: tuple[str, ...], sentence: str, command: Callable[..., Answer], host_with_gpus: HostWithGpus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    host_with_gpus(gpus)
    monkeypatch.setattr(measuring, "connected", lambda *_, **__: pytest.fail("a cluster was started for nothing"))
    status, _, err = command(*words)
    assert status == 2, err
    assert sentence in " ".join(err.split())


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("world", [4, 8])
def test_a_machine_of_one_gpu_runs_larger_worlds_than_it_connects(
    world: int, command: Callable[..., Answer], fake_cluster: Any
) -> None:
    words = (*SIZES, "--backend", "triton", "--world", str(world), "--share-gpu", "--protocol", "quick")
    status, out, err = command("run", *words, "--json")
    assert status == 0, err
    rows = json.loads(out)["rows"]
    assert {(row["machine"], row["world"], row["outcome"]) for row in rows} == {("h200_nvl2", world, "measurement")}
    assert {row["hardware"]["link"] for row in rows} == {f"one GPU shared by {world} ranks"}


def test_a_cluster_that_shares_is_started_for_a_command_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def local(num_ranks: int, **how: Any) -> Any:
        asked.append({"num_ranks": num_ranks, **how})
        raise InterruptedError

    monkeypatch.setattr("cluster.launch.local", local)
    monkeypatch.setattr("cluster.scheduler_file.running", lambda: None)
    with pytest.raises(InterruptedError), measuring.connected(None, 4, "triton", share_gpu=True):
        pass
    assert asked == [{"num_ranks": 4, "gpus": 0, "share_gpu": True, "published": False}]


def test_only_the_shared_link_has_no_estimate() -> None:
    assert [no_estimate(parse(kind)) for kind in ("nvlink", "network", "shared_memory", "emulated")] == [None] * 4
    assert "Accepted: a run, or another fabric." in str(no_estimate(parse("shared_gpu")))
