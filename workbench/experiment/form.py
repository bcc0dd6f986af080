"""FormQuestion, the state of the explorer's form as one frozen value, and the problem, trial and experiment it
makes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kernels import operators
from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule, Value
from kernels.schemes import COMPARED, SCHEMES, axes, axis_rules, schedule
from kernels.trial import Trial, protocol
from workbench.experiment.experiment import Experiment, Search
from workbench.experiment.space import EVERY, Choice, Space
from workbench.naming import operator_title
from workbench.results.decode import COUNT, LIST, TABLE, TEXT, TRUTH, ValueForm, WrongForm, checked
from workbench.simulator.predict import no_estimate, predict

SCHEME = "scheme"
"""The name in `swept` of a comparison of schemes."""


def _is_pairs(value: Any) -> bool:
    return LIST.holds(value) and all(LIST.holds(pair) and len(pair) == 2 and TEXT.holds(pair[0]) for pair in value)


def _is_sizes(value: Any) -> bool:
    return _is_pairs(value) and all(type(size) in (int, str) for _, size in value)


_SIZES = ValueForm("pairs of a name and a whole number or a word", _is_sizes)
_VALUES = ValueForm("pairs of a scheme and its values",
                    lambda value: _is_pairs(value) and all(_is_sizes(each) for _, each in value))  # fmt: skip
_NAMES = ValueForm("a list of names", lambda value: LIST.holds(value) and all(map(TEXT.holds, value)))
_NEEDED = {"operator": TEXT, "shape": _SIZES, "dtype": TEXT, "world": COUNT, "scheme": TEXT, "fabric": TEXT}
_OPTIONAL = {"values": _VALUES, "protocol": TEXT, "swept": _NAMES, "fresh": TRUTH, "compared": _NAMES,
             "search": TABLE}  # fmt: skip


def _frozen(value: Any) -> Any:
    """*value* with tuples for the lists of JSON."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class FormQuestion:
    """The state of the form, unchecked: `problem`, `trial` and `experiment` raise Refusal."""

    operator: str
    shape: tuple[tuple[str, int | str], ...]
    dtype: str
    world: int
    scheme: str
    values: tuple[tuple[str, tuple[tuple[str, Value], ...]], ...] = ()
    """The axes that a person set, by scheme; all others keep their default."""
    fabric: str
    protocol: str = "default"
    swept: tuple[str, ...] = ()
    """Axes of which every value is tried; SCHEME compares the schemes."""
    fresh: bool = False
    compared: tuple[str, ...] = COMPARED
    """The schemes that a sweep over the schemes compares."""
    search: Search = field(default_factory=Search)
    """Which schedules of a sweep are measured, in what order, and for how long."""

    def to_json(self) -> dict[str, Any]:
        """All fields, for links and saved views."""
        return {**asdict(self), "search": self.search.to_json()}

    @classmethod
    def from_json(cls, data: Any) -> FormQuestion:
        """The question that `to_json` wrote; ValueError for anything else."""
        try:
            checked(data, _NEEDED, "a question", _OPTIONAL)
        except WrongForm as error:
            raise ValueError(f"This question cannot be read: {error}, as this page writes it.") from error
        known = {each.name for each in fields(cls)}
        frozen = {name: _frozen(value) for name, value in data.items() if name in known}
        try:
            return cls(**{**frozen, "search": Search.from_json(data["search"]) if "search" in data else Search()})
        except (KeyError, TypeError) as wrong:
            raise ValueError(f"This question cannot be read: its search is {data['search']}.") from wrong

    def problem(self) -> Problem:
        return operators.problem(self.operator, dict(self.shape), dtype=self.dtype, world=self.world)

    def link(self) -> Fabric:
        return parse(self.fabric)

    def axes(self, machine: Machine) -> tuple[Axis, ...]:
        """The axes of the form's scheme with their legal values."""
        return self.axes_of(self.scheme, machine)

    def axes_of(self, scheme: str, machine: Machine) -> tuple[Axis, ...]:
        """The axes of *scheme* with their legal values."""
        return axes(self.problem(), scheme, machine, self.link())

    def values_of(self, scheme: str) -> dict[str, Value]:
        return dict(dict(self.values).get(scheme, ()))

    def ignored_axes(self, scheme: str, machine: Machine) -> Container[str]:
        """Axes of *scheme* that the kernel ignores with these values; their settings are kept for when they matter
        again."""
        settings = self.values_of(scheme)
        values = {axis.name: axis.default for axis in self.axes_of(scheme, machine)}
        order = {axis_rules.TILE_ORDER: settings[axis_rules.TILE_ORDER]} if axis_rules.TILE_ORDER in settings else {}
        values |= SCHEMES[scheme].dependent_defaults(self.problem(), machine, self.link(), order)
        return axis_rules.ignored_axes(self.problem(), scheme, values | settings, machine.backend)

    def schedule(self, machine: Machine) -> Schedule:
        ignored = self.ignored_axes(self.scheme, machine)
        values = {name: value for name, value in self.values_of(self.scheme).items() if name not in ignored}
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

    def no_estimate(self, machine: Machine) -> str | None:
        """Why its link or its protocol has no estimate on *machine*, or None; Refusal where the schedule is illegal."""
        message, trial = no_estimate(self.link()), self.trial(machine)
        if message is not None or not trial.protocol.is_steady:
            return message
        try:
            predict(trial, machine, with_spans=False)
        except Refusal as refused:
            return str(refused)
        return None

    def schemes(self) -> tuple[str, ...]:
        """The schemes that Run tries: that of the form, or all that are compared."""
        return self.compared if SCHEME in self.swept else (self.scheme,)

    def swept_values(self, machine: Machine) -> dict[str, tuple[Value, ...]]:
        """Every axis that Run sweeps with its values: those of the form's scheme first, numbers before names.

        Axes of a single value are not swept, nor are axes that none of the schemes has.
        """
        lists: dict[str, tuple[Value, ...]] = {}
        for scheme in sorted(self.schemes(), key=lambda name: name != self.scheme):
            known = [axis for axis in self.axes_swept(scheme, machine) if len(axis.values) > 1]
            for axis in sorted(known, key=lambda axis: not isinstance(axis.default, int)):
                lists.setdefault(axis.name, axis.values)
        return lists

    def axes_swept(self, scheme: str, machine: Machine) -> list[Axis]:
        """The swept axes of *scheme* without ignored ones; none counts as ignored where all tile orders are swept."""
        ignored = () if axis_rules.TILE_ORDER in self.swept else self.ignored_axes(scheme, machine)
        return [axis for axis in self.axes_of(scheme, machine) if axis.name in self.swept and axis.name not in ignored]

    def experiment(self, machine: Machine) -> Experiment:
        """The experiment of the one trial, or of the sweep over `swept`; without a sweep, one block times all
        schedules."""
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
            search=Search() if few else self.search,
        )

    def choice(self, scheme: str, machine: Machine) -> Choice:
        """The values of *scheme* to try, its axes in order."""
        ignored = () if axis_rules.TILE_ORDER in self.swept else self.ignored_axes(scheme, machine)
        values = {name: (value,) for name, value in self.values_of(scheme).items() if name not in ignored}
        swept = {axis.name: (EVERY,) for axis in self.axes_swept(scheme, machine)}
        values |= swept
        names = [axis.name for axis in self.axes_of(scheme, machine) if axis.name in values]
        return Choice(scheme, tuple((name, values[name]) for name in names))
