"""A model of layers, read from a TOML file, and its instances: chains and repeated blocks with their dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from kernels import files
from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.units import DTYPE_BYTES
from workbench.resources import data_directory, runs_directory, toml

# A model: layers and their sizes, which may depend on the world and on groups of ranks.

KIND = files.TextKind("model file", "a model", "a TOML file with [[layer]] tables")
Size = int | str
"""A count, or an expression of the world or a group, such as `57344 / tensor` or `4096 * world`."""
ALL = "world"
"""The group of all ranks."""
SIZES: Mapping[str, tuple[str, ...]] = {
    "embedding": ("tables", "rows", "dim", "pooling"),
    "dense": ("n", "k"),
    "matmul": ("m", "n", "k", "count"),
    "memory": ("bytes",),
    **{name: ("n", "k") for name, each in OPERATORS.items() if each.work == "gemm"},
}
"""The sizes that each kind of layer needs. A GEMM operator is a kind of its own, with the sizes of its problem.

Rows (m) default to the model's samples.
"""
_OPTIONAL = ("after", "repeat", "block", "group", "weights", "m", "dtype")
_NEEDED = ("name", "title", "source", "dtype", "training", "samples", "layer")
_TOP = (*_NEEDED, "groups", "repeat", "provenance")


OPERATOR_OF: Mapping[str, str] = {
    "embedding": "embedding_all_to_all",
    **{name: name for name, each in OPERATORS.items() if each.work == "gemm"},
}
"""The operator of each kind of layer that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer, or a chain of *repeat* equal ones."""

    name: str
    kind: str
    """One of the keys of SIZES."""
    sizes: Mapping[str, Size]
    after: tuple[str, ...] | None = None
    """Layers that it waits for; None: the one before. Empty: none, so that it begins when the step begins."""
    repeat: int = 1
    block: str = ""
    """Name of its block; layers of one block are consecutive and repeated together."""
    group: str = ALL
    """Name of the group of neighbouring ranks that its collective runs over."""
    weights: Size = 1
    """Copies of its weights on one rank, such as several experts."""
    dtype: str = ""
    """Type of its operands; empty: the model's. Gradients of weights always have the model's type."""

    @property
    def is_uneven(self) -> bool:
        """Whether ranks may have unequal work, which depends on what all ranks look up in it or route to it."""
        return self.kind in OPERATOR_OF and OPERATORS[OPERATOR_OF[self.kind]].collective == "all_to_all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A training step, or one forward pass."""

    name: str
    title: str
    source: str
    dtype: str
    training: bool
    samples: Size
    """Samples of one rank in one step."""
    layers: tuple[Layer, ...]
    groups: Mapping[str, int]
    """Number of ranks in each kind of group; a smaller world is one group."""
    repeat: Mapping[str, int]
    """Repetitions of each block in the model."""
    provenance: Mapping[str, str]

    def group(self, name: str, world: int) -> int:
        """Number of ranks in group *name* if there are *world* in all."""
        return world if name == ALL else min(self.groups[name], world)

    def size(self, size: Size, what_for: str, world: int) -> int:
        """*size* as a number if there are *world* ranks; Refusal if it is not a whole number of at least 1."""
        names = {ALL: world, **{name: self.group(name, world) for name in self.groups}}
        tokens = str(size).split()
        try:
            value = float(tokens[0])
            for sign, word in zip(tokens[1::2], tokens[2::2], strict=True):
                number = names[word] if word in names else float(word)
                value = value * number if sign == "*" else value / number
        except (ValueError, KeyError, IndexError):
            raise Refusal(f"Model {self.name}: {what_for} = {size!r} is no size. Accepted: a number, or one with "
                          f"* or / and {', '.join(names)}.") from None  # fmt: skip
        fits = value >= 1 and value.is_integer()
        if len(tokens) == 1 and not fits:
            raise Refusal(f"Model {self.name}: {what_for} = {size} is no size. Accepted: a whole number from 1.")
        if not fits:
            raise Refusal(f"Model {self.name} does not fit world = {world}: {what_for} = {size} is {value:g}, and "
                          "sizes are whole numbers from 1. Accepted: a world that divides it.")  # fmt: skip
        return int(value)


def names() -> tuple[str, ...]:
    """Names of all models: those shipped, and those in the folder `models` of the runs."""
    return tuple(sorted({path.stem for folder in _folders() for path in folder.glob("*.toml")}))


def model(name: str) -> Model:
    """The model named *name*, or in the TOML file of that path; Refusal lists the names."""
    path = Path(name)
    if path.suffix == ".toml":
        return load(path)
    paths = [folder / f"{name}.toml" for folder in _folders()]
    known = next((each for each in paths if each.exists()), None)
    if known is None:
        raise Refusal(f"There is no model {name!r}. Accepted: {', '.join(names())}, or a TOML file.")
    return load(known)


def _folders() -> tuple[Path, Path]:
    return data_directory() / "models", runs_directory() / "models"


def load(path: Path) -> Model:
    """The Model in TOML file *path*; ValueError names the file, the layer and the key that is wrong."""
    data, where = toml(path, KIND), path.name
    _check_keys(data, _NEEDED, _TOP, where)
    _check_dtype(data["dtype"], where)
    if not isinstance(data["training"], bool):
        raise ValueError(f"{where}: training = {data['training']!r} does not fit. Accepted: true or false.")
    if not isinstance(data.get("provenance", {}), dict):
        raise ValueError(f"{where}: provenance = {data['provenance']!r} does not fit. Accepted: a table of sources.")
    groups, repeat = (_counts(data.get(key, {}), f"{where} [{key}]") for key in ("groups", "repeat"))
    if not isinstance(data["layer"], list) or not data["layer"]:
        raise ValueError(f"{where} has no [[layer]], and a model needs 1 or more. Accepted: {KIND.accepted}.")
    layers = tuple(_layer(entry, where) for entry in data["layer"])
    parsed = Model(
        name=str(data["name"]), title=str(data["title"]), source=str(data["source"]), dtype=data["dtype"],
        training=data["training"], samples=data["samples"], layers=layers, groups=groups, repeat=repeat,
        provenance=data.get("provenance", {}),
    )  # fmt: skip
    _check_names(parsed, where)
    return parsed


def _layer(entry: Any, where: str) -> Layer:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} [[layer]] holds {entry!r}. Accepted: a table.")
    where = f"{where}, layer {entry.get('name', '?')!r}"
    kind = str(entry.get("kind"))
    if kind not in SIZES:
        raise ValueError(f"{where}: kind = {kind!r} is unknown. Accepted: {', '.join(SIZES)}.")
    needed = ("name", "kind", *SIZES[kind])
    _check_keys(entry, needed, (*needed, *_OPTIONAL), where)
    after, repeat = entry.get("after"), entry.get("repeat", 1)
    if not (after is None or (isinstance(after, list) and all(isinstance(each, str) for each in after))):
        raise ValueError(f"{where}: after = {after!r} does not fit. Accepted: a list of names of layers.")
    if "dtype" in entry:
        _check_dtype(entry["dtype"], where)
    sizes = {key: entry[key] for key in ("m", *SIZES[kind]) if key in entry}
    return Layer(
        name=str(entry["name"]), kind=kind, sizes=sizes, after=None if after is None else tuple(after),
        repeat=_counts({"repeat": repeat}, where)["repeat"], block=str(entry.get("block", "")),
        group=str(entry.get("group", ALL)), weights=entry.get("weights", 1),
        dtype=entry.get("dtype", ""),
    )  # fmt: skip


def _check_dtype(dtype: object, where: str) -> None:
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"{where}: dtype = {dtype!r} is unknown. Accepted: {', '.join(DTYPE_BYTES)}.")


def _check_keys(data: Mapping[str, Any], needed: tuple[str, ...], accepted: tuple[str, ...], where: str) -> None:
    if missing := [key for key in needed if key not in data]:
        raise ValueError(f"{where} has no {missing[0]!r}. It needs {', '.join(needed)}.")
    if unknown := [key for key in data if key not in accepted]:
        raise ValueError(f"{where} has the unknown key {unknown[0]!r}. Accepted: {', '.join(dict.fromkeys(accepted))}.")


def _counts(table: Any, where: str) -> dict[str, int]:
    if not isinstance(table, dict):
        raise ValueError(f"{where} = {table!r} does not fit. Accepted: a table of whole numbers from 1.")
    for key, value in table.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{where}: {key} = {value!r} does not fit. Accepted: a whole number from 1.")
    return dict(table)


def _check_names(parsed: Model, where: str) -> None:
    """Check that the layers, groups and blocks which layers refer to exist; ValueError otherwise."""
    seen: list[str] = []
    for layer in parsed.layers:
        here = f"{where}, layer {layer.name!r}"
        if layer.name in seen:
            raise ValueError(f"{here} is there twice, and names are for 1 layer each. Accepted: another name.")
        for name in layer.after or ():
            if name not in seen:
                raise ValueError(f"{here} is after {name!r}, which is no layer before it. Accepted: {', '.join(seen)}.")
        for value, known, key in ((layer.group, (ALL, *parsed.groups), "group"),
                                  (layer.block, ("", *parsed.repeat), "block")):  # fmt: skip
            if value not in known:
                raise ValueError(f"{here}: {key} = {value!r} is unknown. Accepted: {', '.join(filter(None, known))}.")
        seen.append(layer.name)


# Instances: chains and repeated blocks laid out, with dependencies.


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a layer: the n-th of a chain, or of a repeated block."""

    layer: Layer
    label: str
    after: tuple[int, ...]
    """Indices of the instances that it waits for."""


def instances(model: Model) -> list[Instance]:
    """All instances of the model's layers, in order."""
    placed: list[Instance] = []
    last: dict[str, int] = {}
    for block, layers in groupby(model.layers, key=lambda layer: layer.block):
        block_layers, rounds = list(layers), model.repeat[block] if block else 1
        for turn in range(rounds):
            for layer in block_layers:
                for link in range(layer.repeat):
                    label = layer.name + (f" {turn + 1}" if rounds > 1 else "") + (f".{link + 1}" * (layer.repeat > 1))
                    placed.append(Instance(layer, label, _after(layer, link, placed, last)))
                last[layer.name] = len(placed) - 1
    return placed


def _after(layer: Layer, link: int, placed: Sequence[Instance], last: Mapping[str, int]) -> tuple[int, ...]:
    if link or layer.after is None:
        return (len(placed) - 1,) if placed else ()
    return tuple(last[name] for name in layer.after)


def behind(placed: Sequence[Instance]) -> list[list[int]]:
    """For each instance, the indices of those that wait for it."""
    waiting: list[list[int]] = [[] for _ in placed]
    for number, each in enumerate(placed):
        for before in each.after:
            waiting[before].append(number)
    return waiting
