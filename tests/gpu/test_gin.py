"""What the script of puts between hosts makes of its ranks' lines; the script itself needs a GPU."""

import ctypes
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
    return {"world": len(ranks), "failure": failure, "statuses": statuses,
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


SENTENCE = "Rank 0 waited 6 s for slice 0 of rank 1 by the network: .."


@pytest.mark.parametrize("aborted", [True, False])
def test_after_a_failure_the_others_must_say_the_sentence_and_end(aborted: bool) -> None:
    survivor = line(OPERATORS[0], sentence=SENTENCE, aborted=aborted, abort_s=1.5)
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


def test_what_is_shipped_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    report = {"world": 2, "failure": "", "seconds": 1.0, "statuses": [1, 1], "ranks": [[], []],
              "last_words": ["a traceback"]}  # fmt: skip
    (path := tmp_path / "out.json").write_text(json.dumps(gin.document([report])))
    one, other = json.loads(gin.shipped([path, path]))["runs"]
    assert one == other
    assert "last_words" not in one["gangs"][0]
    assert any("finished 0 of" in sentence for sentence in one["wrong"]), "what was wrong stays"
