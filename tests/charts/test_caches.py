"""Charts of what SMs and caches hold: a cell for each replay, and resident blocks over padding."""

from itertools import pairwise
from typing import Any

import pytest

from kernels.occupancy import NCCL, SHOT, BlockResources, gemm_block
from kernels.schedule import Tile
from tests.charts.made import svg
from workbench.charts import caches, residency, theme
from workbench.machines import shipped_machine

# The charts of caches: a cell for each replay, a frame around the best static one, bars that add up.


def row(application: str, policy: str, group: str, cycles: float | None) -> dict:
    traffic = {"dram_read_bytes": 3_000_000, "dram_write_bytes": 1_000_000, "stall_cycles": 2000.0}
    return {"application": application, "policy": policy, "group": group, "cycles": cycles,
            "relative_cycles": None if cycles is None else cycles / 100,
            "structures": {"x": traffic, "y": traffic} if cycles else None}  # fmt: skip


ROWS = [row("FwAct", "uncached", "static", 100.0), row("FwAct", "cache_r", "static", 104.0),
        row("FwAct", "optimised", "optimised", 99.0), row("FwAct", "belady", "bound", None),
        row("SGEMM", "uncached", "static", 100.0), row("SGEMM", "cache_r", "static", 49.0)]  # fmt: skip


SWEPT = [{"label": label, "l2_bytes": size * 2**20, "dram_read_bytes": 4e9 / size}
         for label in ("GEMM", "lookups") for size in (8, 50, 256)]  # fmt: skip


def test_a_sweep_has_a_line_for_each_kernel_and_says_which_points_were_measured() -> None:
    drawn = svg(caches.sizes(SWEPT, [SWEPT[1] | {"dram_read_bytes": 9e7}]))
    assert "GEMM, L2 of 8 MiB, estimated: DRAM reads 500.0 MB" in drawn
    assert "GEMM, L2 of 50 MiB, measured: DRAM reads 90.0 MB" in drawn
    assert "full points are measured" in drawn
    assert "nothing was measured yet" in svg(caches.sizes(SWEPT))


def test_a_frame_marks_the_best_static_policy_of_each_application() -> None:
    records = caches.heat_rows(ROWS)
    assert len(records) == 5
    assert [(each["application"], each["policy"]) for each in records if each["best"]] == [
        ("FwAct", "uncached"), ("SGEMM", "cache_r"),
    ]  # fmt: skip
    assert [each["deep"] for each in records] == [False, False, False, False, True]


def test_the_bars_of_a_policy_add_up_to_what_dram_moved() -> None:
    records = caches.why_rows(ROWS[:4])
    read = [each["value"] for each in records if each["what"] == "DRAM read (MB)" and each["policy"] == "optimised"]
    assert sum(read) == pytest.approx(6.0)
    assert {each["policy"] for each in records} == {"uncached", "cache_r", "optimised"}


@pytest.mark.parametrize("mode", list(theme.Mode))
def test_they_ask_a_question_and_draw_in_light_and_dark(mode: theme.Mode) -> None:
    with theme.enabled(mode):
        for chart in (caches.heat_map(ROWS), caches.sizes(SWEPT, SWEPT[:1]), caches.why(ROWS[:4], "FwAct")):
            spec = chart.to_dict()
            assert spec["title"]["text"].endswith("?")
            assert spec["description"].endswith(".")
            drawn = svg(chart)
            assert theme.INKS[mode].text in drawn
    assert drawn.count("thousand cycles") >= 1


def test_a_cell_says_its_number() -> None:
    drawn = svg(caches.heat_map(ROWS))
    assert "0.49" in drawn
    assert "reconstructed by us" in drawn


# Resident blocks over padding: levels are the formula's, and measured points of the same block lie on them.

MACHINES = [shipped_machine(name) for name in ("a40_pcie4", "h200_nvl2", "mi250x_gcd8")]
BLOCK = gemm_block(Tile(64, 128, 32), 2, 2, 8)
POINT: dict[str, Any] = {
    "machine": "h200_nvl2", "tile": "64x128x32", "shared_bytes": BLOCK.shared_bytes - 108, "registers": 64,
    "threads": 256, "padding_bytes": 40 * 1024, "resident_blocks": 2, "by": "occupancy API",
}  # fmt: skip


def levels(name: str, other: BlockResources | None = None, block: BlockResources = BLOCK) -> list[tuple[int, str]]:
    return [(each["blocks"], each["beside"]) for each in residency.step_rows([shipped_machine(name)], block, other)]


def test_each_level_is_one_block_less_and_ends_where_the_next_begins() -> None:
    records = residency.step_rows([MACHINES[1]], BLOCK)
    assert [each["blocks"] for each in records] == [4, 3, 2, 1]
    assert all(one["to_kib"] == two["from_kib"] for one, two in pairwise(records))
    assert records[-1]["to_kib"] == pytest.approx(227 - BLOCK.shared_bytes / 1024)
    assert records[2]["aloud"].startswith("NVIDIA H200 SXM: 2 blocks from 34.")


def test_the_colour_says_where_a_communication_block_fits_beside() -> None:
    """4 blocks take 65,536 registers, 2 leave the 32,768 that torch's two_shot takes, and none leaves NCCL's."""
    shots = levels("h200_nvl2", SHOT)
    assert [count for count, beside in shots if beside == residency.FITS] == [2, 1]
    assert [beside for _, beside in shots][-2:] == [residency.FITS, residency.FULL], "1 KiB is kept"
    assert {beside for _, beside in levels("h200_nvl2", NCCL)} == {residency.FULL}
    assert (1, residency.FITS) in levels("mi250x_gcd8", SHOT)
    assert levels("a40_pcie4", block=BlockResources(100 * 1024, 32, 128)) == [], "no block fits at all"


@pytest.mark.parametrize("mode", list(theme.Mode))
def test_it_draws_in_light_and_dark_and_says_whether_anything_was_measured(mode: theme.Mode) -> None:
    with theme.enabled(mode):
        bare = residency.chart(MACHINES, BLOCK)
        full = residency.chart(MACHINES, BLOCK, SHOT, [POINT, {**POINT, "threads": 128}, {**POINT, "machine": "x"}])
        assert (spec := full.to_dict())["title"]["text"].endswith("?")
        assert spec["description"].endswith(".")
        drawn, empty = svg(full), svg(bare)
    assert theme.INKS[mode].text in drawn
    assert drawn.count("measured by occupancy API: 2 blocks at 40.0 KiB of padding") == 1
    assert residency.FITS in drawn
    assert "full points were measured" in drawn
    assert "nothing was measured yet" in empty
    assert residency.FITS not in empty
    assert all(each.device.name in drawn for each in MACHINES)
