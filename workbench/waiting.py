"""How long one waits for ranks by now, and for whom: news of a run before its clock starts."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.events import WaitingEvent


@dataclass(frozen=True, slots=True)
class Waiting:
    """For a grant; for nobody any more where *world* is 0."""

    world: int = 0
    seconds: float = 0.0
    why: str = ""
    most_s: float | None = None
    """Who is granted nothing within it gives up; None where nobody said."""

    @classmethod
    def heard(cls, event: WaitingEvent, most_s: float) -> Waiting:
        """What a cluster's `waiting` event says; the one that says nothing ends the wait. *most_s*: its limit."""
        return cls(event["world"], event["seconds"], event["why"], most_s) if event["why"] else cls()

    def __str__(self) -> str:
        if not self.world:
            return ""
        ranks = f"{self.world} ranks" if self.world > 1 else "1 rank"
        most = "" if self.most_s is None else f" of at most {self.most_s:.0f} s"
        return f"waiting for {ranks} for {self.seconds:.0f} s{most} ({self.why})"
