"""Where a file is written for a person: never over what is read for it, by force only over one of another kind."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernels import files
from kernels.files import Failed
from kernels.outcome import ROW_KEYS

# What the workbench writes for people; a file of each kind is known again by what is in it, not by its name.

MADE = "Made with the Overlap Workbench."
"""Reports and traces end or begin with it: other programs write the same formats."""

_TAIL_BYTES = 200
_MOST_BYTES = 2**29
"""What is larger, nobody of us wrote: a report has some MB, the first line of a recording some kB."""
CHAKRA_START = b"\x07\x0a\x050.0.4"
"""The metadata message of a Chakra trace: seven bytes, of which five are its schema's version."""
_ROWS = frozenset(ROW_KEYS[:8])
_SAMPLES = frozenset({"run", "key", "rank", "index", "seconds", "at"})
_PICTURES = (b"<svg", b"<?xml", b"\x89PNG", b"\xff\xd8", b"GIF8")


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of file."""

    noun: str
    """What a command writes: report, export, calibration."""
    words: str
    """What a file of this kind is called."""
    accepts: Callable[[Path], bool]
    """Whether a file is one. It may raise whatever reading raises."""

    def is_one(self, path: Path) -> bool:
        """Whether *path* is a file of this kind; an empty file may become any."""
        try:
            return path.stat().st_size == 0 or self.accepts(path)
        except (OSError, ValueError, KeyError, csv.Error):
            return False


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES)


def _page(path: Path) -> bool:
    content = _content(path)
    return content.startswith(b"<!DOCTYPE html>") and f'<footer class="wb-foot">{MADE}'.encode() in content


def _ends_so(start: bytes) -> Callable[[Path], bool]:
    def accepts(path: Path) -> bool:
        content = _content(path)
        return content.startswith(start) and MADE.encode() in content[-_TAIL_BYTES:]

    return accepts


def _is_picture(path: Path) -> bool:
    return _content(path).startswith(_PICTURES)


def _csv(path: Path) -> bool:
    with path.open(newline="") as lines:
        return _is_table(next(csv.reader(iter(lambda: lines.readline(_MOST_BYTES), ""))))


def _parquet(path: Path) -> bool:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return _is_table(read_schema(path).names)
    except ArrowException:
        return False


def _is_table(names: list[str]) -> bool:
    return any(needed.issubset(names) for needed in (_ROWS, _SAMPLES))


def _trace(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(_TAIL_BYTES)
    return start.startswith(b"{") and MADE.encode() in start


def _chakra(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(CHAKRA_START)) == CHAKRA_START


def _recording(path: Path) -> bool:
    with path.open("rb") as lines:
        first = files.parsed(lines.readline(_MOST_BYTES))
    return isinstance(first, dict) and {"trial", "raw", "provenance"} <= set(first)


def _machine(path: Path) -> bool:
    from kernels.machine import load

    return bool(load(path).name)


REPORTS = {
    "html": FileKind("report", "a report in HTML", _page),
    "pdf": FileKind("report", "a report in PDF", _ends_so(b"%PDF-")),
    "md": FileKind("report", "a report in Markdown", _ends_so(b"")),
}
PICTURE = FileKind("report", "a picture", _is_picture)
EXPORTS = {
    "csv": FileKind("export", "an export to CSV", _csv),
    "parquet": FileKind("export", "an export to Parquet", _parquet),
    "perfetto": FileKind("export", "a trace", _trace),
    "recording": FileKind("export", "a recording", _recording),
}
CHAKRA = FileKind("export", "a Chakra trace", _chakra)
MACHINE = FileKind("calibration", "a machine", _machine)


# Where a file is written for a person: never over what is read for it, by force only over one of another kind.

Fill = bytes | Callable[[Path], object]
"""What a file is to hold, or who writes it to the path that it is given."""

COMPANIONS = ("", "-wal", "-shm", "-journal")
"""A store is its file and those that SQLite puts beside it."""


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A place for a file, with what it must not be."""

    path: Path
    inputs: tuple[Path, ...] = ()
    """What is read for it: files, stores, notebooks."""
    force: bool = False
    """Replace a file of another kind, too; what is read is never replaced."""

    def refuse(self, kind: FileKind) -> None:
        """Say now what would otherwise fail, or destroy something, after the work is done."""
        target, folder = self.path, Path(os.path.realpath(self.path)).parent
        refused = f"The {kind.noun} cannot be written to {target}"
        if target.is_dir():
            raise ValueError(f"{refused}, which is a folder. Accepted: the name of a file, such as "
                             f"{target / kind.noun}.")  # fmt: skip
        if not folder.is_dir():
            raise ValueError(f"{refused}: there is no folder {folder}. Accepted: a folder that exists.")
        if (read := next(filter(self._is, self.inputs), None)) is not None:
            raise ValueError(f"{refused}: that would destroy {read}, which is read for it. Accepted: another name.")
        if target.exists() and not target.is_file():
            raise ValueError(f"{refused}, which is a device or a pipe and no file. Accepted: the name of a file.")
        if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
            kept = target if os.access(folder, os.W_OK) else folder
            raise ValueError(f"{refused}: {kept} does not allow writing. Accepted: a place where you may write.")
        if target.exists() and not self.force and not kind.is_one(target):
            raise ValueError(f"{refused}: the file that is there is not {kind.words} of the workbench. Accepted: "
                             "another name, or --force, which replaces it.")  # fmt: skip

    def _is(self, read: Path) -> bool:
        """Whether this is *read*, by whatever name, or a file that belongs to it."""
        place = os.path.realpath(self.path)
        whole = Path(os.path.realpath(read))
        every = [whole.with_name(f"{whole.name}{ending}") for ending in COMPANIONS]
        return any(place == str(each) or (each.exists() and _same(self.path, each)) for each in every)

    def write(self, kind: FileKind, fill: Fill) -> Path:
        """The file as *fill* has it, whole or not at all; ValueError says in a sentence why not."""
        return write([(self, kind, fill)])


def of(target: FileTarget | Path | str, *inputs: Path) -> FileTarget:
    """*target* with *inputs* among what it must not be."""
    target = target if isinstance(target, FileTarget) else FileTarget(Path(target))
    return replace(target, inputs=(*target.inputs, *inputs))


def write(parts: Sequence[tuple[FileTarget, FileKind, Fill]]) -> Path:
    """Files that belong together, all of them or none; the first names the others, and comes into its place last."""
    for target, kind, _ in parts:
        target.refuse(kind)
    first, kind, _ = parts[0]
    with sentences(first.path, kind.noun), ExitStack() as stack:
        for target, _, fill in parts:
            unfinished = stack.enter_context(files.whole(target.path))
            if isinstance(fill, bytes):
                unfinished.write_bytes(fill)
            else:
                fill(unfinished)
    return first.path


@contextmanager
def sentences(path: Path, noun: str) -> Iterator[None]:
    """An OSError becomes one sentence about the *noun* that was written to *path*."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # Arrow's own words are longer
        said = f"The {noun} cannot be written to {path}: {reason}."
        if error.errno in files.NO_ROOM:
            raise Failed(f"{said} What was there before is unchanged. Make room and try again.") from error
        raise ValueError(f"{said} Accepted: a file in a folder that exists and that you may write.") from error


def _same(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)


def told(target: Path, was_there: bool) -> str:
    """The sentence that ends a command: a file of that name is replaced, as people expect of -o, but not in silence."""
    return f"{target} (replaces the file that was there)" if was_there else str(target)
