"""Probes on real GPUs: all ranks at once, every row with its blocks, nothing above what links and memory can do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernels.backends.triton.probes.host import run
from kernels.backends.triton.probes.suite import BLOCKS
from kernels.machine import load

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]

SECONDS = 30.0
MACHINE = Path(__file__).parents[2] / "data" / "machines" / "h200_nvl8.toml"


@pytest.mark.parametrize("world", [world for world in (2, 4, 8) if world <= torch.cuda.device_count()])
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
