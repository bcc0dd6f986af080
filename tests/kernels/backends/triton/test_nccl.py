"""`library_tuned` is the winner of the committed sweep, at every size and collective."""

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.backends.triton import nccl
from kernels.backends.triton.nccl import CHANNELS, DEFAULT, WINDOWS, WINNERS, winner
from kernels.backends.triton.schemes.sequential import setting_of
from kernels.operators import OPERATORS, problem
from tests.gpu.nccl_settings import message_bytes

SWEEP = Path(__file__).parents[4] / "data" / "probes" / "h200_nvl2_nccl.jsonl"
OURS = (DEFAULT, WINDOWS, *CHANNELS)
"""What groups of one process can have side by side."""
LEFT_OUT = 0.01
"""What a setting that is none of ours may gain at most over the best of ours."""
KNOWN_LEFT_OUT = {("all_reduce", 65536): 0.025, ("all_reduce", 131072): 0.055}
"""Where the protocol LL gains more: a variable of the whole process."""


@pytest.fixture(scope="module")
def times() -> dict[tuple[str, int], dict[str, float]]:
    """By collective and bytes, of each setting the time in graphs: as calls are timed."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for line in SWEEP.read_text().splitlines():
        row = json.loads(line)
        if row.get("captured"):
            found.setdefault((row["collective"], row["bytes"]), {})[row["setting"]] = row["median_us"]
    return found


def test_the_table_is_what_the_sweep_says(times: dict[tuple[str, int], dict[str, float]]) -> None:
    best: dict[str, dict[int, str]] = {}
    for (collective, size), by_setting in times.items():
        ours = {name: by_setting[name] for name in OURS if name in by_setting}
        best.setdefault(collective, {})[size] = min(ours, key=lambda name: ours[name])
    assert best == WINNERS


def test_what_a_process_cannot_have_beside_others_would_gain_next_to_nothing(
    times: dict[tuple[str, int], dict[str, float]],
) -> None:
    for (collective, size), by_setting in times.items():
        chosen = by_setting[winner(collective, size)]
        gain = KNOWN_LEFT_OUT.get((collective, size), LEFT_OUT)
        assert chosen <= min(by_setting.values()) * (1 + gain), (collective, size)


def test_between_two_sizes_the_nearer_one_decides() -> None:
    assert winner("all_gather", 33554432 * 3 // 2) == WINDOWS
    assert winner("all_gather", 134217728 * 3 // 4) == "32 channels"
    assert winner("all_reduce", 4096) == WINDOWS
    assert winner("all_gather", 1 << 28) == "32 channels"


def test_a_size_far_from_every_swept_one_has_what_both_sides_agree_on_or_the_default() -> None:
    assert winner("all_to_all", 1 << 17) == DEFAULT, "smaller than all"
    assert winner("reduce_scatter", 2097152 // 4) == DEFAULT
    assert winner("all_gather", 1 << 40) == DEFAULT, "larger than all"
    assert winner("all_reduce", 2) == DEFAULT


def test_sides_that_disagree_give_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WINNERS, "all_gather", {1024: WINDOWS, 65536: "32 channels"})
    assert winner("all_gather", 8192) == DEFAULT
    monkeypatch.setitem(WINNERS, "all_gather", {1024: WINDOWS, 65536: WINDOWS})
    assert winner("all_gather", 8192) == WINDOWS


@pytest.mark.parametrize(
    ("operator", "shape", "setting"),
    [
        ("all_gather_gemm", {"m": 8192, "n": 7168, "k": 8192}, "32 channels"),
        ("all_gather_gemm", {"m": 2048, "n": 7168, "k": 8192}, WINDOWS),
        ("gemm_reduce_scatter", {"m": 2048, "n": 8192, "k": 7168}, "32 channels"),
        ("gemm_all_to_all", {"m": 16384, "n": 4096, "k": 3584}, WINDOWS),
        ("gemv_all_reduce", {"n": 8192, "k": 8192, "tokens": 4}, WINDOWS),
    ],
)
def test_a_sequential_trial_asks_for_the_bytes_that_the_sweep_counts(
    operator: str, shape: dict[str, int], setting: str
) -> None:
    of = problem(operator, shape, dtype="bfloat16", world=2)
    assert setting_of(of) == setting == WINNERS[OPERATORS[operator].collective][message_bytes(of)]


def test_groups_with_more_channels_wait_as_long_as_the_main_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would give each 10 minutes."""
    limit, made = timedelta(seconds=61), []

    class Options:
        def __init__(self) -> None:
            self.config, self._timeout = SimpleNamespace(), timedelta(minutes=10)

    def new_group(*, backend: str, pg_options: Options, timeout: timedelta | None = None) -> int:
        made.append((timeout, pg_options._timeout, pg_options.config.max_ctas))
        return len(made)

    distributed: Any = SimpleNamespace(ProcessGroupNCCL=SimpleNamespace(Options=Options), new_group=new_group)
    monkeypatch.setattr(nccl, "torch", SimpleNamespace(distributed=distributed, device=torch.device))
    backend = SimpleNamespace(register_mem_pool=None, options=SimpleNamespace(_timeout=limit))
    nccl.TunedCollectives(SimpleNamespace(_get_backend=lambda device: backend), torch.device("cpu"))
    assert made == [(limit, limit, channels) for channels in CHANNELS.values()]
