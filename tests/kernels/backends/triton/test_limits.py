"""What the residency rule says that a block of our kernels takes, beside what Triton compiles for sm_90."""

import re
from pathlib import Path

import pytest

from kernels.backends.triton.schemes import fused
from kernels.occupancy import BARRIER_BYTES, gemm_block, gemv_block
from kernels.schedule import tile
from tests.kernels.backends.triton.compile_sm90 import Compiled, context_of, unwritten, warmed_up
from tests.kernels.backends.triton.conftest import gpu_trial

# What the residency rule says that a block of our GEMM takes, beside what Triton compiles for sm_90.

GEMM = {"m": 8192, "n": 4096, "k": 4096}
ITEMSIZE = {"bfloat16": 2, "float32": 4}


def alone(operator: str, size: str, dtype: str, warps: int, stages: int) -> Compiled:
    """The computation alone, as `concurrent` and `sequential` launch it."""
    trial = gpu_trial(operator, GEMM, world=4, dtype=dtype, tile=size, num_warps=warps, num_stages=stages)
    made = fused.kernel(context_of(trial), unwritten(trial.problem), alone=True)
    chosen = {"num_warps": warps, "num_stages": stages, "launch_cooperative_grid": True}
    return warmed_up(made.function, made.arguments, dict(made.constants) | chosen)


@pytest.mark.parametrize(("operator", "size", "dtype", "warps", "stages"), [
    ("gemm_all_reduce", "128x256x64", "bfloat16", 8, 3), ("gemm_all_to_all", "128x128x64", "bfloat16", 4, 2),
    ("gemm_all_to_all", "64x128x64", "bfloat16", 4, 4), ("all_gather_gemm", "128x128x64", "bfloat16", 8, 3),
    ("gemm_all_to_all", "128x128x32", "float32", 8, 2), ("gemm_all_reduce", "64x64x64", "bfloat16", 4, 3),
])  # fmt: skip
def test_a_block_of_our_gemm_takes_what_the_rule_says(
    operator: str, size: str, dtype: str, warps: int, stages: int, tmp_path: Path
) -> None:
    compiled, expected = (
        alone(operator, size, dtype, warps, stages),
        gemm_block(tile(size), ITEMSIZE[dtype], stages, warps),
    )
    assert 0 <= expected.shared_bytes - compiled.shared_bytes <= BARRIER_BYTES
    if dtype == "bfloat16":
        assert abs(expected.registers - compiled.registers(tmp_path)) <= 8
    threads = re.search(r"\.(?:reqntid|maxntid) (\d+)", compiled.ptx)
    assert threads
    assert expected.threads == int(threads[1])


# What the residency rule says that a block of our GEMV takes, beside what Triton compiles for sm_90.


@pytest.mark.parametrize(("size", "warps", "stages"), [
    ("8x1x1024", 4, 3), ("16x1x512", 4, 3), ("32x8x512", 2, 3), ("16x4x512", 2, 4), ("64x2x256", 4, 3),
])  # fmt: skip
def test_a_block_of_our_gemv_takes_what_the_rule_says(size: str, warps: int, stages: int, tmp_path: Path) -> None:
    sizes = {"n": 8192, "k": 8192, "tokens": tile(size).n}
    trial = gpu_trial(
        "gemv_all_reduce", sizes, world=4, dtype="bfloat16", tile=size, num_warps=warps, num_stages=stages
    )
    made = fused.kernel(context_of(trial), unwritten(trial.problem), alone=True)
    chosen = {"num_warps": warps, "num_stages": stages, "launch_cooperative_grid": True}
    compiled = warmed_up(made.function, made.arguments, dict(made.constants) | chosen)
    expected = gemv_block(tile(size), 2, stages, warps)
    results = tile(size).m * 8 * 2  # which some blocks turn for their stores, and others do not
    assert 0 <= expected.shared_bytes - compiled.shared_bytes <= BARRIER_BYTES + 4 * stages + results
    assert abs(expected.registers - compiled.registers(tmp_path)) <= 24
