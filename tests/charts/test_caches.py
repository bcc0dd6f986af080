"""The charts of caches: a cell for each replay, a frame around the best static one, bars that add up."""

import pytest

from tests.charts.made import svg
from workbench.charts import caches, theme


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
