"""Calls of trials, one module per scheme: `runner` finds the module by the recipe of scheme and flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

from torch import Tensor

from kernels.backends.triton import recipes
from kernels.backends.triton.launch import Call, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.timeline import WatchedCalls
from kernels.backends.triton.timing import Node
from kernels.reference import Operands
from kernels.trial import Trial


@dataclass(frozen=True, slots=True)
class OperandCalls:
    """The calls of a trial, one per set of operands."""

    each: Sequence[Call]
    result: Tensor
    """The result that every call has to overwrite, whichever set of operands it takes."""
    components: Sequence[Any] = ()
    """What the calls are built from, by set of operands; `watched` of the same module builds its calls from it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts that affect the time in addition to the schedule, recorded with a measurement."""
    other_results: Sequence[Tensor] = ()
    """Results of the further micro-batches of a call."""
    graph_facts: Callable[[Sequence[Node]], Mapping[str, Any]] | None = None
    """Facts of the kernels in a captured graph; None: none are recorded."""

    @property
    def results(self) -> Sequence[Tensor]:
        """Results by micro-batch."""
        return self.result, *self.other_results


class SchemeModule(Protocol):
    """The functions of a module of this folder."""

    def kernels(self, context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
        """Our kernels of *part* of *context*'s trial that take long to compile, with and without stamps."""

    def calls(self, context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
        """The calls of *part*, one for each of *sets*; *group*: NCCL's process group, or None in world 1.

        A call on several micro-batches takes a set of each: *sets* lists those of the first one, then of the second.
        """

    watched: Callable[[Context, OperandCalls], WatchedCalls] | None
    """Makes the calls of a whole trial again, so that they record their steps; None if nothing can be recorded."""


def runner(trial: Trial) -> SchemeModule:
    """The module that runs *trial*, which must not be refused."""
    recipe = recipes.of(trial.problem, trial.schedule)
    assert recipe is not None, f"{trial.schedule} is refused"
    return cast(SchemeModule, import_module(recipe.module))
