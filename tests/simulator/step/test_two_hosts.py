"""One rank that stands for all against tier B, on two emulated hosts, where tier B is held to what is measured."""

import pytest

from kernels.fabric import parse
from kernels.operators import problem
from kernels.schemes import expand, schedule
from workbench.machines import shipped_machine
from workbench.simulator.network import Network
from workbench.simulator.play import play
from workbench.simulator.predict import resolved
from workbench.simulator.price.steps import step_costs
from workbench.simulator.step.prices import SCHEMES, Prices

MACHINE = shipped_machine("laptop_cpu")
GEMM = {"m": 1024, "n": 1024, "k": 1024}
GEMMS = ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce", "all_gather_gemm", "all_to_all_gemm")


@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", GEMMS)
def test_four_ranks_on_two_hosts_take_as_long_as_tier_b_says(name: str, scheme: str, ratio: float) -> None:
    four = problem(name, GEMM, world=4)
    fabric = resolved(parse(f"emulated:hosts=2,wire_to_compute={ratio}"), four, MACHINE)
    plan = expand(four, schedule(four, scheme, {}, MACHINE, fabric))
    network = Network("emulated", fabric.links(4))
    stands_for_all = Prices(MACHINE, network).operator(four, scheme, network).whole_s
    assert stands_for_all == pytest.approx(play(plan, step_costs(plan, MACHINE, fabric)).time_s, rel=0.1)
