"""A Space is schemes with lists of axis values; on a problem and a machine it becomes legal schedules, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from kernels.axes import Axis, Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axes, schedule

EVERY = "all"
"""Stands for all values that an axis offers on the problem at hand."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One scheme and the values wanted of some of its axes; the other axes keep their default."""

    scheme: str
    values: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    """Axis name and its values, in the order in which they are to be tried; EVERY stands for all."""

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "values": {name: list(wanted) for name, wanted in self.values}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Choice:
        return cls(data["scheme"], tuple((name, tuple(wanted)) for name, wanted in data["values"].items()))


@dataclass(frozen=True, slots=True)
class Space:
    """What is to be tried on every problem."""

    choices: tuple[Choice, ...]

    def to_json(self) -> list[dict[str, Any]]:
        return [choice.to_json() for choice in self.choices]

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]]) -> Space:
        return cls(tuple(map(Choice.from_json, data)))


@dataclass(frozen=True, slots=True)
class Points:
    """A Space on one problem: schedules choice by choice, the last axis varying fastest, and what was refused."""

    schedules: tuple[Schedule, ...]
    refused: tuple[tuple[Schedule, str], ...]
    """What was asked, axes at their default left out, and the sentence that says why not."""


def points(space: Space, problem: Problem, machine: Machine, fabric: Fabric) -> Points:
    """The legal schedules of *space*. Refusal where a scheme or an axis is unknown: no point could be meant by it."""
    legal: dict[Schedule, None] = {}
    refused: dict[Schedule, str] = {}
    for choice in space.choices:
        for asked in _asked(choice, axes(problem, choice.scheme, machine, fabric)):
            try:
                legal[schedule(problem, choice.scheme, dict(asked.axes), machine, fabric)] = None
            except Refusal as refusal:
                refused[asked] = str(refusal)
    return Points(tuple(legal), tuple(refused.items()))


def _asked(choice: Choice, known: Sequence[Axis]) -> Iterator[Schedule]:
    by_name = {axis.name: axis for axis in known}
    names = [name for name, _ in choice.values]
    if unknown := [name for name in names if name not in by_name]:
        raise Refusal(
            f"axis {unknown[0]!r} was asked for, which {choice.scheme} does not have. Accepted: {', '.join(by_name)}."
        )
    lists = [by_name[name].values if EVERY in wanted else wanted for name, wanted in choice.values]
    for values in product(*lists):
        yield Schedule(choice.scheme, tuple(zip(names, values, strict=True)))


def choices(
    schemes: Sequence[str], settings: Mapping[str, Sequence[str]], known: Mapping[str, Sequence[Axis]]
) -> Space:
    """A Space from words: each setting goes to every one of *schemes* that has its axis.

    *known* are the axes by scheme. Refusal where none of the schemes has an axis.
    """
    offered = list(dict.fromkeys(axis.name for name in schemes for axis in known[name]))
    if unknown := [name for name in settings if name not in offered]:
        raise Refusal(
            f"axis {unknown[0]!r} was asked for, which is an axis of none of {', '.join(schemes)}. "
            f"Accepted: {', '.join(offered)}."
        )
    return Space(tuple(_choice(scheme, settings, known[scheme]) for scheme in schemes))


def _choice(scheme: str, settings: Mapping[str, Sequence[str]], known: Sequence[Axis]) -> Choice:
    by_name = {axis.name: axis for axis in known}
    wanted = {name: tuple(by_name[name].parse(text) for text in texts) for name, texts in settings.items()
              if name in by_name}  # fmt: skip
    return Choice(scheme, tuple(wanted.items()))
