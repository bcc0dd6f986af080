"""Folders of notebooks, data and runs, and the list of files that were left out because they cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

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
