"""Parts of the form: greyed-out choices, a row for each axis, and the problem with its preset or sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anywidget
import ipywidgets
import traitlets
from markupsafe import Markup

from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.schedule import Axis, Refusal, Value
from kernels.units import DTYPE_BYTES, percent_text
from workbench.machines import presets
from workbench.naming import BASIC, SIGNS, axis_title, shape_title, value_title
from workbench.widgets.controls import (
    HIDDEN,
    SHOWN,
    WIDE,
    QuietControls,
    choice_or_label,
    dropdown,
    html,
    marked,
    operator_html,
    preset_html,
    refusal_html,
    sweep_label,
    sweep_tick,
    wide,
)

# Refused choices are greyed out with their reasons; ipywidgets itself can only disable whole controls.

GREYED = """
// `reasons`: by the class of a control, the reason by the index of the choice. ipywidgets recreates options and
// buttons when they change, so a control is updated whenever its content changes.
function grey(control, reasons) {
  const choices = control.querySelector("select")?.options ?? control.querySelectorAll("button");
  [...choices].forEach((choice, place) => mark(choice, reasons[place]));
}

function mark(choice, reason) {
  if (reason && choice.dataset.wbReason === undefined) choice.dataset.wbTitle = choice.title;
  if (reason) {
    choice.dataset.wbReason = choice.title = reason;
    choice.disabled = true;
  } else if (choice.dataset.wbReason !== undefined) {
    choice.title = choice.dataset.wbTitle;
    delete choice.dataset.wbReason;
    choice.disabled = false;
  }
}

export default {
  render({ model, el, signal }) {
    const seen = new Map();
    const look = () => {
      if (signal.aborted) return;
      const page = el.closest(".wb-explorer");
      if (!page) return requestAnimationFrame(look); // not yet on the page
      const reasons = model.get("reasons");
      for (const name of new Set([...Object.keys(reasons), ...seen.keys()])) {
        const control = page.querySelector("." + CSS.escape(name));
        if (!control) continue;
        if (seen.get(name)?.control !== control) {
          seen.get(name)?.observer.disconnect();
          const observer = new MutationObserver(() => grey(control, model.get("reasons")[name] ?? {}));
          observer.observe(control, { childList: true, subtree: true });
          seen.set(name, { control, observer });
        }
        grey(control, reasons[name] ?? {});
      }
    };
    model.on("change:reasons", () => requestAnimationFrame(look)); // controls that change with it are drawn first
    signal.addEventListener("abort", () => seen.forEach(({ observer }) => observer.disconnect()));
    look();
  },
};
"""


class Unavailable(anywidget.AnyWidget):
    """An invisible widget that greys out choices of other controls, which it finds by their class names."""

    _esm = GREYED
    reasons = traitlets.Dict().tag(sync=True)
    by_reason: Mapping[str, Mapping[str, Sequence[str]]] = {}
    """By reason, the refused choices of each control, by its name."""

    def show(self, refused: Mapping[str, Mapping[Hashable, str]], controls: Mapping[str, Any]) -> None:
        """Greys out *refused*: by the class name of one of *controls*, the reason of each refused choice."""
        reasons: dict[str, dict[str, str]] = {}
        by_reason: dict[str, dict[str, list[str]]] = {}
        for mark, messages in refused.items():
            control = controls[mark]
            pairs = [option if isinstance(option, tuple) else (str(option), option) for option in control.options]
            name = control.description or mark.removeprefix("wb-").capitalize()
            reasons[mark] = {}
            for place, (label, value) in enumerate(pairs):
                if value in messages:
                    reasons[mark][str(place)] = messages[value]
                    by_reason.setdefault(messages[value], {}).setdefault(name, []).append(label)
        self.by_reason = by_reason
        self.reasons = {mark: by_place for mark, by_place in reasons.items() if by_place}


# The axes of a scheme: a control with the legal values of each, and next to it *sweep* to try all of them.


@dataclass(frozen=True, slots=True)
class AxisRow:
    """The controls of one axis."""

    control: Any
    sweep: ipywidgets.Checkbox
    importance: ipywidgets.HTML
    """How much it matters; empty until something is known."""
    view: ipywidgets.HBox


class AxisRows(QuietControls):
    """The rows of all axes, in `basic` and `advanced`; a person's change calls *changed* or *swept* with the axis."""

    def __init__(self, changed: Callable[[str, Value], Any], swept: Callable[[str, bool], Any]) -> None:
        self._changed, self._swept = changed, swept
        self.basic, self.advanced = ipywidgets.VBox(layout=wide()), ipywidgets.VBox(layout=wide())
        self.rows: dict[str, AxisRow] = {}
        self._importance: Mapping[str, float] = {}
        self._is_estimated = False
        """Whether what is shown of importance is estimated."""
        self._kinds: Sequence[tuple[str, str, type]] = ()

    def offer(self, scheme: str, known: Sequence[Axis], values: Mapping[str, Value], swept: Collection[str]) -> None:
        """Shows the axes *known* of *scheme* with *values*, or their defaults.

        Existing controls are kept where possible, so that a slider stays while a person moves it.
        """
        kinds = [(scheme, axis.name, _kind(axis)) for axis in known]
        with self._silently():
            if kinds != self._kinds:
                self._kinds = kinds
                self.rows = {axis.name: self._row(axis) for axis in known}
                basic = BASIC.get(scheme, ())
                self.basic.children = tuple(self.rows[name].view for name in basic if name in self.rows)
                self.advanced.children = tuple(
                    axis_row.view for name, axis_row in self.rows.items() if name not in basic
                )
                self.show_importance(self._importance, estimated=self._is_estimated)
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
        sweep, importance = sweep_tick(f"wb-sweep-{axis.name}"), html("wb-importance", flex="0 0 auto", width="auto")
        control.observe(lambda change: self._quiet or self._changed(axis.name, change["new"]), "value")
        sweep.observe(lambda change: self._quiet or self._swept(axis.name, change["new"]), "value")
        view = marked(ipywidgets.HBox([choice_or_label(control), sweep, importance], layout=wide()), "wb-axis-row")
        return AxisRow(control, sweep, importance, view)

    def show_importance(self, shares: Mapping[str, float], *, estimated: bool = False) -> None:
        """Shows next to each axis the share of the variance of log time that it explains, 0 to 1; nothing where it is
        not in *shares*. *estimated*: of estimates, which is said."""
        self._importance, self._is_estimated = shares, estimated
        for name, axis_row in self.rows.items():
            share = shares.get(name)
            axis_row.importance.value = "" if share is None else importance_html(name, share, estimated=estimated)


def _show(axis_row: AxisRow, axis: Axis, value: Value, swept: bool) -> None:
    values = axis.values if value in axis.values else (*axis.values, value)
    named = [(value_title(each), each) for each in values]
    options = tuple(named) if any(title != str(each) for title, each in named) else values
    if tuple(axis_row.control.options) != options:
        axis_row.control.options = options
    axis_row.control.value = value
    alone = len(axis.values) < 2
    axis_row.sweep.layout.display = HIDDEN if alone else SHOWN
    axis_row.sweep.value = swept and not alone
    axis_row.sweep.tooltip = f"Try every value: {', '.join(map(value_title, axis.values))}"
    axis_row.sweep.description = sweep_label(axis_title(axis.name), axis.values)


def importance_html(name: str, share: float, *, estimated: bool = False) -> str:
    """A thin bar and per cent: how much the axis *name* matters; of estimates it is hollow, with their sign."""
    text = percent_text(share)
    title = f"{axis_title(name)} explains {text} of the variance of log time"
    look, source = (" wb-estimated", "estimated") if estimated else ("", "measured")
    bar = '<div class="wb-importance-share{}" title="{}, {}"><i><b style="width:{:.0f}%"></b></i>{}</div>'
    shown = f"{SIGNS[source]}\N{NO-BREAK SPACE}{text}" if estimated else text
    return str(Markup(bar).format(look, title, source, 100 * min(1.0, max(0.0, share)), shown))


def _kind(axis: Axis) -> type:
    return ipywidgets.SelectionSlider if is_number_line(axis) else ipywidgets.Dropdown


def is_number_line(axis: Axis) -> bool:
    """Whether the axis is shown as a slider: it has more than two values, all integers."""
    return len(axis.values) > 2 and all(isinstance(value, int) for value in axis.values)


# The problem: an operator, a preset or a person's own sizes, ranks and dtype.

OWN_SIZES = "own sizes"
"""The choice of a shape that a person types."""
LAPTOP_PRESET = "laptop_overlap"
"""The preset that is offered first for CPU ranks."""

Shape = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class PreviousProblem:
    """The problem that was last chosen for one kind of ranks."""

    preset: str
    shape: Shape
    world: int
    dtype: str


class ProblemForm(QuietControls):
    """The controls of a problem: `view` is always visible; `world` and `dtype` are shown under Advanced."""

    def __init__(self, preset: str, machine: Machine) -> None:
        self._listeners: list[Callable[[bool], Any]] = []
        self._machine = machine
        self._sizes: dict[str, Any] = {}
        self._world = 2
        """The ranks that a person, a preset or a run chose; the machine may have fewer."""
        self._previous: dict[str, PreviousProblem] = {}
        """By backend: the problem that was chosen before another kind of ranks was."""
        titles = [(operator.title, name) for name, operator in OPERATORS.items()]
        self.operator = dropdown("Operator", titles, "wb-operator", "gemm_all_to_all")
        self.preset = dropdown("Sizes", [OWN_SIZES], "wb-preset")
        self.about = html("wb-about")
        self.world = dropdown("Ranks", _worlds(machine.max_world), "wb-world", 2)
        self.dtype = dropdown("dtype", list(DTYPE_BYTES), "wb-dtype")
        self.sizes = marked(ipywidgets.VBox(layout=wide()), "wb-own-sizes")
        self.view = ipywidgets.VBox([self.operator, self.preset, self.about, self.sizes], layout=wide())
        self._fill_presets(preset)
        self._take_preset()
        self.operator.observe(self._operator_changed, "value")
        self.preset.observe(self._preset_changed, "value")
        self.world.observe(self._world_changed, "value")
        self.dtype.observe(lambda _: self._tell(), "value")

    @property
    def shape(self) -> tuple[tuple[str, int | str], ...]:
        """The current sizes."""
        return tuple((name, control.value) for name, control in self._sizes.items())

    def shape_for(self, world: int) -> tuple[tuple[str, int | str], ...]:
        """The sizes that *world* ranks would have; Refusal if the preset has none for them."""
        if self.preset.value == OWN_SIZES:
            return self.shape
        return presets.preset_named(self.preset.value).problem(self.operator.value, world=world).shape

    def on_change(self, listener: Callable[[bool], Any]) -> None:
        """Calls *listener* after every change; its argument says whether the operator has changed."""
        self._listeners.append(listener)

    def load(self, operator: str, shape: Shape, world: int, dtype: str, *, preset: str | None = None) -> None:
        """Sets all controls; the preset becomes *preset*, or the one that has exactly these sizes if there is one."""
        with self._silently():
            self.operator.value = operator
            self._offer({*self.world.options, world})
            self.world.value, self.dtype.value, self._world = world, dtype, world
            self._fill_presets(preset or self._preset_with(dict(shape), world))
            self._show_shape(shape)
            self._describe()
        self._tell()

    def seat(self, seats: int) -> None:
        """Offers up to *seats* ranks. The chosen number stays an option, even if it is refused."""
        with self._silently():
            self._offer({*_worlds(seats), self.world.value})

    def _offer(self, worlds: set[int]) -> None:
        if set(self.world.options) != worlds:
            kept = self.world.value
            self.world.options = sorted(worlds)
            self.world.value = kept if kept in worlds else self.world.options[0]

    def move_to(self, machine: Machine) -> None:
        """Offers the presets that suit *machine* first, and takes one if the machine has another kind of ranks.

        The number of ranks is limited to the machine's; the chosen number returns with a machine that has enough.
        """
        with self._silently():
            before, self._machine = self._machine, machine
            self._offer({*_worlds(machine.max_world), min(self._world, machine.max_world)})
            self.world.value = min(self._world, machine.max_world)
            if machine.backend == before.backend:
                self._fill_presets(self.preset.value)
                self._take_preset(self.world.value)
            else:
                self._previous[before.backend] = PreviousProblem(
                    self.preset.value, dict(self.shape), self._world, self.dtype.value
                )
                self._switch_to(self._previous.get(machine.backend))
        self._tell()

    def _switch_to(self, previous: PreviousProblem | None) -> None:
        """Switches to ranks of another kind: to their previous problem, or the preset that is offered first."""
        sizes_typed = self.preset.value == OWN_SIZES
        self._fill_presets(previous.preset if previous else OWN_SIZES if sizes_typed else "")
        if previous is None or self.preset.value != previous.preset:
            self._take_preset()
            return
        self._world = previous.world
        self.world.value, self.dtype.value = min(previous.world, self._machine.max_world), previous.dtype
        self._take_preset(self.world.value)
        if previous.preset == OWN_SIZES and previous.shape.keys() == dict(self.shape).keys():
            self._show_shape(previous.shape)

    def _tell(self, operator_changed: bool = False) -> None:
        if not self._quiet:
            for listener in self._listeners:
                listener(operator_changed)

    def _operator_changed(self, _: Any) -> None:
        if not self._quiet:
            with self._silently():
                self._fill_presets(self.preset.value)
                self._take_preset()
            self._tell(operator_changed=True)

    def _preset_changed(self, _: Any) -> None:
        if not self._quiet:
            with self._silently():
                self._take_preset()
            self._tell()

    def _world_changed(self, change: Any) -> None:
        """Takes the preset's sizes for another number of ranks."""
        if not self._quiet:
            self._world = change["new"]
            with self._silently():
                self._take_preset(change["new"])
            self._tell()

    def _fill_presets(self, wanted: str) -> None:
        on_cpu = self._machine.backend == "cpu"
        known = sorted(
            presets.offering(self.operator.value), key=lambda each: (each.laptop != on_cpu, each.name != LAPTOP_PRESET)
        )
        names = [*(each.name for each in known), OWN_SIZES]
        self.preset.options = [(value_title(name), name) for name in names]
        self.preset.value = wanted if wanted in names else names[0]

    def _take_preset(self, world: int | None = None) -> None:
        """Takes the sizes of the preset for *world* ranks; None means the preset's own number of ranks and dtype."""
        if self.preset.value == OWN_SIZES:
            if dict(self.shape).keys() != {key.name for key in OPERATORS[self.operator.value].keys}:
                self._show_shape(self._sizes_to_begin_with())
            self._describe()
            return
        known = presets.preset_named(self.preset.value)
        wanted = min(known.world, self._machine.max_world) if world is None else world
        try:
            problem = known.problem(self.operator.value, world=wanted)
        except Refusal as refusal:
            self._describe(str(refusal))  # the sizes stay as they were
            return
        self._show_shape(dict(problem.shape))
        self.world.value = problem.world
        if world is None:
            self.dtype.value, self._world = problem.dtype, known.world
        self._describe()

    def _sizes_to_begin_with(self) -> Shape:
        """Initial sizes of a newly chosen operator: those of its first preset."""
        known = presets.offering(self.operator.value)[0]
        return dict(known.problem(self.operator.value).shape)

    def _preset_with(self, shape: Shape, world: int) -> str:
        for each in presets.offering(self.operator.value):
            try:
                shape_there = dict(each.problem(self.operator.value, world=world).shape)
            except Refusal:
                continue
            if shape_there == shape:
                return each.name
        return OWN_SIZES

    def _describe(self, refusal: str = "") -> None:
        """Shows the fields for own sizes, or the description of the preset, or *refusal*."""
        sizes_typed = self.preset.value == OWN_SIZES
        self.sizes.layout.display = SHOWN if sizes_typed else HIDDEN
        if sizes_typed:
            self.about.value = operator_html(self.operator.value)
        else:
            self.about.value = preset_html(presets.preset_named(self.preset.value), self.operator.value)
        if refusal:
            self.about.value = refusal_html(refusal)

    def _show_shape(self, shape: Shape) -> None:
        self._sizes = {}
        for key in OPERATORS[self.operator.value].keys:
            options: dict[str, Any] = {
                "description": shape_title(key.name),
                "style": WIDE,
                "layout": wide(),
                "tooltip": f"{key.name}: {key.doc}",
            }
            if key.words:
                control: Any = ipywidgets.Dropdown(
                    options=[(value_title(word), word) for word in key.words],
                    value=shape.get(key.name, key.words[0]),
                    **options,
                )
            else:
                control = ipywidgets.IntText(value=int(shape[key.name]), **options)  # never clamped: 0 is refused
            control.observe(lambda _: self._tell(), "value")
            self._sizes[key.name] = marked(control, f"wb-size-{key.name}")
        self.sizes.children = tuple(self._sizes.values())


def _worlds(most: int) -> list[int]:
    """The powers of two up to *most*, and *most* itself."""
    return sorted({*(2**power for power in range(most.bit_length())), most})
