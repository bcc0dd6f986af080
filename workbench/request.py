"""A Request is what a person typed; it becomes an Experiment, or one sentence about what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels import fabric as fabrics
from kernels import operators
from kernels.axes import Axis
from kernels.backends.refusals import dtypes
from kernels.fabric import Fabric
from kernels.machine import BACKENDS, Machine
from kernels.problem import Problem
from kernels.protocol import protocol
from kernels.schedule import Refusal
from kernels.schemes import COMPARED, axes, run_by, scheme
from workbench import machines, place, presets
from workbench.axes_by_backend import elsewhere
from workbench.experiment import Experiment
from workbench.naming import operator_title
from workbench.space import Space, choices
from workbench.typed import Typed

WORLD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Typed):
    """What was typed, and what it means here."""

    def machine_description(self) -> Machine:
        """The machine, by default the one of CPU ranks or of this host's GPUs; Refusal where it has another backend."""
        if self.backend not in (None, *BACKENDS):
            raise Refusal(f"There is no backend {self.backend!r}. Accepted: {', '.join(BACKENDS)}.")
        if self.machine is None and self.backend == "triton":
            return place.of_gpus()
        known = machines.machine(self.machine or machines.LAPTOP)
        if self.backend not in (None, known.backend):
            raise Refusal(
                f"backend = {self.backend} does not run on machine {known.name}, whose backend is {known.backend}. "
                f"Accepted: backend = {known.backend}, or another machine."
            )
        return known

    def problem(self, machine: Machine) -> Problem:
        """The checked problem: a preset's, or the one of the shape."""
        if self.preset is not None:
            if self.shape:
                raise Refusal(
                    f"--preset {self.preset} states the sizes, and --shape {_pairs(self.shape)} states them again. "
                    "Accepted: --preset or --shape."
                )
            operators.operator(self.operator)
            return presets.preset(self.preset, self.operator, world=self.world, dtype=self.dtype)[0]
        usual = dtypes(machine.backend, operators.operator(self.operator).name)[0]
        return operators.problem(self.operator, dict(self.shape), dtype=self.dtype or usual,
                                 world=WORLD if self.world is None else self.world)  # fmt: skip

    def measured(self) -> Request:
        """The same; where no scheme is stated, those that the backend's ranks can run."""
        runs = run_by(self.machine_description().backend)
        return replace(self, schemes=self.schemes or tuple(name for name in COMPARED if name in runs))

    def link(self, machine: Machine) -> Fabric:
        """The fabric: as stated, as the preset is meant, or the backend's usual one; Refusal where ranks have none."""
        meant = presets.named(self.preset).fabric if self.preset is not None and machine.backend == "cpu" else None
        world, most = self.problem(machine).world, machine.ranks_per_host
        if self.fabric is None and machine.backend == "triton" and not machine.has_network and world > most:
            raise Refusal(
                f"world = {world} is more than machine {machine.name} has: {world} > {most} ranks. Accepted: --world "
                f"1..{most}, or a machine of more ranks, which `workbench machines` lists."
            )
        fabric = fabrics.parse(self.fabric or meant or fabrics.usual(machine, world))
        if (sentence := fabrics.refusal(fabric, machine, world)) is not None:
            raise Refusal(sentence)
        return fabric

    def space(self, problem: Problem, machine: Machine, fabric: Fabric) -> Space:
        """The schemes asked for with the axis values asked for."""
        wanted = self.schemes or COMPARED
        known: dict[str, Sequence[Axis]] = {
            name: axes(problem, scheme(name).name, machine, fabric) for name in wanted
        }  # fmt: skip
        offered = list(dict.fromkeys(axis.name for several in known.values() for axis in several))
        for name, _ in self.settings:
            if name not in offered and (sentence := elsewhere(name, machine.backend, problem, wanted)) is not None:
                raise Refusal(f"{sentence} Accepted: {', '.join(offered)}.")
        return choices(wanted, dict(self.settings), known)

    def experiment(self, **fields: Any) -> Experiment:
        """The Experiment that answers this request; *fields* are those of an Experiment that a Request has not."""
        machine = self.machine_description()
        problem, fabric = self.problem(machine), self.link(machine)
        return Experiment(
            problems=(problem,), space=self.space(problem, machine, fabric), backend=machine.backend,
            machine=machine.name, fabric=fabric, protocol=protocol(self.protocol),
            **{"title": f"{operator_title(self.operator)}: {', '.join(self.schemes or COMPARED)}", **fields},
        )  # fmt: skip


def _pairs(pairs: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs)
