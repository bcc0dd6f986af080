"""Operands fill three times the L2 where that takes no more than 64 sets, and every fourth set has other values."""

from typing import Any

import pytest
import torch

from kernels.backends.triton import backend
from kernels.backends.triton.backend import COLD, TURN, copies_of, of_micro_batches, operand_sets, times_l2, values_of
from kernels.operators import problem
from kernels.reference import alternated, expected, operands, partial

MIB = 1 << 20
L2 = 50 * MIB
CPU = torch.device("cpu")
GEMM = problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=2)


@pytest.mark.parametrize(
    ("num_bytes", "copies"),
    [(1 * MIB, 64), (150 * MIB // 64, 64), (5 * MIB, 32), (49 * MIB, 4), (60 * MIB, 4), (75 * MIB, 2), (500 * MIB, 1)],
)
def test_copies_are_as_many_as_keep_the_l2_cold_and_at_most_64(num_bytes: int, copies: int) -> None:
    assert copies_of(num_bytes, L2) == copies
    assert copies == 64 or copies * num_bytes >= 3 * L2
    assert copies < TURN - 1 or copies % TURN == 0


@pytest.fixture
def small_l2(monkeypatch: pytest.MonkeyPatch) -> Any:
    """small_l2(bytes): what every GPU has."""
    return lambda num_bytes: monkeypatch.setattr(backend, "l2_bytes", lambda device: num_bytes)


def size_of(of: Any) -> int:
    return sum(tensor.nbytes for tensor in operands(of, 0, 0).values())


def test_copies_have_the_two_values_of_the_seed_in_turns(small_l2: Any) -> None:
    small_l2(2 * size_of(GEMM))
    sets = operand_sets(GEMM, 1, CPU, seed=7)
    assert [values_of(number) for number in range(8)] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert len(sets) == 8
    both = [operands(GEMM, 1, 7, values=values) for values in (0, 1)]
    for number, own in enumerate(sets):
        assert list(own) == list(both[0])
        assert all(torch.equal(own[name], both[values_of(number)][name]) for name in own)
    assert len({tensor.data_ptr() for own in sets for tensor in own.values()}) == 8 * len(sets[0])
    assert times_l2(sets, CPU) == 4.0


@pytest.mark.parametrize(("share", "cold", "copies"), [(4.0, True, 1), (2.0, True, 2), (1e-9, False, 1)])
def test_operands_that_fill_the_l2_by_one_or_two_copies_are_shared_but_for_what_alternates(
    small_l2: Any, share: float, cold: bool, copies: int
) -> None:
    small_l2(int(size_of(GEMM) / share))
    sets = operand_sets(GEMM, 0, CPU, cold=cold)
    assert len(sets) == TURN
    places = {name: len({own[name].data_ptr() for own in sets}) for name in sets[0]}
    assert places == {name: copies + (name == alternated(GEMM)) for name in places}


@pytest.mark.parametrize(
    ("operator", "shape", "name"),
    [
        ("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, "expert"),
        ("gemm_all_reduce", {"m": 16, "n": 64, "k": 16}, "a"),
        ("all_gather_gemm", {"m": 640, "n": 32, "k": 16}, "shard"),
        ("all_to_all_gemm", {"m": 640, "n": 32, "k": 16}, "tokens"),
        ("gemv_all_reduce", {"n": 64, "k": 64, "tokens": 2}, "activations"),
        ("embedding_all_to_all", {"tables_per_rank": 2, "rows": 50, "dim": 8, "batch": 16, "pooling": 3}, "indices"),
    ],
)
def test_the_values_differ_in_one_operand_and_in_the_whole_output(
    operator: str, shape: dict[str, int], name: str
) -> None:
    of = problem(operator, shape, world=2)
    both = [operands(of, 0, 3, values=values) for values in (0, 1)]
    assert [each for each in both[0] if not torch.equal(both[0][each], both[1][each])] == [name] == [alternated(of)]
    truths = [expected(of, 0, 3, values=values) for values in (0, 1)]
    assert not torch.isclose(*truths).any()
    computed = partial(of, operands(of, 0, 3, values=1), slice(None)) if name not in ("shard", "tokens") else None
    if operator == "embedding_all_to_all":
        assert computed is not None
        assert torch.equal(truths[1][:, : computed.shape[1]], computed[: len(truths[1])])


@pytest.mark.parametrize("share", [0.4, 1.0, 4.0, 400.0])
def test_micro_batches_share_no_operand_that_another_one_may_have_left_in_the_l2(small_l2: Any, share: float) -> None:
    """Each has values of its own, in turns as the first has; only what fills the L2 three times is not copied."""
    small_l2(l2 := int(size_of(GEMM) / share))
    first, count = operand_sets(GEMM, 1, CPU, seed=7), 3
    every = of_micro_batches(first, count, GEMM, 1, CPU, seed=7)
    assert every[0] is first
    places: dict[int, set[int]] = {}
    for micro_batch, sets in enumerate(every):
        for number, own in enumerate(sets):
            there = operands(GEMM, 1, 7, values=2 * micro_batch + values_of(number))
            assert all(torch.equal(own[name], there[name]) for name in there)
            for name, tensor in own.items():
                if name == alternated(GEMM) or tensor.nbytes < COLD * l2:
                    places.setdefault(micro_batch, set()).add(tensor.data_ptr())
        assert len({tuple(t.data_ptr() for t in own.values()) for own in sets}) == len(
            {tuple(t.data_ptr() for t in own.values()) for own in first}
        )
    shared = [a & b for a in places.values() for b in places.values() if a is not b]
    assert not any(shared)
