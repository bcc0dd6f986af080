"""Exit statuses of commands, and the message and document of a failure."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import typer

from kernels.files import Failed, reason
from workbench.cli import missing

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 130
"""Success; a failure; a refused request; stopped by a person."""

NO_FAILURE = ("refused", "cancelled")
"""Stages of outcomes that do not count as failures: an illegal combination, and a trial that a stopped run left out."""


NAME_ERRORS = (errno.ENAMETOOLONG, errno.ELOOP)
"""System errors of names that no file can have."""
PERMISSION_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)


class Interrupted(Exception):
    """A person's Ctrl-C, as an error that typer does not handle itself."""

    def __init__(self, message: str = "Stopped.") -> None:
        super().__init__(message)


def of_error(error: BaseException) -> int | None:
    """The status of a command that ended with *error*; None for a bug, whose traceback is shown."""
    match error:
        case KeyboardInterrupt() | Interrupted() | typer.Abort():
            return STOPPED
        case Failed():
            return FAILED
        case ImportError():
            return FAILED if missing.message(error) else None
        case OSError():
            return REFUSED if error.errno in NAME_ERRORS else FAILED
        case ValueError():
            return REFUSED
    return None


def of_rows(rows: Iterable[Mapping[str, Any]]) -> int:
    """The status of a command whose outcomes are *rows*: refused only if all rows are."""
    stages = [row["stage"] if row["outcome"] == "failure" else None for row in rows]
    if any(stage is not None and stage not in NO_FAILURE for stage in stages) or not stages:
        return FAILED
    return REFUSED if all(stage == "refused" for stage in stages) else DONE


def status_reason(schedules: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]] = ()) -> str | None:
    """Why a command with these outcomes does not end with DONE, or None if it does.

    *others* are those baselines and parts of *schedules* that failed.
    """
    if of_rows([*schedules, *others]) == DONE:
        return None
    failed = [row for row in schedules if has_failed(row)]
    count = "1 schedule" if len(schedules) == 1 else f"{len(schedules):,} schedules"
    counts = [f"{len(failed):,} of {count} failed"] if failed else []
    counts += [f"{len(others):,} of the baselines and parts failed"] if others else []
    if not counts:
        return f"All of {count} were refused. {schedules[0]['message']}" if schedules else "It has 0 schedules."
    return f"{' and '.join(counts)}. {[*failed, *others][0]['message']}"


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether an outcome is a failure that decides the exit status."""
    return row["outcome"] == "failure" and row["stage"] not in NO_FAILURE


def counted(rows: Iterable[Mapping[str, Any]]) -> str:
    """The numbers of failed and of refused outcomes as text."""
    stages = [row["stage"] for row in rows if row["outcome"] == "failure"]
    num_refused = stages.count("refused")
    num_failed = sum(stage not in NO_FAILURE for stage in stages)
    return f"{num_failed:,} failed" + (f", {num_refused:,} refused" if num_refused else "")


def message(error: BaseException) -> str:
    """The message of *error* for a person, on one line."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return str(Interrupted())
    if isinstance(error, OSError):
        return one_line(_system_message(error))
    if isinstance(error, ImportError) and (text := missing.message(error)):
        return one_line(text)
    text = str(error) if of_error(error) is not None else f"{type(error).__name__}: {error}"
    return one_line(with_close_word(text) if isinstance(error, ValueError) else text)


_UNKNOWN = re.compile(r"'([^']+)'|(\S+) is not a legal value")
_BETWEEN_NAMES = re.compile(r", |; | or (?:one of )?|: ")


def with_close_word(text: str) -> str:
    """*text*, a refusal; where it names an unknown word that is nearly one of those it accepts, it asks for that one.

    Every refusal ends with what it accepts, so that presets, operators, machines, axes and all other names that are
    looked up have this one home.
    """
    rule, marker, accepted = text.partition("Accepted: ")
    unknown = [quoted or bare for quoted, bare in _UNKNOWN.findall(rule)]
    names = {name.lower(): name for name in map(_name, _BETWEEN_NAMES.split(accepted)) if name}
    if not unknown or unknown[-1] in names.values() or not re.search("[A-Za-z]", unknown[-1]):
        return text
    close = get_close_matches(unknown[-1].lower(), names, n=1)
    return f"{rule}Did you mean {names[close[0]]}? {marker}{accepted}" if close else text


def _name(text: str) -> str:
    """*text* without its full stop if it is a name, else nothing."""
    name = text.strip().rstrip(".")
    return name if re.fullmatch(r"[\w.-]*[A-Za-z][\w.-]*", name) else ""


def _system_message(error: OSError) -> str:
    why = reason(error)
    if not error.filename:
        return f"The output cannot be printed: {why}."
    if error.errno in NAME_ERRORS:
        return f"{error.filename} cannot be the name of a file: {why}. Accepted: a shorter one."
    accepted = " Accepted: a place where you may write." if error.errno in PERMISSION_ERRORS else ""
    return f"{error.filename} cannot be used: {why}.{accepted}"


def one_line(text: str) -> str:
    """*text* with control characters escaped: the name of a file may contain any of them."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda match: " " if match[0] == "\n" else repr(match[0])[1:-1], text)


def failure(error: BaseException) -> dict[str, Any]:
    """The keys of a failure document about *error*."""
    stage = {STOPPED: "cancelled", REFUSED: "refused"}.get(of_error(error) or FAILED, "lost")
    return {"outcome": "failure", "stage": stage, "message": message(error)}
