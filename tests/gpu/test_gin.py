"""What the script of puts between hosts makes of its ranks' lines; the script itself needs a GPU."""

import ctypes
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.backends.base import Seat
from kernels.backends.triton import refusals
from kernels.backends.triton.gin.table import SliceTable
from kernels.fabric import parse
from kernels.schemes import expand
from tests.gpu import gin

OPERATORS = list(gin.TRIALS)
BOTH = [
    {"two_nccls": name, "order": order, "wrong": 0, "wrong_sums": 0, "sentence": None}
    for name in OPERATORS
    for order in gin.ORDERS
]
EVERYTHING = [f"{name}{way}" for way in ("", gin.LIBRARY, gin.BENCH, gin.BLOCK) for name in OPERATORS]


def line(operator: str, **other: Any) -> dict[str, Any]:
    return {"operator": operator, "wrong": 0, "sentence": None} | other


def report(failure: str, *ranks: list[dict[str, Any]]) -> dict[str, Any]:
    statuses = [0] * (len(ranks) - 1) + [-9 if failure in gin.FAILURES else 0]
    return {"world": len(ranks), "gpus": 1, "one_host": False, "failure": failure, "statuses": statuses,
            "ranks": [[{"nccl": 23203}, *lines] for lines in ranks]}  # fmt: skip


def test_a_gang_whose_ranks_finished_everything_right_has_no_trouble() -> None:
    lines = [*map(line, EVERYTHING), *BOTH]
    assert gin.troubles(report("", lines, lines)) == []
    assert gin.troubles(report("", lines, lines[:-1])) == ["2 ranks: rank 1 finished 5 of 6 orders of two NCCLs"]
    torn = [*lines[:-1], BOTH[-1] | {"wrong_sums": 7}]
    assert gin.troubles(report("", torn, lines)) == [
        "2 ranks: rank 0, all_gather_gemm, torch's first: 0 wrong values and 7 wrong sums, None"
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "rank 1 finished 0 of"),
        ([line(name, wrong=3) for name in EVERYTHING], "3 wrong values"),
        ([line(name, sentence="Rank 1 waited", wrong=None) for name in EVERYTHING], "Rank 1 waited"),
    ],
)
def test_what_a_rank_did_wrong_is_named(lines: list[dict[str, Any]], words: str) -> None:
    troubles = gin.troubles(report("", [*map(line, EVERYTHING), *BOTH], [*lines, *BOTH]))
    assert troubles
    assert words in troubles[0]


def test_the_gang_after_a_failure_runs_everything_one_way() -> None:
    lines = [line(name) for name in OPERATORS]
    assert gin.troubles(report(gin.AGAIN, lines, lines)) == []
    assert "again: rank 0 finished" in gin.troubles(report(gin.AGAIN, lines[1:], lines))[0]


def test_ranks_of_one_host_run_everything_by_peer_memory_alone() -> None:
    lines = [line(name + gin.PEER) for name in OPERATORS]
    assert gin.troubles(report("", lines, lines) | {"one_host": True}) == []
    assert gin.troubles(report("", lines[1:], lines) | {"one_host": True}) == [
        f"2 ranks{gin.PEER}: rank 0 finished 2 of 3 operators and ways"
    ]


def test_times_are_the_slowest_ranks_medians_by_operator() -> None:
    def timed(way: str, **microseconds: float) -> dict[str, Any]:
        return line(OPERATORS[0] + way, microseconds=microseconds)

    hosts = [[timed(gin.BENCH, fused=us), timed(gin.BLOCK, fused=us + 1, sequential=900.0)] for us in (300.0, 310.0)]
    peers = [[timed(gin.PEER, fused=us, sequential=50.0)] for us in (20.0, 10.0)]
    reports = [report("", *hosts), report("", *peers) | {"one_host": True}, report("killed", [], [])]
    assert gin.times(reports) == [{
        "world": 2, "gpus": 1, "operator": OPERATORS[0], "gin": 310.0, "gin_in_block": 311.0,
        "torch_nccl_in_block": 900.0, "peer": 20.0, "torch_nccl_by_peer": 50.0,
    }]  # fmt: skip


SENTENCE = "Rank 0 waited 6 s for slice 0 of rank 1 by the network: .."


PUT_SENTENCE = "Rank 0 waited 6 s for the network to take the puts of context 2: the counter was 0 instead of 1, .."


@pytest.mark.parametrize("aborted", [True, False])
@pytest.mark.parametrize("sentence", [SENTENCE, PUT_SENTENCE])
def test_after_a_failure_the_others_must_say_the_sentence_and_end(sentence: str, aborted: bool) -> None:
    survivor = line(OPERATORS[0], sentence=sentence, aborted=aborted, abort_s=1.5)
    assert gin.troubles(report("killed", [survivor], [])) == [], "an abort that lasts is survived"
    assert "without the sentence" in gin.troubles(report("killed", [line(OPERATORS[0])], []))[0]
    late = report("stopped", [survivor], []) | {"statuses": [-9, -9]}
    assert gin.troubles(late) == [
        "2 ranks, stopped: the process of rank 0 ended with status -9, or was killed 120 s after the start"
    ]


def test_how_many_aborts_ended_is_a_fact_of_the_report() -> None:
    ranks = [[line(OPERATORS[0], sentence=SENTENCE, aborted=ended, abort_s=seconds)]
             for ended, seconds in ((True, 0.25), (False, 20.0))]  # fmt: skip
    assert gin.aborts(report("killed", *ranks, [])) == {
        "world": 3, "failure": "killed", "survivors": 2, "ended": 1, "seconds": [0.25, 20.0],
    }  # fmt: skip


@pytest.mark.parametrize("world", gin.WORLDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_its_trials_cut_chunks_into_slices_that_queues_hold(name: str, world: int) -> None:
    trial = gin.trial_of(name, *gin.TRIALS[name], world)
    table = SliceTable.of_plan(expand(trial.problem, trial.schedule))
    assert table.refusal() is None
    assert len(table) > 1, "one slice would show no order"


@pytest.mark.parametrize("name", OPERATORS)
def test_ranks_of_one_host_run_the_same_axes_by_peer_memory(name: str) -> None:
    trial = gin.trial_of(name, *gin.TRIALS[name], 2, transport="peer")
    assert trial.fabric.kind == "nvlink"
    assert trial.schedule["slice_tiles"] == gin.TRIALS[name][2]["slice_tiles"]
    assert refusals.refusal(trial, shares_heap=True) is None


@pytest.mark.parametrize("name", OPERATORS)
def test_its_baseline_is_the_librarys_on_the_same_problem(name: str) -> None:
    trial = gin.trial_of(name, *gin.TRIALS[name], 2)
    shape, dtype, _ = gin.TRIALS[name]
    baseline = replace(gin.baseline_of(name, shape, dtype, 2), fabric=parse("network"))
    assert baseline.problem == trial.problem
    assert (baseline.schedule.scheme, baseline.schedule["collective"]) == ("sequential", "library")
    assert refusals.refusal(baseline, shares_heap=False) is None


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the stand-in is compiled by gcc")
def test_the_stand_in_compiles_where_ranks_look_for_it(tmp_path: Path) -> None:
    place = gin.Place(tmp_path / "out.json", tmp_path / "wheel")
    place.scratch.mkdir()
    assert gin.standin(place) == place.scratch
    assert hasattr(ctypes.CDLL(str(place.scratch / "libgdrapi.so")), "gdr_copy_to_mapping")


def test_each_rank_looks_like_a_host_of_its_own(tmp_path: Path) -> None:
    place = gin.Place(tmp_path / "out.json", tmp_path / "wheel")
    variables = gin.environment(place, 1)
    assert variables["NCCL_GDRCOPY_ENABLE"] == "1"
    assert variables["LD_LIBRARY_PATH"].startswith(str(place.scratch))
    assert "NCCL_HOSTID" not in variables, "the rank process names itself"


def seat(rank: int, *, one_host: bool = False) -> Seat:
    return Seat(rank=rank, world=2, session="s", shares_heap=one_host, rendezvous=("127.0.0.1", 1),
                addresses=("host0", "host1"))  # fmt: skip


def test_a_rank_gets_the_seat_that_its_parent_wrote() -> None:
    assert gin.seat_of(json.dumps(asdict(seat(1)))) == seat(1)


@pytest.mark.parametrize(("listed", "seen"), [(None, ["0", "1"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])])
def test_between_hosts_a_rank_sees_its_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, seen: list[str]
) -> None:
    if listed is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    variables = [gin.of_own_gpu(seat(rank)) for rank in (0, 1)]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in variables] == seen
    assert [each["NCCL_HOSTID"] for each in variables] == ["host0", "host1"]
    assert {each["NCCL_SOCKET_IFNAME"] for each in variables} == {"lo"}
    linked = gin.of_own_gpu(seat(1, one_host=True))
    assert linked["CUDA_VISIBLE_DEVICES"] == ",".join(reversed(seen)), "its own GPU first"
    assert "NCCL_HOSTID" not in linked


@pytest.mark.parametrize(("count", "worlds", "gpus"), [(1, (2, 4), [1, 1]), (2, (2,), [2]), (8, (2, 4), [2, 4])])
def test_ranks_share_a_gpu_only_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, count: int, worlds: tuple[int, ...], gpus: list[int]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert gin.worlds() == worlds
    assert list(map(gin.gpus_of, worlds)) == gpus


def test_what_times_mean_depends_on_the_gpus() -> None:
    assert "time slices of one GPU" in gin.what_times_are(1, False)
    assert "no network" in gin.what_times_are(2, False)
    assert gin.what_times_are(2, True) == "peer memory of 2 GPUs of one host"


def gangs_of_main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int) -> list[tuple[str, bool]]:
    """Failure of each gang that `main` starts for two ranks, and whether they are on one host."""
    started: list[tuple[str, bool]] = []

    def gang(_place: gin.Place, _world: int, failure: str = "", *, one_host: bool = False) -> dict[str, Any]:
        started.append((failure, one_host))
        return report(failure, [], []) | {"times_are": "", "one_host": one_host}

    monkeypatch.setattr(gin, "gang", gang)
    monkeypatch.setattr(gin, "standin", lambda place: place.scratch)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert gin.main(gin.Place(tmp_path / "out.json", tmp_path), [2]) == 1, "nobody said anything"
    return started


def test_on_gpus_of_their_own_ranks_run_by_peer_memory_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apart = [(failure, False) for failure in ("", "killed", "again", "stopped", "again")]
    assert gangs_of_main(monkeypatch, tmp_path, gpus=1) == apart
    assert gangs_of_main(monkeypatch, tmp_path, gpus=2) == [apart[0], ("", True), *apart[1:]]


def test_what_is_shipped_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    silent = report("", [], []) | {"last_words": ["a traceback"]}
    (path := tmp_path / "out.json").write_text(json.dumps(gin.document([silent])))
    one, other = json.loads(gin.shipped([path, path]))["runs"]
    assert one == other
    assert "last_words" not in one["gangs"][0]
    assert any("finished 0 of" in sentence for sentence in one["wrong"]), "what was wrong stays"
