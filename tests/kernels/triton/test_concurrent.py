"""Concurrent calls: several problems at once come right, each in its own place, on the streams that the Plan names."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.backends.triton import pieces, recipes, timeline
from kernels.backends.triton.collectives import ConcurrentMode, layout, put_kernel
from kernels.backends.triton.kernels.sync import WORDS
from kernels.backends.triton.memory import Context, problem_bytes, shared_bytes
from kernels.backends.triton.schemes import concurrent
from kernels.backends.triton.streams import StreamLanes
from kernels.operators import OPERATORS
from kernels.plan import Kind
from kernels.reference import SEED, expected, operands, verdict
from kernels.schemes import expand
from tests.kernels.triton import test_pieces
from tests.kernels.triton.compile_sm90 import context_of, kernels_of, unwritten
from tests.kernels.triton.conftest import InterpretedGang, gpu_trial

GEMM = {"m": 96, "n": 80, "k": 64}
LOOKUPS = {"tables_per_rank": 3, "rows": 50, "dim": 24, "batch": 12, "pooling": 5}
CALLS = 2


def trial(operator: str, world: int = 2, shape: dict[str, int] = GEMM, **axes: Any) -> Any:
    dtype = "float32" if shape is LOOKUPS else "float16"
    return gpu_trial(operator, shape, world=world, dtype=dtype, scheme="concurrent", **axes)


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
    ({"kernel": "ours", "tile": "96x256x64"}, "kernel = ours cannot be: tile = 96x256x64 does not run"),
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
