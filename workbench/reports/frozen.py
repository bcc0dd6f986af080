"""A notebook that needs no kernel any more: every chart carries its picture, every live widget is gone."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

from nbformat import NotebookNode

from workbench.reports.bundle import ALT_TEXT, CHART, PICTURE, alt_text, picture, plain
from workbench.reports.fitted import wrapped
from workbench.reports.ink import PAPER, inked

WIDGET = "application/vnd.jupyter.widget-view+json"
SCRIPT = "application/javascript"
_ANY_CHART = re.compile(r"application/vnd\.vega(lite)?\.v\d+(\.\d+)*\+json")
_PAGE_ARGUMENTS = re.compile(r"\}\)\((?=\{)")
KEEP_CODE = "keep-code"
"""The tag of a cell whose code is what the text speaks of: it stays where other code is left out."""


def frozen(notebook: NotebookNode, *, show_code: bool = False) -> NotebookNode:
    """A copy of *notebook* whose outputs are all things that paper could hold; `dropped_widgets` counts the rest.

    Code is left out, unless *show_code* or the cell's tag `keep-code` says that it stays.
    """
    copy = deepcopy(notebook)
    copy.metadata.pop("widgets", None)
    dropped = 0
    for cell in copy.cells:
        if cell.cell_type != "code":
            continue
        # nbconvert's own word for it, which its templates obey
        cell.metadata["transient"] = {"remove_source": not (show_code or KEEP_CODE in cell.metadata.get("tags", ()))}
        outputs = [_frozen_output(output) for output in cell.outputs]
        cell.outputs = [output for output in outputs if output is not None]
        dropped += outputs.count(None)
    copy.metadata["dropped_widgets"] = dropped
    return copy


def _frozen_output(output: NotebookNode) -> NotebookNode | None:
    """*output* without what needs a kernel, or None when nothing else was in it."""
    data = output.get("data")
    if data is None:
        return output
    chart = _chart(data)
    if chart is not None:
        output.data = NotebookNode(_with_picture(chart, data))
        return output
    had_life = data.pop(WIDGET, None) is not None or data.pop(SCRIPT, None) is not None
    return None if had_life and set(data) <= {ALT_TEXT} else output


def _chart(data: NotebookNode) -> dict[str, Any] | None:
    """The specification in an output: under its mime type, or inside the page that Altair writes by default."""
    specification = next((value for mime, value in data.items() if _ANY_CHART.fullmatch(mime)), None)
    if specification is not None:
        return plain(json.loads(specification) if isinstance(specification, str) else specification)
    page = data.get("text/html", "")
    start = _PAGE_ARGUMENTS.search(page) if "altair-viz-" in page else None
    if start is None:
        return None
    try:
        return plain(json.JSONDecoder().raw_decode(page, start.end())[0])
    except json.JSONDecodeError:
        return None


def _with_picture(spec: dict[str, Any], data: NotebookNode) -> dict[str, Any]:
    """The bundle of *spec*, drawn again for paper: the cell's own picture may be made for a dark screen."""
    spec, kept = wrapped(spec), data.get(ALT_TEXT, "")
    described = kept if kept and not kept.startswith(("alt.", "<VegaLite")) else alt_text(spec)
    try:
        return {CHART: spec, PICTURE: picture(inked(spec, PAPER)), ALT_TEXT: described}
    except ValueError as error:
        return {PICTURE: data[PICTURE], ALT_TEXT: described} if PICTURE in data else {ALT_TEXT: str(error)}
