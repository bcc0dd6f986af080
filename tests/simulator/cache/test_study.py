"""`workbench cache` and the study: rows, a summary that says what they show, and one sentence for bad input."""

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.simulator.cache.made import load, small, store, trace
from workbench.cli import status
from workbench.cli.cache import ReplayProgress
from workbench.simulator.cache import study
from workbench.simulator.cache import trace as trace_file
from workbench.simulator.cache.hierarchy import hierarchy
from workbench.simulator.cache.policies import POLICIES
from workbench.simulator.cache.replay import simulate
from workbench.simulator.cache.study import SIZES
from workbench.simulator.cache.trace import ACCESS, Chunk, heeded, together
from workbench.simulator.cache.workloads import workload


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert status(["cache", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def row(application: str, policy: str, cycles: float) -> dict:
    return {"application": application, "policy": policy, "cycles": cycles}


def test_the_summary_counts_what_the_rows_show() -> None:
    cycles = {"a": (100, 50, 60, 50.9), "b": (100, 50, 70, 50.5), "c": (10, 20, 20, 11), "d": (9, 6, 5, 6)}
    names = ("uncached", "cache_r", "cache_rw", "optimised")
    rows = [row(name, policy, each) for name, of in cycles.items() for policy, each in zip(names, of, strict=True)]
    found = study.summary(rows)
    assert (found["applications"], found["usual_best_static"], found["best_static_differs"]) == (4, "cache_r", 2)
    assert found["best_static"] == {"a": "cache_r", "b": "cache_r", "c": "uncached", "d": "cache_rw"}
    assert found["optimised_within_2pct_of_best_static"] == 2
    assert found["worst_regret"] == pytest.approx(0.2)
    assert found["worst_regret_application"] == "d"


def test_without_the_policies_for_a_claim_it_is_null() -> None:
    found = study.summary([row("a", "srrip", 5.0)])
    assert found["best_static_differs"] is None
    assert found["worst_regret"] is None


def test_workloads_and_policies_by_name_are_rows_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["uncached", "cache_r", "cache_rw", "optimised"]
    found = told(capsys, "--workloads", "FwAct", "--workloads", "FwLRN",
                 *(word for name in policies for word in ("--policies", name)))  # fmt: skip
    rows = found["rows"]
    assert [each["policy"] for each in rows] == policies * 2
    assert all(each["labels"] == "reconstructed by us" and each["caches"] == "gcn3_hbm" for each in rows)
    assert rows[0]["relative_cycles"] == 1.0
    assert rows[4]["application"] == "FwLRN"
    assert rows[6]["relative_cycles"] < 0.8
    assert found["summary"]["applications"] == 2
    assert found["summary"]["optimised_within_2pct_of_best_static"] in (0, 1, 2)


@pytest.mark.slow
def test_all_policies_have_a_row_and_the_optimum_misses_the_fewest_lines() -> None:
    application = study.chosen_workloads(["FwLRN"])
    rows = study.study(
        application, study.StudyQuestion(hierarchy("gcn3_hbm"), study.chosen_policies(["all"]), optimum=True)
    )
    assert [each["policy"] for each in rows] == [*POLICIES, study.OPTIMUM]
    assert rows[-1]["l2_line_misses"] <= min(each["l2_line_misses"] for each in rows if each["policy"] != "uncached")


@pytest.mark.slow
def test_the_study_shows_what_its_document_says() -> None:
    """Policies that do not count for the two claims are left out."""
    chosen = study.chosen_policies(["uncached", "cache_r", "cache_rw", "optimised"])
    found = study.summary(
        study.study(study.chosen_workloads(["all"]), study.StudyQuestion(hierarchy("gcn3_hbm"), chosen))
    )
    text = (Path(__file__).parents[3] / "docs" / "caches.md").read_text()
    (said,) = re.findall("<!-- caches -->(.*?)<!-- /caches -->", text, re.DOTALL)
    assert re.findall(r"\d+", said) == [
        str(found["best_static_differs"]), "17", "2", str(found["optimised_within_2pct_of_best_static"]), "17",
        f"{100 * found['worst_regret']:.0f}",
    ]  # fmt: skip
    assert found["usual_best_static"] == "cache_r"
    assert found["worst_regret_application"] in said


GEMM = ("gemm_all_to_all", "--shape", "m=512", "--shape", "n=512", "--shape", "k=256")


def test_an_operator_is_told_by_structure(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *GEMM, "--world", "1", "--set", "group_rows=4", "--machine", "h200_nvl2")
    (only,) = found["rows"]
    assert only["structures"]["tokens"]["dram_read_bytes"] == 512 * 256 * 2
    assert only["dram_read_bytes"] == 2 * 512 * 256 * 2
    assert found["summary"]["axes"]["group_rows"] == 4
    assert found["summary"]["l2_bytes"] == 50 * 2**20


def test_who_answered_stands_in_the_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Both count the operands once, which fit; only a replay knows cycles, and other policies."""
    reuse, lines = (told(capsys, *GEMM, "--world", "1", "--tier", tier)["rows"][0] for tier in ("reuse", "lines"))
    assert (reuse["tier"], lines["tier"]) == ("reuse", "lines")
    assert reuse["dram_read_bytes"] == lines["dram_read_bytes"] == 2 * 512 * 256 * 2
    assert reuse["cycles"] is None
    assert lines["cycles"] > 0
    assert told(capsys, *GEMM, "--policies", "srrip")["rows"][0]["tier"] == "lines"


LOOKUPS = (
    "embedding_all_to_all", "--world", "1", "--shape=tables_per_rank=4", "--shape=rows=20000", "--shape=dim=64",
    "--shape=batch=1024", "--shape=pooling=8", "--shape=indices=uniform", "--l2-bytes=1966080",
)  # fmt: skip


def test_a_schedule_with_cache_hints_is_replayed_beside_the_same_without(capsys: pytest.CaptureFixture[str]) -> None:
    """The result stays where loads are evicted first, and goes first where it streams."""
    usual, first = told(capsys, *LOOKUPS, "--set", "load_hint=evict_first")["rows"]
    assert (usual["policy"], first["policy"], first["tier"]) == ("cache_rw", "weights_evict_first", "lines")
    assert first["dram_write_bytes"] < usual["dram_write_bytes"]
    streamed = told(capsys, *LOOKUPS, "--set", "store_hint=cs")["rows"][1]
    assert (streamed["policy"], streamed["source"]) == ("evict_first", "estimated")
    assert streamed["dram_write_bytes"] > usual["dram_write_bytes"]
    (same,) = told(capsys, *LOOKUPS, "--set", "store_hint=wb")["rows"]
    assert same["dram_write_bytes"] == usual["dram_write_bytes"]
    assert told(capsys, *LOOKUPS, "--set", "store_hint=cs", "--tier", "reuse")["rows"][0]["tier"] == "reuse"


def test_a_preset_of_eight_ranks_runs_on_eight_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "gemm_all_to_all", "--preset", "deepseek_v3_experts_512")
    assert (found["summary"]["world"], found["summary"]["machine"]) == (8, "h200_nvl8")
    assert status(["cache", *GEMM, "--world", "16"]) == 2
    assert "world = 16 is more than machine h200_nvl8 has" in capsys.readouterr().err


def test_a_sweep_has_a_row_for_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "gemm_all_to_all", "--shape=m=4096", "--shape=n=4096", "--shape=k=4096", "--l2-sweep")
    sizes = [row["l2_bytes"] / 2**20 for row in found["rows"]]
    assert sizes == pytest.approx(list(SIZES), rel=0.01)
    assert found["rows"][0]["dram_read_bytes"] > 2 * found["rows"][-1]["dram_read_bytes"]
    of_lines = told(capsys, *GEMM, "--tier", "lines", "--l2-sweep")["rows"]
    assert [row["tier"] for row in of_lines] == ["lines"] * len(sizes)


def test_who_waits_is_told_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ReplayProgress(due=0.0)
    progress.ended(3, 9, "SGEMM with srrip")
    progress.ended(4, 9, "SGEMM with random")
    assert capsys.readouterr().err == "3 of 9 replays have ended, SGEMM with srrip just now.\n"


def test_a_replay_says_of_how_many_accesses_and_how_long_it_still_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """The last is the fourth of two replays of half a million: all are done."""
    chunk = Chunk(0, np.zeros(500_000, ACCESS))
    made = replace(trace([load(0)]), chunks=lambda: iter([chunk] * 2), counted=lambda: 1_000_000)
    progress = ReplayProgress(due=0.0, replays=2, begun=time.monotonic() - 60)
    for _ in range(2):
        for _ in progress.watched(made).chunks():
            progress.due = 0.0
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["0 of 2 million accesses are replayed, about 3 min left.",
                        "1 of 2 million accesses are replayed, about 60 s left."]  # fmt: skip
    assert said[-1] == "2 of 2 million accesses are replayed, about a second left."


def test_ctrl_c_ends_a_replay_at_its_next_chunk() -> None:
    """The main thread is interrupted; what another thread replays has a thousand chunks before it."""
    begun, taken = threading.Event(), 0

    def chunks() -> Iterator[Chunk]:
        nonlocal taken
        for _ in range(1000):
            begun.set()
            time.sleep(0.002)
            taken += 1
            yield Chunk(0, np.zeros(1, ACCESS))

    def interrupt(count: int, at: int) -> None:
        raise KeyboardInterrupt

    long = partial(study.rows, replace(trace([load(0)]), chunks=chunks),
                   study.StudyQuestion(small(), study.chosen_policies(["srrip"])))  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        together([long, begun.wait], interrupt)
    assert taken < 900, "a replay of a replay in a thread of its own"


def test_what_failed_is_heard_of_and_not_what_ended_for_that() -> None:
    def fails() -> None:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        together([partial(together, [fails, lambda: None]), lambda: list(heeded(iter(lambda: 0, 1)))])


def test_an_operators_trace_is_saved_and_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "gemm.parquet")
    direct = told(capsys, *GEMM, "--save", path)["rows"][0]
    again = told(capsys, "--trace", path)["rows"][0]
    assert direct == again
    assert status(["cache", *GEMM, "--save", path]) == 2
    assert "is there already" in capsys.readouterr().err


def test_applications_are_replayed_on_the_caches_of_a_machine_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workloads", "FwAct", "--policies", "cache_rw")
    assert told(capsys, *words)["summary"]["caches"] == "gcn3_hbm"
    assert told(capsys, *words, "--machine", "h200_nvl2")["summary"]["caches"] == "h200"


def test_a_wrong_access_is_told_with_the_name_of_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    trace_file.write(trace([load(3, structure=7)]), path)
    assert status(["cache", "--trace", str(path)]) == 2
    assert f"{path}: made has an access of structure 7 and names 3" in capsys.readouterr().err


def test_a_smaller_l2_reads_more(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "gemm_all_to_all",
        "--set",
        "tile=64x64x64",
        *(f"--shape={each}" for each in ("m=2048", "n=2048", "k=256")),
    ]
    small, whole = (told(capsys, *words, "--l2-bytes", str(size))["rows"][0] for size in (163840, 50 * 2**20))
    assert whole["dram_read_bytes"] == 2 * 2048 * 256 * 2
    assert small["dram_read_bytes"] > 1.5 * whole["dram_read_bytes"]


def test_a_terminal_has_a_table_and_says_who_made_the_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["cache", "--workloads", "FwAct", "--policies", "uncached", "--policies", "optimised"]) == 0
    out = capsys.readouterr().out
    assert "reconstructed by us" in out
    answer, _, header = out.splitlines()[:3]
    assert answer.startswith("All optimisations together are within 2 %")
    assert "Uncached" in header


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "None of OPERATOR, --trace, --workloads is stated, and one is needed"),
        ([*GEMM, "--workloads", "all"], "OPERATOR and --workloads are stated, and one is needed"),
        ([*GEMM, "--tier", "pages"], "There is no tier 'pages'. Accepted: reuse, lines"),
        ([*GEMM, "--tier", "reuse", "--policies", "all"], "--tier reuse knows 1 policy"),
        ([*GEMM, "--l2-sweep", "--l2-bytes", "163840"], "--l2-sweep and --l2-bytes are stated, 2 > 1"),
        (["--workloads", "all", "--l2-sweep"], "--l2-sweep and --workloads are stated, 2 > 1"),
        (["--workloads", "FwAct", "--tier", "reuse"], "--tier is of the trace of an operator"),
        (["--workloads", "FwConv"], "There is no workload 'FwConv'"),
        (["--workloads", "all", "--policies", "plru"], "There is no cache policy 'plru'"),
        (["--workloads", "FwAct", "--caches", "b200"], "There are no caches 'b200'"),
        (["--workloads", "FwAct", "--l2-bytes", "1000"], "l2_bytes = 1,000 is no multiple"),
        (["--workloads", "FwAct", "--l2-bytes", "0"], "l2_bytes = 0 is too small"),
        ([*GEMM, "--machine", "laptop_cpu"], "Machine laptop_cpu has the device"),
        ([*GEMM, "--set", "group_rows=3"], "group_rows"),
        ([*GEMM, "--set", "tile=64x64x32", "--set", "tile=64x128x32"], "--set requests 2 schedules at once: 2 > 1"),
        (["--trace", "absent.parquet"], "There is no trace file absent.parquet. Accepted: a Parquet file as docs"),
        (["--trace", "/"], "/ cannot be read as a trace: it is a folder."),
        (["--workloads", "FwAct", "--save", "x"], "--save is of the trace of an operator, and none is stated"),
        (["--workloads", "FwAct", "--shape", "m=3"], "--shape is of the trace of an operator"),
        (["--trace", "absent.parquet", "--world", "4"], "--world is of the trace of an operator"),
        (["--workloads", "FwAct", "--machine", "b200"], "There is no machine 'b200'"),
        ([*GEMM, "--save", "absent/t.parquet"], "The trace cannot be written to absent/t.parquet: there is no folder"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert status(["cache", *arguments]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err.replace("\n  ", " ")
    assert not captured.out
    assert captured.err.count("\n") == 1


def test_a_trace_that_is_cut_short_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    trace_file.write(trace([load(3), store(4)]), path)
    path.write_bytes(path.read_bytes()[:-20])
    assert status(["cache", "--trace", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["stage"] == "refused"


def test_a_flush_at_the_end_of_short_kernels_is_what_predicted_bypass_loses_there() -> None:
    """docs/caches.md says so of FwBwLSTM: 24 kernels; DRAM moves as much either way."""
    on, cycles = hierarchy("gcn3_hbm"), {}
    made = workload("FwBwLSTM").trace(on.units)
    assert len({chunk.kernel for chunk in made.chunks()}) == 24
    for flushes in (True, False):
        for name in ("cache_r", "predicted_bypass"):
            cycles[flushes, name] = simulate(made, replace(on, flushes=flushes), POLICIES[name]).cycles
    assert cycles[True, "cache_r"] == cycles[False, "cache_r"], "it has nothing to flush"
    assert cycles[True, "predicted_bypass"] > 1.03 * cycles[True, "cache_r"]
    assert cycles[False, "predicted_bypass"] < cycles[False, "cache_r"]
