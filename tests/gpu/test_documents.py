"""Documents say of GPUs what files hold: tables, counts and times are written from them; tested without a GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.outcome import BLOCK_KIND, Measurement, Sample
from kernels.trial import Trial
from tests.gpu import documents, litmus, recording, sittings, summary, tables
from tests.gpu.sittings import Question
from tests.gpu.test_sittings import GEMM, RANKS
from tests.house.test_plain_english import faults, prose
from workbench.results import recordings
from workbench.results.recordings import Recorded

ROOT = Path(__file__).parents[2]
OLD = sorted((ROOT / "data" / "recordings").glob("h200_nvl4_*.jsonl"))
FACTS = {
    "gpus": "2 x NVIDIA H200",
    "versions": {"torch": "2.11.0"},
    "git_commit": "abc",
    "date": "2026-11-23T01:00:00Z",
}
Times = dict[tuple[str, str], float]
"""Microseconds by scheme and by collective, or part for what is no whole."""
TIMES: Times = {
    ("sequential", "library"): 300.0, ("sequential", "library_tuned"): 280.0, ("sequential", "direct"): 264.0,
    ("sequential", "copy_engine"): 290.0, ("fused", "whole"): 176.0, ("sequential", "compute"): 160.0,
    ("fused", "compute"): 158.0, ("sequential", "communication"): 110.0,
}  # fmt: skip


@pytest.mark.slow
def test_the_documents_say_what_the_files_hold() -> None:
    """`python -m tests.gpu.documents` writes them; a file that is not there yet leaves its sentence as it is."""
    wrong = [f"{piece.document}, {piece.name}: {said[:300]}\n  should be: {made[:300]}"
             for piece, said, made in documents.differing(ROOT)]  # fmt: skip
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("piece", documents.PIECES, ids=lambda piece: piece.name)
def test_each_piece_has_its_place(piece: documents.Piece) -> None:
    found = documents.between(piece.name).findall((ROOT / piece.document).read_text())
    assert len(found) == 1, f"{piece.document} has {len(found)} places for {piece.name}"


def seconds_of(trial: Trial, times: Times) -> float:
    name = str(trial.schedule.get("collective")) if trial.part == "whole" else trial.part
    if trial.schedule.scheme == "fused" and trial.part == "whole":
        name = "whole"
    return times[trial.schedule.scheme, name] * 1e-6


def measured(trials: Sequence[Trial], times: Times, at: float) -> Iterator[tuple[Measurement, list[Sample]]]:
    for trial in trials:
        took = seconds_of(trial, times)
        samples = [Sample(trial.key, rank, n, took * (1 + 0.01 * (n - 1)), at) for rank in (0, 1) for n in range(3)]
        by_rank = tuple(tuple(each.seconds for each in samples if each.rank == rank) for rank in (0, 1))
        facts = {"operand_sets": 8, "operand_times_l2": 3.1}
        correct = True if trial.part == "whole" else None
        yield Measurement(trial=trial, samples=by_rank, correct=correct, max_relative_error=0.0, facts=facts), samples


def recorded(folder: Path, question: Question, by_block: dict[str, Times], protocol: Any = tables.DEVICE) -> Path:
    """A recording of *question*: the blocks take what is said by their kind."""
    talk, came, lines, number = sittings.talk(question, protocol, RANKS), None, list[str](), 0
    while (block := tables.answered(talk, came)) is not None:
        number += 1
        found = list(measured(block.trials, by_block[block.kind], 1e9 + number))
        lines += [
            recording.recorded(with_kind(one, block), samples, FACTS, block=f"t.{number}") for one, samples in found
        ]
        came = [one for one, _ in found]
    path = folder / f"h200_nvl2_{protocol.name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def with_kind(one: Measurement, block: sittings.Block) -> Measurement:
    return replace(one, facts={**one.facts, BLOCK_KIND: block.kind})


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """The recording of one problem whose fused schedules were slower in the first of their two blocks."""
    noisy = {place: 2 * time for place, time in TIMES.items()} | {("fused", "whole"): 400.0}
    return recorded(tmp_path, GEMM, {"first": TIMES, "further": noisy, "last": TIMES})


def cells(text: str, operator: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if f"`{operator}`" in line
    ]


def test_a_row_is_of_one_block_with_its_floor_and_what_is_exposed(new: Path) -> None:
    text = documents.text(recordings.read(new))
    times, exposed = cells(text, "gemm_all_to_all")
    assert times == ["`gemm_all_to_all` 8192 x 4096 x 1792", "158", "156", "264 (261 to 267), cuBLAS + our stores",
                     "176 (174 to 178)", "0.67", "unknown"]  # fmt: skip
    assert exposed == [times[0], "122", "106", "18.0", "15 %"]
    assert "their ratio is 12.0 % from the one shown" in " ".join(text.split()), "1 - (176 / 264) / (400 / 528)"
    assert "8 sets of operands" in " ".join(text.split())
    assert "faster than the best baseline in all 1 rows" in " ".join(text.split())


@pytest.mark.parametrize(("reasons", "regime"), [(["power cap"], "steady"), ([], "burst")])
def test_a_row_names_the_regime_that_its_readings_say(new: Path, reasons: list[str], regime: str) -> None:
    readings = tuple({"rank": rank, "sm_clock_mhz": 1500, "power_watts": 690, "throttled": reasons} for rank in (0, 1))
    entries = [
        replace(each, measurement=replace(each.measurement, conditions=readings)) for each in recordings.read(new)
    ]
    text = documents.text(entries)
    assert cells(text, "gemm_all_to_all")[0][-1] == regime
    assert ("*Regime* is of a row's block: *burst* where 90 % of" in " ".join(text.split())) == bool(reasons), (
        "where all are bursts, nothing to say"
    )


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}, "multicast was off for NCCL and torch."),
        ({"NCCL_NVLS_ENABLE": "0"}, "multicast was off for NCCL."),
        ({"NCCL_GRAPH_REGISTER": "0"}, "NCCL did not register the buffers of graphs, neither here"),
        ({"NCCL_NVLS_ENABLE": "1", "NCCL_GRAPH_REGISTER": "1"}, ""),
        ({}, ""),
    ],
)
def test_what_is_said_of_multicast_and_registration_is_what_ranks_recorded(
    new: Path, told: dict[str, str], said: str
) -> None:
    entries = [
        replace(each, measurement=replace(each.measurement, facts={**each.measurement.facts, "nccl": told}))
        for each in recordings.read(new)
    ]
    text = " ".join(documents.text(entries).split())
    assert said in text
    assert text.count("multicast was off") == said.count("multicast was off")
    assert text.count("did not register") == said.count("did not register")
    assert "multicast" not in " ".join(summary.INTRO.split()), "no run says so by itself"


def test_one_call_per_graph_stands_beside_many(new: Path, tmp_path: Path) -> None:
    slower = TIMES | {("fused", "whole"): 270.0}
    once = recorded(tmp_path, GEMM, dict.fromkeys(("first", "further", "last"), slower), tables.HOW["latency"])
    text = documents.text([*recordings.read(new), *recordings.read(once)])
    *_, single = cells(text, "gemm_all_to_all")
    assert single[-3:] == ["**1.02**", "0.67", "unknown"]


def test_nothing_is_compared_across_blocks_or_files(new: Path, tmp_path: Path) -> None:
    """A fused schedule alone in its block has no row, however fast a baseline of another block or file was."""
    lines = [json.loads(line) for line in new.read_text().splitlines()]
    apart = tmp_path / "h200_nvl2_apart.jsonl"
    kept = [line for line in lines if line["block"] == "t.1" or (line["block"] == "t.3" and line["scheme"] == "fused")]
    apart.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert cells(documents.text(recordings.read(apart)), "gemm_all_to_all") == []


def test_wrong_results_are_nobodys_time(new: Path) -> None:
    entries = recordings.read(new)
    for number, each in enumerate(entries):
        if each.measurement.trial.schedule.get("collective") == "direct":
            entries[number] = replace(each, measurement=replace(each.measurement, correct=False))
    times, _ = cells(documents.text(entries), "gemm_all_to_all")
    assert "our stores" not in times[3]


def rows_of(entries: Sequence[Recorded]) -> int:
    return sum(map(len, summary.lines(summary.joined(entries)).values()))


def test_a_problem_whose_last_block_has_no_right_fused_time_has_no_row(new: Path) -> None:
    entries = recordings.read(new)
    wrong = [
        replace(each, measurement=replace(each.measurement, correct=False))
        if each.measurement.block == "t.3" and each.measurement.trial.schedule.scheme == "fused"
        else each
        for each in entries
    ]
    assert (rows_of(entries), rows_of(wrong)) == (1, 0), "its further block has a fused time, which nobody chose"


def test_older_recordings_are_a_table_of_their_own(new: Path) -> None:
    text = documents.text([*recordings.read(new), *(entry for path in OLD for entry in recordings.read(path))])
    assert "**Two GPUs, 2026-11-23: microseconds of one call**" in text
    older = text[text.index("**Four GPUs, older kernels, 2026-11-21: microseconds of one call**") :]
    assert "pipeline floor" not in older, "puts were not measured on four GPUs"
    assert "adds to the computation" not in older
    assert "two known faults" in older
    assert len(cells(older, "gemv_all_reduce")) == 12


def test_what_is_written_is_plain_english(new: Path) -> None:
    text = documents.text([*recordings.read(new), *(entry for path in OLD for entry in recordings.read(path))])
    assert [fault for words in prose(text) for fault in faults(words)] == []


@pytest.fixture
def project(tmp_path: Path, new: Path) -> Path:
    """A folder with the documents, a recording with blocks, and all probes."""
    for name in {piece.document for piece in documents.PIECES}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    data = tmp_path / "data"
    for name in ("recordings", "probes"):
        (data / name).mkdir(parents=True)
    shutil.move(new, data / "recordings" / "h200_nvl2_gemm.jsonl")
    counts = {"data and flag, no barrier": (19204, 33819), litmus.CERTAIN: (1000000, 1000000), "bulk, no drain": (0, 1)}
    rows = [{"rank": rank, "name": each.name, "breaks": each.breaks, "rounds": 1_000_000, "failure": None,
             "load_gb_per_s": 255.0 + 97 * rank, "broken": counts.get(each.name, (0, 0))[rank]}
            for each in litmus.VARIANTS for rank in (0, 1)]  # fmt: skip
    stamped = [{"operator": name, "tick_s": 32e-9, "slower_percent": more} for name, more in
               (("gemv_all_reduce", 0.83), ("gemm_all_to_all", -0.2))]  # fmt: skip
    probes: dict[str, dict[str, Any]] = {
        "litmus": {"rows": rows}, "stamps": {"rows": stamped},
        "tutorial": {"seconds": {"torch + NCCL": 380.6e-6, "fused, rotated": 98.2e-6, "fused, natural": 120e-6}},
    }  # fmt: skip
    for name, told in probes.items():
        recording.write(data / "probes" / f"h200_nvl2_{name}.json", {"provenance": FACTS, "world": 2, **told})
    return tmp_path


def test_documents_are_rewritten_once_and_keep_what_is_around(project: Path) -> None:
    assert documents.rewrite(project) == ["results", "gpus", "tutorial", "litmus", "stamps"]
    assert documents.rewrite(project) == []
    readme, fused, backend = (
        (project / name).read_text() for name in ("README.md", "docs/results/fused.md", "docs/gpu-backend.md")
    )
    assert "on two H200s 98 µs against 381 µs of torch and NCCL" in readme
    assert "| 2, 2026-11-23, unknown | 264 µs, cuBLAS + our stores | 176 µs, `fused` | 0.67 |" in readme
    assert "Of all 1 problems measured with `fused`, 0 are not faster" in readme
    assert "## Clusters and classes" in readme
    assert "176 (174 to 178) | 0.67 | unknown |" in fused
    assert "none of the right ways broke" in backend
    assert "without the barrier 19,204 and 33,819" in backend
    assert "without `drain` 0 and 1" in backend
    unbroken = "without the acquire or where blocks counted themselves in relaxed or with packets in two halves."
    assert f"None broke with a relaxed signal or {unbroken}" in backend
    assert "stamps cost at most 0.8 % of a call (`gemv_all_reduce`)" in backend
    assert [fault for text in (readme, fused, backend) for words in prose(text) for fault in faults(words)] == []


def test_an_empty_or_partial_table_leaves_older_rows_alone(project: Path, tmp_path: Path) -> None:
    """Of two problems that were recorded before there were blocks, a new table has one."""
    folder, sizes = project / "data" / "recordings", []
    for number, question in enumerate((GEMM, list(tables.gemm(2))[1])):
        (tmp_path / str(number)).mkdir()
        made = recorded(tmp_path / str(number), question, dict.fromkeys(("first", "further", "last"), TIMES))
        lines = [json.loads(line) for line in made.read_text().splitlines()]
        kept = [line | {"block": None, "facts": {}} for line in lines if line["block"] == "t.3"]
        (folder / f"h200_nvl2_old{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
        sizes.append(" x ".join(str(size) for _, size in question.problem.shape))
    (folder / "h200_nvl2_embedding.jsonl").touch()
    shown = cells(documents.tables(project / "data") or "", "gemm_all_to_all")
    assert {row[0] for row in shown} == {f"`gemm_all_to_all` {size}" for size in sizes}
    (folder / "h200_nvl2_gemm.jsonl").write_text("")
    assert documents.tables(project / "data") is None, "nothing new, so that the page stays as it is"


def test_a_number_that_a_file_does_not_hold_is_found(project: Path) -> None:
    documents.rewrite(project)
    path = project / "README.md"
    path.write_text(path.read_text().replace("on two H200s 98 µs", "on two H200s 90 µs"))
    assert [piece.name for piece, *_ in documents.differing(project)] == ["tutorial"]


def test_without_files_nothing_is_rewritten(project: Path) -> None:
    shutil.rmtree(project / "data" / "probes")
    (project / "data" / "probes").mkdir()
    shutil.rmtree(project / "data" / "recordings")
    (project / "data" / "recordings").mkdir()
    assert documents.rewrite(project) == []


def test_todays_recordings_have_a_row_for_every_problem_with_both() -> None:
    found = summary.lines(summary.joined(summary.read(documents.recordings_of(ROOT / "data"))))
    assert set(found) >= {summary.MANY}
    assert all(0.2 < line.ratio < 2.0 for mine in found.values() for line in mine)
    assert all(line.floor_s is None or line.fused["time_s"] > 0.97 * line.floor_s for line in found[summary.MANY])


def test_the_short_table_has_the_best_and_the_worst_row_of_each_group() -> None:
    rows = [line for line in (documents.results(ROOT / "data") or "").splitlines() if line.startswith("| `")]
    ratios = [float(row.split("|")[-2].strip(" *")) for row in rows]
    assert len(rows) == 8
    assert all(best < worst for best, worst in zip(ratios[::2], ratios[1::2], strict=True))
    assert min(ratios) < 0.7, "a win"
    assert max(ratios) > 1.0, "and a loss"
