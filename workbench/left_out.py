"""Files that a list leaves out because they cannot be read: they stop nothing, and whoever asked is told which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Name = TypeVar("Name")
Value = TypeVar("Value")

_sentences: dict[object, str] = {}


def readable(names: Iterable[Name], read: Callable[[Name], Value]) -> Iterator[Value]:
    """What *read* makes of each of *names*, without those of which it makes a ValueError."""
    for name in names:
        try:
            found = read(name)
        except ValueError as error:
            _sentences[name] = f"Left out: {error}"
        else:
            _sentences.pop(name, None)  # it was mended
            yield found


def begin() -> None:
    """A command begins: nothing was left out yet."""
    _sentences.clear()


def sentences() -> tuple[str, ...]:
    """What was left out, and not read since."""
    return tuple(dict.fromkeys(_sentences.values()))
