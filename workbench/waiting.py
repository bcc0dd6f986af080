"""How long one waits for ranks by now, and for whom: news of a run before its clock starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Waiting:
    """For a grant; for nobody any more where *world* is 0."""

    world: int = 0
    seconds: float = 0.0
    why: str = ""

    @classmethod
    def heard(cls, event: Mapping[str, Any]) -> Waiting:
        """What a cluster's `waiting` event says; the one that says nothing ends the wait."""
        return cls(event["world"], event["seconds"], event["why"]) if event["why"] else cls()

    def __str__(self) -> str:
        if not self.world:
            return ""
        ranks = f"{self.world} ranks" if self.world > 1 else "1 rank"
        return f"waiting for {ranks} for {self.seconds:.0f} s ({self.why})"
