"""The ledger of guesses: one line of JSON for each, only ever added to, in the folder of a person's runs.

Another process may add lines at the same time. A class board reads it with `entries(since)` or `on_new(callback)`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import files
from workbench import resources
from workbench.lessons.questions import WITHIN, counts, value_text

if TYPE_CHECKING:
    import pandas as pd

FILE = "guesses.jsonl"
ALIAS = "OVERLAP_ALIAS"
"""Environment variable with the name under which a person's guesses are kept."""
NOBODY = "me"
"""The alias of a person who gave none."""
FIELDS = ("lesson", "question", "alias", "guess", "unit", "estimate", "measured", "source", "default", "at")
"""Fields of an entry: lesson (number), question (name), alias, guess, unit of guess, estimate and measured, source
(`measured`, `recorded`, `published`), default (nobody was at the keyboard), at (Unix seconds)."""
KIND = files.TextKind("ledger of guesses", "guesses", "lines of JSON", most_bytes=64 * 2**20)

Entry = Mapping[str, Any]
_listeners: list[Callable[[Entry], None]] = []
_alias: list[str] = []


def path() -> Path:
    """The file; it may not exist yet."""
    return resources.runs_directory() / FILE


def alias() -> str:
    """The name under which guesses are kept: that of `use_alias`, else of the environment, else NOBODY."""
    return _alias[-1] if _alias else os.environ.get(ALIAS, "").strip() or NOBODY


def use_alias(name: str) -> None:
    """Keeps guesses of this process under *name* from now on; a class board calls it once the alias is granted."""
    _alias[:] = [name]


def add(entry: Entry) -> str:
    """Adds *entry*, which has all FIELDS but `alias` and `at`: an empty text, or why it could not be written."""
    whole = {"alias": alias(), "at": time.time(), **entry}
    ordered = {name: whole[name] for name in FIELDS}
    line = json.dumps(ordered, ensure_ascii=False).encode() + b"\n"
    message = ""
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        _append(path(), line)
    except OSError as error:
        message = (f"Your guess counts here, but it is not kept: {path()} cannot be written ({files.reason(error)}). "
                   "Accepted: a folder that you may write.")  # fmt: skip
    for listener in list(_listeners):
        with suppress(Exception):  # a class board that is gone does not keep anybody from guessing
            listener(ordered)
    return message


def _append(file: Path, line: bytes) -> None:
    """Adds *line* with one write, so that two processes do not mix; a torn last line is ended first."""
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, b"\n" * torn + line)
    finally:
        os.close(descriptor)


def entries(since: int = 0) -> list[dict[str, Any]]:
    """All entries after the first *since* ones, in the order in which they were added.

    A caller that polls passes how many it has seen. A deleted or emptied file has fewer: then all are returned. Lines
    that cannot be read are left out.
    """
    if not path().exists():
        return []
    readable = [entry for line in files.text(path(), KIND).splitlines() if (entry := _entry(line)) is not None]
    return readable if since > len(readable) else readable[since:]


def _entry(line: str) -> dict[str, Any] | None:
    try:
        value = files.parsed(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and set(FIELDS) <= value.keys() else None


def on_new(callback: Callable[[Entry], None]) -> Callable[[], None]:
    """Calls *callback* with each entry that this process adds; returns a function that ends it."""
    _listeners.append(callback)

    def end() -> None:
        with suppress(ValueError):
            _listeners.remove(callback)

    return end


# The score.


def counted(every: Sequence[Entry]) -> list[Entry]:
    """The entry that counts for each question: the first guess by a person, or else the last one by default.

    All are of the file's person, who may have taken another alias in between.
    """
    chosen: dict[tuple[Any, ...], Entry] = {}
    for entry in every:
        key = entry["lesson"], entry["question"]
        before = chosen.get(key)
        if before is None or before["default"]:
            chosen[key] = entry
    return sorted(chosen.values(), key=lambda entry: (entry["lesson"], entry["at"]))


def locked(lesson: int, question: str) -> Entry | None:
    """The guess that this person has locked, under any alias; None where there is none, or only a default one.

    Whoever took an alias after the answer was revealed knows it.
    """
    of_question = [each for each in entries() if (each["lesson"], each["question"]) == (lesson, question)]
    return next((each for each in of_question if not each["default"]), None)


def score(every: Sequence[Entry]) -> dict[str, tuple[int, int]]:
    """How many guesses counted, of how many: `within 2x` of numbers, `right winner` of choices; without defaults."""
    real = [entry for entry in counted(every) if not entry["default"]]
    is_number = [isinstance(entry["measured"], int | float) for entry in real]
    right = [counts(entry["guess"], entry["measured"]) for entry in real]
    numbers = [good for good, numeric in zip(right, is_number, strict=True) if numeric]
    choices = [good for good, numeric in zip(right, is_number, strict=True) if not numeric]
    return {f"within {WITHIN:g}x": (sum(numbers), len(numbers)), "right winner": (sum(choices), len(choices))}


def score_text(every: Sequence[Entry]) -> str:
    """The score as a sentence; it says what to do where nothing was guessed."""
    (near, numbers), (right, choices) = score(every).values()
    if not numbers + choices:
        return (f"No guess of yours is in {path()} yet. Open a lesson, type a guess and press Reveal; a deleted file "
                "begins anew with the next guess.")  # fmt: skip
    return (f"Your score: {near} of {numbers} numbers within a factor of {WITHIN:g}, and {right} of {choices} choices "
            "right.")  # fmt: skip


def table(every: Sequence[Entry]) -> pd.DataFrame:
    """Guesses that count, one line each, as they go into a report."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "lesson": entry["lesson"],
                "question": str(entry["question"]).replace("_", " "),
                "guess": value_text(entry["guess"], entry["unit"]) + (" (default guess)" if entry["default"] else ""),
                "estimate": value_text(entry["estimate"], entry["unit"]),
                "answer": value_text(entry["measured"], entry["unit"]),
                "source": entry["source"],
                "counts": "" if entry["default"] else "yes" if counts(entry["guess"], entry["measured"]) else "no",
            }
            for entry in counted(every)
        ],
        columns=["lesson", "question", "guess", "estimate", "answer", "source", "counts"],
    ).set_index(["lesson", "question"])
