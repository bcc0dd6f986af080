"""The knobs of a scheme: a control with the legal values of each axis, and beside it *sweep* to try all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

from kernels.axes import Axis, Value
from workbench.naming import axis_title, value_title
from workbench.widgets.controls import HIDDEN, SHOWN, WIDE, Quiet, marked, or_words, row, sweep_tick, wide

BASIC = {
    "sequential": (),
    "decomposed": ("pieces",),
    "fused": ("slice_tiles",),
    "concurrent": ("micro_batches", "comm_priority"),
}
"""The axes that are not under Advanced."""


@dataclass(frozen=True, slots=True)
class AxisRow:
    """One axis on the page."""

    control: Any
    sweep: ipywidgets.Checkbox
    view: ipywidgets.HBox


class AxisRows(Quiet):
    """`basic` and `advanced` hold the rows; *changed(axis, value)* and *swept(axis, wanted)* are called by a person."""

    def __init__(self, changed: Callable[[str, Value], Any], swept: Callable[[str, bool], Any]) -> None:
        self._changed, self._swept = changed, swept
        self.basic, self.advanced = ipywidgets.VBox(layout=wide()), ipywidgets.VBox(layout=wide())
        self.rows: dict[str, AxisRow] = {}
        self._kinds: Sequence[tuple[str, str, type]] = ()

    def offer(self, scheme: str, known: Sequence[Axis], values: Mapping[str, Value], swept: Collection[str]) -> None:
        """Shows the axes *known* of *scheme* with *values*, or their defaults.

        Controls that can stay do: whoever moves a slider must not lose it under the hand.
        """
        kinds = [(scheme, axis.name, _kind(axis)) for axis in known]
        with self._silently():
            if kinds != self._kinds:
                self._kinds = kinds
                self.rows = {axis.name: self._row(axis) for axis in known}
                basic = BASIC.get(scheme, ())
                self.basic.children = tuple(self.rows[name].view for name in basic if name in self.rows)
                self.advanced.children = tuple(made.view for name, made in self.rows.items() if name not in basic)
            for axis in known:
                _show(self.rows[axis.name], axis, values.get(axis.name, axis.default), axis.name in swept)

    def _row(self, axis: Axis) -> AxisRow:
        control = marked(
            _kind(axis)(
                options=axis.values or (axis.default,),
                description=axis_title(axis.name),
                tooltip=f"{axis.name}: {axis.doc}",
                style=WIDE,
                layout=ipywidgets.Layout(flex="1 1 auto", width="auto"),
            ),
            f"wb-axis-{axis.name}",
        )
        sweep = sweep_tick(f"wb-sweep-{axis.name}")
        control.observe(lambda change: self._quiet or self._changed(axis.name, change["new"]), "value")
        sweep.observe(lambda change: self._quiet or self._swept(axis.name, change["new"]), "value")
        return AxisRow(control, sweep, row(or_words(control), sweep))


def _show(made: AxisRow, axis: Axis, value: Value, swept: bool) -> None:
    values = axis.values if value in axis.values else (*axis.values, value)
    named = [(value_title(each), each) for each in values]
    options = tuple(named) if any(title != str(each) for title, each in named) else values
    if tuple(made.control.options) != options:
        made.control.options = options
    made.control.value = value
    alone = len(axis.values) < 2
    made.sweep.layout.display = HIDDEN if alone else SHOWN
    made.sweep.value = swept and not alone
    made.sweep.tooltip = f"Try every value: {', '.join(map(value_title, axis.values))}"


def _kind(axis: Axis) -> type:
    return ipywidgets.SelectionSlider if is_number_line(axis) else ipywidgets.Dropdown


def is_number_line(axis: Axis) -> bool:
    """Whether its values are shown in order on a slider."""
    return len(axis.values) > 2 and all(isinstance(value, int) for value in axis.values)
