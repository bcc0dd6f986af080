"""What makes a trial known, as columns of the store: who ran it, with which libraries, on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.outcome import Measurement, Outcome
from kernels.prints import Ran

if TYPE_CHECKING:
    pass

CONDITION = "source_print = ? AND versions_print = ? AND hardware = ?"


def values(ran: Ran) -> tuple[str, str, str]:
    """What CONDITION compares with."""
    return ran.source_print, ran.versions_print, ran.hardware.text


def columns(outcome: Outcome) -> tuple[str | None, str | None, str | None]:
    """The same of *outcome*, to be written down; None where nobody said, and of what did not run."""
    if not isinstance(outcome, Measurement):
        return None, None, None
    hardware = None if outcome.hardware is None else outcome.hardware.text
    return outcome.source_print, outcome.versions_print, hardware
