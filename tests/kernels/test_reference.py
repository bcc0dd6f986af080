"""A result is right within a bound that follows from dtype and sizes; a stale, torn or missing one is wrong."""

import pytest
import torch

from kernels.operators import problem
from kernels.reference import bound, expected, operands, verdict

GEMM = problem("gemm_all_to_all", {"m": 32, "n": 16, "k": 64}, world=2)


def test_the_reference_itself_is_right() -> None:
    truth = expected(GEMM, 0, 0)
    assert verdict(GEMM, truth.float(), truth, 2).correct


def test_one_wrong_element_is_found() -> None:
    truth = expected(GEMM, 1, 0)
    got = truth.float()
    got[3, 5] += 0.05
    found = verdict(GEMM, got, truth, 2)
    assert not found.correct
    assert "rank 1 is wrong" in found.message(1)


def test_poison_that_was_not_overwritten_is_wrong() -> None:
    truth = expected(GEMM, 0, 0)
    got = truth.float()
    got[-1, -1] = float("nan")
    assert not verdict(GEMM, got, truth, 2).correct


def test_rows_of_another_rank_are_wrong() -> None:
    assert not verdict(GEMM, expected(GEMM, 1, 0).float(), expected(GEMM, 0, 0), 2).correct


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-4), ("bfloat16", 0.2)])
def test_the_bound_is_tight_enough_to_catch_a_missing_tile(dtype: str, allowed: float) -> None:
    asked = problem("gemm_all_to_all", {"m": 32, "n": 16, "k": 64}, dtype=dtype, world=2)
    assert bound(asked, roundings=2) < allowed


def test_the_bound_grows_with_the_contraction_and_with_each_rounding() -> None:
    longer = problem("gemm_all_to_all", {"m": 32, "n": 16, "k": 6400}, world=2)
    assert bound(GEMM, 2) < bound(GEMM, 4) < bound(longer, 4)


def test_a_missing_piece_of_the_contraction_is_found_among_64_in_bfloat16() -> None:
    asked = problem("all_gather_gemm", {"m": 128, "n": 128, "k": 2048}, dtype="bfloat16", world=2)
    own = operands(asked, 0, 0)
    truth = own["shard"].double() @ own["b"].double()
    pieces = [own["shard"][:, at : at + 32].double() @ own["b"][at : at + 32].double() for at in range(0, 2048, 32)]
    kept, left_out = torch.zeros_like(truth, dtype=torch.bfloat16), torch.zeros_like(truth, dtype=torch.bfloat16)
    for number, piece in enumerate(pieces):
        kept = (kept.double() + piece).bfloat16()
        left_out = left_out if number == 63 else (left_out.double() + piece).bfloat16()
    assert verdict(asked, kept, truth, 64).correct
    assert not verdict(asked, left_out, truth, 64).correct


def test_operands_are_the_same_in_every_process_and_differ_by_rank() -> None:
    mine, again, others = operands(GEMM, 0, 0), operands(GEMM, 0, 0), operands(GEMM, 1, 0)
    assert all(torch.equal(mine[name], again[name]) for name in mine)
    assert not torch.equal(mine["tokens"], others["tokens"])


def test_power_law_indices_favour_few_rows_and_stay_in_the_table() -> None:
    shape = {"tables_per_rank": 1, "rows": 1000, "dim": 4, "batch": 256, "pooling": 20}
    uniform = operands(problem("embedding_all_to_all", shape), 0, 0)["indices"]
    skewed = operands(problem("embedding_all_to_all", {**shape, "indices": "power_law"}), 0, 0)["indices"]
    assert 0 <= int(skewed.min()) <= int(skewed.max()) < 1000
    hottest = [int(found.flatten().bincount().max()) for found in (uniform, skewed)]
    assert hottest[1] > 10 * hottest[0]
    assert skewed.unique().numel() < uniform.unique().numel()
