"""The session that counts cache traffic on a GPU, as far as it goes without one: kernels, ncu's CSV, the fit."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu import caches, caches_kernels
from tests.gpu.caches_rank import REPEATS
from workbench.simulator.cache import measured, reuse
from workbench.simulator.cache.hierarchy import hierarchy, load
from workbench.simulator.cache.measured import HIT, MISSED, READ, SECONDS, WRITTEN

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
        "Device", "CC"]  # fmt: skip
LAUNCH = ["4242", "python3.11", "127.0.0.1", "gemm_send", "1", "7", "(256, 1, 1)", "(132, 1, 1)", "0", "9.0"]
BEFORE = '==PROF== Connected to process 4242\n==PROF== Profiling "gemm_send" - 0: 0%....50%....100% - 4 passes\n'


def line(*cells: object) -> str:
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


RAW = (BEFORE + line(*HEAD, READ, WRITTEN, HIT, MISSED, SECONDS) + line(*[""] * 11, "byte", "byte", "sector", "sector",
       "ns") + line(0, *LAUNCH, "7,200,000,000", "134217728", "600", "200", "1234")
       + line(1, *LAUNCH, "7100000000", "134217728", "610", "190", "n/a"))  # fmt: skip
"""As `--page raw` is documented: a row of units, then a row for each launch. Written by hand, not by ncu."""
LONG = (BEFORE + line(*HEAD, "Section Name", "Metric Name", "Metric Unit", "Metric Value")
        + "".join(line(number, *LAUNCH, "Command line profiler metrics", name, "byte", value)
                  for number, value in ((0, "7,200,000,000"), (1, "7100000000")) for name in (READ, WRITTEN))
        + "==PROF== Disconnected from process 4242\n")  # fmt: skip


def test_both_pages_of_ncu_are_read() -> None:
    first, second = measured.csv_rows(RAW)
    assert first == {READ: 7.2e9, WRITTEN: 134217728.0, HIT: 600.0, MISSED: 200.0, SECONDS: 1234.0}
    assert SECONDS not in second, "what could not be counted is no number"
    assert [row[READ] for row in measured.csv_rows(LONG)] == [7.2e9, 7.1e9]
    assert measured.hit_rate(first) == 0.75
    assert measured.hit_rate({READ: 1.0}) is None
    with pytest.raises(ValueError, match=r'no line that begins with "ID", 0 of 1'):
        measured.csv_rows(BEFORE)


def test_launches_that_are_too_few_are_of_nobody() -> None:
    launches = [{READ: float(number)} for number in range(2 * REPEATS)]
    assert [each[0][READ] for each in caches.grouped(launches, 2)] == [0.0, REPEATS]
    with pytest.raises(RuntimeError, match="ncu has 9 launches, and 2 kernels x 5 were made"):
        caches.grouped(launches[1:], 2)


def test_there_are_sixty_kernels_in_two_parts() -> None:
    rows = caches_kernels.kernels()
    assert len(rows) >= 60
    assert rows == caches_kernels.kernels(), "the seed decides"
    for work in {row["work"] for row in rows} - {"hints"}:
        parts = [row["part"] for row in rows if row["work"] == work]
        assert parts.count("fit") >= 3
        assert parts.count("held_out") >= 3
    assert {row["part"] for row in rows if row["work"] == "hints"} == {"compared"}
    deep = [row for row in rows if row["work"] == "gemm" and row["shape"]["k"] == 28672]
    assert {row["part"] for row in deep} == {"held_out"}
    orders = {row["axes"]["tile_order"] for row in rows if row["work"] == "gemm"}
    assert orders == {"natural", "rotated", "remote_first", "interleaved"}
    assert {row["axes"]["group_rows"] for row in rows if row["work"] == "gemm"} == {1, 2, 4, 8, 16}


def test_half_of_the_gemms_that_are_held_out_are_expected_to_read_operands_again() -> None:
    rows = [row for row in caches_kernels.kernels() if row["work"] == "gemm" and row["part"] == "held_out"]
    beyond = 0
    for row in rows:
        of, schedule = caches_kernels.point(row)
        read = reuse.total(reuse.parts(of, schedule, hierarchy("h200"))).dram_read
        beyond += read > 1.5 * measured.operand_bytes(of)
    assert 2 * beyond >= len(rows)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """What a GPU would have counted that is as the tier says with other values, a little noisy."""
    on = replace(hierarchy("h200"), far_copies=0.5, pace_spread=0.01)
    rows = [row for row in caches_kernels.kernels() if row["shape"].get("k") in (14336, 28672)]
    for row in rows:
        total = reuse.total(reuse.parts(*caches_kernels.point(row), on, row["resident"]))
        row["repeats"] = [{READ: total.dram_read * (1 + 0.002 * turn), WRITTEN: 0.0, HIT: 3.0, MISSED: 1.0}
                          for turn in (-1, 0, 1)]  # fmt: skip
    path = tmp_path / "counted.json"
    facts = {"gpus": "1 x NVIDIA H200", "date": "2026-11-24T01:00:00Z"}
    path.write_text(json.dumps({"provenance": facts, "seed": 17, "kernels": [*rows, {**rows[0], "repeats": []}]}))
    return path


def test_the_fit_finds_the_values_that_the_counts_were_made_with(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "h200.toml"
    into.write_text((Path(caches.data_directory()) / "caches" / "h200.toml").read_text())
    classes = caches.fit(document, into)
    fitted = load(into)
    assert (fitted.far_copies, fitted.pace_spread) == (0.5, 0.01)
    assert re.match(r"calibrated: 1 x NVIDIA H200, 2026-11-24: bytes that ncu counts of \d+ kernels",
                    fitted.provenance["pace_spread"])  # fmt: skip
    assert classes["gemm"]["median_off"] < 0.005
    assert classes["gemm"]["beyond_operands"] > 0
    assert "far_copies = 0.5" in capsys.readouterr().out


def test_what_is_off_is_told_by_class_of_those_held_out() -> None:
    rows = [{"work": "gemv", "part": part, "off": off, "points_off": 2.0, "dram_read_bytes": 2.0, "operands": 1.0}
            for part, off in (("fit", 9.0), ("held_out", -0.1), ("held_out", 0.3), ("held_out", 0.2))]  # fmt: skip
    assert measured.by_class(rows) == {"gemv": {
        "kernels": 3, "median_off": 0.2, "p90_off": 0.3, "mean_points_off": 2.0, "beyond_operands": 3,
    }}  # fmt: skip
