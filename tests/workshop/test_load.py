"""A small class presses Run for twenty seconds: everybody gets points, in turn, and what is equal is measured once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workshop.load import Load, played

pytestmark = [pytest.mark.alone, pytest.mark.slow]


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return played(Load(clients=6, seconds=20.0))


def test_everybody_gets_points_and_no_trial_is_lost(figures: dict[str, Any]) -> None:
    assert figures["first_point_s"]["worst"] is not None
    assert figures["granted_s"]["least"] > 0
    assert figures["runs"] >= figures["clients"]
    assert figures["failed_trials"] == 0


def test_who_waits_sees_the_place(figures: dict[str, Any]) -> None:
    assert figures["saw_their_place"] > 0
    assert 0 < figures["longest_queue_seen"] < figures["clients"]


def test_equal_lists_are_measured_once(figures: dict[str, Any]) -> None:
    of_their_own = figures["runs"] - figures["lesson_runs"]
    assert figures["lists_measured"] == of_their_own + figures["lesson_lists"]
    assert figures["lists_shared"] == figures["lesson_runs"] - figures["lesson_lists"]


def test_nobody_is_granted_more_than_a_list_beyond_the_others(figures: dict[str, Any]) -> None:
    """Long and short lists alike: who was granted least goes first. The client hears of a grant a little late."""
    granted = figures["granted_s"]
    assert granted["most"] - granted["least"] <= 2 * figures["longest_list_s"] + 1.0


def test_every_guess_is_on_the_board(figures: dict[str, Any]) -> None:
    assert figures["guesses"] <= 3 * figures["clients"]
    assert figures["guesses"] >= figures["clients"]
