"""An Experiment is what a person wants to know: problems, schedules to try on them, and how they are timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kernels.axes import Value
from kernels.backends.offers import Runner, baselines
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.protocol import PROTOCOLS, Protocol
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, schedule
from kernels.trial import Trial
from workbench.blocks import PARTS, Beside, beside
from workbench.search import Search
from workbench.space import Points, Space, points

RESOLVING = Protocol(name="resolve", warmups=3, repeats=10)
"""How the computation is timed that a relative link is resolved with: apart from every run's own comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Problems x space, searched, under one protocol."""

    problems: tuple[Problem, ...]
    space: Space
    backend: str
    machine: str
    """Name of the machine that it runs on or is simulated for."""
    fabric: Fabric
    search: Search = field(default_factory=Search)
    protocol: Protocol = field(default_factory=lambda: PROTOCOLS["default"])
    title: str = ""
    parts: str = "baseline"
    """What stands beside the schedules of a block: one of workbench.blocks.PARTS."""
    together: bool = False
    """Blocks as large as they may be, however long they take; all of it is known, or all of it is measured."""
    fresh: bool = False
    """Measure again what is known."""

    def __post_init__(self) -> None:
        assert self.parts in PARTS, self.parts

    def to_json(self) -> dict[str, Any]:
        return {
            "problems": [problem.to_json() for problem in self.problems], "space": self.space.to_json(),
            "backend": self.backend, "machine": self.machine, "fabric": self.fabric.to_json(),
            "search": self.search.to_json(), "protocol": self.protocol.to_json(), "title": self.title,
            "parts": self.parts, "together": self.together, "fresh": self.fresh,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Experiment:
        return cls(
            problems=tuple(map(Problem.from_json, data["problems"])), space=Space.from_json(data["space"]),
            backend=data["backend"], machine=data["machine"], fabric=Fabric.from_json(data["fabric"]),
            search=Search.from_json(data["search"]), protocol=Protocol.from_json(data["protocol"]),
            title=data["title"], parts=data["parts"], together=data["together"], fresh=data["fresh"],
        )  # fmt: skip

    def trial(self, problem: Problem, schedule: Schedule, fabric: Fabric, part: str = "whole") -> Trial:
        return Trial(problem=problem, schedule=schedule, backend=self.backend, machine=self.machine, fabric=fabric,
                     protocol=self.protocol, part=part)  # fmt: skip

    def points(self, problem: Problem, machine: Machine, *, measured: bool = False) -> Points:
        """The legal schedules on *problem*; the bandwidth of its fabric does not matter for that.

        Where they are to be *measured*, those that the backend runs.
        """
        return points(self.space, problem, machine, self.fabric, self.ranks(machine) if measured else None)

    def ranks(self, machine: Machine) -> Runner:
        """Who would measure it."""
        return Runner(machine, self.fabric)

    def baseline(self, problem: Problem, fabric: Fabric, machine: Machine) -> Trial:
        """The sequential schedule, everything at its default."""
        return self.trial(problem, schedule(problem, BASELINE, {}, machine, fabric), fabric)

    def beside(self, problem: Problem, schedules: Sequence[Schedule], fabric: Fabric, machine: Machine) -> Beside:
        """What *schedules* are compared with."""
        return self.beside_tiles(problem, [one["tile"] for one in schedules], fabric, machine)

    def beside_tiles(self, problem: Problem, tiles: Iterable[Value], fabric: Fabric, machine: Machine) -> Beside:
        """The same of schedules with *tiles*. GPU ranks of several have several baselines; CPU ranks have one."""
        several = machine.backend == "triton" and problem.world > 1
        legal = partial(baselines, problem, ranks=self.ranks(machine)) if several else None
        return beside(self.baseline(problem, fabric, machine), tiles, self.parts, machine, legal)
