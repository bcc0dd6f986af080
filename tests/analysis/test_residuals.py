"""The committed residuals are those of today's estimates, and bounds are made of them as they say."""

import json
from typing import Any

import numpy as np
import pytest

from workbench.analysis import residuals
from workbench.analysis.residuals import (
    FEWEST,
    MACHINES,
    Known,
    Unseen,
    cards,
    cross_conformal,
    known,
    quantile,
    tails,
)
from workbench.simulator import intervals
from workbench.simulator.intervals import LEAST, PROMISED, UNIT
from workbench.simulator.predict import PREDICTOR


@pytest.fixture(scope="module")
def two() -> Known:
    return known("h200_nvl2")


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return dict(json.loads(intervals.path().read_text()))


# The table.


@pytest.mark.slow
def test_the_table_is_that_of_today_s_estimates_and_recordings(content: dict[str, Any], two: Known) -> None:
    again = "other estimates than today's: python -m workbench.analysis.residuals > data/checks/residuals.json"
    assert (content["predictor"], content["promised"], content["unit"]) == (PREDICTOR, PROMISED, UNIT), again
    spreads = cards()
    assert content["cards"] == spreads
    for each in (two, *map(known, MACHINES[1:])):
        of_today = json.loads(json.dumps(residuals._entry(each, spreads)))
        assert content["machines"][each.machine.name] == of_today, again
    assert tuple(content["machines"]) == MACHINES


def test_the_bounds_of_a_small_class_are_wider_and_say_so(content: dict[str, Any]) -> None:
    bounds = content["machines"]["h200_nvl2"]["bounds"]
    small = bounds["whole embedding_all_to_all fused"]
    assert small["pooled"]
    assert small["trials"] < LEAST
    assert small["low"] <= bounds["whole"]["low"]
    assert small["high"] >= bounds["whole"]["high"]
    assert not bounds["whole gemm_all_to_all sequential"]["pooled"]


# By hand.


def test_a_quantile_counts_one_more_value_than_there_are() -> None:
    values = np.arange(1.0, 10.0)
    assert quantile(values, 0.9) == 9.0
    assert quantile(values, 0.5) == 5.0
    assert quantile(values, 0.99) == 9.0


def test_tails_leave_out_a_tenth_on_both_sides_and_hold_zero() -> None:
    low, high = tails(np.linspace(-1, 1, 999))
    assert (low, high) == (pytest.approx(-0.8, abs=0.01), pytest.approx(0.8, abs=0.01))
    low, high = tails(np.linspace(1, 2, 999))
    assert low < 0 < high


def test_bounds_know_that_computations_differ_more_than_the_trials_of_one() -> None:
    """Trials of one computation are off together: bounds of all of them are too narrow for the next computation."""
    drawn = np.random.default_rng(20261126)
    inside = {"tails": list[float](), "cross": list[float]()}
    for _ in range(60):
        shifts = drawn.normal(0, 1, 13)
        values = np.repeat(shifts, 12) + drawn.normal(0, 0.1, 156)
        groups, new = np.repeat(np.arange(12), 12), values[144:]
        for name, (low, high) in {"tails": tails(values[:144]), "cross": cross_conformal(values[:144], groups)}.items():
            inside[name].append(float(np.mean((low <= new) & (new <= high))))
    assert np.mean(inside["tails"]) < np.mean(inside["cross"])
    assert 0.7 < np.mean(inside["cross"]) < 0.92


def test_a_class_of_its_own_needs_a_hundred() -> None:
    names = [("whole a fused", "whole gemm fused", "whole gemm", "whole")] * LEAST
    names += [("whole b fused", "whole gemm fused", "whole gemm", "whole")] * FEWEST
    unseen = Unseen(np.array(names), np.linspace(-0.1, 0.1, len(names)), np.arange(len(names)) % 7)
    assert unseen.class_of(names[0]) == "whole a fused"
    assert unseen.class_of(names[-1]) is None
    low, high = unseen.bounds(names[-1])
    assert low <= tails(unseen.values)[0]
    assert high >= tails(unseen.values)[1]
