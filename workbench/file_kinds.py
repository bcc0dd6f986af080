"""What the workbench writes for people; a file of each kind is known again by what is in it, not by its name."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernels import texts
from kernels.outcome import ROW_KEYS

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
        first = texts.parsed(lines.readline(_MOST_BYTES))
    return isinstance(first, dict) and {"trial", "raw", "provenance"} <= set(first)


def _machine(path: Path) -> bool:
    from kernels.machine_file import load

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
