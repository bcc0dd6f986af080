"""The charts of a run follow the page's state: what filters keep, what is selected, the scale of time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from workbench.widgets.exploration import Exploration, Explored, ScaleTime, Scene
from workbench.widgets.latest import Latest
from workbench.widgets.panels import Panels

PAUSE_SECONDS = 0.2
"""Least time between redraws of what filters keep, longer where one takes longer: a brush that is dragged changes it
at every pixel."""
_LOG = logging.getLogger(__name__)


class ChartsFollow:
    """Listens to *explored*, and draws *panels* with *lock* held; `keep` when there are other rows."""

    def __init__(self, explored: Explored, panels: Panels, scene: Callable[[], Scene], lock: threading.RLock) -> None:
        self._explored, self._panels, self._scene, self._lock = explored, panels, scene, lock
        self._later = Latest("filtered charts", _LOG.error)
        self._kept: frozenset[str] | None = None
        """The names of the rows that charts draw; None where all are."""
        self._filters = explored.state.filters
        """Those that charts are drawn by."""
        self._free_at = 0.0
        """When `time.monotonic()` allows another redraw."""
        self._is_waiting = False
        explored.on_change(self._changed)
        panels.scale.observe(self._scaled, "value")

    def keep(self) -> None:
        """Draws what the filters keep now, or soon where it was just drawn."""
        with self._lock:
            if self._is_waiting or (self._kept is None and not self._explored.state.filters.active):
                return
            pause = self._free_at - time.monotonic()
            if pause <= 0:
                self._draw()
            else:
                self._is_waiting = True
                self._later.ask(object(), lambda: None, lambda _: self._draw(), pause)

    def close(self) -> None:
        """Ends the thread."""
        self._later.close()

    def _draw(self) -> None:
        with self._lock:
            self._is_waiting, began = False, time.monotonic()
            names = self._scene().kept_names
            filters = self._explored.state.filters
            if names != self._kept:
                self._kept = names
                self._panels.keep(names)
                if filters == self._filters:
                    self._panels.landscape.draw()
            if filters != self._filters:
                self._filters = filters
                self._panels.landscape.forget()  # its estimates are filtered, too
            ended = time.monotonic()
            self._free_at = ended + max(PAUSE_SECONDS, ended - began)

    def _changed(self, before: Exploration, after: Exploration) -> None:
        # of several events in each other the outer ones come last: what is drawn is the state, not *after*
        state = self._explored.state
        if before.filters != after.filters:
            self.keep()
        with self._lock:
            if before.scale != after.scale:
                self._panels.take_scale(state.scale)
            if before.selected != after.selected or before.runs != after.runs:
                self._panels.mark(self._scene().selected)

    def _scaled(self, change: dict[str, Any]) -> None:
        self._explored.dispatch(ScaleTime(change["new"]))
