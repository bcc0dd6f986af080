"""The command line prints one document or one table, the rest goes to stderr, and its status is the contract's."""

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from kernels.operators import OPERATORS
from kernels.outcome import ROW_KEYS
from kernels.schemes import SCHEMES
from kernels.trial import Trial
from tests.workbench.conftest import BUSY, QUIET
from workbench import cli
from workbench.cli import measuring
from workbench.cli.output import DOCUMENT_KEYS
from workbench.results.store import Store

CONTRACT = [
    "outcome", "source", "key", "run", "operator", "shape", "dtype", "world", "scheme", "axes", "backend", "machine",
    "fabric", "protocol", "regime", "time_s", "low_s", "high_s", "calibrated", "floor_s", "compute_s", "comm_s",
    "sequential_s",
    "wire_bytes_per_rank", "correct", "max_relative_error", "samples", "skew_s", "others_share", "others", "stage",
    "message", "block",
    "hardware", "source_print", "versions_print", "pipeline_floor_s", "decomposition_loss", "contention_loss",
    "ideal_speedup", "share_of_ideal", "time_ratio", "against_streams", "overlap_ratio",
]  # fmt: skip
"""DESIGN's keys of `run --json`, written out: a change of the contract is meant."""
TINY = ("gemm_all_to_all", "--preset", "tiny", "--protocol", "quick")

Answer = tuple[int, str, str]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], connected_fake: None) -> Callable[..., Answer]:
    """command(words...) -> status, stdout, stderr; what is measured, the fake cluster measures."""

    def run(*words: str, store: bool = True) -> Answer:
        status = cli.status([*words, *(("--store", str(tmp_path / "store.sqlite")) if store else ())])
        return status, *capsys.readouterr()

    return run


def document(answer: Answer) -> Any:
    """stdout is one JSON document and nothing else."""
    assert answer[1].count("\n") == 1
    return json.loads(answer[1])


def test_run_prints_the_keys_of_the_contract(command: Callable[..., Answer]) -> None:
    answer = command("run", *TINY, "--scheme", "fused", "--set", "slice_tiles=2", "--json")
    found = document(answer)
    assert answer[0] == 0
    assert list(found) == CONTRACT == list(DOCUMENT_KEYS)
    assert (found["outcome"], found["source"], found["correct"], found["samples"]) == (
        "measurement",
        "measured",
        True,
        10,
    )
    assert (found["scheme"], found["axes"]["slice_tiles"], found["world"]) == ("fused", 2, 2)
    assert None not in [found[key] for key in ("floor_s", "compute_s", "comm_s", "sequential_s", "wire_bytes_per_rank")]


def test_run_without_a_scheme_compares_three_in_one_sitting(command: Callable[..., Answer], fake_cluster: Any) -> None:
    found = document(command("run", *TINY, "--json"))
    assert [row["scheme"] for row in found["rows"]] == ["sequential", "decomposed", "fused"]
    assert all(list(row) == CONTRACT for row in found["rows"])
    assert len(fake_cluster.lists) == 2, "the link's computation, then everything together"
    assert found["summary"]["best"]["time_s"] == min(row["time_s"] for row in found["rows"])


def test_estimates_that_are_off_are_told_in_the_document_too(command: Callable[..., Answer], fake_cluster: Any) -> None:
    fake_cluster.seconds = lambda trial: 0.5 if trial.part == "compute" else 50.0
    answer = command("run", *TINY, "--json")
    (off,) = document(answer)["summary"]["off"]
    assert off["outside"] == off["count"] >= 5
    assert "`workbench calibrate` fits the machine." in answer[2]
    assert document(command("run", *TINY, "--json"))["summary"]["off"] == [], "what is known is no fresh measurement"


def test_a_person_sees_a_table(command: Callable[..., Answer]) -> None:
    status, out, _ = command("run", *TINY)
    assert status == 0
    assert "plan executed on CPU ranks" in out
    assert [f" {scheme} " in out for scheme in ("sequential", "decomposed", "fused", "concurrent")] == [True] * 3 + [
        False
    ]


def test_one_rank_alone_has_no_link(command: Callable[..., Answer]) -> None:
    alone = command("run", *TINY, "--world", "1")[1].splitlines()
    assert alone[0].endswith("float32, 1 rank")
    assert alone[1] == "laptop_cpu, protocol quick"
    assert command("run", *TINY)[1].splitlines()[1].startswith("laptop_cpu, emulated link, wire:compute 1, ")


def test_what_is_known_needs_no_cluster(
    command: Callable[..., Answer], fake_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("run", *TINY, "--json")
    monkeypatch.setattr(measuring, "connected", lambda *_, **__: pytest.fail("a cluster was asked for"))
    again = document(command("run", *TINY, "--json"))
    assert {row["source"] for row in again["rows"]} == {"recorded"}
    assert {row["outcome"] for row in again["rows"]} == {"measurement"}


def test_what_is_shown_again_says_from_which_run(command: Callable[..., Answer]) -> None:
    assert "known from" not in command("run", *TINY)[2]
    first = document(command("runs", "--json"))["rows"][0]["run"]
    said = command("run", *TINY)[2].splitlines()[-1]
    assert said.startswith(f"3 of 3 schedules are known from run {first} of 20")
    assert said.endswith(": --fresh measures them together.")
    assert "known from" not in command("run", *TINY, "--fresh")[2]


def test_what_was_measured_in_two_sittings_names_both(command: Callable[..., Answer], tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    for pieces, known in (([1], []), ([1, 2], [1]), ([1, 2], [1, 2]), ([1, 2, 4], [1, 2])):
        space.write_text('operator = "gemm_all_to_all"\npreset = "tiny"\nprotocol = "quick"\n'
                         f"[scheme.decomposed]\npieces = {pieces}\n")  # fmt: skip
        err = command("sweep", str(space))[2]
        assert err.count(" of 20") == len(known)
        assert (f"{len(known)} of {len(pieces)} schedule" in err) == bool(known)


def test_a_failed_trial_ends_with_one_and_its_document(command: Callable[..., Answer], fake_cluster: Any) -> None:
    fake_cluster.failures["fused"] = ("wrong", 1)
    answer = command("run", *TINY, "--scheme", "fused", "--json")
    found = document(answer)
    assert (answer[0], found["outcome"], found["stage"], found["correct"]) == (1, "failure", "wrong", False)
    assert (found["message"], found["time_s"]) == ("because of wrong", None)
    assert "because of wrong" in answer[2]


def test_of_two_schedules_of_a_scheme_the_one_that_failed_is_named(
    command: Callable[..., Answer], fake_cluster: Any
) -> None:
    """The table above has a time of the other one."""

    def fails(trial: Trial) -> None:
        fake_cluster.failures.pop("sequential", None)
        if trial.part == "whole" and trial.schedule.get("collective") == "library":
            fake_cluster.failures["sequential"] = ("hang", 1)

    fake_cluster.before = fails
    _, out, err = command("run", *TINY, "--scheme", "sequential", "--fabric", "shared_memory",
                          "--set", "collective=direct", "--set", "collective=library")  # fmt: skip
    assert "direct" in out
    assert "sequential collective=library has no time: because of hang" in " ".join(err.split())


def test_a_folder_that_was_named_by_mistake_is_not_made_for_the_store(
    command: Callable[..., Answer], tmp_path: Path
) -> None:
    path = tmp_path / "absent" / "store.sqlite"
    status, _, err = command("run", *TINY, "--store", str(path), store=False)
    assert (status, path.parent.exists()) == (2, False)
    assert f"The store cannot be written to {path}: there is no folder {path.parent}. Accepted" in " ".join(err.split())


def test_a_refusal_of_the_cluster_ends_with_two(command: Callable[..., Answer], fake_cluster: Any) -> None:
    fake_cluster.failures |= dict.fromkeys(("sequential", "decomposed", "fused"), ("refused", None))
    answer = command("run", *TINY, "--scheme", "decomposed", "--json")
    found = document(answer)
    assert (answer[0], found["stage"], found["scheme"]) == (2, "refused", "decomposed")


def test_predict_prints_the_same_keys(command: Callable[..., Answer]) -> None:
    answer = command("predict", *TINY, "--scheme", "decomposed", "--machine", "a100_nvl8", "--world", "8", "--json")
    found = document(answer)
    assert (answer[0], list(found)) == (0, CONTRACT)
    assert (found["outcome"], found["source"], found["machine"], found["calibrated"]) == (
        "estimate", "estimated", "a100_nvl8", False)  # fmt: skip
    assert found["floor_s"] <= found["time_s"] <= found["high_s"]


def test_several_schemes_are_rows_and_one_is_a_document(command: Callable[..., Answer]) -> None:
    for name in ("predict", "run"):
        several = document(command(name, *TINY, "--scheme", "fused", "--scheme", "sequential", "--json"))
        assert ({row["scheme"] for row in several["rows"]}, several["summary"]["status"]) == (
            {"fused", "sequential"},
            0,
        )
        assert document(command(name, *TINY, "--scheme", "fused", "--json"))["scheme"] == "fused"


def test_a_prediction_shows_what_its_speed_ups_are_over(command: Callable[..., Answer]) -> None:
    """The best baseline that anybody could pick, though nobody asked for it; a document has what was asked for."""
    words = ("gemm_all_to_all", "--shape", "m=8192", "--shape", "n=4096", "--shape", "k=1792", "--world", "2",
             "--machine", "h200_nvl2")  # fmt: skip
    lines = command("predict", *words)[1].splitlines()
    (baseline,) = (line for line in lines if "1.00x" in line)
    assert "sequential collective=direct" in baseline
    rows = document(command("predict", *words, "--json"))["rows"]
    assert [row["axes"]["collective"] for row in rows if row["scheme"] == "sequential"] == ["library"]


def test_a_prediction_and_a_run_have_one_key(command: Callable[..., Answer]) -> None:
    ran = document(command("run", *TINY, "--scheme", "fused", "--json"))
    assert document(command("predict", *TINY, "--scheme", "fused", "--json"))["key"] == ran["key"]


@pytest.mark.slow
def test_a_recommendation_is_over_the_link_that_was_measured(command: Callable[..., Answer]) -> None:
    """Its estimates stand below recorded times."""
    ran = document(command("run", *TINY, "--json"))
    found = document(command("recommend", "gemm_all_to_all", "--preset", "tiny", "--json"))
    assert {row["source"] for row in found["rows"]} == {"recorded", "estimated"}
    assert {row["fabric"] for row in found["rows"]} == {row["fabric"] for row in ran["rows"]}


def test_a_prediction_begins_no_store(command: Callable[..., Answer], tmp_path: Path) -> None:
    command("predict", *TINY)
    assert not (tmp_path / "store.sqlite").exists()


def test_sweep_measures_a_file_and_fills_in_what_is_missing(
    command: Callable[..., Answer], fake_cluster: Any, tmp_path: Path
) -> None:
    space = tmp_path / "space.toml"
    space.write_text('operator = "gemm_all_to_all"\npreset = "tiny"\nprotocol = "quick"\n[scheme.decomposed]\n'
                     "pieces = [1, 2, 4, 4096]\n")  # fmt: skip
    found = document(command("sweep", str(space), "--json"))
    assert found["summary"] | {"run": 0, "best": 0, "bests": 0, "off": 0} == {
        "run": 0, "measurement": 3, "estimate": 3, "failure": 1, "refused": 1, "stopped": False, "message": None,
        "run_again": [], "not_begun": 0, "ended_early": "", "status": 0, "status_about": None, "measure_together": None,
        "best": 0, "bests": 0, "off": 0}  # fmt: skip
    assert found["summary"]["bests"] == [found["summary"]["best"]]
    assert list(found["rows"][0]) == list(ROW_KEYS)
    fake_cluster.lists.clear()
    status, out, err = command("sweep", str(space))
    assert (status, fake_cluster.lists) == (0, [])
    assert "recorded" in out
    assert "4096 > " in out
    assert err.splitlines()[-2:] == [
        "3 measured (3 known from before), 0 failed, 1 refused. A report of them:",
        f"  workbench report last -o report.html --store {tmp_path / 'store.sqlite'}",
    ], "`last` of the usual store is another run"


def test_a_space_of_a_machine_that_is_not_here_is_estimated(command: Callable[..., Answer], tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    lines = ('operator = "gemm_all_to_all"', 'machine = "h200_nvl2"', "world = [2]", 'dtype = "bfloat16"', "[shape]",
             "m = 8192", "n = [4096, 7168]", "k = 1792", "[scheme.decomposed]", "pieces = [2, 4, 9]")  # fmt: skip
    space.write_text("\n".join(lines))
    status, _, err = command("sweep", str(space))
    assert status == 2
    assert err.endswith('in a space file machine = "laptop_cpu", or `workbench sweep --estimate`.\n')
    status, out, _ = command("sweep", str(space), "--estimate")
    assert (status, out.count("decomposed pieces=2"), out.count("1.00x")) == (0, 2, 2)
    swept = document(command("sweep", str(space), "--estimate", "--json"))
    assert [row["source"] for row in swept["rows"] if row["outcome"] == "estimate"] == ["estimated"] * 4
    assert (swept["summary"]["estimate"], swept["summary"]["failure"]) == (4, 2)
    assert not (tmp_path / "store.sqlite").exists()


def test_steady_load_is_refused_by_cpu_ranks_before_anything_runs(command: Callable[..., Answer]) -> None:
    for word in ("run", "recommend"):
        status, _, said = command(word, "gemm_all_to_all", "--preset", "tiny", "--protocol", "steady")
        assert status == 2
        assert "protocol = steady does not run on backend = cpu." in " ".join(said.split())


def test_a_recommendation_for_steady_load_is_an_estimate_where_a_card_is_described(
    command: Callable[..., Answer],
) -> None:
    words = ("gemm_all_to_all", "--shape", "m=8192", "--shape", "n=4096", "--shape", "k=1792", "--world", "2")
    status, out, _ = command("recommend", *words, "--machine", "h200_nvl2", "--protocol", "steady")
    assert status == 0
    assert " under steady load: " in out.splitlines()[0]
    _, predicted, _ = command("predict", *words, "--machine", "h200_nvl2", "--protocol", "steady")
    assert "protocol steady: under steady load" in predicted
    assert "steady" not in command("predict", *words, "--machine", "h200_nvl2")[1]
    status, _, message = command("recommend", *words, "--machine", "a100_nvl8", "--protocol", "steady")
    assert status == 2
    assert "protocol = steady has no estimate here: no file of data/power describes NVIDIA A100" in " ".join(
        message.split()
    )


def test_recommend_names_schedules_of_the_whole_space(command: Callable[..., Answer]) -> None:
    words = ("recommend", "gemm_reduce_scatter", "--preset", "tiny", "--count", "3", "--set", "steps=uniform")
    found = document(command(*words, "--all", "--json"))
    assert [row["source"] for row in found["rows"]] == ["estimated"] * 3
    assert found["summary"]["points"] > 10
    status, out, err = command(*words, "--all")
    assert (status, "points examined" in out, err) == (0, True, "")
    assert out.startswith("Not known: laptop_cpu is not calibrated. Try ")
    assert "Nobody has measured gemm_reduce_scatter" in out


def test_lists_name_everything_that_can_be_asked_for(command: Callable[..., Answer]) -> None:
    for word, key, names in (("operators", "operator", OPERATORS), ("schemes", "scheme", SCHEMES)):
        rows = document(command(word, "--json", store=False))["rows"]
        assert [row[key] for row in rows] == list(names)
        _, out, _ = command(word, store=False)
        assert all(name in out for name in names)
    printed = command("schemes", store=False)[1]
    assert "kernel, resident_blocks, comm_sms" in printed
    assert "Values for GEMM -> all-to-all with m = n = k = 1024 and 2 ranks" in printed
    assert "uniform, local_first" in printed
    assert "73 values" in printed, "many values are counted"
    (fused,) = [row for row in json.loads(command("schemes", "--json", store=False)[1])["rows"]
                if row["scheme"] == "fused"]  # fmt: skip
    assert fused["values"]["write"] == ["zero_copy", "staged"]
    assert fused["values_on_gpus"]["store"] == ["tma", "registers"]
    assert "h200_nvl8" in command("machines", store=False)[1]
    assert "laptop_overlap" in command("presets", store=False)[1]


def test_runs_are_compared_and_differences_named(command: Callable[..., Answer], fake_cluster: Any) -> None:
    fabric = ("--fabric", "emulated:bandwidth_bytes_per_second=1e8")
    first = document(command("run", *TINY, *fabric, "--json"))["summary"]["run"]
    fake_cluster.seconds = lambda trial: 2e-3
    second = document(command("run", *TINY, *fabric, "--fresh", "--json"))["summary"]["run"]
    found = document(command("compare", first, second, "--json"))
    assert [(row["ratio"], row["second_is"]) for row in found["rows"]] == [(2.0, "not compared")] * 3
    _, out, err = command("compare", first, second)
    assert "3 not compared" in out + err
    assert "Two runs take no turns" in out + err
    assert "alike" not in out + err
    assert found["summary"]["differences"] == {}
    assert second in command("runs")[1]


def test_validate_says_how_far_estimates_are_off(command: Callable[..., Answer], tmp_path: Path) -> None:
    Store(tmp_path / "store.sqlite").close()
    assert "0 measurements are stored" in command("validate")[2]
    command("run", *TINY)
    found = document(command("validate", "--json"))
    assert len(found["rows"]) == found["summary"]["count"] > 3
    row = found["rows"][0]
    assert row["error"] == pytest.approx(row["estimated_s"] / row["measured_s"] - 1)


@pytest.mark.slow
def test_a_run_is_exported_and_reported(command: Callable[..., Answer], tmp_path: Path) -> None:
    command("run", *TINY)
    for kind, ending in (("parquet", "parquet"), ("csv", "csv"), ("perfetto", "json"), ("recording", "jsonl")):
        target = tmp_path / f"run.{ending}"
        assert command("export", "last", "--to", kind, "-o", str(target))[0] == 0
        assert target.stat().st_size > 100
    for other, ending in (("csv", "parquet"), ("recording", "csv")):
        status, _, err = command("export", "last", "--to", other, "-o", str(tmp_path / f"run.{ending}"))
        assert (status, f"its ending says {ending}. Accepted: --to {ending}, or run." in err) == (2, True)
    trace = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert {event["ph"] for event in trace} == {"M", "X"}
    assert command("report", "last", "-o", str(tmp_path / "run.html"))[0] == 0
    assert b"<html" in (tmp_path / "run.html").read_bytes()[:300]


def test_every_command_about_a_busy_run_says_so_and_of_a_quiet_one_nothing(
    command: Callable[..., Answer], others_had: Callable[..., None], tmp_path: Path
) -> None:
    sentence = (
        "Others used the cores meanwhile (1.2 of 2 cores, mostly other programs): these times are not trustworthy."
    )
    for cores, says in ((QUIET, False), (BUSY, True)):
        others_had(cores)
        assert (sentence in command("run", *TINY, "--fresh")[1]) is says
        for kind in ("csv", "recording"):
            _, _, err = command("export", "last", "--to", kind, "-o", str(tmp_path / f"{cores}.{kind}"))
            assert (sentence in err) is says
    rows = list(csv.DictReader((tmp_path / f"{BUSY}.csv").read_text().splitlines()))
    assert {row["others_share"] for row in rows if row["source"] == "measured"} == {"0.6"}
    out, err = command("runs")[1:]
    busy, quiet = (line for line in out.splitlines() if "GEMM" in line)
    assert ("60 %" in busy, " 1 %" in quiet) == (True, True)
    assert "Others had more than 10 % of the cores meanwhile: 1 best time is not trustworthy." in err
    busy, quiet = (row["run"] for row in document(command("runs", "--json"))["rows"])
    assert f"Run {busy}: {sentence}" in command("compare", quiet, busy)[2]
    status, _, err = command("compare", busy, "last")
    assert (status, f"are both run {busy}: 1 run, and 2 are compared." in " ".join(err.split())) == (2, True)
    others_had(QUIET)
    command("run", *TINY, "--fresh")
    assert sentence not in command("compare", quiet, "last")[2]


def test_a_busy_run_is_no_evidence_against_estimates(
    command: Callable[..., Answer], others_had: Callable[..., None]
) -> None:
    others_had(BUSY)
    command("run", *TINY)
    summary = document(command("validate", "--json"))["summary"]
    (reason,) = summary["without_estimate"]
    assert reason["message"] == "Others used the cores while they were timed."
    assert (summary["count"], reason["count"] > 3) == (0, True)
    others_had(QUIET)
    command("run", *TINY)
    assert document(command("validate", "--json"))["summary"]["without_estimate"] == []


def test_a_terminal_without_our_signs_still_shows_the_numbers(environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "workbench.cli", "predict", *TINY]
    shown = subprocess.run(words, capture_output=True, timeout=200, env={**environment, "PYTHONIOENCODING": "ascii"})
    assert (shown.returncode, b"o estimated" in shown.stdout) == (0, True)
    assert re.search(rb"\d us +\d\.\d\dx +1\.00x +sequential", shown.stdout)


def test_every_command_and_option_says_what_it_is() -> None:
    helped = subprocess.run([sys.executable, "-m", "workbench.cli", "run", "--help"], capture_output=True, text=True,
                            timeout=200)  # fmt: skip
    assert helped.returncode == 0
    for option in ("--preset", "--shape", "--dtype", "--world", "--scheme", "--set", "--backend", "--fabric",
                   "--protocol", "--cluster", "--json"):  # fmt: skip
        assert option in helped.stdout


def test_no_help_is_cut_or_wider_than_a_terminal(command: Callable[..., Answer]) -> None:
    _, commands, _ = command("--help", store=False)
    assert "..." not in commands.replace("[ARGS]...", "")
    for name in re.findall(r"^  ([a-z-]+) {2}", commands.partition("Commands:")[2], re.MULTILINE):
        status, text, _ = command(name, "--help", store=False)
        assert (status, max(map(len, text.splitlines())) <= 80) == (0, True), text


def test_without_a_command_the_help_is_what_was_asked_for(command: Callable[..., Answer]) -> None:
    for words in ((), ("cluster",)):
        status, out, err = command(*words, store=False)
        assert (status, err) == (0, "")
        assert out.startswith(f"Usage: {' '.join(('workbench', *words))} [OPTIONS] COMMAND")
    assert command("--version", store=False) == (0, f"overlap-workbench {version('overlap-workbench')}\n", "")


def test_ctrl_c_before_anything_has_begun_says_so(
    command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.experiment.sources.predictions_and_baselines", stopped)
    assert command("predict", *TINY) == (130, "", "Stopped.\n")


def test_lists_load_neither_torch_nor_dask() -> None:
    probe = ("import sys; from workbench import cli; cli.status(['operators']); "
             "print(sorted({'torch', 'dask', 'distributed', 'pandas', 'altair'} & set(sys.modules)))")  # fmt: skip
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=200)
    assert found.stdout.splitlines()[-1] == "[]"


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_a_run_is_and_a_pipe_one_line(
    command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = command("run", *TINY)[2].splitlines()
    assert [line.rpartition(", about")[0] for line in told[:1]] == [
        "3 schedules (1 sequential, 1 decomposed, 1 fused) and 4 baselines in 1 block are measured"
    ]
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    command("run", *TINY, "--fresh")
    assert re.search(r"\d of 3 schedules, block 1 of 1, [\d,]+ samples", shown.getvalue())


def test_more_ranks_than_cores_are_warned_of(command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "usable_cores", lambda: 3)
    monkeypatch.setattr("cluster.launch.running", lambda: None)
    assert "ranks share" not in command("run", *TINY)[2]
    assert "4 ranks share 3 cores here: they take turns" in command("run", *TINY, "--world", "4")[2]
    assert "ranks share" not in command("run", *TINY, "--world", "4")[2], "what is known is not timed"


def test_a_sweep_says_what_ran_again_after_a_rank_was_lost_and_waits_no_longer_than_it_may(
    command: Callable[..., Answer], fake_cluster: Any, tmp_path: Path
) -> None:
    space = tmp_path / "space.toml"
    space.write_text('operator = "gemm_all_to_all"\npreset = "tiny"\nprotocol = "quick"\n[scheme.decomposed]\n'
                     "pieces = [1, 2, 4]\n")  # fmt: skip
    fake_cluster.dies = lambda number, trials: trials[-1] if number == 2 else None
    answer = command("sweep", str(space), "--wait", "77", "--json")
    summary = document(answer)["summary"]
    assert (answer[0], summary["measurement"], summary["failure"]) == (0, 3, 0)
    assert [(each["axes"]["pieces"], each["in_vain"]) for each in summary["run_again"]] == [
        (1, False), (2, False), (4, False)]  # fmt: skip
    assert "3 trials were broken off when a rank was lost, and ran again. because of lost" in answer[2]
    assert {limits.wait_s for limits in fake_cluster.limits} == {77.0}
    fake_cluster.dies = lambda number, trials: trials[-1] if len(trials) > 1 else None
    answer = command("sweep", str(space), "--fresh")
    assert answer[0] == 1, "what did not run is no success"
    assert "3 trials were broken off when a rank was lost; 0 ran again, 3 did not." in answer[2]


def test_a_run_is_annotated_deleted_brought_back_and_purged(command: Callable[..., Answer]) -> None:
    command("run", *TINY, "--scheme", "fused")
    run = document(command("runs", "--json"))["rows"][0]["run"]
    said = command("runs", "--note", "last", "with a cooled room", "--tag", "last", "paper,#night")
    assert said == (0, "", f"Run {run} has the note: with a cooled room\nRun {run} has the tags: night, paper.\n")
    assert command("runs", "--tag", "last", "-night")[0] == 0
    assert f"{run}: with a cooled room #paper" in command("runs")[1]
    assert f"--undo {run}` brings it back" in command("runs", "--delete", run[:-1])[2]
    listed = document(command("runs", "--json"))
    assert (listed["rows"], list(listed["summary"]["deleted"])) == ([], [run])
    assert f"Deleted, and back with --undo RUN: {run} on " in command("runs")[2]
    assert f"was deleted on {listed['summary']['deleted'][run]}" in command("compare", run, run)[2]
    assert command("runs", "--undo", "last")[2] == f"Run {run} is back.\n"
    assert document(command("runs", "--json"))["rows"][0]["tags"] == ["paper"]
    command("runs", "--delete", "last")
    assert command("runs", "--purge")[2] == "1 deleted run removed for good.\n"
    status, _, err = command("runs", "--undo", run)
    assert (status, "not one of 0 deleted runs" in err) == (2, True)


def test_what_was_exported_is_imported_as_a_run_that_was_not_measured(
    command: Callable[..., Answer], tmp_path: Path
) -> None:
    command("run", *TINY, "--scheme", "fused")
    measured = document(command("runs", "--json"))["rows"][0]["run"]
    for kind, ending in (("csv", "csv"), ("recording", "jsonl")):
        file = tmp_path / f"exported.{ending}"
        assert command("export", measured, "--to", kind, "-o", str(file))[0] == 0
        assert "none of them measured here" in command("runs", "--import", str(file))[2]
        assert "already. Nothing was stored again." in command("runs", "--import", str(file))[2]
        newest = document(command("runs", "--json"))["rows"][0]
        assert (newest["source"], newest["title"]) == ("recorded", f"imported from exported.{ending}")
    status, _, err = command("runs", "--import", str(tmp_path / "nothing.csv"))
    assert (status, "there is no such file. Nothing was stored" in err) == (2, True)


def test_a_report_into_a_folder_of_other_files_replaces_nothing(command: Callable[..., Answer], tmp_path: Path) -> None:
    command("run", *TINY, "--scheme", "fused")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    words = ("report", "last", "--to", "folder", "-o", str(folder))
    assert command(*words)[2].splitlines()[-1] == str(folder)
    assert command(*words)[2].splitlines()[-1] == f"{folder} (replaces the file that was there)"
    assert (folder / "thesis.txt").read_text() == "mine"
