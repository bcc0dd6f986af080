"""Decomposed calls: the list of what goes on which stream is the Plan's, and interpreted ranks compute the result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import torch
import triton.language as tl

from kernels.backends.triton import pieces, recipes, streams
from kernels.backends.triton.kernels.copy import put_pieces
from kernels.backends.triton.pieces import PieceBlock
from kernels.backends.triton.schemes import decomposed
from kernels.backends.triton.streams import CudaStreams
from kernels.plan import Kind
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import Compiled, kernels_of, warmed_up
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial
from tests.kernels.backends.triton.pieces import SPLITS, legal
from tests.kernels.backends.triton.ptx import Kernel, every_rule, waits_before_adds

SHAPE = {"m": 128, "n": 64, "k": 64}
TILE = "16x16x16"
MODEL = {"m": 8192, "n": 4096, "k": 8192}


def trial(operator: str, world: int = 2, shape: dict[str, int] = SHAPE, tile: str = TILE, **axes: Any) -> Trial:
    return gpu_trial(operator, shape, world=world, dtype="float16", scheme="decomposed", tile=tile, **axes)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", SPLITS)
def test_what_is_enqueued_is_the_plan(operator: str) -> None:
    """All steps of a part once, none before what it waits for, and every counter raised and awaited by one of each."""
    every = legal(operator, 3, ("copy_engine", "library"), {"m": 96, "n": 64, "k": 64}, pieces=4, tile=TILE,
                  dtype="float16")  # fmt: skip
    assert len(every) >= 16
    for one in every:
        plan = expand(one.problem, one.schedule)
        computes = plan.kind == Kind.COMPUTE
        for part, kept in {"whole": computes | ~computes, "compute": computes, "communication": ~computes}.items():
            raised: list[tuple[int, int]] = []
            awaited: list[tuple[int, int]] = []
            for rank in range(one.world):
                enqueued = pieces.order(plan, rank, part)
                steps = [op.step for op in enqueued.ops]
                assert sorted(steps) == [step for step in plan.steps_of(rank) if kept[step]]
                assert all(steps.index(other) < at for at, op in enumerate(enqueued.ops) for other in op.after)
                raised += [(op.peer, op.raises) for op in enqueued.of(Kind.PUT)]
                awaited += [(rank, counter) for op in enqueued.ops for counter in op.awaits]
                awaited += [(rank, counter) for counter in enqueued.last]
            assert len(raised) == len(set(raised))
            assert set(raised) == set(awaited)


def test_copies_that_wait_for_nothing_come_before_any_computation() -> None:
    """Else they would stand behind a grid that waits for them."""
    plan = expand((one := trial("all_gather_gemm", pieces=4)).problem, one.schedule)
    kinds = [op.kind for op in pieces.order(plan, 0).ops]
    assert kinds == [Kind.PUT] * 4 + [Kind.COMPUTE] * 5, "own rows in one"


def test_neighbouring_peers_are_computed_together_and_own_rows_apart() -> None:
    blocks = [PieceBlock(chunk, 0, 8, 0, 4, 0, 2) for chunk in (3, 0, 1, 4, 2)]
    assert [[block.chunk for block in run] for run in pieces.runs(blocks, 1)] == [[0], [1], [2, 3, 4]]


@pytest.mark.slow(keeps=3)
@pytest.mark.parametrize(("operator", "world", "axes"), [
    ("all_gather_gemm", 4, {"pieces": 4}),
    ("all_gather_gemm", 2, {"pieces": 4, "split": "contraction", "steps": "uniform"}),
    ("all_gather_gemm", 2, {"pieces": 4, "split": "rows_and_contraction"}),
    ("all_to_all_gemm", 4, {"pieces": 4, "split": "rows_and_contraction", "launches": "one"}),
    ("all_to_all_gemm", 2, {"pieces": 2, "engine": "sm", "launches": "one"}),
    ("gemm_all_to_all", 2, {"pieces": 4, "split": "columns", "launches": "one", "steps": "uniform"}),
    ("gemm_reduce_scatter", 2, {"pieces": 4, "split": "columns", "engine": "sm"}),
    ("gemm_reduce_scatter", 2, {"pieces": 2, "split": "columns", "launches": "one", "tile": "16x64x16"}),
    ("gemm_all_reduce", 4, {"pieces": 2}),
    ("gemm_all_reduce", 4, {"pieces": 2, "launches": "one"}),
    ("gemm_all_reduce", 2, {"pieces": 4}),
    ("gemm_all_reduce", 2, {"pieces": 4, "launches": "one"}),
    ("gemm_all_reduce", 2, {"pieces": 4, "launches": "one", "steps": "uniform"}),
])  # fmt: skip
def test_pieces_come_right(gangs: dict[int, InterpretedGang], operator: str, world: int, axes: dict[str, Any]) -> None:
    answers = gangs[world].call(trial(operator, world, **axes), 2)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


@pytest.mark.parametrize(("operator", "world", "axes", "spared"), [
    ("all_gather_gemm", 4, {"split": "contraction"}, 0), ("all_gather_gemm", 4, {}, 0), ("gemm_all_to_all", 4, {}, 3),
    ("gemm_reduce_scatter", 2, {}, 1), ("gemm_all_reduce", 4, {}, 3), ("gemm_all_to_all", 2, {"pieces": 64}, 1),
])  # fmt: skip
def test_one_launch_keeps_the_rules_of_memory_order(
    tmp_path: Path, operator: str, world: int, axes: dict[str, Any], spared: int
) -> None:
    """Also: it is pipelined, spills nothing, and no store is narrow, which cost a sixth of a call once."""
    one = trial(operator, world, MODEL, "128x256x64", **({"pieces": 4, "launches": "one"} | axes))
    (made,) = kernels_of(one, rank=1)
    options = {"num_warps": made.num_warps, "num_stages": made.num_stages, "launch_cooperative_grid": True}
    compiled = warmed_up(made.function, made.arguments, dict(made.constants) | options)
    kernel = Kernel(compiled.ptx, compiled.arguments)
    assert every_rule(kernel) == []
    adds = [each for each in kernel.instructions if each.is_bulk_add]
    assert bool(adds) == made.constants["ONTO"]
    for each in adds:  # the same at the start of the kernel is found
        hasty = "\n".join([*kernel.text.splitlines(), ""]).replace("mov.u32", f"{each.text}\n mov.u32", 1)
        assert len(waits_before_adds(Kernel(hasty, kernel.arguments))) == 1
    assert "wgmma.wait_group.sync.aligned \t1" in compiled.ptx or "wait_group.sync.aligned 1" in compiled.ptx
    assert made.spared == spared, "one SM for each warp that waits while it runs"
    assert compiled.local_bytes(tmp_path) == 0
    results = [each for each in kernel.instructions if each.is_store and kernel.words(each) & {"local", "out"}]
    assert all(each.bits == 128 for each in results)
    assert bool(results) != made.constants["TMA"]


def compiled_puts(architecture: int = 90) -> Compiled:
    """`put_pieces`, by which SMs send what is computed."""
    data, counters, words = (torch.zeros(64, dtype=dtype) for dtype in (torch.bfloat16, torch.int32, torch.int64))
    constants = {"BLOCK_M": 16, "BLOCK_N": 256, "DTYPE": tl.bfloat16, "num_warps": 8}
    return warmed_up(put_pieces, (data, 4096, words, 4096, words, 4, words, counters), constants, architecture)


def test_pieces_leave_sixteen_bytes_at_once_and_are_signalled_by_whoever_is_last() -> None:
    compiled = compiled_puts()
    kernel = Kernel(compiled.ptx, compiled.arguments)
    assert every_rule(kernel) == []
    assert [each for each in kernel.instructions if each.is_store and "target_at" in kernel.comes_from(each.address)]
    assert [each for each in kernel.instructions if each.is_release and "counters_at" in
            kernel.comes_from(each.address)]  # fmt: skip


@pytest.mark.parametrize(("axes", "shape", "words"), [
    ({"pieces": 8, "split": "contraction"}, {"m": 128, "n": 64, "k": 32}, "A piece of k would begin at 4"),
    ({"pieces": 4, "split": "contraction", "launches": "one"}, {"m": 128, "n": 64, "k": 96}, "no multiple of 16"),
])  # fmt: skip
def test_what_engines_and_kernels_cannot_take_is_refused(
    axes: dict[str, Any], shape: dict[str, int], words: str
) -> None:
    one = trial("all_gather_gemm", shape=shape, **axes)
    recipe = recipes.of(one.problem, one.schedule)
    assert recipe is not None
    sentence = recipe.refusal(one)
    assert sentence is not None
    assert words in sentence
    assert "Accepted" in sentence


class Lane:
    """A stream: torch deals them from two pools, in turn."""

    pool = 4
    made: ClassVar[dict[int, int]] = {}

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        dealt = Lane.made.get(priority, 0)
        self.number = dealt % Lane.pool, priority
        Lane.made[priority] = dealt + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lane) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]

    def wait_stream(self, other: "Lane") -> None:
        assert other != self


def test_no_two_streams_of_a_call_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one of them the stream that the call comes on, whichever torch has dealt that."""
    monkeypatch.setattr(Lane, "made", {})
    current = [Lane()]
    monkeypatch.setattr(torch.cuda, "Stream", Lane)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[0])
    ways = CudaStreams([(1, 0), (2, 0), (3, 1)], torch.device("cuda", 0))
    for _ in range(Lane.pool):
        current[0] = Lane()
        ways.fork()
        numbers = [ways._streams[each].number for each in range(4)]
        assert len(set(numbers)) == 4
        ways.join()


def test_the_second_stream_computes_after_the_first() -> None:
    """Both are ready at once, and a copy waits for what the first one computes."""

    def nothing() -> None:
        pass

    made: list[None] = []

    def pause() -> None:
        made.append(None)

    for operator, pauses in (("gemm_all_to_all", [1]), ("all_gather_gemm", [])):
        plan = expand((one := trial(operator, pieces=2)).problem, one.schedule)
        launches = [
            decomposed.PieceLaunch(ops=(op,), after=op.after, waits=nothing if op.awaits else None, acts=nothing)
            for op in pieces.order(plan, 0).ops
        ]
        for meets, expected in ((False, pauses), (True, [0, 1, 1] if pauses else [0])):
            paused, streams = decomposed.with_pause(launches, pause, meets=meets), []
            for before, after in zip(launches, paused, strict=True):
                assert after.ops == before.ops
                made.clear()
                if before.waits is None and after.waits is not None:
                    after.waits()
                    streams += [after.stream] * len(made)
            assert sorted(streams) == expected


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce", "all_gather_gemm"])
@pytest.mark.parametrize("launches", ["per_piece", "one"])
def test_what_writes_to_peers_or_reads_a_counter_comes_after_the_meeting(
    operator: str, world: int, launches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier, it would read the number of the call before, or write what a peer still reads."""
    plan = expand((one := trial(operator, world, pieces=2, launches=launches)).problem, one.schedule)
    monkeypatch.setattr(decomposed._PieceLaunches, "_waits", lambda self, awaited: awaited or None)
    monkeypatch.setattr(decomposed._PieceLaunches, "_acts", lambda self, ops: list)
    made = object.__new__(decomposed._PieceLaunches)
    receives = operator == "all_gather_gemm"
    made._context = cast(Any, SimpleNamespace(plan=plan, receives=receives))
    made._is_one_launch = launches == "one"
    ops = pieces.order(plan, 0).ops
    early = 0
    for number in sorted({op.launch for op in ops}):
        same = tuple(op for op in ops if op.launch == number)
        launch = made._launch(same, {op.step: op for op in ops})
        of_peers = [step for op in same for step in plan.waits_for(op.step) if plan.rank[step] != 0]
        kernel_of_ours = launches == "one" and same[0].kind is Kind.COMPUTE
        assert launch.meets == bool(
            receives or of_peers or kernel_of_ours or same[0].kind is Kind.PUT or launch.waits is not None
        )
        early += not launch.meets
    assert bool(early) == (not receives and launches == "per_piece")


def test_events_cross_streams_only_where_the_plan_says_so() -> None:
    """Sends: a copy waits for the meeting and for its piece's event, a computation for neither."""
    said: list[tuple[str, int, int]] = []

    class Told:
        def fork(self) -> None:
            said.append(("fork", 0, 0))

        @contextmanager
        def on(self, number: int) -> Iterator[None]:
            said.append(("on", number, 0))
            yield

        def mark(self, number: int, *, timed: bool = False) -> int:
            said.append(("mark", number, 0))
            return number

        def after(self, number: int, event: int) -> None:
            said.append(("after", number, event))

        def join(self) -> None:
            said.append(("join", 0, 0))

    def nothing() -> None:
        pass

    plan = expand((one := trial("gemm_all_to_all", pieces=2)).problem, one.schedule)
    ops = pieces.order(plan, 0).ops
    by_launch = {op.step: op.launch for op in ops}
    launches = [decomposed.PieceLaunch(ops=(op,), after=tuple(by_launch[step] for step in op.after), waits=None,
                                  acts=nothing, meets=op.kind is Kind.PUT) for op in ops]  # fmt: skip
    first: Callable[[], None] = lambda: said.append(("meeting", 0, 0))  # noqa: E731
    decomposed.enqueue(Told(), first, launches, None)
    assert said == [
        ("fork", 0, 0), ("on", 3, 0), ("meeting", 0, 0), ("mark", 3, 0), ("on", 0, 0), ("mark", 0, 0), ("after", 3, 0),
        ("on", 3, 0), ("on", 1, 0), ("mark", 1, 0), ("after", 3, 1), ("on", 3, 0), ("on", 0, 0), ("join", 0, 0),
    ]  # fmt: skip
    said.clear()
    decomposed.enqueue(Told(), first, [replace(launch, meets=launch is not launches[0]) for launch in launches], None)
    assert said.index(("after", 1, 3)) > said.index(("mark", 3, 0)), "what waits for a piece waits for the meeting"
    said.clear()
    decomposed.enqueue(Told(), first, [replace(launch, meets=True) for launch in launches], None)
    assert said[:3] == [("meeting", 0, 0), ("fork", 0, 0), ("on", 0, 0)], "all meet before anything else"
    assert streams.MAIN == 0
