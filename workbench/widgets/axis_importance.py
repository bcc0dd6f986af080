"""How much each axis matters, next to it on the left: by what was timed, else by estimates of the form's space."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from workbench.analysis.importance import by_axis, importance, remembered_importance
from workbench.experiment.estimated_space import SpaceQuestion
from workbench.naming import TIMED
from workbench.results.rows import Row
from workbench.widgets.form_fields import AxisRows
from workbench.widgets.latest import Latest

PAUSE_S = 1.0
"""The estimates of a space take up to a second: they wait until a person rests."""


class AxisImportance:
    """Shows next to each axis of *axes* the share of the variance of log time that it explains.

    Where nothing is known by what was timed, estimates say it, in a thread, and are marked as such.
    """

    def __init__(self, axes: AxisRows) -> None:
        self._axes = axes
        self._timed: tuple[Hashable, Mapping[str, float]] = ((), {})
        """What was timed of the form's scheme when it was read last, and its shares."""
        self._scheme = ""
        self.work = Latest("importance of axes", self._forget)

    def hold(self) -> None:
        """Nothing is estimated from now on, until `follow` says what: the page is drawn first."""
        self.work.forget()

    def follow(self, rows: Sequence[Row], scheme: str, space: SpaceQuestion | None) -> None:
        """Shows how much the axes of *scheme* matter by the *rows* of the form's problem that were timed, or else by
        the estimates of *space*; returns at once."""
        timed = [row for row in rows if row["scheme"] == scheme and row["source"] in TIMED]
        of = scheme, tuple((row.get("run"), row["key"], row.get("block"), row["time_s"]) for row in timed)
        if of != self._timed[0]:
            self._timed = of, by_axis(importance(timed)) if timed else {}
        if scheme != self._scheme:  # another scheme's shares are not those of this one until it is estimated
            self._scheme = scheme
            self._axes.show_importance({})
        if shares := self._timed[1]:
            self.work.forget()
            self._axes.show_importance(shares)
        elif space is None:
            self.work.forget()
            self._axes.show_importance({})
        else:
            self.work.ask((scheme, space.place), lambda: self._estimated(scheme, space), self._show,
                          PAUSE_S)  # fmt: skip

    def close(self) -> None:
        """Ends the thread."""
        self.work.close()

    def _estimated(self, scheme: str, space: SpaceQuestion) -> Mapping[str, float]:
        return by_axis(remembered_importance(space.question.problem(), scheme, space.machine, space.fabric))

    def _show(self, shares: Mapping[str, float]) -> None:
        self._axes.show_importance(shares, estimated=True)

    def _forget(self, _: str) -> None:
        """There are no estimates: the form says why."""
        self._axes.show_importance({})
