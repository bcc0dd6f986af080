"""torch.ops.workbench on CPU tensors: right in worlds 1, 2 and 4, as torch wants its operators, told when wrong."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import kernels.ops
from kernels.operators import OPERATORS
from kernels.ops import arguments as groups
from kernels.schedule import Refusal
from tests.kernels.ops.ops_checks import DIFFERENTIABLE
from tests.kernels.ops.ops_gang import OpsGang

Of = Callable[[int], OpsGang]


@pytest.fixture(scope="module")
def gang() -> Iterator[Of]:
    """gang(world): kept for the module."""
    made: dict[int, OpsGang] = {}

    def of(world: int) -> OpsGang:
        if world not in made:
            made[world] = OpsGang(world)
        return made[world]

    yield of
    for one in made.values():
        one.close()


@pytest.fixture(scope="module")
def interpreted() -> Iterator[OpsGang]:
    """Two ranks whose Triton kernels are interpreted."""
    made = OpsGang(2, environment={"TRITON_INTERPRET": "1"})
    yield made
    made.close()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_operator_equals_the_reference(gang: Of, world: int, dtype: str) -> None:
    gang(world).check("every_operator_is_right", dtype)


@pytest.mark.parametrize("world", [2, 4])
def test_many_calls_with_fresh_operands_two_groups_and_two_shapes_in_turns(gang: Of, world: int) -> None:
    gang(world).check("fresh_operands_groups_and_shapes_in_turns", calls=56)


@pytest.mark.parametrize("world", [1, 2])
def test_a_result_stays_and_an_output_is_valid_until_the_next_call(gang: Of, world: int) -> None:
    if world == 1:
        gang(1).check("operands_of_other_layouts_are_copied")
    else:
        gang(2).check("the_result_is_no_view_and_output_is_one")


@pytest.mark.parametrize("operator", OPERATORS)
def test_torchs_own_check_of_operators_is_clean(gang: Of, operator: str) -> None:
    gang(2).check("torch_finds_nothing_wrong", operator=operator)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_model_compiles_without_a_break(gang: Of, operator: str) -> None:
    gang(2).check("a_compiled_model_is_the_same", operator=operator, backend="aot_eager")


@pytest.mark.slow
def test_a_model_compiles_with_inductor(gang: Of) -> None:
    gang(2).check("a_compiled_model_is_the_same", operator="gemm_all_to_all", backend="inductor")


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("operator", DIFFERENTIABLE)
def test_gradients_are_those_of_the_whole(gang: Of, operator: str, world: int) -> None:
    gang(world).check("gradients_are_those_of_the_whole", operator=operator)


def test_gradients_in_bfloat16(gang: Of) -> None:
    for operator in DIFFERENTIABLE:
        gang(2).check("gradients_are_those_of_the_whole", "bfloat16", operator=operator)


def test_only_the_gradient_that_is_asked_for_is_made(gang: Of) -> None:
    gang(2).check("only_the_gradient_that_is_asked_for_is_made")


def test_decoding_has_no_gradient_and_says_so(gang: Of) -> None:
    gang(2).check("no_gradient_of_decoding")


def test_a_rank_that_stays_away_is_told_and_closing_lets_all_go_on(gang: Of) -> None:
    gang(2).check("a_rank_that_stays_away_is_told")


def test_closing_gives_memory_back(gang: Of) -> None:
    gang(2).check("closing_gives_memory_back_and_the_next_call_begins_anew")


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_class_of_gpus_is_right_with_fresh_operands_where_kernels_are_interpreted(
    interpreted: OpsGang, operator: str
) -> None:
    looks_up = operator == "embedding_all_to_all"
    interpreted.check("gpu_kernels_interpreted", "float32" if looks_up else "float16", operator=operator)


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("operator", "first", "second", "result"),
    [
        ("embedding_all_to_all", (3, 50, 24), (20, 3, 5), (5, 4 * 3 * 24)),
        ("gemv_all_reduce", (40, 16), (16, 2), (40, 2)),
        ("gemm_all_to_all", (40, 16), (16, 8), (40, 8)),
        ("all_gather_gemm", (10, 16), (16, 8), (40, 8)),
        ("all_to_all_gemm", (40, 16), (16, 8), (40, 8)),
        ("gemm_reduce_scatter", (40, 16), (16, 8), (10, 8)),
        ("gemm_all_reduce", (40, 16), (16, 8), (40, 8)),
    ],
)
def test_shapes_need_no_data_and_no_more_of_a_group_than_its_size(
    monkeypatch: pytest.MonkeyPatch, operator: str, first: Any, second: Any, result: Any
) -> None:
    class Four:
        @staticmethod
        def size() -> int:
            return 4

    monkeypatch.setattr(groups, "process_group", lambda name: Four)
    kind = torch.int64 if operator == "embedding_all_to_all" else torch.bfloat16
    got = getattr(torch.ops.workbench, operator)(meta(*first), meta(*second, dtype=kind), "four")
    assert (got.device.type, got.dtype, tuple(got.shape)) == ("meta", torch.bfloat16, result)


def call(first: Tensor, second: Tensor, group: str = "", schedule: str = "") -> Tensor:
    return torch.ops.workbench.gemm_all_to_all(first, second, group, schedule)


ONES = torch.ones(8, 16)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((ONES, torch.ones(12, 4)), "expert of shape 12 x 4. With tokens of shape 8 x 16 in a group of 1 it must be"),
        ((ONES[0], ONES), "tokens with 1 dimensions, 16. Accepted: tokens [m, k]"),
        ((ONES, ONES.t().double()), "tokens of torch.float32 and expert of torch.float64. Accepted: expert of torch"),
        ((ONES.half(), ONES.t().half()), "dtype = float16 does not run on backend = cpu. Its kernels know 2 dtypes"),
        ((ONES.int(), ONES.t().int()), "There is no dtype 'int32'. Accepted: float32"),
        ((ONES, ONES.t(), "nobody"), "group_name = 'nobody' is not a process group of this rank"),
        (
            (ONES, ONES.t(), "", "sequential"),
            "its scheme 'sequential' is not an operator. Accepted: '' for the default",
        ),
        ((ONES, ONES.t(), "", "fused tile"), "does not have the form axis=value at 'tile'. Accepted axes: tile"),
        ((ONES, ONES.t(), "", "fused store=tma"), "store = tma changes nothing in gemm_all_to_all"),
        ((ONES, ONES.t(), "", "fused write=twice"), "write = twice is not a legal value here"),
        ((ONES[:0], ONES.t()), "gemm_all_to_all got m = 0, and 0 < 1"),
        ((ONES, ONES.t().to("meta")), "tokens on cpu and expert on meta. Accepted: both on the device of this rank"),
    ],
)
def test_a_call_that_cannot_be_says_why(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        call(*arguments)
    assert sentence in str(refused.value)


def test_rows_that_ranks_cannot_share_are_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.ops.registered.world_of", lambda name: 3)
    with pytest.raises(Refusal) as refused:
        call(ONES.to("meta"), ONES.t().to("meta"), "three")
    assert "in a group of 3: m = 8 does not share out evenly: each rank owns m/world rows, and world = 3 does" in str(
        refused.value
    )


def test_ranks_on_two_hosts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        @staticmethod
        def size() -> int:
            return 2

    monkeypatch.setattr(groups, "everyone", lambda group, value: [("one", "a"), ("another", "b")])
    with pytest.raises(Refusal, match="2 ranks on 2 hosts"):
        groups.GroupRanks.begin(Group, torch.device("cpu"))


def test_a_schedule_is_stated_by_its_text_in_both_forms() -> None:
    first, second = torch.randn(64, 32), torch.randn(32, 16)
    for text in ("fused", "fused tile=16x8x32 slice_tiles=2", "fused(tile=32x16x32, write=staged)"):
        torch.testing.assert_close(call(first, second, "", text), first @ second)


def test_a_rank_alone_closes_and_goes_on() -> None:
    torch.testing.assert_close(call(ONES, ONES.t()), ONES @ ONES.t())
    kernels.ops.check()
    kernels.ops.close()
    torch.testing.assert_close(call(2 * ONES, ONES.t()), 2 * ONES @ ONES.t())


def test_pieces_of_an_arena_do_not_overlap_and_come_again_after_clear() -> None:
    from kernels.backends.triton.repeated import HeapArena

    class Memory:
        def __init__(self, capacity: int) -> None:
            self.capacity, self.bytes = capacity, torch.zeros(capacity, dtype=torch.uint8)

        def tensor(self, rank: int, offset: int, shape: Any, dtype: torch.dtype) -> Tensor:
            return self.bytes[offset : offset + shape[0] * dtype.itemsize].view(dtype)

    made: list[Memory] = []

    def make(num_bytes: int) -> Memory:
        made.append(Memory(num_bytes))
        return made[-1]

    arena = HeapArena(make, least=1024)
    sizes = (100, 300, 2000, 600, 500)
    pieces = [arena.piece(size) for size in sizes]
    for number, (size, piece) in enumerate(zip(sizes, pieces, strict=True)):
        piece.tensor(0, 0, (size,), torch.uint8).fill_(number + 1)
    for number, (size, piece) in enumerate(zip(sizes, pieces, strict=True)):
        assert piece.tensor(0, 0, (size,), torch.uint8).unique().tolist() == [number + 1]
    assert [memory.capacity for memory in made] == [1024, 2048, 1024]
    arena.clear()
    assert arena.piece(50) == dataclasses.replace(pieces[0], capacity=128)
    assert len(made) == 3
