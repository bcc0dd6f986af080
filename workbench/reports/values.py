"""A plain value as a person reads it: the end of its key says its unit, the table of labels says its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kernels.units import bytes_text, rate_text, seconds_text

NOTHING = "–"
"""What stands where a key does not apply."""

LABELS = {
    "run": "Run",
    "started_at": "Started",
    "operator": "Operator",
    "idea": "In words",
    "dtype": "Number format",
    "world": "Ranks",
    "backend": "Backend",
    "machine": "Machine",
    "gpus": "GPU of each rank",
    "fabric": "Fabric",
    "part": "Part",
    "protocol": "Protocol",
    "guess_s": "The guess",
    "floor_s": "Floor",
    "compute_s": "Compute alone",
    "comm_s": "Communication alone",
    "sequential_s": "Sequential",
    "wire_bytes_per_rank": "Bytes on the wire, per rank",
    "skew_s": "Skew",
    "samples": "Samples",
    "max_relative_error": "Largest error",
    "cores": "Cores",
    "git_commit": "Commit",
    "cpu": "CPU",
    "gpu": "GPU",
}
"""Names for keys that do not read well by themselves."""

_FORMATS = (
    ("_bytes_per_second", rate_text),
    ("_bytes", bytes_text),
    ("_bytes_per_rank", bytes_text),
    ("_seconds", seconds_text),
    ("_s", seconds_text),
    ("_error", lambda error: f"{error:.1e}"),
    ("_at", lambda at: datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M %Z")),
)
_MARKDOWN = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=^)[#+>-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")
"""Characters that mean something to Markdown where they stand; an underscore inside a word does not."""


def label(key: str) -> str:
    """The name of *key* for people: `cpu_model` is `Cpu model`, unless the table knows better."""
    if key in LABELS:
        return LABELS[key]
    words = next((key.removesuffix(end) for end, _ in _FORMATS if key.endswith(end)), key).replace("_", " ")
    return words[:1].upper() + words[1:]


def value_text(key: str, value: Any) -> str:
    """*value* of *key* with its unit: `value_text("skew_s", 0.0012)` is `1.2 ms`."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(_entry_text(str(name), entry) for name, entry in value.items() if entry is not None)
    if isinstance(value, list | tuple):
        separator = " × " if value and all(isinstance(entry, int) for entry in value) else ", "
        return separator.join(value_text(key, entry) for entry in value)
    if isinstance(value, int | float):
        written = _format(key)
        return written(value) if written else f"{value:.4g}" if isinstance(value, float) else str(value)
    return str(value)


def _format(key: str) -> Callable[[float], str] | None:
    """How a number whose key ends in a unit is written."""
    return next((written for end, written in _FORMATS if key.endswith(end)), None)


def _entry_text(name: str, value: Any) -> str:
    """One entry of a mapping: its name goes without saying, its unit stands for `=`, an axis stays as it is typed."""
    if name in ("name", "kind"):
        return value_text(name, value)
    return (
        f"{label(name).lower()} {value_text(name, value)}" if _format(name) else f"{name} = {value_text(name, value)}"
    )


def one_line(value: object) -> str:
    """*value* as text without line breaks, which would end a heading or a table row."""
    return " ".join(str(value).split())


def markdown_text(value: object) -> str:
    """*value* so that Markdown shows exactly these characters: no emphasis, no link, no element, no formula."""
    text = one_line(value).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\g<0>", text)
