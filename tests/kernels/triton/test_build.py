"""What GPU ranks run and what they refuse: of decomposed exactly what torch's own operators do."""

from typing import Any

import pytest
from triton.runtime.errors import OutOfResources

from kernels.axes import Tile, tile
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.refusals import OVERLAPPED_AXES, refusal
from kernels.backends.triton.tiles import walk
from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.schemes import expand
from tests.kernels.triton.conftest import gpu_trial

GEMM = {"m": 8192, "n": 4096, "k": 4096}
LOOKUPS = {"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 256, "pooling": 32}


def decomposed(operator: str, **axes: Any) -> Any:
    return gpu_trial(operator, GEMM, world=4, dtype="bfloat16", scheme="decomposed", **(OVERLAPPED_AXES | axes))


@pytest.mark.parametrize("operator", ["all_gather_gemm", "gemm_reduce_scatter"])
def test_torch_s_overlapped_operators_are_one_decomposed_schedule(operator: str) -> None:
    trial = decomposed(operator)
    assert refusal(trial, shares_heap=True) is None
    plan = expand(trial.problem, trial.schedule)
    assert plan.wire_bytes(0) == OPERATORS[operator].wire_bytes(trial.problem)


@pytest.mark.parametrize(
    ("axis", "value"), [("pieces", 4), ("steps", "local_first"), ("grouping", "fused"), ("engine", "sm")]
)
def test_no_other_decomposed_schedule_runs_on_gpus(axis: str, value: Any) -> None:
    more = {"pattern": "all_to_all"} if axis in ("steps", "grouping") else {}
    sentence = refusal(decomposed("all_gather_gemm", **more, **{axis: value}), shares_heap=True)
    assert sentence
    assert "Accepted: pieces = 1, split = rows" in sentence


def test_their_parts_and_other_operators_are_refused_with_what_would_do() -> None:
    sentence = refusal(decomposed("all_gather_gemm").of_part("compute"), shares_heap=True)
    assert sentence
    assert sentence.endswith("Accepted: whole; or scheme = sequential.")
    sentence = refusal(decomposed("gemm_all_to_all"), shares_heap=True)
    assert sentence
    assert "Accepted: all_gather_gemm, gemm_reduce_scatter; or scheme = fused." in sentence


def test_copy_engines_are_not_asked_for_rows_that_lie_apart() -> None:
    def asked(collective: str) -> Any:
        return gpu_trial("embedding_all_to_all", LOOKUPS, world=4, dtype="float32", scheme="sequential",
                         collective=collective)  # fmt: skip

    assert refusal(asked("direct"), shares_heap=True) is None
    with pytest.raises(Refusal, match=r"Accepted: library, library_tuned, direct\."):
        asked("copy_engine")


@pytest.mark.parametrize(("operator", "shape", "tile", "says"), [
    ("gemm_all_to_all", GEMM, "96x256x64", "Accepted: values such as 128x256x64"),
    ("gemv_all_reduce", {"n": 1024, "k": 1024, "tokens": 1}, "16x1x8", "the last at least 16"),
    ("embedding_all_to_all", LOOKUPS, "1x96x8", "neither whole vectors"),
])  # fmt: skip
def test_a_tile_that_no_kernel_walks_is_refused_before_it_is_put_together(
    operator: str, shape: dict[str, int], tile: str, says: str
) -> None:
    trial = gpu_trial(operator, shape, world=2, dtype="bfloat16", tile=tile)
    assert says in str(refusal(trial, shares_heap=True))


@pytest.mark.parametrize(("dtype", "dim", "unroll"), [("float32", 512, 8), ("float32", 1000, 4), ("float32", 4096, 1),
                                                      ("bfloat16", 1024, 8), ("bfloat16", 2048, 4)])  # fmt: skip
def test_wide_vectors_are_looked_up_by_default_fewer_at_once(dtype: str, dim: int, unroll: int) -> None:
    trial = gpu_trial("embedding_all_to_all", LOOKUPS | {"dim": dim}, world=4, dtype=dtype)
    assert walk(trial.problem, tile(trial.schedule["tile"])).unroll == unroll


def test_more_than_a_warp_has_registers_for_is_refused_with_what_would_do() -> None:
    asked = gpu_trial("embedding_all_to_all", LOOKUPS | {"dim": 8192}, world=4, dtype="float32").problem
    with pytest.raises(Refusal, match=r"128 > 32\. Accepted: fewer lookups at once, such as 1x4096x1\."):
        walk(asked, Tile(1, 4096, 4))
    with pytest.raises(Refusal, match=r"64 > 32\. Accepted: at most 4096 elements of a vector\."):
        walk(asked, Tile(1, 8192, 1))


def test_a_kernel_without_room_on_an_sm_is_refused_with_both_numbers() -> None:
    """A Refusal concerns its trial alone; Triton's own error ended the list, under the name of another trial."""

    class Compiled:
        def _init_handles(self) -> None:
            raise OutOfResources(262276, 232448, "shared memory")

    class Function:
        __name__ = "gemm_send"

        def warmup(self, *_: Any, **__: Any) -> Compiled:
            return Compiled()

    kernel = Kernel(function=Function(), arguments=(), constants={}, items=1)
    with pytest.raises(Refusal, match=r"needs 262276 bytes of shared memory.*262276 > 232448"):
        kernel.launching()
