"""Play says what SimPy says; compiled, it says the same to the last bit, and large Plans take milliseconds."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.plan import Plan
from kernels.schemes import COMPARED, expand, schedule
from tests.simulator.oracle import Oracle
from tests.simulator.streams import Work, costs_of, plans
from tests.simulator.trials import ask
from workbench.simulator.play import PlayedTimes, play
from workbench.simulator.price.costs import StepCosts
from workbench.simulator.price.steps import step_costs

COLUMNS = ("start", "issued", "left", "finish")
LINKS = ("emulated:bandwidth_bytes_per_second=1e8", "emulated:bandwidth_bytes_per_second=4e8,hosts=2")


def agree_with_simpy(plan: Plan, costs: StepCosts, played: PlayedTimes) -> None:
    oracle = Oracle(plan, costs)
    for column in COLUMNS:
        np.testing.assert_allclose(getattr(played, column), getattr(oracle, column) + costs.start_seconds, 1e-12, 1e-15)


def assert_same(one: PlayedTimes, other: PlayedTimes) -> None:
    for column in (*COLUMNS, "waited_for", "rank_end"):
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column))


@settings(max_examples=60)
@given(plans(), st.integers(0, 2**32 - 1))
def test_any_plan_is_played_as_simpy_plays_it(made: tuple[Plan, list[Work]], seed: int) -> None:
    """Shares, streams and priorities; no two steps end at once, since who is first then is nobody's promise."""
    plan, works = made
    random = np.random.default_rng(seed)
    costs = costs_of(plan, works)
    costs = replace(costs, issue=random.uniform(0.1, 5, len(plan)),
                    transit=random.uniform(0.1, 4, len(plan)) * (costs.link >= 0),
                    delay=random.uniform(0, 1, len(plan)) * (costs.link >= 0))  # fmt: skip
    agree_with_simpy(plan, costs, play(plan, costs, compiled=False))


@settings(max_examples=60)
@given(plans(), st.integers(0, 3))
def test_compiled_play_is_plain_play(made: tuple[Plan, list[Work]], ahead: int) -> None:
    """Times are whole numbers, so that much happens at once."""
    plan, works = made
    costs = replace(costs_of(plan, works), overlap=np.full(len(plan), float(ahead)))
    assert_same(play(plan, costs, compiled=True), play(plan, costs, compiled=False))


@pytest.mark.parametrize("scheme", COMPARED)
@pytest.mark.parametrize("operator", OPERATORS)
def test_plans_of_schemes_are_played_as_simpy_plays_them(operator: str, scheme: str, laptop: Machine) -> None:
    asked = ask(operator, 4)
    for fabric in map(parse, LINKS):
        plan = expand(asked, schedule(asked, scheme, {}, laptop, fabric))
        costs = step_costs(plan, laptop, fabric)
        # a little noise: without it ranks do the same at the same moment
        noise = 1 + 0.01 * np.random.default_rng(0).random(len(plan))
        costs = replace(costs, issue=costs.issue * noise, transit=costs.transit * noise)
        played = play(plan, costs, compiled=False)
        agree_with_simpy(plan, replace(costs, start_seconds=0.0), played)
        assert_same(play(plan, costs, compiled=True), played)


def test_eight_ranks_of_2048_tiles_are_played_at_once(laptop: Machine) -> None:
    """Compiled, a quiet core takes 10 ms; plainly 200. The two are compared, since no computer of tests is quiet."""
    asked, fabric = problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 64}, world=8), parse(LINKS[0])
    plan = expand(asked, schedule(asked, "fused", {"tile": "128x128x64", "slice_tiles": 1}, laptop, fabric))
    assert [len(tiles) for tiles in plan.tiles] == [2048] * 8
    costs = step_costs(plan, laptop, fabric)
    (plainly,), (plain_seconds,) = timed_plays(plan, costs, 1, compiled=False)
    compiled, seconds = timed_plays(plan, costs, 9)
    assert_same(compiled[0], plainly)
    assert 4 * min(seconds) < plain_seconds


def timed_plays(plan: Plan, costs: StepCosts, count: int,
                compiled: bool | None = None) -> tuple[list[PlayedTimes], list[float]]:  # fmt: skip
    """The times that *count* plays give, and the seconds of this thread that each takes."""
    played, seconds = [], []
    for _ in range(count):
        begin = time.thread_time()  # what other processes do meanwhile is not counted
        played.append(play(plan, costs, compiled=compiled))
        seconds.append(time.thread_time() - begin)
    return played, seconds
