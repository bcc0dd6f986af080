"""Parallel coordinates on the page: a brush is drawn at once in the browser, and Python learns of it as it moves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from workbench.charts import parallel
from workbench.charts.parallel import ParallelAxis
from workbench.charts.theme import Mode
from workbench.results.columns import Frame, Mask
from workbench.results.filters import Filters
from workbench.widgets.live_chart import VEGA_LITE, drawn_by_vega, send_again, send_once

_LOG = logging.getLogger(__name__)

Kept = tuple[float, float] | frozenset[str] | None
"""What a brush keeps of an axis: a range of numbers, some texts, or all."""


class ParallelLines(anywidget.AnyWidget):
    """The widget. `show` gives it rows; brushes and clicks on lines are events."""

    _esm = drawn_by_vega("parallel_view.js")
    _css = Path(__file__).parent / "parallel_view.css"
    _drawing: Any = traitlets.Dict().tag(sync=True)
    _axes: Any = traitlets.List().tag(sync=True)
    """By axis, its column, and its texts if it has some."""
    _lines = traitlets.Bytes().tag(sync=True)
    """Rows of float32 (workbench/charts/parallel.py: rows), the fastest last."""
    _brushes: Any = traitlets.Dict().tag(sync=True)
    """By column, the texts or the two ends that the state keeps."""
    _chosen: Any = traitlets.Int(None, allow_none=True).tag(sync=True)
    _words = traitlets.Unicode("").tag(sync=True)
    _vega_lite = traitlets.Unicode(VEGA_LITE).tag(sync=True)
    _looks: Any = traitlets.Dict({mode.value: parallel.look(mode) for mode in Mode}).tag(sync=True)

    def __init__(self) -> None:
        send_once()
        super().__init__()
        self._shown_axes: tuple[ParallelAxis, ...] = ()
        self._made: tuple[Frame | None, dict[str, str], tuple[ParallelAxis, ...]] = (None, {}, ())
        self._drawn_axes: tuple[ParallelAxis, ...] = ()
        self.moving = False
        """A hand moves a brush: the lines that are there are filtered in the browser, and others come when it rests."""
        self._listeners: dict[str, Callable[..., Any]] = {}
        self.on_msg(self._receive)

    def on_brush(self, listener: Callable[[str, Kept], Any]) -> None:
        """Calls *listener* with a column and what its brush keeps, while it moves."""
        self._listeners["brush"] = listener

    def on_settle(self, listener: Callable[[], Any]) -> None:
        """Calls *listener* when a hand has left a brush, so that other lines are drawn."""
        self._listeners["settle"] = listener

    def on_pick(self, listener: Callable[[int], Any]) -> None:
        """Calls *listener* with the place of the row whose line is clicked."""
        self._listeners["pick"] = listener

    def show(self, frame: Frame, mask: Mask, titles: Mapping[str, str], filters: Filters) -> None:
        """Draws rows of *frame* that *mask* keeps on the axes *titles*, by column; *filters* are drawn as brushes."""
        axes = self._axes_of(frame, titles)
        places = parallel.sample(frame, mask)
        total = int(mask.sum())
        with self.hold_sync():
            if axes != self._shown_axes:
                self._shown_axes = axes
                self._axes = [{"column": axis.column, "texts": axis.domain if axis.scale == "point" else None}
                              for axis in axes]  # fmt: skip
                self._drawing = parallel.drawing(axes)
            if not self.moving or self._drawn_axes is not axes:
                self._drawn_axes = axes
                self._lines = parallel.rows(frame, places, axes).tobytes()
            self._brushes = {
                **{name: list(ends) for name, ends in filters.ranges.items()},
                **{name: sorted(words) for name, words in filters.words.items()},
            }
            self._words = words_of(axes, len(places), total)

    def _axes_of(self, frame: Frame, titles: Mapping[str, str]) -> tuple[ParallelAxis, ...]:
        """The axes of *frame*, made once for each frame."""
        if self._made[0] is not frame or self._made[1] != titles:
            self._made = frame, dict(titles), parallel.axes_of(frame, list(titles), list(titles.values()))
        return self._made[2]

    def choose(self, place: int | None) -> None:
        """Draws the line of the row at *place* above the others."""
        self._chosen = place

    def _receive(self, _: Any, content: Mapping[str, Any], buffers: Any) -> None:
        if content.get("kind") == "brush":
            self.moving = True
        try:
            match content:
                case {"kind": "vega"}:
                    send_again()
                case {"kind": "settled"}:
                    self.moving = False
                    self._call("settle")
                case {"kind": "brush", "column": str(column), "kept": None}:
                    self._call("brush", column, None)
                case {"kind": "brush", "column": str(column), "kept": [str(), *_] as words}:
                    self._call("brush", column, frozenset(map(str, words)))
                case {"kind": "brush", "column": str(column), "kept": [low, high]}:
                    self._call("brush", column, (float(low), float(high)))
                case {"kind": "pick", "place": int(place)}:
                    self._call("pick", place)
        except Exception:  # a message of the browser must not end the others
            _LOG.exception("The lines could not answer %s.", content.get("kind"))
        finally:
            if content.get("kind") == "brush":
                self.send({"kind": "done"})  # the browser sends the next position now

    def _call(self, name: str, *values: Any) -> None:
        if name in self._listeners:
            self._listeners[name](*values)


def words_of(axes: Sequence[ParallelAxis], drawn: int, total: int) -> str:
    """What screen readers say of the lines, and what people read below them."""
    over = ", ".join(axis.title for axis in axes)
    lines = f"{drawn:,} of {total:,} rows" if drawn < total else f"{total:,} rows"
    return f"{lines} as lines over {over}. Drag along an axis to keep a range; click it to end that."
