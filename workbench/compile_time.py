"""How long kernels take to compile that were not compiled before: each once, for whichever trial comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from kernels.backends.triton.compilations import compilations
from kernels.trial import Trial
from workbench.blocks import Beside

SECONDS = {"send": 0.7, "send and sum": 2.8, "receive": 1.7, "gemv": 0.8, "lookup": 0.4, "pieces": 1.2}
"""One kernel of each family, for sm_90 on one core, as measured on 2026-11-22; pieces on 2026-11-23. The form that is
watched takes as long."""


class Compiled:
    """The kernels that ranks have: those that they have compiled in a run, and those of what is known from before."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._kernels = {one for trial in trials for one in compilations(trial)}

    def add(self, trials: Iterable[Trial]) -> None:
        """*trials* were compiled."""
        self._kernels |= {one for trial in trials for one in compilations(trial)}

    def seconds(self, trials: Sequence[Trial], before: Sequence[Trial] = ()) -> float:
        """What is to be compiled for *trials* after those *before* them; ranks of one host share the work."""
        needed = {one: trial.world for trial in trials for one in compilations(trial)}
        had = {one for trial in before for one in compilations(trial)} if needed else set()
        return fsum(SECONDS[one.family] / world for one, world in needed.items()
                    if one not in self._kernels and one not in had)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FirstNeeded:
    """Seconds to compile what is new to the ranks: each kernel counts where it is needed first."""

    base_s: float
    """Of the baseline, when it is all that is measured."""
    own_s: tuple[float, ...]
    """Of each schedule."""
    beside_s: tuple[float, ...]
    """Of the parts beside each schedule; before the first of them also of the baseline."""

    def seconds(self, some: slice) -> float:
        """Of the blocks that hold *some* schedules."""
        return sum(self.own_s[some]) + sum(self.beside_s[some])


def first_needed(
    compiled: Compiled, around: Beside, forms: Sequence[int], trial: Callable[[int], Trial]
) -> FirstNeeded:
    """Of schedules in order: *trial* makes one by its place. Those of one form are compiled alike: its first counts."""
    base_s = compiled.seconds(around.block([around.base]).trials)
    own_s, beside_s = [0.0] * len(forms), [0.0] * len(forms)
    firsts: dict[int, int] = {}
    for place, form in enumerate(forms):
        firsts.setdefault(form, place)
    for place in firsts.values():
        one = trial(place)
        others = around.block([one]).trials
        own_s[place] = compiled.seconds([one])
        beside_s[place] = compiled.seconds(others, [one])
        compiled.add(others)
    return FirstNeeded(base_s, tuple(own_s), tuple(beside_s))
