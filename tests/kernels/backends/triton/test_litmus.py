"""The litmus kernels that GPUs run a million rounds of: interpreted for a few, and compiled, each broken one found."""

import json
import os
import subprocess
import sys
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu.litmus import CERTAIN, VARIANTS, WARPS, Places, Size, Variant
from tests.kernels.backends.triton.compile_sm90 import RANK, UnbackedHeap, warmed_up
from tests.kernels.backends.triton.litmus_main import SHOWN, SMALL
from tests.kernels.backends.triton.ptx import Kernel, every_rule, order, scopes, widths
from tests.kernels.backends.triton.test_ptx import sizes_found

ROOT = Path(__file__).parents[4]
RIGHT = [each for each in VARIANTS if not each.breaks]
FOUND_BY = {
    "data and flag, no barrier": (order, "threads have stored and not met"),
    "data and flag, relaxed signal": (scopes, "a signal is a release"),
    "data and flag, no acquire": (scopes, "counters_at is polled and never read with acquire"),
    "counted in relaxed, another block signals": (order, "counted itself in relaxed, and signals for others"),
    "packets in two halves": (widths, "a packet is one st.global.wt of 8 bytes or more"),
    "bulk, no drain": (order, "bulk stores are only sent"),
}
"""The rule of the lint that rejects each broken variant, and how."""


@pytest.fixture(scope="module", params=[2, 4])
def told(request: pytest.FixtureRequest) -> list[dict[str, dict[str, Any]]]:
    """By rank and variant, what an interpreted gang found."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.backends.triton.litmus_main"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    session = uuid.uuid4().hex[:8]
    ranks = [
        subprocess.Popen([*command, str(rank), str(request.param), session], cwd=ROOT, env=environment, text=True,
                         stdout=subprocess.PIPE)
        for rank in range(request.param)
    ]  # fmt: skip
    lines = [rank.communicate(timeout=250)[0].splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * request.param
    return [{row["name"]: row for row in map(json.loads, mine)} for mine in lines]


@pytest.mark.slow(keeps=1)
def test_interpreted_ranks_break_no_round_and_stale_data_break_all(told: list[dict[str, dict[str, Any]]]) -> None:
    for mine in told:
        assert list(mine) == [each.name for each in SHOWN]
        assert all(row["failure"] is None and row["ended"] == SMALL.channels for row in mine.values()), mine
        assert [mine[each.name]["broken"] for each in RIGHT] == [0] * len(RIGHT)
        assert mine[CERTAIN]["broken"] == SMALL.rounds
        assert all(row["load_bytes"] > 0 for row in mine.values())


@cache
def compiled(variant: Variant) -> Kernel:
    """As a GPU's ranks launch it, at world 4."""
    places = Places(UnbackedHeap(), RANK, 4, Size(chain=1 << 12), torch.device("cpu"))
    options = places.constants(variant) | {"num_warps": WARPS, "launch_cooperative_grid": True}
    made = warmed_up(variant.kernel, places.arguments(variant), options)
    return Kernel(made.ptx, made.arguments)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("variant", RIGHT, ids=lambda each: each.name)
def test_right_variants_break_no_rule_of_memory_order(variant: Variant) -> None:
    assert every_rule(compiled(variant)) == []
    assert bool(sizes_found(compiled(variant))) == (variant.name != "packets"), "packets are compared by equality"


@pytest.mark.parametrize("name", FOUND_BY)
def test_the_lint_rejects_a_broken_variant(name: str) -> None:
    rule, words = FOUND_BY[name]
    findings = rule(compiled(next(each for each in VARIANTS if each.name == name)))
    assert any(words in finding for finding in findings), findings


def test_every_broken_variant_is_rejected_by_the_lint_or_by_the_comparison() -> None:
    broken = {each.name for each in VARIANTS if each.breaks}
    assert broken == {*FOUND_BY, CERTAIN}
