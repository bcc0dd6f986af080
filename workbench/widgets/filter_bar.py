"""The bar over the table: what rows must have, which columns are shown, and how many rows are left."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

import ipywidgets

from kernels.units import seconds_typed
from workbench.naming import value_title
from workbench.results.columns import Frame, Texts, number_text
from workbench.results.filters import Filters, Range
from workbench.widgets.controls import HIDDEN, SHOWN, QuietControls, button, html, marked, note_html, refusal_html
from workbench.widgets.exploration import (
    Brush,
    Choose,
    ClearFilters,
    Dispatch,
    Event,
    Exploration,
    KeepTop,
    SearchText,
    ShowColumns,
)
from workbench.widgets.table_columns import ABOUT, SECONDS, automatic, title_of

ALL = 100.0
TOP = (("all", ALL), ("1 %", 1.0), ("5 %", 5.0), ("10 %", 10.0), ("25 %", 25.0), ("50 %", 50.0))
"""The shares of the fastest rows that are offered."""


NO_END = 1e300
"""The upper end of a range that has none, and with a minus the lower one; no column has a number as large, and JSON
has no infinity."""


class FilterBar(QuietControls):
    """The controls `view`. They send events, and show the state that comes back."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._frame: Frame | None = None
        self._state = Exploration()
        self._chips: dict[str, ipywidgets.Button] = {}
        self.search = marked(ipywidgets.Text(placeholder="Search: fused 128 staged"), "wb-search")
        self.top = marked(ipywidgets.Dropdown(options=TOP, description="Fastest"), "wb-top")
        self.filter, self.choose = (
            marked(ipywidgets.ToggleButton(description=text, tooltip=tip), mark)
            for text, tip, mark in (
                ("Filter", "Keep a range or some values of one column", "wb-filter"),
                ("Columns", "Which columns the table shows, in which order", "wb-choose-columns"),
            )
        )
        self.clear = button("Clear", "wb-clear", "times", "Show all rows")
        self.counts, self.message = html("wb-counts"), html("wb-filter-message")
        self.columns = marked(ipywidgets.TagsInput(allow_duplicates=False), "wb-columns")
        self.line = FilterLine(self._send)
        self.chips = marked(ipywidgets.HBox(), "wb-chips")
        first = marked(
            ipywidgets.HBox([self.search, self.top, self.filter, self.choose, self.clear, self.counts]), "wb-filter-bar"
        )
        first.layout = ipywidgets.Layout(flex_flow="row wrap", align_items="center", width="100%")
        self.view = ipywidgets.VBox([first, self.line.view, self.columns, self.chips, self.message])
        for control, width in ((self.search, "190px"), (self.top, "128px"), (self.filter, "84px"),
                               (self.choose, "104px"), (self.clear, "78px")):  # fmt: skip
            control.layout.width, control.layout.flex = width, "0 0 auto"
        self.top.style = {"description_width": "48px"}
        self._listen()

    def _listen(self) -> None:
        self.search.observe(lambda _: self._changed(SearchText(self.search.value)), "value")
        self.top.observe(lambda _: self._changed(KeepTop(None if self.top.value == ALL else self.top.value)), "value")
        self.columns.observe(lambda _: self._columns_changed(), "value")
        self.clear.on_click(lambda _: self._send(ClearFilters()))
        for toggle in (self.filter, self.choose):
            toggle.observe(lambda _: self._open(), "value")
        self._open()

    def _open(self) -> None:
        self.line.view.layout.display = SHOWN if self.filter.value else HIDDEN
        self.columns.layout.display = SHOWN if self.choose.value else HIDDEN

    def _changed(self, event: Event) -> None:
        if not self._quiet:
            self._send(event)

    def _columns_changed(self) -> None:
        if not self._quiet and self._frame is not None:
            name_of = {title_of(name): name for name in self._frame.columns}
            self._send(ShowColumns(tuple(name_of[title] for title in self.columns.value if title in name_of)))

    def _send(self, event: Event) -> None:
        try:
            self._dispatch(event)
        except ValueError as refused:
            self.message.value = refusal_html(str(refused))
        else:
            self.message.value = ""

    def draw(self, frame: Frame, state: Exploration, counts: str) -> None:
        """Shows *state* of the rows *frame*, and the words *counts*."""
        self.counts.value = note_html(counts)
        if frame is self._frame and state == self._state:
            return
        filters = state.filters
        with self._silently():
            if filters.text != self.search.value.strip():
                self.search.value = filters.text
            offered = dict(TOP) | {f"{percent:g} %": percent for percent in [filters.top_percent] if percent}
            if offered != dict(self.top.options):
                self.top.options = tuple(offered.items())
            self.top.value = filters.top_percent or ALL
            self._offer(frame, state)
        self.clear.disabled = not filters.active
        if filters != self._state.filters:
            self._show_chips(filters)
            self.line.follow(self._state.filters, filters)
        self._frame, self._state = frame, state

    def _offer(self, frame: Frame, state: Exploration) -> None:
        """Offers the columns of *frame*; those that are shown are chosen."""
        titles = [title_of(name) for name in frame.columns]
        chosen = [title_of(name) for name in state.columns or automatic(frame) if name in frame.columns]
        if titles != self.columns.allowed_tags:
            self.columns.value, self.columns.allowed_tags = [], titles
        if chosen != self.columns.value:
            self.columns.value = chosen
        if frame is not self._frame:
            self.line.offer(frame)

    def _show_chips(self, filters: Filters) -> None:
        """A button for each filtered column; one that moves with a brush stays the button that it is."""
        texts = chips(filters)
        if [*texts] != [*self._chips]:
            ends = {name: Brush(name, None) if name in filters.ranges else Choose(name, None) for name in texts}
            self._chips = {name: self._chip(name, text, ends[name]) for name, text in texts.items()}
            self.chips.children = [*self._chips.values()]
            self.chips.layout.display = SHOWN if texts else HIDDEN
        for name, text in texts.items():
            self._chips[name].description = text

    def _chip(self, name: str, text: str, end: Event) -> ipywidgets.Button:
        """A button that ends the filter of column *name*."""
        chip = button(text, "wb-chip", "times", f"End the filter of {title_of(name)}")
        chip.layout.width = "auto"
        chip.on_click(lambda _: self._send(end))
        return chip


class FilterLine:
    """One filter that is typed, for keyboards: a column, and the range or the values of it that are kept."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send
        self._frame: Frame | None = None
        self.column = marked(ipywidgets.Dropdown(layout=ipywidgets.Layout(width="170px")), "wb-filter-column")
        self.low, self.high = (
            marked(ipywidgets.Text(placeholder=text, layout=ipywidgets.Layout(width="90px")), mark)
            for text, mark in (("from", "wb-filter-low"), ("to", "wb-filter-high"))
        )
        self.words = marked(ipywidgets.SelectMultiple(rows=3), "wb-filter-words")
        self.keep = button("Keep", "wb-keep", "check", "Show only these rows")
        self.keep.layout.width = "70px"
        self.view = marked(ipywidgets.HBox([self.column, self.low, self.high, self.words, self.keep]), "wb-filter-line")
        self.column.observe(lambda _: self._column_changed(), "value")
        self.keep.on_click(lambda _: self._keep())

    def offer(self, frame: Frame) -> None:
        """Offers the columns of *frame* that vary."""
        self._frame = frame
        chosen, names = self.column.value, list(reversed(frame.varying))
        options = tuple((title_of(name), name) for name in names)
        if options != self.column.options:
            self.column.options = options
            self.column.value = chosen if chosen in names else names[0]
        self._column_changed()

    def follow(self, before: Filters, after: Filters) -> None:
        """Forgets what was typed for a column whose filter has ended; an unfinished filter stays."""
        if self.column.value in {*before.ranges, *before.words} - {*after.ranges, *after.words}:
            self.words.value, self.low.value, self.high.value = (), "", ""

    def _column_changed(self) -> None:
        if self._frame is None or self.column.value not in self._frame.columns:
            return
        column = self._frame.columns[self.column.value]
        is_texts = isinstance(column, Texts)
        if isinstance(column, Texts):
            options = tuple((value_title(text), text) for text in column.texts)
            if options != self.words.options:
                self.words.options = options
        else:
            unit = " ms" if is_seconds(self.column.value) else ""
            self.low.placeholder, self.high.placeholder = f"from{unit}", f"to{unit}"
        self.words.layout.display = SHOWN if is_texts else HIDDEN
        self.low.layout.display = self.high.layout.display = HIDDEN if is_texts else SHOWN

    def _keep(self) -> None:
        name = self.column.value
        if self._frame is None or name is None:
            return
        if isinstance(self._frame.columns[name], Texts):
            self._send(Choose(name, frozenset(self.words.value) or None))
            return
        ends = self._typed(name, self.low.value, -NO_END), self._typed(name, self.high.value, NO_END)
        self._send(Brush(name, None if ends == (-NO_END, NO_END) else ends))

    @staticmethod
    def _typed(name: str, text: str, absent: float) -> float:
        """The number that *text* means for column *name*; nan, which no range has, where it is none."""
        if not text.strip():
            return absent
        try:
            return seconds_typed(text) if is_seconds(name) else float(text)
        except ValueError:
            return nan


def chips(filters: Filters) -> dict[str, str]:
    """By column that is filtered, what of it is kept, as text."""
    ranges = {name: f"{title_of(name)} {range_text(name, ends)}" for name, ends in filters.ranges.items()}
    words = {
        name: f"{title_of(name)}: {', '.join(value_title(word) for word in sorted(kept)) or 'none'}"
        for name, kept in filters.words.items()
    }
    return ranges | words


def range_text(name: str, ends: Range) -> str:
    """A range of column *name*: `0.2 to 0.4 ms`, `64 to 128`."""
    factor, unit = (1e3, " ms") if is_seconds(name) else (1.0, "")
    low, high = (number_text(float(f"{end * factor:.4g}")) for end in ends)
    if ends[0] <= -NO_END:
        return f"up to {high}{unit}"
    if ends[1] >= NO_END:
        return f"from {low}{unit}"
    return f"up to {high}{unit}" if ends[0] == 0 else f"{low} to {high}{unit}"


def is_seconds(name: str) -> bool:
    """Whether column *name* has times."""
    about = ABOUT.get(name)
    return about is not None and about.kind == SECONDS
