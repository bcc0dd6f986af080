"""Fitted tiles without a GPU: what is refused, what ptxas makes of their kernel, and how operands are bound to it."""

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton import knobs
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as PlacedDescriptor

from kernels import fitted
from kernels.backends.triton import refusals, repeated
from kernels.backends.triton.direct_launch import FlatArguments, in_a_row
from kernels.backends.triton.kernels import gemm_fitted
from kernels.backends.triton.recipes import compilations
from kernels.occupancy import gemm_block
from kernels.schedule import Refusal, tile
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import Compiled, compile_kernel, kernels_of, key_of
from tests.kernels.backends.triton.conftest import gpu_trial

SHAPE = {"m": 263, "n": 8064, "k": 9984}
TILES = ("136x128x64", "128x192x64", "256x160x64", "160x256x64", "96x64x64", "64x192x64", "216x128x64", "248x128x64")


def trial(size: str, shape: dict[str, int] = SHAPE, dtype: str = "bfloat16", **axes: Any) -> Trial:
    return gpu_trial("gemm_all_to_all", shape, world=1, dtype=dtype, tile=size, **axes)


# What a tile's sides say, and what is refused.


@pytest.mark.parametrize(("size", "m", "n", "swapped", "warps", "stages", "pieces"), [
    ("136x128x64", 128, 136, True, 8, 6, (128, 8)), ("128x192x64", 128, 192, False, 8, 5, (128, 64)),
    ("160x256x64", 256, 160, True, 8, 4, (128, 32)), ("96x64x64", 64, 96, True, 4, 8, (64, 32)),
    ("256x160x64", 256, 160, False, 8, 4, (128, 32)), ("64x192x64", 64, 192, False, 4, 7, (128, 64)),
    ("248x128x64", 128, 248, True, 8, 4, (128, 64, 32, 16, 8)),
])  # fmt: skip
def test_the_side_that_is_no_power_of_two_is_that_of_the_instruction(
    size: str, m: int, n: int, swapped: bool, warps: int, stages: int, pieces: tuple[int, ...]
) -> None:
    of = fitted.sides(tile(size))
    assert (of.m, of.n, of.swapped, of.warps, of.stages, of.pieces) == (m, n, swapped, warps, stages, pieces)


@pytest.mark.parametrize(("size", "numbers"), [
    ("130x128x64", ("8", "130")), ("128x200x64", ("32", "200")), ("136x100x64", ("256", "100")),
    ("136x128x128", ("64", "128")), ("192x256x64", ("160", "192")), ("264x128x64", ("256", "264")),
])  # fmt: skip
def test_a_tile_that_no_instruction_computes_is_refused_with_both_numbers(size: str, numbers: tuple[str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        trial(size)
    assert all(number in str(refused.value) for number in (size, *numbers, "Accepted: "))


@pytest.mark.parametrize(("axis", "value"), [
    ("store", "registers"), ("num_warps", 4), ("split_k", 2), ("num_stages", 7), ("num_stages", 2),
])  # fmt: skip
def test_axes_that_its_kernel_does_not_have_are_refused(axis: str, value: Any) -> None:
    grid = {"grid": 132} if axis == "split_k" else {}
    with pytest.raises(Refusal, match=f"{axis} = {value} does not go with tile = 136x128x64"):
        trial("136x128x64", **{axis: value}, **grid)


@pytest.mark.parametrize(("operator", "world", "why"), [
    ("gemm_all_to_all", 2, "by 1 rank .* gemm_all_to_all by 2"), ("gemm_reduce_scatter", 1, "by 1 rank"),
    ("all_gather_gemm", 2, "by 1 rank"),
])  # fmt: skip
def test_only_a_gemm_of_one_rank_has_such_tiles(operator: str, world: int, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        gpu_trial(operator, {"m": 264, "n": 8064, "k": 9984}, world=world, dtype="bfloat16", tile="136x128x64")


def test_a_tile_that_nothing_computes_is_refused_with_our_kernel_of_other_schemes() -> None:
    for scheme in ("sequential", "concurrent"):
        chosen = {"scheme": scheme, "kernel": "ours", "tile": "40x40x64"}
        by = gpu_trial("gemm_all_to_all", SHAPE, world=1, dtype="bfloat16", **chosen)
        assert "64, 128 or 256" in str(refusals.refusal(by, True))


def test_a_short_contraction_and_another_dtype_are_refused() -> None:
    with pytest.raises(Refusal, match="64 <= 64"):
        trial("136x128x64", {"m": 263, "n": 8064, "k": 64})
    with pytest.raises(Refusal, match="float32 have 4"):
        trial("136x128x64", dtype="float32")


def test_a_gpu_of_another_architecture_and_pieces_are_refused() -> None:
    by = trial("136x128x64")
    assert refusals.of_gpu(by, 90) is None
    assert refusals.refusal(by, True) is None
    assert "sm_90 only, and this is sm_100" in str(refusals.of_gpu(by, 100))
    pieces = gpu_trial("gemm_all_to_all", SHAPE, world=1, dtype="bfloat16", scheme="decomposed", tile="136x128x64")
    assert "decomposed" in str(refusals.refusal(pieces, True))


def test_the_interpreter_has_no_such_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_fitted.device, "INTERPRETED", SimpleNamespace(value=True))
    with pytest.raises(Refusal, match="interpreter"):
        kernels_of(trial("136x128x64"), rank=0)


# What is compiled.


@cache
def compiled(size: str, stamped: bool = False, dtype: str = "bfloat16") -> Compiled:
    return compile_kernel(trial(size, dtype=dtype), stamped=stamped)


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("size", TILES)
def test_ptxas_needs_no_memory_for_registers_and_serializes_no_product(size: str, tmp_path: Path) -> None:
    of = fitted.sides(tile(size))
    for stamped in (False, True):
        made = compiled(size, stamped)
        (tmp_path / "kernel.ptx").write_text(made.ptx)
        command = [knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", "kernel.ptx", "-o", "kernel.cubin"]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=True).stderr
        assert re.search(r"\b0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", said), said
        assert "C75" not in said, said
        assert made.local_bytes(tmp_path) == 0
        instructions = Counter(re.findall(r"wgmma\.mma_async\S+?\.(m64n\d+k16)", made.ptx))
        each, copies = 4 * max(1, of.m // 128), (1, 2)  # the compiler may begin a tile with a copy of the loop's body
        assert instructions in [{f"m64n{of.n}k16": each * count} for count in copies]


@pytest.mark.parametrize("size", TILES[:3])
def test_operands_lie_where_descriptors_say(size: str) -> None:
    """The pool is the first thing in shared memory: its barriers follow its stages; and both descriptors are in PTX."""
    of, made = fitted.sides(tile(size)), compiled(size)
    barriers = of.stages * of.step_bytes
    assert re.search(rf"add\.s32 \t%r\d+, %r\d+, {barriers};", made.ptx)
    rows_last = 1 << 62 | 64 << 32  # swizzle of 128 bytes, 1,024 bytes from 8 rows to the next
    rows_first = rows_last | 512 << 16  # 8,192 bytes from 64 columns to the next
    if of.panel_bytes == 64:  # swizzle of 64 bytes, 512 bytes from 8 rows to the next, 4,096 from 32 columns
        rows_first = (2 << 62 | 32 << 32 | 256 << 16) - (1 << 64)
    assert gemm_fitted.ROWS_LAST.value == rows_last
    assert gemm_fitted.rows_first.fn(of.panel_bytes) == rows_first
    second = of.m * fitted.STEP * fitted.ITEMSIZE // 16
    kept = (rows_first, rows_last + second) if of.swapped else (rows_last, rows_first + second)
    assert all(str(value) in made.ptx for value in kept)


def test_results_leave_from_the_last_steps_and_no_piece_from_two() -> None:
    for n in range(8, 257, 8):
        for m in (64, 128, 256):
            if not n & (n - 1) or m * n > 160 * 256:
                continue
            of = fitted.sides(tile(f"{n}x{m}x64"))
            units, group_rows = (m + n) // 8, 16 * of.warps
            places = gemm_fitted.leaving.fn(of.pieces, m // group_rows, group_rows, units)
            sizes = [group_rows * piece * 2 // 1024 for piece in of.pieces] * (m // group_rows)
            assert max(stage for stage, _ in places) <= 1 < of.stages - 1
            taken = [(stage, unit) for (stage, first), size in zip(places, sizes, strict=True)
                     for unit in range(first, first + size)]  # fmt: skip
            assert len(taken) == len(set(taken))
            assert max(unit for _, unit in taken) < units


@pytest.mark.parametrize("size", TILES)
def test_a_block_takes_what_the_residency_rule_says(size: str, tmp_path: Path) -> None:
    made, expected = compiled(size), gemm_block(tile(size), 2, fitted.sides(tile(size)).stages, 8)
    assert 0 <= expected.shared_bytes - made.shared_bytes <= 256
    threads = re.search(r"\.(?:reqntid|maxntid) (\d+)", made.ptx)
    assert threads
    assert expected.threads == int(threads[1])
    assert expected.registers == made.registers(tmp_path)


def test_equal_compilations_are_those_that_triton_has_one_key_for() -> None:
    pairs = set()
    for shape in (SHAPE, {**SHAPE, "m": 1000}, {**SHAPE, "k": 9992}):
        for by in (trial("136x128x64", shape), trial("136x128x64", shape, num_stages=4), trial("128x192x64", shape)):
            pairs |= set(zip(compilations(by), map(key_of, kernels_of(by, rank=0)), strict=True))
    assert len({counted for counted, _ in pairs}) == len({key for _, key in pairs}) == len(pairs) > 6


# How operands are bound.


def test_views_of_operands_keep_the_layout_of_their_tiles() -> None:
    operand = torch.empty(64, 256, dtype=torch.bfloat16)
    argument = PlacedDescriptor.from_tensor(operand, [8, 64], gemm_fitted.layout_of())
    (view,) = repeated._views([None, argument, 7], {"x": operand})
    other = torch.empty(64, 256, dtype=torch.bfloat16)
    made = view.of(other)
    assert (view.place, view.name, made.base.data_ptr()) == (1, "x", other.data_ptr())
    assert (list(made.block_shape), made.layout) == ([8, 64], gemm_fitted.layout_of())


def test_a_direct_launch_encodes_them_as_others() -> None:
    made = []

    def encode(descriptor: Any, metadata: Any) -> list[Any]:
        made.append((descriptor.base.data_ptr(), list(descriptor.block_shape), metadata))
        return ["map", *descriptor.shape, *descriptor.strides]

    operand, other = (torch.empty(64, 256, dtype=torch.bfloat16) for _ in range(2))
    argument = PlacedDescriptor.from_tensor(operand, [8, 64], gemm_fitted.layout_of())
    kinds = ["tensordesc<bf16[8, 64],NVMMASharedLayout()>", "i32"]
    flat = FlatArguments.of(kinds, [argument, 7], ["meta"], encode, in_a_row)
    flat.maps[0].of(other, 0, (64, 256), (256, 1))
    assert flat.values == ["map", 64, 256, 256, 1, 7]
    assert made == [(operand.data_ptr(), [8, 64], "meta"), (other.data_ptr(), [8, 64], "meta")]
