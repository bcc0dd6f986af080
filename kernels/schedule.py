"""A Schedule is a scheme and a value for each of its axes; a Refusal is the sentence that says why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An Axis is one knob of a scheme with its legal values, default and one sentence for people.

Value = int | str


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob. `values` are those legal for the problem and machine it was made for."""

    name: str
    values: tuple[Value, ...]
    """What widgets and sweeps offer, in order."""
    default: Value
    doc: str
    """One sentence for people."""
    open: bool = False
    """True when values between those listed are legal, too (a tile size, a number of pieces)."""

    def refusal(self, value: Value) -> str | None:
        """Why *value* cannot be taken, in three parts, or None."""
        if value in self.values:
            return None
        if self.open:
            return None if _same_form(value, self.default) else self._sentence(value)
        return self._sentence(value)

    def _sentence(self, value: Value) -> str:
        offered = ", ".join(str(v) for v in self.values)
        rule = "has the wrong form" if self.open else "is not a legal value here"
        accepted = f"values such as {offered}" if self.open else offered
        return f"{self.name} = {value} {rule}. {self.doc} Accepted: {accepted}."

    def parse(self, text: str) -> Value:
        """*text* from a command line as this axis's kind of value."""
        if isinstance(self.default, int) and re.fullmatch(r"-?\d{1,18}", text):
            return int(text)
        return text


def _same_form(value: Value, default: Value) -> bool:
    if isinstance(default, int):
        return isinstance(value, int) and value >= 1
    return isinstance(value, str) and is_tile(value) == is_tile(default)


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows, columns and contraction computed at once: block_m x block_n x block_k."""

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


# A Schedule is a scheme and a value for each of its axes; a Refusal is the sentence that says why not.

UNNAMED: Mapping[str, Mapping[str, Value]] = {
    "sequential": {"kernel": "library"},
    "fused": {"load_hint": "normal", "store_hint": "normal"},
}
"""By scheme, axes that came after schedules of it had been stored, with the value that all of those have.

No schedule names that value, so that a trial that was stored before the axis has the same key as one that asks for it
today. It is no default: what is taken where nothing is stated may change, this may not.
"""


class Refusal(ValueError):
    """What was asked, which rule it breaks with both numbers, what would be accepted: one sentence for people."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a problem is computed. Complete ones (every axis has a value) come from `kernels.schemes.schedule`."""

    scheme: str
    axes: tuple[tuple[str, Value], ...] = ()
    """Axis name and value, in the scheme's order, without what UNNAMED says."""

    def __post_init__(self) -> None:
        if not (unnamed := UNNAMED.get(self.scheme)):
            return
        named = tuple((name, value) for name, value in self.axes if unnamed.get(name) != value)
        object.__setattr__(self, "axes", named)

    def __getitem__(self, axis: str) -> Value:
        """The value of *axis*, named or not; KeyError where the scheme has none."""
        for name, value in self.axes:
            if name == axis:
                return value
        return UNNAMED.get(self.scheme, {})[axis]

    def count(self, axis: str) -> int:
        """The value of an axis that is a number."""
        value = self[axis]
        assert isinstance(value, int), f"{axis} = {value!r} is not a number"
        return value

    def get(self, axis: str, default: Value | None = None) -> Value | None:
        """The same, or *default* where the scheme has no such axis."""
        for name, value in self.axes:
            if name == axis:
                return value
        return UNNAMED.get(self.scheme, {}).get(axis, default)

    def __str__(self) -> str:
        return f"{self.scheme}({', '.join(f'{name}={value}' for name, value in self.axes)})"

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "axes": dict(self.axes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        return cls(data["scheme"], tuple(data["axes"].items()))
