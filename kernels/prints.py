"""Two prints say what ran a trial: one of the kernels' source in use, one of the versions of the libraries below it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
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
