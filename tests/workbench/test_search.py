"""Every search stays inside its space and its count, and hears the times of what it chose."""

import sys
from collections.abc import Sequence

import pytest

from kernels.schedule import Refusal, Schedule
from workbench.experiment.experiment import Search, Times, order, rounds

SCHEDULES = tuple(Schedule("decomposed", (("pieces", 2**exponent),)) for exponent in range(8))


def seconds(schedule: Schedule) -> float:
    """Best at 16 pieces: a U-curve."""
    return abs(schedule.count("pieces") - 16) + 1.0


def estimates(schedules: Sequence[Schedule]) -> list[float]:
    return [seconds(schedule) for schedule in schedules]


def walk(search: Search) -> list[Schedule]:
    found = rounds(search, SCHEDULES, estimates)
    times: dict[Schedule, float] = {}
    chosen = list(next(found, []))
    while True:
        times |= {schedule: seconds(schedule) for schedule in chosen}
        try:
            chosen = list(found.send(times))
        except StopIteration:
            return list(times)


def test_exhaustive_takes_all_in_order_and_no_more_than_its_count() -> None:
    assert walk(Search()) == list(SCHEDULES)
    assert walk(Search(count=3)) == list(SCHEDULES[:3])


def test_random_is_repeatable_and_never_takes_one_twice() -> None:
    chosen = walk(Search(kind="random", count=5, seed=1))
    assert len(set(chosen)) == 5
    assert chosen == walk(Search(kind="random", count=5, seed=1))
    assert chosen != walk(Search(kind="random", count=5, seed=2))
    assert set(walk(Search(kind="random", count=100))) == set(SCHEDULES)


def test_estimate_first_takes_the_best_by_estimate_best_first() -> None:
    chosen = walk(Search(kind="estimate_first", count=3))
    assert [schedule["pieces"] for schedule in chosen] == [16, 8, 4]


def test_equal_estimates_stay_in_the_order_of_the_space() -> None:
    assert order(Search(kind="estimate_first", count=8), 8, lambda: [1.0] * 8) == list(range(8))


def test_optuna_keeps_to_the_space_and_its_count() -> None:
    pytest.importorskip("optuna", reason="the extra `search` is not installed")
    chosen = walk(Search(kind="optuna", count=6, seed=3))
    assert len(chosen) == len(set(chosen)) == 6
    assert set(chosen) <= set(SCHEDULES)
    assert chosen[0]["pieces"] == 16, "the estimate's favourite comes first"


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        Refusal, match=r"needs optuna, which is not installed\. Accepted: pip install 'overlap-workbench\[search\]'"
    ):
        walk(Search(kind="optuna", count=2))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "clever"}, "There is no search 'clever'. Accepted: exhaustive"),
        ({"kind": "random"}, "search = random needs count"),
        ({"count": 0}, "count = 0 is too small: 0 < 1"),
    ],
)
def test_a_search_that_cannot_be_is_one_sentence(fields: Times, sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        Search(**fields)  # type: ignore[arg-type]
    assert str(refusal.value).startswith(sentence)
