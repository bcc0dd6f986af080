"""The file of bounds from the recordings: `python -m tests.gpu.bounds [anew]`.

By machine, operator and scheme the largest error in any recording, with a tenth of slack. A bound that is there already
only falls, unless one asks for all of them anew: after recordings were replaced, with a reason in
docs/results/history.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from workbench import machines
from workbench.analysis.accuracy import ERRORS, NAMES, accuracy, bounds, validate_recordings
from workbench.resources import data_directory
from workbench.results import recordings

SLACK = 1.1
HEAD = """# The most that errors of estimates may be, by machine, operator and scheme: of whole trials of a recording.
# `workbench validate` ends with status 1 beyond them. `python -m tests.gpu.bounds` lowers them; nothing raises them.
"""


def largest(names: Iterable[str]) -> dict[tuple[str, ...], dict[str, float]]:
    """By kind the largest of each error over recordings *names*, with slack, in steps of half a per cent."""
    most: dict[tuple[str, ...], dict[str, float]] = {}
    for name in names:
        rows, _ = validate_recordings([name])
        for kind in accuracy(rows):
            if machines.shipped_machine(kind["machine"]).backend == "cpu":
                continue  # every laptop is calibrated for itself
            errors = most.setdefault(tuple(kind[part] for part in NAMES), dict.fromkeys(ERRORS, 0.0))
            for error in ERRORS:
                errors[error] = max(errors[error], ceil(SLACK * kind[error] * 200) / 200)
    return most


def lowered(most: dict[tuple[str, ...], dict[str, float]], known: Iterable[Mapping[str, Any]]) -> None:
    """Takes the lower number of *known* and *most*."""
    for entry in known:
        kind = tuple(entry[name] for name in NAMES)
        if kind in most:
            most[kind] = {error: min(most[kind][error], entry[error]) for error in ERRORS}


def text(most: Mapping[tuple[str, ...], Mapping[str, float]]) -> str:
    """The file."""
    tables = []
    for kind, errors in sorted(most.items()):
        names = [f'{name} = "{value}"' for name, value in zip(NAMES, kind, strict=True)]
        tables.append("\n".join(["", "[[bound]]", *names, *(f"{error} = {errors[error]:g}" for error in ERRORS)]))
    return HEAD + "\n".join(tables) + "\n"


def main() -> None:
    path = data_directory() / "checks" / "estimates.toml"
    most = largest(recordings.paths())
    if "anew" not in sys.argv[1:] and path.exists():
        lowered(most, bounds(path))
    path.write_text(text(most))


if __name__ == "__main__":
    main()
