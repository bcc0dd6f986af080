"""Plans are kept by bytes: what was used longest ago leaves first, and nobody makes one twice that is kept."""

from threading import Thread

import pytest

from kernels.operators import problem
from kernels.plan import Kind, Plan, Planner, Pool, Step
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import PlanCache

ASKED = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)


class Maker:
    """Makes Plans of as many steps as the schedule's tile says, and writes down which."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __call__(self, asked: Problem, schedule: Schedule) -> Plan:
        self.made.append(schedule.count("tile"))
        planner = Planner(asked, schedule, [])
        for _ in range(schedule.count("tile")):
            planner.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
        return planner.plan()


def of(steps: int) -> Schedule:
    return Schedule("fused", (("tile", steps),))


@pytest.fixture
def maker() -> Maker:
    return Maker()


def size(steps: int) -> int:
    return Maker()(ASKED, of(steps)).memory_bytes


def test_a_plan_s_bytes_are_those_of_its_columns() -> None:
    assert size(1001) - size(1) == 16 * 8 * 1000  # 15 columns, and where the steps that each waits for begin


def test_what_is_kept_is_not_made_again(maker: Maker) -> None:
    kept = PlanCache()
    assert kept.plan(ASKED, of(3), maker) is kept.plan(ASKED, of(3), maker)
    assert (maker.made, kept.num_bytes, len(kept)) == ([3], size(3), 1)
    kept.clear()
    kept.plan(ASKED, of(3), maker)
    assert (maker.made, kept.num_bytes) == ([3, 3], size(3))


def test_what_was_used_longest_ago_leaves_first(maker: Maker) -> None:
    kept = PlanCache(size(3) + size(4) + size(5) - 1)
    for steps in (3, 4, 3, 5):
        kept.plan(ASKED, of(steps), maker)
    assert (kept.num_bytes, len(kept)) == (size(3) + size(5), 2)
    for steps in (3, 5, 4):
        kept.plan(ASKED, of(steps), maker)
    assert maker.made == [3, 4, 5, 4]


def test_a_plan_beyond_all_bytes_is_made_but_not_kept(maker: Maker) -> None:
    kept = PlanCache(size(10) - 1)
    assert len(kept.plan(ASKED, of(10), maker)) == 10
    assert (kept.num_bytes, len(kept)) == (0, 0)


def test_threads_count_a_plan_once(maker: Maker) -> None:
    kept = PlanCache()
    threads = [Thread(target=kept.plan, args=(ASKED, of(steps), maker)) for steps in (2, 3, 2, 3, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (kept.num_bytes, len(kept)) == (size(2) + size(3), 2)


def test_a_plan_that_is_too_large_to_keep_sends_nobody_away(maker: Maker) -> None:
    kept = PlanCache(size(3) + size(4))
    for steps in (3, 4, 1000, 3, 4):
        kept.plan(ASKED, of(steps), maker)
    assert (maker.made, len(kept)) == ([3, 4, 1000], 2)
