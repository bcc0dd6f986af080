"""The session that counts cache traffic on a GPU, as far as it goes without one: kernels, ncu's CSV, the fit."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.backends.triton import refusals
from kernels.trial import protocol
from tests.gpu import caches, caches_drawn, caches_fit, caches_kernels, documents
from tests.gpu.caches_rank import REPEATS
from workbench.analysis import kernel_counters
from workbench.resources import data_directory
from workbench.simulator.cache import counters, measured, reuse
from workbench.simulator.cache.counters import HIT, MISSED, PROGRAMS, READ, REQUESTED, SECONDS, WRITTEN
from workbench.simulator.cache.hierarchy import hierarchy, load

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
    first, second = caches.csv_rows(RAW)
    assert first == {READ: 7.2e9, WRITTEN: 134217728.0, HIT: 600.0, MISSED: 200.0,
                     SECONDS: pytest.approx(1.234e-6), PROGRAMS: 132.0}  # fmt: skip
    assert SECONDS not in second, "what could not be counted is no number"
    assert [row[READ] for row in caches.csv_rows(LONG)] == [7.2e9, 7.1e9]
    assert counters.hit_rate(first) == 0.75
    assert counters.hit_rate({READ: 1.0}) is None
    with pytest.raises(ValueError, match=r'no line that begins with "ID", 0 of 1'):
        caches.csv_rows(BEFORE)


def test_launches_that_are_too_few_are_of_nobody() -> None:
    launches = [{READ: float(number)} for number in range(2 * REPEATS)]
    assert [each[0][READ] for each in caches.grouped(launches, 2)] == [0.0, REPEATS]
    assert len(caches.grouped([*launches, {READ: 0.0}], 2)) == 2, "the third kernel failed"
    with pytest.raises(RuntimeError, match="ncu has 9 launches, and 2 kernels x 5 ended"):
        caches.grouped(launches[1:], 2)
    with pytest.raises(RuntimeError, match="ncu has 10 launches, and 1 kernels x 5 ended"):
        caches.grouped(launches, 1)


STANDIN = (sys.executable, str(Path(__file__).with_name("standin_ncu.py")))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Six kernels, none of them launched; nothing is timed."""
    rows: list[dict[str, Any]] = [
        {"number": number, "work": "gemm", "part": "fit", "shape": {"k": 1}, "operator": "gemm_all_to_all"}
        for number in range(6)
    ]
    monkeypatch.setattr(caches_kernels, "kernels", lambda: rows)
    monkeypatch.setattr(caches, "time_them", lambda groups, seconds: None)
    monkeypatch.setattr(caches, "BATCH_MOST", 4)
    return rows


def counted_by_standin(out: Path, seconds: float = 300.0) -> dict[str, Any]:
    caches.measure(out, seconds, caches.Counter(STANDIN, ("rank",)))
    return dict(json.loads(out.read_text()))


def test_a_kernel_that_breaks_costs_no_other_one(few: list[dict[str, Any]], tmp_path: Path) -> None:
    few[2]["breaks"] = True
    made = counted_by_standin(tmp_path / "out.json")
    repeats = {row["number"]: [each[READ] for each in row.get("repeats", [])] for row in made["kernels"]}
    assert repeats == {number: [] if number == 2 else [1000.0 * number + turn for turn in range(REPEATS)]
                       for number in range(6)}  # fmt: skip
    assert "out of memory" in made["kernels"][2]["failed"]
    assert made["provenance"]["ncu"] == "Version 2026.1 (stand-in)"
    assert f"{counters.FABRIC}_lookup_hit.sum" not in made["metrics"], "it is not listed"
    assert HIT in made["metrics"]
    assert made["kernels"][0]["repeats"][0][PROGRAMS] == 132


def test_a_second_call_goes_on_where_the_first_one_ended(few: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert caches.next_batch(few, 18.0, 20.0) == [], "there is no time for one"
    assert len(caches.next_batch(few, 18.0, 60.0)) == 2
    whole = counted_by_standin(out)
    kernels = [{**row, "breaks": True} if row["number"] < 3 else {**row, "repeats": []} for row in whole["kernels"]]
    half = {**whole, "kernels": kernels}
    out.write_text(json.dumps(half))
    assert [row["repeats"] for row in counted_by_standin(out)["kernels"]] == [
        row["repeats"] for row in whole["kernels"]], "what was counted is not counted again"  # fmt: skip


def test_a_kernel_without_an_end_is_ended_alone(
    few: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few[1]["sleeps"] = True
    monkeypatch.setattr(caches, "BATCH_S", 0.7)
    monkeypatch.setattr(caches, "FIRST_S", 0.2)
    monkeypatch.setattr(caches, "STRIKES", 9)
    made = counted_by_standin(tmp_path / "out.json")
    assert [row["number"] for row in made["kernels"] if row.get("repeats")] == [0, 2, 3, 4, 5]
    assert "took too long" in made["kernels"][1]["failed"]


def test_a_gpu_without_counters_is_told_at_once_and_fewer_metrics_are_tried(
    few: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "counters")
    with pytest.raises(caches.NotCounted, match="LibraryNotLoaded"):
        caches.measure(tmp_path / "out.json", 300.0, caches.Counter(STANDIN, ("rank",)))
    monkeypatch.setenv("STANDIN", "fabric")
    made = counted_by_standin(tmp_path / "other.json")
    assert all(HIT in row["repeats"][0] for row in made["kernels"])
    assert not any("fabric" in name for name in made["kernels"][0]["repeats"][0])


@pytest.mark.slow
def test_a_gpu_host_needs_no_more_than_kernels_do() -> None:
    """Neither what compiles estimates, nor what knows a person's folders, is there."""
    lacks = "import sys; sys.modules.update(dict.fromkeys(('numba', 'platformdirs', 'altair', 'dask', 'pydantic')));"
    subprocess.run([sys.executable, "-c", f"{lacks} import tests.gpu.caches, tests.gpu.caches_rank"], check=True,
                   timeout=60)  # fmt: skip


def test_all_kernels_run_on_gpus_and_are_mixed() -> None:
    rows = caches_kernels.kernels()
    for row in rows:
        trial = caches_kernels.trial(row, protocol("quick"))
        assert refusals.refusal(trial, shares_heap=True) is None, row
    first = caches_kernels.in_turns(rows)[:9]
    assert {row["work"] for row in first} == {row["work"] for row in rows}
    assert {row["part"] for row in first} == {"fit", "held_out", "compared"}
    assert 28672 in {row["shape"].get("k") for row in first[:1]}
    assert sorted(row["number"] for row in caches_kernels.in_turns(rows)) == [row["number"] for row in rows]


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


def test_drawn_kernels_run_on_gpus_and_are_all_held_out() -> None:
    rows = caches_drawn.kernels()
    assert rows == caches_drawn.kernels(), "the seed decides"
    for row in rows:
        assert refusals.refusal(caches_kernels.trial(row, protocol("quick")), shares_heap=True) is None, row
    assert {row["part"] for row in rows} == {"held_out"}
    known = [caches_kernels.point(row) for row in caches_kernels.kernels()]
    assert not any(caches_kernels.point(row) in known for row in rows)
    assert [row for group in caches.sittings(rows) for row in group] == rows


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
    on = replace(hierarchy("h200"), far_copies=0.5, pace_spread=0.01, merged=0.3)
    rows = [row for row in caches_kernels.kernels() if row["shape"].get("k") in (14336, 28672)]
    for row in rows:
        total = reuse.total(reuse.parts(*caches_kernels.point(row), on, row["resident"]))
        row["repeats"] = [{READ: total.dram_read * (1 + 0.002 * turn), WRITTEN: 0.0, HIT: 3.0, MISSED: 1.0,
                           REQUESTED: total.requested / 32} for turn in (-1, 0, 1)]  # fmt: skip
    path = tmp_path / "counted.json"
    facts = {"gpus": "1 x NVIDIA H200", "date": "2026-11-24T01:00:00Z"}
    path.write_text(json.dumps({"provenance": facts, "seed": 17, "kernels": [*rows, {**rows[0], "repeats": []}]}))
    return path


@pytest.mark.slow
def test_the_fit_finds_the_values_that_the_counts_were_made_with(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "h200.toml"
    into.write_text((data_directory() / "caches" / "h200.toml").read_text())
    classes = caches_fit.fit(document, into, tmp_path / "kept.json")
    assert json.loads((tmp_path / "kept.json").read_text()) == json.loads(document.read_text())
    fitted = load(into)
    assert (fitted.far_copies, fitted.pace_spread, fitted.merged) == (0.5, 0.01, 0.3)
    assert re.match(r"calibrated: 1 x NVIDIA H200, 2026-11-24: bytes that ncu counts of \d+ kernels",
                    fitted.provenance["pace_spread"])  # fmt: skip
    assert classes["gemm"]["median_off"] < 0.005
    assert classes["gemm"]["beyond_operands"] > 0
    assert "far_copies = 0.5" in capsys.readouterr().out


def test_what_is_off_is_told_by_class_of_those_held_out() -> None:
    rows = [{"work": "gemv", "part": part, "off": off, "points_off": 2.0, "dram_read_bytes": 2.0, "operands": 1.0,
             "shape": {}}
            for part, off in (("fit", 9.0), ("held_out", -0.1), ("held_out", 0.3), ("held_out", 0.2))]  # fmt: skip
    assert measured.by_class(rows) == {"gemv": {
        "kernels": 3, "median_off": 0.2, "p90_off": 0.3, "mean_points_off": 2.0, "beyond_operands": 3,
    }}  # fmt: skip
    assert kernel_counters.broken_bounds(rows) == [
        "gemv: median_off = 0.2 > 0.1 of 3 kernels held out.", "gemv: p90_off = 0.3 > 0.25 of 3 kernels held out.",
    ]  # fmt: skip
    deep = {**rows[1], "shape": kernel_counters.DEEP, "off": -0.3, "number": 33, "work": "gemm"}
    assert "the deepest GEMM, number 33: off by -0.3, > 0.25." in kernel_counters.broken_bounds([deep])


def test_the_documents_say_what_was_counted(document: Path, tmp_path: Path) -> None:
    (tmp_path / "probes").mkdir()
    counts = json.loads(document.read_text())
    counts["provenance"]["machine"] = caches_kernels.MACHINE
    (tmp_path / "probes" / "h200_nvl2_caches.json").write_text(json.dumps(counts))
    said = documents.caches(tmp_path)
    assert said is not None
    assert said.strip().startswith("1 x H200, 2026-11-24: 13 of 14 kernels are counted")
    assert re.search(r"\| GEMM \| \d+ \| [\d.]+% \| [\d.]+% \| [\d.]+ points \|", said)
    assert "Missed: the deepest GEMM" in said, "the counts were made with other values than the file has"
    assert documents.caches(tmp_path / "nowhere") is None
    assert documents.cache_hints(tmp_path / "nowhere") is None


def test_the_documents_say_what_hints_took_beside_a_replay() -> None:
    counts = [{READ: 97e6, WRITTEN: 12e6, HIT: 1.0, MISSED: 1.0}]
    rows = [{**row, "repeats": counts, "seconds": [seconds] * 3, "simulated": {"dram_read_bytes": 89e6}}
            for row, seconds in zip((row for row in caches_kernels.kernels() if row["work"] == "hints"), (36e-6, 38e-6),
                                    strict=False)]  # fmt: skip
    said = caches_fit.hints_text({"kernels": rows})
    assert "| `embedding_all_to_all` | none | 36.0 (36.0 to 36.0) | 50.0% | 97.0 | 12.0 | 89.0 |  |" in said
    assert "| load_hint = evict_first | 38.0 (38.0 to 38.0) |" in said
    assert "saves 0.0% of 36.0 us: no hint pays." in said
