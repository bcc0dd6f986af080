"""Two prints say what ran a trial: one of the kernels' source in use, one of the versions of the libraries below it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from kernels.hardware import Hardware

LIBRARIES = ("torch", "triton", "numpy", "numba")
"""What computes and moves bytes below our kernels."""
ABSENT = "absent"
"""Stands for the version of a library that is not installed."""

_HERE = Path(__file__).parent
_ASIDE = ("ops", "backends/triton/probes", "backends/triton/playground.py", "backends/triton/rank.py")
"""No trial runs these: operators for callers of their own, probes, and the playground with its ranks."""
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Ran:
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
    return {backend: _print(_in_use(files, backend, backends)) for backend in backends}


def _in_use(files: Mapping[str, Path], backend: str, backends: list[str]) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files that trials of *backend* may depend on, in the order of the names."""
    others = [f"backends/{other}" for other in backends if other != backend]
    for name in sorted(files):
        if not any(name == aside or name.startswith(f"{aside}/") for aside in (*_ASIDE, *others)):
            yield name, files[name].read_bytes()


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


def _print(parts: Iterator[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:  # lengths keep the end of one from passing for the beginning of the next
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_DIGITS]
