"""Pieces on CPU tensors: what cuBLAS is given fits together, and pieces that a library moves come to the result."""

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.backends.triton.memory import Context, private_bytes, shared_bytes
from kernels.backends.triton.schemes import decomposed
from kernels.reference import SEED, expected, operands, verdict
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.pieces import ENGINES, SPLITS, legal

SHAPE = {"m": 96, "n": 64, "k": 64}
WORLD = 3


class Memory:
    """Symmetric memory of ranks that are threads of one process."""

    def __init__(self, world: int, capacity: int) -> None:
        self.capacity = capacity
        self.ranks = [torch.zeros(capacity, dtype=torch.uint8) for _ in range(world)]

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        length = torch.Size(shape).numel() * dtype.itemsize
        return self.ranks[rank][offset : offset + length].view(dtype).view(*shape)


class Group:
    """One rank's end of a library: what each rank gives, all get."""

    def __init__(self, rank: int, box: list[Any], meeting: threading.Barrier) -> None:
        self.rank, self.box, self.meeting = rank, box, meeting

    def swap(self, here: Any) -> list[Any]:
        self.box[self.rank] = here
        self.meeting.wait()
        everyone = [each.clone() if isinstance(each, Tensor) else [one.clone() for one in each] for each in self.box]
        self.meeting.wait()
        return everyone


def all_gather_into_tensor(out: Tensor, here: Tensor, group: Group) -> None:
    out.copy_(torch.cat(group.swap(here)))


def all_to_all(coming: list[Tensor], leaving: list[Tensor], group: Group) -> None:
    for one, sent in zip(coming, group.swap(leaving), strict=True):
        one.copy_(sent[group.rank])


def reduce_scatter_tensor(out: Tensor, here: Tensor, group: Group) -> None:
    out.copy_(torch.stack(group.swap(here)).sum(0).chunk(len(group.box))[group.rank])


def all_reduce(both: Tensor, group: Group) -> None:
    both.copy_(torch.stack(group.swap(both)).sum(0))


LIBRARY = (all_gather_into_tensor, all_to_all, reduce_scatter_tensor, all_reduce)


def every(operator: str, engines: Sequence[str]) -> list[Trial]:
    trials = legal(operator, WORLD, engines, SHAPE, pieces=4, tile="16x16x16", dtype="float16")
    return [trial for trial in trials if trial.schedule["launches"] == "per_piece"]


def contexts(trial: Trial) -> list[Context]:
    plan = expand(trial.problem, trial.schedule)
    start = shared_bytes(plan)
    memory = Memory(trial.world, start + private_bytes(plan, 0))
    return [Context(memory, plan, rank, torch.device("cpu"), start=start, limit_s=1.0) for rank in range(trial.world)]


class Launched:
    """In place of a kernel, which only a GPU or the interpreter launches."""

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        return lambda *arguments, **options: None


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks here meet in the library, and call after call."""
    monkeypatch.setattr(decomposed, "arrived", Launched())


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("operator", SPLITS)
def test_products_of_pieces_fit_together(operator: str) -> None:
    """Rows of several ranks are one matrix on both sides or on neither, else they would land in other rows."""
    for trial in every(operator, ENGINES):
        for context in contexts(trial):
            values = operands(trial.problem, context.rank, SEED)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                decomposed.calls(context, [values], "compute", None).each[0]()


@pytest.mark.parametrize("operator", SPLITS)
def test_pieces_that_a_library_moves_come_right(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in LIBRARY:
        monkeypatch.setattr(torch.distributed, function.__name__, function)
    trials = every(operator, ["library"])
    assert len(trials) == len(SPLITS[operator])
    for trial in trials:
        box, meeting, results = [None] * WORLD, threading.Barrier(WORLD, timeout=100), {}

        def play(context: Context, of: Trial, group: Group, results: dict[int, Tensor]) -> None:
            made = decomposed.calls(context, [operands(of.problem, context.rank, SEED)], of.part, group)
            made.result.fill_(float("nan"))
            made.each[0]()
            results[context.rank] = made.result

        threads = [threading.Thread(target=play, args=(context, trial, Group(context.rank, box, meeting), results))
                   for context in contexts(trial)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for rank in range(WORLD):
            judged = verdict(trial.problem, results[rank], expected(trial.problem, rank, SEED), WORLD)
            assert judged.error <= judged.bound, (str(trial.schedule), rank)
