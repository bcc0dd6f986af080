"""Ranks on one host use the first dimension, others the next; rings and tori pay for hops, meshes divide links."""

from dataclasses import replace

import pytest

from kernels.fabric import Fabric, parse
from kernels.machine import Dimension, Machine
from workbench.simulator.links import links

NVLINK = Fabric(kind="nvlink")


def with_dimension(machine: Machine, topology: str, count: int) -> Machine:
    dimension = Dimension(topology=topology, count=count, bandwidth_bytes_per_second=1e9, latency_seconds=1e-6)
    return replace(machine, dimensions=(dimension,))


def test_an_emulated_fabric_has_one_link_whoever_the_peer(laptop: Machine) -> None:
    fabric = parse("emulated:bandwidth_bytes_per_second=2e9,latency_seconds=1e-4,message_seconds=1e-5")
    found = links(4, laptop, fabric)
    assert set(found.number.ravel()) == {0}
    assert found.byte_seconds[0, 3] == pytest.approx(0.5e-9)
    assert (found.latency_seconds[1, 2], found.message_seconds[1, 2]) == (1e-4, 1e-5)


def test_shared_memory_has_nothing_between_ranks_but_the_library_still_copies(laptop: Machine) -> None:
    found = links(4, laptop, parse("shared_memory"))
    assert not found.byte_seconds.any()
    assert found.collective_byte_seconds == pytest.approx(1 / 2e9)


def test_an_unresolved_fabric_cannot_be_simulated(laptop: Machine) -> None:
    with pytest.raises(AssertionError, match="must be resolved"):
        links(2, laptop, parse("emulated"))


def test_ranks_of_one_host_and_of_two_use_different_links(gpu_pod: Machine) -> None:
    found = links(8, gpu_pod, NVLINK)
    near, far = found.byte_seconds[0, 1], found.byte_seconds[0, 4]
    assert near == pytest.approx(3 / 4e11)
    assert far == pytest.approx(1 / 5e10)
    assert found.number[0, 1] != found.number[0, 4] == found.number[0, 7]
    assert found.message_seconds[0, 4] == 1e-6


def test_a_mesh_has_a_link_for_every_peer(gpu_pod: Machine) -> None:
    assert len({int(links(4, gpu_pod, NVLINK).number[0, peer]) for peer in (1, 2, 3)}) == 3


def test_a_collective_is_as_slow_as_its_busiest_dimension(gpu_pod: Machine) -> None:
    """Of 8 ranks on two hosts, 4 of 7 peers are reached over the NIC."""
    assert links(8, gpu_pod, NVLINK).collective_byte_seconds == pytest.approx(4 / 7 / 5e10)
    assert links(4, gpu_pod, NVLINK).collective_byte_seconds == pytest.approx(1 / 4e11)


@pytest.mark.parametrize(("peer", "hops", "link"), [(1, 1, 0), (3, 3, 0), (5, 1, 1), (4, 2, 1)])
def test_a_ring_goes_the_shorter_way_round(laptop: Machine, peer: int, hops: int, link: int) -> None:
    found = links(6, with_dimension(laptop, "ring", 6), NVLINK)
    assert found.byte_seconds[0, peer] == pytest.approx(hops * 2 / 1e9)
    assert found.number[0, peer] == link


def test_a_torus_counts_hops_in_both_directions(laptop: Machine) -> None:
    found = links(16, with_dimension(laptop, "torus", 16), NVLINK)
    assert found.byte_seconds[0, 1] == pytest.approx(4 / 1e9)
    assert found.byte_seconds[0, 10] == pytest.approx(4 * 4 / 1e9)


def test_two_ranks_of_a_ring_share_one_link(laptop: Machine) -> None:
    found = links(2, with_dimension(laptop, "ring", 2), NVLINK)
    assert found.byte_seconds[0, 1] == pytest.approx(1 / 1e9)
