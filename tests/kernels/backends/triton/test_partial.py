"""Cut tiles on a GPU: interpreted with few and many programs, and read as compiled for sm_90."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.backends.triton import timeline
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.repeated import on_fewer
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import Compiled, kernels_of, warmed_up
from tests.kernels.backends.triton.conftest import H200, InterpretedGang, gpu_trial
from tests.kernels.backends.triton.interpreted_main import WRAPS

SMALL = replace(H200, device=replace(H200.device, slots=8))
EVEN, RAGGED, LOW = {"m": 128, "n": 160, "k": 256}, {"m": 100, "n": 136, "k": 200}, {"m": 20, "n": 64, "k": 200}


@pytest.fixture(scope="module")
def alone() -> Iterator[InterpretedGang]:
    gang = InterpretedGang(1)
    yield gang
    gang.close()


def trial(shape: dict[str, int], **axes: Any) -> Trial:
    return gpu_trial("gemm_all_to_all", shape, world=1, dtype="float16", machine=SMALL, **{"grid": 8, **axes})


@pytest.mark.slow
@pytest.mark.parametrize("programs", [1, 3, 8])
@pytest.mark.parametrize(("shape", "axes"), [
    (EVEN, {"tile": "32x64x16", "split_k": 2}),  # 12 tiles: 8 whole ones, and 4 for 8 programs
    (EVEN, {"tile": "64x32x16", "split_k": 4}),
    (RAGGED, {"tile": "32x32x16", "split_k": 2, "store": "registers"}),
    (LOW, {"tile": "64x32x16", "split_k": 3}),  # fewer rows than the tile
])  # fmt: skip
def test_cut_tiles_are_right_whatever_the_programs(
    alone: InterpretedGang, shape: dict[str, int], axes: dict[str, Any], programs: int
) -> None:
    (said,) = alone.call(trial(shape, **axes), calls=2, programs=programs)
    assert said.get("failure") is None
    assert said["error_of_bound"] < 1
    assert said["epoch"] == 2


@pytest.mark.slow
def test_their_counters_wrap(alone: InterpretedGang) -> None:
    (said,) = alone.call(trial(LOW, tile="64x32x16", split_k=3), programs=8, way=WRAPS)
    assert said.get("failure") is None
    assert said["error_of_bound"] < 1
    assert said["rises"][-1] == 3, "each unit of a tile counts once"


def test_units_and_adders_are_stamped(alone: InterpretedGang) -> None:
    (said,) = alone.call(trial(EVEN, tile="64x32x16", split_k=4), calls=1, stamped=True)
    tiles, units, adders = 10, 2 * 4, 2
    written = [bool(words[0]) for words in said["stamps"]]
    assert written == [False] * 2 + [True] * 8 + [False] * tiles + [True] * (units + adders)


def test_their_stamps_are_spans_of_the_plan(alone: InterpretedGang) -> None:
    of = trial(EVEN, tile="64x32x16", split_k=4)
    (said,) = alone.call(of, calls=1, stamped=True)
    plan = expand(of.problem, of.schedule)
    read = timeline.Stamps.read(np.array(said["stamps"], dtype=np.int64), 0, 1e-9)
    spans = {span.step: span for span in timeline.of_kernel(plan, 0, read)}
    assert len(spans) == len(plan), "a span for each unit, each tile that is added, and each slice"
    for step in np.flatnonzero(plan.adds_units).tolist():
        added, units = spans[plan.address(step)], [spans[plan.address(unit)] for unit in plan.waits_for(step).tolist()]
        assert {each.number for unit in (added, *units) for each in unit.tiles} == {plan.tile_start[step]}
        assert max(unit.stop_s for unit in units) <= added.stop_s


# What a GPU gets.

BLOCKS = {"128x256x64": (8, 3), "128x128x64": (4, 6), "64x64x128": (4, 6)}
GEMM = {"m": 128, "n": 1024, "k": 13184}


def kernel(name: str, split: int) -> LaunchableKernel:
    warps, stages = BLOCKS[name]
    axes = {"split_k": split, "grid": 132} if split != 1 else {"split_k": split}
    of = gpu_trial("gemm_all_to_all", GEMM, world=1, dtype="bfloat16", tile=name, num_warps=warps, num_stages=stages,
                   **axes)  # fmt: skip
    return kernels_of(of, rank=0)[0]


def compiled(of: LaunchableKernel) -> Compiled:
    options = {"num_warps": of.num_warps, "num_stages": of.num_stages, "launch_cooperative_grid": True}
    return warmed_up(of.function, of.arguments, dict(of.constants) | options)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("name", ["128x256x64", "64x64x128"])  # most registers, and most loads
def test_a_kernel_that_cuts_spills_nothing_and_keeps_both_loops_full(name: str, tmp_path: Path) -> None:
    whole, cut = compiled(kernel(name, 1)), compiled(kernel(name, 2))
    assert cut.local_bytes(tmp_path) == 0
    assert cut.shared_bytes == whole.shared_bytes
    before, after = whole.sass(tmp_path), cut.sass(tmp_path)
    for instruction in ("HGMMA", "UTMALDG"):  # one loop as it was, and one of units with as many loads ahead
        assert after.count(instruction) == 2 * before.count(instruction) > 0
    assert len(re.findall(r"LDG\.E\.128", after)) >= 32, "partial sums are read 16 bytes at a time"


def test_words_of_one_gpu_have_its_scope() -> None:
    text = compiled(kernel("128x128x64", 2)).ptx
    assert len(re.findall(r"red\.global\.gpu\.release|atom\.global\.gpu\.release|atom\.release\.gpu", text)) == 1


def test_fewer_programs_take_a_cut_kernel_but_no_other_with_a_grid() -> None:
    assert on_fewer(kernel("128x128x64", 2), 100).grid == 100
    with pytest.raises(ValueError, match="132 > 100"):
        on_fewer(replace(kernel("128x128x64", 1), grid=132), 100)
