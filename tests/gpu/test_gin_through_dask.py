"""The checks of puts between hosts through Dask: what they ask and start; what needs a GPU is not run here."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster import hosts
from cluster.launch.contract import ARGUMENTS
from kernels.backends.triton.gin import wheel
from tests.gpu import gin, gin_through_dask
from tests.release.commands import Commands

HostWithGpus = Callable[..., None]


@pytest.mark.parametrize("backend", [hosts.TRITON, hosts.CPU])
@pytest.mark.parametrize("operator", list(gin.TRIALS))
def test_a_space_asks_what_the_words_ask(backend: str, operator: str) -> None:
    one = gin_through_dask.question(backend, operator)
    space = tomllib.loads(one.space("quick"))
    words = dict(zip(one.words[1::2], one.words[2::2], strict=True))  # of a repeated option the last one
    for name in ("backend", "machine", "fabric", "dtype"):
        assert words[f"--{name}"] == space[name]
    assert space["parts"] == "none"
    assert space["scheme"] == {one.scheme: dict(one.axes)}
    assert space["shape"] == dict(one.shape)


def test_without_a_gpu_it_says_so(
    host_with_gpus: HostWithGpus, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "FOLDER", tmp_path / "nowhere")
    host_with_gpus(0)
    assert gin_through_dask.main([str(tmp_path / "out")]) == 2
    assert "needs a GPU, and this host has 0" in capsys.readouterr().err
    host_with_gpus(1)
    assert gin_through_dask.main([str(tmp_path / "out"), str(tmp_path)]) == 2
    assert f"needs NCCL {wheel.VERSION} next to torch's own" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_each_worker_has_an_address_half_a_gpu_and_the_stand_in(
    host_with_gpus: HostWithGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with_gpus(2)
    started: list[tuple[list[str], dict[str, str]]] = []

    def begin(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        started.append((command, env))
        if "--scheduler-file" in command:
            Path(command[command.index("--scheduler-file") + 1]).write_text(json.dumps({"address": "tcp://there"}))

    monkeypatch.setattr(gin_through_dask.subprocess, "Popen", begin)
    monkeypatch.setattr(gin_through_dask.Hosts, "ask", lambda *_, **__: pytest.fail("as far as this"))
    of = gin_through_dask.Hosts(Commands(tmp_path, 60.0), hosts.TRITON, place := gin.Place(tmp_path / "g", tmp_path))
    with pytest.raises(pytest.fail.Exception, match="as far as this"):
        of.up()
    (_, *workers) = started
    assert [command[command.index("--host") + 1] for command, _ in workers] == list(gin_through_dask.ADDRESSES)
    for command, variables in workers:
        assert command[3] == "tcp://there"
        assert {*ARGUMENTS} <= {*command}
        assert command[-1] == "rank=1 GPU=0.5", "the last one counts"
        assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-0", "one GPU for both, whatever there is"
        assert variables["LD_LIBRARY_PATH"].startswith(str(place.scratch))
        assert variables["XDG_STATE_HOME"] == str(tmp_path / "state"), "found again by it when they have to end"
    assert len({variables["TRITON_CACHE_DIR"] for _, variables in workers}) == 2


def test_the_wheel_is_where_ranks_look_only_while_it_lasts(
    host_with_gpus: HostWithGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with_gpus(1)
    monkeypatch.setattr(wheel, "FOLDER", where := tmp_path / "prefix" / "nccl")
    file = tmp_path / "machines" / "it.toml"
    monkeypatch.setattr(gin_through_dask.machines, "calibrated_path", lambda name: file)
    unpacked = tmp_path / "unpacked"
    with gin_through_dask.prepared(hosts.TRITON, unpacked):
        assert where.readlink() == unpacked
        assert 'link = "network"' in file.read_text()
    assert not where.is_symlink()
    assert not file.exists()
