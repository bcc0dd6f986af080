"""The form: what is asked, in widgets. It offers only what is legal and says why the rest is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ipywidgets

from kernels.axes import Axis, Value
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.protocol import PROTOCOLS
from kernels.schedule import Refusal
from kernels.schemes import SCHEMES
from workbench.machines import machine as machine_named
from workbench.machines import names as machine_names
from workbench.widgets.asking import SCHEME, Asked
from workbench.widgets.axis_rows import AxisRows
from workbench.widgets.controls import (
    HIDDEN,
    SHOWN,
    Quiet,
    dropdown,
    every,
    fold,
    html,
    marked,
    number_line,
    one_of,
    tick,
    wide,
)
from workbench.widgets.controls import row as side_by_side
from workbench.widgets.problem_form import ProblemForm
from workbench.widgets.words import refusal_html, sizes_html

RATIOS = (0.1, 0.2, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0)
EMULATED = "emulated"

Row = Mapping[str, Any]


class Question(Quiet):
    """Controls of one question. `asked` is its state, `on_change` is called after every change of it."""

    def __init__(self, default_preset: str, machine: str) -> None:
        self._listeners: list[Callable[[], Any]] = []
        self._values: dict[str, dict[str, Value]] = {}
        self._swept: set[str] = set()
        self.axes = AxisRows(self._set_axis, self._set_sweep)
        self.problem = ProblemForm(default_preset, machine_named(machine))
        self._build(machine)
        for control in (self.scheme, self.ratio, self.protocol, self.fabric, self.sweep_schemes, self.fresh):
            control.observe(self._changed, "value")
        self.machine.observe(self._machine_changed, "value")
        self.problem.on_change(self._problem_changed)
        self._refresh()

    # what the form looks like

    def _build(self, machine: str) -> None:
        self.scheme = one_of(list(SCHEMES), "fused", "wb-scheme", [stated.idea for stated in SCHEMES.values()])
        self.sweep_schemes = every("wb-sweep-schemes", "scheme that is built, side by side")
        self.ratio = number_line("Wire : compute", RATIOS, 1.0, "wb-ratio")
        self.ratio.tooltip = "How long the least that must be sent takes, as a multiple of the computation"
        self.sizes, self.refusal = html("wb-sizes-shown"), html("wb-refusal")
        self.machine = dropdown("Machine", machine_names(), "wb-machine", value=machine)
        self.fabric = dropdown("Link", _fabrics(machine_named(machine)), "wb-fabric")
        self.protocol = dropdown("Protocol", [(_protocol_words(p), p) for p in PROTOCOLS], "wb-protocol", "quick")
        self.fresh = tick("Measure again what is known", "wb-fresh")
        schemes = side_by_side(self.scheme, self.sweep_schemes)
        self.view = ipywidgets.VBox([self.problem.view, schemes, self.axes.basic, self.ratio, self.refusal])
        advanced = [self.problem.world, self.problem.dtype, self.machine, self.fabric, self.protocol]
        inside = marked(ipywidgets.VBox([*advanced, self.axes.advanced, self.fresh], layout=wide()), "wb-advanced")
        self.more = fold("Advanced", "wb-more", inside)
        self.advanced = ipywidgets.VBox([self.more, inside], layout=wide())

    # what it says

    @property
    def machine_value(self) -> Machine:
        return machine_named(self.machine.value)

    @property
    def asked(self) -> Asked:
        """The state of the form; it may be illegal."""
        return Asked(
            operator=self.problem.operator.value,
            shape=self.problem.shape,
            dtype=self.problem.dtype.value,
            world=self.problem.world.value,
            scheme=self.scheme.value,
            values=tuple((scheme, tuple(values.items())) for scheme, values in self._values.items()),
            fabric=self._fabric_text(),
            protocol=self.protocol.value,
            swept=tuple(sorted(self._swept | ({SCHEME} if self.sweep_schemes.value else set()))),
            fresh=self.fresh.value,
        )

    def _fabric_text(self) -> str:
        kind = str(self.fabric.value)
        return f"{kind}:wire_to_compute={self.ratio.value:g}" if kind == EMULATED else kind

    def on_change(self, listener: Callable[[], Any]) -> None:
        self._listeners.append(listener)

    # what others set

    def load(self, scheme: str, values: Mapping[str, Value]) -> None:
        """Sets the form to a schedule, as a click on the landscape does.

        Only what differs from the defaults counts as set: with another problem the rest follows the new defaults.
        """
        with self._silently():
            plain = _complete(replace(self.asked, scheme=scheme, values=()), self.machine_value) or {}
            self._values[scheme] = {name: value for name, value in values.items() if plain.get(name) != value}
            if _complete(replace(self.asked, scheme=scheme), self.machine_value) != dict(values):
                self._values[scheme] = dict(values)
            self._swept.clear()
            self.sweep_schemes.value = False
            self.scheme.value = scheme
        self._changed()

    def load_row(self, row: Row) -> None:
        """Sets the form to what *row* is about: problem, machine, link and schedule, as restoring a run does."""
        with self._silently():
            if row["machine"] in self.machine.options:
                self.machine.value = row["machine"]
            self.problem.load(row["operator"], row["shape"], row["world"], row["dtype"])
            self._load_link(str(row["fabric"]))
            if row["protocol"] in PROTOCOLS:
                self.protocol.value = row["protocol"]
        self.load(row["scheme"], row["axes"])

    def _load_link(self, text: str) -> None:
        """A link that the form has no controls for becomes a choice of its own."""
        fabric = parse(text)
        if fabric.wire_to_compute is not None:
            if fabric.wire_to_compute not in self.ratio.options:
                self.ratio.options = sorted({*self.ratio.options, fabric.wire_to_compute})
            self.ratio.value, text = fabric.wire_to_compute, EMULATED
        if text not in self.fabric.options:
            self.fabric.options = (*_fabrics(self.machine_value), text)
        self.fabric.value = text

    # what happens on a change

    def _problem_changed(self, operator_changed: bool) -> None:
        if operator_changed:
            self._values.clear()
            self._swept.clear()
        for values in self._values.values():
            values.pop("tile", None)  # a tile suits the sizes that it was chosen for
        self._changed()

    def _machine_changed(self, _: Any) -> None:
        """Another machine has other links, and other problems are worth asking of it."""
        machine = self.machine_value
        with self._silently():
            self.fabric.options = _fabrics(machine)
            self._values.clear()
            self.problem.move_to(machine)
        self._changed()

    def _changed(self, _: Any = None) -> None:
        if self._quiet:
            return
        self._refresh()
        for listener in self._listeners:
            listener()

    def _refresh(self) -> None:
        """Offers what is legal now, and says why what is asked is not."""
        with self._silently():
            self.ratio.layout.display = SHOWN if self.fabric.value == EMULATED else HIDDEN
            self.refusal.value = ""
            try:
                asked, machine = self.asked, self.machine_value
                self.sizes.value = sizes_html(asked.problem())
                known = asked.axes(machine)
                mine = self._values.setdefault(self.scheme.value, {})
                for name in [name for name, value in mine.items() if not _accepts(known, name, value)]:
                    del mine[name]
                complete = _complete(self.asked, machine) or mine
                self.axes.offer(self.scheme.value, known, complete, self._swept)
                self.asked.schedule(machine)
            except Refusal as refusal:
                self.refusal.value = refusal_html(str(refusal))

    def _set_axis(self, name: str, value: Value) -> None:
        self._values.setdefault(self.scheme.value, {})[name] = value
        self._changed()

    def _set_sweep(self, name: str, wanted: bool) -> None:
        (self._swept.add if wanted else self._swept.discard)(name)
        self._changed()


def _complete(asked: Asked, machine: Machine) -> dict[str, Value] | None:
    """The schedule that Run would take: what a person has not set may follow from what was. None if there is none."""
    try:
        return dict(asked.schedule(machine).axes)
    except Refusal:
        return None


def _accepts(known: tuple[Axis, ...], name: str, value: Value) -> bool:
    return any(axis.name == name and axis.refusal(value) is None for axis in known)


def _fabrics(machine: Machine) -> tuple[str, ...]:
    return (EMULATED, "shared_memory") if machine.backend == "cpu" else ("nvlink", EMULATED)


def _protocol_words(name: str) -> str:
    known = PROTOCOLS[name]
    each = ", one call at a time (GPUs)" if known.calls_per_graph == 1 else ""
    return f"{name}: {known.repeats} samples after {known.warmups} warm-ups{each}"
