"""Searches over measured spaces: what is a space, how blocks become one, and what each search needs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from workbench.analysis import searches
from workbench.cli import status
from workbench.machines import shipped_machine
from workbench.results import recordings
from workbench.results.recordings import Recorded

NAME = "h200_nvl2_space_all_to_all_gemm"


@pytest.fixture(scope="module")
def recorded() -> list[Recorded]:
    return recordings.recordings(NAME)


def _timed(entry: Recorded, block: str, seconds: float) -> Recorded:
    samples = ((seconds,),) * entry.measurement.trial.world
    measured = dataclasses.replace(entry.measurement, block=block, samples=samples)
    return dataclasses.replace(entry, measurement=measured)


def _wholes(recorded: list[Recorded]) -> tuple[Recorded, Recorded]:
    """A baseline of the recording and a schedule that overlaps, both of its first problem."""
    wholes = [each for each in recorded if each.measurement.trial.part == "whole" and each.measurement.correct]
    baseline = next(each for each in wholes if each.measurement.trial.schedule.scheme == "sequential")
    other = next(each for each in wholes if each.measurement.trial.schedule.scheme == "fused")
    return baseline, other


def test_times_of_two_blocks_are_made_equal_by_their_baseline(recorded: list[Recorded]) -> None:
    """The second block runs on a GPU that clocks half as high: the schedule is no slower for it."""
    baseline, other = _wholes(recorded)
    (space,) = searches.spaces([
        _timed(baseline, "a", 10.0), _timed(other, "a", 8.0), _timed(baseline, "b", 20.0), _timed(other, "b", 16.0),
    ])  # fmt: skip
    times = space.times
    assert times[other.measurement.trial.schedule] / times[baseline.measurement.trial.schedule] == pytest.approx(0.8)


def test_a_disturbed_block_that_was_timed_again_does_not_count(recorded: list[Recorded]) -> None:
    """The best took 9.06 ms, between both timings, where every other command has the quieter one's 8.08 ms."""

    def disturbed(entry: Recorded, share: float) -> Recorded:
        use = {"rank": 0, "samples": [0, 0], "cores": 2, "others_cores": 2 * share, "whom": {}}
        measured = dataclasses.replace(entry.measurement, conditions=(use,))
        assert measured.others_share == share
        return dataclasses.replace(entry, measurement=measured)

    baseline, other = _wholes(recorded)
    (space,) = searches.spaces([
        disturbed(_timed(baseline, "a", 10.0), 0.6), disturbed(_timed(other, "a", 8.0), 0.6),
        disturbed(_timed(baseline, "b", 14.0), 0.9), disturbed(_timed(other, "b", 14.0), 0.9),
    ])  # fmt: skip
    assert sorted(space.times.values()) == [8.0, 10.0]


def test_several_problems_have_one_answer_and_it_is_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["searches", "--recording", "laptop_overlap_2_ranks"]) == 0
    answer = capsys.readouterr().out.splitlines()[0]
    assert answer.startswith("Of 7 problems, the fewest measurements")
    assert "estimate first in" in answer
    assert "all in" not in answer, "measuring all of two schedules is no search"


def test_wrong_results_and_parts_are_no_schedules_of_a_space(recorded: list[Recorded]) -> None:
    baseline, other = _wholes(recorded)
    wrong = dataclasses.replace(other, measurement=dataclasses.replace(other.measurement, correct=False))
    part = dataclasses.replace(
        other, measurement=dataclasses.replace(other.measurement, trial=other.measurement.trial.of_part("compute"))
    )
    assert searches.spaces([baseline, wrong, part]) == []
    assert len(searches.spaces([baseline, wrong, part, other])) == 1


def test_each_search_needs_what_its_order_says(recorded: list[Recorded]) -> None:
    """All needs the place of the first good one, and estimate first begins with the lowest estimate."""
    space = searches.spaces(recorded, shipped_machine)[0]
    by_time = sorted(space.times, key=space.times.__getitem__)
    near = [number for number, each in enumerate(space.times, 1) if space.times[each] <= 1.02 * space.best_s]
    played = {each.kind: each for each in searches.played(space)}
    assert played["exhaustive"].needed == near[0]
    walk = searches.walked(space, "estimate_first")
    assert (walk[-1], len(walk)) == (1.0, len(space.times))
    first = min(space.times, key=lambda each: space.estimates([each])[0])
    assert walk[0] == pytest.approx(space.times[first] / space.times[by_time[0]])
    random = played["random"]
    assert random.low is not None
    assert random.high is not None
    assert random.low <= random.needed <= random.high
    stopped = played["estimate_first"]
    assert stopped.stopped_after is not None
    assert stopped.stopped_after < len(space.times)


def test_the_command_answers_first_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["searches", "--recording", NAME]) == 0
    answer = capsys.readouterr().out.splitlines()[0]
    assert "85 schedules" in answer
    assert "is within 2 %" in answer
    assert status(["searches", "--recording", NAME, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["search"] for row in document["rows"]} >= {"exhaustive", "random", "estimate_first"}
    assert document["summary"]["spaces"] == len({json.dumps(row["shape"]) for row in document["rows"]})


def test_a_run_and_a_recording_together_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status(["searches", "last", "--recording", NAME]) == 2
    assert "Accepted: a run, or --recording." in capsys.readouterr().err
    alone = tmp_path / "alone.jsonl"
    lines = recordings.paths()[NAME].read_text().splitlines()
    alone.write_text(next(line for line in lines if '"part": "whole"' in line or '"part":"whole"' in line) + "\n")
    assert status(["searches", "--recording", str(alone)]) == 2
    assert "no problem with 2 whole schedules" in capsys.readouterr().err
