"""What the ranks of one gang answered, kept in the scheduler for others who ask the same: measured once, and shared.

Only a workshop keeps answers (`cluster/workshop`). Events are the ranks' own, as they pass through the scheduler, so
the class board takes its best times from here. A program can log events as if it were a rank, since whoever is in the
cluster may run anything there (docs/security.md): a best time is as honest as the class is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kernels.events import RankEvent
from kernels.outcome import Gather, Measurement
from kernels.trial import Trial

EVENTS_MOST = 200_000
"""Events of all answers that are kept, some 100 MB; the oldest answers go first."""
SHARED = "shared"
"""Key in a measurement's facts that says that it was measured for another client."""
NO_SESSION = ""
"""The session of a grant without ranks: the events of others' ranks follow it."""
_UNSHARED = ("failure", "broken", "gone")
"""Kinds of events after which an answer is for its own client only: another one may have better luck."""


def list_print(keys: Iterable[str], *needs: Any) -> str:
    """Text that is equal for equal lists of trials with equal needs of their ranks."""
    return hashlib.sha256(repr((list(keys), needs)).encode()).hexdigest()[:32]


@dataclass(slots=True)
class SharedAnswer:
    """All that the ranks of one grant said about its list of trials."""

    places: list[dict[str, Any]]
    """The ranks' places, as in the grant."""
    events: list[RankEvent] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    """Ranks that came to the end of the list."""
    is_whole: bool = True
    """Whether nothing broke or failed in it."""

    def take(self, events: Iterable[Any]) -> None:
        """Keep *events* of its ranks."""
        for event in events:
            kind, rank = event["kind"], event.get("rank")
            if rank is None or kind == "rendezvous":
                continue
            self.is_whole &= kind not in _UNSHARED
            if kind == "done":
                self.done.add(rank)
            self.events.append(event)

    @property
    def is_complete(self) -> bool:
        return self.is_whole and len(self.done) == len(self.places)


class SharedAnswers:
    """Answers by the name of their list: those that gangs are giving now, and those that are whole."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[str, SharedAnswer]] = {}
        """By client and stream: the name of the list, and what was heard so far."""
        self._whole: dict[str, SharedAnswer] = {}
        self.num_measured = 0
        """Lists that gangs measured to the end."""
        self.num_shared = 0
        """Lists that were answered without a gang."""

    def begin(self, client: str, stream: str, name: str, places: list[dict[str, Any]]) -> None:
        """A gang begins to answer the list *name* for *client*."""
        self._open[client, stream] = name, SharedAnswer(places)

    def take(self, client: str, stream: str, events: Iterable[Any]) -> None:
        """Hear *events* of a stream, if it is one of these."""
        if (entry := self._open.get((client, stream))) is not None:
            entry[1].take(events)

    def end(self, client: str, stream: str) -> str | None:
        """The stream has ended: the name of its list, if others can have the answer."""
        name, answer = self._open.pop((client, stream), (None, None))
        if name is None or answer is None or not answer.is_complete:
            return None
        self.num_measured += 1
        self._whole[name] = answer
        while sum(len(each.events) for each in self._whole.values()) > EVENTS_MOST and len(self._whole) > 1:
            self._whole.pop(next(iter(self._whole)))
        return name

    def forget(self, client: str) -> None:
        """The client is gone: nobody will end its streams."""
        for key in [key for key in self._open if key[0] == client]:
            del self._open[key]

    def answer(self, name: str | None) -> SharedAnswer | None:
        """The whole answer to the list *name*, if there is one."""
        return self._whole.get(name) if name is not None else None

    def verified(self, trial: Trial) -> Measurement | None:
        """The fastest measurement of *trial* that ranks of this cluster made and found right; None if there is none."""
        measured = []
        for answer in self._whole.values():
            gather = Gather(trial)
            of_trial = (event for event in answer.events if event.get("trial") == trial.key)
            outcomes = [gather.feed(event) for event in of_trial]  # type: ignore[arg-type]
            measured += [each for each in outcomes if isinstance(each, Measurement) and each.correct]
        return min(measured, key=lambda each: each.time_s, default=None)
