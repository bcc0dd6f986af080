"""What is offered to be measured: the axes of a scheme with the values that the ranks' backend runs; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

from kernels.backends.cpu import refusals
from kernels.backends.triton import refusals as triton_refusals
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule, Value
from kernels.schemes import BASELINE, axes, axis_rules, schedule
from kernels.schemes import refusal as schemes_refusal
from kernels.trial import PROTOCOLS, Trial

# What a backend cannot run, asked where no rank is, and without torch.

_REFUSES = {"cpu": refusals.refusal, "triton": triton_refusals.refusal}


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why the trial's backend cannot run it, or None.

    A sentence that begins with an axis is about that axis alone, whatever the others are, or about a scheme that has
    one schedule only: another value of the axis is what would be accepted.
    """
    unread = axis_rules.refusal(trial.problem, trial.schedule, trial.backend)
    return _REFUSES[trial.backend](trial, shares_heap) or unread


def dtypes(backend: str, operator: str) -> tuple[str, ...]:
    """The dtypes that the kernels of *backend* know for *operator*, the usual one first."""
    work = OPERATORS[operator].work
    return refusals.DTYPES if backend == "cpu" else triton_refusals.DTYPES[work]


# What is offered to be measured: the axes of a scheme with the values that the ranks' backend runs; without torch.


@dataclass(frozen=True, slots=True)
class MeasuringRanks:
    """Ranks as those that would measure: of *machine*, linked by *fabric*, on one host if they share a heap."""

    machine: Machine
    fabric: Fabric
    shares_heap: bool = True

    def refusal(self, problem: Problem, asked: Schedule) -> str | None:
        """Why their backend cannot run the legal schedule *asked*, or None."""
        return refusal(self.trial(problem, asked), self.shares_heap)

    def trial(self, problem: Problem, asked: Schedule) -> Trial:
        """One of *asked*; how it is timed decides nothing here."""
        return Trial(problem=problem, schedule=asked, backend=self.machine.backend, machine=self.machine.name,
                     fabric=self.fabric, protocol=PROTOCOLS["default"])  # fmt: skip


def fitting(problem: Problem, scheme: str, ranks: MeasuringRanks) -> Schedule:
    """The scheme's usual schedule, or where the ranks refuse it the nearest that they run; Refusal where there is none.

    A backend's refusal begins with what it is about. Where that is an axis, its other values are tried, and so on until
    nothing is refused.
    """
    machine, fabric = ranks.machine, ranks.fabric
    usual = schedule(problem, scheme, {}, machine, fabric)
    sentence = ranks.refusal(problem, usual)
    if sentence is None:
        return usual
    known = {axis.name: axis for axis in axes(problem, scheme, machine, fabric)}
    asked, met = usual, set[str]()
    while sentence is not None:
        name = sentence.partition(" ")[0]
        if name not in known or name in met:
            raise Refusal(sentence)
        met.add(name)
        answers = {
            value: ranks.refusal(problem, _with(ranks, problem, asked, name, value)) for value in known[name].values
        }
        other = next((value for value, said in answers.items() if not _is_about(said, name)), None)
        if other is None:
            raise Refusal(sentence)
        asked, sentence = _with(ranks, problem, asked, name, other), answers[other]
    if schemes_refusal(problem, asked, machine, fabric) is not None:
        raise Refusal(str(ranks.refusal(problem, usual)))
    return asked


def complete(problem: Problem, scheme: str, values: Mapping[str, Value], ranks: MeasuringRanks) -> Schedule:
    """The legal schedule with *values* that *ranks* run; Refusal says why there is none.

    Axes that are not stated take their default, or the value that the ranks run.
    """
    usual = schedule(problem, scheme, values, ranks.machine, ranks.fabric)
    if (sentence := ranks.refusal(problem, usual)) is None:
        return usual
    near = {**dict(fitting(problem, scheme, ranks).axes), **values}
    other = schedule(problem, scheme, near, ranks.machine, ranks.fabric)
    if ranks.refusal(problem, other) is not None:
        raise Refusal(sentence)
    return other


def baselines(problem: Problem, tile: Value, ranks: MeasuringRanks) -> tuple[Schedule, ...]:
    """Every sequential schedule with *tile* that *ranks* run: each collective, by each who can compute."""
    known = {axis.name: axis.values for axis in axes(problem, BASELINE, ranks.machine, ranks.fabric)}
    lists = {name: values for name, values in known.items() if name != "tile"}
    made: dict[Schedule, None] = {}
    for values in product(*lists.values()):
        stated = {"tile": tile, **dict(zip(lists, values, strict=True))}
        with suppress(Refusal):
            asked = schedule(problem, BASELINE, stated, ranks.machine, ranks.fabric)
            if ranks.refusal(problem, asked) is None:
                made[asked] = None
    return tuple(made)


def run_values(
    problem: Problem, scheme: str, lists: Mapping[str, tuple[Value, ...]], ranks: MeasuringRanks
) -> dict[str, tuple[Value, ...]]:
    """*lists* of values by axis without those that *ranks* refuse; where they run nothing of the scheme, no values."""
    try:
        usual = fitting(problem, scheme, ranks)
    except Refusal:
        return dict.fromkeys(lists, ())

    known = {axis.name: axis for axis in axes(problem, scheme, ranks.machine, ranks.fabric)}

    def run(name: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(
            each for each in values
            if known[name].refusal(each)  # by itself: whoever asks for a schedule with it is told so
            or ranks.refusal(problem, _with(ranks, problem, usual, name, each)) is None
        )  # fmt: skip

    return {name: run(name, values) for name, values in lists.items()}


def refused_values(problem: Problem, usual: Schedule, axis: Axis, ranks: MeasuringRanks) -> dict[Value, str]:
    """The values of *axis* that *ranks* do not run in *usual*, a schedule that they run, each with the sentence."""
    said = {value: ranks.refusal(problem, _with(ranks, problem, usual, axis.name, value)) for value in axis.values}
    return {value: sentence for value, sentence in said.items() if sentence is not None}


def runs(problem: Problem, schemes: tuple[str, ...], ranks: MeasuringRanks) -> tuple[str, ...]:
    """Those of *schemes* whose usual schedule *ranks* run; all of them where they run none, to be told why."""
    found = []
    for name in schemes:
        try:
            usual = schedule(problem, name, {}, ranks.machine, ranks.fabric)
        except Refusal:
            continue
        found += [name] if ranks.refusal(problem, usual) is None else []
    return tuple(found) or schemes


def _is_about(sentence: str | None, name: str) -> bool:
    return sentence is not None and sentence.partition(" ")[0] == name


def _with(ranks: MeasuringRanks, problem: Problem, asked: Schedule, name: str, value: Value) -> Schedule:
    """*asked* with another value of one axis, if it has that, and without what then changes nothing."""
    changed = {name: value} if asked.get(name) is not None else {}
    other = Schedule(asked.scheme, tuple({**dict(asked.axes), **changed}.items()))
    return axis_rules.read(problem, other, ranks.machine.backend)
