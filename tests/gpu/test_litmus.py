"""No message of a million is stale or torn on GPUs whose links are busy. `pytest -m gpu -s` shows the table."""

import pytest
import torch

from tests.gpu.litmus import CERTAIN, VARIANTS, Size, on_gpus, table

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]

WORLDS = [world for world in (2, 4, 8) if world <= torch.cuda.device_count()]


@pytest.mark.parametrize("world", WORLDS)
def test_no_round_is_broken_under_load_of_the_links(world: int) -> None:
    rows = on_gpus(world, Size())
    print(table(rows))
    assert len(rows) == world * len(VARIANTS)
    assert [row for row in rows if not row["breaks"] and (row["broken"] or row["failure"])] == []
    assert all(row["nccl"]["NCCL_GRAPH_REGISTER"] == "0" and "gpu" not in row["condition"] for row in rows)
    assert all(row["load_bytes"] > 0 and row["ended"] == Size().channels for row in rows)
    assert all(row["broken"] == row["rounds"] for row in rows if row["name"] == CERTAIN)
