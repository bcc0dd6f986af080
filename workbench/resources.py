"""Folders of notebooks, data and runs, TOML files in them, unreadable files, and what a command has read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from kernels import files
from kernels.units import bytes_text

# Folders: inside the package of a wheel, or in a checkout.

LAPTOP = "laptop_cpu"
"""The machine of CPU ranks on this computer."""

_PACKAGE = Path(__file__).parent


def notebooks_directory() -> Path:
    """The folder of the shipped notebooks."""
    return _shipped("notebooks")


def data_directory() -> Path:
    """The folder of machines, problems and recordings."""
    return _shipped("data")


def labextensions_directory() -> Path:
    """The folder of our JupyterLab extension, in the layout that JupyterLab expects."""
    return _PACKAGE.resolve() / "labextensions"


def runs_directory() -> Path:
    """The folder of this person's runs, which may not exist yet; outside a wheel, which an upgrade would replace."""
    if (_PACKAGE / "_data").is_dir():
        import platformdirs  # here: a GPU host that reads a machine file may lack it

        return platformdirs.user_data_path("overlap-workbench") / "runs"
    return data_directory() / "runs"


def _shipped(name: str) -> Path:
    packaged = _PACKAGE / f"_{name}"
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


# TOML files, refused by the size of what is parsed: a person waits a second at most.

TOML_BYTES = 2**18
"""Largest TOML file that is parsed: dotted keys below deep tables take about a second. Our largest has 60 kB."""
_DOTTED = re.compile(
    r"""(?<![\w"'.-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){""" + f"{files.DEEPEST}}}"
)
"""A key of more parts than there may be levels, or a text that looks like one."""
_QUOTED = re.compile(
    r'''"""(?:[^\\]|\\.|\\\Z)*?(?:"""|\Z)|"(?:[^"\\\n]|\\.)*+"|'{3}.*?(?:'{3}|\Z)|'[^'\n]*+'|#[^\n]*+''', re.DOTALL
)
"""A text in quotation marks, or a comment."""


def toml(path: Path, kind: files.TextKind) -> dict[str, Any]:
    """The tables in TOML file *path*; ValueError where it is none, or takes long to parse."""
    content = files.text(path, kind)
    refuse_slow_toml(content, path, kind)
    return files.toml_of(content, path, kind)


def refuse_slow_toml(content: str, path: Path, kind: files.TextKind) -> None:
    """Raises ValueError of TOML that takes longer than a second to parse; *content* was read from *path*."""
    if (size := len(content.encode())) > TOML_BYTES:
        most = bytes_text(TOML_BYTES)
        raise kind.unreadable(path, f"it has {bytes_text(size)}, and at most {most} of TOML are parsed")
    # tomllib's time grows with the square of a key's parts: 20,000 of them, 40 kB, take it many seconds
    if _DOTTED.search(content) and _DOTTED.search(_QUOTED.sub("''", content)):
        raise kind.unreadable(path, f"one of its keys has more than {files.DEEPEST} parts between dots")


# Files that were left out of a list because they cannot be read; a message names each.

Name = TypeVar("Name")
Value = TypeVar("Value")

LEFT_OUT = "Left out: "
"""The beginning of every message."""

_messages: dict[object, str] = {}


def readable(names: Iterable[Name], read: Callable[[Name], Value]) -> Iterator[Value]:
    """Yields the result of *read* for each of *names*; one that raises ValueError is left out with its message."""
    for name in names:
        mark_readable(name)  # until *read* fails
        try:
            value = read(name)
        except ValueError as error:
            leave_out(name, str(error))
        else:
            yield value


def leave_out(name: object, message: str) -> None:
    """Records that *name* is left out, and why."""
    _messages[name] = f"{LEFT_OUT}{message}"


def mark_readable(name: object) -> None:
    """Removes *name* from the list: it can be read now."""
    _messages.pop(name, None)


def begin() -> None:
    """Clears the list at the start of a command."""
    _messages.clear()


def messages() -> tuple[str, ...]:
    """The messages of everything that is still left out and still exists."""
    return tuple(dict.fromkeys(text for name, text in _messages.items() if not _is_gone(name)))


def _is_gone(name: object) -> bool:
    return isinstance(name, Path) and not name.exists()


# The files that a command has read, whoever opened them: no output of it may replace one.

_read: dict[Path, None] = {}
_noting: list[bool] = [False]


@contextmanager
def noting_reads(wanted: bool = True) -> Iterator[None]:
    """Notes each file that this process opens for reading inside the `with`; with False it notes none there.

    Python itself reports them, so that a reader that is added later cannot be forgotten.
    """
    _watch_opens()
    _noting.append(wanted)
    try:
        yield
    finally:
        _noting.pop()
        if len(_noting) == 1:
            _read.clear()


def is_read(path: Path) -> bool:
    """Whether the command has read the file *path*, under any name: another path, a link, a hard link."""
    try:
        target = path.stat()
    except OSError:
        return False
    return any(_is_same(other, target) for other in list(_read))


def _is_same(path: Path, target: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), target)
    except (OSError, ValueError):  # a file that is gone
        return False


@cache
def _watch_opens() -> None:
    sys.addaudithook(_note_open)


def _note_open(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _noting[-1]:
        path, _, flags = arguments
        if isinstance(path, str) and isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR):
            _read[Path(path).absolute()] = None
