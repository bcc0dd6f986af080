"""The small controls of a form, each with a stable class name: for tests, style sheets and people's own scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets

WIDE = {"description_width": "108px"}
LAYOUT = ipywidgets.Layout(width="100%", margin="1px 0")


def marked(control: Any, mark: str) -> Any:
    """*control* with the class *mark*."""
    control.add_class(mark)
    return control


def dropdown(label: str, options: Sequence[Any], mark: str, value: Any = None) -> ipywidgets.Dropdown:
    """One of several; *options* are values, or pairs of words and values."""
    more = {} if value is None else {"value": value}
    return marked(ipywidgets.Dropdown(options=options, description=label, style=WIDE, layout=LAYOUT, **more), mark)


def tick(label: str, mark: str) -> ipywidgets.Checkbox:
    """Yes or no."""
    return marked(ipywidgets.Checkbox(value=False, description=label, indent=False, layout=LAYOUT), mark)


def one_of(options: Sequence[Any], value: Any, mark: str, tooltips: Sequence[str] = ()) -> ipywidgets.ToggleButtons:
    """One of a few, all in sight."""
    made = ipywidgets.ToggleButtons(
        options=options, value=value, tooltips=tooltips, style={"button_width": "auto"}, layout=LAYOUT
    )
    return marked(made, mark)


def number_line(label: str, options: Sequence[Any], value: Any, mark: str) -> ipywidgets.SelectionSlider:
    """One of several numbers in order."""
    made = ipywidgets.SelectionSlider(options=options, value=value, description=label, style=WIDE, layout=LAYOUT)
    return marked(made, mark)


def html(mark: str) -> ipywidgets.HTML:
    """A place for words."""
    return marked(ipywidgets.HTML(layout=ipywidgets.Layout(width="100%")), mark)
