"""The table of pieces is written from a recording: all of one block, targets with misses first; without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.outcome import BLOCK_KIND, Measurement, Sample, Span
from kernels.trial import Trial
from tests.gpu import documents, pieces_summary, recording, scenarios, summary, tables
from tests.gpu.test_documents import FACTS
from tests.gpu.test_sittings import RANKS
from workbench.results import recordings

CALL = {"sequential": 250.0, "fused": 200.0}
"""Microseconds of a whole, by scheme; of pieces they depend on how they are cut."""
BEST, OTHERS = 180.0, 220.0
ALONE = {"compute": 150.0, "communication": 100.0}
SPANS = (
    Span("0/put/1/0", 0, "put", "copy_engine", 10e-6, 80e-6), Span("1/put/0/0", 1, "put", "copy_engine", 8e-6, 90e-6),
    Span("0/compute/-1/0", 0, "compute", "compute", 12e-6, 92e-6),
    Span("0/compute/-1/1", 0, "compute", "compute", 95e-6, 185e-6),
    Span("1/compute/-1/0", 1, "compute", "compute", 12e-6, 170e-6),
)  # fmt: skip


def microseconds(trial: Trial, scale: float) -> float:
    """*scale* is of all that overlaps, and of what moves."""
    scheme, axes = trial.schedule.scheme, dict(trial.schedule.axes)
    if trial.part != "whole":
        longer = 1.1 if scheme == "decomposed" and axes["pieces"] > 1 else 1.0
        return longer * ALONE[trial.part] * (scale if trial.part == "communication" else 1.0)
    if scheme == "sequential":
        return CALL[scheme] + (20.0 if axes.get("kernel") == "ours" or axes["collective"] != "direct" else 0.0)
    if scheme == "fused":
        return CALL[scheme]
    return (BEST if axes["pieces"] == 2 and axes.get("launches", "per_piece") == "per_piece" else OTHERS) / scale


def measured(trials: Sequence[Trial], scale: float, at: float) -> Iterator[tuple[Measurement, list[Sample]]]:
    for trial in trials:
        took = microseconds(trial, scale) * 1e-6
        samples = [Sample(trial.key, rank, n, took, at) for rank in (0, 1) for n in range(3)]
        by_rank = tuple(tuple(each.seconds for each in samples if each.rank == rank) for rank in (0, 1))
        correct = True if trial.part == "whole" else None
        spans = SPANS if trial.part == "whole" else ()
        yield Measurement(trial=trial, samples=by_rank, correct=correct, max_relative_error=0.0, spans=spans), samples


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two scenarios; the second one has little to move, and its pieces lose."""
    lines = list[str]()
    for number, (question, scale) in enumerate(zip(scenarios.questions(2), (1.0, 0.4), strict=False)):
        talk, came, at = question.blocks(tables.DEVICE, RANKS), None, 0
        while (block := tables.answered(talk, came)) is not None:
            at += 1
            results = list(measured(block.trials, scale, 1e9 + at))
            lines += [
                recording.recorded(
                    replace(one, facts={BLOCK_KIND: block.kind}), samples, FACTS, block=f"s.{number}.{at}",
                    with_spans=True,
                )
                for one, samples in results
            ]  # fmt: skip
            came = [one for one, _ in results]
    folder = tmp_path_factory.mktemp("data") / "recordings"
    folder.mkdir()
    (folder / "h200_nvl2_pieces.jsonl").write_text("\n".join(lines) + "\n")
    return folder.parent


def test_a_row_is_of_one_block_with_both_halves_and_the_fused_kernel(recorded: Path) -> None:
    written = documents.pieces(recorded)
    assert written is not None
    operators = [question.problem.operator for question, _ in zip(scenarios.questions(2), range(2), strict=False)]
    (row,) = [[cell.strip() for cell in line.strip("|").split("|")] for line in written.splitlines()
              if line.startswith(f"| `{operators[0]}`")]  # fmt: skip
    assert row[1:] == ["150", "100", "0.67", "250 (250 to 250), cuBLAS + our stores", "200",
                       "180 (180 to 180), 2 pieces", "1.39", "1.11", "58 %", "unknown"]  # fmt: skip
    assert "| **0.56** | **0.44** | -217 % |" in written, "450 us beside 250: (190 / 450 - 1) / (190 / 150 - 1)"


def test_targets_are_answered_misses_first_with_what_limits_them(recorded: Path) -> None:
    written = " ".join((documents.short_pieces(recorded) or "").split())
    missed, uneven, reached = (
        written.index("share of ideal is 58 % in the median. The target, 85 %, is **missed**."),
        written.index("0 of 1 take at most 1.05 times the longer half and 8 us. The target, all, is **missed**."),
        written.index("1.39 times as fast as the best baseline in the median. The target, 1.3, is reached."),
    )
    assert missed < uneven < reached
    assert "at least 0.5 of the longer: 1 of 2." in written
    assert "1.11 times as fast as the best of all others, our fused kernel included." in written
    assert "takes 30.0 us more than its longer half, which takes 150 us alone" in written
    assert "takes 5.0 us longer than the timed ones. In them the longer half begins 12.0 us after" in written
    assert "and is under way 20.0 us longer than alone in one piece" in written
    assert "Alone, pieces take 1.10 (computation) and 1.10 (communication) of the whole." in written
    assert "| all | 1 | 58 % | 1.39 | 1.11 | 0 of 1 | 1 of 2 | 1 of 2 |" in written


def test_a_recording_of_pieces_is_no_part_of_the_other_tables(recorded: Path, tmp_path: Path) -> None:
    assert documents.recordings_of(recorded) == []
    assert documents.tables(recorded) is None
    assert documents.two_streams(recorded) is None
    (tmp_path / "recordings").mkdir()
    assert documents.pieces(tmp_path) is None
    assert documents.short_pieces(tmp_path) is None


def test_pieces_of_ours_are_no_baseline(recorded: Path) -> None:
    rows = summary.joined(recordings.read(recorded / "recordings" / "h200_nvl2_pieces.jsonl"))
    assert {row["scheme"] for row in rows} == {"sequential", "fused", "decomposed"}
    assert {row["scheme"] for row in summary.baselines(rows)} == {"sequential"}


def test_a_wrong_result_is_in_no_row(recorded: Path) -> None:
    entries = recordings.read(recorded / "recordings" / "h200_nvl2_pieces.jsonl")
    wrong = [replace(entry, measurement=replace(entry.measurement, correct=False))
             if entry.measurement.trial.schedule.scheme == "decomposed" and entry.measurement.trial.part == "whole"
             else entry for entry in entries]  # fmt: skip
    assert len(pieces_summary.lines(entries)) == 2
    assert pieces_summary.lines(wrong) == []
    assert pieces_summary.short(wrong) is None


def test_where_copies_take_longer_they_are_what_the_call_waits_for() -> None:
    row = {"spans": SPANS, "whole_s": 60e-6, "transfer_s": 80e-6, "time_s": 180e-6}
    told = pieces_summary.limits(row)
    assert told is not None
    assert (told.before_s, told.between_s, told.after_s) == pytest.approx((8e-6, 0.0, 95e-6))
    assert (told.slower_s, told.traced_s) == pytest.approx((2e-6, 5e-6))
    assert pieces_summary.limits({**row, "spans": ()}) is None
