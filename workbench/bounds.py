"""Bounds of errors of estimates: a committed file says how large they may be, kind by kind; numbers in it only fall."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels import texts
from kernels.units import percent_text
from workbench.resources import data_directory

Row = Mapping[str, Any]

KIND = texts.TextKind("file of bounds", "bounds of errors of estimates", "a TOML file as data/checks/estimates.toml")
ERRORS = ("median", "p90", "weighted")
NAMES = ("machine", "operator", "scheme")


def bounds(path: Path | None = None) -> list[dict[str, Any]]:
    """The `[[bound]]` tables: a kind, and the most that each of its errors may be."""
    place = path or data_directory() / "checks" / "estimates.toml"
    content = texts.toml_of(texts.text(place, KIND), place, KIND).get("bound", [])
    for entry in content:
        if set(entry) != {*NAMES, *ERRORS} or not all(entry[name] >= 0 for name in ERRORS):
            raise KIND.unreadable(place, f"a bound has {', '.join(entry)}, and not {', '.join((*NAMES, *ERRORS))}")
    return list(content)


def broken(kinds: Iterable[Row], known: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """What of *kinds* (see `accuracy`) is larger than its bound; kinds without a bound break none."""
    by_kind = {tuple(entry[name] for name in NAMES): entry for entry in known}
    for kind in kinds:
        bound = by_kind.get(tuple(kind[name] for name in NAMES), {})
        for error in ERRORS:
            if error in bound and kind[error] > bound[error]:
                yield {**{name: kind[name] for name in NAMES}, "error": error, "is": kind[error], "bound": bound[error]}


def sentence(one: Row) -> str:
    """What a person reads of one broken bound."""
    error, most = percent_text(one["is"]), percent_text(one["bound"])
    return f"{one['operator']} {one['scheme']} on {one['machine']}: {one['error']} error {error}, accepted {most}"
