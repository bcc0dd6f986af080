"""Ranks on one host use the first dimension, others the next; rings and tori pay for hops, meshes divide links."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from kernels.fabric import Fabric, parse
from kernels.machine import Dimension, Machine
from workbench.simulator.price.messages import routes

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
