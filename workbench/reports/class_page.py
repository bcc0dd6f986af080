"""The lecturer's page of a workshop: the class board as one page that the scheduler serves.

Vega is in its script, as in reports. The page asks the scheduler for what people wrote, and writes it as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import vl_convert

from workbench.charts import class_board, theme
from workbench.charts.theme import Mode
from workbench.reports.pictures import LIBRARY_VERSION
from workbench.reports.render import TEMPLATES

PAGE, SCRIPT = "/workshop", "/workshop/page.js"
"""Their paths at the scheduler (`cluster/workshop/classroom.py: PAGE`)."""
_FOLDER = TEMPLATES / "class_board"


def class_page() -> Mapping[str, tuple[str, bytes]]:
    """The files of the page: type and content by path."""
    return {
        PAGE: ("text/html; charset=utf-8", _html().encode()),
        SCRIPT: ("text/javascript; charset=utf-8", _script().encode()),
    }


def _html() -> str:
    text = (_FOLDER / "page.html").read_text("utf-8")
    for mode in Mode:
        for name in ("text", "faint", "grid", "page"):
            text = text.replace(f"{mode.name}_{name.upper()}", getattr(theme.INKS[mode], name))
    return text


def _script() -> str:
    """Vega and the page's own code, with a specification for each kind of guess in light and dark."""
    drawing = (_FOLDER / "page.js").read_text("utf-8")
    drawing = drawing.replace("SPECIFICATIONS", json.dumps(_specifications()))
    drawing = drawing.replace("UNIT_MARK", class_board.UNIT)
    return str(vl_convert.javascript_bundle(drawing, vl_version=LIBRARY_VERSION))


def _specifications() -> dict[str, dict[str, object]]:
    specifications: dict[str, dict[str, object]] = {}
    for kind in (class_board.NUMBER, class_board.CHOICE):
        specifications[kind] = {}
        for mode in Mode:
            with theme.enabled(mode):
                specifications[kind][mode.value] = class_board.live(kind).to_dict()
    return specifications
