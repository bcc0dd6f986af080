"""The pinned baseline: the button that pins the selected row, and the charts and tables that show differences to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workbench.results.rows import Row
from workbench.widgets.exploration import Exploration, Explored, PinBaseline, Scene, estimate_row

NOTHING_TO_PIN = "No row is selected: 0 of 1. Accepted: click a mark, a line of the table or a cell first."

Pin = Callable[[Row | None, Sequence[Row]], Any]
"""Takes the baseline, if there is one, with the rows that may have a sequential schedule in common with it; ValueError
where the baseline has no time."""


class BaselineKeeper:
    """Pins and unpins, and calls *pins*, charts and tables of a run, whenever the pinned row is another one.

    A pinned estimate is that of the form's question, whatever that becomes. *named* hears whether a row is pinned,
    *refuse* what cannot be.
    """

    def __init__(
        self,
        explored: Explored,
        scene: Callable[[], Scene],
        pins: Sequence[Pin],
        named: Callable[[bool], Any],
        refuse: Callable[[str], Any],
    ) -> None:
        self._explored, self._scene, self._pins, self._named, self._refuse = explored, scene, pins, named, refuse
        self._estimate: Row | None = None
        """The pinned estimate that charts and tables have."""
        explored.on_change(self._changed)

    def toggle(self) -> None:
        """Pins the selected row as the baseline, or unpins what was one."""
        state = self._explored.state
        if state.baseline is None and self._scene().selected is None:
            self._refuse(NOTHING_TO_PIN)
            return
        self._explored.dispatch(PinBaseline(None if state.baseline is not None else state.selected))

    def follow(self) -> None:
        """Takes the form's new question, whose estimate of the pinned schedule may be another one."""
        is_estimate = estimate_row(self._explored.state.baseline) is not None
        if is_estimate and self._scene().baseline != self._estimate:
            self._tell()

    def _changed(self, before: Exploration, after: Exploration) -> None:
        if before.baseline != after.baseline or before.runs != after.runs:
            self._tell()

    def _tell(self) -> None:
        """Shows differences to the baseline in all charts and tables; a row without a time is refused."""
        scene = self._scene()
        self._estimate = scene.baseline
        self._named(scene.state.baseline is not None)
        try:
            for pin in self._pins:
                pin(scene.baseline, scene.rows)
        except ValueError as refused:
            self._refuse(str(refused))
            self._explored.dispatch(PinBaseline(None))
