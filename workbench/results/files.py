"""Files that the workbench writes for people: kinds it recognises, and safe replacement of existing files.

An input is never overwritten, and a file of another kind only by force. Inputs are those of the `FileTarget`, and all
other files that the command has read.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernels import files
from kernels.files import Failed
from kernels.outcome import ROW_KEYS
from workbench import resources

# Kinds of files, recognised by content and not by name.

SIGNATURE = "Made with the Overlap Workbench."
"""Text at the beginning or end of reports and traces, because other programs write the same formats."""

_TAIL_BYTES = 200
_MAX_BYTES = 2**29
"""No file of the workbench is larger: a report has some MB, the first line of a recording some kB."""
CHAKRA_START = b"\x07\x0a\x050.0.4"
"""Metadata message of a Chakra trace: seven bytes, of which five are its schema's version."""
_ROW_COLUMNS = frozenset(ROW_KEYS[:8])
_SAMPLE_COLUMNS = frozenset({"run", "key", "rank", "index", "seconds", "at"})
_PICTURES = (b"<svg", b"<?xml", b"\x89PNG", b"\xff\xd8", b"GIF8")


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file, and how to recognise it."""

    noun: str
    """The output of a command: report, export, calibration."""
    label: str
    """The kind in a sentence, such as `an export to CSV`."""
    accepts: Callable[[Path], bool]
    """Says whether a file is of this kind. It may raise whatever reading raises."""
    ending: str = ""
    """Of its usual names, with the dot; empty where there is none."""

    def is_one(self, path: Path) -> bool:
        """Whether *path* is a file of this kind; an empty file may become any."""
        if not path.is_file():  # reading a pipe would wait
            return False
        try:
            return path.stat().st_size == 0 or self.accepts(path)
        except (OSError, ValueError, KeyError, csv.Error):
            return False


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES)


def _is_page(path: Path) -> bool:
    content = _content(path)
    return content.startswith(b"<!DOCTYPE html>") and f'<footer class="wb-foot">{SIGNATURE}'.encode() in content


def _is_signed(start: bytes) -> Callable[[Path], bool]:
    def accepts(path: Path) -> bool:
        content = _content(path)
        return content.startswith(start) and SIGNATURE.encode() in content[-_TAIL_BYTES:]

    return accepts


def _is_picture(path: Path) -> bool:
    return _content(path).startswith(_PICTURES)


def _is_csv(path: Path) -> bool:
    with path.open(newline="") as lines:
        return _has_our_columns(next(csv.reader(iter(lambda: lines.readline(_MAX_BYTES), ""))))


def _is_parquet(path: Path) -> bool:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return _has_our_columns(read_schema(path).names)
    except ArrowException:
        return False


def _has_our_columns(names: list[str]) -> bool:
    return any(needed.issubset(names) for needed in (_ROW_COLUMNS, _SAMPLE_COLUMNS))


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(_TAIL_BYTES)
    return start.startswith(b"{") and SIGNATURE.encode() in start


def _is_chakra(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(CHAKRA_START)) == CHAKRA_START


def _is_recording(path: Path) -> bool:
    with path.open("rb") as lines:
        first = files.parsed(lines.readline(_MAX_BYTES))
    return isinstance(first, dict) and {"trial", "raw", "provenance"} <= set(first)


def _is_machine(path: Path) -> bool:
    from kernels.machine import load

    return bool(load(path).name)


REPORTS = {
    "html": FileKind("report", "a report in HTML", _is_page, ".html"),
    "pdf": FileKind("report", "a report in PDF", _is_signed(b"%PDF-"), ".pdf"),
    "md": FileKind("report", "a report in Markdown", _is_signed(b""), ".md"),
    "zip": FileKind("report", "a report with its files", _is_signed(b"PK"), ".zip"),
}
COMPANION = FileKind("report", "a file of a report", _is_signed(b""))
PICTURE = FileKind("report", "a picture", _is_picture)
EXPORTS = {
    "csv": FileKind("export", "an export to CSV", _is_csv, ".csv"),
    "parquet": FileKind("export", "an export to Parquet", _is_parquet, ".parquet"),
    "perfetto": FileKind("export", "a trace", _is_trace, ".json"),
    "recording": FileKind("export", "a recording", _is_recording, ".jsonl"),
}
CHAKRA = FileKind("export", "a Chakra trace", _is_chakra)
MACHINE = FileKind("calibration", "a machine", _is_machine, ".toml")


def refuse_other_ending(path: Path, wanted: str, kinds: Mapping[str, FileKind]) -> None:
    """Raise ValueError where the ending of *path* is that of another of *kinds* than *wanted*."""
    by_name = {kind.ending: name for name, kind in kinds.items()}.get(path.suffix, wanted)
    if by_name != wanted:
        renamed = path.with_suffix(kinds[wanted].ending).name
        raise ValueError(f"{path.name} cannot be written with --to {wanted}: its ending says {by_name}. Accepted: "
                         f"--to {by_name}, or {renamed}.")  # fmt: skip


# Targets: where a file is written, and what must not be replaced.

Fill = bytes | Callable[[Path], object]
"""The content of a file, or a function that writes it to a path."""

COMPANIONS = ("", "-wal", "-shm", "-journal")
"""Endings of a store's own file and of SQLite's companion files."""


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A path to write a file to, with the inputs that it must not replace."""

    path: Path
    inputs: tuple[Path, ...] = ()
    """Files, stores and notebooks from which it is made."""
    force: bool | None = None
    """Whether a file of another kind may be replaced; inputs never are. None where nobody can say --force."""
    renews: bool = False
    """Whether it is a file of the workbench's own, which is read and replaced by a newer one."""

    def refuse(self, kind: FileKind) -> None:
        """Raise ValueError before the work is done if writing would fail or destroy something."""
        target, folder = self.path, Path(os.path.realpath(self.path)).parent
        refused = f"The {kind.noun} cannot be written to {target}"
        if target.is_dir():
            raise ValueError(f"{refused}, which is a folder. Accepted: the name of a file, such as "
                             f"{target / (kind.noun + kind.ending)}.")  # fmt: skip
        if not folder.is_dir():
            raise ValueError(f"{refused}: there is no folder {folder}. Accepted: a folder that exists.")
        source = next(filter(self._is, self.inputs), None)
        if source is None and not self.renews and resources.is_read(target):
            source = target
        if source is not None:
            raise ValueError(f"{refused}: that would destroy {source}, which is read for it. Accepted: another name.")
        if target.exists() and not target.is_file():
            raise ValueError(f"{refused}, which is a device or a pipe and no file. Accepted: the name of a file.")
        if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
            protected = target if os.access(folder, os.W_OK) else folder
            raise ValueError(f"{refused}: {protected} does not allow writing. Accepted: a place where you may write.")
        if target.is_symlink() and not self.force:
            accepted = "a file in place of the link" if self.renews else "that file's name"
            raise ValueError(f"{refused}, which is a symbolic link to {os.path.realpath(target)}. Accepted: "
                             f"{accepted}{self._or_force('that file')}.")  # fmt: skip
        if target.exists() and not self.force and not self.renews and not self._is_one(kind):
            raise ValueError(f"{refused}: the file that is there is not {kind.label} of the workbench. Accepted: "
                             f"another name{self._or_force('it')}.")  # fmt: skip

    def _or_force(self, replaced: str) -> str:
        return "" if self.force is None else f", or --force, which replaces {replaced}"

    def _is_one(self, kind: FileKind) -> bool:
        with resources.noting_reads(False):
            return kind.is_one(self.path)

    def _is(self, source: Path) -> bool:
        """Whether the target is *source*, under any name, or one of its companion files."""
        target, source = os.path.realpath(self.path), Path(os.path.realpath(source))
        protected = [source.with_name(f"{source.name}{ending}") for ending in COMPANIONS]
        return any(target == str(each) or (each.exists() and _same(self.path, each)) for each in protected)

    def write(self, kind: FileKind, fill: Fill) -> Path:
        """Write the content *fill*, whole or not at all; ValueError says why not."""
        return write([(self, kind, fill)])


def file_target(target: FileTarget | Path | str, *inputs: Path) -> FileTarget:
    """*target* as a FileTarget that must not replace *inputs* either."""
    target = target if isinstance(target, FileTarget) else FileTarget(Path(target))
    return replace(target, inputs=(*target.inputs, *inputs))


def refuse(parts: Sequence[tuple[FileTarget, FileKind]]) -> None:
    """Raise ValueError before the work is done if writing these files would fail, destroy something, or each other."""
    for number, (target, kind) in enumerate(parts):
        target.refuse(kind)
        for other, _ in parts[:number]:
            if os.path.realpath(target.path) == os.path.realpath(other.path) or _same(target.path, other.path):
                raise ValueError(f"2 outputs cannot be written to 1 file, {other.path} and {target.path}. Accepted: "
                                 "another name for one of them.")  # fmt: skip


def write(parts: Sequence[tuple[FileTarget, FileKind, Fill]]) -> Path:
    """Write files that belong together, all or none; the first names the others, and is put in place last."""
    refuse([(target, kind) for target, kind, _ in parts])
    first, kind, _ = parts[0]
    with readable_errors(first.path, kind.noun), ExitStack() as stack:
        for target, _, fill in parts:
            unfinished = stack.enter_context(files.whole(target.path))
            if isinstance(fill, bytes):
                unfinished.write_bytes(fill)
            else:
                fill(unfinished)
    return first.path


@contextmanager
def readable_errors(path: Path, noun: str) -> Iterator[None]:
    """Turn an OSError into a message about the *noun* that was written to *path*."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # Arrow's own text is longer
        message = f"The {noun} cannot be written to {path}: {reason}."
        if error.errno in files.NO_ROOM:
            raise Failed(f"{message} What was there before is unchanged. Make room and try again.") from error
        raise ValueError(f"{message} Accepted: a file in a folder that exists and that you may write.") from error


def _same(path: Path, other: Path) -> bool:
    return path.exists() and path.samefile(other)


def replacement_note(target: Path, was_there: bool) -> str:
    """*target* as a command reports it; a replaced file is mentioned."""
    return f"{target} (replaces the file that was there)" if was_there else str(target)
