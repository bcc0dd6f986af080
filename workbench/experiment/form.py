"""What the form asks for, as one frozen value: from it follow the problem, the trial and the experiment."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from kernels import operators
from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Value
from kernels.schemes import COMPARED, axes, axis_rules, schedule
from kernels.trial import Trial, protocol
from workbench.experiment.experiment import Experiment
from workbench.experiment.space import EVERY, Choice, Space
from workbench.naming import operator_title

SCHEME = "scheme"
"""What is swept when the schemes are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormQuestion:
    """The state of the form. Nothing in it is checked: `problem`, `trial` and `experiment` raise Refusal."""

    operator: str
    shape: tuple[tuple[str, int | str], ...]
    dtype: str
    world: int
    scheme: str
    values: tuple[tuple[str, tuple[tuple[str, Value], ...]], ...] = ()
    """By scheme: the axes that a person has set; all others keep their default."""
    fabric: str
    protocol: str = "default"
    swept: tuple[str, ...] = ()
    """Axes of which every value is to be tried; SCHEME compares the schemes."""
    fresh: bool = False
    compared: tuple[str, ...] = COMPARED
    """What a sweep over the schemes compares."""

    def problem(self) -> Problem:
        return operators.problem(self.operator, dict(self.shape), dtype=self.dtype, world=self.world)

    def link(self) -> Fabric:
        return parse(self.fabric)

    def axes(self, machine: Machine) -> tuple[Axis, ...]:
        """The axes of the scheme with what is legal here."""
        return self.axes_of(self.scheme, machine)

    def axes_of(self, scheme: str, machine: Machine) -> tuple[Axis, ...]:
        """The axes of *scheme* with what is legal here."""
        return axes(self.problem(), scheme, machine, self.link())

    def values_of(self, scheme: str) -> dict[str, Value]:
        return dict(dict(self.values).get(scheme, ()))

    def unread(self, scheme: str, machine: Machine) -> Container[str]:
        """Axes of *scheme* that change nothing beside the others; what is set of them waits until it matters again."""
        values = {axis.name: axis.default for axis in self.axes_of(scheme, machine)} | self.values_of(scheme)
        return axis_rules.ignored_axes(self.problem(), scheme, values, machine.backend)

    def schedule(self, machine: Machine) -> Schedule:
        unread = self.unread(self.scheme, machine)
        values = {name: value for name, value in self.values_of(self.scheme).items() if name not in unread}
        return schedule(self.problem(), self.scheme, values, machine, self.link())

    def trial(self, machine: Machine) -> Trial:
        """The one trial that the form shows; an emulated link may not be resolved yet."""
        return Trial(
            problem=self.problem(),
            schedule=self.schedule(machine),
            backend=machine.backend,
            machine=machine.name,
            fabric=self.link(),
            protocol=protocol(self.protocol),
        )

    def schemes(self) -> tuple[str, ...]:
        """What Run tries: the scheme of the form, or all that are compared."""
        return self.compared if SCHEME in self.swept else (self.scheme,)

    def swept_values(self, machine: Machine) -> dict[str, tuple[Value, ...]]:
        """Every axis that Run sweeps with its values: those of the form's scheme first, and numbers before words.

        An axis that none of the schemes has, left over from another scheme, is not swept, nor is one of a single value.
        """
        lists: dict[str, tuple[Value, ...]] = {}
        for scheme in sorted(self.schemes(), key=lambda name: name != self.scheme):
            known = [axis for axis in self.axes_swept(scheme, machine) if len(axis.values) > 1]
            for axis in sorted(known, key=lambda axis: not isinstance(axis.default, int)):
                lists.setdefault(axis.name, axis.values)
        return lists

    def axes_swept(self, scheme: str, machine: Machine) -> list[Axis]:
        """Those of *scheme* that are swept, but for what changes nothing; beside all tile orders, some of it does."""
        unread = () if axis_rules.TILE_ORDER in self.swept else self.unread(scheme, machine)
        return [axis for axis in self.axes_of(scheme, machine) if axis.name in self.swept and axis.name not in unread]

    def experiment(self, machine: Machine) -> Experiment:
        """The trial, or the sweep over everything in `swept`; a few schedules are timed in turns, sample by sample."""
        self.schedule(machine)
        schemes = self.schemes()
        few = not self.swept_values(machine)
        return Experiment(
            problems=(self.problem(),),
            space=Space(tuple(self.choice(scheme, machine) for scheme in schemes)),
            backend=machine.backend,
            machine=machine.name,
            fabric=self.link(),
            protocol=protocol(self.protocol),
            title=f"{operator_title(self.operator)}: {', '.join(schemes)}",
            parts="each" if few else "baseline",
            together=few,
            fresh=self.fresh,
        )

    def choice(self, scheme: str, machine: Machine) -> Choice:
        """What is to be tried of *scheme*, its axes in order."""
        unread = () if axis_rules.TILE_ORDER in self.swept else self.unread(scheme, machine)
        values = {name: (value,) for name, value in self.values_of(scheme).items() if name not in unread}
        swept = {axis.name: (EVERY,) for axis in self.axes_swept(scheme, machine)}
        values |= swept
        names = [axis.name for axis in self.axes_of(scheme, machine) if axis.name in values]
        return Choice(scheme, tuple((name, values[name]) for name in names))
