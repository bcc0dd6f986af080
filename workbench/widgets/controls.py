"""The small controls of a form, each with a stable class name: for tests, style sheets and people's own scripts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ipywidgets
from markupsafe import escape

WIDE = {"description_width": "130px"}
HIDDEN, SHOWN = "none", None


class Quiet:
    """A form whose own changes of its controls are no news: it makes them `with self._silently()`.

    What a person changes meanwhile, in the kernel's thread, is news all the same.
    """

    @property
    def _quiet(self) -> bool:
        return getattr(self._changing, "depth", 0) > 0

    @property
    def _changing(self) -> threading.local:
        return self.__dict__.setdefault("_changing_here", threading.local())

    @contextmanager
    def _silently(self) -> Iterator[None]:
        here = self._changing
        here.depth = getattr(here, "depth", 0) + 1
        try:
            yield
        finally:
            here.depth -= 1


def wide(**more: Any) -> ipywidgets.Layout:
    """As wide as the form. A new one each time: a layout that several share would hide and show them together."""
    return ipywidgets.Layout(**{"width": "100%", "margin": "1px 0", **more})


def marked(control: Any, mark: str) -> Any:
    """*control* with the class *mark*."""
    control.add_class(mark)
    return control


def dropdown(label: str, options: Sequence[Any], mark: str, value: Any = None) -> ipywidgets.Dropdown:
    """One of several; *options* are values, or pairs of words and values."""
    more = {} if value is None else {"value": value}
    return marked(ipywidgets.Dropdown(options=options, description=label, style=WIDE, layout=wide(), **more), mark)


def tick(label: str, mark: str, value: bool = False) -> ipywidgets.Checkbox:
    """Yes or no."""
    return marked(ipywidgets.Checkbox(value=value, description=label, indent=False, layout=wide()), mark)


def one_of(options: Sequence[Any], value: Any, mark: str, tooltips: Sequence[str] = ()) -> ipywidgets.ToggleButtons:
    """One of a few, all in sight."""
    made = ipywidgets.ToggleButtons(
        options=options,
        value=value,
        tooltips=tooltips,
        style={"button_width": "auto"},
        layout=ipywidgets.Layout(flex="1 1 auto", width="auto"),
    )
    return marked(made, mark)


def sweep_tick(mark: str) -> ipywidgets.Checkbox:
    """*sweep*: every value of what stands beside it is to be tried, instead of the one that is shown."""
    made = ipywidgets.Checkbox(
        description="sweep",
        indent=False,
        layout=ipywidgets.Layout(width="66px", flex="0 0 auto", margin="1px 0 1px 4px"),
    )
    return marked(made, mark)


def or_words(control: Any) -> ipywidgets.HBox:
    """*control*; where there is one option only, that option in words, since a choice of one is no choice."""
    words = marked(ipywidgets.HTML(description=control.description, style=WIDE, layout=wide(margin="0")), "wb-only")

    def follow(_: Any = None) -> None:
        alone = len(control.options) < 2
        control.layout.display, words.layout.display = (HIDDEN, SHOWN) if alone else (SHOWN, HIDDEN)
        words.value, words.tooltip = str(escape(control.label or "")), control.tooltip

    control.observe(follow, ["options", "index", "label", "tooltip"])
    follow()
    return ipywidgets.HBox([control, words], layout=ipywidgets.Layout(flex="1 1 auto", width="100%"))


def number_line(label: str, options: Sequence[Any], value: Any, mark: str) -> ipywidgets.SelectionSlider:
    """One of several numbers in order."""
    made = ipywidgets.SelectionSlider(options=options, value=value, description=label, style=WIDE, layout=wide())
    return marked(made, mark)


def row(*controls: Any) -> ipywidgets.HBox:
    """*controls* beside each other, as wide as the form."""
    return ipywidgets.HBox(list(controls), layout=wide())


def html(mark: str) -> ipywidgets.HTML:
    """A place for words."""
    return marked(ipywidgets.HTML(layout=wide(margin="0")), mark)


def button(label: str, mark: str, icon: str, tooltip: str, **more: Any) -> ipywidgets.Button:
    """Something to press."""
    layout = ipywidgets.Layout(width="auto", flex="0 0 auto")
    return marked(ipywidgets.Button(description=label, icon=icon, tooltip=tooltip, layout=layout, **more), mark)


def fold(label: str, mark: str, inside: ipywidgets.Widget) -> ipywidgets.ToggleButton:
    """Shows and hides *inside*. The accordion of ipywidgets cannot be opened with the keyboard."""
    made = marked(
        ipywidgets.ToggleButton(
            description=label, icon="caret-right", layout=wide(), tooltip="Show what is not needed at first"
        ),
        mark,
    )

    def show(_: Any = None) -> None:
        inside.layout.display = SHOWN if made.value else HIDDEN
        made.icon = "caret-down" if made.value else "caret-right"

    made.observe(show, "value")
    show()
    return made
