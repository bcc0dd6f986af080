"""Intervals hold what they promise on trials that they were not made of, in the splits of the committed protocol."""

import numpy as np
import pytest

from kernels.operators import operator
from workbench.analysis.coverage import ALL, SPLITS, Coverage, Score, coverage, coverage_text, half, judged, protocol
from workbench.analysis.residuals import Known, known
from workbench.machines import shipped_machine
from workbench.machines.calibrate_gpu import computation
from workbench.results import recordings
from workbench.simulator.intervals import LEAST, PROMISED
from workbench.simulator.predict import predict

NEARLY = 1.04
"""How much worse the interval score of one class may become while that of all becomes better."""


@pytest.fixture(scope="module")
def two() -> Known:
    return known("h200_nvl2")


@pytest.fixture(scope="module")
def every(two: Known) -> list[Coverage]:
    return coverage(two)


def test_the_splits_are_those_of_the_protocol() -> None:
    content = protocol()
    assert [*SPLITS, "next"] == [split["name"] for split in content["split"]]
    assert content["measures"]["least"] == LEAST


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLITS)
def test_no_residual_counts_for_the_trial_that_it_judges(two: Known, name: str) -> None:
    computations = np.array([computation(one.problem) for one in two.trials])
    times = np.zeros(len(two.trials), int)
    for is_judged, counted in SPLITS[name](two):
        times += is_judged
        assert not set(computations[is_judged]) & set(computations[counted])
        if name == "sitting":
            places = np.array(two.recordings)
            assert not set(places[is_judged]) & set(places[counted])
    assert (times == 1).all()
    assert {half(one) for one in computations} == {0, 1}


def test_where_a_class_has_a_hundred_unseen_trials_chance_explains_its_coverage(every: list[Coverage]) -> None:
    """Each trial's interval is made without its computation, so no problem's samples help another of itself."""
    classes = [each for each in every if not each.pooled]
    assert len(classes) >= 9
    for each in classes[:-1]:
        of_computation = each.after["computation"]
        assert of_computation.trials >= LEAST
        assert of_computation.holds, each
        assert of_computation.score <= NEARLY * each.before.score, each


def test_the_interval_score_of_all_improves(two: Known, every: list[Coverage]) -> None:
    """Wide intervals do not win: each unit of width costs as much as it does, and a miss ten times its distance.

    Without half of all computations it is up to 5 % worse than the band of the check, which was made of all of them.
    """
    whole = every[-1]
    assert (whole.name, whole.before.trials) == (ALL, len(two.trials))
    assert whole.before.trials == sum(each.before.trials for each in every[:-1]) > 1000
    assert whole.worse == ["halves"]
    assert whole.after["halves"].score <= 1.05 * whole.before.score
    assert whole.after["computation"].score < 0.95 * whole.before.score
    assert min(each.inside for each in whole.after.values()) > PROMISED - 0.04


def test_the_text_begins_with_what_is_missed(every: list[Coverage]) -> None:
    missed, by_split, by_class = coverage_text("h200_nvl2").strip().split("\n\n")
    assert missed.startswith("**Missed**")
    for each in every[:-1]:
        assert (f" {each.name} (" in missed) == bool(each.broken or each.worse)
    assert len(by_split.splitlines()) == 3 + len(SPLITS)
    assert len(by_class.splitlines()) == 2 + len(every) - 1


def test_a_recording_is_judged_by_today_s_table() -> None:
    one = recordings.recordings("h200_nvl2_alone")[0].measurement.trial
    estimate = predict(one, shipped_machine(one.machine), with_spans=False)
    made = judged([(one, estimate.time_s), (one, 2 * estimate.high_s)])
    assert [*made] == [f"compute {operator(one.problem.operator).work}", ALL]
    score, off = made[ALL]
    assert (score.trials, score.inside) == (2, 0.5)
    assert off.tolist() == pytest.approx([0, 1 - estimate.time_s / (2 * estimate.high_s)])


# By hand.


def test_a_score_holds_where_chance_explains_its_share() -> None:
    assert Score(100, 0.74, 0.1, 0.2).holds
    assert not Score(100, 0.70, 0.1, 0.2).holds
    assert not Score(1000, 0.84, 0.1, 0.2).holds


def test_a_score_is_the_width_and_ten_times_the_distance_of_a_miss() -> None:
    low, high = np.full(4, -0.1), np.full(4, 0.1)
    score = Score.of(low, high, np.array([0.0, 0.1, 0.15, -0.3]))
    assert (score.inside, score.width) == (0.5, pytest.approx(0.2))
    assert score.score == pytest.approx(0.2 + 10 * (0.05 + 0.2) / 4)
