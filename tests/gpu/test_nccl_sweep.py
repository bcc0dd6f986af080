"""The sweep of NCCL's settings without GPUs: rows of the slowest rank, settings that hang or fail, and the best."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.backends.triton.nccl import OF_RANKS
from tests.gpu import nccl_sweep
from tests.gpu.nccl_rank import ALWAYS
from tests.gpu.nccl_settings import DEFAULT, SETTINGS, Setting, best, calls_of, line, messages

SIZES = [("all_reduce", 8192), ("all_to_all", 4096)]
PLAIN = Setting(name=DEFAULT)


def told_row(rank: int, name: str, size: int) -> dict[str, Any]:
    return {"setting": DEFAULT, "rank": rank, "collective": name, "bytes": size, "median_us": 10.0 + rank,
            "captured": True}  # fmt: skip


def telling(setting: Setting, rank: int, world: int, sizes: list[tuple[str, int]], folder: str, told: Any) -> None:
    """Rank 1 is slower; NCCL speaks of windows."""
    for name, size in sizes:
        told.put(told_row(rank, name, size))
    told.put({"setting": setting.name, "rank": rank, "end": "", "log": ["AllReduce [Symmetric]: 8192 Bytes"]})


def hanging(setting: Setting, rank: int, world: int, sizes: list[tuple[str, int]], folder: str, told: Any) -> None:
    """Rank 1 comes to its end; then rank 0 tells a row, and never comes to its own."""
    over = Path(folder, "rank 1 is over")
    if rank == 0:
        while not over.exists():
            time.sleep(0.01)
        told.put(told_row(rank, *sizes[0]))
        time.sleep(60)
    telling(setting, rank, world, sizes, folder, told)
    told.close()
    told.join_thread()  # all is on its way before rank 0 goes on
    over.touch()


def failing(setting: Setting, rank: int, world: int, sizes: list[tuple[str, int]], folder: str, told: Any) -> None:
    """Rank 1 says why; rank 0 would wait for it."""
    if rank == 1:
        told.put({"setting": setting.name, "rank": rank, "end": "Traceback\nValueError: no such protocol", "log": []})
    else:
        time.sleep(60)


def dying(setting: Setting, rank: int, world: int, sizes: list[tuple[str, int]], folder: str, told: Any) -> None:
    os._exit(7)


@pytest.fixture(autouse=True)
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Still enough for children that have to import torch."""
    monkeypatch.setattr(nccl_sweep, "FIRST_S", 40.0)


@pytest.mark.slow
def test_a_row_is_the_slowest_rank_s() -> None:
    *rows, end = nccl_sweep.sweep([PLAIN], SIZES, 2, 60.0, telling)
    assert [(row["collective"], row["bytes"], row["median_us"], row["world"]) for row in rows] == [
        ("all_reduce", 8192, 11.0, 2), ("all_to_all", 4096, 11.0, 2),
    ]  # fmt: skip
    assert "dropped" not in end
    assert OF_RANKS.items() <= end["environment"].items(), "what NCCL was told beside the setting's own is written down"
    assert end["log"] == ["AllReduce [Symmetric]: 8192 Bytes"]


def test_a_setting_that_fails_is_dropped_at_once_with_its_reason() -> None:
    begin = time.monotonic()
    [end] = nccl_sweep.sweep([PLAIN], SIZES, 2, 60.0, failing)
    assert end["dropped"] == "rank 1: ValueError: no such protocol"
    assert time.monotonic() - begin < 40.0


def test_a_setting_that_hangs_is_dropped_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over as soon as all that ranks have to tell was told."""
    ahead = [0.0]
    monkeypatch.setattr(nccl_sweep, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))
    rows = nccl_sweep.sweep([PLAIN], SIZES, 2, 60.0, hanging)
    assert next(rows)["collective"] == "all_reduce", "what all had told is kept"
    ahead[0] = 100.0
    [end] = rows
    assert end["dropped"] == "1 of 2 ranks had not ended in time"


@pytest.mark.slow
def test_a_setting_whose_ranks_die_is_dropped_at_once() -> None:
    begin = time.monotonic()
    [end] = nccl_sweep.sweep([PLAIN], SIZES, 2, 60.0, dying)
    assert end["dropped"] == "2 of 2 ranks had not ended in time"
    assert time.monotonic() - begin < 40.0


def test_what_the_time_does_not_suffice_for_is_named() -> None:
    ends = list(nccl_sweep.sweep(SETTINGS, SIZES, 2, 1.0, telling))
    assert [end["setting"] for end in ends] == [setting.name for setting in SETTINGS]
    assert all("were left" in end["dropped"] for end in ends)


def test_the_best_setting_is_found_for_each_collective_and_size() -> None:
    rows = [
        {"setting": DEFAULT, "collective": "all_to_all", "bytes": 100, "median_us": 20.0},
        {"setting": "windows", "collective": "all_to_all", "bytes": 100, "median_us": 30.0},
        {"setting": "windows", "collective": "all_to_all", "bytes": 100, "median_us": 15.0},
        {"setting": "windows", "dropped": "late"},
        {"setting": DEFAULT, "collective": "all_reduce", "bytes": 100, "median_us": 20.0},
        {"setting": "protocol LL", "collective": "all_reduce", "bytes": 100, "median_us": 19.8},
        {"setting": "protocol LL", "collective": "all_gather", "bytes": 8, "median_us": 1.0},
    ]
    alone, reduced, sent = best(rows)
    assert (sent["best"], sent["best_us"], sent["default_us"], sent["gain"]) == ("windows", 15.0, 20.0, 0.25)
    assert (alone["default_us"], alone["gain"]) == (None, None)
    assert line(reduced).endswith("default suffices (protocol LL)")
    assert line(sent).endswith("windows")
    assert "none" in line(alone)


def test_every_setting_leaves_the_registration_of_graphs_off_as_ranks_do_and_none_stands_twice() -> None:
    told = [(ALWAYS | setting.environment, setting.windows) for setting in SETTINGS]
    assert all(OF_RANKS.items() <= environment.items() for environment, _ in told)
    assert OF_RANKS == {"NCCL_GRAPH_REGISTER": "0"}
    assert all(one not in told[:number] for number, one in enumerate(told))


@pytest.mark.parametrize("world", [2, 4, 8])
def test_messages_are_those_of_the_tables(world: int) -> None:
    found = messages(world)
    assert len(found) == len(set(found))
    assert {name for name, _ in found} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert ("all_reduce", 4096 * 2) in found  # GEMV of 4096 rows, one token, bfloat16
    assert ("all_to_all", 4096 * 16 * 128 * 4) in found  # 16 tables of 128 floats for 4096 samples
    assert ("all_gather", 8192 * 8192 * 2) in found  # 8192 tokens of Llama 3 70B
    assert all(size % (2 * world) == 0 for _, size in found)
    assert all(3 <= calls_of(size) <= 48 for _, size in found)
