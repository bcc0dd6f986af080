"""Requests, as typed on a command line or written in a TOML file, and the Experiments that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from kernels import fabric as fabrics
from kernels import files, operators
from kernels.backends.capabilities import dtypes
from kernels.fabric import Fabric
from kernels.machine import BACKENDS, Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal
from kernels.schemes import COMPARED, axes, run_by, scheme
from kernels.trial import protocol
from kernels.units import DTYPE_BYTES
from workbench import machines, resources
from workbench.experiment.experiment import PARTS, Experiment, Search
from workbench.experiment.fields import RequestFields
from workbench.experiment.space import EVERY, Space, axis_of_other_backend, choices
from workbench.machines import matching, presets
from workbench.naming import operator_title

# Requests of a command line.

WORLD = 2
"""The default number of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(RequestFields):
    """A typed request; its methods check it and raise Refusal."""

    def machine_description(self) -> Machine:
        """The machine, by default that of CPU ranks or of this host's GPUs; Refusal where its backend is another
        one."""
        if self.backend not in (None, *BACKENDS):
            raise Refusal(f"There is no backend {self.backend!r}. Accepted: {', '.join(BACKENDS)}.")
        if self.machine is None and self.backend == "triton":
            return matching.machine_of_local_gpus()
        known = machines.machine(self.machine or machines.LAPTOP)
        if self.backend not in (None, known.backend):
            raise Refusal(
                f"backend = {self.backend} does not run on machine {known.name}, whose backend is {known.backend}. "
                f"Accepted: backend = {known.backend}, or another machine."
            )
        return known

    def problem(self, machine: Machine) -> Problem:
        """The checked problem, from the preset or from the shape."""
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
        """This request with schemes that the backend's ranks run, if it names none."""
        runs = run_by(self.machine_description().backend)
        return replace(self, schemes=self.schemes or tuple(name for name in COMPARED if name in runs))

    def link(self, machine: Machine) -> Fabric:
        """The fabric: the requested one, the preset's, or the backend's default; Refusal where the ranks do not have
        it."""
        of_preset = (
            presets.preset_named(self.preset).fabric if self.preset is not None and machine.backend == "cpu" else None
        )
        world, most = self.problem(machine).world, machine.ranks_per_host
        if self.fabric is None and machine.backend == "triton" and not machine.has_network and world > most:
            raise Refusal(
                f"world = {world} is more than machine {machine.name} has: {world} > {most} ranks. Accepted: --world "
                f"1..{most}, or a machine of more ranks, which `workbench machines` lists."
            )
        fabric = fabrics.parse(self.fabric or of_preset or fabrics.usual(machine, world))
        if (message := fabrics.refusal(fabric, machine, world)) is not None:
            raise Refusal(message)
        return fabric

    def space(self, problem: Problem, machine: Machine, fabric: Fabric) -> Space:
        """The requested schemes with the requested axis values."""
        wanted = self.schemes or COMPARED
        known: dict[str, Sequence[Axis]] = {
            name: axes(problem, scheme(name).name, machine, fabric) for name in wanted
        }  # fmt: skip
        offered = list(dict.fromkeys(axis.name for several in known.values() for axis in several))
        for name, _ in self.settings:
            if (
                name not in offered
                and (message := axis_of_other_backend(name, machine.backend, problem, wanted)) is not None
            ):
                raise Refusal(f"{message} Accepted: {', '.join(offered)}.")
        return choices(wanted, dict(self.settings), known)

    def experiment(self, **fields: Any) -> Experiment:
        """The Experiment of this request; *fields* are further fields of the Experiment."""
        machine = self.machine_description()
        problem, fabric = self.problem(machine), self.link(machine)
        return Experiment(
            problems=(problem,), space=self.space(problem, machine, fabric), backend=machine.backend,
            machine=machine.name, fabric=fabric, protocol=protocol(self.protocol),
            **{"title": f"{operator_title(self.operator)}: {', '.join(self.schemes or COMPARED)}", **fields},
        )  # fmt: skip


def _pairs(pairs: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs)


def command(experiment: Mapping[str, Any]) -> str:
    """The command that measures the same as *experiment* (its JSON) again; empty where no single command does.

    `--set` holds for all schemes: a command is written where schemes with the same axis have the same values of it.
    """
    problems, space = list(experiment.get("problems") or ()), list(experiment.get("space") or ())
    values: dict[str, list[Any]] = {}
    for choice in space:
        for name, wanted in choice["values"].items():
            if values.setdefault(name, list(wanted)) != list(wanted):
                return ""
    fabric = Fabric.from_json(experiment["fabric"]) if experiment.get("fabric") else None
    if len(problems) != 1 or not space or fabric is None or fabrics.parse(str(fabric)) != fabric:
        return ""
    problem = problems[0]
    options = {
        "shape": _settings(problem["shape"]), "dtype": [problem["dtype"]], "world": [problem["world"]],
        "machine": [experiment["machine"]], "fabric": [fabric], "protocol": [experiment["protocol"]["name"]],
        "scheme": [choice["scheme"] for choice in space],
        "set": [f"{name}={value}" for name, wanted in values.items() for value in wanted],
    }  # fmt: skip
    written = [f"--{name} {value}" for name, each in options.items() for value in each]
    return " ".join(["workbench run", problem["operator"], *written, "--fresh"])


def _settings(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


# Requests in a TOML file: problems, schemes with lists of axis values, and how to search them.

KIND = files.TextKind("space file", "a space", "a TOML file")
MOST_PROBLEMS = 10_000
"""The most problems of one file: a typing error makes millions."""
_KEYS = ("title", "operator", "preset", "shape", "dtype", "world", "machine", "backend", "fabric", "protocol", "search",
         "parts", "scheme")  # fmt: skip


def load(path: Path, placed: Callable[[Request], Request] = lambda request: request) -> Experiment:
    """The experiment in TOML file *path*: lists of operators, dtypes, worlds and sizes make several problems.

    *placed* adds the machine if the file names none.

    operator = "gemm_all_to_all"      preset = "..." or [shape] m = 1024, n = [1024, 2048], ...
    world = [2, 4]                    search = {kind = "estimate_first", count = 20}
    [scheme.decomposed]               one table per scheme; other axes keep their default
    pieces = [2, 4, 8]                split = "all"
    """
    try:
        return _experiment(_read(path), path, placed)
    except Refusal as refusal:
        raise Refusal(f"{path.name}: {refusal}") from None


def _experiment(data: Mapping[str, Any], path: Path, placed: Callable[[Request], Request]) -> Experiment:
    requests = _requests(data, path.name)
    machine = placed(requests[0]).machine_description()
    problems = tuple(dict.fromkeys(request.problem(machine) for request in requests))
    fabric = requests[0].link(machine)
    experiment = Experiment(
        problems=problems, space=_space(data.get("scheme", {name: {} for name in COMPARED}), path.name),
        backend=machine.backend, machine=machine.name, fabric=fabric, protocol=protocol(requests[0].protocol),
        search=_search(data.get("search", "exhaustive"), path.name), title=str(data.get("title", path.stem)),
        parts=_one_of(data.get("parts", "baseline"), PARTS, f"{path.name}: parts"),
    )  # fmt: skip
    # an unknown scheme or axis is refused before anything is measured; sizes change neither, and thousands take long
    for problem in {(one.operator, one.dtype, one.world): one for one in reversed(problems)}.values():
        experiment.points(problem, machine)
    _check_values(experiment, machine, path.name)
    return experiment


def _check_values(experiment: Experiment, machine: Machine, where: str) -> None:
    """Raises ValueError for a value that its axis takes on none of the problems, which is a typing error."""
    for choice in experiment.space.choices:
        unfit = {(name, value): "" for name, wanted in choice.values for value in wanted if value != EVERY}
        for problem in experiment.problems:
            if not unfit:  # each value fits one of the problems: usually the first
                break
            by_name = {axis.name: axis for axis in axes(problem, choice.scheme, machine, experiment.fabric)}
            refusals = {each: by_name[each[0]].refusal(each[1]) for each in unfit}
            unfit = {each: unfit[each] or message for each, message in refusals.items() if message is not None}
        if unfit:
            raise ValueError(f"{where}, scheme {choice.scheme}: {next(iter(unfit.values()))}")


def _read(path: Path) -> dict[str, Any]:
    data = resources.toml(path, KIND)
    if unknown := [key for key in data if key not in _KEYS]:
        raise ValueError(f"{path.name} has the unknown key {unknown[0]!r}. Accepted: {', '.join(_KEYS)}.")
    if "operator" not in data:
        raise ValueError(f"{path.name} has no 'operator', and every space needs one. Accepted: "
                         f"{', '.join(operators.OPERATORS)}.")  # fmt: skip
    return data


def _requests(data: Mapping[str, Any], where: str) -> list[Request]:
    """One request per problem."""
    shape = data.get("shape", {})
    if not isinstance(shape, Mapping):
        raise ValueError(
            f"{where}: shape = {shape!r} does not fit. Accepted: a table of sizes: [shape], then m = 1024."
        )
    fixed = {key: data[key] for key in ("preset", "machine", "backend", "fabric", "protocol") if key in data}
    if wrong := [key for key, value in fixed.items() if not isinstance(value, str)]:
        raise ValueError(f'{where}: {wrong[0]} = {fixed[wrong[0]]!r}, but it is one name. Write {wrong[0]} = "...".')
    lists = {key: _list(data.get(key)) for key in ("operator", "dtype", "world")}
    sizes_of = {key: _list(size) for key, size in shape.items()}
    if empty := [key for key, values in (lists | sizes_of).items() if not values]:
        raise ValueError(f"{where}: {empty[0]} = [] is an empty list. Accepted: 1 value or more.")
    if (count := prod(map(len, (lists | sizes_of).values()))) > MOST_PROBLEMS:
        long = ", ".join(key for key, values in (lists | sizes_of).items() if len(values) > 1)
        raise ValueError(f"{where} makes too many problems: {count:,} > {MOST_PROBLEMS:,}. Accepted: shorter lists of "
                         f"{long}.")  # fmt: skip
    if wrong := [each for each in lists["dtype"] if not isinstance(each, str | None)]:
        raise ValueError(f"{where}: dtype = {wrong[0]!r} does not fit. Accepted: {', '.join(DTYPE_BYTES)}.")
    requests = []
    for operator, dtype, world in product(*lists.values()):
        if world is not None and (not isinstance(world, int) or isinstance(world, bool)):
            raise ValueError(
                f"{where}: world = {world!r} does not fit. Accepted: a whole number of ranks, such as world = 2."
            )
        for sizes in product(*sizes_of.values()):
            of_problem = tuple((key, str(size)) for key, size in zip(shape, sizes, strict=True))
            requests.append(Request(operator=str(operator), dtype=dtype, world=world, shape=of_problem, **fixed))
    return requests


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _space(tables: Any, where: str) -> Space:
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise ValueError(f"{where}: schemes are tables of axes. Write [scheme.decomposed], then pieces = [2, 4, 8].")
    if not tables:
        raise ValueError(f"{where}: scheme has 0 tables. Accepted: 1 or more, such as [scheme.fused].")
    for name in tables:
        scheme(name)
    data = [{"scheme": name, "values": {axis: _list(values) for axis, values in table.items()}}
            for name, table in tables.items()]  # fmt: skip
    for entry in data:
        for axis, values in entry["values"].items():
            if not values:
                raise ValueError(f"{where}: {entry['scheme']}.{axis} = [] is an empty list. Accepted: 1 value or more.")
            if wrong := [v for v in values if not isinstance(v, int | str) or isinstance(v, bool)]:
                raise ValueError(
                    f"{where}: {entry['scheme']}.{axis} = {wrong[0]!r} does not fit. Accepted: whole numbers or words."
                )
    return Space.from_json(data)


def _search(entry: Any, where: str) -> Search:
    fields = {"kind": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, Mapping) or (unknown := [key for key in fields if key not in ("kind", "count", "seed")]):
        unfit = unknown[0] if isinstance(fields, Mapping) else entry
        raise ValueError(f"{where}: search = {unfit!r}. Write search = \"exhaustive\", or "
                         f"search = {{kind = \"estimate_first\", count = 20}}.")  # fmt: skip
    if wrong := [key for key in ("count", "seed") if not isinstance(fields.get(key, 0), int)]:
        raise ValueError(f"{where}: search.{wrong[0]} = {fields[wrong[0]]!r} does not fit. Accepted: a whole number.")
    return Search.from_json(fields)


def _one_of(value: Any, accepted: Sequence[str], what: str) -> str:
    if value not in accepted:
        raise ValueError(f"{what} = {value!r} is unknown. Accepted: {', '.join(accepted)}.")
    return str(value)
