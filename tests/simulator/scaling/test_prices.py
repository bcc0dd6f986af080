"""One rank that stands for all against tier B: on GPUs of one host, and on two emulated hosts."""

from collections.abc import Sequence
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schemes import expand, schedule
from tests.simulator.scaling.made import GEMMS, MACHINE, prices, switch
from workbench.machines import shipped_machine
from workbench.simulator.play import play
from workbench.simulator.predict import resolved
from workbench.simulator.price.steps import step_costs
from workbench.simulator.scaling.network import Network, of_machine
from workbench.simulator.scaling.prices import SCHEMES, Prices

# One rank that stands for all against tier B, on GPUs of one host, which both can be asked about.


def of_tier_b(name: str, sizes: tuple[int, int, int], world: int, scheme: str, machine: Machine = MACHINE) -> float:
    """Times as long as tier B says that the rank takes which stands for all, on *world* GPUs of one host.

    They are priced as the GPUs they are, and again as if they were a network of their own.
    """
    one = problem(name, dict(zip("mnk", sizes, strict=True)), dtype="bfloat16", world=world)
    host = of_machine(machine, world)
    apart = Network("apart", (host.levels[0], *2 * [switch(1, 5e10, 5e-6)]))
    played = Prices(machine, host).operator(one, scheme, host)
    return Prices(machine, apart).operator(one, scheme, apart).whole_s / played.whole_s


@pytest.mark.parametrize("scale", [1, 2, 4])
@pytest.mark.parametrize("name", GEMMS)
def test_fused_gemms_small_and_large_take_as_long_as_tier_b_says(name: str, scale: int) -> None:
    m, n, k = GEMMS[name]
    assert of_tier_b(name, (scale * m, scale * n, scale * k), 8, "fused") == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize("name", GEMMS)
def test_large_gemms_in_sequence_do_too(name: str) -> None:
    """Pieces do not: copy engines move them inside a host, and calls of the library beyond."""
    m, n, k = GEMMS[name]
    assert of_tier_b(name, (4 * m, 4 * n, 4 * k), 8, "sequential") == pytest.approx(1.0, abs=0.15)


def drawn(count: int, machine: Machine, worlds: Sequence[int]) -> np.ndarray:
    """How far fused GEMMs are from tier B whose sizes nobody has looked at when the formula was made."""
    random, ratios = Random(11), []
    for _ in range(count):
        world, name = random.choice(worlds), random.choice([*GEMMS])
        m, n, k = 128 * world * random.randint(1, 16), 128 * random.randint(2, 40), 64 * random.randint(8, 100)
        ratios.append(of_tier_b(name, (m, n, k), world, "fused", machine))
    return np.abs(np.array(ratios) - 1.0)


@pytest.mark.slow
def test_fused_gemms_of_drawn_sizes_do_too() -> None:
    apart = drawn(40, MACHINE, (2, 4, 8))
    assert np.median(apart) < 0.02
    assert np.quantile(apart, 0.95) < 0.1
    assert apart.max() < 0.25


def test_so_they_do_on_gpus_that_are_fully_connected() -> None:
    """A link leads to one peer there: peers in their turn use one after the other, and SMs store sums over each."""
    apart = drawn(20, shipped_machine("mi300x_mesh8"), (8,))
    assert np.median(apart) < 0.05
    assert np.quantile(apart, 0.8) < 0.18
    assert apart.max() < 0.3


@pytest.mark.parametrize(("name", "scale"), [*product(GEMMS, (0.5, 1, 4))])
def test_no_link_that_is_faster_slows_a_fused_gemm(name: str, scale: float) -> None:
    """Neither of a host's own links, over which SMs push, nor of NICs."""
    m, n, k = (int(scale * size) for size in GEMMS[name])
    one, known = problem(name, {"m": m, "n": n, "k": k}, dtype="bfloat16", world=64), prices(64)
    for level, usual in enumerate(known.network.levels):
        linked = [
            known.network.with_rates(level, usual.bandwidth_bytes_per_second * 2.0**step) for step in range(-3, 4)
        ]
        times = [known.over(each).operator(one, "fused", each).whole_s for each in linked]
        assert all(faster <= slower * (1 + 1e-9) for slower, faster in pairwise(times))


def test_sums_leave_behind_contributions_and_one_s_own_part() -> None:
    """So of an all-reduce half of the wire is never hidden by more than the part that is computed last."""
    m, n, k = GEMMS["gemm_all_reduce"]
    one, known = problem("gemm_all_reduce", {"m": m, "n": n, "k": k}, dtype="bfloat16", world=64), prices(64)
    priced = known.operator(one, "fused", known.network)
    assert priced.whole_s > priced.compute_s * (1 - 1 / 64) + max(priced.by_level) / 2
    assert priced.compute_s < max(priced.by_level) / 2, "NICs send sums: no SM waits for them"


# One rank that stands for all against tier B, on two emulated hosts, where tier B is held to what is measured.

TWO_HOSTS_MACHINE = shipped_machine("laptop_cpu")
GEMM = {"m": 1024, "n": 1024, "k": 1024}
TWO_HOSTS_GEMMS = ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce", "all_gather_gemm", "all_to_all_gemm")


@pytest.mark.parametrize("ratio", [0.5, 1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", TWO_HOSTS_GEMMS)
def test_four_ranks_on_two_hosts_take_as_long_as_tier_b_says(name: str, scheme: str, ratio: float) -> None:
    four = problem(name, GEMM, world=4)
    assert two_hosts_of_tier_b(four, scheme, f"emulated:hosts=2,wire_to_compute={ratio}") == pytest.approx(1.0, abs=0.1)


def test_drawn_problems_on_one_to_four_hosts_do_too() -> None:
    """Sizes, worlds and links that nobody has looked at when the formula was made."""
    random, ratios = Random(12), []
    for _ in range(60):
        world, hosts, slower = random.choice((4, 8)), random.choice((1, 2, 4)), random.choice((2, 4, 8))
        sizes = {side: 256 * random.randint(2, 6) for side in "mnk"}
        links = f"emulated:wire_to_compute={random.choice((0.25, 0.5, 1, 2, 4))}"
        if hosts > 1:
            links += f",hosts={hosts},between_slowdown={slower}"
        ratios.append(
            two_hosts_of_tier_b(
                problem(random.choice(TWO_HOSTS_GEMMS), sizes, world=world), random.choice(SCHEMES), links
            )
        )
    apart = np.abs(np.array(ratios) - 1.0)
    assert np.median(apart) < 0.02
    assert np.quantile(apart, 0.95) < 0.1
    assert apart.max() < 0.15


def two_hosts_of_tier_b(one: Problem, scheme: str, links: str) -> float:
    """Times as long as tier B says that the rank takes which stands for all."""
    fabric = resolved(parse(links), one, TWO_HOSTS_MACHINE)
    plan = expand(one, schedule(one, scheme, {}, TWO_HOSTS_MACHINE, fabric))
    network = Network("emulated", fabric.links(one.world))
    stands_for_all = Prices(TWO_HOSTS_MACHINE, network).operator(one, scheme, network).whole_s
    return stands_for_all / play(plan, step_costs(plan, TWO_HOSTS_MACHINE, fabric)).time_s
