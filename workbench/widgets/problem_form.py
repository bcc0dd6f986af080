"""Which problem: an operator in words, a preset or sizes of one's own, how many ranks, which dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets

from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.units import DTYPE_BYTES
from workbench import presets
from workbench.widgets.controls import HIDDEN, SHOWN, WIDE, Quiet, dropdown, html, marked, wide
from workbench.widgets.words import note_html, preset_html, refusal_html

OWN = "own sizes"
"""Stands for a shape that a person typed."""
FIRST = "laptop_overlap"
"""Among the presets for CPU ranks, the one that is made to be looked at."""

Shape = Mapping[str, int | str]


class ProblemForm(Quiet):
    """`view` is the part that is always seen; `world` and `dtype` are for who asks for more."""

    def __init__(self, preset: str, machine: Machine) -> None:
        self._listeners: list[Callable[[bool], Any]] = []
        self._machine = machine
        self._sizes: dict[str, Any] = {}
        words = [(stated.words, name) for name, stated in OPERATORS.items()]
        self.operator = dropdown("Operator", words, "wb-operator", "gemm_all_to_all")
        self.preset = dropdown("Problem", [OWN], "wb-preset")
        self.about = html("wb-about")
        self.world = dropdown("Ranks", _worlds(machine), "wb-world", 2)
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
        """The sizes as they stand."""
        return tuple((name, control.value) for name, control in self._sizes.items())

    def on_change(self, listener: Callable[[bool], Any]) -> None:
        """Calls *listener* after every change; its argument says whether the operator is another one."""
        self._listeners.append(listener)

    def load(self, operator: str, shape: Shape, world: int, dtype: str) -> None:
        """Sets everything, to the preset that has just these sizes if there is one."""
        with self._silently():
            self.operator.value = operator
            if world not in self.world.options:
                self.world.options = sorted({*self.world.options, world})
            self.world.value, self.dtype.value = world, dtype
            self._fill_presets(self._preset_with(dict(shape), world))
            self._show_shape(shape)
            self._describe()
        self._tell()

    def move_to(self, machine: Machine) -> None:
        """Offers what is worth asking of *machine* first, and takes it when it is of another kind."""
        with self._silently():
            other_kind = machine.backend != self._machine.backend
            self._machine, before = machine, self.world.value
            self.world.options = _worlds(machine)
            self.world.value = min(before, machine.max_world)
            self._fill_presets("" if other_kind and self.preset.value != OWN else self.preset.value)
            self._take_preset(None if other_kind else self.world.value)
        self._tell()

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
        """Some sizes of a preset follow the number of ranks."""
        if not self._quiet:
            with self._silently():
                self._take_preset(change["new"])
            self._tell()

    def _fill_presets(self, wanted: str) -> None:
        on_cpu = self._machine.backend == "cpu"
        known = sorted(
            presets.offering(self.operator.value), key=lambda each: (each.laptop != on_cpu, each.name != FIRST)
        )
        names = [*(each.name for each in known), OWN]
        self.preset.options = names
        self.preset.value = wanted if wanted in names else names[0]

    def _take_preset(self, world: int | None = None) -> None:
        """The sizes of the preset for *world* ranks, for its own number of them if the machine has as many."""
        if self.preset.value == OWN:
            if dict(self.shape).keys() != {key.name for key in OPERATORS[self.operator.value].keys}:
                self._show_shape(self._sizes_to_begin_with())
            self._describe()
            return
        known = presets.named(self.preset.value)
        wanted = min(known.world, self._machine.max_world) if world is None else world
        try:
            problem = known.problem(self.operator.value, world=wanted)
        except Refusal as refusal:
            self._describe(str(refusal))  # the sizes stay as they were
            return
        self._show_shape(dict(problem.shape))
        self.dtype.value, self.world.value = problem.dtype, problem.world
        self._describe()

    def _sizes_to_begin_with(self) -> Shape:
        """Of another operator than before: those of its first preset."""
        known = presets.offering(self.operator.value)[0]
        return dict(known.problem(self.operator.value).shape)

    def _preset_with(self, shape: Shape, world: int) -> str:
        for each in presets.offering(self.operator.value):
            try:
                found = dict(each.problem(self.operator.value, world=world).shape)
            except Refusal:
                continue
            if found == shape:
                return each.name
        return OWN

    def _describe(self, refusal: str = "") -> None:
        """Sizes are typed only where they are one's own; of a preset there is a sentence."""
        own = self.preset.value == OWN
        self.sizes.layout.display = SHOWN if own else HIDDEN
        if own:
            self.about.value = note_html("Sizes of what one rank computes; below are those of all tensors.")
        else:
            self.about.value = preset_html(presets.named(self.preset.value), self.operator.value)
        if refusal:
            self.about.value = refusal_html(refusal)

    def _show_shape(self, shape: Shape) -> None:
        self._sizes = {}
        for key in OPERATORS[self.operator.value].keys:
            options: dict[str, Any] = {"description": key.name, "style": WIDE, "layout": wide(), "tooltip": key.doc}
            if key.words:
                control: Any = ipywidgets.Dropdown(
                    options=key.words, value=shape.get(key.name, key.words[0]), **options
                )
            else:
                control = ipywidgets.BoundedIntText(value=int(shape[key.name]), min=1, max=2**31, **options)
            control.observe(lambda _: self._tell(), "value")
            self._sizes[key.name] = marked(control, f"wb-size-{key.name}")
        self.sizes.children = tuple(self._sizes.values())


def _worlds(machine: Machine) -> list[int]:
    """1, 2, 4 ... as far as the machine goes."""
    return [2**power for power in range(machine.max_world.bit_length()) if 2**power <= machine.max_world]
