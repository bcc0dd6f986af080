"""What ran a trial: the hardware, and fingerprints of the kernels' source and of the libraries' versions."""

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
from itertools import chain
from pathlib import Path
from typing import Any

# Hardware: the devices and links of a gang. A time counts only for the hardware that it was measured on.

SHARED_MEMORY, NETWORK, NVLINK, PCIE = "shared memory", "network", "nvlink", "pcie"
UNKNOWN_LINK = "unknown link"
"""The link of GPUs of one host where no installed tool reports how they are linked."""
SHARED_GPU = "one GPU shared by "
"""Beginning of the link of ranks that take turns on one GPU; their number follows."""
ALONE = "one rank"
"""The link of a gang of one rank, which has no peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDevice:
    """The device that one worker has for its rank."""

    kind: str
    """`gpu`, or `cpu` where it has no GPU."""
    model: str
    """Name of the GPU as its driver reports it, or else of the processor."""
    processor: str
    """Name of the processor, on which ranks of backend = cpu compute even where there is a GPU."""
    cores: tuple[int, ...]
    """Numbers of the host's cores that its rank may run on; other workers of the host may have the same ones."""
    memory_bytes: int | None = None
    """Memory of the GPU; None without one, and where the driver does not report it."""
    uuid: str = ""
    """UUID of the GPU; empty without one, and where the driver does not report it."""
    links: tuple[str, ...] | None = None
    """UUIDs of the GPUs that it reaches over NVLink; None where no installed tool reports them."""
    ranks_on_gpu: int = 1
    """How many workers were dealt this GPU; 1: its rank has it alone, or has none."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cores": list(self.cores), "links": None if self.links is None else list(self.links)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkerDevice:
        links = data["links"]
        plain = {"cores": tuple(data["cores"]), "links": None if links is None else tuple(links)}
        return cls(**{**data, **plain})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The hardware of a gang. Times of gangs with equal hardware are interchangeable."""

    model: str
    """Name of the GPU or the processor; where a gang has several kinds of them, each with its count."""
    link: str
    """How the ranks are linked: SHARED_MEMORY, NETWORK, NVLINK, PCIE, UNKNOWN_LINK, ALONE, or SHARED_GPU with their
    number or that of their hosts."""
    memory_bytes: int | None = None
    """Memory of the GPU that has least; None for CPU ranks."""
    cores: float | None = None
    """Fewest cores per CPU rank: 0.5 where two ranks share one. None for GPU ranks."""

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
    def shares_gpu(self) -> bool:
        """Whether its ranks take turns on one GPU, so that times say nothing."""
        return self.link.startswith(SHARED_GPU)

    @property
    def models(self) -> tuple[str, ...]:
        """The kinds of GPU or processor in the gang."""
        return tuple(filter(None, re.split(r"(?:^| and )\d+ x ", self.model)))

    @property
    def text(self) -> str:
        """The hardware as a text, equal for equal hardware, by which a store compares it."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def hardware_of(backend: str, devices: Sequence[WorkerDevice], hosts: Sequence[str]) -> Hardware | None:
    """The hardware of a gang of *backend* on these *devices*, one per rank, on *hosts*, in the same order.

    None where they cannot form a gang: there are no ranks, or a rank of backend = triton has no GPU.
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
    """Cores per rank on the host that has fewest; ranks that may run on the same cores share them."""
    cores: dict[str, set[int]] = {}
    for device, host in zip(devices, hosts, strict=True):
        cores.setdefault(host, set()).update(device.cores)
    return min(len(cores[host]) / count for host, count in Counter(hosts).items())


def _link_of_gpus(devices: Sequence[WorkerDevice], hosts: Sequence[str]) -> str:
    if len(devices) == 1:
        return ALONE
    if (count := len(set(hosts))) > 1:
        return _link_of_hosts(devices, count)
    if any(device.ranks_on_gpu > 1 for device in devices):
        return f"{SHARED_GPU}{len(devices)} ranks"
    if any(device.links is None for device in devices):
        return UNKNOWN_LINK
    uuids = {device.uuid for device in devices}
    linked = all(uuids - {device.uuid} <= set(device.links or ()) for device in devices)
    return NVLINK if linked else PCIE


def _link_of_hosts(devices: Sequence[WorkerDevice], count: int) -> str:
    """NETWORK, or whose turns on a GPU are in every time: of *count* hosts that are one computer, or of other ranks."""
    uuids = [device.uuid for device in devices if device.uuid]
    if len(set(uuids)) < len(uuids):
        return f"{SHARED_GPU}{count} hosts"
    if (most := max(device.ranks_on_gpu for device in devices)) > 1:
        return f"{SHARED_GPU}{most} ranks on each of {count} hosts"
    return NETWORK


# Fingerprints: of the source that runs a trial, and of the versions of the libraries below it.

LIBRARIES = ("torch", "triton", "numpy", "numba")
"""Libraries that compute and move bytes below our kernels."""
ABSENT = "absent"
"""The version of a library that is not installed."""

_HERE = Path(__file__).parent
_ASIDE = ("ops", "schemes/auto.py", "backends/triton/probes", "backends/triton/playground.py")
"""Paths whose code no trial runs: PyTorch operators and their choices, probes, and the playground with its ranks."""
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Execution:
    """What ran a trial, or would run it: a stored time counts again where all three fields are equal."""

    source_print: str
    """Fingerprint of the kernels' source."""
    versions_print: str
    """Fingerprint of the libraries' versions on the ranks' hosts."""
    hardware: Hardware


@cache
def source_print(backend: str) -> str:
    """Fingerprint, 12 hexadecimal digits, of the source that runs trials of *backend* in this process.

    The files are read at the first call: later changes on the disk are not what this process has loaded.
    """
    return source_prints(only=backend)[backend]


def source_prints(kernels: Path = _HERE, only: str | None = None) -> dict[str, str]:
    """Fingerprints by backend of the files below *kernels* as they are now, which a process started now would have.

    *only*: of this backend; None: of all.
    """
    files = {path.relative_to(kernels).as_posix(): path for path in kernels.rglob("*.py")}
    backends = sorted(path.parent.name for path in (kernels / "backends").glob("*/__init__.py"))
    read = cache(lambda file: executed(file.read_text(encoding="utf-8")))  # most files are in use by all backends
    return {backend: _source_print(map(read, _in_use(files, backend, backends)))
            for backend in backends if only in (None, backend)}  # fmt: skip


def _in_use(files: Mapping[str, Path], backend: str, backends: list[str]) -> Iterator[Path]:
    """The files that trials of *backend* may depend on."""
    others = [f"backends/{other}" for other in backends if other != backend]
    for name in files:
        if not any(name == aside or name.startswith(f"{aside}/") for aside in (*_ASIDE, *others)):
            yield files[name]


def _source_print(files: Iterable[Sequence[str]]) -> str:
    """Fingerprint of the statements of *files*, whatever their docstrings, comments, names and split into files."""
    return _print((statement, b"") for statement in sorted(set(chain.from_iterable(files))))


def executed(source: str) -> list[str]:
    """The top-level statements of *source* as text that is equal on every Python; imports of ours by name alone."""
    statements = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == _HERE.name:
            statements += [f"import {alias.name} as {alias.asname}" for alias in statement.names]
        elif not _is_docstring(statement):
            statements.append(_text(statement))
    return statements


def _text(value: object) -> str:
    """A *value* of a syntax tree as text, equal on every Python as `ast.dump` is not: empty fields are left out."""
    if isinstance(value, ast.JoinedStr):  # Python 3.12 writes an empty text behind the format of a value
        return f"JoinedStr({', '.join(_text(part) for part in value.values if getattr(part, 'value', None) != '')})"
    if isinstance(value, ast.AST):  # plain loops: there are 200,000 values, and a page waits for them
        texts = []
        for name in value._fields:
            part = getattr(value, name, None)
            if part is not None and part != []:
                texts.append(f"{name}={_text(part)}")
        return f"{type(value).__name__}({', '.join(texts)})"
    if isinstance(value, list):
        return f"[{', '.join([_text(part) for part in value if not _is_docstring(part)])}]"
    return repr(value)


def _is_docstring(statement: object) -> bool:
    """Whether *statement* is only a string."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def versions() -> dict[str, str]:
    """The installed versions of LIBRARIES by name, read without importing them."""
    return {name: _version(name) for name in LIBRARIES}


def versions_print(of: Mapping[str, str]) -> str:
    """Fingerprint, 12 hexadecimal digits, of the versions *of* a rank's host."""
    return _print((name, of.get(name, ABSENT).encode()) for name in LIBRARIES)


def different_versions(of: Mapping[str, Mapping[str, str]]) -> str:
    """The libraries whose versions differ between places, as text; empty where none does. *of*: versions by place."""
    differences = []
    for name in LIBRARIES:
        places: dict[str, list[str]] = {}
        for place, installed in of.items():
            places.setdefault(installed.get(name, ABSENT), []).append(place)
        if len(places) > 1:
            versions_by_place = (f"{version} on {' and '.join(where)}" for version, where in places.items())
            differences.append(f"{name} is " + ", ".join(versions_by_place))
    return "; ".join(differences)


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ABSENT


def _print(parts: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:  # lengths separate the end of one from the beginning of the next
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_DIGITS]
