"""Concurrent calls and their controls: several problems at once come right, on streams, SMs and with priorities."""

import ctypes
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.backends.triton import launch, nccl, pieces, recipes, streams, timeline, timing
from kernels.backends.triton.collectives import ConcurrentMode, layout, put_kernel
from kernels.backends.triton.kernels.sync import WORDS
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context, problem_bytes, shared_bytes
from kernels.backends.triton.schemes import concurrent
from kernels.backends.triton.streams import StreamLanes
from kernels.backends.triton.timing import Node
from kernels.machine import load
from kernels.occupancy import SmLimits, limits_of, resident_blocks
from kernels.operators import OPERATORS
from kernels.plan import Kind
from kernels.reference import SEED, expected, operands, verdict
from kernels.schedule import Refusal
from kernels.schemes import expand
from tests.kernels.backends.triton import test_pieces
from tests.kernels.backends.triton.compile_sm90 import _nobodys_gpu, context_of, kernels_of, unwritten
from tests.kernels.backends.triton.conftest import ROOT, InterpretedGang, gpu_trial

# Concurrent calls: several problems at once come right, each in its own place, on the streams that the Plan names.

GEMM = {"m": 96, "n": 80, "k": 64}
LOOKUPS = {"tables_per_rank": 3, "rows": 50, "dim": 24, "batch": 12, "pooling": 5}
CALLS = 2


def trial(operator: str, world: int = 2, shape: dict[str, int] = GEMM, **axes: Any) -> Any:
    dtype = "float32" if shape is LOOKUPS else "float16"
    return gpu_trial(operator, shape, world=world, dtype=dtype, scheme="concurrent", **axes)


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "world", "axes"), [
    ("gemm_all_to_all", 2, {"micro_batches": 3}),
    ("gemm_reduce_scatter", 4, {"comm_priority": "normal"}),
    ("all_gather_gemm", 2, {"micro_batches": 2, "kernel": "ours", "tile": "32x32x32"}),
    ("gemm_all_to_all", 2, {"micro_batches": 2, "kernel": "ours", "tile": "32x32x32", "comm_sms": 8}),
])  # fmt: skip
def test_each_micro_batch_comes_to_its_own_result(
    gangs: dict[int, InterpretedGang], operator: str, world: int, axes: dict[str, Any]
) -> None:
    answers = gangs[world].call(trial(operator, world, collective="direct", **axes), CALLS)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


@pytest.mark.slow
def test_lookups_of_micro_batches_are_their_own(gangs: dict[int, InterpretedGang]) -> None:
    answers = gangs[2].call(trial("embedding_all_to_all", shape=LOOKUPS, collective="direct", micro_batches=2), CALLS)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


def all_to_all_single(out: Tensor, here: Tensor, group: test_pieces.Group) -> None:
    world = len(group.box)
    out.view(-1).copy_(torch.cat([each.view(-1).chunk(world)[group.rank] for each in group.swap(here)]))


COUNT = 3


@pytest.mark.parametrize("operator", [name for name, each in OPERATORS.items() if each.work == "gemm"])
def test_micro_batches_that_a_library_moves_come_right(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has operands of its own, and another factor: what lands in another one's place is wrong."""
    for function in (*test_pieces.LIBRARY, all_to_all_single):
        monkeypatch.setattr(torch.distributed, function.__name__, function)
    one = trial(operator, test_pieces.WORLD, tile="16x16x16", micro_batches=COUNT, comm_sms=8)
    results: dict[int, list[Tensor]] = {}

    def play(context: Context, group: test_pieces.Group) -> None:
        sets = [operands(one.problem, context.rank, SEED, values=values) for values in range(2 * COUNT)]
        made = concurrent.calls(context, sets, "whole", group)
        for result in made.results:
            result.fill_(float("nan"))
        made.each[1]()
        results[context.rank] = list(made.results)

    monkeypatch.setattr(concurrent.nccl, "at_most", lambda group, blocks, device: group)
    box, meeting = [None] * test_pieces.WORLD, threading.Barrier(test_pieces.WORLD, timeout=100)
    threads = [threading.Thread(target=play, args=(context, test_pieces.Group(context.rank, box, meeting)))
               for context in test_pieces.contexts(one)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(test_pieces.WORLD):
        for number, result in enumerate(results[rank]):
            truth = expected(one.problem, rank, SEED, values=2 * number + 1)
            judged = verdict(one.problem, result, truth, test_pieces.WORLD)
            assert judged.error <= judged.bound, (rank, number)


@pytest.mark.parametrize("collective", ["library", "direct", "copy_engine"])
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter", "all_gather_gemm"])
def test_halves_are_enqueued_as_the_plan_says(operator: str, collective: str) -> None:
    """Each once, computations on the call's own stream, all collectives on one other; the flow's order inside."""
    one = trial(operator, collective=collective, micro_batches=COUNT)
    plan, comes_in = expand(one.problem, one.schedule), operator == "all_gather_gemm"
    for rank in range(2):
        made = concurrent.units(plan, rank, pieces.order(plan, rank))
        assert sorted((unit.micro_batch, unit.computes) for unit in made) == sorted(
            (number, computes) for number in range(COUNT) for computes in (False, True)
        )
        assert sorted(op.step for unit in made for op in unit.ops) == plan.steps_of(rank).tolist()
        (of_computations,) = {unit.ops[0].stream for unit in made if unit.computes}
        (of_collectives,) = {unit.ops[0].stream for unit in made if not unit.computes}
        assert of_computations == 0 < of_collectives
        named = {unit.ops[0].launch: unit for unit in made}
        for at, unit in enumerate(made):
            waits = [named[launch] for launch in unit.after]
            assert all(made.index(other) < at for other in waits)
            depends = unit.computes == comes_in
            assert [(other.micro_batch, other.computes) for other in waits] == (
                [(unit.micro_batch, not unit.computes)] if depends else []
            )


def test_a_part_enqueues_its_half_of_every_micro_batch() -> None:
    one = trial("gemm_all_to_all", collective="direct", micro_batches=COUNT)
    plan = expand(one.problem, one.schedule)
    for part, computes in {"compute": True, "communication": False}.items():
        made = concurrent.units(plan, 0, pieces.order(plan, 0, part))
        assert [(unit.micro_batch, unit.computes, unit.after) for unit in made] == [
            (number, computes, ()) for number in range(COUNT)
        ]


def test_problems_have_data_of_their_own_and_signals_together() -> None:
    one = trial("gemm_reduce_scatter", collective="direct", micro_batches=COUNT)
    whole = context_of(one, rank=0)
    step = problem_bytes(whole.plan)
    assert shared_bytes(whole.plan) == COUNT * step
    for number in range(COUNT):
        own = whole.of_problem(number)
        assert {name: own.places[name][0].offset - region.offset for name, (region, _) in whole.places.items()} == {
            name: number * step if name in ("stage", "out") else 0 for name in whole.places
        }
        assert own.epoch is whole.epoch
    assert whole.of_problem(0).local is not whole.of_problem(1).local


def test_lanes_are_those_of_the_fork_that_came_last() -> None:
    dealt: dict[int, Any] = {}
    lanes = StreamLanes(dealt, [3, 4])
    dealt.update({0: "main", 3: "a", 4: "b"})
    assert list(lanes) == ["a", "b"]
    dealt.update({3: "c"})
    assert list(lanes) == ["c", "b"]


def test_what_runs_beside_another_kernel_begins_with_the_sms_that_are_free() -> None:
    """A cooperative grid would wait for room for all of its blocks, and nothing would overlap."""
    one = trial("gemm_all_to_all", 4, collective="direct", kernel="ours", tile="64x64x64", resident_blocks=2,
                comm_sms=8)  # fmt: skip
    timed, stamped = kernels_of(one)
    assert all(not each.options["launch_cooperative_grid"] for each in (timed, stamped))
    assert (timed.resident, timed.spared, timed.grid) == (2, 8, 0)
    assert timed.arguments[-1] is None
    assert stamped.arguments[-1] is not None
    context = context_of(one)
    put = put_kernel(context, layout(context, context.local))
    running = ConcurrentMode(blocks=8)(put)
    assert (put.options["launch_cooperative_grid"], running.options["launch_cooperative_grid"]) == (True, False)
    assert (put.grid, running.grid) == (0, 8)


@pytest.mark.parametrize(("axes", "says"), [
    ({"collective": "two_shot", "comm_sms": 8}, "24 > 8. Accepted: comm_sms = 0 or at least 24"),
    ({"collective": "library_tuned", "comm_sms": 16}, "Accepted: comm_sms = 0, or collective = library."),
    ({"kernel": "ours", "tile": "96x256x64"}, "tile = 96x256x64 has a side that is no power of two"),
    ({"collective": "two_shot", "comm_sms": 24}, None),
])  # fmt: skip
def test_what_a_collective_cannot_keep_to_is_refused(axes: dict[str, Any], says: str | None) -> None:
    one = trial("gemm_all_reduce", shape={"m": 512, "n": 512, "k": 512}, **axes)
    recipe = recipes.of(one.problem, one.schedule)
    assert recipe is not None
    sentence = recipe.refusal(one)
    assert (sentence is None) if says is None else (says in str(sentence))


def test_the_timeline_has_both_halves_of_every_micro_batch_and_the_tiles_of_computations() -> None:
    one = trial("gemm_reduce_scatter", collective="direct", micro_batches=2, tile="32x32x32", kernel="ours")
    plan = expand(one.problem, one.schedule)
    seconds = {int(launch): (float(launch), launch + 0.5) for launch in np.unique(plan.launch[plan.rank == 0])}
    spans = timeline.of_halves_on_streams(plan, 0, seconds, 1e-7)
    steps = {plan.address(step): step for step in range(len(plan))}
    assert {Kind(int(plan.kind[steps[span.step]])) for span in spans} == {Kind.COMPUTE, Kind.PUT}
    assert {span.stream for span in spans if span.kind == "compute"} == {0}
    assert {span.stream for span in spans if span.kind == "put"} == {2}
    assert all(span.micro_batch == plan.micro_batch[steps[span.step]] for span in spans)
    assert {span.micro_batch for span in spans} == {0, 1}
    count = len(plan.tiles[0])
    words = np.zeros((2, 2 * count, WORDS.value), dtype=np.int64)
    for micro_batch in range(2):
        words[micro_batch, :count, :3] = 1000 * (micro_batch + 1) + np.arange(3) * 10
        words[micro_batch, :count, 4] = 7 + micro_batch
    stamps = [timeline.Stamps.read(own, 0, 1e-9) for own in words]
    laid = [span for span in timeline.with_tiles(plan, spans, stamps) if span.kind == "compute"]
    assert [len(span.tiles) for span in laid] == [count, count]
    assert [{tile.processor for tile in span.tiles} for span in laid] == [{7}, {8}]


def test_a_watched_call_has_stamps_of_every_problem_aligned_as_they_were_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Misaligned, Triton would compile another kernel in the middle of a session."""
    one = trial("gemm_reduce_scatter", 4, collective="direct", kernel="ours", tile="32x32x32", micro_batches=COUNT)
    context = context_of(one)
    stamped: list[list[Any]] = []
    monkeypatch.setattr(concurrent.fused, "launches", lambda made: stamped.append(made) or [lambda: None] * 2)
    monkeypatch.setattr("kernels.backends.triton.schemes.sequential.direct", lambda *_: lambda: None)
    timed = concurrent.calls(context, [unwritten(one.problem)] * (2 * COUNT), "whole", None)
    stamped.clear()
    watched = concurrent.watched(context, timed)
    stamps = [kernel.arguments[-1] for of_problem in stamped for kernel in of_problem]
    assert [each.storage_offset() % 2 for each in stamps] == [0] * (2 * COUNT)
    assert len({each.data_ptr() for each in stamps}) == COUNT
    assert all(each.shape[0] >= stamped[0][0].records for each in stamps)
    assert len(watched.each) == len(timed.each) == 2
    assert watched.written.numel() == 2 + sum(each.numel() for each in stamps) // 2


# Controls of concurrent schedules as values: padding, priorities and shares of SMs, and what a graph would show.

SMS = 132
PRIORITY = -5


@pytest.fixture
def h200() -> SmLimits:
    return limits_of(load(ROOT / "data" / "machines" / "h200_nvl8.toml"))


@pytest.fixture(scope="module")
def compiled() -> Any:
    """Our GEMM next to a collective, as Triton compiles it for sm_90."""
    one = gpu_trial("gemm_all_to_all", {"m": 512, "n": 512, "k": 512}, world=4, dtype="bfloat16", scheme="concurrent",
                    kernel="ours", tile="64x64x64")  # fmt: skip
    kernel = kernels_of(one.of_part("compute"))[0]
    with _nobodys_gpu():
        made = kernel.compiled()
    made.n_regs = 64
    return kernel, made


def test_a_padded_kernel_differs_from_the_compiled_one_in_its_shared_memory_alone(compiled: Any) -> None:
    """What Triton's launcher reads is the third of the packed numbers, in 3.6 and 3.7."""
    _, made = compiled
    before = made.packed_metadata
    other = launch.with_shared(made, 100_000)
    assert (other.metadata.shared, other.packed_metadata[2]) == (100_000, 100_000)
    assert other.packed_metadata[:2] == before[:2]
    assert made.packed_metadata == before
    assert made.metadata.shared == before[2]
    assert other.kernel is made.kernel


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_padding_forces_the_number_of_blocks_and_no_byte_less_does(
    compiled: Any, h200: SmLimits, blocks: int
) -> None:
    _, made = compiled
    threads = 32 * made.metadata.num_warps
    held = resident_blocks(h200, made.metadata.shared, made.n_regs, threads)
    assert held > blocks, "else nothing is forced"
    num_bytes = launch.shared_bytes(made, blocks, h200)
    assert resident_blocks(h200, num_bytes, made.n_regs, threads) == blocks
    assert resident_blocks(h200, num_bytes - 1, made.n_regs, threads) == blocks + 1


def test_what_one_padding_may_have_is_not_taken_away_by_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of 1 and of 2 resident blocks launch one function in turns, each with bytes of its own."""
    allowed = {"bytes": 49_152}

    def grows(function: int, attribute: str, num_bytes: int) -> tuple[Any]:
        allowed["bytes"] = num_bytes
        return (SimpleNamespace(value=0),)

    driver = SimpleNamespace(
        CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most"),
        cuFuncGetAttribute=lambda attribute, function: (SimpleNamespace(value=0), allowed["bytes"]),
        cuFuncSetAttribute=grows,
    )
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    for num_bytes in (118_000, 77_000):
        launch.allow(SimpleNamespace(function=1), num_bytes)
        assert allowed["bytes"] == 118_000


def test_more_blocks_than_fit_are_refused_with_both_byte_counts(compiled: Any, h200: SmLimits) -> None:
    _, made = compiled
    with pytest.raises(Refusal, match=rf"resident_blocks = 16 is too many.*{made.metadata.shared} > \d+"):
        launch.shared_bytes(made, 16, h200)


def test_a_launch_has_all_arguments_in_the_order_of_the_kernel(compiled: Any) -> None:
    kernel, _ = compiled
    every = launch.every_argument(kernel.function, kernel.arguments, kernel.constants)
    assert len(every) == len(kernel.function.arg_names)
    assert every[: len(kernel.arguments)] == list(kernel.arguments)
    assert dict(zip(kernel.function.arg_names, every, strict=True))["BLOCK_M"] == kernel.constants["BLOCK_M"]


class Loaded:
    """A compiled kernel on a GPU that holds three of its blocks as it is, and one for each 100 bytes less otherwise."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(shared=300, num_warps=4)


@pytest.mark.parametrize(("asked", "programs"), [
    ({}, 3 * SMS), ({"spared": 8}, 3 * (SMS - 8)), ({"resident": 2}, 2 * SMS), ({"resident": 1, "spared": 32}, 100),
    ({"grid": 8}, 8), ({"grid": 9999}, 5000), ({"spared": 8, "items": SMS - 4}, SMS - 8), ({"items": SMS - 4}, SMS - 4),
    ({"spared": 8, "items": 3 * SMS - 25}, 2 * (SMS - 8)), ({"spared": 8, "items": 100}, 100),
])  # fmt: skip
def test_a_grid_beside_others_is_the_sms_that_are_left_times_the_blocks_of_one(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, int], programs: int
) -> None:
    launched: list[tuple[int, int]] = []
    kernel = LaunchableKernel(function=SimpleNamespace(__name__="gemm"), arguments=(), constants={}, concurrent=True,
                    **{"items": 5000, **asked})  # fmt: skip
    monkeypatch.setattr(launch.INTERPRETED, "value", False)
    monkeypatch.setattr(launch, "_sms", lambda: SMS)
    monkeypatch.setattr(LaunchableKernel, "_loaded", lambda self, arguments: Loaded())
    monkeypatch.setattr(launch, "limits", lambda: None)
    monkeypatch.setattr(launch, "allow", lambda made, num_bytes: None)
    monkeypatch.setattr(launch, "shared_bytes", lambda made, blocks, of: 900 // blocks)
    monkeypatch.setattr(launch, "resident_blocks", lambda made, num_bytes: 900 // num_bytes)
    monkeypatch.setattr(
        launch, "padded_launcher",
        lambda made, function, constants, count, num_bytes: launched.append((count, num_bytes)) or (lambda _: None),
    )  # fmt: skip
    monkeypatch.setattr(
        launch, "_plain_launcher", lambda function, constants, count, options: launched.append((count, 0))
    )
    kernel.argument_launcher()
    assert launched == [(programs, 900 // asked["resident"] if "resident" in asked else 0)]


def test_a_number_of_blocks_that_the_driver_does_not_confirm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = LaunchableKernel(
        function=SimpleNamespace(__name__="gemm"), arguments=(), constants={}, items=1, concurrent=True, resident=2
    )
    monkeypatch.setattr(LaunchableKernel, "_loaded", lambda self, arguments: Loaded())
    monkeypatch.setattr(launch, "resident_blocks", lambda made, num_bytes: 1)
    with pytest.raises(Refusal, match=r"lets an SM hold 1: 1 != 2\. Accepted: 0, or 1\."):
        kernel._resident(450)


def of_name(name: str, *, blocks: int = 8, priority: int = 0) -> Node:
    return Node(name, blocks, 256, 0, priority)


def test_kernels_of_a_graph_are_told_by_name_and_each_difference_once() -> None:
    told = timing.facts([of_name("a"), of_name("b"), of_name("a"), of_name("a", priority=PRIORITY)])
    assert [(each["count"], each["priority"]) for each in told["a"]] == [(2, 0), (1, PRIORITY)]
    assert told["b"] == [{"blocks": 8, "threads": 256, "shared_bytes": 0, "priority": 0, "count": 1}]


def test_a_priority_that_has_not_reached_the_graph_is_said() -> None:
    high, normal = of_name("nccl", priority=PRIORITY), of_name("unpack")
    assert concurrent.unmet_priority(True, [high, high]) == concurrent.unmet_priority(False, [normal]) == []
    (sentence,) = concurrent.unmet_priority(True, [high, normal])
    assert "1 of 2 kernels of the collective have priority 0, unpack among them" in sentence
    (sentence,) = concurrent.unmet_priority(False, [high])
    assert sentence.startswith("comm_priority = normal has not reached the graph: 1 of 1")


@pytest.mark.parametrize(("share", "computes", "moves", "unmet"), [
    (0, 512, 999, []), (8, 124, 8, []), (8, 248, 4, []), (8, 100, 0, []),
    (8, 132, 8, ["computation"]), (8, 512, 16, ["computation", "collective"]), (32, 100, 33, ["collective"]),
])  # fmt: skip
def test_a_share_of_sms_that_has_not_reached_the_graph_is_said(
    share: int, computes: int, moves: int, unmet: list[str]
) -> None:
    sentences = concurrent.unmet_share(share, SMS, [of_name("gemm", blocks=computes)], [of_name("nccl", blocks=moves)])
    assert [f"comm_sms = {share} does not limit the {half}" for half in unmet] == [
        sentence.partition(":")[0] for sentence in sentences
    ]


def test_facts_tell_both_halves_apart_and_leave_the_clock_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.schemes import expand

    one = gpu_trial("gemm_all_reduce", {"m": 512, "n": 512, "k": 512}, world=2, dtype="bfloat16", scheme="concurrent")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=SMS))
    every = [of_name("gemm", blocks=SMS), of_name("nccl", priority=PRIORITY), *map(of_name, concurrent.CLOCK_KERNELS)]
    told = concurrent.control_facts(expand(one.problem, one.schedule), 0, every, {"gemm"}, torch.device("cpu"))[
        "controls"
    ]
    assert (list(told["compute"]), list(told["communication"]), told["unmet"]) == (["gemm"], ["nccl"], [])


def test_cublas_plans_for_fewer_sms_inside_and_for_all_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what is called fails; 0 touches nothing."""
    said: list[Any] = []

    def of_handle(handle: ctypes.c_void_p, count: int) -> int:
        said.append((handle.value, count))
        return 0

    monkeypatch.setattr(streams, "_library", lambda: SimpleNamespace(cublasSetSmCountTarget=of_handle))
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 77)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=SMS))
    monkeypatch.setattr(torch._C, "_set_sm_carveout_experimental", said.append, raising=False)
    device = torch.device("cuda", 0)
    streams.on_fewer(lambda: said.append("called"), 8, device)()
    assert said == [8, (77, SMS - 8), "called", (77, 0), None]
    said.clear()
    with pytest.raises(ZeroDivisionError):
        streams.on_fewer(lambda: said.append(1 // 0), 16, device)()
    assert said == [16, (77, SMS - 16), (77, 0), None]
    said.clear()
    streams.on_fewer(lambda: said.append("called"), 0, device)()
    assert said == ["called"]


def test_a_communicator_of_few_blocks_is_made_once_for_a_group_and_goes_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, made = timedelta(seconds=61), []

    def of(least: int | None, most: int, seconds: timedelta, cluster: int | None = None) -> str:
        made.append((least, most, seconds, cluster))
        return f"at most {most}"

    monkeypatch.setattr(nccl, "_of", of)
    monkeypatch.setattr(nccl, "_limited", None)
    backend = SimpleNamespace(options=SimpleNamespace(_timeout=limit))
    group, other = (SimpleNamespace(_get_backend=lambda device: backend) for _ in range(2))
    device = torch.device("cpu")
    assert nccl.at_most(group, 0, device) is group
    assert [nccl.at_most(group, blocks, device) for blocks in (8, 16, 8)] == ["at most 8", "at most 16", "at most 8"]
    assert made == [(None, 8, limit, 1), (None, 16, limit, 1)]
    nccl.forget(group)
    assert nccl._limited is not None
    nccl.forget(other)
    assert nccl._limited is None


def test_sends_keep_to_their_share_of_sms_by_a_power_of_two() -> None:
    assert [nccl.channels(share, sends=True) for share in (0, 4, 8, 16, 24, 32)] == [0, 4, 8, 16, 16, 32]
    assert nccl.channels(24, sends=False) == 24
