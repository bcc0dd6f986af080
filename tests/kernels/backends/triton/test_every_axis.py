"""An axis is offered where a kernel reads it, and only there: two of its values launch something else, or it is not
there."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import backends
from kernels.backends.capabilities import MeasuringRanks, run_values, runs
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context, shared_bytes
from kernels.backends.triton.schemes import concurrent, fused, sequential
from kernels.fabric import Fabric, parse
from kernels.machine import Machine, load
from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import torch_dtype
from kernels.schedule import Axis, Refusal, Schedule, Value
from kernels.schemes import axes, axis_rules, expand, refusal, run_by, schedule

MACHINES = Path(__file__).parents[4] / "data" / "machines"
HERE = {name: load(MACHINES / f"{file}.toml") for name, file in (("cpu", "laptop_cpu"), ("triton", "h200_nvl4"))}
LINKS = {"cpu": ("emulated", "shared_memory", "network"), "triton": ("nvlink",)}
SIZES: dict[str, dict[str, int]] = {
    "gemm": {"m": 2048, "n": 1024, "k": 128},
    "gemv": {"n": 4096, "k": 2048, "tokens": 2},
    "gather": {"tables_per_rank": 4, "rows": 100, "dim": 128, "batch": 2048, "pooling": 8},
}
SMALLER = {"gather": {"batch": 64}, "gemm": {"m": 1024, "n": 512}}
"""A GPU's tiles are smaller than those of CPU ranks."""


class Nowhere:
    """A heap whose tensors nobody shares: what a kernel is called with does not depend on it."""

    capacity = 1 << 40

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(*shape, dtype=dtype)


def ask(operator: str, backend: str) -> Problem:
    work = OPERATORS[operator].work
    sizes = SIZES[work] | (SMALLER.get(work, {}) if backend == "triton" else {})
    return problem(operator, sizes, world=4, dtype=backends.dtypes(backend, operator)[0])


def launched(asked: Problem, chosen: Schedule) -> str:
    """What the fused kernel of rank 1 is launched with; of tensors their shapes, and the values of tables."""
    return launch(fused.kernel(*of_rank_1(asked, chosen)))


def computed(by: ModuleType, asked: Problem, chosen: Schedule) -> str:
    """The Plan of a schedule of two halves, and what computes is launched with where that is a kernel of ours."""
    kernels = by.kernels(*of_rank_1(asked, chosen), "whole")
    return planned(asked, chosen) + str([launch(each) for each in kernels])


def of_rank_1(asked: Problem, chosen: Schedule) -> tuple[Context, dict[str, Tensor]]:
    """Its context and operands."""
    plan = expand(asked, chosen)
    shapes = {name: shape for name, shape in OPERATORS[asked.operator].local(asked).items() if name != "output"}
    return (Context(Nowhere(), plan, 1, torch.device("cpu"), start=shared_bytes(plan), limit_s=1),
            {name: torch.empty(*shape, dtype=torch_dtype(asked)) for name, shape in shapes.items()})  # fmt: skip


def launch(kernel: LaunchableKernel) -> str:
    counts = (kernel.num_warps, kernel.num_stages, kernel.items, kernel.grid, kernel.resident, kernel.spared)
    return str((kernel.function.__name__, sorted(kernel.constants.items()), counts, told(kernel.arguments)))


def told(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return [told(each) for each in argument]
    if isinstance(argument, TensorDescriptor):
        return list(argument.shape), list(argument.block_shape)
    if isinstance(argument, Tensor):
        return (tuple(argument.shape), argument.tolist() if argument.ndim and argument.dtype == torch.int32 else None)
    return argument


def planned(asked: Problem, chosen: Schedule) -> str:
    """The Plan: what CPU ranks obey, what a call of the library is drawn as, and what is simulated."""
    plan = expand(asked, chosen)
    steps = [getattr(plan, field.name) for field in fields(Plan) if field.name not in ("problem", "schedule", "tiles")]
    tiles = [[getattr(each, field.name).tolist() for field in fields(each)] for each in plan.tiles]
    return str([step.tolist() if hasattr(step, "tolist") else step for step in steps] + tiles)


def differs(asked: Problem, scheme: str, name: str, machine: Machine, link: Fabric) -> bool:
    """Whether two values of axis *name* come to two kernels or Plans, beside some value of an axis of words."""
    of_gpus = {"fused": launched, "sequential": partial(computed, sequential),
               "concurrent": partial(computed, concurrent)}  # fmt: skip
    kernel = of_gpus.get(scheme, planned) if machine.backend == "triton" else planned
    known = axes(asked, scheme, machine, link)
    values = next((axis.values for axis in known if axis.name == name), ())
    for beside in surroundings(known, name) if len(values) > 1 else ():
        seen = set()
        for value in values:
            with suppress(Refusal):
                seen.add(kernel(asked, schedule(asked, scheme, {**beside, name: value}, machine, link)))
            if len(seen) > 1:
                return True
    return False


def surroundings(known: Sequence[Axis], name: str) -> Iterator[dict[str, Value]]:
    yield {}
    for other in known:
        if other.name != name and not other.open and isinstance(other.default, str):
            yield from ({other.name: value} for value in other.values)


EVERY = [(operator, backend) for operator in OPERATORS for backend in HERE]


@pytest.mark.slow(keeps=7)
@pytest.mark.parametrize(("operator", "backend"), EVERY)
def test_two_values_of_every_axis_are_two_kernels_or_two_plans(operator: str, backend: str) -> None:
    asked, machine, links = ask(operator, backend), HERE[backend], [parse(kind) for kind in LINKS[backend]]
    for scheme in run_by(backend):
        names = dict.fromkeys(axis.name for link in links for axis in axes(asked, scheme, machine, link)
                              if len(axis.values) > 1)  # fmt: skip
        for name in names:
            assert any(differs(asked, scheme, name, machine, link) for link in links), (scheme, name)


UNREAD: dict[str, Sequence[Value]] = {
    "store": ("tma", "registers"), "num_warps": (4, 8), "num_stages": (2, 4), "slice_tiles": (1, 8),
    "write": ("zero_copy", "staged"), "comm_sms": (0, 16),
}  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_not_offered_changes_no_launch(operator: str) -> None:
    asked, machine, link = ask(operator, "triton"), HERE["triton"], parse("nvlink")
    plain = schedule(asked, "fused", {"tile_order": "rotated"}, machine, link)
    told_alone = launched(asked, plain)
    left_out = [name for name in UNREAD if name not in axis_rules.all_axes(asked, plain, "triton")]
    assert "slice_tiles" in left_out or OPERATORS[operator].flow is Flow.RECEIVE
    for name, values in UNREAD.items():
        for value in values if name in left_out else ():
            stated = Schedule("fused", (*plain.axes, (name, value)))
            assert launched(asked, stated) == told_alone, name
            assert axis_rules.effective(asked, stated, "triton") == plain
            assert f"{name} = {value} changes nothing" in str(refusal(asked, stated, machine, link))


@pytest.mark.slow(keeps=10)
@pytest.mark.parametrize(("operator", "backend"), EVERY)
def test_what_is_offered_is_not_refused(operator: str, backend: str) -> None:
    """Value by value; whatever the other axes are, the ranks run it."""
    asked, ranks = ask(operator, backend), MeasuringRanks(HERE[backend], parse(LINKS[backend][0]))
    for scheme in runs(asked, run_by(backend), ranks):
        known = {axis.name: axis.values for axis in axes(asked, scheme, ranks.machine, ranks.fabric)}
        assert run_values(asked, scheme, known, ranks) == known
        for name, values in known.items():
            for value in values:
                chosen = schedule(asked, scheme, {name: value}, ranks.machine, ranks.fabric)
                assert ranks.refusal(asked, chosen) is None
