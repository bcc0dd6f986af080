"""What tells one problem from another, for people: operator, sizes, ranks, machine, link."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kernels.protocol import protocol_words
from workbench.charts.words import Row, link_words
from workbench.naming import operator_title
from workbench.one_problem import Key


def problem_titles(of: Mapping[Key, Row]) -> dict[Key, str]:
    """For each key one row of whose problem is given: what tells that problem from the others. Of one: its sizes."""
    words_of = {key: {name: words(row) for name, words in _WORDS.items()} for key, row in of.items()}
    differing = [name for name in _WORDS if len({words[name] for words in words_of.values()}) > 1] or ["shape"]
    return {key: ", ".join(filter(None, (words[name] for name in differing))) for key, words in words_of.items()}


def _sizes(row: Row) -> str:
    shape = row.get("shape") or {}
    sizes = json.loads(shape) if isinstance(shape, str) else shape
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


_WORDS: Mapping[str, Callable[[Row], Any]] = {
    "operator": lambda row: operator_title(row.get("operator")),
    "shape": _sizes,
    "dtype": lambda row: str(row.get("dtype") or ""),
    "world": lambda row: f"{row.get('world')} ranks",
    "machine": lambda row: str(row.get("machine") or ""),
    "fabric": lambda row: link_words(row.get("fabric")),
    "protocol": lambda row: protocol_words(row.get("protocol"), row.get("backend")),
}
