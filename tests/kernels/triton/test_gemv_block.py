"""What the residency rule says that a block of our GEMV takes, beside what Triton compiles for sm_90."""

from pathlib import Path

import pytest

from kernels.backends.triton.schemes import fused
from kernels.occupancy import BARRIER_BYTES, gemv_block
from kernels.schedule import tile
from tests.kernels.triton.compile_sm90 import context_of, unwritten, warmed_up
from tests.kernels.triton.conftest import gpu_trial


@pytest.mark.parametrize(("size", "warps", "stages"), [("16x1x512", 4, 3), ("32x8x256", 8, 3), ("16x2x256", 4, 4)])
def test_a_block_takes_what_the_rule_says(size: str, warps: int, stages: int, tmp_path: Path) -> None:
    sizes = {"n": 8192, "k": 8192, "tokens": tile(size).n}
    trial = gpu_trial(
        "gemv_all_reduce", sizes, world=4, dtype="bfloat16", tile=size, num_warps=warps, num_stages=stages
    )
    made = fused.kernel(context_of(trial), unwritten(trial.problem), alone=True)
    chosen = {"num_warps": warps, "num_stages": stages, "launch_cooperative_grid": True}
    compiled = warmed_up(made.function, made.arguments, dict(made.constants) | chosen)
    expected = gemv_block(tile(size), 2, stages, warps)
    assert 0 <= expected.shared_bytes - compiled.shared_bytes <= BARRIER_BYTES + 4 * stages
    assert abs(expected.registers - compiled.registers(tmp_path)) <= 24
