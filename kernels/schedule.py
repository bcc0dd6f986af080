"""A Schedule is a scheme and a value for each of its axes; a Refusal is the sentence that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.axes import Value

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
