"""The knobs of a scheme: a control with the legal values of each axis, and beside it `all` to try every one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

from kernels.axes import Axis, Value
from workbench.widgets.controls import WIDE, every, marked, row, wide
from workbench.widgets.words import axis_title

BASIC = {"sequential": (), "decomposed": ("pieces",), "fused": ("slice_tiles",), "concurrent": ()}
"""The axes that are not under Advanced."""


@dataclass(frozen=True, slots=True)
class AxisRow:
    """One axis on the page."""

    control: Any
    sweep: ipywidgets.ToggleButton
    view: ipywidgets.HBox


class AxisRows:
    """`basic` and `advanced` hold the rows; *changed(axis, value)* and *swept(axis, wanted)* are called by a person."""

    def __init__(self, changed: Callable[[str, Value], Any], swept: Callable[[str, bool], Any]) -> None:
        self._changed, self._swept = changed, swept
        self.basic, self.advanced = ipywidgets.VBox(layout=wide()), ipywidgets.VBox(layout=wide())
        self.rows: dict[str, AxisRow] = {}
        self._kinds: Sequence[tuple[str, str, type]] = ()
        self._quiet = False

    def offer(self, scheme: str, known: Sequence[Axis], values: Mapping[str, Value], swept: Collection[str]) -> None:
        """Shows the axes *known* of *scheme* with *values*, or their defaults.

        Controls that can stay do: whoever moves a slider must not lose it under the hand.
        """
        kinds = [(scheme, axis.name, _kind(axis)) for axis in known]
        self._quiet = True
        try:
            if kinds != self._kinds:
                self._kinds = kinds
                self.rows = {axis.name: self._row(axis) for axis in known}
                basic = BASIC.get(scheme, ())
                self.basic.children = tuple(self.rows[name].view for name in basic if name in self.rows)
                self.advanced.children = tuple(made.view for name, made in self.rows.items() if name not in basic)
            for axis in known:
                _show(self.rows[axis.name], axis, values.get(axis.name, axis.default), axis.name in swept)
        finally:
            self._quiet = False

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
        sweep = every(f"wb-sweep-{axis.name}", axis.name)
        control.observe(lambda change: self._quiet or self._changed(axis.name, change["new"]), "value")
        sweep.observe(lambda change: self._quiet or self._swept(axis.name, change["new"]), "value")
        return AxisRow(control, sweep, row(control, sweep))


def _show(made: AxisRow, axis: Axis, value: Value, swept: bool) -> None:
    options = axis.values if value in axis.values else (*axis.values, value)
    if tuple(made.control.options) != options:
        made.control.options = options
    made.control.value = value
    made.sweep.disabled = len(axis.values) < 2
    made.sweep.value = swept and not made.sweep.disabled
    made.sweep.tooltip = f"Try every {axis.name}: {', '.join(map(str, axis.values))}"


def _kind(axis: Axis) -> type:
    is_number_line = len(axis.values) > 2 and all(isinstance(value, int) for value in axis.values)
    return ipywidgets.SelectionSlider if is_number_line else ipywidgets.Dropdown
