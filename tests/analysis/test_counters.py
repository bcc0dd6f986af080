"""What a GPU counted stands beside what is simulated, on its own caches alone; a hint is advised only where it pays."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import caches_kernels
from workbench.analysis import kernel_counters
from workbench.charts import caches
from workbench.cli import status
from workbench.resources import notebooks_directory
from workbench.simulator.cache.counters import HIT, MISSED, READ, WRITTEN
from workbench.simulator.cache.hierarchy import hierarchy

CUBE = "gemm_all_to_all --shape m=8192 --shape n=8192 --shape k=8192 --dtype bfloat16 --world 1"
TIMES = {
    ("embedding_all_to_all", ""): 100e-6, ("embedding_all_to_all", "evict_first"): 90e-6,
    ("embedding_all_to_all", "cs"): 85e-6, ("gemm_all_to_all", ""): 300e-6, ("gemm_all_to_all", "wt"): 298.5e-6,
}  # fmt: skip
"""Seconds of kernels without a hint and with some, by operator; made up. The others took twice as long."""


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made up counts of every kernel: number + turn gigabytes read."""
    rows = caches_kernels.kernels()
    for row in rows:
        row["repeats"] = [{READ: 1e9 * row["number"] + turn, WRITTEN: 5.0, HIT: 3.0, MISSED: 1.0} for turn in range(5)]
    path = tmp_path / "counted.json"
    facts = {"gpus": "1 x NVIDIA H200", "date": "2026-11-24T01:00:00Z", "machine": "h200_nvl2"}
    path.write_text(json.dumps({"provenance": facts, "kernels": rows}))
    monkeypatch.setattr(kernel_counters, "path", lambda: path)
    return path


def number_of(shape: dict[str, int]) -> int:
    (row,) = (row for row in caches_kernels.kernels() if row["shape"] == shape and row["work"] == "gemm")
    return int(row["number"])


def test_the_command_shows_what_was_counted_at_the_size_that_the_gpu_has(
    shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = 1e9 * number_of({"m": 8192, "n": 8192, "k": 8192}) + 2
    assert status(["cache", *CUBE.split(), "--l2-sweep", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    (row,) = (row for row in rows if row["source"] == "measured")
    assert (row["dram_read_bytes"], row["l2_bytes"], row["l2_hit_rate"]) == (read, 50 * 2**20, 0.75)
    assert sum(row["source"] == "estimated" for row in rows) == len(rows) - 1
    assert status(["cache", *CUBE.split()]) == 0
    said = capsys.readouterr().out
    assert "Measured: 1 x NVIDIA H200, 2026-11-24, the median of 5 launches" in " ".join(said.split())
    assert status(["cache", *CUBE.split(), "--l2-bytes", str(40 * 2**20), "--json"]) == 0
    assert all(row["source"] == "estimated" for row in json.loads(capsys.readouterr().out)["rows"])


def test_the_notebook_asks_for_kernels_that_are_counted(shipped: Path) -> None:
    """Its cell runs here with made up counts: each of its kernels has a point, and the chart draws them."""
    cells = json.loads((notebooks_directory() / "appendix_cache_policies.ipynb").read_text())["cells"]
    (cell,) = ("".join(cell["source"]) for cell in cells if "kernel_counters.points" in "".join(cell["source"]))
    head = next("".join(cell["source"]) for cell in cells if "import" in "".join(cell["source"]))
    names: dict[str, Any] = {}
    lines = [line for line in head.splitlines() if line.startswith(("import", "from"))]
    exec("\n".join(lines), names)
    exec(cell, names)
    assert {row["label"] for row in names["measured"]} == set(names["kernels"])
    assert "full points are measured" in json.dumps(caches.sizes(names["rows"], names["measured"]).to_dict())


def test_other_caches_and_no_file_have_no_points(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = caches_kernels.point(caches_kernels.kernels()[3])
    assert len(kernel_counters.points(*point, hierarchy("h200"))) == 1
    assert kernel_counters.points(*point, hierarchy("h100")) == []
    shipped.write_text('{"kernels": 3}')
    with pytest.raises(ValueError, match="it has no kernels"):
        kernel_counters.points(*point, hierarchy("h200"))
    monkeypatch.setattr(kernel_counters, "path", lambda: shipped.with_name("none.json"))
    assert kernel_counters.points(*point, hierarchy("h200")) == []


def test_a_hint_is_advised_beyond_one_percent_and_beyond_the_spread() -> None:
    rows = [row for row in caches_kernels.kernels() if row["work"] == caches_kernels.COMPARED]
    for row in rows:
        hint = next((str(value) for name, value in row["axes"].items() if name.endswith("_hint")), "")
        time_s = TIMES.get((row["operator"], hint), 2 * TIMES[row["operator"], ""])
        row["seconds"] = [time_s * (1 + 0.02 * (turn - 2) / 2) for turn in range(5)]
    advised = {row["operator"]: row for row in kernel_counters.hint_results(rows)}
    assert advised["embedding_all_to_all"]["hints"] == {"store_hint": "cs"}
    assert advised["embedding_all_to_all"]["saved"] == pytest.approx(0.15)
    assert advised["gemm_all_to_all"]["hints"] == {}, "half a percent is not worth it"
    noisy = [{**row, "seconds": [row["seconds"][0] * factor for factor in (0.5, 1.0, 1.5)]} for row in rows]
    assert [row["hints"] for row in kernel_counters.hint_results(noisy)] == [{}, {}], (
        "each lies within the other's spread"
    )
    assert kernel_counters.advice(rows) == [
        "embedding_all_to_all: the fastest has store_hint = cs and saves 15.0% of 100.0 us. Use it.",
        "gemm_all_to_all: the fastest has store_hint = wt and saves 0.5% of 300.0 us: no hint pays.",
    ]
    assert list(kernel_counters.hint_results([row for row in rows if "store_hint" in row["axes"]])) == [], (
        "nothing to compare with"
    )
