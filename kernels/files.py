"""Safe reading and writing of text files: whole or not at all, of a bounded size, with one message for each fault."""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

from kernels.units import bytes_text

# Failed: an error of the environment, such as a full disk or a lost scheduler, and not of the request.


class Failed(ValueError):
    """The request is valid, but the environment failed; the message is for people. A command ends with status 1."""


# Writing: a file is written under another name in the same folder, then renamed.

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of the system when a permitted write fails: the environment is at fault, not the request."""


@contextmanager
def whole(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yields the path of a temporary file to fill inside the `with`; after it, the file is renamed to *path*.

    When anything is raised meanwhile, *path* is as before and the temporary file is removed. A symbolic link stays one:
    the file behind it is replaced. Permissions are *mode*, those of the replaced file, or what the umask leaves.
    """
    place = Path(os.path.realpath(path))
    before = place.stat() if place.exists() else None
    unfinished = place.with_name(f".{uuid4().hex}.unfinished")
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode))
    try:
        yield unfinished
        if before is not None:
            if mode is None:
                unfinished.chmod(stat.S_IMODE(before.st_mode))
            _reach_the_disk(unfinished)
        unfinished.replace(place)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def write(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Writes *content*, text as UTF-8, as the whole file *path*; OSError where that fails."""
    with whole(path, mode) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def _reach_the_disk(unfinished: Path) -> None:
    """Flushes the file to the disk before its rename, so that a power cut leaves the old file or the new one."""
    descriptor = os.open(unfinished, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading: regular files of a bounded size, parsed as text, TOML or JSON.

DEEPEST = 64
"""Most levels of brackets: our files have ten, and libraries that walk a value give up at some hundred."""
WORLDLY = frozenset({errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT})
"""Errors of the system after which reading the same file again may work."""
_LEVELS = f"its brackets are nested more than {DEEPEST} levels deep"
_OTHERS = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


@dataclass(frozen=True, slots=True)
class TextKind:
    """A kind of text file: what messages call it, and how large it may be."""

    noun: str
    """Name of the file: `space file`."""
    content: str
    """Name of its content: `a space`."""
    accepted: str
    """What is accepted in its place: `a TOML file`."""
    most_bytes: int = 16 * 2**20
    """Largest size; a larger file is refused before it is read."""

    def unreadable(self, path: Path, reason: object, kind: type[ValueError] = ValueError) -> ValueError:
        """The error that says why *path* is not of this kind."""
        return kind(f"{path} cannot be read as {self.content}: {reason}. Accepted: {self.accepted}.")


def text(path: Path, kind: TextKind) -> str:
    """The content of file *path* as UTF-8; ValueError where it is no such file, Failed where the system failed.

    Pipes and devices are refused at once, since neither has an end.
    """
    try:
        content = _content(path, kind)
    except FileNotFoundError:
        raise ValueError(f"There is no {kind.noun} {path}. Accepted: {kind.accepted}.") from None
    except (OSError, ValueError) as error:
        worldly = isinstance(error, OSError) and error.errno in WORLDLY
        raise kind.unreadable(path, reason(error), Failed if worldly else ValueError) from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise kind.unreadable(path, f"byte {error.start} of it is no UTF-8") from None


def toml(path: Path, kind: TextKind) -> dict[str, Any]:
    """The tables in TOML file *path*; errors as of `text`."""
    return toml_of(text(path, kind), path, kind)


def toml_of(content: str, path: Path, kind: TextKind) -> dict[str, Any]:
    """The tables in *content*, which was read from file *path*."""
    try:
        return _shallow(tomllib.loads(content))
    except RecursionError:
        raise kind.unreadable(path, _LEVELS) from None
    except ValueError as error:
        raise kind.unreadable(path, error) from None


def json_value(path: Path, kind: TextKind) -> Any:
    """The value in JSON file *path*; errors as of `text`."""
    content = text(path, kind)
    try:
        return parsed(content)
    except ValueError as error:
        raise kind.unreadable(path, error) from None


def parsed(content: str | bytes) -> Any:
    """The value that *content* is in JSON; ValueError says in a few words why it is none."""
    try:
        return _shallow(json.loads(content))
    except RecursionError:
        raise ValueError(_LEVELS) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON ({error})") from None


def modified_ns(path: Path) -> int:
    """The time of the last write to *path*, 0 where it is unknown: reading the file will report the reason."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def reason(error: Exception) -> str:
    """Why the system does not give a file, in a few words."""
    if isinstance(error, OSError) and error.errno:
        if error.errno == errno.ENAMETOOLONG:
            longest = max(map(len, os.fsencode(error.filename or "").split(b"/")))
            return f"a name in it is too long, {longest} bytes of 255" if longest > 255 else "it is too long"
        return os.strerror(error.errno)
    return str(error)


def _content(path: Path, kind: TextKind) -> bytes:
    # without O_NONBLOCK, opening a pipe waits until somebody writes into it
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            what = next((noun for is_noun, noun in _OTHERS if is_noun(facts.st_mode)), "something else")
            raise ValueError(f"it is {what} and no file")
        content = file.read(kind.most_bytes + 1)
        if len(content) > kind.most_bytes:
            size = max(len(content), facts.st_size)
            raise ValueError(f"it has {bytes_text(size)}, and at most {bytes_text(kind.most_bytes)} are read")
        return content


def _shallow(value: Any) -> Any:
    """*value*, whose brackets are nested DEEPEST levels at most; ValueError otherwise."""
    level = [value]
    for _ in range(DEEPEST):
        outer = [each for each in level if type(each) in (dict, list)]  # parsers make no classes of their own
        level = list(chain.from_iterable(each.values() if type(each) is dict else each for each in outer))
        if not level:
            return value
    raise ValueError(_LEVELS)
