"""The papers beside ours: each published number that can be asked here, with what this workbench says of it.

Nothing is typed in: recorded values are formed from `data/recordings` whenever somebody asks, estimates are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from workbench.claims import across, cached, finer, recorded
from workbench.claims.answers import Answer, Ours
from workbench.published import Published, published

Book = Mapping[str, Sequence[Mapping[str, Any]]]
Way = Callable[[Published], Ours]


class Ask:
    """The ways to answer, over recordings that are read once."""

    def __init__(self) -> None:
        self._book = cache(recorded.gpu_rows)
        self.ways: Mapping[str, Way] = {
            **across.WAYS,
            **dict.fromkeys(("R03", "R04", "R05", "R07", "R08", "R09", "R10"), self._by(recorded.within_a_node)),
            "R20": self._by(finer.ideal), "R21": self._by(finer.schedules), "R23": finer.mesh,
            "R25": self._by(finer.losses), "R30": self._by(recorded.within_a_node), "R40": cached.studied,
            "R41": cached.best_static,
        }  # fmt: skip
        """By the id of a published number."""

    def _by(self, way: Callable[[Published, Book], Ours]) -> Way:
        return lambda reported: way(reported, self._book())


def answers(ids: Sequence[str] = ()) -> list[Answer]:
    """Ours beside each published number of *ids*, or beside all that can be asked here; ValueError lists them."""
    ways = Ask().ways
    wanted = [name.upper() for name in ids]
    known = [one.id for one in published() if one.id in ways]
    if unknown := [name for name in ids if name.upper() not in ways]:
        raise ValueError(f"{unknown[0]} is not among the {len(ways)} published numbers that we answer. Accepted: "
                         f"{', '.join(known)}.")  # fmt: skip
    chosen = [one for one in published() if one.id in (wanted or ways)]
    return [Answer(published=one, ours=ways[one.id](one)) for one in chosen]


def not_asked() -> list[Published]:
    """The published numbers that nothing here can be asked about."""
    ways = Ask().ways
    return [one for one in published() if one.id not in ways]
