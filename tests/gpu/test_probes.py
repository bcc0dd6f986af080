"""Probes and litmus tests on real GPUs: nothing above what links and memory can do, and no stale message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernels.backends.triton.probes.host import run
from kernels.backends.triton.probes.suite import BLOCKS
from kernels.machine import load
from tests.gpu import gang
from tests.gpu.litmus import CERTAIN, VARIANTS, Size, on_gpus, table

# Probes on real GPUs: all ranks at once, every row with its blocks, nothing above what links and memory can do.

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200), pytest.mark.usefixtures("links")]

WORLDS = [world for world in (2, 4, 8) if world <= torch.cuda.device_count()] or [2]
SECONDS = 30.0
MACHINE = Path(__file__).parents[2] / "data" / "machines" / "h200_nvl8.toml"


@pytest.fixture
def links(world: int) -> None:
    """A GPU for each rank, or the test is skipped and says why."""
    if why := gang.needs_links(world):
        pytest.skip(why)


@pytest.mark.parametrize("world", WORLDS)
def test_probes_end_in_time_and_stay_below_what_the_datasheet_says(world: int, tmp_path: Path) -> None:
    out = tmp_path / "raw.json"
    assert run(MACHINE, out, SECONDS, world) == []
    rows = json.loads(out.read_text())["rows"]
    assert {"graph_node", "meeting", "signal", "packets", "put"} <= {row["probe"] for row in rows}
    assert not [row for row in rows if "refused" in row]
    assert all(len(row["blocks"]) == world for row in rows)
    assert all(len(one) == BLOCKS for row in rows if row["probe"] == "put" for one in row["blocks"])
    link = load(MACHINE).dimensions[0].bandwidth_bytes_per_second
    assert all(row["bytes"] / row["seconds"] < link for row in rows if row["probe"] == "put")


# No message of a million is stale or torn on GPUs whose links are busy. `pytest -m gpu -s` shows the table.


@pytest.mark.parametrize("world", WORLDS)
def test_no_round_is_broken_under_load_of_the_links(world: int) -> None:
    rows = on_gpus(world, Size())
    print(table(rows))
    assert len(rows) == world * len(VARIANTS)
    assert [row for row in rows if not row["breaks"] and (row["broken"] or row["failure"])] == []
    assert all(row["nccl"]["NCCL_GRAPH_REGISTER"] == "0" and "gpu" not in row["condition"] for row in rows)
    assert all(row["load_bytes"] > 0 and row["ended"] == Size().channels for row in rows)
    assert all(row["broken"] == row["rounds"] for row in rows if row["name"] == CERTAIN)
