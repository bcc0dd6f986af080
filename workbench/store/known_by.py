"""What makes a trial known, as columns of the store: who ran it, with which libraries, on what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernels.hardware import Hardware
from kernels.outcome import Measurement, Outcome
from kernels.prints import Ran

if TYPE_CHECKING:
    import sqlite3

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


def fields(entry: Mapping[str, Any] | sqlite3.Row) -> dict[str, Any]:
    """The fields of a Measurement that were written down so."""
    hardware = Hardware.from_json(json.loads(entry["hardware"])) if entry["hardware"] else None
    prints = {"source_print": entry["source_print"], "versions_print": entry["versions_print"]}
    return {**prints, "hardware": hardware}
