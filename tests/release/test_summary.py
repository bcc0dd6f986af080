"""The summary says what was checked, and of host, person and folders nothing; so do those that are kept."""

import getpass
import json
import socket
from pathlib import Path

import pytest

from kernels.operators import OPERATORS
from tests.release.checks import FIRST, LAST
from tests.release.summary import FAILED, KEPT, NO_GPU, PASSED, Result, circumstances, document, private, text


def test_a_summary_names_no_host_person_address_or_folder(tmp_path: Path) -> None:
    name = socket.gethostname()
    said = (f"rank 1 ({name}-rank1 on 10.1.2.3:4567) of {getpass.getuser()} at tcp://10.1.2.3:8786 read "
            f"{tmp_path}/space.toml and ~/notes/a.txt")  # fmt: skip
    summary = document([Result("killed", FAILED, 1.0, said, {"sentences": [said]})], {})
    assert private(summary) == []
    message = summary["checks"][0]["message"]
    assert message == "rank 1 (HOST-rank1 on ADDRESS) of LOGIN at ADDRESS read PATH and PATH"
    assert summary["checks"][0]["figures"]["sentences"] == [message]


@pytest.mark.parametrize(
    "value",
    [
        {"host": "x"},
        {"checks": [{"message": "node7-rank3 hung"}]},
        "in /srv/data/x",
        "at tcp://h:1",
        "10.0.0.7",
        "~/a/b",
    ],
)
def test_what_is_private_is_seen(value: object) -> None:
    assert private(value)


@pytest.mark.parametrize("value", ["3/4 of 7 s", "tile=128x256x64, and/or", "NVIDIA H200", "2.13.0+cpu", 7, None])
def test_what_is_not_private_is_left_alone(value: object) -> None:
    assert private(value) == []


def test_a_summary_counts_and_rounds() -> None:
    results = [Result("a", PASSED, 1.23456789), Result("b", FAILED, 2.0, "why"), Result("c", PASSED, 0.5)]
    summary = document(results, {"world": 2})
    assert (summary[PASSED], summary[FAILED], summary["seconds"]) == (2, 1, 3.735)
    assert summary["checks"][0]["seconds"] == 1.235
    assert json.loads(text(summary)) == summary
    assert text(summary).count("\n") > len(results)


def test_circumstances_say_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMIT", "0123456789ab")
    facts = circumstances("cpu", 2, "quick")
    assert (facts["commit"], facts["world"], facts["gpu"]["count"]) == ("0123456789ab", 2, 0)
    assert {"python", "torch", "triton", "dask", "distributed"} <= set(facts["versions"])
    assert private(document([], facts)) == []


@pytest.mark.parametrize("path", sorted(KEPT.glob("through_dask*.json")), ids=lambda path: path.stem)
def test_a_kept_summary_is_whole_and_nameless(path: Path) -> None:
    kept = json.loads(path.read_text())
    assert private(kept) == []
    assert {FIRST, LAST, *OPERATORS} <= {each["check"] for each in kept["checks"]}
    assert {each["outcome"] for each in kept["checks"]} == {PASSED}
    assert (kept[PASSED], kept[FAILED]) == (len(kept["checks"]), 0)
    assert kept["commit"]
    assert kept["date"]
    assert kept["versions"]["torch"]
    on_gpus = kept["backend"] == "triton"
    gpus = 1 if path.stem.endswith("one_gpu") else kept["world"]
    assert (kept["gpu"]["count"] >= gpus) == on_gpus
    assert (NO_GPU in path.read_text()) != on_gpus
