"""A file is written whole or not at all: beside its place under another name, then renamed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What the system says when a file that may be written cannot: then it is not the question that is wrong."""


@contextmanager
def whole(path: Path, mode: int | None = None) -> Iterator[Path]:
    """The path of an unfinished file, to be filled inside the `with`; after it, it is *path*.

    When anything is raised meanwhile, *path* is as before and nothing lies beside it. A symbolic link stays one: the
    file behind it is replaced. Permissions are *mode*, or those of the file that is replaced, or what the umask leaves.
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
    """*content*, texts as UTF-8, as the whole of file *path*; OSError when that cannot be."""
    with whole(path, mode) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def _reach_the_disk(unfinished: Path) -> None:
    """After a power cut the old file or the new one is there: a rename may be on the disk before what it names."""
    descriptor = os.open(unfinished, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
