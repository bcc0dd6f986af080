"""A live chart in a saved notebook: an output of its own has its rows, which reports draw without a kernel.

No page shows that output, since no renderer knows its type, so that its updates move nothing on the screen.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from workbench.reports.pictures import KEPT, plain


class KeptChart(Protocol):
    """What a live chart says of itself to be kept: its specification for the browser, and the rows of its datasets."""

    def drawing(self) -> tuple[Mapping[str, Any], Mapping[str, list[dict[str, Any]]]]:
        """The fields of `LiveSpec`, and rows by dataset."""


_outputs: weakref.WeakKeyDictionary[Any, DisplayHandle] = weakref.WeakKeyDictionary()
"""The output of each chart that was displayed."""
_written: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""What each of these outputs has."""
_watched: weakref.WeakSet[Any] = weakref.WeakSet()
"""Shells whose cells are followed."""


def keep(chart: KeptChart) -> None:
    """Puts *chart* into the notebook, below its widget, and brings it up to date after each cell."""
    shell = get_ipython()
    if shell is None:
        return
    if shell not in _watched:
        shell.events.register("post_run_cell", lambda *_: bring_up_to_date())
        _watched.add(shell)
    _written[chart] = chart.drawing()
    handle = display({KEPT: specification(*_written[chart])}, raw=True, display_id=True)
    assert handle is not None  # it has a display_id
    _outputs[chart] = handle


def bring_up_to_date() -> None:
    """Writes the outputs of charts that have changed."""
    for chart, handle in list(_outputs.items()):
        drawing = chart.drawing()
        if drawing != _written[chart]:
            _written[chart] = drawing
            handle.update({KEPT: specification(*drawing)}, raw=True)


def specification(chart: Mapping[str, Any], rows: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Vega-Lite of a live chart with its title and *rows*; one that filled its cell is as wide as a page allows."""
    spec = {key: value for key, value in chart["spec"].items() if key != "autosize"}
    if chart["stretch"] == "whole":
        spec.pop("width", None)
    title = {"text": list(chart["title"]), "subtitle": list(chart["subtitle"])}
    shown = {"title": {name: lines for name, lines in title.items() if lines}} if title["text"] else {}
    datasets: dict[str, Any] = {**spec.get("datasets", {}), **rows}
    return plain({**spec, **shown, "datasets": datasets})
