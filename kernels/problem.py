"""A Problem is an operator with its sizes, dtype and world: what to compute, whatever the schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.units import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class Problem:
    """An operator with sizes, dtype and world. Build it with `kernels.operators.problem`, which checks it."""

    operator: str
    """A name of `kernels.operators.OPERATORS`."""
    shape: tuple[tuple[str, int | str], ...]
    """Size by shape key, in the operator's order; `indices` is a name, all others are counts."""
    dtype: str
    """A name of `kernels.units.DTYPE_BYTES`."""
    world: int
    """Number of ranks."""

    def __getitem__(self, key: str) -> int:
        """The size called *key*, a count."""
        for name, value in self.shape:
            if name == key:
                assert isinstance(value, int), f"{key} is the name {value!r}, not a count"
                return value
        raise KeyError(key)

    def word(self, key: str) -> str:
        """The shape entry called *key*, a name such as `uniform`."""
        return str(dict(self.shape)[key])

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]

    def to_json(self) -> dict[str, Any]:
        return {"operator": self.operator, "shape": dict(self.shape), "dtype": self.dtype, "world": self.world}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        return cls(data["operator"], tuple(data["shape"].items()), data["dtype"], int(data["world"]))
