"""How a command ends: the one home of exit statuses, and of the document that stands where there is no other."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from kernels.files import Failed, reason
from workbench.cli import missing

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 130
"""All was done; something failed; it cannot be asked, and asked again it never can; a person stopped it."""

NO_FAILURE = ("refused", "cancelled")
"""Stages of outcomes that are no failures: a combination that cannot be is a row, what was stopped is told once."""


NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
"""What the system says of names that no file can have."""
NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)


class Interrupted(Exception):
    """A person's Ctrl-C, by a name that typer does not take for its own."""

    def __init__(self, sentence: str = "Stopped.") -> None:
        super().__init__(sentence)


def of_error(error: BaseException) -> int | None:
    """The status of a command that ended with *error*; None where nobody has a sentence for it, and its trace has."""
    match error:
        case KeyboardInterrupt() | Interrupted() | typer.Abort():
            return STOPPED
        case Failed():
            return FAILED
        case ImportError():
            return FAILED if missing.sentence(error) else None
        case OSError():
            return REFUSED if error.errno in NAMES else FAILED
        case ValueError():
            return REFUSED
    return None


def of_rows(rows: Iterable[Mapping[str, Any]]) -> int:
    """The status of a command whose outcomes are *rows*: refused only where all of them are."""
    stages = [row["stage"] if row["outcome"] == "failure" else None for row in rows]
    if any(stage is not None and stage not in NO_FAILURE for stage in stages) or not stages:
        return FAILED
    return REFUSED if all(stage == "refused" for stage in stages) else DONE


def about(schedules: Sequence[Mapping[str, Any]], beside: Sequence[Mapping[str, Any]] = ()) -> str | None:
    """What the status of *schedules*, and of what failed *beside* them, is about; None where all is well."""
    if of_rows([*schedules, *beside]) == DONE:
        return None
    failed = [row for row in schedules if has_failed(row)]
    count = "1 schedule" if len(schedules) == 1 else f"{len(schedules):,} schedules"
    counts = [f"{len(failed):,} of {count} failed"] if failed else []
    counts += [f"{len(beside):,} of what is timed beside the schedules failed"] if beside else []
    if not counts:
        return f"All of {count} were refused. {schedules[0]['message']}" if schedules else "It has 0 schedules."
    return f"{' and '.join(counts)}. {[*failed, *beside][0]['message']}"


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether an outcome is a failure that a command's status tells of."""
    return row["outcome"] == "failure" and row["stage"] not in NO_FAILURE


def counted(rows: Iterable[Mapping[str, Any]]) -> str:
    """How many outcomes failed, and how many were refused, if any."""
    stages = [row["stage"] for row in rows if row["outcome"] == "failure"]
    num_refused = stages.count("refused")
    num_failed = sum(stage not in NO_FAILURE for stage in stages)
    return f"{num_failed:,} failed" + (f", {num_refused:,} refused" if num_refused else "")


def sentence(error: BaseException) -> str:
    """What a person reads of *error*."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return str(Interrupted())
    if isinstance(error, OSError):
        return one_line(_of_system(error))
    if isinstance(error, ImportError) and (what := missing.sentence(error)):
        return one_line(what)
    return one_line(str(error) if of_error(error) is not None else f"{type(error).__name__}: {error}")


def _of_system(error: OSError) -> str:
    why = reason(error)
    if not error.filename:
        return f"What was found cannot be printed: {why}."
    if error.errno in NAMES:
        return f"{error.filename} cannot be the name of a file: {why}. Accepted: a shorter one."
    accepted = " Accepted: a place where you may write." if error.errno in NOT_ALLOWED else ""
    return f"{error.filename} cannot be used: {why}.{accepted}"


def one_line(text: str) -> str:
    """*text* without what would break its line, or do things to a terminal: names of files may hold anything."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda sign: " " if sign[0] == "\n" else repr(sign[0])[1:-1], text)


def failure(error: BaseException) -> dict[str, Any]:
    """The keys of a failure document that tell of *error*."""
    stage = {STOPPED: "cancelled", REFUSED: "refused"}.get(of_error(error) or FAILED, "lost")
    return {"outcome": "failure", "stage": stage, "message": sentence(error)}
