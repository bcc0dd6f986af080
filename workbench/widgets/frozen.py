"""The last run, frozen into the cell's output: it is there when the notebook is opened, printed or exported.

A live chart needs a kernel; what is written here does not. It is drawn from the store, and never measured again.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import DisplayHandle
from markupsafe import Markup

from workbench.reports.bundle import PICTURE, bundle
from workbench.reports.stored import charts
from workbench.store import Store

PLACES = 3
"""Charts that a frozen run shows at the most."""
NOTHING: list[dict[str, Any]] = [{"text/plain": ""}] * PLACES
PAUSE_SECONDS = 3.0
"""A page that opens is busy for so long: pictures that can wait do."""


class Frozen:
    """Places in a cell's output that are filled when a run has ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handles = [DisplayHandle() for _ in range(PLACES)]
        self.can_wait = False
        """Somebody will see the pictures come; a notebook that is run for a report ends with its last cell."""
        self._shown = False
        self._drawn: tuple[tuple[str | None, int], list[dict[str, Any]]] = (None, 0), NOTHING
        """Which run was drawn last and how many rows it had, and its pictures."""
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        """Pictures are awaited, or no more. Held for moments, never while drawing."""
        self._awaited: str | None = None
        """The run whose pictures are still to be drawn."""
        self._due = 0.0

    def show(self, run: str | None) -> None:
        """Makes the places in this cell, with *run*, which has ended, in them if there is one.

        A page that is loaded anew shows them once more, and they are filled wherever they are shown.
        """
        self._shown = True
        later = self.can_wait and run != self._drawn[0][0]
        for number, content in enumerate(NOTHING if later else self._contents(run)):
            self._handles[number].display(content, raw=True, metadata=_metadata(run, number))
        if later and run is not None:
            self.freeze_soon(run, PAUSE_SECONDS)

    def freeze(self, run: str) -> None:
        """Fills the places with *run*; called from any thread. An explorer that is not shown has none."""
        if self._shown:
            for number, content in enumerate(self._contents(run)):
                self._handles[number].update(content, raw=True, metadata=_metadata(run, number))

    def freeze_soon(self, run: str, pause_s: float = 0.0) -> None:
        """The same in the background: three pictures are drawn, which takes a second."""
        with self._news:
            self._awaited, self._due = run, time.monotonic() + pause_s
            self._news.notify_all()
            if not self.busy:
                self._thread = threading.Thread(target=self._draw_awaited, name="workbench freeze", daemon=True)
                self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether pictures are still being drawn."""
        return self._thread is not None and self._thread.is_alive()

    def _draw_awaited(self) -> None:
        """One thread draws, however often it is asked to: what is asked while it waits or draws comes next."""
        while True:
            with self._news:
                while self._awaited is not None and (pause_s := self._due - time.monotonic()) > 0:
                    self._news.wait(pause_s)
                run, self._awaited = self._awaited, None
                if run is None:
                    self._thread = None
                    return
            self.freeze(run)

    def begin(self) -> None:
        """Another run goes on: pictures of the one before would disturb it."""
        self.close()

    def close(self) -> None:
        """What is not drawn yet is drawn no more."""
        with self._news:
            self._awaited = None
            self._news.notify_all()

    def _contents(self, run: str | None) -> list[dict[str, Any]]:
        rows = [] if run is None else self._store.rows(run)
        if self._drawn[0] != (run, len(rows)):
            self._drawn = (run, len(rows)), self._pictures(run or "", rows)
        return self._drawn[1]

    def _pictures(self, run: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        drawn = charts(self._store, run, rows)
        bundles = [dict(bundle(chart)) for _, chart in drawn[:PLACES]]
        for number, content in enumerate(bundles):
            content["text/html"] = _folded(bundles, run) if number == 0 else ""
        return [*bundles, *NOTHING[len(bundles) :]]


def _metadata(run: str | None, place: int) -> dict[str, Any]:
    return {"workbench": {"run": run, "place": place}}


def _folded(bundles: list[dict[str, Any]], run: str) -> str:
    """A live notebook shows the explorer above, so the copies are folded away there; reports draw the charts."""
    pictures = [
        Markup('<img alt="{}" src="data:image/svg+xml;base64,{}"><br>').format(
            content["text/plain"], base64.b64encode(str(content[PICTURE]).encode()).decode()
        )
        for content in bundles
    ]
    folded = "<details><summary>Kept in this notebook: run {}</summary>{}</details>"
    return str(Markup(folded).format(run, Markup("").join(pictures)))
