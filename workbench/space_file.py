"""A sweep as a TOML file: problems, schemes with lists of axis values, and how to search them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from kernels import operators, texts
from kernels.machine import Machine
from kernels.protocol import protocol
from kernels.schedule import Refusal
from kernels.schemes import COMPARED, axes, scheme
from kernels.units import DTYPE_BYTES
from workbench.blocks import PARTS
from workbench.experiment import Experiment
from workbench.request import Request
from workbench.search import Search
from workbench.space import EVERY, Space

KIND = texts.TextKind("space file", "a space", "a TOML file")
MOST_PROBLEMS = 10_000
"""More of them nobody waits for, and a slip makes millions."""
_KEYS = ("title", "operator", "preset", "shape", "dtype", "world", "machine", "backend", "fabric", "protocol", "search",
         "parts", "scheme")  # fmt: skip


def load(path: Path, placed: Callable[[Request], Request] = lambda request: request) -> Experiment:
    """The experiment in TOML file *path*: lists of operators, dtypes, worlds and sizes make several problems.

    *placed* states the machine where the file states none.

    operator = "gemm_all_to_all"      preset = "..." or [shape] m = 1024, n = [1024, 2048], ...
    world = [2, 4]                    search = {kind = "estimate_first", count = 20}
    [scheme.decomposed]               one table per scheme; axes not stated keep their default
    pieces = [2, 4, 8]                split = "all"
    """
    try:
        return _experiment(_read(path), path, placed)
    except Refusal as refusal:
        raise Refusal(f"{path.name}: {refusal}") from None


def _experiment(data: Mapping[str, Any], path: Path, placed: Callable[[Request], Request]) -> Experiment:
    """Refusal where what is asked cannot be."""
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
    for problem in problems:  # an unknown scheme or axis is told before anything is measured
        experiment.points(problem, machine)
    _check_values(experiment, machine, path.name)
    return experiment


def _check_values(experiment: Experiment, machine: Machine, where: str) -> None:
    """ValueError for a value that its axis takes on none of the problems: it is a slip, not a question."""
    for choice in experiment.space.choices:
        known = [{axis.name: axis for axis in axes(problem, choice.scheme, machine, experiment.fabric)}
                 for problem in experiment.problems]  # fmt: skip
        for name, value in ((name, value) for name, wanted in choice.values for value in wanted if value != EVERY):
            said = [by_name[name].refusal(value) for by_name in known]
            if said[0] is not None and None not in said:
                raise ValueError(f"{where}, scheme {choice.scheme}: {said[0]}")


def _read(path: Path) -> dict[str, Any]:
    data = texts.toml(path, KIND)
    if unknown := [key for key in data if key not in _KEYS]:
        raise ValueError(f"{path.name} has the unknown key {unknown[0]!r}. Accepted: {', '.join(_KEYS)}.")
    if "operator" not in data:
        raise ValueError(f"{path.name} has no 'operator', and every space needs one. Accepted: "
                         f"{', '.join(operators.OPERATORS)}.")  # fmt: skip
    return data


def _requests(data: Mapping[str, Any], where: str) -> list[Request]:
    """One per problem."""
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
