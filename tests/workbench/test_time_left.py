"""The time left follows what is left of blocks, and never jumps, whatever turns out."""

from dataclasses import dataclass
from itertools import pairwise

import pytest

from cluster import scheduler_file
from workbench.cli.measuring import STARTING_SECONDS, LazyCluster
from workbench.experiment.forecast import MOST_GROWTH, RemainingWork, TimeLeft, WorkTotals, bounded, forecast
from workbench.experiment.question import Request
from workbench.machines import machine
from workbench.results.store import Store

TICK_S = 0.2
SPACE = Request(operator="gemm_all_to_all", preset="laptop_overlap", schemes=("decomposed",), fabric="shared_memory",
                settings=(("pieces", ("all",)), ("split", ("all",)), ("steps", ("all",))))  # fmt: skip


@pytest.fixture
def ahead(store: Store) -> tuple[RemainingWork, ...]:
    found = forecast(SPACE.experiment(), machine("laptop_cpu"), store)
    assert found.blocks > 5
    return found.remaining


@dataclass
class Course:
    """How a run goes: *slower* than estimated, ranks open after *opening_s*, every block waits *waiting_s*."""

    slower: float = 1.0
    opening_s: float = 0.0
    waiting_s: float = 0.0


def told(ahead: tuple[RemainingWork, ...], course: Course) -> list[tuple[float, float]]:
    """What is told at every tick of a whole run, and what is truly left then."""
    now = [0.0]
    left, said = TimeLeft(ahead, clock=lambda: now[0]), []

    def passes(seconds: float) -> None:
        end = now[0] + seconds
        while (tick := len(said) * TICK_S) <= end:
            now[0] = max(now[0], tick)
            said.append((now[0], left.seconds()))
        now[0] = end

    said.append((0.0, left.seconds()))
    correction, position = 1.0, 0
    (one,) = ahead
    while position < len(one.whole_s):
        rest = one.totals(position, correction)
        step = one.fits(position, correction)
        after = one.totals(position + step, correction)
        block = WorkTotals(
            1, rest.trials - after.trials, rest.overhead_s - after.overhead_s, rest.calls_s - after.calls_s
        )
        samples, timed = 100, 0.8
        left.begin(0, block, step, samples, timed)
        before_s = block.overhead_s + course.waiting_s + (course.opening_s if position == 0 else 0.0)
        passes(before_s + course.slower * block.calls_s * (1 - timed))
        for _ in range(samples):
            passes(course.slower * block.calls_s * timed / samples)
            left.sample()
        correction, position = course.slower, position + step
        left.end(correction)
    assert left.blocks == left.block
    return [(seconds, now[0] - at) for at, seconds in said]


def test_the_start_of_a_command_s_own_ranks_is_counted_until_they_begin(ahead: tuple[RemainingWork, ...]) -> None:
    """Ten seconds of which nothing was said."""
    now = [0.0]
    left = TimeLeft(ahead, 10.0, clock=lambda: now[0])
    without = TimeLeft(ahead, clock=lambda: now[0]).seconds()
    assert left.seconds() == pytest.approx(without + 10.0)
    (one,) = ahead
    left.begin(0, one.totals(), len(one.whole_s), 100, 0.8)
    now[0] = 4.0
    assert left.seconds() == pytest.approx(without + 6.0)
    assert left.share() == 0.0
    left.opened()
    now[0] = 5.0
    assert left.share() == pytest.approx(1.0 / without, rel=0.2), "from then on their work is counted"
    for _ in range(60):  # what is told shrinks slowly
        now[0] += 0.01
        told = left.seconds()
    assert told < without + 6.0 - 1.5


@pytest.mark.parametrize("course", [
    Course(), Course(slower=10.0), Course(slower=0.1), Course(opening_s=30.0), Course(waiting_s=6.0),
    Course(slower=10.0, opening_s=10.0, waiting_s=3.0),
], ids=str)  # fmt: skip
def test_it_never_jumps_and_comes_to_be_right(ahead: tuple[RemainingWork, ...], course: Course) -> None:
    said = told(ahead, course)
    seconds = [each for each, _ in said]
    for before, after in pairwise(seconds):
        assert after <= max(1.0, before) * MOST_GROWTH
        assert after >= (before - 1.0) / MOST_GROWTH
    late = said[len(said) // 2 :]
    assert all(1 / 3 < told_s / true_s < 3 for told_s, true_s in late if true_s > 5.0)


def test_a_run_as_expected_counts_down(ahead: tuple[RemainingWork, ...]) -> None:
    seconds = [each for each, _ in told(ahead, Course())]
    assert all(after <= 1.02 * before + 0.05 for before, after in pairwise(seconds))


def test_what_failed_is_not_left(ahead: tuple[RemainingWork, ...]) -> None:
    now = [0.0]
    left = TimeLeft(ahead, clock=lambda: now[0])
    blocks, share = left.blocks, left.share()
    assert share == 0.0
    left.begin(0, WorkTotals(1, 11, 1.0, 5.0), ahead[0].fits(0), 100, 0.8)
    now[0] = 0.5
    left.end(1.0)
    assert (left.block, left.blocks) == (1, blocks)
    assert 0.0 < left.share() < 0.5


def test_it_is_bounded_in_both_directions() -> None:
    assert bounded(100.0, 10.0, 0.5) == pytest.approx(10.0 * MOST_GROWTH**0.5)
    assert bounded(1.0, 10.0, 0.5) == pytest.approx(9.5 / MOST_GROWTH**0.5)
    assert bounded(9.5, 10.0, 0.5) == 9.5
    assert bounded(100.0, 10.0, 60.0) == 10.0 * MOST_GROWTH, "however long nobody asked"


def test_only_ranks_of_a_command_s_own_are_still_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_file, "running", lambda: None)
    assert LazyCluster(None, 2).starting_s == STARTING_SECONDS
    monkeypatch.setattr(scheduler_file, "running", object)
    assert LazyCluster(None, 2).starting_s == 0.0
