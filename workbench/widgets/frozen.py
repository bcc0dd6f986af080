"""The last run, frozen into the cell's output: it is there when the notebook is opened, printed or exported.

A live chart needs a kernel; what is written here does not. It is drawn from the store, and never measured again.
"""

from __future__ import annotations

import base64
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

    def show(self, run: str | None) -> None:
        """Makes the places in this cell, with *run* in them if there is one."""
        for number, content in enumerate(self._contents(run)):
            metadata = {"workbench": {"run": run, "place": number}}
            self._handles.append(display(content, raw=True, display_id=True, metadata=metadata))

    def freeze(self, run: str) -> None:
        """Fills the places with *run*; called from any thread."""
        contents = self._contents(run)
        for number, (handle, content) in enumerate(zip(self._handles, contents, strict=True)):
            handle.update(content, raw=True, metadata={"workbench": {"run": run, "place": number}})

    def _contents(self, run: str | None) -> list[dict[str, Any]]:
        drawn = charts(self._store, run, self._store.rows(run)) if run is not None else []
        bundles = [_folded(dict(bundle(chart)), run or "") for _, chart in drawn[:PLACES]]
        return bundles + [{"text/plain": ""}] * (PLACES - len(bundles))


def _folded(content: dict[str, Any], run: str) -> dict[str, Any]:
    """A live notebook shows the explorer above, so the copy is folded away there; reports draw the chart itself."""
    picture = base64.b64encode(str(content[PICTURE]).encode()).decode()
    page = Markup(
        "<details><summary>Kept in this notebook: run {}</summary>"
        '<img alt="{}" src="data:image/svg+xml;base64,{}"></details>'
    ).format(run, content["text/plain"], picture)
    return {**content, "text/html": str(page)}
