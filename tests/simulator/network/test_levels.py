"""Fabric files: read into levels, and refused in one sentence that names file, key and what is accepted."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.schedule import Refusal
from workbench.machines import shipped_machine
from workbench.simulator.scaling.network import checked, collective, load, of_machine

LEVEL = "[[dimension]]\ntopology = 'switch'\ncount = 8\nbandwidth_bytes_per_second = 4.5e11\nlatency_seconds = 1e-6\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "fabric.toml"
    path.write_text(text)
    return path


def test_a_file_is_levels_from_the_inside_out(tmp_path: Path) -> None:
    network = load(written(tmp_path, LEVEL + LEVEL.replace("8", "16").replace("switch", "torus")))
    assert (network.name, network.world, network.shape) == ("fabric", 128, "8 x 16")
    assert [level.topology for level in network.levels] == ["switch", "torus"]


def test_terms_can_be_stated(tmp_path: Path) -> None:
    network = load(written(tmp_path, "endpoint_seconds = 5e-8\nmemory_bytes_per_second = 1e12\n" + LEVEL))
    assert (network.endpoint_seconds, network.memory_bytes_per_second) == (5e-8, 1e12)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"fabric.toml has no \[\[dimension\]\]"),
        (
            LEVEL.replace("switch", "star"),
            "topology = 'star' is unknown. Accepted: switch, ring, fully_connected, torus",
        ),
        (LEVEL.replace("count = 8", "count = 0"), "count = 0 does not fit. Accepted: a whole number above 0"),
        (LEVEL.replace("latency", "delay"), "has the unknown key 'delay_seconds'"),
        (LEVEL.replace("latency_seconds = 1e-6", ""), "has no 'latency_seconds'. It needs topology, count, bandwidth"),
        ("hosts = 2\n" + LEVEL, "has the unknown key 'hosts'"),
        ("endpoint_seconds = 'no'\n" + LEVEL, "endpoint_seconds = 'no' does not fit"),
        ("[dimension]\ncount = 8\n", r"has no \[\[dimension\]\]"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load(written(tmp_path, text))


def test_counts_must_multiply_to_the_world(tmp_path: Path) -> None:
    network = load(written(tmp_path, LEVEL))
    assert checked(network, 8) is network
    with pytest.raises(Refusal, match="its counts 8 multiply to 8, not to 4"):
        checked(network, 4)
    with pytest.raises(Refusal, match="world = 16 is too large for fabric, which links 8 ranks: 16 > 8"):
        checked(network, 16)
    with pytest.raises(Refusal, match="world = 0 is too small: 0 < 1"):
        checked(network, 0)


def test_a_machine_is_cut_to_its_first_ranks() -> None:
    machine = shipped_machine("h200_ib")
    assert of_machine(machine, 1024).shape == "8 x 128"
    assert of_machine(machine, 4).shape == "4"
    with pytest.raises(Refusal, match="which links 8192 ranks: 9000 > 8192"):
        of_machine(machine, 9000)
    with pytest.raises(Refusal, match="8 x 1024 of h200_ib evenly: of 12 and a level of 8 neither"):
        of_machine(machine, 12)


@pytest.mark.parametrize("topology", ["switch", "ring", "fully_connected", "torus"])
def test_one_rank_of_every_block_has_nobody_inside(tmp_path: Path, topology: str) -> None:
    """Sums over replicas: their level inside leads to nobody, and takes nothing of the call's time."""
    whole = load(written(tmp_path, LEVEL.replace("switch", topology) + LEVEL.replace("8", "16")))
    apart, flat = whole.outer(8), replace(whole, levels=whole.levels[1:])
    for algorithm in ("direct", "pairwise", "ring", "halving_doubling", "hierarchical"):
        with_level = collective(apart, "all_reduce", 1e6, algorithm)
        assert with_level.by_level[0] == 0
        assert with_level.seconds == pytest.approx(collective(flat, "all_reduce", 1e6, algorithm).seconds)


def test_some_ranks_that_are_fully_connected_use_their_own_links(tmp_path: Path) -> None:
    """Four of eight have three of seven links: as much to each peer as before, which takes as long as before."""
    whole = load(written(tmp_path, LEVEL.replace("switch", "fully_connected")))
    every, four = (collective(each, "all_to_all", each.world * 1e6, "direct") for each in (whole, whole.inner(4)))
    assert four.seconds == pytest.approx(every.seconds)
    assert load(written(tmp_path, LEVEL)).inner(4).levels[0].bandwidth_bytes_per_second == 4.5e11
