"""Presets: named problems of public models with their source, one per operator, with sizes that depend on the world."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from kernels import files, operators
from kernels.fabric import parse
from kernels.operators import problem
from kernels.operators.embedding import INDEX_BYTES
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.units import bytes_text
from workbench import resources
from workbench.resources import data_directory, runs_directory

KIND = files.TextKind("file of presets", "presets", "a TOML file")

Size = int | str
"""A count, a word such as `uniform`, or a count that follows the world: `14336 / world`, `4096 * world`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetEntry:
    """One operator of a preset."""

    operator: str
    shape: Mapping[str, Size]
    note: str
    """The layer, and its simplifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Problems that belong together. Each operator occurs once, so that a preset and an operator name one problem."""

    name: str
    title: str
    source: str
    """Source of the sizes: a paper, a configuration file, a script."""
    world: int
    """Usual number of ranks; a request may have another world."""
    dtype: str
    laptop: bool
    """Whether it is small enough for CPU ranks."""
    divided: str
    """The divisor of the model's sizes, as text; empty if they were not divided."""
    fabric: str | None
    """The fabric on which it should run, as text; None: any."""
    entries: tuple[PresetEntry, ...]

    def problem(self, operator: str, *, world: int | None = None, dtype: str | None = None) -> Problem:
        """The checked problem of *operator*; Refusal if there is none, or *world* does not divide its sizes."""
        operators.operator(operator)
        for entry in self.entries:
            if entry.operator == operator:
                ranks = self.world if world is None else world
                shape = {key: _size(key, size, ranks) for key, size in entry.shape.items()}
                return problem(operator, shape, dtype=dtype or self.dtype, world=ranks)
        offered = ", ".join(entry.operator for entry in self.entries)
        others = ", ".join(each.name for each in offering(operator))
        raise Refusal(f"Preset {self.name} has no problem of {operator}. Accepted: {offered}; or a preset that has "
                      f"it: {others}.")  # fmt: skip

    def problems(self, *, world: int | None = None, dtype: str | None = None) -> tuple[Problem, ...]:
        """The problems of all its operators."""
        return tuple(self.problem(entry.operator, world=world, dtype=dtype) for entry in self.entries)


def presets() -> tuple[Preset, ...]:
    """All presets in order of their files; `workbench.resources` reports wrong files, which are ignored."""
    folders = (data_directory() / "problems", runs_directory() / "problems")
    paths = [path for folder in folders for path in sorted(folder.glob("*.toml"))]
    home: dict[str, Path] = {}

    def load(path: Path) -> tuple[Preset, ...]:
        loaded, here = _load(path, files.modified_ns(path)), {**home}
        for each in loaded:
            if each.name in here:
                raise ValueError(f"{path} has the preset {each.name!r}, but {here[each.name]} has 1 of this name "
                                 "already. Accepted: any other name.")  # fmt: skip
            here[each.name] = path
        home.update(here)
        return loaded

    return tuple(each for of_file in resources.readable(paths, load) for each in of_file)


def preset_named(name: str) -> Preset:
    """The preset called *name*; Refusal lists the names."""
    known = {each.name: each for each in presets()}
    if name not in known:
        raise Refusal(f"There is no preset {name!r}. Accepted: {', '.join(known)}.")
    return known[name]


def offering(operator: str) -> tuple[Preset, ...]:
    """The presets that have a problem of *operator*."""
    return tuple(each for each in presets() if any(entry.operator == operator for entry in each.entries))


def preset(
    name: str, operator: str | None = None, *, world: int | None = None, dtype: str | None = None
) -> tuple[Problem, ...]:
    """The checked problems of preset *name*, or the one of *operator*, for *world* ranks (its own unless stated)."""
    chosen = preset_named(name)
    if operator is None:
        return chosen.problems(world=world, dtype=dtype)
    return (chosen.problem(operator, world=world, dtype=dtype),)


@dataclass(frozen=True, slots=True)
class ProblemSizes:
    """Shapes of one problem: what one rank holds, and the whole over all ranks."""

    local: Mapping[str, tuple[int, ...]]
    whole: Mapping[str, tuple[int, ...]]
    local_bytes: int
    """Operands and result of one rank."""

    def __str__(self) -> str:
        return f"one rank: {_shapes(self.local)} ({bytes_text(self.local_bytes)}); all ranks: {_shapes(self.whole)}"


def sizes(of: Problem) -> ProblemSizes:
    """Local and global sizes of *of*."""
    operator = operators.operator(of.operator)
    local = operator.local(of)
    num_bytes = sum(prod(shape) * (INDEX_BYTES if name == "indices" else of.itemsize) for name, shape in local.items())
    return ProblemSizes(local, operator.whole(of), num_bytes)


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in shapes.items())


_BY_WORLD = re.compile(r"(\d+)\s*([*/])\s*world")


def _size(key: str, size: Size, world: int) -> Size:
    match = _BY_WORLD.fullmatch(str(size))
    if match is None or world < 1:
        return size
    count = int(match[1])
    if match[2] == "*":
        return count * world
    if count % world:
        divisors = ", ".join(str(ranks) for ranks in range(1, 129) if count % ranks == 0)
        raise Refusal(f"world = {world} does not fit: {key} is {count} / world, and {world} does not divide "
                      f"{count}. Accepted: world {divisors}.")  # fmt: skip
    return count // world


@lru_cache(maxsize=64)
def _load(path: Path, modified_ns: int) -> tuple[Preset, ...]:
    """The presets in *path*, cached by *modified_ns* too, since a file may change."""
    data = resources.toml(path, KIND)
    _check_keys(data, {"source"}, {"preset"}, path.name)
    if not isinstance(data["preset"], list):
        raise ValueError(f"{path.name}: [preset] is one table, but a file may have several. Accepted: [[preset]].")
    return tuple(_preset(entry, data.get("source"), path.name) for entry in data["preset"])


def _preset(data: Any, source: str | None, where: str) -> Preset:
    optional = {"source", "laptop", "divided", "fabric"}
    _check_keys(data, optional, {"name", "title", "world", "dtype", "problem"}, f"{where} [[preset]]")
    where = f"{where}, preset {data['name']!r}"
    text_fields = {"name": data["name"], "title": data["title"], "source": data.get("source", source)}
    if missing := [key for key, value in text_fields.items() if not (isinstance(value, str) and value)]:
        raise ValueError(f"{where}: {missing[0]} = {text_fields[missing[0]]!r} does not fit. Accepted: a text.")
    if not isinstance(data["problem"], list) or type(data["world"]) is not int:
        raise ValueError(f"{where} does not fit. Accepted: [[preset.problem]] entries and world = a whole number.")
    preset = Preset(
        **text_fields, world=data["world"], dtype=str(data["dtype"]), laptop=data.get("laptop", False) is True,
        divided=str(data.get("divided", "")), fabric=data.get("fabric"),
        entries=tuple(_entry(entry, where) for entry in data["problem"]),
    )  # fmt: skip
    _check_preset(preset, where)
    return preset


def _entry(data: Any, where: str) -> PresetEntry:
    _check_keys(data, {"note"}, {"operator", "shape"}, f"{where} [[preset.problem]]")
    if not isinstance(data["shape"], dict):
        raise ValueError(f"{where}: shape = {data['shape']!r} does not fit. Accepted: a table of sizes.")
    return PresetEntry(operator=str(data["operator"]), shape=data["shape"], note=str(data.get("note", "")))


def _check_keys(data: Any, optional: set[str], needed: set[str], where: str) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{where} holds {data!r}. Accepted: a table.")
    if unknown := sorted(set(data) - needed - optional):
        accepted = ", ".join(sorted(needed | optional))
        raise ValueError(f"{where} has the unknown key {unknown[0]!r}. Accepted: {accepted}.")
    if missing := sorted(needed - set(data)):
        raise ValueError(f"{where} has no {missing[0]!r}. It needs {', '.join(sorted(needed))}.")


def _check_preset(preset: Preset, where: str) -> None:
    names = [entry.operator for entry in preset.entries]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{where} has {names.count(twice[0])} problems of {twice[0]}, but a preset has 1 of "
                         "each operator. Accepted: two presets.")  # fmt: skip
    try:
        preset.problems()
        if preset.fabric is not None:
            parse(str(preset.fabric))
    except Refusal as refusal:
        raise ValueError(f"{where}: {refusal}") from None
