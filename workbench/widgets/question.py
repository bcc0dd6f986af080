"""The form: what is asked, in widgets. It offers only what is legal and says why the rest is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ipywidgets

from kernels.axes import Axis, Value
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.protocol import PROTOCOLS
from kernels.schedule import Refusal
from kernels.schemes import SCHEMES
from kernels.units import DTYPE_BYTES
from workbench import presets
from workbench.machines import machine as machine_named
from workbench.machines import names as machine_names
from workbench.widgets.asking import Asked
from workbench.widgets.controls import LAYOUT, WIDE, dropdown, html, marked, number_line, one_of, tick
from workbench.widgets.words import axis_title, refusal_html, sizes_html

OWN = "own sizes"
"""Stands for a shape that a person typed."""
BASIC = {"sequential": (), "decomposed": ("pieces",), "fused": ("slice_tiles",), "concurrent": ()}
"""The axes that are not under Advanced."""
WORLDS = (1, 2, 4, 8)
RATIOS = (0.1, 0.2, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)


class Question:
    """Controls of one question. `asked` is its state, `on_change` is called after every change of it."""

    def __init__(self, default_preset: str, machine: str) -> None:
        self._listeners: list[Callable[[], Any]] = []
        self._quiet = 0
        self._values: dict[str, dict[str, Value]] = {}
        self._swept: set[str] = set()
        self._sizes: dict[str, Any] = {}
        self._build(machine)
        self._fill_presets(default_preset)
        self._take_preset()
        for control in (
            self.scheme,
            self.ratio,
            self.dtype,
            self.protocol,
            self.machine,
            self.fabric,
            self.sweep_schemes,
            self.fresh,
        ):
            control.observe(self._changed, "value")
        self.operator.observe(self._operator_changed, "value")
        self.preset.observe(self._preset_changed, "value")
        self.world.observe(self._world_changed, "value")
        self._refresh()

    # what the form looks like

    def _build(self, machine: str) -> None:
        words = [(stated.words, name) for name, stated in OPERATORS.items()]
        self.operator = dropdown("Operator", words, "wb-operator", value="gemm_all_to_all")
        self.preset = dropdown("Problem", [OWN], "wb-preset")
        self.scheme = one_of(list(SCHEMES), "fused", "wb-scheme", [stated.idea for stated in SCHEMES.values()])
        self.sweep_schemes = tick("Compare all schemes", "wb-sweep-schemes")
        self.ratio = number_line("Wire : compute", RATIOS, 1.0, "wb-ratio")
        self.basic_axes = ipywidgets.VBox(layout=LAYOUT)
        self.sizes, self.refusal = html("wb-sizes-shown"), html("wb-refusal")
        advanced = ipywidgets.Accordion([self._advanced(machine)], titles=("Advanced",), selected_index=None)
        self.advanced = marked(advanced, "wb-advanced")
        shown = [self.operator, self.preset, self.scheme, self.sweep_schemes, self.basic_axes, self.ratio]
        self.view = ipywidgets.VBox([*shown, self.advanced, self.sizes, self.refusal])

    def _advanced(self, machine: str) -> ipywidgets.VBox:
        self.world = dropdown("Ranks", list(WORLDS), "wb-world", value=2)
        self.dtype = dropdown("dtype", list(DTYPE_BYTES), "wb-dtype")
        self.fabric = dropdown("Link", _fabrics(machine_named(machine)), "wb-fabric")
        self.machine = dropdown("Machine", machine_names(), "wb-machine", value=machine)
        protocols = [(_protocol_words(name), name) for name in PROTOCOLS]
        self.protocol = dropdown("Protocol", protocols, "wb-protocol", value="quick")
        self.advanced_axes, self.shape = ipywidgets.VBox(layout=LAYOUT), ipywidgets.VBox(layout=LAYOUT)
        self.fresh = tick("Measure again what is known", "wb-fresh")
        first = [self.world, self.dtype, self.fabric, self.machine, self.protocol]
        return ipywidgets.VBox([*first, self.advanced_axes, self.shape, self.fresh])

    # what it says

    @property
    def machine_value(self) -> Machine:
        return machine_named(self.machine.value)

    @property
    def asked(self) -> Asked:
        """The state of the form; it may be illegal."""
        swept = sorted(self._swept | ({"scheme"} if self.sweep_schemes.value else set()))
        return Asked(
            operator=self.operator.value,
            shape=tuple((name, control.value) for name, control in self._sizes.items()),
            dtype=self.dtype.value,
            world=self.world.value,
            scheme=self.scheme.value,
            values=tuple((scheme, tuple(values.items())) for scheme, values in self._values.items()),
            fabric=self._fabric_text(),
            protocol=self.protocol.value,
            swept=tuple(swept),
            fresh=self.fresh.value,
        )

    def _fabric_text(self) -> str:
        kind = str(self.fabric.value)
        return f"{kind}:wire_to_compute={self.ratio.value:g}" if kind == "emulated" else kind

    def on_change(self, listener: Callable[[], Any]) -> None:
        self._listeners.append(listener)

    def load(self, scheme: str, values: Mapping[str, Value]) -> None:
        """Sets the form to a schedule, as a click on the landscape does."""
        with self._silently():
            self._values[scheme] = dict(values)
            self._swept.clear()
            self.sweep_schemes.value = False
            self.scheme.value = scheme
        self._changed()

    def load_problem(self, operator: str, shape: Mapping[str, int | str], world: int, dtype: str) -> None:
        """Sets the form to a problem, as restoring a run does."""
        with self._silently():
            self.operator.value = operator
            self._fill_presets(OWN)
            self._show_shape(shape)
            self.world.value, self.dtype.value = world, dtype
        self._changed()

    # what happens on a change

    @contextmanager
    def _silently(self) -> Any:
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def _operator_changed(self, _: Any) -> None:
        with self._silently():
            self._values.clear()
            self._swept.clear()
            self._fill_presets(self.preset.value)
            self._take_preset()
        self._changed()

    def _preset_changed(self, _: Any) -> None:
        if not self._quiet:
            with self._silently():
                self._values.clear()
                self._take_preset()
            self._changed()

    def _world_changed(self, change: Any) -> None:
        """Some sizes of a preset follow the number of ranks."""
        if not self._quiet:
            with self._silently():
                self._take_preset(change["new"])
            self._changed()

    def _changed(self, _: Any = None) -> None:
        if self._quiet:
            return
        self._refresh()
        for listener in self._listeners:
            listener()

    def _fill_presets(self, wanted: str) -> None:
        known = sorted(
            presets.offering(self.operator.value), key=lambda each: (each.name != "laptop_overlap", not each.laptop)
        )
        offered = [each.name for each in known]
        self.preset.options = [*((each.title, each.name) for each in known), (OWN, OWN)]
        self.preset.value = wanted if wanted in (*offered, OWN) else offered[0]

    def _take_preset(self, world: int | None = None) -> None:
        if self.preset.value == OWN:
            return
        try:
            (problem,) = presets.preset(self.preset.value, self.operator.value, world=world)
        except Refusal:
            return  # the sizes stay; the form says why they do not fit
        self._show_shape(dict(problem.shape))
        self.dtype.value = problem.dtype
        if problem.world in WORLDS:
            self.world.value = problem.world

    def _show_shape(self, shape: Mapping[str, int | str]) -> None:
        self._sizes = {}
        for key in OPERATORS[self.operator.value].keys:
            options: dict[str, Any] = {"description": key.name, "style": WIDE, "layout": LAYOUT, "tooltip": key.doc}
            if key.words:
                control: Any = ipywidgets.Dropdown(
                    options=key.words, value=shape.get(key.name, key.words[0]), **options
                )
            else:
                control = ipywidgets.BoundedIntText(value=int(shape[key.name]), min=1, max=2**31, **options)
            control.observe(self._size_changed, "value")
            self._sizes[key.name] = marked(control, f"wb-size-{key.name}")
        self.shape.children = tuple(self._sizes.values())

    def _size_changed(self, _: Any) -> None:
        with self._silently():
            self.preset.value = OWN
        self._changed()

    def _refresh(self) -> None:
        """Offers what is legal now, and says why what is asked is not."""
        machine = self.machine_value
        with self._silently():
            self._offer_fabrics(machine)
            self.ratio.layout.display = None if self.fabric.value == "emulated" else "none"
            try:
                problem = self.asked.problem()
                self.sizes.value = sizes_html(problem)
                self._offer_axes(self.asked.axes(machine))
                self.asked.schedule(machine)
                self.refusal.value = ""
            except Refusal as refusal:
                self.refusal.value = refusal_html(str(refusal))

    def _offer_fabrics(self, machine: Machine) -> None:
        offered = _fabrics(machine)
        if tuple(self.fabric.options) != offered:
            self.fabric.options = offered

    def _offer_axes(self, known: Sequence[Axis]) -> None:
        mine = self._values.setdefault(self.scheme.value, {})
        for name in [name for name, value in mine.items() if not _accepts(known, name, value)]:
            del mine[name]
        offered = tuple((axis.name, axis.values, mine.get(axis.name, axis.default)) for axis in known)
        if getattr(self, "_offered", None) == (self.scheme.value, offered):
            return
        self._offered = (self.scheme.value, offered)
        basic = BASIC.get(self.scheme.value, ())
        rows = {axis.name: self._axis_row(axis, mine.get(axis.name, axis.default)) for axis in known}
        self.basic_axes.children = tuple(rows[name] for name in basic if name in rows)
        self.advanced_axes.children = tuple(row for name, row in rows.items() if name not in basic)

    def _axis_row(self, axis: Axis, value: Value) -> ipywidgets.HBox:
        options = axis.values if value in axis.values else (*axis.values, value)
        kind = ipywidgets.SelectionSlider if _is_number_line(axis) else ipywidgets.Dropdown
        control = marked(
            kind(
                options=options,
                value=value,
                description=axis_title(axis.name),
                tooltip=axis.doc,
                style=WIDE,
                layout=ipywidgets.Layout(flex="1 1 auto", width="auto"),
            ),
            f"wb-axis-{axis.name}",
        )
        sweep = marked(
            ipywidgets.ToggleButton(
                value=axis.name in self._swept,
                description="all",
                tooltip=f"Try every {axis.name}",
                layout=ipywidgets.Layout(width="42px"),
                disabled=len(axis.values) < 2,
            ),
            f"wb-sweep-{axis.name}",
        )
        control.observe(lambda change: self._set_axis(axis.name, change["new"]), "value")
        sweep.observe(lambda change: self._set_sweep(axis.name, change["new"]), "value")
        return ipywidgets.HBox([control, sweep], layout=LAYOUT)

    def _set_axis(self, name: str, value: Value) -> None:
        self._values.setdefault(self.scheme.value, {})[name] = value
        scheme, offered = self._offered
        self._offered = (scheme, tuple((n, v, value if n == name else old) for n, v, old in offered))
        self._changed()

    def _set_sweep(self, name: str, wanted: bool) -> None:
        (self._swept.add if wanted else self._swept.discard)(name)
        self._changed()


def _accepts(known: Sequence[Axis], name: str, value: Value) -> bool:
    return any(axis.name == name and axis.refusal(value) is None for axis in known)


def _is_number_line(axis: Axis) -> bool:
    return len(axis.values) > 2 and all(isinstance(value, int) for value in axis.values)


def _fabrics(machine: Machine) -> tuple[str, ...]:
    kinds = ("emulated", "shared_memory") if machine.backend == "cpu" else ("nvlink", "emulated")
    return tuple(kind for kind in kinds if parse(kind))


def _protocol_words(name: str) -> str:
    known = PROTOCOLS[name]
    return f"{name}: {known.repeats} samples after {known.warmups} warm-ups"
