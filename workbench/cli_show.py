"""What a command prints: one JSON document and nothing else, or sentences that end their lines between words."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from kernels.outcome import ROW_KEYS

if TYPE_CHECKING:
    from workbench.off_estimates import Off

DOCUMENT_KEYS = tuple(key for key in ROW_KEYS if key != "part")
"""What `run --json` and `predict --json` print of one outcome; it is always of the whole."""
RUNS_NAMED = 3
USUAL_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""
INDENT = "  "
_KEPT = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:[nµm]?s|min|hours|[kMGT]?[Bb](?:/s)?|[KMGT]iB|x|ranks?|cores?|points)\b)")


GOES_ON = " \\"


def say(sentence: str) -> None:
    """To the person, beside what is printed."""
    print(wrapped(sentence, width(sys.stderr)), file=sys.stderr, flush=True)


def tell(sentence: str) -> None:
    """A sentence that is part of what was asked for."""
    print(wrapped(sentence, width(sys.stdout)))


def tell_command(words: str) -> None:
    """A command to be typed; where it is longer than a line, each but the last goes on behind a backslash."""
    columns = width(sys.stdout)
    lines = wrapped(words, columns and columns - len(INDENT) - len(GOES_ON)).splitlines()
    print(f"{GOES_ON}\n".join(f"{INDENT}{line}" for line in lines))


def width(stream: TextIO) -> int | None:
    """Columns of the terminal that *stream* is; a pipe has none."""
    if not stream.isatty():
        return None
    if (columns := os.environ.get("COLUMNS", "")).isdecimal():
        return int(columns) or USUAL_COLUMNS
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):
        return USUAL_COLUMNS


def wrapped(text: str, columns: int | None, indent: str = INDENT) -> str:
    """*text* in lines of at most *columns* where its words allow it, behind *indent* from the second on.

    A number stays beside its unit.
    """
    if columns is None:
        return text
    lines = [
        line
        for given in text.splitlines()
        for line in textwrap.wrap(_BEFORE_UNIT.sub(_KEPT, given), columns, subsequent_indent=indent,
                                  break_long_words=False, break_on_hyphens=False) or [""]
    ]  # fmt: skip
    return "\n".join(lines).replace(_KEPT, " ")


class _Printed:
    """What this process printed since its command began."""

    documents = 0


def begin() -> None:
    """A command begins: it has not printed a document yet."""
    _Printed.documents = 0


def documents() -> int:
    """How many documents the command has printed."""
    return _Printed.documents


def show_json(value: Any) -> None:
    """One document; what is not a finite number is null, as JSON wants it."""
    text = json.dumps(_finite(value), allow_nan=False, default=str)
    _Printed.documents += 1
    print(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def show_rows(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """The document of a listing, a sweep or a comparison."""
    show_json({"rows": list(rows), "summary": dict(summary)})


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """*row* with exactly the keys of the contract."""
    return {key: row.get(key) for key in DOCUMENT_KEYS}


def say_known(rows: Sequence[Mapping[str, Any]]) -> None:
    """Which of the schedules shown were measured earlier, and so perhaps not in one sitting."""
    from datetime import datetime

    since = {row["origin"]: row["known_since"] for row in rows if row["source"] == "recorded"}
    if not since:
        return
    runs = [f"run {run} of {datetime.fromtimestamp(since[run]).isoformat(' ', 'minutes')}" for run in sorted(since)]
    count = sum(row["source"] == "recorded" for row in rows)
    some = runs if len(runs) <= RUNS_NAMED else [*runs[:RUNS_NAMED], f"{len(runs) - RUNS_NAMED} more"]
    say(f"{count} of {len({row['key'] for row in rows})} schedules {'is' if count == 1 else 'are'} known from "
        f"{' and '.join(some)}: --fresh measures them together.")  # fmt: skip


def say_off(estimates: Sequence[Off]) -> None:
    """Which estimates are off, and the command that makes them right."""
    for each in estimates:
        say(f"{each} {each.advice}")


def schedule(row: Mapping[str, Any]) -> str:
    """The row's schedule as people write it."""
    axes = ", ".join(f"{name}={value}" for name, value in (row["axes"] or {}).items())
    return f"{row['scheme']}({axes})"
