"""A rank works on the first GPU that its process sees; without a broker a gang's processes take them in order."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels import backends
from kernels.backends.base import Seat
from kernels.backends.triton import backend, playground
from kernels.backends.triton.backend import TritonBackend

BACKENDS = Path(backends.__file__).parent


@pytest.mark.parametrize(
    ("shown", "seen"),
    [(None, ["0,1", "1,0"]), ("6,4,2", ["6,4", "4,6"]), ("GPU-b, GPU-a", ["GPU-b,GPU-a", "GPU-a,GPU-b"])],
)
def test_each_rank_sees_its_own_first(shown: str | None, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(playground.VISIBLE, shown or "")  # put back afterwards, whatever becomes of it
    if shown is None:
        monkeypatch.delenv(playground.VISIBLE)
    assert [playground.environment(rank, 2)[playground.VISIBLE] for rank in (0, 1)] == seen
    playground.take(1, 2)
    assert os.environ[playground.VISIBLE] == seen[1]


def test_a_seat_decides_no_device_though_the_process_sees_as_many_as_there_are_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="6f1a", name="NVIDIA H200")
    )
    monkeypatch.setattr(backend, "RankProcessGroup", lambda seat, device: taken.append(device))
    made = TritonBackend(Seat(rank=3, world=4, session="s", shares_heap=True, rendezvous=("127.0.0.1", 1)))
    assert [str(device) for device in taken] == ["cuda:0"] * 2
    assert made.device == "cuda:0"
    said = made.condition()
    assert (said["gpu"], said["gpu_name"]) == ("GPU-6f1a", "NVIDIA H200"), "a measurement keeps which GPU it is of"


def test_nowhere_in_the_backends_does_a_number_pick_a_gpu() -> None:
    named = re.compile(r"""(?:device\(["']cuda["']\s*,\s*|["']cuda:)([^)"']*)""")
    picked = {
        f"{path.relative_to(BACKENDS)}: {number}"
        for path in BACKENDS.rglob("*.py")
        for number in named.findall(path.read_text())
        if number != "0" and "nccl" not in number
    }
    assert picked == set()
