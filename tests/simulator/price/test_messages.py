"""Messages take the links between their ranks, and SMs that push rows are away from computing meanwhile."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from kernels.fabric import Fabric, parse
from kernels.machine import Dimension, Machine, Rate
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind
from kernels.schemes import expand, schedule
from workbench.simulator.price.messages import routes
from workbench.simulator.price.networks import away
from workbench.simulator.price.steps import compute_seconds

# Ranks on one host use the first dimension, others the next; rings and tori pay for hops, meshes divide links.

NVLINK = Fabric(kind="nvlink")


def with_dimension(machine: Machine, topology: str, count: int) -> Machine:
    dimension = Dimension(topology=topology, count=count, bandwidth_bytes_per_second=1e9, latency_seconds=1e-6)
    return replace(machine, dimensions=(dimension,))


def test_an_emulated_fabric_has_one_link_whoever_the_peer(laptop: Machine) -> None:
    fabric = parse("emulated:bandwidth_bytes_per_second=2e9,latency_seconds=1e-4,message_seconds=1e-5")
    ways = routes(4, laptop, fabric).between([0, 1], [3, 2])
    assert ways.number.tolist() == [0, 0]
    assert ways.byte_seconds[0] == pytest.approx(0.5e-9)
    assert (ways.latency_seconds[1], ways.message_seconds[1]) == (1e-4, 1e-5)


def test_shared_memory_has_nothing_between_ranks_but_the_library_still_copies(laptop: Machine) -> None:
    ways = routes(4, laptop, parse("shared_memory"))
    assert not ways.between(np.arange(4)[:, None], np.arange(4)).byte_seconds.any()
    assert ways.collective_byte_seconds == pytest.approx(1 / 2e9)


def test_an_unresolved_fabric_cannot_be_simulated(laptop: Machine) -> None:
    with pytest.raises(AssertionError, match="must be resolved"):
        routes(2, laptop, parse("emulated"))


def test_ranks_of_one_host_and_of_two_use_different_links(gpu_pod: Machine) -> None:
    ways = routes(8, gpu_pod, NVLINK).between(0, [1, 4, 7])
    near, far, _ = ways.byte_seconds
    assert near == pytest.approx(3 / 4e11)
    assert far == pytest.approx(1 / 5e10)
    assert ways.number[0] != ways.number[1] == ways.number[2]
    assert ways.message_seconds[1] == 1e-6


def test_a_mesh_has_a_link_for_every_peer(gpu_pod: Machine) -> None:
    assert len(set(routes(4, gpu_pod, NVLINK).between(0, [1, 2, 3]).number.tolist())) == 3


def test_a_collective_is_as_slow_as_its_busiest_dimension(gpu_pod: Machine) -> None:
    """Of 8 ranks on two hosts, 4 of 7 peers are reached over the NIC."""
    assert routes(8, gpu_pod, NVLINK).collective_byte_seconds == pytest.approx(4 / 7 / 5e10)
    assert routes(4, gpu_pod, NVLINK).collective_byte_seconds == pytest.approx(1 / 4e11)


@pytest.mark.parametrize(("peer", "hops", "link"), [(1, 1, 0), (3, 3, 0), (5, 1, 1), (4, 2, 1)])
def test_a_ring_goes_the_shorter_way_round(laptop: Machine, peer: int, hops: int, link: int) -> None:
    way = routes(6, with_dimension(laptop, "ring", 6), NVLINK).between(0, peer)
    assert way.byte_seconds == pytest.approx(hops * 2 / 1e9)
    assert way.number == link


def test_a_torus_counts_hops_in_both_directions(laptop: Machine) -> None:
    ways = routes(16, with_dimension(laptop, "torus", 16), NVLINK).between(0, [1, 10])
    assert ways.byte_seconds.tolist() == pytest.approx([4 / 1e9, 4 * 4 / 1e9])


def test_two_ranks_of_a_ring_share_one_link(laptop: Machine) -> None:
    assert routes(2, with_dimension(laptop, "ring", 2), NVLINK).between(0, 1).byte_seconds == pytest.approx(1 / 1e9)


def plainly(machine: Machine, source: int, peer: int) -> tuple[int, float]:
    """The link's number and a byte's seconds of one pair, dimension by dimension and hop by hop."""
    link_and_cost = (0, 0.0)
    for level, dimension in enumerate(machine.dimensions):
        here, there = source % dimension.count, peer % dimension.count
        if here != there:
            link, hops, links = hop_by_hop(dimension, here, there)
            link_and_cost = (level * machine.max_world + link, hops * links / dimension.bandwidth_bytes_per_second)
        source, peer = source // dimension.count, peer // dimension.count
    return link_and_cost


def hop_by_hop(dimension: Dimension, here: int, there: int) -> tuple[int, int, int]:
    """First link, hops, links of a rank: walked along the shorter way of each direction, columns first."""
    if dimension.topology == "switch":
        return 0, 1, 1
    if dimension.topology == "fully_connected":
        return there, 1, dimension.count - 1
    down = max(d for d in range(1, dimension.count + 1) if d * d <= dimension.count and dimension.count % d == 0)
    down = 1 if dimension.topology == "ring" else down
    across = dimension.count // down
    taken = []
    for axis, (at, to, length) in enumerate(
        ((here % across, there % across, across), (here // across, there // across, down))
    ):
        while at != to:
            back = (at - to) % length < (to - at) % length
            taken.append(2 * axis + (back and length > 2))
            at = (at + (-1 if back else 1)) % length
    return taken[0], len(taken), min(2, across - 1) + min(2, down - 1)


@pytest.mark.parametrize("counts", [(5,), (6, 3), (8, 2, 3), (12, 4)])
@pytest.mark.parametrize("topology", ["switch", "ring", "fully_connected", "torus"])
def test_columns_of_pairs_are_what_each_pair_is_alone(laptop: Machine, topology: str, counts: tuple[int, ...]) -> None:
    levels = tuple(
        Dimension(topology=topology if level == 0 else "ring", count=count, latency_seconds=level * 1e-6,
                  bandwidth_bytes_per_second=1e9 / (level + 1))
        for level, count in enumerate(counts)
    )  # fmt: skip
    machine = replace(laptop, dimensions=levels)
    ranks = np.arange(machine.max_world)
    ways = routes(machine.max_world, machine, NVLINK).between(ranks[:, None], ranks)
    for source in ranks.tolist():
        for peer in ranks.tolist():
            expected = plainly(machine, source, peer)
            assert (ways.number[source, peer], ways.byte_seconds[source, peer]) == expected, (source, peer)


def test_a_thousand_ranks_need_no_table_of_their_pairs(laptop: Machine) -> None:
    """What a closed form asks is a row, not a square: numpy then holds less than a megabyte."""
    levels = tuple(Dimension(topology=topology, count=count, bandwidth_bytes_per_second=1e9, latency_seconds=1e-6)
                   for topology, count in (("switch", 8), ("torus", 128)))  # fmt: skip
    machine = replace(laptop, dimensions=levels)
    tracemalloc.start()
    ways = routes(1024, machine, NVLINK)
    assert len(set(ways.between(0, np.arange(1, 1024)).number.tolist())) == 5
    assert ways.collective_byte_seconds > 0
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1e6


# SMs that push rows are away from computing for as long as the rows are on the wire, and take tiles afterwards.

GATHER = problem("all_gather_gemm", {"m": 8192, "n": 8192, "k": 4096}, world=2, dtype="bfloat16")


def test_they_are_away_while_their_bytes_leave(gpu_pod: Machine) -> None:
    leaves_s = OPERATORS["all_gather_gemm"].wire_bytes(GATHER) / 4e11
    assert away(gpu_pod, GATHER, NVLINK, {}, 4 * leaves_s) == pytest.approx(0.25)
    assert away(gpu_pod, GATHER, NVLINK, {}, leaves_s / 2) == 1


def test_a_put_by_fewer_sms_takes_as_long_as_it_was_measured(gpu_pod: Machine) -> None:
    one_host = replace(gpu_pod, dimensions=gpu_pod.dimensions[:1], rates=(
        Rate("put_tma", "any", 1e6, 1e11, 8), Rate("put_tma", "any", 1e6, 4e11, 32)))  # fmt: skip
    shares = away(one_host, GATHER, NVLINK, {"store": "tma", "comm_sms": np.array([8, 32])}, 1.0)
    assert shares[0] == pytest.approx(4 * shares[1])


def test_a_call_of_one_wave_keeps_one_wave_when_sms_push(gpu_pod: Machine) -> None:
    """128 tiles on 132 SMs, of which 16 push for a moment: no second wave, as there was none on H200s."""
    of = problem("all_gather_gemm", {"m": 2048, "n": 2048, "k": 8192}, world=2, dtype="bfloat16")
    times = []
    for pushing in (0, 4):
        values = {"tile": "128x256x64", "comm_sms": pushing}
        plan = expand(of, schedule(of, "fused", values, gpu_pod, NVLINK))
        times.append(compute_seconds(plan, gpu_pod, NVLINK)[(plan.rank == 0) & (plan.kind == Kind.COMPUTE)].sum())
    assert times[1] == pytest.approx(times[0])


def test_a_wave_is_paid_by_the_rows_that_complete_it(gpu_pod: Machine) -> None:
    """Tiles of one wave begin together, but it ends a whole tile after the last rows came: nothing is hidden."""
    of = problem("all_gather_gemm", {"m": 2048, "n": 2048, "k": 8192}, world=2, dtype="bfloat16")
    plan = expand(of, schedule(of, "fused", {"tile": "128x256x64", "slice_tiles": 1024}, gpu_pod, NVLINK))
    seconds = compute_seconds(plan, gpu_pod, NVLINK)[(plan.rank == 0) & (plan.kind == Kind.COMPUTE)]
    assert seconds[0] == 0
    assert seconds[-1] > 0
