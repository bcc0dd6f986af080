"""Small controls and pieces of HTML of the explorer; any text from a person or a file is escaped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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

# Keys pressed in the explorer do not reach JupyterLab, which would handle arrows and letters itself. What keys and
# clicks do beyond what the browser's own controls do is here, too.

KEYS = """
// JupyterLab handles keys that bubble up to the page, so plain keys stop here. Escape and combinations such as Ctrl+S
// still reach JupyterLab.
function keep(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey && event.key !== "Escape") event.stopPropagation();
}

// What has opened over the page closes with Escape, and with a press anywhere else.
function close(page, { type, key, target }) {
  if (type === "keydown" && key !== "Escape") return;
  for (const open of page.querySelectorAll(".wb-answer-why details[open]")) {
    if (type === "pointerdown" && open.contains(target)) continue;
    if (open.contains(document.activeElement)) open.querySelector("summary").focus();
    open.open = false;
  }
}

// The Tab key enters the tabs of the views at the current one; Lumino leaves it with the one that had the focus first.
function enter(tab) {
  for (const each of tab?.parentElement.children ?? []) each.tabIndex = each === tab ? 0 : -1;
}
function enterCurrent(page, { key }) {
  if (key !== "Tab") return;
  for (const tab of page.querySelectorAll(".lm-TabBar-tab.lm-mod-current"))
    if (!tab.parentElement.contains(document.activeElement)) enter(tab);
}

// The tooltip of a tick is its label's text; ipywidgets would show the label's HTML.
function name({ target }) {
  const label = target.closest("label:has(.wb-aloud)");
  for (const part of label?.querySelectorAll("[title]") ?? []) part.title = label.textContent;
}

// Text that its place cuts has all of it as its tooltip; so has the chosen entry of a list.
function whole({ target }, page) {
  if (target.tagName === "SELECT") target.title = target.selectedOptions[0]?.textContent ?? "";
  for (let at = target; at && at !== page; at = at.parentElement) {
    if (at.title && at.dataset.wbCut === undefined) return; // it has one that says more
    const { textOverflow, webkitLineClamp } = getComputedStyle(at);
    const isCut = (textOverflow === "ellipsis" && at.scrollWidth > at.clientWidth) ||
      (webkitLineClamp !== "none" && at.scrollHeight > at.clientHeight);
    if (isCut) {
      at.dataset.wbCut = ""; // this title is ours: it follows the text
      at.title = [...at.childNodes].map((part) => part.textContent.trim()).join(" ").trim();
      return;
    }
    if (at.dataset.wbCut !== undefined) at.removeAttribute("title");
  }
}

export default {
  render({ el, signal }) {
    const begin = () => {
      if (signal.aborted) return;
      const page = el.closest(".wb-explorer");
      if (!page) return requestAnimationFrame(begin); // not yet on the page
      const listen = (node, type, handle, capture = false) => node.addEventListener(type, handle, { signal, capture });
      listen(page, "keydown", keep);
      listen(page, "click", ({ target }) => enter(target.closest(".lm-TabBar-tab")));
      for (const type of ["pointerover", "focusin"]) listen(page, type, name);
      listen(page, "pointerover", (event) => whole(event, page));
      for (const type of ["keydown", "pointerdown"]) listen(document, type, (event) => close(page, event), true);
      listen(document, "keydown", (event) => enterCurrent(page, event), true);
    };
    begin();
  },
};
"""


class Keyboard(anywidget.AnyWidget):
    """An invisible widget of the surrounding explorer: it keeps plain keys from JupyterLab, and closes what is open."""

    _esm = KEYS


# The explorer is as high as what its notebook shows of itself, so that its parts scroll, and the page does not.

SCREEN = """
export default {
  render({ model, el, signal }) {
    const begin = () => {
      if (signal.aborted) return;
      const page = el.closest(".wb-explorer");
      if (!page) return requestAnimationFrame(begin); // not yet on the page
      model.send({ kind: "shown" }); // all controls are here: what changes from now on reaches them
      const frame = page.closest(".jp-WindowedPanel-outer, .jp-Notebook") ?? document.documentElement;
      const take = () => page.style.setProperty("--wb-screen", `${frame.clientHeight}px`);
      const sizes = new ResizeObserver(take);
      sizes.observe(frame);
      signal.addEventListener("abort", () => sizes.disconnect());
      take();
    };
    begin();
  },
};
"""


class Screen(anywidget.AnyWidget):
    """An invisible widget that gives the style sheet the height of the visible part of the notebook.

    Calls *shown* whenever a browser has made the controls around it.
    """

    _esm = SCREEN

    def __init__(self, shown: Callable[[], Any]) -> None:
        super().__init__()
        self._shown = shown
        self.on_msg(self._receive)

    def _receive(self, _widget: Any, content: Mapping[str, Any], _buffers: Any) -> None:
        if content.get("kind") == "shown":
            self._shown()


CONSTANT = ("_esm", "_css", "_style", "_modes", "_looks")
"""Traits that never change: code, style and the colours of themes."""


def send_again(view: ipywidgets.Widget) -> None:
    """Sends the state of *view* and of all in it to the browser.

    A page that is loading asks for all states, and misses what changes until it has made its controls; no equal value
    is sent later. A Run that became pressable meanwhile stayed grey for good.
    """
    keys = [key for key in view.keys if key not in CONSTANT and not isinstance(getattr(view, key), bytes)]
    view.send_state(keys)
    if hasattr(view, "layout"):
        view.layout.send_state("display")
    for child in getattr(view, "children", ()):
        send_again(child)


# Small controls of a form, each with a stable class name for tests, style sheets and scripts.

WIDE = {"description_width": "92px"}
"""The labels of a column that is 300 px wide."""
HIDDEN, SHOWN = "none", None


class QuietControls:
    """A form that ignores the changes that it makes to its own controls inside `with self._silently()`.

    A thread that reports news and the kernel's thread change a form one after the other; changes of the other are
    reported after it.
    """

    _lock = threading.RLock()
    """Held while a form changes itself, or is read whole. Listeners are never called under it."""

    @property
    def _quiet(self) -> bool:
        return getattr(self._changing, "depth", 0) > 0

    @property
    def _changing(self) -> threading.local:
        return self.__dict__.setdefault("_changing_here", threading.local())

    @contextmanager
    def _silently(self) -> Iterator[None]:
        with self._lock:
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


def sweep_tick(mark: str, shown: str = "sweep") -> ipywidgets.Checkbox:
    """The checkbox *sweep*: a run tries every value of the control next to it, instead of the one shown."""
    control = ipywidgets.Checkbox(
        description=shown,
        description_allow_html=True,
        indent=False,
        layout=ipywidgets.Layout(width="auto", flex="0 0 auto", margin="1px 0 1px 4px"),
    )
    return marked(control, mark)


def sweep_label(title: str, values: Sequence[Any]) -> str:
    """The text of the tick of the axis called *title*: the range of *values* that it would try."""
    numbers = all(isinstance(value, int) for value in values)
    tried = f"{values[0]}\N{EN DASH}{values[-1]}" if numbers and values else f"all {len(values)}"
    return str(Markup('sweep <span class="wb-aloud">{}, </span>{}').format(title, tried))


def group(title: str, mark: str, inside: Sequence[Any], at_heading: Sequence[Any] = ()) -> ipywidgets.VBox:
    """Controls below a heading, with other controls in its line, *at_heading*."""
    heading = ipywidgets.HTML(str(Markup("<h3>{}</h3>").format(title)))
    head = marked(ipywidgets.HBox([heading, *at_heading], layout=wide()), "wb-group-head")
    return marked(ipywidgets.VBox([head, *inside], layout=wide(margin="0")), mark)


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


def html(mark: str, **layout: Any) -> ipywidgets.HTML:
    """An HTML label, as wide as the form unless *layout* says otherwise."""
    return marked(ipywidgets.HTML(layout=wide(**{"margin": "0", **layout})), mark)


FILLING = {"flex": "1 1 0", "width": "auto", "min_width": "0"}
"""The layout of what takes the room that its neighbours leave, and is cut where that is little."""


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


def folded_html(message: str) -> str:
    """A quiet note whose beginning, up to its first colon, is shown; opened, the rest."""
    beginning, colon, rest = message.partition(": ")
    folded = '<details class="wb-note"><summary>{}</summary>{}</details>'
    return str(Markup(folded).format(beginning + colon, rest))


def preset_html(preset: Preset, operator: str) -> str:
    """What the operator does with a preset's sizes, and where these are from: a list has room for names only."""
    note = next((entry.note for entry in preset.entries if entry.operator == operator), "")
    divided = f"divided: {preset.divided}" if preset.divided and not preset.divided.startswith("nothing") else ""
    words = OPERATORS[operator].words
    text = f"{words[:1].upper()}{words[1:]}. {'; '.join(filter(None, [preset.title, note, divided]))}."
    return str(
        Markup('<div class="wb-note wb-aside" title="{}">{}</div>').format(f"{text} Source: {preset.source}", text)
    )


def operator_html(operator: str) -> str:
    """What the operator does, where a person types the sizes."""
    words = OPERATORS[operator].words
    return note_html(f"{words[:1].upper()}{words[1:]}. Sizes are of what one rank computes.")


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
    notes = Markup("").join(Markup(note_html(text)) for text in (share_text(estimate), trust_text(estimate)) if text)
    return str(Markup('<div class="wb-numbers">{}</div>').format(shown) + notes)


def share_text(estimate: Estimate | None) -> str:
    """A note where one call has several micro-batches: times are of one of them, the timeline is of all."""
    count = 1 if estimate is None else problems(estimate.trial.schedule)
    text = f"Times are of one micro-batch of {count}, the timeline is of the call with all {count}."
    return text if count > 1 else ""


def trust_text(estimate: Estimate | None) -> str:
    """The interval of the estimate, and how it was checked."""
    if estimate is None:
        return ""
    band = f"The estimate may be {seconds_text(estimate.low_s)} to {seconds_text(estimate.high_s)}"
    if estimate.calibrated:
        return f"{band} on {estimate.trial.machine}, as its calibration was checked."
    return (
        f"{band}: {estimate.trial.machine} is {trust(estimate.trial.machine)}, so trust the order of schedules, not "
        "the size."
    )


def sizes_html(problem: Problem) -> str:
    """What a rank computes and sends at least; opened, a table of local and global sizes."""
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
    wire = Markup("A rank computes {} and sends {} or more").format(
        _flop_text(operator.flops(problem)), bytes_text(operator.wire_bytes(problem))
    )
    return str(Markup('<details class="wb-note"><summary>{}</summary>{}</details>').format(wire, table))


def _flop_text(flops: float) -> str:
    for scale, unit in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if flops >= scale:
            return f"{flops / scale:.3g} {unit}"
    return f"{flops:,.0f} FLOP"


def _shape(sizes: tuple[int, ...]) -> Markup:
    return escape(" × ".join(f"{size:,}".replace(",", " ") for size in sizes))
