"""A network that is slow enough turns the gain of puts, and the turn lies where the gain passes through 0."""

from pathlib import Path

import pytest

from workbench.analysis import between_hosts
from workbench.analysis.between_hosts import MIDDLE, case, over, turn


@pytest.mark.parametrize("quantity", ["latency_seconds", "message_seconds"])
def test_the_gain_has_the_other_sign_behind_a_turn(quantity: str) -> None:
    at = turn(2, quantity, 0.0)
    assert at.value is not None
    assert at.value > at.present
    before, behind = (case(2, *MIDDLE, over({quantity: at.value * factor}))["reduction"] for factor in (0.95, 1.05))
    assert before > 0 > behind


def test_half_of_the_gain_is_left_on_one_slower_network_and_more_on_a_faster_one() -> None:
    """The default slices change with the rate, so that the gain steps down instead of passing through its half."""
    half = turn(2, "bandwidth_bytes_per_second", 0.5)
    assert half.value is not None
    rates = (half.present, 1.01 * half.value, half.value)
    today, more, less = (case(2, *MIDDLE, over({half.quantity: rate}))["reduction"] for rate in rates)
    assert half.value < half.present
    assert more > today / 2 >= less > 0


def test_a_turn_that_lies_too_far_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_hosts, "FURTHEST", 4.0)
    assert turn(2, "latency_seconds", 0.0).value is None


@pytest.mark.slow
def test_the_document_has_the_table_that_is_computed() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    for line in between_hosts.table():
        assert line in text, line
