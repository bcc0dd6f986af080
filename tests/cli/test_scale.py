"""`predict-collective` and `predict-step` as one types them: documents, tables, refusals, and how long they take."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench import cli

LEVEL = "[[dimension]]\ntopology = 'switch'\ncount = {}\nbandwidth_bytes_per_second = {}\nlatency_seconds = 1e-6\n"
COLLECTIVE = ("predict-collective", "all_to_all", "--bytes", "67108864")
STEP = ("predict-step", "dlrm")


@pytest.fixture
def fabric(tmp_path: Path) -> str:
    """A file of 8 x 4 ranks."""
    path = tmp_path / "pod.toml"
    path.write_text(LEVEL.format(8, 4.5e11) + LEVEL.format(4, 5e10))
    return str(path)


@pytest.fixture
def answered(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """answered(words...) -> the one document on stdout."""

    def run(*words: str) -> Any:
        assert cli.status([*words, "--json"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out)

    return run


def test_a_collective_is_a_document(answered: Callable[..., Any], fabric: str) -> None:
    made = answered(*COLLECTIVE, "--algorithm", "direct", "--fabric", fabric)
    assert (made["world"], made["bytes"], made["algorithm"]) == (32, 67108864, "direct")
    assert made["time_s"] > made["bound_s"] == pytest.approx(67108864 * 3 / 4 / 5e10)


def test_all_algorithms_are_rows(answered: Callable[..., Any], fabric: str) -> None:
    made = answered(*COLLECTIVE, "--fabric", fabric)
    assert [row["algorithm"] for row in made["rows"]] == [
        "ring",
        "direct",
        "pairwise",
        "halving_doubling",
        "hierarchical",
    ]


def test_a_step_has_a_row_for_each_configuration(answered: Callable[..., Any]) -> None:
    made = answered(*STEP, "--machine", "h200_ib", "--world", "1024")
    assert [row["configuration"] for row in made["rows"]] == ["fused_forward", "fused_backward", "fused", "decomposed"]
    assert {row["source"] for row in made["rows"]} == {"estimated"}
    assert all(row["world"] == 1024 and 0 < row["fused_s"] < row["baseline_s"] for row in made["rows"])
    assert made["summary"]["provenance"]["embedding.dim"].startswith("recalled")


def test_the_first_line_of_a_step_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status([*STEP, "--world", "128", "--network-rate", "25e9", "--network-rate", "50e9"]) == 0
    answer = capsys.readouterr().out.splitlines()[0]
    assert answer.startswith("At best, with fused at 50 GB/s, the step takes ")
    assert " by estimate, " in answer
    assert " less than sequential, " in answer


def test_rates_and_shares_span_a_band(answered: Callable[..., Any]) -> None:
    made = answered(*STEP, "--world", "128", "--network-rate", "25e9", "--network-rate", "50e9", "--dense-scale", "1",
                    "--dense-scale", "4", "--configuration", "fused")  # fmt: skip
    assert len(made["rows"]) == 4
    low, high = made["summary"]["reduction_spans"]["fused"]
    assert low < high == max(row["reduction"] for row in made["rows"])


def test_another_fabric_replaces_the_machines(answered: Callable[..., Any], fabric: str) -> None:
    made = answered(*STEP, "--fabric", fabric, "--world", "32")
    assert {row["network"] for row in made["rows"]} == {"8 x 4"}


def test_a_model_is_a_file(answered: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("name = 'mine'\ntitle = 'Mine'\nsource = 'me'\ndtype = 'float16'\ntraining = false\nsamples = 512\n"
                    "[[layer]]\nname = 'mlp'\nkind = 'gemm_all_reduce'\nn = 1024\nk = 512\n")  # fmt: skip
    made = answered("predict-step", str(path), "--world", "16")
    assert [row["configuration"] for row in made["rows"]] == ["fused", "decomposed"]
    assert {row["model"] for row in made["rows"]} == {"mine"}


BAD = {
    "no model": (("predict-step", "gpt"), "There is no model 'gpt'. Accepted: dlrm, "),
    "a folder": (("predict-step", "/tmp"), "/tmp cannot be read as a model: it is a folder. Accepted: a TOML file"),
    "a file of another kind": (("predict-step", __file__), "cannot be read as a model: it ends in '.py'"),
    "no rank": ((*STEP, "--world", "0"), "world = 0 is too small: 0 < 1"),
    "beyond the machine": ((*STEP, "--world", "9000"), "world = 9000 is too large for h200_ib, which links 8192 ranks"),
    "no whole hosts": ((*STEP, "--world", "12"), "12 ranks do not fill the levels 8 x 1024 of h200_ib evenly"),
    "another world than the file's": ((*STEP, "--fabric", "{fabric}", "--world", "16"), "multiply to 32, not to 16"),
    "beyond the file": ((*STEP, "--fabric", "{fabric}", "--world", "64"), "too large for pod, which links 32 ranks"),
    "no machine": ((*STEP, "--machine", "h300"), "h300"),
    "no configuration": ((*STEP, "--configuration", "magic"), "There is no configuration 'magic'"),
    "no rate": ((*STEP, "--network-rate", "0"), "network rate = 0 is outside 1 to 1e+18. Accepted: 1 to 1e+18"),
    "endless rate": ((*STEP, "--network-rate", "1e300"), "network rate = 1e+300 is outside 1 to 1e+18. Accepted"),
    "almost no rate": ((*STEP, "--network-rate", "1e-300"), "network rate = 1e-300 is outside 1 to 1e+18. Accepted"),
    "endless scale": ((*STEP, "--dense-scale", "1e300"), "dense scale = 1e+300 is outside 1e-06 to 1e+06. Accepted"),
    "no probability": ((*STEP, "--stragglers", "2"), "stragglers = 2 is no probability. Accepted: 0 to 1"),
    "faster than usual": ((*STEP, "--slowdown", "0.5"), "slowdown = 0.5 is outside 1 to 1,000,000"),
    "no share": ((*STEP, "--imbalance", "3"), "imbalance = 3 is no share. Accepted: 0 to 1"),
    "batch not divided": (("predict-step", "dlrm_dcnv2", "--world", "24"), "24 ranks do not fill"),
    "no collective": (("predict-collective", "gossip", "--bytes", "1"), "There is no collective 'gossip'"),
    "inside of nothing": ((*COLLECTIVE, "--algorithm", "direct", "--inside", "ring"), "inside = ring changes nothing"),
    "bytes cut into nothing": ((*COLLECTIVE, "--chunks", "100000000000"), "into messages of less than one"),
    "ranks not divided": ((*COLLECTIVE, "--world", "7"), "Accepted: counts that do, such as 2, 4, 8."),
    "no algorithm": ((*COLLECTIVE, "--algorithm", "tree"), "There is no algorithm 'tree'. Accepted: ring, direct"),
    "no bytes": (("predict-collective", "all_to_all", "--bytes", "0"), "bytes = 0 is not between 0 and 1e+18. Acc"),
    "no size": (("predict-collective", "all_to_all", "--bytes", "100 miles"), "'100 miles' is no number of bytes. Acc"),
    "two networks": ((*COLLECTIVE, "--fabric", "{fabric}", "--machine", "h200_ib"), "2 networks, and 1 is needed"),
    "no such file": ((*COLLECTIVE, "--fabric", "none.toml"), "There is no fabric file none.toml"),
}  # fmt: skip


@pytest.mark.slow(keeps=24)
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_one_sentence(case: str, fabric: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, sentence = BAD[case]
    assert cli.status([word.format(fabric=fabric) for word in words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err


@pytest.mark.parametrize("command", [COLLECTIVE, STEP], ids=lambda words: words[0])
def test_a_table_fits_a_terminal(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.status(list(command)) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if not line.endswith(".")]
    assert max(map(len, table)) <= 80
    assert "estimates" in " ".join(lines)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(("world", "starts"), [(1024, 3.0), (8192, 9.0)])
def test_a_step_is_quick(world: int, starts: float) -> None:
    """A process's start included: 1 s for 1,024 ranks where the libraries alone take a third of one.

    The bound is a multiple of what importing these libraries costs in the same seconds, in CPU time: a computer
    whose cores are shared or clocked down does both slower.
    """
    step = ("-m", "workbench.cli", *STEP, "--world", str(world), "--json")
    assert any(processor_seconds(*step) < starts * processor_seconds("-c", LIBRARIES) for _ in range(3))


LIBRARIES = "import asyncio, numba, numpy, pydantic, typer"


def processor_seconds(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True,
                   capture_output=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
