"""How a command ends: the one home of exit statuses, and of the document that stands where there is no other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from kernels.failed import Failed

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 130
"""All was done; something failed; it cannot be asked, and asked again it never can; a person stopped it."""

NO_FAILURE = ("refused", "cancelled")
"""Stages of outcomes that are no failures: a combination that cannot be is a row, what was stopped is told once."""


class Stopped(Exception):
    """A person's Ctrl-C, by a name that typer does not take for its own."""

    def __init__(self, sentence: str = "Stopped.") -> None:
        super().__init__(sentence)


def of_error(error: BaseException) -> int | None:
    """The status of a command that ended with *error*; None where nobody has a sentence for it, and its trace has."""
    match error:
        case KeyboardInterrupt() | Stopped() | typer.Abort():
            return STOPPED
        case Failed() | OSError():
            return FAILED
        case ValueError():
            return REFUSED
    return None


def of_rows(rows: Iterable[Mapping[str, Any]]) -> int:
    """The status of a command whose outcomes are *rows*: refused only where all of them are."""
    stages = [row["stage"] if row["outcome"] == "failure" else None for row in rows]
    if any(stage is not None and stage not in NO_FAILURE for stage in stages) or not stages:
        return FAILED
    return REFUSED if all(stage == "refused" for stage in stages) else DONE


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
        return str(Stopped())
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"{reason}: {error.filename}" if error.filename else f"What was found cannot be printed: {reason}."
    return str(error) if of_error(error) is not None else f"{type(error).__name__}: {error}"


def failure(error: BaseException) -> dict[str, Any]:
    """The keys of a failure document that tell of *error*."""
    stage = {STOPPED: "cancelled", REFUSED: "refused"}.get(of_error(error) or FAILED, "lost")
    return {"outcome": "failure", "stage": stage, "message": sentence(error)}
