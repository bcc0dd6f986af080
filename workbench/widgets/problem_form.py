"""Which problem: an operator in words, a preset or sizes of one's own, how many ranks, which dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ipywidgets

from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.units import DTYPE_BYTES
from workbench import presets
from workbench.naming import shape_title, value_title
from workbench.widgets.controls import HIDDEN, SHOWN, WIDE, Quiet, dropdown, html, marked, wide
from workbench.widgets.words import note_html, preset_html, refusal_html

OWN = "own sizes"
"""Stands for a shape that a person typed."""
FIRST = "laptop_overlap"
"""Among the presets for CPU ranks, the one that is made to be looked at."""

Shape = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Left:
    """What was asked of one kind of ranks."""

    preset: str
    shape: Shape
    world: int
    dtype: str


class ProblemForm(Quiet):
    """`view` is the part that is always seen; `world` and `dtype` are for who asks for more."""

    def __init__(self, preset: str, machine: Machine) -> None:
        self._listeners: list[Callable[[bool], Any]] = []
        self._machine = machine
        self._sizes: dict[str, Any] = {}
        self._world = 2
        """The ranks that a person, a preset or a run chose, though the machine may have fewer."""
        self._left: dict[str, Left] = {}
        """By kind of ranks: what was asked of them when another kind was chosen."""
        words = [(operator.title, name) for name, operator in OPERATORS.items()]
        self.operator = dropdown("Operator", words, "wb-operator", "gemm_all_to_all")
        self.preset = dropdown("Problem", [OWN], "wb-preset")
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
        """The sizes as they stand."""
        return tuple((name, control.value) for name, control in self._sizes.items())

    def shape_for(self, world: int) -> tuple[tuple[str, int | str], ...]:
        """The sizes that *world* ranks would have; Refusal where those of the preset cannot be."""
        if self.preset.value == OWN:
            return self.shape
        return presets.named(self.preset.value).problem(self.operator.value, world=world).shape

    def on_change(self, listener: Callable[[bool], Any]) -> None:
        """Calls *listener* after every change; its argument says whether the operator is another one."""
        self._listeners.append(listener)

    def load(self, operator: str, shape: Shape, world: int, dtype: str, *, preset: str | None = None) -> None:
        """Sets everything, to *preset*, or to the one that has just these sizes if there is one."""
        with self._silently():
            self.operator.value = operator
            self._offer({*self.world.options, world})
            self.world.value, self.dtype.value, self._world = world, dtype, world
            self._fill_presets(preset or self._preset_with(dict(shape), world))
            self._show_shape(shape)
            self._describe()
        self._tell()

    def seat(self, seats: int) -> None:
        """Offers gangs of up to *seats* ranks. What was chosen stays a choice: a larger one may be refused, and why."""
        with self._silently():
            self._offer({*_worlds(seats), self.world.value})

    def _offer(self, worlds: set[int]) -> None:
        if set(self.world.options) != worlds:
            kept = self.world.value
            self.world.options = sorted(worlds)
            self.world.value = kept if kept in worlds else self.world.options[0]

    def move_to(self, machine: Machine) -> None:
        """Offers what is worth asking of *machine* first, and takes it when it is of another kind.

        A machine of fewer ranks takes as many as it has; what was chosen comes back with one that has enough.
        """
        with self._silently():
            before, self._machine = self._machine, machine
            self._offer({*_worlds(machine.max_world), min(self._world, machine.max_world)})
            self.world.value = min(self._world, machine.max_world)
            if machine.backend == before.backend:
                self._fill_presets(self.preset.value)
                self._take_preset(self.world.value)
            else:
                self._left[before.backend] = Left(self.preset.value, dict(self.shape), self._world, self.dtype.value)
                self._come_to(self._left.get(machine.backend))
        self._tell()

    def _come_to(self, left: Left | None) -> None:
        """To ranks of another kind: what was asked of them last, or the preset that is offered first."""
        sizes_typed = self.preset.value == OWN
        self._fill_presets(left.preset if left else OWN if sizes_typed else "")
        if left is None or self.preset.value != left.preset:
            self._take_preset()
            return
        self._world = left.world
        self.world.value, self.dtype.value = min(left.world, self._machine.max_world), left.dtype
        self._take_preset(self.world.value)
        if left.preset == OWN and left.shape.keys() == dict(self.shape).keys():
            self._show_shape(left.shape)

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
            self._world = change["new"]
            with self._silently():
                self._take_preset(change["new"])
            self._tell()

    def _fill_presets(self, wanted: str) -> None:
        on_cpu = self._machine.backend == "cpu"
        known = sorted(
            presets.offering(self.operator.value), key=lambda each: (each.laptop != on_cpu, each.name != FIRST)
        )
        names = [*(each.name for each in known), OWN]
        self.preset.options = [(value_title(name), name) for name in names]
        self.preset.value = wanted if wanted in names else names[0]

    def _take_preset(self, world: int | None = None) -> None:
        """The sizes of the preset for *world* ranks; without it for its own number of them, and in its own dtype."""
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
        self.world.value = problem.world
        if world is None:
            self.dtype.value, self._world = problem.dtype, known.world
        self._describe()

    def _sizes_to_begin_with(self) -> Shape:
        """Of another operator than before: those of its first preset."""
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
        return OWN

    def _describe(self, refusal: str = "") -> None:
        """Sizes are typed only where they are one's own; of a preset there is a sentence."""
        sizes_typed = self.preset.value == OWN
        self.sizes.layout.display = SHOWN if sizes_typed else HIDDEN
        if sizes_typed:
            self.about.value = note_html("Sizes of what one rank computes; below are those of all tensors.")
        else:
            self.about.value = preset_html(presets.named(self.preset.value), self.operator.value)
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
    """1, 2, 4 ... and as many as there can be."""
    return sorted({*(2**power for power in range(most.bit_length())), most})
