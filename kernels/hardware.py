"""Two prints say what ran a trial: one of the kernels' source in use, one of the versions of the libraries below it."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

# Hardware is what ran a gang, as its workers found it: a time is known for the hardware that it is from, no other.

SHARED_MEMORY, NETWORK, NVLINK, PCIE = "shared memory", "network", "nvlink", "pcie"
UNKNOWN_LINK = "unknown link"
"""GPUs of one host, where nothing is installed that could tell how they are linked."""
ALONE = "one rank"
"""The link of a gang of one: nobody is there to be linked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDevice:
    """What one worker has for its rank, as found there."""

    kind: str
    """`gpu`, or `cpu` where it has none."""
    model: str
    """The GPU as its driver calls it, or else the processor."""
    processor: str
    """The processor, which ranks of backend = cpu compute on whatever else is there."""
    cores: tuple[int, ...]
    """Numbers of the host's cores that its rank may run on; other workers of the host may have the same ones."""
    memory_bytes: int | None = None
    """Of the GPU; None without one, and where the driver does not tell."""
    uuid: str = ""
    """The GPU's; empty without one, and where the driver does not tell."""
    links: tuple[str, ...] | None = None
    """UUIDs of the GPUs that its own reaches over NVLink; None where nothing is installed that could tell."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cores": list(self.cores), "links": None if self.links is None else list(self.links)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkerDevice:
        links = data["links"]
        plain = {"cores": tuple(data["cores"]), "links": None if links is None else tuple(links)}
        return cls(**{**data, **plain})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What ran a gang. Two gangs with equal hardware may take each other's times for their own."""

    model: str
    """The GPU or the processor; where a gang has several kinds of them, each with its count."""
    link: str
    """How the ranks are linked: SHARED_MEMORY, NETWORK, NVLINK, PCIE, UNKNOWN_LINK or ALONE."""
    memory_bytes: int | None = None
    """Of the GPU that has least; None of CPU ranks."""
    cores: float | None = None
    """Per CPU rank, where they have fewest: 0.5 where two ranks share one. None of GPU ranks."""

    def __str__(self) -> str:
        memory = [] if self.memory_bytes is None else [f"{self.memory_bytes / 2**30:.0f} GiB"]
        noun = "core" if self.cores == 1 else "cores"
        cores = [] if self.cores is None else [f"{self.cores:.3g} {noun} per rank"]
        return ", ".join([self.model, *memory, *cores, self.link])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Hardware:
        return cls(**data)

    @property
    def models(self) -> tuple[str, ...]:
        """Each kind of GPU or processor that the gang has."""
        return tuple(filter(None, re.split(r"(?:^| and )\d+ x ", self.model)))

    @property
    def text(self) -> str:
        """Equal texts are equal hardware: what a store compares."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def hardware_of(backend: str, devices: Sequence[WorkerDevice], hosts: Sequence[str]) -> Hardware | None:
    """What a gang of *backend* is on these *devices*, one per rank, on *hosts*, in the same order.

    None where they cannot form one: there are no ranks, or one of backend = triton has no GPU.
    """
    on_gpus = backend != "cpu"
    if not devices or (on_gpus and any(device.kind != "gpu" for device in devices)):
        return None
    models = [device.model if on_gpus else device.processor for device in devices]
    if on_gpus:
        memories = [device.memory_bytes for device in devices if device.memory_bytes is not None]
        link = _link_of_gpus(devices, hosts)
        return Hardware(model=_counted(models), link=link, memory_bytes=min(memories, default=None))
    link = ALONE if len(devices) == 1 else SHARED_MEMORY if len(set(hosts)) == 1 else NETWORK
    return Hardware(model=_counted(models), link=link, cores=_cores_per_rank(devices, hosts))


def _counted(models: Sequence[str]) -> str:
    counts = sorted(Counter(models).items())
    return counts[0][0] if len(counts) == 1 else " and ".join(f"{count} x {model}" for model, count in counts)


def _cores_per_rank(devices: Sequence[WorkerDevice], hosts: Sequence[str]) -> float:
    """Where ranks of one host may run on the same cores, they share them."""
    cores: dict[str, set[int]] = {}
    for device, host in zip(devices, hosts, strict=True):
        cores.setdefault(host, set()).update(device.cores)
    return min(len(cores[host]) / count for host, count in Counter(hosts).items())


def _link_of_gpus(devices: Sequence[WorkerDevice], hosts: Sequence[str]) -> str:
    if len(devices) == 1:
        return ALONE
    if len(set(hosts)) > 1:
        return NETWORK
    if any(device.links is None for device in devices):
        return UNKNOWN_LINK
    everybody = {device.uuid for device in devices}
    linked = all(everybody - {device.uuid} <= set(device.links or ()) for device in devices)
    return NVLINK if linked else PCIE


# Two prints say what ran a trial: one of the kernels' source in use, one of the versions of the libraries below it.

LIBRARIES = ("torch", "triton", "numpy", "numba")
"""What computes and moves bytes below our kernels."""
ABSENT = "absent"
"""Stands for the version of a library that is not installed."""

_HERE = Path(__file__).parent
_ASIDE = ("ops", "backends/triton/probes", "backends/triton/playground.py")
"""No trial runs these: operators for callers of their own, probes, and the playground with its ranks."""
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Execution:
    """What ran a trial, or would run it. The same trial is known where all three are the same."""

    source_print: str
    versions_print: str
    """Of the ranks' hosts."""
    hardware: Hardware


@cache
def source_print(backend: str) -> str:
    """12 hexadecimal digits of the source that this process runs trials of *backend* with.

    The files are read when it is asked first: what changes on the disk later is not what this process has loaded.
    """
    return source_prints()[backend]


def source_prints(kernels: Path = _HERE) -> dict[str, str]:
    """The same of the files below *kernels* as they are now, by backend: what a process would have that begins now."""
    files = {path.relative_to(kernels).as_posix(): path for path in kernels.rglob("*.py")}
    backends = sorted(path.parent.name for path in (kernels / "backends").glob("*/__init__.py"))
    return {backend: _source_print(_in_use(files, backend, backends)) for backend in backends}


def _in_use(files: Mapping[str, Path], backend: str, backends: list[str]) -> Iterator[Path]:
    """The files that trials of *backend* may depend on."""
    others = [f"backends/{other}" for other in backends if other != backend]
    for name in files:
        if not any(name == aside or name.startswith(f"{aside}/") for aside in (*_ASIDE, *others)):
            yield files[name]


def _source_print(files: Iterable[Path]) -> str:
    """Of the statements that *files* execute: no docstring, comment or file name counts, nor which file has which."""
    statements = [statement for file in files for statement in executed(file.read_text(encoding="utf-8"))]
    return _print((statement, b"") for statement in sorted(set(statements)))


def executed(source: str) -> list[str]:
    """The top-level statements of *source* as text that is equal on every Python; an import of ours is each name."""
    statements = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == _HERE.name:
            statements += [f"import {alias.name} as {alias.asname}" for alias in statement.names]
        elif not _is_docstring(statement):
            statements.append(_text(statement))
    return statements


def _text(value: object) -> str:
    """*value* of a syntax tree. `ast.dump` differs between 3.11, 3.12 and 3.13; what is absent or empty is left out."""
    if isinstance(value, ast.JoinedStr):  # Python 3.12 writes an empty text behind the format of a value
        return f"JoinedStr({', '.join(_text(part) for part in value.values if getattr(part, 'value', None) != '')})"
    if isinstance(value, ast.AST):
        fields = ((name, part) for name, part in ast.iter_fields(value) if part is not None and part != [])
        return f"{type(value).__name__}({', '.join(f'{name}={_text(part)}' for name, part in fields)})"
    if isinstance(value, list):
        return f"[{', '.join(_text(part) for part in value if not _is_docstring(part))}]"
    return repr(value)


def _is_docstring(statement: object) -> bool:
    """A string that is a statement: it is read by people alone."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def versions() -> dict[str, str]:
    """The installed versions of LIBRARIES by name; nothing is imported for it."""
    return {name: _version(name) for name in LIBRARIES}


def versions_print(of: Mapping[str, str]) -> str:
    """12 hexadecimal digits of the versions *of* a rank's host."""
    return _print((name, of.get(name, ABSENT).encode()) for name in LIBRARIES)


def different_versions(of: Mapping[str, Mapping[str, str]]) -> str:
    """Which libraries differ between the places *of* which the versions are given, in words; empty where none does."""
    told = []
    for name in LIBRARIES:
        places: dict[str, list[str]] = {}
        for place, stated in of.items():
            places.setdefault(stated.get(name, ABSENT), []).append(place)
        if len(places) > 1:
            told.append(f"{name} is " + ", ".join(f"{each} on {' and '.join(where)}" for each, where in places.items()))
    return "; ".join(told)


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ABSENT


def _print(parts: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:  # lengths keep the end of one from passing for the beginning of the next
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_DIGITS]
