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
from workbench.experiment import Experiment
from workbench.naming import operator_title
from workbench.space import Space, choices

WORLD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Nothing in it is checked yet; None stands for what was not stated."""

    operator: str
    preset: str | None = None
    shape: tuple[tuple[str, str], ...] = ()
    dtype: str | None = None
    world: int | None = None
    schemes: tuple[str, ...] = ()
    settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Axis name and the values wanted; each goes to every scheme that has the axis."""
    backend: str | None = None
    machine: str | None = None
    fabric: str | None = None
    protocol: str = "default"

    def machine_description(self) -> Machine:
        """The machine, by default the one of CPU ranks or of this host's GPUs; Refusal where it has another backend."""
        if self.backend not in (None, *BACKENDS):
            raise Refusal(f"There is no backend {self.backend!r}. Accepted: {', '.join(BACKENDS)}.")
        if self.machine is None and self.backend == "triton":
            return place.of_gpus()
        found = machines.machine(self.machine or machines.LAPTOP)
        if self.backend not in (None, found.backend):
            raise Refusal(
                f"backend = {self.backend} does not run on machine {found.name}, whose backend is {found.backend}. "
                f"Accepted: backend = {found.backend}, or another machine."
            )
        return found

    def problem(self, machine: Machine) -> Problem:
        """The checked problem: a preset's, or the one of the shape."""
        if self.preset is not None:
            if self.shape:
                raise Refusal(
                    f"preset = {self.preset} and shape {_pairs(self.shape)} both state the sizes: 2 > 1. Accepted: "
                    "one of them."
                )
            operators.operator(self.operator)
            return presets.preset(self.preset, self.operator, world=self.world, dtype=self.dtype)[0]
        usual = dtypes(machine.backend, operators.operator(self.operator).name)[0]
        return operators.problem(self.operator, dict(self.shape), dtype=self.dtype or usual,
                                 world=WORLD if self.world is None else self.world)  # fmt: skip

    def measured(self) -> Request:
        """The same; where no scheme is stated, those that the backend's ranks can run."""
        return replace(self, schemes=self.schemes or run_by(self.machine_description().backend))

    def link(self, machine: Machine) -> Fabric:
        """The fabric: as stated, as the preset is meant, or the backend's usual one; Refusal where ranks have none."""
        meant = presets.named(self.preset).fabric if self.preset is not None and machine.backend == "cpu" else None
        world = self.problem(machine).world
        found = fabrics.parse(self.fabric or meant or fabrics.usual(machine, world))
        if (sentence := fabrics.refusal(found, machine, world)) is not None:
            raise Refusal(sentence)
        return found

    def space(self, problem: Problem, machine: Machine, fabric: Fabric) -> Space:
        """The schemes asked for with the axis values asked for."""
        wanted = self.schemes or COMPARED
        known: dict[str, Sequence[Axis]] = {
            name: axes(problem, scheme(name).name, machine, fabric) for name in wanted
        }  # fmt: skip
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


def pairs(texts: Sequence[str], option: str) -> tuple[tuple[str, str], ...]:
    """`name=value` texts of one option of the command line."""
    split = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, sign, value) in zip(texts, split, strict=True) if not (name and sign and value)]:
        raise Refusal(
            f"{option} {wrong[0]!r} does not have the form name=value. Accepted: values such as {option} m=1024."
        )
    return tuple((name.strip(), value.strip()) for name, _, value in split)
