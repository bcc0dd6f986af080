"""What one call of a trial does, by the recipe of its scheme and flow; one module for each scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

from torch import Tensor

from kernels.backends.triton import recipes
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.timeline import WatchedCalls
from kernels.backends.triton.timing import Node
from kernels.reference import Operands
from kernels.trial import Trial

Call = Callable[[], None]


@dataclass(frozen=True, slots=True)
class OperandCalls:
    """One call per set of operands."""

    each: Sequence[Call]
    result: Tensor
    """What has to be written anew by every call, whichever set of operands it takes."""
    made: Sequence[Any] = ()
    """By set of operands what its call is made of: what `watched` of the same module makes once more."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What decides the time beside the schedule, for who reads it."""
    others: Sequence[Tensor] = ()
    """Results of the further micro-batches of a call."""
    read: Callable[[Sequence[Node]], Mapping[str, Any]] | None = None
    """Facts of the kernels that a captured graph holds; None: nobody asks for them."""

    @property
    def results(self) -> Sequence[Tensor]:
        """By micro-batch."""
        return self.result, *self.others


class SchemeModule(Protocol):
    """A module of this folder."""

    def kernels(self, context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
        """Those of ours that *part* of *context*'s trial compiles longest, with the form that is watched."""

    def calls(self, context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
        """What *part* does for each of *sets*; *group*: NCCL's, or None for a rank alone.

        A call on several micro-batches takes a set of each: *sets* are those of the first, then those of the second.
        """

    watched: Callable[[Context, OperandCalls], WatchedCalls] | None
    """Makes the calls of a whole trial once more, which write down what they do; None where nothing can be seen."""


def runner(trial: Trial) -> SchemeModule:
    """What runs *trial*, which nobody refused."""
    recipe = recipes.of(trial.problem, trial.schedule)
    assert recipe is not None, f"{trial.schedule} is refused"
    return cast(SchemeModule, import_module(recipe.module))
