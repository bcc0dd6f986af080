"""What makes a trial known, as columns of the store: who ran it, with which libraries, on what."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kernels.outcome import Measurement, Outcome
from kernels.prints import Ran

CONDITION = "source_print IN (SELECT value FROM json_each(?)) AND versions_print = ? AND hardware = ?"
SAME_SOURCES: Mapping[str, tuple[str, ...]] = {}
"""By source print, older ones of the same kernels under other names and in other files: what they timed is known."""


def same_source(source_print: str) -> tuple[str, ...]:
    """*source_print* and the older ones that are equal to it."""
    return source_print, *SAME_SOURCES.get(source_print, ())


def values(ran: Ran) -> tuple[str, str, str]:
    """What CONDITION compares with."""
    return json.dumps(same_source(ran.source_print)), ran.versions_print, ran.hardware.text


def columns(outcome: Outcome) -> tuple[str | None, str | None, str | None]:
    """The same of *outcome*, to be written down; None where nobody said, and of what did not run."""
    if not isinstance(outcome, Measurement):
        return None, None, None
    hardware = None if outcome.hardware is None else outcome.hardware.text
    return outcome.source_print, outcome.versions_print, hardware
