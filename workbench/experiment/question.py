"""Requests, as typed on a command line or written in a TOML file, and the Experiments that they make."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from shlex import quote
from typing import Any

from kernels import fabric as fabrics
from kernels import files, operators
from kernels.backends.capabilities import MeasuringRanks, dtypes, fitting
from kernels.fabric import Fabric
from kernels.hardware import source_print
from kernels.machine import BACKENDS, Machine
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule
from kernels.schemes import BASELINE, COMPARED, auto, axes, run_by, scheme
from kernels.schemes import schedule as schedule_of
from kernels.trial import protocol
from kernels.units import DTYPE_BYTES
from workbench import machines, resources
from workbench.experiment.experiment import PARTS, Experiment, Search
from workbench.experiment.fields import RequestFields
from workbench.experiment.space import EVERY, Space, axis_of_other_backend, choices
from workbench.machines import matching, presets
from workbench.naming import operator_title
from workbench.results.comparison import MAX_BLOCK_SCHEDULES
from workbench.results.rows import Row, current_problem_and_schedule, link_of

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

    def chosen(self) -> tuple[Request, str]:
        """This request with the schedule that `auto` names, and a sentence about it; as it is where it does not ask."""
        if auto.AUTO not in self.schemes:
            return self, ""
        if len(self.schemes) > 1:
            raise Refusal(
                f"--scheme {auto.AUTO} names 1 schedule, and {len(self.schemes) - 1} more schemes stand beside it. "
                f"Accepted: --scheme {auto.AUTO} alone; its block has the sequential baselines anyway."
            )
        machine = self.machine_description()
        problem, fabric, table = self.problem(machine), self.link(machine), auto.shipped()
        offered = [name for name in auto.CANDIDATES if self._runs(name, problem, machine, fabric)]
        choice = auto.choose(problem, machine.device.name, table, offered, source_print("triton"))
        candidate, axes_of = auto.CANDIDATES[choice.name], auto.candidate_axes(choice.name, problem.operator)
        typed = {name for name, _ in self.settings}
        settings = tuple((name, (str(value),)) for name, value in axes_of.items() if name not in typed)
        chosen = replace(self, schemes=(candidate.scheme,), settings=(*self.settings, *settings))
        return chosen, f"{auto.AUTO} takes {choice.name}, by the table of {table.made}: {choice.reason}"

    @staticmethod
    def _runs(name: str, problem: Problem, machine: Machine, fabric: Fabric) -> bool:
        """Whether the ranks of *machine* run candidate *name*."""
        made = auto.legal_schedule(name, problem, machine, fabric)
        return made is not None and MeasuringRanks(machine, fabric).refusal(problem, made) is None

    def measured(self) -> Request:
        """This request with schemes that the backend's ranks run for its operator, if it names none."""
        if self.schemes:
            return self
        machine = self.machine_description()
        problem, ranks = self.problem(machine), MeasuringRanks(machine, self.link(machine))
        offered = [name for name in COMPARED if name in run_by(machine.backend)]
        fits = [name for name in offered if _fits(problem, name, ranks)]
        return replace(self, schemes=tuple(fits or offered))

    def link(self, machine: Machine) -> Fabric:
        """The fabric: the requested one, the preset's, or the backend's default; Refusal where the ranks do not have
        it."""
        of_preset = (
            presets.preset_named(self.preset).fabric if self.preset is not None and machine.backend == "cpu" else None
        )
        world, most = self.problem(machine).world, machine.ranks_per_host
        if self.share_gpu and self.fabric not in (None, fabrics.SHARED_GPU):
            raise Refusal(
                f"--share-gpu states the fabric, and --fabric {self.fabric} states it again. Accepted: --share-gpu or "
                "--fabric."
            )
        if self.share_gpu:
            return _checked(fabrics.parse(fabrics.SHARED_GPU), machine, world)
        if self.fabric is None and machine.backend == "triton" and not machine.has_network and world > most:
            raise Refusal(
                f"world = {world} is more than machine {machine.name} has: {world} > {most} ranks. Accepted: --world "
                f"1..{most}, or a machine of more ranks, which `workbench machines` lists."
            )
        return _checked(fabrics.parse(self.fabric or of_preset or fabrics.usual(machine, world)), machine, world)

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


def _checked(fabric: Fabric, machine: Machine, world: int) -> Fabric:
    """*fabric*; Refusal where it cannot link *world* ranks of *machine*."""
    if (message := fabrics.refusal(fabric, machine, world)) is not None:
        raise Refusal(message)
    return fabric


def _pairs(pairs: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs)


def command(experiment: Mapping[str, Any], *, short: bool = False) -> str:
    """The command that measures the same as *experiment* (its JSON) again; empty where no single command does.

    `--set` holds for all schemes: a command is written where schemes with the same axis have the same values of it.
    *short*: without options at their default.
    """
    problems, space = list(experiment.get("problems") or ()), list(experiment.get("space") or ())
    values: dict[str, list[Any]] = {}
    for choice in space:
        for name, wanted in choice["values"].items():
            if values.setdefault(name, list(wanted)) != list(wanted):
                return ""
    fabric = Fabric.from_json(experiment["fabric"]) if experiment.get("fabric") else None
    if (experiment.get("search") or {}).get("kind", "exhaustive") != "exhaustive":
        return ""  # a part of the space
    if len(problems) != 1 or not space or fabric is None or fabrics.parse(str(fabric)) != fabric:
        return ""
    problem = problems[0]
    options = {
        "shape": _settings(problem["shape"]), "dtype": [problem["dtype"]], "world": [problem["world"]],
        "machine": [experiment["machine"]], "fabric": [fabric], "protocol": [experiment["protocol"]["name"]],
        "scheme": [choice["scheme"] for choice in space],
        "set": [f"{name}={value}" for name, wanted in values.items() for value in wanted],
    }  # fmt: skip
    usual = _usual(problem, experiment["machine"], fabric) if short else {}
    written = [f"--{name} {quote(str(value))}" for name, each in options.items() if usual.get(name) != each
               for value in each]  # fmt: skip
    again = ["--fresh"] * (not short or bool(experiment.get("fresh")))
    return " ".join(["workbench run", problem["operator"], *written, *again])


def _usual(problem: Mapping[str, Any], machine: str, fabric: Fabric) -> dict[str, list[Any]]:
    """The options that a request for *problem* on *machine* has by default, *fabric* among them where it is usual."""
    place = machines.machine(machine)
    is_usual = fabrics.parse(fabrics.usual(place, problem["world"])) == fabric
    return {"dtype": [dtypes(place.backend, problem["operator"])[0]], "world": [WORLD], "protocol": ["default"],
            **({"fabric": [fabric]} if is_usual else {})}  # fmt: skip


COMMANDS_MOST = 8
"""The most problems of an experiment that commands are written for."""


def commands(experiment: Mapping[str, Any]) -> list[str]:
    """The commands that measure *experiment* (its JSON) again, one for each problem; none where there is one without,
    or too many."""
    problems = list(experiment.get("problems") or ())
    each = [command({**experiment, "problems": [problem]}) for problem in problems[: COMMANDS_MOST + 1]]
    return each if all(each) and len(each) <= COMMANDS_MOST else []


def together(rows: Sequence[Row]) -> Experiment | None:
    """The experiment that times the schedules of *rows* in turns, in one block; they are of one problem.

    None where no command asks for them: they are of a machine that is not known here, or their values make more
    schedules than a block holds.
    """
    try:
        pairs = list(map(current_problem_and_schedule, rows))
        request = _request_for(rows[0], [schedule for _, schedule in pairs])
        experiment = request.experiment(fresh=True, together=True)
        points = experiment.points(pairs[0][0], request.machine_description(), measured=True)
    except Refusal:
        return None
    wanted, made = {schedule for _, schedule in pairs}, set(points.schedules)
    overlapping = [schedule for schedule in made if schedule.scheme != BASELINE]
    fits = wanted <= made and not points.refused and len(overlapping) <= MAX_BLOCK_SCHEDULES
    return experiment if fits else None


def _request_for(row: Row, schedules: Sequence[Schedule]) -> Request:
    """The request for *schedules* on the problem of *row*; axes at their default are not named."""
    schemes = tuple(dict.fromkeys(schedule.scheme for schedule in schedules))
    request = Request(
        operator=row["operator"], shape=tuple((name, str(size)) for name, size in row["shape"].items()),
        dtype=row["dtype"], world=row["world"], machine=row["machine"], fabric=link_of(row["fabric"]),
        protocol=row["protocol"], schemes=schemes,
    )  # fmt: skip
    machine = request.machine_description()
    problem, fabric = request.problem(machine), request.link(machine)
    defaults = {name: {axis.name: axis.default for axis in axes(problem, name, machine, fabric)} for name in schemes}
    values: dict[str, dict[str, None]] = {}
    unusual: set[str] = set()
    for schedule in schedules:
        for name, value in schedule.axes:
            values.setdefault(name, {})[str(value)] = None
            if value != defaults[schedule.scheme].get(name):
                unusual.add(name)
    for each in schedules:  # an axis may have another default where others are named
        named = {name: value for name, value in each.axes if name in unusual}
        with suppress(Refusal):
            made = schedule_of(problem, each.scheme, named, machine, fabric)
            unusual |= {name for name, value in each.axes if made.get(name) != value}
    settings = tuple((name, tuple(each)) for name, each in values.items() if name in unusual)
    return replace(request, settings=settings)


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
    world = [2, 4]                    search = {kind = "estimate_first", budget_s = 60}
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


def space_text(experiment: Mapping[str, Any]) -> str:
    """*experiment* (its JSON) as a TOML file that `load` reads; empty for a replay, and where its problems are not all
    combinations of lists."""
    problems, space = list(experiment.get("problems") or ()), list(experiment.get("space") or ())
    if not problems or not space or not experiment.get("fabric"):
        return ""
    lists = {key: _distinct(problem[key] for problem in problems) for key in ("operator", "dtype", "world")}
    sizes = {key: _distinct(problem["shape"].get(key) for problem in problems) for key in problems[0]["shape"]}
    if prod(map(len, (lists | sizes).values())) != len(problems):
        return ""
    search = {key: value for key, value in (experiment.get("search") or {}).items() if value is not None}
    fabric = str(Fabric.from_json(experiment["fabric"]).as_requested)
    head = {"title": experiment.get("title") or "", **lists, "machine": experiment["machine"], "fabric": fabric,
            "protocol": experiment["protocol"]["name"], "parts": experiment["parts"]}  # fmt: skip
    lines = [*(f"{key} = {_toml(value)}" for key, value in head.items()), f"search = {_inline(search)}", "", "[shape]",
             *(f"{key} = {_toml(value)}" for key, value in sizes.items())]  # fmt: skip
    for choice in space:
        lines += ["", f"[scheme.{choice['scheme']}]", *(f"{name} = {_toml(list(values))}"
                                                         for name, values in choice["values"].items())]  # fmt: skip
    return "\n".join(lines) + "\n"


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _toml(value: Any) -> str:
    """A text, a number or a list of them as TOML; a list of one is its value."""
    if isinstance(value, list):
        return _toml(value[0]) if len(value) == 1 else f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _inline(table: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{key} = {_toml(value)}' for key, value in table.items())}}}"


def _fits(problem: Problem, name: str, ranks: MeasuringRanks) -> bool:
    """Whether *ranks* run some schedule of scheme *name*."""
    with suppress(Refusal):
        return bool(fitting(problem, name, ranks))
    return False


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
    accepted = ("kind", "count", "seed", "budget_s")
    if not isinstance(fields, Mapping) or (unknown := [key for key in fields if key not in accepted]):
        unfit = unknown[0] if isinstance(fields, Mapping) else entry
        raise ValueError(f"{where}: search = {unfit!r}. Write search = \"exhaustive\", or search = {{kind = "
                         f"\"estimate_first\", count = 20, budget_s = 60}}.")  # fmt: skip
    for name, kinds, words in (("count", int, "a whole number"), ("seed", int, "a whole number"),
                               ("budget_s", int | float, "seconds")):  # fmt: skip
        if not isinstance(value := fields.get(name, 1), kinds) or isinstance(value, bool):
            raise ValueError(f"{where}: search.{name} = {value!r} does not fit. Accepted: {words}.")
    return Search.from_json(fields)


def _one_of(value: Any, accepted: Sequence[str], what: str) -> str:
    if value not in accepted:
        raise ValueError(f"{what} = {value!r} is unknown. Accepted: {', '.join(accepted)}.")
    return str(value)
