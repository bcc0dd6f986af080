"""The table of two streams is written from a recording: all modes in one block, gains and losses, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.outcome import BLOCK_KIND, Measurement, Sample
from kernels.schemes import stream_controls
from kernels.trial import Trial
from tests.gpu import concurrent_summary, documents, recording, scenarios, sittings, tables
from tests.gpu.test_documents import FACTS
from tests.gpu.test_sittings import RANKS
from workbench.results import recordings

MICROSECONDS = {
    stream_controls.STREAMS: 200.0, concurrent_summary.OURS: 240.0, stream_controls.SHAPING: 230.0,
    stream_controls.PRIORITISED: 190.0, stream_controls.BOTH: 210.0, stream_controls.SHARED: 170.0,
    "sequential": 250.0, "compute": 150.0, "communication": 160.0,
}  # fmt: skip


def seconds_of(trial: Trial, scale: float) -> float:
    axes = dict(trial.schedule.axes)
    mode = stream_controls.mode(axes) or "sequential"
    if mode == stream_controls.STREAMS and axes["kernel"] == "ours":
        mode = concurrent_summary.OURS
    if mode == "sequential" and trial.part == "whole":
        return MICROSECONDS[mode] * 1e-6
    return scale * MICROSECONDS[mode if trial.part == "whole" else trial.part] * 1e-6


def measured(trials: Sequence[Trial], scale: float, at: float) -> Iterator[tuple[Measurement, list[Sample]]]:
    for trial in trials:
        samples = [Sample(trial.key, rank, n, seconds_of(trial, scale), at) for rank in (0, 1) for n in range(3)]
        by_rank = tuple(tuple(each.seconds for each in samples if each.rank == rank) for rank in (0, 1))
        correct = True if trial.part == "whole" else None
        yield Measurement(trial=trial, samples=by_rank, correct=correct, max_relative_error=0.0), samples


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two scenarios; in the second one nothing of two streams gains."""
    lines = list[str]()
    for number, (workload, scale) in enumerate((("cb-ar", 1.0), ("mb-a2a", 1.6))):
        question = sittings.Modes(scenarios.streams_problems(2)[workload][1])
        talk, came, at = question.blocks(tables.DEVICE, RANKS), None, 0
        while (block := tables.answered(talk, came)) is not None:
            at += 1
            results = list(measured(block.trials, scale, 1e9 + at))
            lines += [
                recording.recorded(
                    replace(one, facts={BLOCK_KIND: block.kind}), samples, FACTS, block=f"s.{number}.{at}"
                )
                for one, samples in results
            ]
            came = [one for one, _ in results]
    folder = tmp_path_factory.mktemp("data") / "recordings"
    folder.mkdir()
    (folder / "h200_nvl2_concurrent.jsonl").write_text("\n".join(lines) + "\n")
    return folder.parent


def test_a_row_is_of_one_block_with_all_modes_and_both_halves(recorded: Path) -> None:
    written = documents.two_streams(recorded)
    assert written is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in written.splitlines() if line[:4] == "| cb"
    ]
    size = " x ".join(str(scenarios.streams_problems(2)["cb-ar"][1][key]) for key in "mnk")
    assert rows == [[f"cb-ar {size}", "150", "160", "250, cuBLAS + NCCL", "200", "240", "230", "190", "210",
                     "170, 8 SMs, NCCL", "0.68", "6 %", "unknown"]]  # fmt: skip
    assert "| **1.09** | 6 % |" in written, "272 of 250, and 272 above 256"


def test_gains_and_losses_and_what_each_control_brings_are_said(recorded: Path) -> None:
    written = " ".join((documents.two_streams(recorded) or "").split())
    assert "In 1 of 2 scenarios no mode beats the best sequential schedule: their ratio is bold." in written
    assert "Where T_comm / T_c is 0.7 to 1.4, 1 of 2 take at most 0.75 of it, and 2 are within 12 % of the" in written
    assert "*+ priority*: 0.95 to 0.95 of the time of the same streams without it, 0.95 in the middle of 2." in written
    assert "*+ shaping*: 0.96 to 0.96" in written, "of our kernel on the same two streams"
    assert "*SM share*: 0.85 to 0.85" in written


def test_a_recording_of_two_streams_is_no_part_of_the_other_tables(recorded: Path, tmp_path: Path) -> None:
    assert documents.recordings_of(recorded) == []
    assert documents.tables(recorded) is None
    (tmp_path / "recordings").mkdir()
    assert documents.two_streams(tmp_path) is None


def test_a_wrong_result_is_in_no_row(recorded: Path) -> None:
    entries = recordings.read(recorded / "recordings" / "h200_nvl2_concurrent.jsonl")
    wrong = [replace(entry, measurement=replace(entry.measurement, correct=False))
             if entry.measurement.trial.part == "whole"
             and stream_controls.mode(dict(entry.measurement.trial.schedule.axes))
             else entry for entry in entries]  # fmt: skip
    assert concurrent_summary.lines(wrong) == []
    assert concurrent_summary.text(wrong) is None
    assert sittings.LAST in {entry.measurement.facts[BLOCK_KIND] for entry in entries}
