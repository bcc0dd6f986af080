"""What is checked of the PyTorch operators on every rank of a gang, on CPUs and on GPUs alike.

Each check is called by all ranks with the same arguments; an assertion that fails is told by the rank it failed on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

import kernels.ops
from kernels.operators import OPERATORS, problem
from kernels.ops.arguments import Operand
from kernels.ops.arguments import problem as problem_of
from kernels.problem import Problem
from kernels.reference import bound, expected, operands, torch_dtype, verdict
from kernels.schedule import Refusal

DIFFERENTIABLE = tuple(name for name in OPERATORS if name != "gemv_all_reduce")


BRIEF_SECONDS, AWAY_SECONDS = 8.0, 10.0
"""How long ranks of one group wait for each other, and how long one of them is away."""


def told(kind: type[Exception], sentence: str, call: Callable[[], Any]) -> None:
    """*call* raises *kind* with *sentence*: pytest is not needed where GPUs are."""
    found = "nothing was raised"
    try:
        call()
    except kind as error:
        found = str(error)
    assert sentence in found, f"{sentence!r} is not in: {found}"


@dataclass(frozen=True)
class Here:
    """Where a check runs."""

    rank: int
    world: int
    group: str
    """All ranks."""
    other: str
    """All ranks again, in a group of its own."""
    brief: str
    """All ranks, who wait BRIEF_SECONDS for each other."""
    device: str
    dtype: str
    schedule: str = "fused"
    """Stated: what a call without one runs depends on the GPU."""

    def problem(self, operator: str, scale: int = 1) -> Problem:
        """Sizes that no tile divides, on GPUs rows of whole vectors."""
        shape: dict[str, Any] = {"m": 152 * scale, "n": 72, "k": 96}
        if operator == "embedding_all_to_all":
            shape = {"tables_per_rank": 3, "rows": 200, "dim": 24, "batch": 152 * scale, "pooling": 5}
        elif operator == "gemv_all_reduce":
            shape = {"n": 152 * scale, "k": 96, "tokens": 3}
        return problem(operator, shape, dtype=self.dtype, world=self.world)

    def operands(self, asked: Problem, seed: int, rank: int | None = None) -> tuple[Tensor, Tensor]:
        """Those of this rank or of another, the same in every process; every seed has others."""
        first, second = operands(asked, self.rank if rank is None else rank, seed, self.device).values()
        return first, second

    def call(self, operator: str, first: Tensor, second: Tensor, group: str | None = None) -> Tensor:
        made: Tensor = getattr(torch.ops.workbench, operator)(
            first, second, self.group if group is None else group, self.schedule
        )
        return made

    def meet(self) -> None:
        """All ranks meet on the host."""
        if self.world > 1:
            torch.distributed.all_gather_object([None] * self.world, None)

    def right(self, asked: Problem, got: Tensor, seed: int) -> None:
        """*got* is the reference's result from the operands of *seed*."""
        found = verdict(asked, got, expected(asked, self.rank, seed, self.device), roundings=asked.world + 1)
        assert found.correct, f"{asked.operator}, operands {seed}: {found.message(self.rank)}"


def every_operator_is_right(here: Here, schedule: str = "") -> None:
    here = replace(here, schedule=schedule)
    for operator in OPERATORS:
        asked = here.problem(operator)
        for seed in range(2):
            got = here.call(operator, *here.operands(asked, seed))
            assert got.shape == OPERATORS[operator].local(asked)["output"]
            assert got.dtype == torch_dtype(asked)
            assert got.device == torch.device(here.device)
            here.right(asked, got, seed)


def fresh_operands_groups_and_shapes_in_turns(here: Here, calls: int) -> None:
    """The results of all calls are kept: none is overwritten by one that came later."""
    cases = list(product(OPERATORS, (1, 2), (here.group, here.other)))
    kept = []
    for number in range(calls):
        operator, scale, group = cases[number * 5 % len(cases)]
        asked = here.problem(operator, scale)
        kept.append((asked, number, here.call(operator, *here.operands(asked, number), group)))
    for asked, number, got in kept:
        here.right(asked, got, number)


def the_result_is_no_view_and_output_is_one(here: Here) -> None:
    for operator in OPERATORS:
        asked = here.problem(operator)
        first = here.call(operator, *here.operands(asked, 1))
        seen = kernels.ops.output(operator, *here.operands(asked, 2), here.group, here.schedule)
        here.right(asked, seen, 2)
        again = here.call(operator, *here.operands(asked, 3))
        here.right(asked, first, 1)
        here.right(asked, again, 3)
        assert len({tensor.untyped_storage().data_ptr() for tensor in (first, again, seen)}) == 3


def operands_of_other_layouts_are_copied(here: Here) -> None:
    """Transposed weights, and rows that begin in the middle of a vector."""
    asked = here.problem("gemm_all_to_all")
    first, second = here.operands(asked, 0)
    here.right(asked, here.call("gemm_all_to_all", first, second.t().contiguous().t()), 0)
    longer = torch.empty(first.numel() + 1, dtype=first.dtype, device=first.device)
    shifted = longer[1:].view_as(first).copy_(first)
    here.right(asked, here.call("gemm_all_to_all", shifted, second), 0)


def torch_finds_nothing_wrong(here: Here, operator: str) -> None:
    first, second = here.operands(here.problem(operator), 0)
    if operator in DIFFERENTIABLE:
        first.requires_grad_()
        if second.is_floating_point():
            second.requires_grad_()
    op = getattr(torch.ops.workbench, operator).default
    found = torch.library.opcheck(op, (first, second, here.group, here.schedule))
    assert set(found.values()) == {"SUCCESS"}, found


def a_compiled_model_is_the_same(here: Here, operator: str, backend: str) -> None:
    """Forward and backward, without a graph break, and for another batch."""

    def model(first: Tensor, second: Tensor) -> Tensor:
        return here.call(operator, first * 2 if first.is_floating_point() else first, second).relu() + 1

    torch._dynamo.reset()  # each operator is another model to it
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for scale in (1, 2):
        answers = []
        for function in (model, compiled):
            first, second = here.operands(here.problem(operator, scale), scale)
            leaves = [leaf.requires_grad_() for leaf in (first, second)
                      if leaf.is_floating_point() and operator in DIFFERENTIABLE]  # fmt: skip
            made = function(first, second)
            if leaves:
                made.sum().backward()
            answers.append([made.detach(), *(leaf.grad for leaf in leaves)])
        for eager, other in zip(*answers, strict=True):
            torch.testing.assert_close(other, eager, rtol=2e-2, atol=1e-2 * eager.abs().max().item())


def _whole(asked: Problem, firsts: Sequence[Tensor], seconds: Sequence[Tensor]) -> list[Tensor]:
    """Every rank's output, from the operands of all of them, by plain torch."""
    stated, world = OPERATORS[asked.operator], asked.world
    size = stated.chunk_rows(asked)
    rows = [slice(rank * size, (rank + 1) * size) for rank in range(world)]
    pairs = list(zip(firsts, seconds, strict=True))
    match asked.operator:
        case "embedding_all_to_all":
            pooled = [torch.cat([one[t][of[:, t]].sum(1) for t in range(len(one))], dim=1) for one, of in pairs]
            return [torch.cat([part[mine] for part in pooled], dim=1) for mine in rows]
        case "gemm_all_to_all":
            return [torch.cat([(a @ b)[mine] for a, b in pairs]) for mine in rows]
        case "all_to_all_gemm":
            return [torch.cat([a[mine] for a in firsts]) @ b for mine, b in zip(rows, seconds, strict=True)]
        case "all_gather_gemm":
            return [torch.cat(list(firsts)) @ b for b in seconds]
        case "gemm_reduce_scatter":
            return [torch.stack([(a @ b)[mine] for a, b in pairs]).sum(0) for mine in rows]
        case _:
            return [torch.stack([a @ b for a, b in pairs]).sum(0)] * world


def gradients_are_those_of_the_whole(here: Here, operator: str) -> None:
    """Against float64 on one rank, from the data of all of them."""
    asked = here.problem(operator)
    everyone = [here.operands(asked, 7, rank) for rank in range(here.world)]
    truth = [[one.double().requires_grad_() if one.is_floating_point() else one for one in pair] for pair in everyone]
    outputs = _whole(asked, *zip(*truth, strict=True))
    replicated = operator == "gemm_all_reduce"
    upstream = [_upstream(here, outputs[rank], 0 if replicated else rank) for rank in range(here.world)]
    counted = range(1) if replicated else range(here.world)
    torch.stack([(outputs[rank] * upstream[rank].double()).sum() for rank in counted]).sum().backward()
    first, second = (one.requires_grad_(one.is_floating_point()) for one in here.operands(asked, 7))
    here.call(operator, first, second).backward(upstream[here.rank])
    for name, got, true in zip(("first", "second"), (first, second), truth[here.rank], strict=True):
        if not true.is_floating_point():
            continue
        assert got.grad is not None
        assert got.grad.dtype == got.dtype
        scale = true.grad.square().mean().sqrt().item()
        error = (got.grad.double() - true.grad).abs().max().item() / scale
        assert error <= bound(asked, asked.world + 2), f"{operator}: gradient of its {name} operand errs by {error:.3g}"


def _upstream(here: Here, output: Tensor, rank: int) -> Tensor:
    generator = torch.Generator(here.device).manual_seed(100 + rank)
    drawn = torch.randn(output.shape, generator=generator, device=here.device)
    return drawn.to(getattr(torch, here.dtype))


def only_the_gradient_that_is_asked_for_is_made(here: Here) -> None:
    first, second = here.operands(here.problem("gemm_all_to_all"), 0)
    here.call("gemm_all_to_all", first, second.requires_grad_()).sum().backward()
    assert second.grad is not None
    assert first.grad is None


def no_gradient_of_decoding(here: Here) -> None:
    first, second = here.operands(here.problem("gemv_all_reduce"), 0)
    made = here.call("gemv_all_reduce", first.requires_grad_(), second)
    told(Refusal, "gemv_all_reduce has no gradient", lambda: made.sum().backward())


def ranks_that_mean_different_things_are_told(here: Here) -> None:
    """GPU ranks say what they mean when a shape comes first."""
    first, second = here.operands(here.problem("gemm_all_to_all", 5 + here.rank), 0)
    sentence = f"The {here.world} ranks of one group called gemm_all_to_all in {here.world} ways"
    told(Refusal, sentence, lambda: here.call("gemm_all_to_all", first, second))


def a_rank_that_stays_away_is_told(here: Here) -> None:
    """The others get a sentence; after `close` on all ranks they go on."""
    asked = here.problem("gemm_all_to_all")
    first, second = here.operands(asked, 0)
    here.right(asked, here.call("gemm_all_to_all", first, second, here.brief), 0)
    if here.rank != here.world - 1:

        def in_vain() -> None:
            here.call("gemm_all_to_all", first, second, here.brief)
            kernels.ops.check()

        told(kernels.ops.Hang, "Call kernels.ops.close() on all of them first", in_vain)
        told(kernels.ops.Hang, f"Rank {here.rank} waited", in_vain)
    else:
        time.sleep(AWAY_SECONDS)
    here.meet()
    kernels.ops.close(here.brief)
    here.right(asked, here.call("gemm_all_to_all", *here.operands(asked, 1), here.brief), 1)


def closing_gives_memory_back_and_the_next_call_begins_anew(here: Here) -> None:
    asked = here.problem("embedding_all_to_all")
    for seed in range(2):
        here.right(asked, here.call("embedding_all_to_all", *here.operands(asked, seed)), seed)
        kernels.ops.close()


def gpu_kernels_interpreted(here: Here, operator: str, schedule: str = "") -> None:
    """The same class that runs on GPUs, over shared memory: other operands every call."""
    from kernels.backends.cpu.heap import SegmentHeap
    from kernels.ops.arguments import GroupRanks, process_group
    from kernels.ops.gpu import GpuCalls

    ranks, generations = GroupRanks.begin(process_group(here.group), torch.device("cpu")), iter(range(1, 100))
    calls = GpuCalls(ranks, torch.device("cpu"), lambda size: SegmentHeap(ranks.seat, next(generations), size, 1))
    text = {"embedding_all_to_all": "fused tile=8x24x4", "gemv_all_reduce": "fused tile=16x4x32"}
    asked, kept = here.problem(operator), []
    if operator == "embedding_all_to_all":
        few = {"tables_per_rank": 3, "rows": 50, "dim": 24, "batch": 20, "pooling": 3}
        asked = problem(operator, few, dtype=here.dtype, world=here.world)
    names = [name for name in OPERATORS[operator].local(asked) if name != "output"]
    for seed in range(3):
        ranks.barrier()  # the interpreter counts polls, not seconds
        own = dict(zip(names, here.operands(asked, seed), strict=True))
        assert problem_of(operator, *map(Operand.of, own.values()), here.world).shape == asked.shape
        got, fresh = calls.call(asked, schedule or text.get(operator, "fused(tile=32x32x32, slice_tiles=2)"), own)
        kept.append(got if fresh else got.clone())
    calls.check()
    made = 1 if schedule == "sequential collective=library" else 2
    assert next(generations) == made, "one heap was made, by the first call, or none for the library"
    for seed, got in enumerate(kept):
        here.right(asked, got, seed)


def every_operator_is_right_as_measured(here: Here) -> list[str]:
    """Each operator, twice in a row, by what a measurement of all its candidates chooses; the choices as sentences."""
    here = replace(here, schedule="")
    kernels.ops.close()
    kernels.ops.choose_by("measured")
    every = [here.problem(operator, scale=8) for operator in OPERATORS]
    try:
        for operator, asked in zip(OPERATORS, every, strict=True):
            for seed in (0, 1):
                here.right(asked, here.call(operator, *here.operands(asked, seed)), seed)
            kernels.ops.check()
        return [str(each) for each in kernels.ops.chosen() if each.problem in every]
    finally:
        kernels.ops.choose_by("table")


def calls_without_a_schedule_run_what_is_chosen(here: Here) -> None:
    """By the table, then by a measurement at set-up, which the next group finds again; always the right result."""
    here = replace(here, schedule="")
    asked = here.problem("gemm_all_to_all")
    texts = []
    try:
        for number, mode in enumerate(("off", "table", "measured", "measured")):
            kernels.ops.close()
            kernels.ops.choose_by(mode)
            here.right(asked, here.call("gemm_all_to_all", *here.operands(asked, number)), number)
            [choice] = [each for each in kernels.ops.chosen() if each.problem == asked]
            texts.append(choice)
    finally:
        kernels.ops.choose_by("table")
    off, by_table, measured, again = texts
    assert off.schedule == "fused"
    assert off.reason == "The choice is off."
    assert not by_table.seconds, "the table alone measures nothing"
    assert "By table" in by_table.reason
    assert len(measured.seconds) >= 2
    assert min(measured.seconds.values()) > 0
    assert "at set-up" in measured.reason
    assert again.seconds == measured.seconds
    assert "in an earlier process" in again.reason
    if here.world > 1:
        chosen: list[Any] = [None] * here.world
        torch.distributed.all_gather_object(chosen, [str(each) for each in texts[:1]] + [measured.schedule])
        assert all(each == chosen[0] for each in chosen)


def ranks_that_choose_differently_are_refused(here: Here) -> None:
    """One rank measures from now on, the others go on as all of them began."""
    here = replace(here, schedule="")
    begun = here.problem("gemm_all_to_all", 6)
    here.right(begun, here.call("gemm_all_to_all", *here.operands(begun, 0)), 0)
    first, second = here.operands(here.problem("gemm_all_to_all", 7), 0)
    kernels.ops.choose_by("measured" if here.rank == 0 else "table")
    try:
        sentence = f"The {here.world} ranks of one group choose schedules in 2 ways"
        told(Refusal, sentence, lambda: here.call("gemm_all_to_all", first, second))
    finally:
        kernels.ops.choose_by("table")
        kernels.ops.close()


BUCKETS = 64, 160


def calls_of_any_rows_run_in_buckets(here: Here) -> None:
    """Right for m at, under and between two buckets, in any order, and prepared once for each bucket that was met."""
    from kernels.ops import registered

    def prepared() -> set[Any]:
        calls: Any = registered._CALLS.get((here.group, torch.device(here.device)))
        return set() if calls is None else set(calls._trials if here.device == "cpu" else calls._prepared)

    gemms = [name for name in OPERATORS if name.startswith("gemm") or name.endswith("gemm")]
    kernels.ops.close()
    before = prepared()
    kernels.ops.bucket_rows(*BUCKETS)
    try:
        for operator in gemms:
            kept = []
            for seed, m in enumerate((64, 152, 40, 160, 8, 40)):
                shape = dict(here.problem(operator).shape) | {"m": m}
                asked = problem(operator, shape, dtype=here.dtype, world=here.world)
                kept.append((asked, seed, here.call(operator, *here.operands(asked, seed))))
            for asked, seed, got in kept:
                here.right(asked, got, seed)
        now = prepared()
        assert {of["m"] for of, _ in now - before if of.operator in gemms} <= set(BUCKETS)
        assert {of["m"] for of, _ in now if of.operator in gemms} >= set(BUCKETS)
        first, second = here.operands(problem("gemm_all_reduce", {"m": 168, "n": 72, "k": 96}, dtype=here.dtype,
                                              world=here.world), 0)  # fmt: skip
        told(Refusal, "m = 168, and the largest bucket has 160 rows: 168 > 160",
             lambda: here.call("gemm_all_reduce", first, second))  # fmt: skip
    finally:
        kernels.ops.bucket_rows()
        kernels.ops.close()


def a_row_has_the_bits_of_its_bucket(here: Here) -> None:
    """All-reduces of 1, 37 and 63 rows: those of the call with 64, bit for bit, also where ranks cannot share m out."""
    asked = problem("gemm_all_reduce", {"m": 64, "n": 72, "k": 96}, dtype=here.dtype, world=here.world)
    first, second = here.operands(asked, 0)
    whole = here.call("gemm_all_reduce", first, second)
    here.right(asked, whole, 0)
    kernels.ops.bucket_rows(64)
    try:
        for m in (1, 37, 63):
            rows = here.call("gemm_all_reduce", first[:m], second)
            assert rows.shape == (m, 72)
            assert torch.equal(rows, whole[:m]), f"{m} rows"
    finally:
        kernels.ops.bucket_rows()


def an_all_reduce_has_any_number_of_rows(here: Here) -> None:
    """Without buckets, too: m that the world does not divide is padded inside."""
    asked = problem("gemm_all_reduce", {"m": 64, "n": 72, "k": 96}, dtype=here.dtype, world=here.world)
    first, second = here.operands(asked, 0)
    exact = expected(asked, here.rank, 0, here.device)
    for m in (37, 1, 61):
        rows = here.call("gemm_all_reduce", first[:m], second)
        found = verdict(asked, rows, exact[:m], roundings=here.world + 1)
        assert found.correct, found.message(here.rank)


CHECKS: dict[str, Callable[..., None]] = {
    check.__name__: check
    for check in (
        every_operator_is_right,
        fresh_operands_groups_and_shapes_in_turns,
        the_result_is_no_view_and_output_is_one,
        operands_of_other_layouts_are_copied,
        torch_finds_nothing_wrong,
        a_compiled_model_is_the_same,
        gradients_are_those_of_the_whole,
        only_the_gradient_that_is_asked_for_is_made,
        no_gradient_of_decoding,
        ranks_that_mean_different_things_are_told,
        a_rank_that_stays_away_is_told,
        closing_gives_memory_back_and_the_next_call_begins_anew,
        gpu_kernels_interpreted,
        calls_without_a_schedule_run_what_is_chosen,
        every_operator_is_right_as_measured,
        ranks_that_choose_differently_are_refused,
        calls_of_any_rows_run_in_buckets,
        a_row_has_the_bits_of_its_bucket,
        an_all_reduce_has_any_number_of_rows,
    )
}
