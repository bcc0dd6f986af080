"""What a backend can run: why it refuses a trial, and which schedules its ranks can measure. No torch is needed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

from kernels.backends.cpu import refusals as cpu_refusals
from kernels.backends.triton import refusals as triton_refusals
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule, Value
from kernels.schemes import BASELINE, axes, axis_rules, schedule
from kernels.schemes import refusal as schemes_refusal
from kernels.trial import PROTOCOLS, Trial

# Why a backend refuses a trial.

_REFUSES = {"cpu": cpu_refusals.refusal, "triton": triton_refusals.refusal}


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why the trial's backend cannot run it, or None.

    If a message begins with the name of an axis, another value of that axis would be accepted. The message is then
    about that axis alone, whatever the others are, or about a scheme that has only one schedule.
    """
    ignored_axis = axis_rules.refusal(trial.problem, trial.schedule, trial.backend)
    return _REFUSES[trial.backend](trial, shares_heap) or ignored_axis


def dtypes(backend: str, operator: str) -> tuple[str, ...]:
    """The dtypes that the kernels of *backend* know for *operator*, the usual one first."""
    work = OPERATORS[operator].work
    return cpu_refusals.DTYPES if backend == "cpu" else triton_refusals.DTYPES[work]


# Which schedules the ranks can measure.


@dataclass(frozen=True, slots=True)
class MeasuringRanks:
    """The ranks on which trials would be measured: ranks of a machine, on one host if they share a heap."""

    machine: Machine
    fabric: Fabric
    shares_heap: bool = True

    def refusal(self, problem: Problem, schedule: Schedule) -> str | None:
        """Why their backend cannot run the legal *schedule*, or None."""
        return refusal(self.trial(problem, schedule), self.shares_heap)

    def trial(self, problem: Problem, schedule: Schedule) -> Trial:
        """A trial of *schedule*; its protocol does not matter here."""
        return Trial(problem=problem, schedule=schedule, backend=self.machine.backend, machine=self.machine.name,
                     fabric=self.fabric, protocol=PROTOCOLS["default"])  # fmt: skip


def fitting(problem: Problem, scheme: str, ranks: MeasuringRanks) -> Schedule:
    """The scheme's usual schedule, or the nearest one that the ranks can run; Refusal if there is none.

    A backend's refusal begins with what it is about. Where that is an axis, its other values are tried, and so on until
    nothing is refused.
    """
    machine, fabric = ranks.machine, ranks.fabric
    usual = schedule(problem, scheme, {}, machine, fabric)
    reason = ranks.refusal(problem, usual)
    if reason is None:
        return usual
    known = {axis.name: axis for axis in axes(problem, scheme, machine, fabric)}
    candidate, tried = usual, set[str]()
    while reason is not None:
        name = reason.partition(" ")[0]
        if name not in known or name in tried:
            raise Refusal(reason)
        tried.add(name)
        answers = {
            value: ranks.refusal(problem, _with(ranks, problem, candidate, name, value)) for value in known[name].values
        }
        other = next((value for value, answer in answers.items() if not _is_about(answer, name)), None)
        if other is None:
            raise Refusal(reason)
        candidate, reason = _with(ranks, problem, candidate, name, other), answers[other]
    if schemes_refusal(problem, candidate, machine, fabric) is not None:
        raise Refusal(str(ranks.refusal(problem, usual)))
    return candidate


def complete(problem: Problem, scheme: str, values: Mapping[str, Value], ranks: MeasuringRanks) -> Schedule:
    """The legal schedule with *values* that *ranks* can run; Refusal says why there is none.

    Axes without a value take their default, or the value that the ranks run.
    """
    usual = schedule(problem, scheme, values, ranks.machine, ranks.fabric)
    if (reason := ranks.refusal(problem, usual)) is None:
        return usual
    fitting_values = {**dict(fitting(problem, scheme, ranks).axes), **values}
    other = schedule(problem, scheme, fitting_values, ranks.machine, ranks.fabric)
    if ranks.refusal(problem, other) is not None:
        raise Refusal(reason)
    return other


def baselines(problem: Problem, tile: Value, ranks: MeasuringRanks) -> tuple[Schedule, ...]:
    """Every sequential schedule with *tile* that *ranks* run: each collective with each kernel that can compute."""
    known = {axis.name: axis.values for axis in axes(problem, BASELINE, ranks.machine, ranks.fabric)}
    lists = {name: values for name, values in known.items() if name != "tile"}
    schedules: dict[Schedule, None] = {}
    for values in product(*lists.values()):
        by_axis = {"tile": tile, **dict(zip(lists, values, strict=True))}
        with suppress(Refusal):
            candidate = schedule(problem, BASELINE, by_axis, ranks.machine, ranks.fabric)
            if ranks.refusal(problem, candidate) is None:
                schedules[candidate] = None
    return tuple(schedules)


def run_values(
    problem: Problem, scheme: str, lists: Mapping[str, tuple[Value, ...]], ranks: MeasuringRanks
) -> dict[str, tuple[Value, ...]]:
    """*lists* of values by axis, without the values that *ranks* refuse; empty where they run no such schedule."""
    try:
        usual = fitting(problem, scheme, ranks)
    except Refusal:
        return dict.fromkeys(lists, ())

    known = {axis.name: axis for axis in axes(problem, scheme, ranks.machine, ranks.fabric)}

    def run(name: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(
            each for each in values
            if known[name].refusal(each)  # illegal by itself: a schedule with it is refused with that reason
            or ranks.refusal(problem, _with(ranks, problem, usual, name, each)) is None
        )  # fmt: skip

    return {name: run(name, values) for name, values in lists.items()}


def refused_values(problem: Problem, usual: Schedule, axis: Axis, ranks: MeasuringRanks) -> dict[Value, str]:
    """The values of *axis* that *ranks* do not run in *usual*, a schedule that they run, each with the reason."""
    reasons = {value: ranks.refusal(problem, _with(ranks, problem, usual, axis.name, value)) for value in axis.values}
    return {value: reason for value, reason in reasons.items() if reason is not None}


def runs(problem: Problem, schemes: tuple[str, ...], ranks: MeasuringRanks) -> tuple[str, ...]:
    """Those of *schemes* whose usual schedule *ranks* run; all of them where they run none, to report the reason."""
    names = []
    for name in schemes:
        try:
            usual = schedule(problem, name, {}, ranks.machine, ranks.fabric)
        except Refusal:
            continue
        names += [name] if ranks.refusal(problem, usual) is None else []
    return tuple(names) or schemes


def _is_about(reason: str | None, name: str) -> bool:
    return reason is not None and reason.partition(" ")[0] == name


def _with(ranks: MeasuringRanks, problem: Problem, usual: Schedule, name: str, value: Value) -> Schedule:
    """*usual* with another value of one axis, if it has that axis, and without the axes that then change nothing."""
    changed = {name: value} if usual.get(name) is not None else {}
    other = Schedule(usual.scheme, tuple({**dict(usual.axes), **changed}.items()))
    return axis_rules.effective(problem, other, ranks.machine.backend)
