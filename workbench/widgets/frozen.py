"""The last run, frozen into the cell's output: it is there when the notebook is opened, printed or exported.

A live chart needs a kernel; what is written here does not. It is drawn from the store, and never measured again.
"""

from __future__ import annotations

import base64
import threading
from typing import Any

from IPython.display import display
from markupsafe import Markup

from workbench.reports.bundle import PICTURE, bundle
from workbench.reports.stored import charts
from workbench.store import Store

PLACES = 3
"""Charts that a frozen run shows at the most."""


class Frozen:
    """Places in a cell's output that are filled when a run has ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handles: list[Any] = []
        self._thread: threading.Thread | None = None

    def show(self, run: str | None) -> None:
        """Makes the places in this cell, with *run* in them if there is one."""
        for number, content in enumerate(self._contents(run)):
            metadata = {"workbench": {"run": run, "place": number}}
            self._handles.append(display(content, raw=True, display_id=True, metadata=metadata))

    def freeze(self, run: str) -> None:
        """Fills the places with *run*; called from any thread. An explorer that is not shown has none."""
        if not self._handles:
            return
        contents = self._contents(run)
        for number, (handle, content) in enumerate(zip(self._handles, contents, strict=True)):
            handle.update(content, raw=True, metadata={"workbench": {"run": run, "place": number}})

    def freeze_soon(self, run: str) -> None:
        """The same in the background: three pictures are drawn, which takes a second."""
        before = self._thread
        self._thread = threading.Thread(
            target=self._freeze_after, args=(before, run), name="workbench freeze", daemon=True
        )
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether pictures are still being drawn."""
        return self._thread is not None and self._thread.is_alive()

    def _freeze_after(self, before: threading.Thread | None, run: str) -> None:
        if before is not None:
            before.join()
        self.freeze(run)

    def _contents(self, run: str | None) -> list[dict[str, Any]]:
        drawn = charts(self._store, run, self._store.rows(run)) if run is not None else []
        bundles = [dict(bundle(chart)) for _, chart in drawn[:PLACES]]
        for number, content in enumerate(bundles):
            content["text/html"] = _folded(bundles, run or "") if number == 0 else ""
        return bundles + [{"text/plain": ""}] * (PLACES - len(bundles))


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
