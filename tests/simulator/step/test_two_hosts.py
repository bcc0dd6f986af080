"""One rank that stands for all against tier B, on two emulated hosts, where tier B is held to what is measured."""

from random import Random

import numpy as np
import pytest

from kernels.fabric import parse
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schemes import expand, schedule
from workbench.machines import shipped_machine
from workbench.simulator.play import play
from workbench.simulator.predict import resolved
from workbench.simulator.price.steps import step_costs
from workbench.simulator.scaling.network import Network
from workbench.simulator.scaling.prices import SCHEMES, Prices

MACHINE = shipped_machine("laptop_cpu")
GEMM = {"m": 1024, "n": 1024, "k": 1024}
GEMMS = ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce", "all_gather_gemm", "all_to_all_gemm")


@pytest.mark.parametrize("ratio", [0.5, 1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", GEMMS)
def test_four_ranks_on_two_hosts_take_as_long_as_tier_b_says(name: str, scheme: str, ratio: float) -> None:
    four = problem(name, GEMM, world=4)
    assert of_tier_b(four, scheme, f"emulated:hosts=2,wire_to_compute={ratio}") == pytest.approx(1.0, abs=0.1)


def test_drawn_problems_on_one_to_four_hosts_do_too() -> None:
    """Sizes, worlds and links that nobody has looked at when the formula was made."""
    random, ratios = Random(12), []
    for _ in range(60):
        world, hosts, slower = random.choice((4, 8)), random.choice((1, 2, 4)), random.choice((2, 4, 8))
        sizes = {side: 256 * random.randint(2, 6) for side in "mnk"}
        links = f"emulated:wire_to_compute={random.choice((0.25, 0.5, 1, 2, 4))}"
        if hosts > 1:
            links += f",hosts={hosts},between_slowdown={slower}"
        ratios.append(of_tier_b(problem(random.choice(GEMMS), sizes, world=world), random.choice(SCHEMES), links))
    apart = np.abs(np.array(ratios) - 1.0)
    assert np.median(apart) < 0.02
    assert np.quantile(apart, 0.95) < 0.1
    assert apart.max() < 0.15


def of_tier_b(one: Problem, scheme: str, links: str) -> float:
    """Times as long as tier B says that the rank takes which stands for all."""
    fabric = resolved(parse(links), one, MACHINE)
    plan = expand(one, schedule(one, scheme, {}, MACHINE, fabric))
    network = Network("emulated", fabric.links(one.world))
    stands_for_all = Prices(MACHINE, network).operator(one, scheme, network).whole_s
    return stands_for_all / play(plan, step_costs(plan, MACHINE, fabric)).time_s
