"""Why Run would be refused, known before it is pressed: the scheme, the cluster's workers and the backend are asked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from cluster.seating import Workers
from kernels import backends, schemes
from kernels.axes import Axis, Value
from kernels.backends import offers
from kernels.machine import Machine
from kernels.schedule import Refusal, Schedule
from kernels.trial import Trial
from workbench import place
from workbench.answer import share_memory
from workbench.widgets.asking import Asked

Choice = TypeVar("Choice", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Judge:
    """Of one source. What is simulated has to be legal; what is measured has to find ranks that run it, too."""

    measures: bool = False
    workers: Workers | None = None
    """None: nobody knows yet whether there is a cluster."""

    def seats(self, machine: Machine) -> int:
        """How many ranks may be asked for: as many as the cluster can seat, or the machine connects."""
        known = self.workers if self.measures else None
        seats = known.seats(machine.backend) if known is not None else 0
        return min(seats or machine.max_world, machine.max_world)

    def refusal(self, asked: Asked, machine: Machine) -> str | None:
        """Why *asked* cannot be answered, or None."""
        try:
            trial = asked.trial(machine)
        except Refusal as refusal:
            return str(refusal)
        return self._of_hardware(machine, trial.world) or self._of_ranks(trial)

    def of_machine(self, machine: Machine) -> str | None:
        """Why nothing at all can be answered about *machine*, or None."""
        known = self.workers if self.measures else None
        unseated = known.refusal(1, machine.backend, shares_heap=True) if known is not None else None
        return unseated or self._of_hardware(machine, 1)

    def _of_hardware(self, machine: Machine, world: int) -> str | None:
        """Why times of the cluster's ranks are none of *machine*, or None."""
        ranks = self.workers.ranks(world, machine.backend) if self.measures and self.workers is not None else None
        return None if ranks is None else place.refusal(machine, ranks.hardware, world)

    def of_scheme(self, asked: Asked, scheme: str, machine: Machine) -> str | None:
        """Why no schedule of *scheme* can be answered, or None."""
        plain = replace(asked, scheme=scheme, values=())
        sentence = self.refusal(plain, machine)
        return None if sentence is None or self.fitting(plain, machine) is not None else sentence

    def of_link(self, asked: Asked, link: str, machine: Machine) -> str | None:
        """Why no scheme can be answered over *link*, or None."""
        sentences = []
        for scheme in schemes.SCHEMES:
            sentence = self.refusal(replace(asked, fabric=link, scheme=scheme, values=()), machine)
            if sentence is None:
                return None
            sentences.append(sentence)
        return sentences[0]

    def of_values(self, asked: Asked, axis: Axis, machine: Machine) -> dict[Value, str | None]:
        """Why the ranks cannot run the scheme's usual schedule with each value of *axis*; None where they can."""
        if not self.measures:
            return {}
        try:
            usual = self.fitting(asked, machine) or replace(asked, values=()).schedule(machine)
        except Refusal:
            return {}
        refused = offers.refused_values(asked.problem(), usual, axis, self._ranks(asked, machine))
        return {value: refused.get(value) for value in axis.values}

    def fitting(self, asked: Asked, machine: Machine) -> Schedule | None:
        """A schedule that the ranks run, where the usual one is legal and theirs alone refuse it; None without."""
        if not self.measures:
            return None
        try:
            usable = offers.fitting(asked.problem(), asked.scheme, self._ranks(asked, machine))
        except Refusal:
            return None
        return None if usable == replace(asked, values=()).schedule(machine) else usable

    def _ranks(self, asked: Asked, machine: Machine) -> offers.Runner:
        return offers.Runner(machine, asked.link())

    def _of_ranks(self, trial: Trial) -> str | None:
        if not self.measures:
            return None
        shares = share_memory([trial])
        known = self.workers
        unseated = None if known is None else known.refusal(trial.world, trial.backend, shares, trial.across)
        return unseated or backends.refusal(trial, shares)


def refused_choices(sentences: Mapping[Choice, str | None]) -> dict[Choice, str]:
    """The choices that cannot be, with their reasons. Where none can be, the reason is not in this choice."""
    refused = {choice: sentence for choice, sentence in sentences.items() if sentence is not None}
    return refused if len(refused) < len(sentences) else {}
