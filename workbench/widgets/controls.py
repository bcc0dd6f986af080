"""Small controls and pieces of HTML of the explorer; any text from a person or a file is escaped."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
from markupsafe import Markup, escape

from kernels.operators import OPERATORS
from kernels.outcome import Estimate
from kernels.problem import Problem
from kernels.schemes.concurrent import problems
from kernels.units import bytes_text, seconds_text
from workbench.machines import trust
from workbench.machines.presets import Preset
from workbench.resources import LEFT_OUT

# Keys pressed in the explorer do not reach JupyterLab, which would handle arrows and letters itself.

KEYS = """
// JupyterLab handles keys that bubble up to the page, so plain keys stop here. Escape and combinations such as Ctrl+S
// still reach JupyterLab.
function keep(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey && event.key !== "Escape") event.stopPropagation();
}

export default {
  render({ el, signal }) {
    const listen = () => {
      if (signal.aborted) return;
      const page = el.closest(".wb-explorer");
      if (page) page.addEventListener("keydown", keep, { signal });
      else requestAnimationFrame(listen); // not yet on the page
    };
    listen();
  },
};
"""


class Keyboard(anywidget.AnyWidget):
    """An invisible widget that keeps plain keys of the surrounding explorer from JupyterLab."""

    _esm = KEYS


# Small controls of a form, each with a stable class name for tests, style sheets and scripts.

WIDE = {"description_width": "130px"}
HIDDEN, SHOWN = "none", None


class QuietControls:
    """A form that ignores the changes that it makes to its own controls inside `with self._silently()`.

    Changes by a person in another thread are still reported meanwhile.
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
    """A new layout as wide as the form; a shared layout would hide and show all of its controls together."""
    return ipywidgets.Layout(**{"width": "100%", "margin": "1px 0", **more})


def marked(control: Any, mark: str) -> Any:
    """*control*, to which the CSS class *mark* was added."""
    control.add_class(mark)
    return control


def dropdown(label: str, options: Sequence[Any], mark: str, value: Any = None) -> ipywidgets.Dropdown:
    """A list to choose one of *options* from: values, or pairs of label and value."""
    more = {} if value is None else {"value": value}
    return marked(ipywidgets.Dropdown(options=options, description=label, style=WIDE, layout=wide(), **more), mark)


def tick(label: str, mark: str, value: bool = False) -> ipywidgets.Checkbox:
    """A checkbox."""
    return marked(ipywidgets.Checkbox(value=value, description=label, indent=False, layout=wide()), mark)


def one_of(options: Sequence[Any], value: Any, mark: str, tooltips: Sequence[str] = ()) -> ipywidgets.ToggleButtons:
    """Buttons to choose one of a few *options*, all visible."""
    control = ipywidgets.ToggleButtons(
        options=options,
        value=value,
        tooltips=tooltips,
        style={"button_width": "auto"},
        layout=ipywidgets.Layout(flex="1 1 auto", width="auto"),
    )
    return marked(control, mark)


def sweep_tick(mark: str) -> ipywidgets.Checkbox:
    """The checkbox *sweep*: a run tries every value of the control next to it, instead of the one shown."""
    control = ipywidgets.Checkbox(
        description="sweep",
        indent=False,
        layout=ipywidgets.Layout(width="66px", flex="0 0 auto", margin="1px 0 1px 4px"),
    )
    return marked(control, mark)


def choice_or_label(control: Any) -> ipywidgets.HBox:
    """*control*, which is replaced by the label of its option while it has only one."""
    only = marked(ipywidgets.HTML(description=control.description, style=WIDE, layout=wide(margin="0")), "wb-only")

    def follow(_: Any = None) -> None:
        alone = len(control.options) < 2
        control.layout.display, only.layout.display = (HIDDEN, SHOWN) if alone else (SHOWN, HIDDEN)
        only.value, only.tooltip = str(escape(control.label or "")), control.tooltip

    control.observe(follow, ["options", "index", "label", "tooltip"])
    follow()
    return ipywidgets.HBox([control, only], layout=ipywidgets.Layout(flex="1 1 auto", width="100%"))


def number_line(label: str, options: Sequence[Any], value: Any, mark: str) -> ipywidgets.SelectionSlider:
    """A slider to choose one of several numbers in order."""
    control = ipywidgets.SelectionSlider(options=options, value=value, description=label, style=WIDE, layout=wide())
    return marked(control, mark)


def side_by_side(*controls: Any) -> ipywidgets.HBox:
    """*controls* next to each other, as wide as the form."""
    return ipywidgets.HBox(list(controls), layout=wide())


def html(mark: str) -> ipywidgets.HTML:
    """An HTML label."""
    return marked(ipywidgets.HTML(layout=wide(margin="0")), mark)


def button(label: str, mark: str, icon: str, tooltip: str, **more: Any) -> ipywidgets.Button:
    """A button."""
    layout = ipywidgets.Layout(width="auto", flex="0 0 auto")
    return marked(ipywidgets.Button(description=label, icon=icon, tooltip=tooltip, layout=layout, **more), mark)


def fold(label: str, mark: str, inside: ipywidgets.Widget) -> ipywidgets.ToggleButton:
    """A button that shows and hides *inside*; the accordion of ipywidgets cannot be opened with the keyboard."""
    toggle = marked(
        ipywidgets.ToggleButton(description=label, icon="caret-right", layout=wide(), tooltip="Show more options"),
        mark,
    )

    def show(_: Any = None) -> None:
        inside.layout.display = SHOWN if toggle.value else HIDDEN
        toggle.icon = "caret-down" if toggle.value else "caret-right"

    toggle.observe(show, "value")
    show()
    return toggle


# Small pieces of HTML: sizes, refusals, warnings, numbers. Any text from a person or a file is escaped.

STYLE = f"<style>{(Path(__file__).parent / 'explorer.css').read_text()}</style>"


NAMED_MOST = 3
"""The most choices of one control that a line names; more are counted."""


def refusal_html(message: str) -> str:
    """A refusal, as an alert."""
    return str(Markup('<div class="wb-bad" role="alert">{}</div>').format(message))


def warning_html(message: str) -> str:
    """A message that warns a person before they trust a number."""
    return str(Markup('<div class="wb-warn" role="status">{}</div>').format(message))


def note_html(message: str) -> str:
    """A quiet note."""
    return str(Markup('<div class="wb-note">{}</div>').format(message))


def preset_html(preset: Preset, operator: str) -> str:
    """A preset's full description, since the list next to it has room for its name only."""
    note = next((entry.note for entry in preset.entries if entry.operator == operator), "")
    divided = f"divided: {preset.divided}" if preset.divided and not preset.divided.startswith("nothing") else ""
    text = "; ".join(filter(None, [preset.title, note, divided])) + "."
    return str(
        Markup('<div class="wb-note wb-aside" title="{}">{}</div>').format(f"{text} Source: {preset.source}", text)
    )


def left_out_html(messages: Sequence[str]) -> str:
    """The damaged files of `data/` that are ignored, in one line that can be opened."""
    if not messages:
        return ""
    count = "1 file is" if len(messages) == 1 else f"{len(messages)} files are"
    whys = [message.removeprefix(LEFT_OUT) for message in messages]
    lines = Markup("").join(Markup("<li>{}</li>").format(why) for why in whys)
    folded = Markup('<details class="wb-warn"><summary>{} damaged and left out</summary><ul>{}</ul></details>')
    return str(folded.format(count, lines))


def unavailable_html(refused: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """The choices that are greyed out, and why. *refused*: reason -> control -> labels of its choices."""
    lines = Markup("").join(
        Markup("<li><b>{}</b>: {}</li>").format("; ".join(_choices(*each) for each in by_control.items()), reason)
        for reason, by_control in refused.items()
    )
    if not lines:
        return ""
    summary = "What is greyed out here, and why"
    return str(Markup('<details class="wb-note"><summary>{}</summary><ul>{}</ul></details>').format(summary, lines))


def _choices(control: str, labels: Sequence[str]) -> str:
    return f"{control} {', '.join(labels)}" if len(labels) <= NAMED_MOST else f"{control}, {len(labels)} of them"


def numbers_html(numbers: Mapping[str, float | None], estimate: Estimate | None) -> str:
    """The main times next to each other; unknown ones are omitted."""
    known = {name: seconds for name, seconds in numbers.items() if seconds is not None}
    shown = Markup("").join(
        Markup('<span class="wb-number wb-number-{}"><b>{}</b> {}</span>').format(
            name.replace(" ", "-"), seconds_text(seconds), name
        )
        for name, seconds in known.items()
    )
    return str(Markup('<div class="wb-numbers">{}</div>').format(shown)
               + Markup(_share_html(estimate) + _trust_html(estimate)))  # fmt: skip


def _share_html(estimate: Estimate | None) -> str:
    """A note where one call has several micro-batches: times are of one of them, the timeline is of all."""
    count = 1 if estimate is None else problems(estimate.trial.schedule)
    text = f"Times are of one micro-batch of {count}, the timeline is of the call with all {count}."
    return note_html(text) if count > 1 else ""


def _trust_html(estimate: Estimate | None) -> str:
    """The interval of the estimate, and how it was checked."""
    if estimate is None:
        return ""
    band = f"The estimate may be {seconds_text(estimate.low_s)} to {seconds_text(estimate.high_s)}"
    if estimate.calibrated:
        return note_html(f"{band} on {estimate.trial.machine}, as its calibration was checked.")
    return note_html(
        f"{band}: {estimate.trial.machine} is {trust(estimate.trial.machine)}, so trust the order of schedules, not "
        "the size."
    )


def sizes_html(problem: Problem) -> str:
    """A table of local and global sizes, and the bytes that must cross the wire."""
    operator = OPERATORS[problem.operator]
    local, whole = operator.local(problem), operator.whole(problem)
    rows = [
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(tensor, _shape(shape), _shape(whole_shape))
        for (tensor, shape), whole_shape in zip(local.items(), whole.values(), strict=True)
    ]
    ranks = "1 rank" if problem.world == 1 else f"all {problem.world} ranks"
    table = Markup('<table class="wb-sizes"><tr><th>tensor</th><th>one rank</th><th>{}</th></tr>{}</table>').format(
        ranks, Markup("").join(rows)
    )
    wire = Markup('<div class="wb-note">Each rank computes {} and sends at least {}.</div>').format(
        _flop_text(operator.flops(problem)), bytes_text(operator.wire_bytes(problem))
    )
    return str(table + wire)


def _flop_text(flops: float) -> str:
    for scale, unit in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if flops >= scale:
            return f"{flops / scale:.3g} {unit}"
    return f"{flops:,.0f} FLOP"


def _shape(sizes: tuple[int, ...]) -> Markup:
    return escape(" × ".join(f"{size:,}".replace(",", " ") for size in sizes))
