"""A Schedule is a scheme and a value for each of its axes; a Refusal is the sentence that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.axes import Value


class Refusal(ValueError):
    """What was asked, which rule it breaks with both numbers, what would be accepted: one sentence for people."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a problem is computed. Complete ones (every axis has a value) come from `kernels.schemes.schedule`."""

    scheme: str
    axes: tuple[tuple[str, Value], ...] = ()
    """Axis name and value, in the scheme's order."""

    def __getitem__(self, axis: str) -> Value:
        return dict(self.axes)[axis]

    def count(self, axis: str) -> int:
        """The value of an axis that is a number."""
        value = self[axis]
        assert isinstance(value, int), f"{axis} = {value!r} is not a number"
        return value

    def get(self, axis: str, default: Value | None = None) -> Value | None:
        return dict(self.axes).get(axis, default)

    def __str__(self) -> str:
        return f"{self.scheme}({', '.join(f'{name}={value}' for name, value in self.axes)})"

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "axes": dict(self.axes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        return cls(data["scheme"], tuple(data["axes"].items()))
