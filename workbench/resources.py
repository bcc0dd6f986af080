"""Files that a list leaves out because they cannot be read: they stop nothing, and whoever asked is told which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

# Where notebooks, data and runs lie: inside the package of a wheel, or the folders of a checkout.

LAPTOP = "laptop_cpu"
"""The machine of CPU ranks on this computer."""

_PACKAGE = Path(__file__).parent


def notebooks_directory() -> Path:
    """The folder of the notebooks we ship."""
    return _shipped("notebooks")


def data_directory() -> Path:
    """The folder of machines, problems and recordings."""
    return _shipped("data")


def labextensions_directory() -> Path:
    """The folder of what is added to JupyterLab's page, as JupyterLab looks for it."""
    return _PACKAGE.resolve() / "labextensions"


def runs_directory() -> Path:
    """The folder of this person's runs, which may not exist yet; outside of a wheel, which an upgrade replaces."""
    if (_PACKAGE / "_data").is_dir():
        import platformdirs  # alone here: a GPU host that reads a machine file may lack it

        return platformdirs.user_data_path("overlap-workbench") / "runs"
    return data_directory() / "runs"


def _shipped(name: str) -> Path:
    packaged = _PACKAGE / f"_{name}"
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


# Files that a list leaves out because they cannot be read: they stop nothing, and whoever asked is told which.

Name = TypeVar("Name")
Value = TypeVar("Value")

LEFT_OUT = "Left out: "
"""How every sentence begins."""

_sentences: dict[object, str] = {}


def readable(names: Iterable[Name], read: Callable[[Name], Value]) -> Iterator[Value]:
    """What *read* makes of each of *names*, without those of which it makes a ValueError."""
    for name in names:
        mended(name)  # unless reading it says otherwise
        try:
            value = read(name)
        except ValueError as error:
            leave(name, str(error))
        else:
            yield value


def leave(name: object, sentence: str) -> None:
    """What is called *name* is left out, and *sentence* says why."""
    _sentences[name] = f"{LEFT_OUT}{sentence}"


def mended(name: object) -> None:
    """What is called *name* can be read now, whatever was before."""
    _sentences.pop(name, None)


def begin() -> None:
    """A command begins: nothing was left out yet."""
    _sentences.clear()


def sentences() -> tuple[str, ...]:
    """What was left out, and neither read nor taken away since."""
    there = {name: sentence for name, sentence in _sentences.items() if not _is_gone(name)}
    return tuple(dict.fromkeys(there.values()))


def _is_gone(name: object) -> bool:
    return isinstance(name, Path) and not name.exists()
