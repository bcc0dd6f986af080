"""torch.ops.workbench on CPU tensors: right in worlds 1, 2 and 4, as torch wants its operators, told when wrong."""

import dataclasses
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import kernels.ops
from kernels.machine import load
from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.ops import arguments as groups
from kernels.ops import auto, registered
from kernels.ops.gpu import OFFERED, CapturedOperands, GpuCalls
from kernels.schedule import Refusal
from kernels.schemes import gemm_block
from tests.kernels.ops.ops_checks import DIFFERENTIABLE
from tests.kernels.ops.ops_gang import OpsGang

Of = Callable[[int], OpsGang]
WORLDS = [1, 2, pytest.param(4, marks=pytest.mark.slow)]
"""Four ranks are another gang: `make test` does without."""


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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_operator_equals_the_reference(gang: Of, world: int, dtype: str) -> None:
    gang(world).check("every_operator_is_right", dtype)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("world", [2, 4])
def test_many_calls_with_fresh_operands_two_groups_and_two_shapes_in_turns(gang: Of, world: int) -> None:
    gang(world).check("fresh_operands_groups_and_shapes_in_turns", calls=56)


@pytest.mark.parametrize("world", [1, 2])
def test_a_result_stays_and_an_output_is_valid_until_the_next_call(gang: Of, world: int) -> None:
    if world == 1:
        gang(1).check("operands_of_other_layouts_are_copied")
    else:
        gang(2).check("the_result_is_no_view_and_output_is_one")


@pytest.mark.parametrize("world", WORLDS)
def test_calls_of_any_rows_run_in_buckets(gang: Of, world: int) -> None:
    gang(world).check("calls_of_any_rows_run_in_buckets")


@pytest.mark.parametrize("world", WORLDS)
def test_rows_of_an_all_reduce_have_the_bits_of_their_bucket(gang: Of, world: int) -> None:
    gang(world).check("a_row_has_the_bits_of_its_bucket")


@pytest.mark.parametrize("world", WORLDS[1:])
def test_an_all_reduce_has_any_number_of_rows(gang: Of, world: int) -> None:
    gang(world).check("an_all_reduce_has_any_number_of_rows")


MACHINES = Path(__file__).parents[3] / "data" / "machines"


def test_a_bucket_without_rows_is_refused() -> None:
    with pytest.raises(Refusal, match=r"A bucket of 0 rows holds no call, since 0 < 1\. Accepted: rows from 1\."):
        kernels.ops.bucket_rows(16, 0)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", OPERATORS)
def test_torchs_own_check_of_operators_is_clean(gang: Of, operator: str) -> None:
    gang(2).check("torch_finds_nothing_wrong", operator=operator)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_model_compiles_without_a_break(gang: Of, operator: str) -> None:
    gang(2).check("a_compiled_model_is_the_same", operator=operator, backend="aot_eager")


@pytest.mark.slow
def test_a_model_compiles_with_inductor(gang: Of) -> None:
    gang(2).check("a_compiled_model_is_the_same", operator="gemm_all_to_all", backend="inductor")


@pytest.mark.parametrize("world", WORLDS)
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


@pytest.mark.slow
def test_a_rank_that_stays_away_is_told_and_closing_lets_all_go_on(gang: Of) -> None:
    gang(2).check("a_rank_that_stays_away_is_told")


def test_closing_gives_memory_back(gang: Of) -> None:
    gang(2).check("closing_gives_memory_back_and_the_next_call_begins_anew")


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", ["gemm_all_reduce", "gemm_reduce_scatter", "gemm_all_to_all"])
def test_results_of_tiles_that_span_ranks_reach_the_caller(interpreted: OpsGang, operator: str) -> None:
    """They lie in symmetric memory: a call that took fresh memory for them returned it unwritten."""
    spanning = "fused(tile=32x32x32, tile_order=spanning)"
    interpreted.check("gpu_kernels_interpreted", "float16", operator=operator, schedule=spanning)


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_class_of_gpus_is_right_with_fresh_operands_where_kernels_are_interpreted(
    interpreted: OpsGang, operator: str
) -> None:
    looks_up = operator == "embedding_all_to_all"
    interpreted.check("gpu_kernels_interpreted", "float32" if looks_up else "float16", operator=operator)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("schedule", ["sequential collective=library", "sequential"])
def test_every_sequential_operator_equals_the_reference(gang: Of, world: int, dtype: str, schedule: str) -> None:
    """By the library on the caller's group, and by a Plan."""
    gang(world).check("every_operator_is_right", dtype, schedule=schedule if world > 1 else "sequential")


@pytest.mark.slow(keeps=6)
@pytest.mark.parametrize("collective", ["library", "direct"])
@pytest.mark.parametrize("operator", [name for name, known in OPERATORS.items() if known.flow is not Flow.BROADCAST])
def test_sequential_calls_of_gpus_are_right_with_fresh_operands_where_kernels_are_interpreted(
    interpreted: OpsGang, operator: str, collective: str
) -> None:
    dtype = "float32" if operator == "embedding_all_to_all" else "float16"
    schedule = f"sequential collective={collective}"
    interpreted.check("gpu_kernels_interpreted", dtype, operator=operator, schedule=schedule)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("world", [1, 2])  # four agree as two do, by one gathering; one skips it
def test_calls_without_a_schedule_run_what_the_table_or_a_measurement_chooses(tmp_path: Path, world: int) -> None:
    gang = OpsGang(world, environment={"XDG_CACHE_HOME": str(tmp_path)})
    try:
        gang.check("calls_without_a_schedule_run_what_is_chosen")
        assert len(list((tmp_path / "overlap_workbench").iterdir())) == 1
        if world > 1:
            gang.check("ranks_that_choose_differently_are_refused")
        if world == 2:
            said = gang.check("every_operator_is_right_as_measured")
            assert said[0] == said[1]
            assert len(said[0]) == len(OPERATORS)
    finally:
        gang.close()


def test_the_simplest_of_the_fastest_is_decided() -> None:
    from kernels.ops.auto import decided

    assert decided({"sequential(collective=library)": 1.019, "fused(tile=1x1x1)": 1.0}).startswith("sequential")
    assert decided({"sequential(collective=library)": 1.03, "fused(tile=1x1x1)": 1.0}).startswith("fused")
    same = {"sequential(collective=direct)": 1.0, "sequential(collective=library)": 1.01}
    assert decided(same) == "sequential(collective=direct)", "the faster of two that are as simple"


def test_an_unknown_way_to_choose_is_refused() -> None:
    with pytest.raises(Refusal, match=r"no mode 'best'\. Accepted: table \(.*\), measured \(.*\), off"):
        kernels.ops.choose_by("best")


@pytest.mark.parametrize("mode", ["table", "measured"])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("gpu", ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB"])
def test_a_rank_alone_runs_something_that_is_legal_for_it(
    gpu: str, operator: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, ranks = groups.gpu_machine(torch.device("cpu")), SimpleNamespace(everyone=lambda value: [value])
    named: Any = dataclasses.replace(machine, device=dataclasses.replace(machine.device, name=gpu))
    monkeypatch.setattr(auto, "_MODE", [mode])
    shape = {"embedding_all_to_all": {"tables_per_rank": 8, "rows": 1000, "dim": 128, "batch": 4096, "pooling": 8},
             "gemv_all_reduce": {"n": 8192, "k": 8192, "tokens": 1}}  # fmt: skip
    asked = problem(operator, shape.get(operator, {"m": 4096, "n": 4096, "k": 4096}), dtype="bfloat16", world=1)
    choices = auto.GroupChoices(cast(Any, ranks), named, OFFERED)
    monkeypatch.setattr(choices.__class__, "_measured", lambda self, asked, close, measure: SimpleNamespace(
        problem=asked, schedule=close[0]))  # fmt: skip
    assert choices.schedule(asked, lambda texts: {}) in {
        str(made) for name in OFFERED if (made := choices.legal(name, asked)) is not None
    }


def test_a_candidate_that_fails_while_it_is_measured_is_named() -> None:
    calls: Any = GpuCalls.__new__(GpuCalls)
    calls.device, calls.ranks, calls._prepared = (
        torch.device("cpu"),
        SimpleNamespace(everyone=lambda value: [value]),
        {},
    )
    calls._errors, calls._others = SimpleNamespace(raised=lambda: True), SimpleNamespace(sentence=lambda: "")

    class Failing:
        def __call__(self, operands: Any) -> None: ...

        def failure(self) -> str:
            return "rank 0 waited 5 s for rank 1"

    calls._prepare = lambda problem, text, operands: Failing()
    with pytest.raises(kernels.ops.Hang, match="rank 0 waited 5 s for rank 1"):
        calls.measure(cast(Any, "problem"), ["fused(tile=1x1x1)"], {})


def test_nothing_to_measure_is_refused() -> None:
    ranks: Any = None
    with pytest.raises(Refusal, match=r"0 of the schedules to measure can be made here\. Accepted: a schedule with"):
        auto.in_turns({}, torch.device("cpu"), ranks)


def test_calls_have_the_default_tile_that_trials_have() -> None:
    here, h200 = groups.gpu_machine(torch.device("cpu")), load(MACHINES / "h200_nvl8.toml")
    for m in (16, 64, 512, 4096):
        of = problem("gemm_all_to_all", {"m": m, "n": 4096, "k": 4096}, dtype="bfloat16", world=1)
        assert gemm_block.usual(of, here) == gemm_block.usual(of, h200)


def test_a_padded_result_may_be_changed_in_place() -> None:
    kernels.ops.bucket_rows(64)
    try:
        shard, weights = torch.randn(40, 32, requires_grad=True), torch.randn(32, 16)
        result = torch.ops.workbench.all_gather_gemm(shard, weights)
        result += 1
        result.sum().backward()
        assert torch.allclose(result, shard @ weights + 1, atol=1e-4)
        assert shard.grad is not None
    finally:
        kernels.ops.bucket_rows()
        kernels.ops.close()
    assert not registered._READ, "a group that comes later may have another number of ranks"


def test_an_operand_that_moved_since_its_capture_is_named() -> None:
    first, second = torch.zeros(256, 64, dtype=torch.bfloat16), torch.zeros(64, 128, dtype=torch.bfloat16)
    captured = CapturedOperands()
    captured.keep(groups.problem("gemm_reduce_scatter", groups.Operand.of(first), groups.Operand.of(second), 2),
                  {"a": first, "b": second})  # fmt: skip
    first.add_(1)
    captured.check()
    address = second.data_ptr()
    second.data = torch.ones(64, 128, dtype=torch.bfloat16)
    with pytest.raises(Refusal, match=rf"^Operand b of gemm_reduce_scatter lies at 0x.* reads {address:#x}\. Accepted"):
        captured.check()
    captured.keep(groups.problem("gemm_reduce_scatter", groups.Operand.of(first), groups.Operand.of(second), 2),
                  {"a": first, "b": second})  # fmt: skip
    captured.check()
    del second
    captured.check()


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
            (ONES, ONES.t(), "", "decomposed"),
            "its scheme 'decomposed' is not an operator. Accepted: '' for the default",
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


UNDEFINED = -(2**31)
"""NCCL's word for a setting that nobody has made."""


class NcclGroup:
    """A process group of *ranks* with what NCCL was told of it; without NCCL where *max_ctas* is None."""

    def __init__(self, ranks: int, max_ctas: int | None, timeout_s: float) -> None:
        self._ranks, self._max_ctas, self._timeout_s = ranks, max_ctas, timeout_s

    def size(self) -> int:
        return self._ranks

    def _get_backend(self, device: torch.device) -> Any:
        if self._max_ctas is None:
            raise RuntimeError("No backend type associated with device type cuda")
        config = SimpleNamespace(max_ctas=self._max_ctas)
        return SimpleNamespace(options=SimpleNamespace(config=config, _timeout=timedelta(seconds=self._timeout_s)))


CALLER = NcclGroup(4, UNDEFINED, 600)


@pytest.mark.parametrize(
    ("others", "count", "sms", "limit_s"),
    [
        ([], 0, 0, 600),
        ([NcclGroup(1, UNDEFINED, 8), NcclGroup(4, None, 8)], 0, 0, 600),
        ([NcclGroup(4, UNDEFINED, 600)], 1, 32, 300),
        ([NcclGroup(2, 8, 20), NcclGroup(4, 4, 600)], 2, 8, 10),
    ],
)
def test_sms_stay_free_and_waits_are_shorter_where_another_group_has_nccl(
    monkeypatch: pytest.MonkeyPatch, others: list[NcclGroup], count: int, sms: int, limit_s: float
) -> None:
    world = SimpleNamespace(pg_names=dict.fromkeys([CALLER, *others], ""))
    monkeypatch.setattr(groups, "_C10D", SimpleNamespace(_world=world))
    seen = groups.OtherGroups.of(CALLER, torch.device("cuda"))
    assert (seen.count, seen.sms, seen.limit_s(600)) == (count, sms, limit_s)
    assert seen.programs(132) == (132 - sms if count else 0)
    assert bool(seen.sentence()) == bool(count)
    assert groups.OtherGroups.of(CALLER, torch.device("cpu")) == groups.OtherGroups()


def test_ranks_agree_about_other_groups_so_that_their_kernels_are_alike() -> None:
    one, two = groups.OtherGroups(1, 16, 40.0), groups.OtherGroups(2, 8, 600.0)
    assert groups.OtherGroups.agreed([one, two, groups.OtherGroups()]) == groups.OtherGroups(2, 16, 40.0)


def test_a_second_group_without_free_sms_is_refused_with_both_numbers() -> None:
    from kernels.backends.triton.launch import LaunchableKernel
    from kernels.backends.triton.repeated import on_fewer

    with pytest.raises(Refusal, match=r"the GPU has 20: 32 >= 20\. Accepted: .*max_ctas"):
        groups.OtherGroups(1, 32, 600.0).programs(20)
    kernel = LaunchableKernel(function=None, arguments=(), constants={}, items=500)
    with pytest.raises(Refusal, match=r"grid = 132 is too large: .* 132 > 100, what they leave\. Accepted: up to 100"):
        on_fewer(dataclasses.replace(kernel, grid=132), 100)
    assert [on_fewer(kernel, 100).grid, on_fewer(dataclasses.replace(kernel, grid=7), 100).grid] == [100, 7]
    assert on_fewer(dataclasses.replace(kernel, grid=264, takes_fewer=True), 100).grid == 100
    lookups = dataclasses.replace(kernel, num_warps=1)
    assert on_fewer(lookups, 100) is lookups, "which would take ten times as long"
    assert on_fewer(kernel, 0) is kernel


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
