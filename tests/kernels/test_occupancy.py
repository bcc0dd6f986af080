"""Resident blocks by the rule of CUDA's calculator: against its published ranges, by hand, and against brute force."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.machine import LIMITS, Machine, load
from kernels.occupancy import (
    BlockResources,
    SmLimits,
    blocks_alongside,
    gemm_block,
    limits_of,
    padding,
    resident_blocks,
)
from kernels.schedule import Refusal, Tile

MACHINES = Path(__file__).parents[2] / "data" / "machines"
KB = 1024


def machine(name: str) -> Machine:
    return load(MACHINES / f"{name}.toml")


def limits(name: str) -> SmLimits:
    return limits_of(machine(name))


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_machine_of_gpus_states_the_limits_of_an_sm(path: Path) -> None:
    found = load(path)
    if found.device.kind == "cpu":
        with pytest.raises(Refusal, match=r"does not say how many blocks an SM holds.*Accepted:"):
            limits_of(found)
        return
    of = limits_of(found)
    assert set(found.device.limits) >= set(LIMITS[:-1])
    assert of.most_shared_bytes + of.reserved_bytes == of.shared_bytes
    assert of.registers // of.partitions // of.warp_threads == 512
    assert found.provenance_of("device.limits.blocks").startswith("datasheet: ")


@pytest.mark.parametrize(("name", "ranges"), [
    ("a40_pcie4", [(49.0, 99.0), (32.3, 49.0), (24.0, 32.3), (19.0, 24.0)]),
    ("a100_nvl8", [(81.0, 163.0), (53.7, 81.0), (40.0, 53.7), (31.8, 40.0)]),
    ("h200_nvl2", [(113.0, 227.0), (75.0, 113.0), (56.0, 75.0), (44.6, 56.0)]),
])  # fmt: skip
def test_the_bytes_of_a_block_decide_how_many_are_resident(name: str, ranges: list[tuple[float, float]]) -> None:
    """The table of the residency rule, in KB: the lower end exclusive, the upper one inclusive."""
    of = limits(name)
    for blocks, (low, high) in enumerate(ranges, 1):
        padded = padding(of, BlockResources(0, 32, 128), blocks)
        assert (padded.fewest / KB, padded.most / KB) == pytest.approx((low, high), abs=0.13)
        assert resident_blocks(of, padded.most, 32, 128) == resident_blocks(of, padded.fewest, 32, 128) == blocks
        assert resident_blocks(of, padded.fewest - 1, 32, 128) == blocks + 1


def test_registers_threads_and_places_limit_as_well() -> None:
    hopper, ampere, cdna = limits("h200_nvl2"), limits("a40_pcie4"), limits("mi250x_gcd8")
    assert resident_blocks(hopper, 0, 158, 256) == 1  # 8 warps x 160 x 32 registers are 40,960 of 65,536
    assert resident_blocks(hopper, 0, 157, 128) == 3  # of each partition's 16,384, a warp takes 5,120
    assert resident_blocks(hopper, 0, 16, 1024) == 2
    assert resident_blocks(ampere, 0, 16, 1024) == 1
    assert (resident_blocks(hopper, 0, 16, 32), resident_blocks(ampere, 0, 16, 32)) == (32, 16)
    assert resident_blocks(cdna, 16 * KB, 64, 256) == 4
    assert resident_blocks(cdna, 0, 256, 256) == 2
    assert resident_blocks(hopper, 228 * KB, 32, 128) == 0


def test_a_communication_block_fits_beside_only_where_all_of_it_does() -> None:
    hopper = limits("h200_nvl2")
    alone, shared = gemm_block(Tile(128, 256, 64), 2, 3, 8), gemm_block(Tile(64, 64, 64), 2, 3, 4)
    wide, slim = BlockResources(16 * KB, 96, 512), BlockResources(1 * KB, 32, 128)
    assert resident_blocks(hopper, *_each(alone)) == 1
    assert (blocks_alongside(hopper, alone, 1, wide), blocks_alongside(hopper, alone, 1, slim)) == (0, 6)
    assert blocks_alongside(hopper, shared, 2, wide) == 1
    assert blocks_alongside(hopper, shared, resident_blocks(hopper, *_each(shared)), wide) == 0
    assert blocks_alongside(hopper, slim, 32, slim) == 0


def test_padding_that_cannot_be_is_refused_with_both_byte_counts() -> None:
    hopper, block = limits("h200_nvl2"), gemm_block(Tile(128, 128, 64), 2, 2, 4)
    assert padding(hopper, block, 2).fewest == 0
    with pytest.raises(Refusal, match=r"98436 bytes.*3 of them leave 76800 for one: 98436 > 76800\. Accepted: 1 to 2"):
        padding(hopper, block, 3)
    with pytest.raises(Refusal, match=r"128 threads of 157 registers let an SM hold 3: 4 > 3\. Accepted: 1 to 3"):
        padding(hopper, BlockResources(1000, 157, 128), 4)
    with pytest.raises(Refusal, match=r"Accepted: a smaller tile\."):
        padding(hopper, BlockResources(300 * KB, 157, 128), 1)


@given(
    name=st.sampled_from(["a40_pcie4", "h200_nvl2", "mi250x_gcd8"]), shared=st.integers(0, 120 * KB),
    registers=st.integers(16, 255), warps=st.sampled_from([1, 2, 4, 8, 16]), blocks=st.integers(1, 6),
)  # fmt: skip
def test_padding_gives_the_number_that_was_wanted_and_nothing_less_or_more_does(
    name: str, shared: int, registers: int, warps: int, blocks: int
) -> None:
    of = limits(name)
    block = BlockResources(shared, registers, warps * of.warp_threads)
    held = resident_blocks(of, *_each(block))
    if held < blocks:
        with pytest.raises(Refusal, match=f"resident_blocks = {blocks} is too many"):
            padding(of, block, blocks)
        return
    found = padding(of, block, blocks)
    assert 0 <= found.fewest <= found.most

    def resident(more: int) -> int:
        return resident_blocks(of, shared + more, registers, block.threads)

    assert resident(found.fewest) == resident(found.most) == blocks
    assert resident(found.most + of.shared_unit_bytes) < blocks
    assert found.fewest == 0 or resident(found.fewest - 1) > blocks
    assert blocks_alongside(of, block, blocks, block) == held - blocks  # the same rule, of what is left


def _each(block: BlockResources) -> tuple[int, int, int]:
    return block.shared_bytes, block.registers, block.threads
