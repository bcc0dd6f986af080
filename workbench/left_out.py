"""Files that a list leaves out because they cannot be read: they stop nothing, and whoever asked is told which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

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
