"""A Schedule is a scheme and a value for each of its axes; an Axis lists legal values; a Refusal says what is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Axes and tiles.

Value = int | str


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter of a scheme, with its legal values for one problem and machine."""

    name: str
    values: tuple[Value, ...]
    """Values that widgets and sweeps offer, in order."""
    default: Value
    doc: str
    """One sentence for people."""
    open: bool = False
    """Whether values between those listed are legal, too (a tile size, a number of pieces)."""
    unoffered: tuple[Value, ...] = ()
    """Further values that may be asked for by name, although no form or sweep offers them."""

    def refusal(self, value: Value) -> str | None:
        """Why *value* is illegal (the value, the rule, what is accepted), or None."""
        if value in self.values or value in self.unoffered or (self.open and _same_form(value, self.default)):
            return None
        offered = ", ".join(str(v) for v in self.values)
        rule = "has the wrong form" if self.open else "is not a legal value here"
        accepted = f"values such as {offered}" if self.open else offered
        return f"{self.name} = {value} {rule}. {self.doc} Accepted: {accepted}."

    def parse(self, text: str) -> Value:
        """*text* from a command line as a value of this axis's type."""
        if isinstance(self.default, int) and re.fullmatch(r"-?\d{1,18}", text):
            return int(text)
        return text


def _same_form(value: Value, default: Value) -> bool:
    if isinstance(default, int):
        return isinstance(value, int) and value >= 1
    return isinstance(value, str) and is_tile(value) == is_tile(default)


@dataclass(frozen=True, slots=True)
class Tile:
    """The rows, columns and contraction that are computed at once: block_m x block_n x block_k."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def is_tile(text: object) -> bool:
    """Whether *text* is written like `128x256x64` with positive sizes."""
    return isinstance(text, str) and re.fullmatch(r"[1-9]\d{0,8}x[1-9]\d{0,8}x[1-9]\d{0,8}", text) is not None


def tile(text: object) -> Tile:
    """The Tile written as *text*, `128x256x64`; ValueError names the form."""
    if not is_tile(text):
        raise ValueError(
            f"tile = {text} is not a tile. A tile is rows x columns x contraction. Accepted: values such as 128x256x64."
        )
    m, n, k = (int(part) for part in str(text).split("x"))
    return Tile(m, n, k)


# Schedules.

OMITTED_DEFAULTS: Mapping[str, Mapping[str, Value]] = {
    "sequential": {"kernel": "library"},
    "fused": {"load_hint": "normal", "store_hint": "normal", "split_k": 1, "transport": "peer", "ranks_per_host": 1},
}
"""Axes that were added to a scheme after schedules of it had been stored, with the value that all of those have.

Schedules omit that value, so that a trial has the same key whether it was stored before or after the axis was added.
The default of the axis may change; this value may not.
"""


class Refusal(ValueError):
    """Raised where a request breaks a rule; the message names the rule, both numbers, and what is accepted."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a problem is computed. Complete ones (every axis has a value) come from `kernels.schemes.schedule`."""

    scheme: str
    axes: tuple[tuple[str, Value], ...] = ()
    """Names and values of axes in the scheme's order, without the values of OMITTED_DEFAULTS."""

    def __post_init__(self) -> None:
        if not (omitted := OMITTED_DEFAULTS.get(self.scheme)):
            return
        kept = tuple((name, value) for name, value in self.axes if omitted.get(name) != value)
        object.__setattr__(self, "axes", kept)

    def __getitem__(self, axis: str) -> Value:
        """The value of *axis*, omitted or not; KeyError where the scheme has no such axis."""
        for name, value in self.axes:
            if name == axis:
                return value
        return OMITTED_DEFAULTS.get(self.scheme, {})[axis]

    def count(self, axis: str) -> int:
        """The value of *axis*, which is a number."""
        value = self[axis]
        assert isinstance(value, int), f"{axis} = {value!r} is not a number"
        return value

    def get(self, axis: str, default: Value | None = None) -> Value | None:
        """The value of *axis*, or *default* where the scheme has no such axis."""
        for name, value in self.axes:
            if name == axis:
                return value
        return OMITTED_DEFAULTS.get(self.scheme, {}).get(axis, default)

    def __str__(self) -> str:
        return f"{self.scheme}({', '.join(f'{name}={value}' for name, value in self.axes)})"

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "axes": dict(self.axes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        return cls(data["scheme"], tuple(data["axes"].items()))
